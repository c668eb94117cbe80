"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

membership.py    a member; states.py: what it can be doing; requests.py: what it sends
session.py       its identity, and for how long it is surely a member
exchange.py      the one exchange that may wait for the other members
interest.py      the topics that it stands for
division.py      how the group divides its partitions; leader.py: what the leader does
assignment.py    the contract of an assignor; assignors.py: range and roundrobin; sticky_assignors.py: the sticky ones
"""
