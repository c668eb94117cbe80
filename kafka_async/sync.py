"""The blocking consumer under the name that programs import: ``from kafka_async.sync import KafkaConsumer``."""

from .adapters.sync import KafkaConsumer

__all__ = ["KafkaConsumer"]
