"""What fails partition by partition, from the first report until it goes well again."""

from collections.abc import Collection, Iterable
from math import inf
from typing import Final, NamedTuple

from ...errors import KafkaError
from ...model import TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field

LASTING: Final = 3.0
"""Seconds that an election may take, and with it partitions without a leader or brokers that refuse because of it."""


class Failing(NamedTuple):
    """Why a partition fails, since when it has failed without the application having been told, and when it failed last."""

    error: KafkaError | None
    since: float
    last: float
    unwanted_since: float | None = None
    """When ``lapse`` first found that nobody wants it any more; ``None``: somebody does, or it was not asked."""


@define(eq=False)
class PartitionOutage:
    """One kind of outage, such as ``reading``, in each partition that has it."""

    trace: Listener = field(repr=False)
    name: str
    text: str
    """What the log says when it begins."""
    patience: float = inf
    """Seconds without an attempt after which the time counts from the next one: of a partition that was paused, or while the event
    loop was blocked, nothing is known."""
    failing: dict[TopicPartition, Failing] = field(factory=dict, init=False)

    def keep(self, assigned: Collection[TopicPartition]) -> None:
        """Forget partitions that left: ``Unassigned`` has ended their outages."""
        if any(partition not in assigned for partition in self.failing):
            self.failing = {partition: failing for partition, failing in self.failing.items() if partition in assigned}

    def lapse(self, wanted: Collection[TopicPartition], now: float) -> float:
        """End outages of what nobody has wanted for ``patience``. Return when to look again.

        Not at once: calls that end at their deadlines and are made again, every few minutes, are one outage. Nor is the time of the
        last failure of use: what is wanted may wait for a leader for long without another one.
        """
        self.failing = self.failing | {
            partition: failing._replace(unwanted_since=None if partition in wanted else now)
            for partition, failing in self.failing.items()
            if (partition in wanted) is (failing.unwanted_since is not None)
        }
        unwanted = ((partition, failing.unwanted_since) for partition, failing in self.failing.items())
        due = {partition: since + self.patience for partition, since in unwanted if since is not None}
        over = frozenset(partition for partition, due_at in due.items() if due_at <= now)
        if over:
            self.failing = {partition: failing for partition, failing in self.failing.items() if partition not in over}
            self.trace(Recovered(now=now, outage=self.name, subject="fetch", partitions=over, needed=False))
        return min((due_at for due_at in due.values() if due_at > now), default=inf)

    def report(
        self,
        failed: Iterable[tuple[KafkaError | None, Collection[TopicPartition]]],
        well: Iterable[TopicPartition],
        now: float,
        sent_at: float | None = None,
    ) -> None:
        """Trace which partitions fail, one event for each reason however many they are, and which of those before go well.

        ``sent_at``: when the request was sent.
        """
        tried_at = now if sent_at is None else sent_at
        over = self.failing.keys() & frozenset(well)
        failing = {partition: before for partition, before in self.failing.items() if partition not in over}
        for error, partitions in failed:
            for partition in partitions:
                before = failing.get(partition)
                goes_on = before is not None and tried_at - before.last <= self.patience
                failing[partition] = Failing(error, before.since if before is not None and goes_on else now, now)
            found = frozenset(partitions)
            self.trace(Fault(now=now, text=self.text, error=error, subject="fetch", outage=self.name, partitions=found))
        self.failing = failing
        if over:
            self.trace(Recovered(now=now, outage=self.name, subject="fetch", partitions=frozenset(over)))

    def lasting(self, now: float) -> dict[TopicPartition, KafkaError]:
        """Return those whose attempts have failed for longer than an election takes, and are still made."""
        return {
            partition: failing.error
            for partition, failing in self.failing.items()
            if failing.error is not None and failing.last - failing.since >= LASTING and now - failing.last <= self.patience
        }

    def told(self, partitions: Collection[TopicPartition], now: float) -> None:
        """The application has been told that these fail."""
        self.failing = self.failing | {partition: self.failing[partition]._replace(since=now) for partition in partitions}
