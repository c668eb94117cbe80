"""What the caller holds.

consumer.py            the facade
parts.py               its parts, put together: what facades and ``process`` talk to
reading/               read calls: unread records, positions, iteration, ranges, Arrow
committing/            which offsets are committed, when, and how
group/                 the subscription, and assignments that the background proposes
lifecycle/             how it starts, runs and ends, where it may be used, and what can be seen of it
processing/            many handlers at once (``KafkaConsumer.process``)
share/                 share groups
arguments.py           what callers pass in, checked; callbacks.py: their listeners, interceptors, deserializers
task_context.py        who calls: a task of asyncio or trio, or a thread
background_calls.py    calls to the background; outbox.py, inbox.py: the ends of its queues; reported.py: its errors
"""
