"""Where the examples read from: what the command line or the environment names, else a mock cluster with orders in it.

Owns the mock cluster for as long as an example runs. A program that has brokers of its own needs nothing of this.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

RECORDS: Final = 1000
"""Orders in the mock cluster."""


@contextmanager
def source() -> Iterator[tuple[str, str, int | None]]:
    """Give bootstrap servers, a topic, and how many records to read: ``None`` where the example goes on until interrupted.

    The first two come from the arguments ``HOST:PORT TOPIC``, or from ``KAFKA_BOOTSTRAP`` and ``KAFKA_TOPIC``. Raises
    ``SystemExit`` where only one of them is given.
    """
    given = sys.argv[1:] or [os.environ[name] for name in ("KAFKA_BOOTSTRAP", "KAFKA_TOPIC") if os.environ.get(name)]
    match given:
        case [bootstrap, topic]:
            yield bootstrap, topic, None
        case []:
            with _mock() as bootstrap:
                yield bootstrap, "orders", RECORDS
        case _:
            raise SystemExit("give both, HOST:PORT and TOPIC, or nothing to read from a mock cluster")


@contextmanager
def _mock() -> Iterator[str]:
    from kafka_async.adapters.demo import MockCluster, order  # needs the extra "demo"

    with MockCluster() as cluster:
        cluster.create("orders")
        for number in range(RECORDS):
            key, value = order(number, 0)
            cluster.producer.produce("orders", value, key)
        cluster.producer.flush(10)
        yield cluster.bootstrap
