"""What a program written for aiokafka takes for granted."""

from typing import Any, NamedTuple

import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.errors import IllegalOperation, IllegalStateError

from .support import Ownership, virtual


class ForeignPartition(NamedTuple):
    """Like those of aiokafka and kafka-python: equal to ours, but of another class."""

    topic: str
    partition: int


@virtual
async def test_a_partition_of_another_class_that_is_equal_is_taken_everywhere() -> None:
    place = Ownership()
    (ours,) = place.topic("t")
    theirs = ForeignPartition("t", 0)
    async with place.consumer(enable_auto_commit=False) as consumer:
        consumer.assign([theirs])
        assert consumer.assignment() == {ours}
        assert await consumer.position(theirs) == 0
        consumer.seek(theirs, 3)
        assert (await consumer.getone(theirs)).offset == 3
        assert [r.offset for r in (await consumer.getmany(theirs, timeout_ms=1000, max_records=2))[theirs]] == [4, 5]
        assert (await consumer.getarrow(theirs, timeout_ms=1000, max_records=1)).num_rows == 1
        await consumer.commit({theirs: 5})
        assert await consumer.committed(theirs) == 5
        assert (await consumer.committed_offsets(theirs))[ours].offset == 5
        consumer.pause(theirs)
        assert consumer.paused() == {ours}
        consumer.resume(theirs)
        assert await consumer.seek_to_committed(theirs) == {ours: 5}
        assert await consumer.seek_to_beginning(theirs)
        assert await consumer.seek_to_end(theirs)
        assert await consumer.end_offsets([theirs]) == {ours: 20}
        assert await consumer.beginning_offsets([theirs]) == {ours: 0}
        assert await consumer.offsets_for_times({theirs: 0})
        assert consumer.highwater(theirs) == 20
        assert consumer.last_stable_offset(theirs) == 20
        assert consumer.current_lag(theirs) == 0
        for made in consumer.assignment() | consumer.paused() | set(consumer.next_offsets()):
            assert type(made) is TopicPartition


@virtual
async def test_without_a_group_a_partition_that_is_not_assigned_is_the_first_mistake_of_seek_to_committed() -> None:
    place = Ownership()
    (ours,) = place.topic("t")
    async with place.plain() as consumer:
        with pytest.raises(IllegalStateError, match="no partitions are assigned"):
            await consumer.seek_to_committed()
        with pytest.raises(IllegalStateError, match="t-0"):
            await consumer.seek_to_committed(ours)
        consumer.assign([ours])
        with pytest.raises(IllegalOperation, match="group_id"):
            await consumer.seek_to_committed(ours)


def test_auto_commit_without_a_group_is_no_mistake() -> None:
    consumer = KafkaConsumer(group_id=None, enable_auto_commit=True)
    assert str(consumer.state) != "fatal"


@pytest.mark.parametrize("options", [{"sasl_mechanism": "PLAIN"}, {"ssl_check_hostname": False}])
def test_options_of_another_security_protocol_are_taken_with_a_warning(options: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="PLAINTEXT"):
        KafkaConsumer(bootstrap_servers="localhost:9092", **options)
