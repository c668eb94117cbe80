"""Programs and interfaces on top of a consumer. Each is imported only when it is used, so each may need an extra.

::

    admin/    requests about groups, for tools
    cli/      the command ``kafka-async``
    dead_letters.py    dead letters through another library's producer; ``letters.py``: reading them again
    export/   tables into files
    monitor/  who is behind, and why: the core of ``kafka-async top`` and ``kafka-async monitor``
    otel.py   metrics as OpenTelemetry instruments
    publishing.py    records written through another library's producer, for dead letters and retry topics
    ranges/   ranges of offsets, for whatever reads a part of a topic: Spark, scans
    retry_topics.py    records that failed, written to topics from which they are handled again later
    running.py    ``run``: handles SIGTERM as ``asyncio.run`` handles Ctrl-C
    spark/    a data source for PySpark
    sync.py   the blocking facade; ``sync_share.py`` that of share groups
    tables/   topics as tables
    tracing.py    traces of what is processed, in OpenTelemetry
    web/      the monitor over HTTP
    workers/  a program in several processes
    values/   bytes of keys and values to Arrow columns
"""
