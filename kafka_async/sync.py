"""The blocking consumers under the names that programs import: ``from kafka_async.sync import KafkaConsumer, ShareConsumer``."""

from typing import TYPE_CHECKING

from .lazy import on_first_use

if TYPE_CHECKING:
    from .adapters.sync import KafkaConsumer
    from .adapters.sync_share import ShareConsumer
else:
    __getattr__ = on_first_use(__name__, {"..adapters.sync": "KafkaConsumer", "..adapters.sync_share": "ShareConsumer"})

__all__ = ["KafkaConsumer", "ShareConsumer"]


def __dir__() -> list[str]:
    """Return the names that are imported on their first use too."""
    return sorted({*globals(), *__all__})
