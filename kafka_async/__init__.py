"""An asyncio-native Apache Kafka consumer.

async with KafkaConsumer("orders", bootstrap_servers="localhost:9092") as consumer:
    async for record in consumer:
        ...
"""

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
