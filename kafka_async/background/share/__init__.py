"""The parts that only a share consumer has (KIP-932).

assembly.py            puts it together, and carries out the application's events
orders.py              what its two sides tell each other about records and locks
share_membership.py    a member: ShareGroupHeartbeat and nothing else
fetch.py               reading and acknowledging; session.py: sessions with brokers; unpacking.py: from bytes to records
acknowledgements.py    what goes into the next request, and what a response means
locks.py               the locks on records, and when they are renewed
share_settings.py      the options that only share consumers have
"""
