"""The coordinator: groups of both protocols, and what they have committed.

    registry.py      all groups, and who coordinates them; the answers, one function per API
    classic.py       JoinGroup, SyncGroup, Heartbeat, LeaveGroup: one group's states
    consumer.py      ConsumerGroupHeartbeat (KIP-848): one group's epochs and reconciliation
    fellows.py       members whose part a test plays
    share.py         ShareGroupHeartbeat: one share group's members
    assignor.py      which member should have which partition
    offsets.py       what was committed
    patterns.py      which patterns of topic names a broker accepts

Sessions expire: every look at a group first removes the members whose time is over.
"""

from .registry import Groups as Groups
