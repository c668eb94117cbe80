"""Many handlers at once, in order where it matters, at least once (``KafkaConsumer.process``).

    processing.py  what the caller holds: the tasks, the end
    run_state.py   how far it is, who waits for what happens to it, and where workers rest
    feed.py        records for the workers, read as soon as there is room
    delaying.py    partitions wait until their next record is due
    statistics.py  its statistics
    handling.py    the workers: calling the handler, and what happens to a record that failed
    context.py     what a handler gets beside its record
    contexts.py    a copy of the context variables for each call
    handler_threads.py    the threads of plain handlers
    threads.py     threads that can be left behind
    tasks.py       the tasks of all this, which nobody else can end
    settlement.py  commits, and rebalances: how records that are done come to count; puts it all together
    progress.py    what is done in each partition, and what may be committed of it
    source.py      one consumer, as far as processing uses it: records, positions, commits, call-backs
    process_options.py     the options, as programs write them; process_settings.py: checked

Without a loop, a clock or randomness:

    work.py        which records were received, are handled, are done, may be committed
    lanes.py       which record is handled next: order within a lane, fairness between partitions
    items.py       records on their way, and their partitions
    delays.py      which records are due
    redelivery.py  records that come again from another topic
    done.py        one partition: what is done and what may be committed
    encoding.py    what is done beyond the committed offset, as text for the commit's metadata
    capacity.py    how much may be held
    router.py      which handler a record goes to; typed_values.py: and what its value is
    bulkheads.py   limits of single routes
    limits.py      a rate, and whether handlers may begin at all; breaker.py: while what they depend on is down
    queues.py      what workers take from
    attempts.py    units of work that wait for their next attempt
    retry.py       how often and when a record is tried again; what a handler may raise to decide it
"""
