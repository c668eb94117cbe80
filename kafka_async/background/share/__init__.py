"""The parts that only a share consumer has (KIP-932).

assembly.py            puts it together, and carries out the application's events
orders.py              what its two sides tell each other about records and locks
share_membership.py    a member: ShareGroupHeartbeat and nothing else
fetch.py               reading and acknowledging: what the application says, and the parts that follow
read_ahead.py          how much is fetched; requests.py: what each broker is sent next; answers.py: what answers mean
share_broker.py        the conversation with a broker; session.py: its session; closing.py: who waits, and how far it has closed
acknowledgements.py    what is to be acknowledged at a broker; unpacking.py: from bytes to records
locks.py               the locks on records, and when they are renewed
share_settings.py      the options that only share consumers have
"""
