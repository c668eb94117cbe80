"""An asyncio-native Apache Kafka consumer.

async with KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
    async for record in consumer:
        ...
"""

from typing import TYPE_CHECKING

from .lazy import on_first_use

if TYPE_CHECKING:
    from .application.callbacks import ConsumerInterceptor, ConsumerRebalanceListener
    from .application.consumer import KafkaConsumer
    from .background.assignment import Assignor, GroupMember, GroupTopics, RebalanceProtocol
    from .config import ConsumerConfig
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
            ".application.callbacks": "ConsumerInterceptor ConsumerRebalanceListener",
            ".application.consumer": "KafkaConsumer",
            ".background.assignment": "Assignor GroupMember GroupTopics RebalanceProtocol",
            ".config": "ConsumerConfig",
            ".model": (
                "ConsumerRecord ConsumerState GroupMetadata IsolationLevel Node OffsetAndMetadata OffsetAndTimestamp "
                "PartitionStatistics Statistics SubscriptionPattern TopicPartition"
            ),
            ".network": "AbstractTokenProvider MskTokenProvider OidcTokenProvider",
        },
        modules="adapters application background config errors events model network records trace wire",
    )

__version__ = "0.1.0"

__all__ = [
    "AbstractTokenProvider",
    "Assignor",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerState",
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
    "RebalanceProtocol",
    "Statistics",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
]


def __dir__() -> list[str]:
    """Return the names that are imported on their first use too, so that shells and editors offer them."""
    return sorted({*globals(), *__all__})
