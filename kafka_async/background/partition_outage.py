"""What fails partition by partition, from the first report until it goes well again.

Decides: which partitions recover. Owns: the partitions that fail. Must never decide what is tried again, or when.
"""

from collections.abc import Collection, Iterable

from ..errors import KafkaError
from ..model import TopicPartition
from ..trace import Fault, Listener, Recovered
from ..values import define, field


@define(eq=False)
class PartitionOutage:
    """One kind of outage, such as ``reading``, in each partition that has it."""

    trace: Listener = field(repr=False)
    name: str
    text: str
    """What the log says when it begins."""
    failing: set[TopicPartition] = field(factory=set, init=False)

    def keep(self, assigned: Collection[TopicPartition]) -> None:
        """Forget partitions that left: ``Unassigned`` has ended their outages."""
        self.failing.intersection_update(assigned)

    def report(
        self, failed: Iterable[tuple[KafkaError | None, Collection[TopicPartition]]], well: Iterable[TopicPartition], now: float
    ) -> None:
        """Trace which partitions fail, one event for each reason however many they are, and which of those before go well."""
        over = self.failing.intersection(well)
        self.failing -= over
        for error, partitions in failed:
            self.failing.update(partitions)
            found = frozenset(partitions)
            self.trace(Fault(now=now, text=self.text, error=error, subject="fetch", outage=self.name, partitions=found))
        if over:
            self.trace(Recovered(now=now, outage=self.name, subject="fetch", partitions=frozenset(over)))
