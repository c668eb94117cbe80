"""The parts that only a consumer with a group has.

group_managers.py      its coordinator, its membership, its committed offsets
find_coordinator.py    which broker coordinates the group; lookup.py: how a membership gets it
membership.py          the interface of a member, the same for both protocols
classic/, consumer/    the two protocols
heartbeat.py           errors and heartbeat intervals, for both protocols
proposals.py           changes that a membership proposes to the application
parting.py             leaving
offset_commit.py, offset_fetch.py    the group's offsets; access.py: what they know about the group
"""
