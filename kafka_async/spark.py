"""The Spark data source under the name that programs import: ``from kafka_async.spark import register``."""

from .adapters.spark import register
from .adapters.spark.lag import Lag, add_lag_listener, lag, report_lag

__all__ = ["Lag", "add_lag_listener", "lag", "register", "report_lag"]
