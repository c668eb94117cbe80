"""The Spark data source under the name that programs import: ``from kafka_async.spark import register``."""

from .adapters.spark import register

__all__ = ["register"]
