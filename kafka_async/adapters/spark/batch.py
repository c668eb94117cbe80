"""The offsets of a batch read, found once."""

from ...errors import KafkaConfigurationError
from ...model import TopicPartition
from ...values import evolve
from ..ranges.offsets import Offsets, names_of
from ..ranges.planner import OffsetRange, Task
from .options.source_options import SourceOptions
from .plan.lookup import Lookup
from .plan.offsets import EARLIEST, OffsetSpec

_FROM = OffsetSpec("earliest", "startingOffsets")
_TO = OffsetSpec("latest", "endingOffsets")


def plan_batch(options: SourceOptions, lookup: Lookup) -> list[Task]:
    """Return the tasks of a batch read.

    Raises ``UnknownTopicOrPartitionError``, ``KafkaConfigurationError`` for offsets that contradict each other, whatever kind of
    option they came from and whatever ``failOnDataLoss`` says, ``DataLossError`` for offsets that are not in the log.
    """
    partitions = lookup.partitions()
    begins, ends = lookup.bounds(partitions)
    if gone := partitions - begins.keys():
        lookup.lost(f"{names_of(gone)}: deleted while the offsets to read were looked up")
    first, last = options.starting or _FROM, options.ending or _TO
    starts = lookup.resolve(first, begins, ends, start=True)
    ends = lookup.confirmed(ends, starts)
    stops = lookup.resolve(last, begins, ends, start=False)
    ends = lookup.confirmed(ends, stops)
    for partition in begins:
        start, stop, end = starts[partition], stops[partition], ends[partition]
        if start > end:
            raise KafkaConfigurationError(f"{first.option}: {start} of {partition} is above its end, {end}")
        if start > stop:
            after = "the resolved start offset is greater than the resolved end offset"
            raise KafkaConfigurationError(f"{first.option}: {start} of {partition} is above {last.option}, {stop}: {after}")
    ranges = [_range(lookup, partition, starts, stops, begins, ends) for partition in begins]
    return options.tasks(evolve(each, earliest=_at_the_beginning(lookup, first, each.partition)) for each in ranges)


def _at_the_beginning(lookup: Lookup, spec: OffsetSpec, partition: TopicPartition) -> bool:
    """Return whether a start is where the log begins. Spark's own connector looks that up when a task runs, hours later perhaps."""
    match spec.kind:
        case "committed":
            return partition in lookup.uncommitted
        case "offsets":
            return spec.numbers[partition] == EARLIEST
        case _:
            return spec.kind == "earliest"


def _range(
    lookup: Lookup, partition: TopicPartition, starts: Offsets, stops: Offsets, begins: Offsets, ends: Offsets
) -> OffsetRange:
    """Return the range of one partition, within what its log holds."""
    start, stop, begin, end = starts[partition], stops[partition], begins[partition], ends[partition]
    if start < begin:
        lookup.lost(f"offsets {start} to {begin - 1} of {partition} are gone: its log begins at {begin}")
    if stop > end:
        lookup.lost(f"offsets {end} to {stop - 1} of {partition} are not there: its log ends at {end}")
    return OffsetRange(partition, max(start, begin), min(stop, end), lookup.topic_ids.get(partition.topic))
