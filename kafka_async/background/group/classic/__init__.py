"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

classic_membership.py    a member; states.py: its states; requests.py: its requests
session.py               its identity, and for how long it is certainly a member
coordinator_request.py   the one request that may wait for the other members
member_topics.py         the topics of its subscription
division.py              how the group divides its partitions; leader.py: what the leader does
assignment.py            the contract of an assignor; assignors.py: range and roundrobin; sticky_assignors.py: the sticky ones
"""
