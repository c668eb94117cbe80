"""Several processes that run the same program, started and watched by one (``kafka-async run``).

::

    entry.py       a worker: finds the program, runs it, reports, ends with its parent
    reports.py     what a worker tells its parent, as lines of JSON
    team.py        what is to be done about each worker and when: a table, and time as an argument
    supervisor.py  the parent: processes, pipes, signals
    health.py      what the parent answers to probes and Prometheus

The parent neither imports the program nor talks to Kafka. ``WORKERS.md`` is the page for users.
"""
