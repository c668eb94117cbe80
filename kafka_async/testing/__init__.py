"""A Kafka cluster in the process, for tests of programs that use this package: the real consumer, no broker.

    README.md        how to use it, and what is simulated
    clusters.py      the public class: Cluster
    real.py          real brokers with the same methods
    secure.py        TLS and SASL for those
    plugin.py        fixtures for pytest
    serving.py       the cluster on TCP
    threaded.py      the cluster on TCP, in a thread of its own
    clock.py         virtual time on asyncio
    batches.py       record batches as brokers keep them
    reading.py       records as tests see them
    server.py        the broker's side of the wire
    simulation/      the simulated brokers, logs and coordinators

It speaks bytes, so it needs ``wire`` and nothing above it, and nothing that only tests install. A name is imported when it is first
used, so that the pytest plugin costs nothing if no test uses its fixtures.
"""

from typing import TYPE_CHECKING

from ..lazy import on_first_use

if TYPE_CHECKING:
    from ..wire import Api as Api
    from .clock import VirtualLoop as VirtualLoop
    from .clock import virtual_loop as virtual_loop
    from .clusters import Cluster as Cluster
    from .clusters import ClusterOptions as ClusterOptions
    from .clusters import Member as Member
    from .clusters import Transaction as Transaction
    from .reading import WrittenRecord as WrittenRecord
    from .real import RealCluster as RealCluster
    from .server import NotSimulatedError as NotSimulatedError
    from .simulation import HANG as HANG
    from .simulation import LOSE as LOSE
    from .simulation import Drop as Drop
    from .simulation import LoggedRequest as LoggedRequest
    from .threaded import ThreadedCluster as ThreadedCluster
else:
    __getattr__ = on_first_use(
        __name__,
        {
            "..wire": "Api",
            ".clock": "VirtualLoop virtual_loop",
            ".clusters": "Cluster ClusterOptions Member Transaction",
            ".real": "RealCluster",
            ".reading": "WrittenRecord",
            ".server": "NotSimulatedError",
            ".simulation": "HANG LOSE Drop LoggedRequest",
            ".threaded": "ThreadedCluster",
        },
    )

__all__ = [
    "HANG",
    "LOSE",
    "Api",
    "Cluster",
    "ClusterOptions",
    "Drop",
    "LoggedRequest",
    "Member",
    "NotSimulatedError",
    "RealCluster",
    "ThreadedCluster",
    "Transaction",
    "VirtualLoop",
    "WrittenRecord",
    "virtual_loop",
]


def __dir__() -> list[str]:
    """Return the names that are imported on their first use too."""
    return sorted({*globals(), *__all__})
