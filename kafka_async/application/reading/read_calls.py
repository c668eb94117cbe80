"""What read calls do, but for the last step, which is the facade's own: an assignment right before it returns (``unread.py``)."""

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...config import ConsumerConfig
from ...errors import ConsumerStoppedError
from ...model import TopicPartition
from ...records import ALL_COLUMNS, ColumnBuilder, Columns
from ...values import define, field
from ..arguments import at_least_one, column_names, seconds
from ..callbacks import Batch
from ..group.assigned import AssignedPartitions
from ..lifecycle.ownership import CallGuard
from .ranges import Ranges
from .reader import Reader

if TYPE_CHECKING:
    import pyarrow

    from ..lifecycle.runtime import Runtime

ARROW_ROWS: Final = 65_536
"""Rows of an Arrow batch if the caller does not say: ``max_poll_records`` is made for objects that are handled one by one."""

_imported: Final[dict[str, Any]] = {}
"""What a first call imported, set only after the import is complete."""


def _arrow() -> Any:
    from . import arrow  # before anything of pyarrow: it says what to install

    # isort: split
    import pyarrow.compute  # noqa: F401  # what a column of timestamps needs, here and not on the event loop

    return arrow


@define(eq=False)
class ReadCalls:
    """The read calls of one consumer. ``holder``: the task or thread that gets the records."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    guard: CallGuard
    assigned: AssignedPartitions
    reader: Reader
    ranges: Ranges

    def asks(self) -> Any:
        """Return the task or thread that calls. It asks for more, so it is done with the records it had."""
        return self.reader.auto_commit.holdings.asks()

    async def portion(self, partitions: tuple[TopicPartition, ...], holder: Any, seconds: float = inf) -> Any:
        """Return the portion whose next record is to be handed out; its ``place`` is then raised. ``NothingCame``: none in time."""
        self.guard.check_readable()
        return await self.reader.next_portion(self.assigned.only(partitions), holder, seconds)

    async def many(self, partitions: tuple[TopicPartition, ...], timeout_ms: float, max_records: int | None, holder: Any) -> Batch:
        """See ``KafkaConsumer.getmany``."""
        self.guard.check_readable()
        limit = at_least_one(self.config.max_poll_records if max_records is None else max_records, "max_records")
        try:
            return await self.reader.batch(self.assigned.only(partitions), seconds(timeout_ms), limit, holder=holder)
        except ConsumerStoppedError:
            if self.guard.lifecycle.is_over:
                return {}  # it waited while the consumer was stopped
            raise

    async def arrow(
        self,
        holder: Any,
        partitions: tuple[TopicPartition, ...],
        timeout_ms: float,
        max_records: int | None,
        columns: Collection[str] | None,
        view: bool,
    ) -> "pyarrow.RecordBatch":
        """See ``KafkaConsumer.getarrow``."""
        self.guard.check_readable()
        arrow = await self._import_arrow()
        if view:
            arrow.check_views()
        limit = at_least_one(ARROW_ROWS if max_records is None else max_records, "max_records")
        names = ALL_COLUMNS if columns is None else column_names(columns)
        into = ColumnBuilder(names, view=view)
        await self.reader.columns(self.assigned.only(partitions), seconds(timeout_ms), limit, into, holder=holder)
        return arrow.record_batch(into.finish(), names)

    async def _import_arrow(self) -> Any:
        # Not looked up in ``sys.modules``: a module is there half-initialized while another consumer's thread imports it.
        if "arrow" not in _imported:
            _imported["arrow"] = await self.runtime.apart(_arrow)
        return _imported["arrow"]

    async def columns(self, holder: Any, columns: Collection[str], batch_bytes: int, timeout_ms: float | None) -> Columns | None:
        """See ``KafkaConsumer.next_columns``."""
        self.guard.check_readable()
        return await self.ranges.next_columns(column_names(columns), at_least_one(batch_bytes, "batch_bytes"), timeout_ms, holder)
