"""Where the examples read from: what the command line or the environment names, else a mock cluster with orders in it.

Owns the mock cluster for as long as an example runs. Must never be needed by a program that has brokers of its own.
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
    """Give bootstrap servers, a topic, and how many records the example should read: ``None`` for "until interrupted".

    The first two come from the arguments ``HOST:PORT TOPIC`` or from ``KAFKA_BOOTSTRAP`` and ``KAFKA_TOPIC``. Raises ``SystemExit`` where
    only one of them is there.
    """
    bootstrap, topic, *_ = [*sys.argv[1:], os.environ.get("KAFKA_BOOTSTRAP", ""), os.environ.get("KAFKA_TOPIC", "")]
    if bootstrap and topic:
        yield bootstrap, topic, None
    elif bootstrap or topic:
        raise SystemExit("give both, HOST:PORT and TOPIC, or neither to read from a mock cluster")
    else:
        from kafka_async.adapters.demo import MockCluster, order

        with MockCluster() as cluster:
            cluster.create("orders")
            for number in range(RECORDS):
                key, value = order(number, 0)
                cluster.producer.produce("orders", value, key)
            cluster.producer.flush(10)
            yield cluster.bootstrap, "orders", RECORDS
