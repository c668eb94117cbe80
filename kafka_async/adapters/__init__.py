"""Programs and libraries on top of a consumer. Each is imported only when it is used, so each may need an extra.

::

    admin/    questions to the cluster, for tools
    cli/      the command ``kafka-async``
    dead_letters.py    dead letters through another library's producer
    otel.py   metrics as OpenTelemetry instruments
    running.py    ``run``: what ``asyncio.run`` does at Ctrl-C, at SIGTERM too
    spark/    a data source for PySpark
    sync.py   the blocking facade; ``sync_share.py`` that of share groups
"""
