"""Share groups (KIP-932) as the application holds them.

consumer.py    the facade; parts.py: its parts, put together: what facades and ``process`` talk to
record.py      one record, its lock and its acknowledgement
custody.py     the records that are unread or handed out, and the background's reports on their locks
reading.py     read calls; pace.py: how long the application takes for records
start_and_stop.py    how it starts and stops
source.py      where processing gets its records; work.py: the records that are processed; settlement.py: how they come to count
options.py     the options, and what to use instead of those that share groups do not have
statistics.py  one snapshot; metrics.py: metrics
"""
