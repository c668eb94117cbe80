"""The blocking consumers under the names that programs import: ``from kafka_async.sync import KafkaConsumer, ShareConsumer``."""

from .adapters.sync import KafkaConsumer
from .adapters.sync_share import ShareConsumer

__all__ = ["KafkaConsumer", "ShareConsumer"]
