"""A partition's log and what groups have committed: found without a look at everything that is there."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.testing.batches import read_records
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


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values that readers of committed data get."""
    found = [batch for batch in log.read_all(committed=True) if not log.is_aborted(batch)]
    return [record.value for batch in found for record in read_records(batch.data) if record.value and record.value.isalpha()]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_whose_marker_was_cut_off_is_open_again(commit: bool) -> None:
    log = PartitionLog()
    log.append([b"before"])
    log.append([b"inside"], producer_id=7)
    log.end_transaction(7, commit=commit)
    log.truncate(2)
    assert log.open_transactions == {7: 1}
    assert (log.end, log.last_stable_offset, log.aborted) == (2, 1, [])
    assert values(log) == [b"before"]


def test_a_transaction_that_had_ended_before_what_was_cut_off_stays_so() -> None:
    log = PartitionLog()
    log.append([b"aborted"], producer_id=7)
    log.end_transaction(7, commit=False)
    log.append([b"committed"], producer_id=8)
    log.end_transaction(8, commit=True)
    log.append([b"open"], producer_id=9)
    log.append([b"after"])
    log.truncate(5)
    assert log.open_transactions == {9: 4}
    log.truncate(4)
    assert log.open_transactions == {}
    assert values(log) == [b"committed"]


@pytest.mark.parametrize("ended", [True, False])
def test_compaction_keeps_the_committed_record_before_one_that_is_not(ended: bool) -> None:
    log = PartitionLog()
    for value in (b"old", b"new"):
        log.append([value], keys=[b"k"])
    log.append([b"never"], keys=[b"k"], producer_id=7)
    if ended:
        log.end_transaction(7, commit=False)
    log.append([b"last"], keys=[b"j"])
    log.compact()
    assert [batch.base_offset for batch in log.batches] == ([1, 3, 4] if ended else [1, 2, 3])
    assert values(log) == [b"new", b"last"][: 2 if ended else 1]
    if not ended:
        log.end_transaction(7, commit=True)
        log.compact()
        assert values(log) == [b"never", b"last"]
