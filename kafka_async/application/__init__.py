"""What the caller holds.

consumer.py        the facade; its parts are the other files
lifecycle.py       its life, as one table; starting.py, parting.py: how it begins and ends
callers.py         who calls: tasks of asyncio or trio, or threads; place.py: where it may be used
arguments.py       what callers pass in, checked; callbacks.py: their listeners, interceptors, deserializers
reading.py         the read calls; iteration.py, _iteration.pyx: ``async for``; ranges.py: exact ranges of offsets
unread.py          what was fetched and not handed out yet; cursor.py: where the application stands in one partition
arrow.py           columns as Arrow record batches
committing.py      which offsets are committed, and when
subscribed.py      what was subscribed to or assigned; rebalancing.py: carrying out what the background proposes
calls.py           asking the background; outbox.py, inbox.py: the ends of its queues; reported.py: its errors
runtime.py         where the background loop runs
observing.py       trace events, statistics, the state; metrics.py: metrics; otlp.py: as telemetry carries them
processing/        many handlers at once (``KafkaConsumer.process``)
share/             share groups
"""
