"""A partition's log and what groups have committed: found without a look at everything that is there."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.testing.simulation import PartitionLog
from kafka_async.testing.simulation.groups.offsets import CommittedOffsets

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def gaps() -> PartitionLog:
    """Batches of the offsets 0 to 4, 10 to 14 and 20 to 24: what was between them was compacted away."""
    log = PartitionLog()
    for base in (0, 10, 20):
        log.append_bytes(b"%02d" % base, base, base + 4)
    return log


@pytest.mark.parametrize(
    ("offset", "limit", "bases"),
    [
        (0, 25, [0, 10, 20]),
        (4, 25, [0, 10, 20]),
        (5, 25, [10, 20]),
        (12, 25, [10, 20]),
        (12, 20, [10]),
        (12, 21, [10, 20]),
        (7, 8, []),
        (24, 25, [20]),
        (25, 25, []),
    ],
)
def test_batches_are_found_from_the_one_that_holds_an_offset_or_the_next(
    gaps: PartitionLog, offset: int, limit: int, bases: list[int]
) -> None:
    assert [batch.base_offset for batch in gaps.between(offset, limit)] == bases


class Counted(list[Any]):
    """A list that counts how many of its items are looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.looks += 1
            yield each


def test_who_follows_a_log_does_not_walk_through_it() -> None:
    log = PartitionLog()
    for offset in range(3000):
        log.append_bytes(b"x", offset, offset)
    log.batches = batches = Counted(log.batches)
    assert log.read(2999, 100, committed=False, whole=True) == b"x"
    assert batches.looks < 30


def test_offsets_are_kept_by_group_and_seen_as_one_table() -> None:
    offsets = CommittedOffsets()
    for group, tp, offset in (("g", T0, 1), ("h", T0, 2), ("g", T1, 3)):
        offsets.store(group, tp, OffsetAndMetadata(offset, f"of {group}"))
    assert offsets.positions == {("g", T0): 1, ("h", T0): 2, ("g", T1): 3}
    assert len(offsets.positions) == 3
    assert offsets.of("g") == {T0: OffsetAndMetadata(1, "of g"), T1: OffsetAndMetadata(3, "of g")}
    assert offsets.of("other") == {}

    offsets.drop("g", T0)
    offsets.drop("g", T0)
    assert offsets.of("g") == {T1: OffsetAndMetadata(3, "of g")}
    offsets.forget("g")
    assert offsets.positions == {("h", T0): 2}
    assert offsets.metadata == {("h", T0): "of h"}
    assert set(offsets.positions.groups) == {"h"}
    with pytest.raises(KeyError):
        offsets.positions["g", T1]
    offsets.forget_topic("t")
    assert not offsets.positions
