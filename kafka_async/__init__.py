"""An asyncio-native Apache Kafka consumer.

    async with KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
        async for record in consumer:
            ...

Programs import from here, and from ``errors``, ``sync``, ``spark``, ``testing`` and ``adapters``. The packages, from top to bottom,
each importing only those below it and the plain modules::

    adapters/      programs and libraries on top of a consumer: blocking facade, command line, Spark, OpenTelemetry
    application/   what the caller holds: reading, committing, rebalances, processing
    background/    what the one loop owns: membership, offsets, fetches
    config/        the options
    network/       brokers, connections, SASL, TLS
    records/       what is in the record data of a Fetch response
    testing/       a Kafka cluster in the process, for tests
    wire/          Kafka's messages and their versions
    errors.py, events.py, model.py, trace.py    plain data and names
    functions.py   the functions that a program hands over
    states.py      state machines as tables
    started.py     which consumers of this process are started
    lazy.py        names that are imported when they are first used
    values.py      attrs' classes, with methods that all of them share
    spark.py, sync.py    short names for what is in ``adapters``
"""

from typing import TYPE_CHECKING

from .lazy import on_first_use

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import errors as errors
    from . import spark as spark
    from . import sync as sync
    from . import testing as testing
    from .adapters.running import run
    from .adapters.tables.scan import scan
    from .application.callbacks import ConsumerInterceptor, ConsumerRebalanceListener
    from .application.consumer import KafkaConsumer
    from .application.processing.breaker import Breaker
    from .application.processing.context import ProcessingContext
    from .application.processing.processing import Processing
    from .application.processing.retry import Failed, Reject, Retry, RetryLater, Skip, exponential
    from .application.processing.router import Router
    from .application.processing.statistics import ProcessingStatistics
    from .application.share.consumer import ShareConsumer
    from .application.share.options import ShareOptions
    from .application.share.record import ShareRecord
    from .application.share.statistics import ShareStatistics
    from .background.group.classic.assignment import Assignor, GroupMember, GroupTopics, RebalanceProtocol
    from .config import ConsumerConfig, ConsumerOptions
    from .errors import ProcessingError
    from .model import (
        ConsumerRecord,
        ConsumerState,
        GroupMetadata,
        IsolationLevel,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionStatistics,
        Statistics,
        SubscriptionPattern,
        TopicPartition,
    )
    from .network import AbstractTokenProvider, MskTokenProvider, OidcTokenProvider
else:
    __getattr__ = on_first_use(
        __name__,
        {
            ".adapters.running": "run",
            ".adapters.tables.scan": "scan",
            ".application.callbacks": "ConsumerInterceptor ConsumerRebalanceListener",
            ".application.consumer": "KafkaConsumer",
            ".application.processing.processing": "Processing",
            ".application.processing.retry": "Failed Reject Retry RetryLater Skip exponential",
            ".application.processing.router": "Router",
            ".application.processing.breaker": "Breaker",
            ".application.processing.context": "ProcessingContext",
            ".application.processing.statistics": "ProcessingStatistics",
            ".application.share.consumer": "ShareConsumer",
            ".application.share.options": "ShareOptions",
            ".application.share.record": "ShareRecord",
            ".application.share.statistics": "ShareStatistics",
            ".background.group.classic.assignment": "Assignor GroupMember GroupTopics RebalanceProtocol",
            ".config": "ConsumerConfig ConsumerOptions",
            ".errors": "ProcessingError",
            ".model": (
                "ConsumerRecord ConsumerState GroupMetadata IsolationLevel Node OffsetAndMetadata OffsetAndTimestamp "
                "PartitionStatistics Statistics SubscriptionPattern TopicPartition"
            ),
            ".network": "AbstractTokenProvider MskTokenProvider OidcTokenProvider",
        },
        modules="adapters application background config errors events model network records spark sync testing trace wire",
    )

__version__ = "0.1.0"

__all__ = [
    "AbstractTokenProvider",
    "Assignor",
    "Breaker",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerState",
    "Failed",
    "GroupMember",
    "GroupMetadata",
    "GroupTopics",
    "IsolationLevel",
    "KafkaConsumer",
    "MskTokenProvider",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OidcTokenProvider",
    "PartitionStatistics",
    "Processing",
    "ProcessingContext",
    "ProcessingError",
    "ProcessingStatistics",
    "RebalanceProtocol",
    "Reject",
    "Retry",
    "RetryLater",
    "Router",
    "ShareConsumer",
    "ShareOptions",
    "ShareRecord",
    "ShareStatistics",
    "Skip",
    "Statistics",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
    "exponential",
    "run",
    "scan",
]


def __dir__() -> list[str]:
    """Return the names that are imported on their first use too, so that shells and editors offer them."""
    return sorted({*globals(), *__all__, "adapters", "errors", "spark", "sync", "testing"})
