"""Read calls.

read_calls.py   what read calls do, for every facade
reader.py       waiting for records and handing them over; iteration.py, _iteration.pyx: ``async for``
in_vain.py      saying so if nothing is subscribed
unread.py       data that was fetched and not handed out yet; cursor.py: the same for one partition, and its position
turns.py        the order in which partitions hand out what they have
ranges.py       exact ranges of offsets
arrow.py        columns as Arrow record batches
"""
