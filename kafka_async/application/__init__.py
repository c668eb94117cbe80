"""What the caller holds.

consumer.py        the facade; its parts are the other files
lifecycle.py       its life, as one table; starting.py, parting.py: how it begins and ends
callers.py         the callers: tasks of asyncio or trio, or threads; place.py: where a consumer may be used
arguments.py       what callers pass in, checked; callbacks.py: their listeners, interceptors, deserializers
reading.py         the read calls; iteration.py, _iteration.pyx: ``async for``; ranges.py: exact ranges of offsets
unread.py          data that was fetched and not handed out yet; cursor.py: the same for one partition, and its position
turns.py           the order in which partitions hand out what they have
arrow.py           columns as Arrow record batches
commits.py         how offsets are committed; committing.py: which, and when they are without being asked
subscribed.py      the subscription; rebalancing.py: carrying out assignments that the background proposes
calls.py           calls to the background; outbox.py, inbox.py: the ends of its queues; reported.py: its errors
runtime.py         where the background loop runs
observing.py       trace events, statistics, the state; metrics.py: metrics; descriptions.py: what each
                 means; otlp.py: metrics as telemetry sends them
processing/        many handlers at once (``KafkaConsumer.process``)
share/             share groups
"""
