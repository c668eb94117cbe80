"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

membership.py    a member; states.py: its states; requests.py: its requests
session.py       its identity, and for how long it is certainly a member
exchange.py      the one exchange that may wait for the other members
interest.py      the topics of its subscription
division.py      how the group divides its partitions; leader.py: what the leader does
assignment.py    the contract of an assignor; assignors.py: range and roundrobin; sticky_assignors.py: the sticky ones
"""
