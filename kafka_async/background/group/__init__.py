"""What only a consumer with a group has.

group.py               its coordinator, its membership, its committed offsets
find_coordinator.py    which broker coordinates the group; lookup.py: how a membership gets it
membership.py          what the rest sees of a member, whichever protocol is spoken
classic/, consumer/    the two protocols
heartbeat.py           what both make of errors, and when the next heartbeat is due
proposals.py           what a membership asks the application to do
parting.py             leaving
offset_commit.py, offset_fetch.py    the group's offsets; access.py: what they know about the group
"""
