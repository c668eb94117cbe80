"""Programs and libraries on top of a consumer. Each is imported only when it is used, so each may need an extra.

::

    admin/    questions to the cluster, for tools
    cli/      the command ``kafka-async``
    otel.py   metrics as OpenTelemetry instruments
    spark/    a data source for PySpark
    sync.py   the blocking facade
"""
