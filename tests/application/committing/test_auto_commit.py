"""Which offsets are committed and when, as a cluster in memory sees it; who is told."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from attrs import Factory, define

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError
from kafka_async.testing.simulation import FakeCluster
from kafka_async.trace import Fault, Recovered, TraceEvent, Unassigned
from kafka_async.wire import Api
from tests.virtual import run_virtual_asyncio

from ..support import Consumer, Records, consumer_on, read_values, virtual

GROUP: Final = {"group_id": "g"}


def two_partitions() -> tuple[FakeCluster, TopicPartition, TopicPartition]:
    cluster = FakeCluster()
    one, two = cluster.create_topic("t", 2)
    for partition in (one, two):
        cluster.fill(partition, 10)
    return cluster, one, two


@define(eq=False)
class CommitRecorder:
    """An interceptor that remembers what was committed."""

    offsets: list[dict[TopicPartition, int]] = Factory(list)

    def on_consume(self, records: Records) -> Records:
        return records

    async def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await anyio.lowlevel.checkpoint()
        self.offsets.append({partition: offset.offset for partition, offset in offsets.items()})


@virtual
async def test_what_was_read_is_committed_by_the_next_reads_when_the_interval_is_over() -> None:
    cluster, one, _ = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, interceptors=(told,)) as consumer:
        consumer.assign([one])
        assert len(await read_values(consumer, 10)) == 10
        await anyio.sleep(2)
        assert cluster.committed == {}, "nobody has asked for more, so the last batch may not be done"
        await consumer.getmany(timeout_ms=100)
        assert cluster.committed == {("g", one): 10}
        assert told.offsets == [{one: 10}]
        commits = len(cluster.asked(Api.OFFSET_COMMIT))
        await consumer.getmany(timeout_ms=5_000)
    assert len(cluster.asked(Api.OFFSET_COMMIT)) == commits, "what was committed is not committed again"


@virtual
async def test_a_refused_auto_commit_is_an_outage_until_it_is_accepted() -> None:
    cluster, one, _ = two_partitions()
    seen: list[TraceEvent] = []
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, trace=seen.append) as consumer:
        consumer.assign([one])
        assert len(await read_values(consumer, 10)) == 10
        give_back = cluster.control(Api.OFFSET_COMMIT, lambda broker, request: TopicAuthorizationFailedError.errno, keep=True)
        for _ in range(30):
            await consumer.getmany(timeout_ms=100)
        give_back()
        for _ in range(30):
            await consumer.getmany(timeout_ms=100)
    outage = [(type(event), event.outage) for event in seen if isinstance(event, Fault | Recovered) and event.partitions == {one}]
    assert outage == [(Fault, "auto-commit")] * (len(outage) - 1) + [(Recovered, "auto-commit")]
    assert len(outage) > 1


@virtual
async def test_no_outage_begins_for_a_partition_that_left_before_its_auto_commit_was_refused() -> None:
    cluster, one, two = two_partitions()
    seen: list[TraceEvent] = []
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, trace=seen.append) as consumer:
        consumer.assign([one, two])
        assert len(await read_values(consumer, 20)) == 20
        give_back = cluster.control(Api.OFFSET_COMMIT, lambda broker, request: TopicAuthorizationFailedError.errno, keep=True)
        await anyio.sleep(1.1)
        await consumer.getmany()  # begins to commit
        consumer.assign([two])
        for _ in range(5):
            await consumer.getmany(timeout_ms=100)
        give_back()
    left = seen.index(next(event for event in seen if isinstance(event, Unassigned) and one in event.partitions))
    faults = [event for event in seen[left:] if isinstance(event, Fault) and event.partitions]
    assert {(event.outage, event.partitions) for event in faults} >= {("", frozenset({one})), ("auto-commit", frozenset({two}))}
    assert not any(event.outage and one in event.partitions for event in faults), "nothing would end it"


@virtual
async def test_with_an_interval_of_nothing_each_read_commits_at_its_beginning() -> None:
    cluster, one, _ = two_partitions()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=0) as consumer:
        consumer.assign([one])
        for before in range(5):
            assert len(await read_values(consumer, 1)) == 1
            await anyio.sleep(0.01)
            assert cluster.committed.get(("g", one), 0) == before


async def _to_the_offset(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.seek(tp, 0)


async def _to_the_beginning(consumer: Consumer, tp: TopicPartition) -> None:
    await consumer.seek_to_beginning(tp)


@pytest.mark.parametrize("seek", [_to_the_offset, _to_the_beginning])
@virtual
async def test_a_seek_back_counts_although_the_answer_to_the_commit_before_it_is_seen_later(
    seek: Callable[[Consumer, TopicPartition], Awaitable[None]],
) -> None:
    cluster, one, _ = two_partitions()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000) as consumer:
        consumer.assign([one])
        assert len(await read_values(consumer, 8)) == 8
        await anyio.sleep(1.1)
        assert len(await read_values(consumer, 1)) == 1  # begins to commit
        await anyio.sleep(0.5)
        assert cluster.committed == {("g", one): 8}
        await seek(consumer, one)
        assert len(await read_values(consumer, 5)) == 5
    assert cluster.committed == {("g", one): 5}, "the rest is still to be read again"


@pytest.mark.parametrize("hindered", [False, True], ids=["not sent yet", "tried again"])
@virtual
async def test_a_commit_of_one_partition_leaves_the_auto_commit_of_others_alone(hindered: bool) -> None:
    cluster, one, two = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, interceptors=(told,)) as consumer:
        consumer.assign([one, two])
        consumer.pause(two)
        assert len(await read_values(consumer, 2, one)) == 2
        consumer.resume(two)
        assert len(await read_values(consumer, 10, two)) == 10
        await anyio.sleep(2)
        if hindered:
            cluster.control(Api.OFFSET_COMMIT, lambda broker, request: CoordinatorLoadInProgressError.errno)
        await consumer.getmany(max_records=1)  # begins to commit, and finds a record, so that nothing else runs
        await consumer.commit({one: 1})
        await anyio.sleep(1)
        assert cluster.committed == {("g", one): 1, ("g", two): 10}, "the application has the last word about its partition"
        assert told.offsets == [{one: 2, two: 10}, {one: 1}]
        await consumer.commit({one: 3, two: 10})


@virtual
async def test_partitions_that_an_assignment_drops_are_committed() -> None:
    cluster, one, two = two_partitions()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000_000) as consumer:
        consumer.assign([one, two])
        assert len(await read_values(consumer, 20)) == 20
        consumer.assign([two])
        await anyio.sleep(0.1)
        assert cluster.committed == {("g", one): 10}
    assert cluster.committed == {("g", one): 10, ("g", two): 10}


@virtual
@pytest.mark.parametrize("reads_on", [True, False])
async def test_interceptors_know_what_an_assignment_or_unsubscribe_has_committed(reads_on: bool) -> None:
    cluster, one, two = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000_000, interceptors=(told,)) as consumer:
        consumer.assign([one, two])
        assert len(await read_values(consumer, 20)) == 20
        consumer.assign([two])
        if reads_on:
            await consumer.getmany(timeout_ms=1_000)
            await consumer.getmany()
            assert told.offsets == [{one: 10}]
        consumer.unsubscribe()
        if reads_on:
            consumer.subscribe(["t"])
            await consumer.getmany(timeout_ms=1_000)
            await consumer.getmany()
    assert told.offsets == [{one: 10}, {two: 10}]


@virtual
async def test_without_auto_commit_only_the_caller_commits() -> None:
    cluster, one, two = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, **GROUP, enable_auto_commit=False, interceptors=(told,)) as consumer:
        consumer.assign([one, two])
        assert len(await read_values(consumer, 20)) == 20
        consumer.assign([two])
        await consumer.getmany(timeout_ms=6_000)
        assert cluster.committed == {}
        await consumer.commit({two: 3})
    assert cluster.committed == {("g", two): 3}
    assert told.offsets == [{two: 3}]


@virtual
async def test_interceptors_are_called_at_the_end_of_a_commit_whose_answer_nobody_has_looked_at() -> None:
    cluster, one, _ = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, interceptors=(told,)) as consumer:
        consumer.assign([one])
        assert len(await read_values(consumer, 6)) == 6
        await anyio.sleep(2)
        assert len(await read_values(consumer, 4)) == 4
        await anyio.sleep(1)
    assert cluster.committed == {("g", one): 10}
    assert told.offsets == [{one: 6}, {one: 10}]


async def _is_at_its_tenth(consumer: Consumer, way: str) -> None:
    """Read in a task of its own, which fails with the second ten records, or with the first of them."""

    async def fail() -> None:
        if way == "iteration":
            async for record in consumer:
                if record.offset == 10:
                    raise ValueError("a bad record")
        await read_values(consumer, 10)
        await consumer.getmany(timeout_ms=1_000, max_records=10)
        raise ValueError("a bad record")

    with pytest.raises(ValueError, match="a bad record"):
        await asyncio.ensure_future(fail())


async def _seek(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.seek(tp, 10)


async def _seek_before_it(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.seek(tp, 5)


async def _seek_to_committed(consumer: Consumer, tp: TopicPartition) -> None:
    await consumer.commit({tp: 10})
    await consumer.seek_to_committed()


async def _subscribe_anew(consumer: Consumer, tp: TopicPartition) -> None:
    consumer.unsubscribe()
    consumer.subscribe([tp.topic])


WAYS_BACK: Final = (_seek, _seek_before_it, _seek_to_committed, _subscribe_anew)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("way", ["batches", "iteration"])
@pytest.mark.parametrize(
    "back", [_seek, _seek_before_it, _seek_to_committed, _subscribe_anew], ids=lambda fn: fn.__name__.strip("_")
)
def test_what_a_failed_task_held_holds_up_no_commit_once_it_is_read_again(
    protocol: str, way: str, back: Callable[[Consumer, TopicPartition], Awaitable[None]]
) -> None:
    run_virtual_asyncio(partial(_reading_again, protocol, way, back))


async def _reading_again(protocol: str, way: str, back: Callable[[Consumer, TopicPartition], Awaitable[None]]) -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 40)
    async with consumer_on(cluster, "t", **GROUP, group_protocol=protocol, auto_commit_interval_ms=1_000) as consumer:
        await _is_at_its_tenth(consumer, way)
        await anyio.sleep(2)
        await consumer.getmany(max_records=1)
        await anyio.sleep(1)
        assert cluster.committed.get(("g", tp), 10) == 10
        await back(consumer, tp)
        assert (await consumer.getone()).offset in (5, 10)
        while (await consumer.getone()).offset < 39:
            pass
        await anyio.sleep(2)
        for _ in range(5):
            await consumer.getmany(timeout_ms=500)
        assert cluster.committed == {("g", tp): 40}


def test_what_a_failed_task_held_of_a_former_topic_holds_up_no_commit_of_the_new_one() -> None:
    run_virtual_asyncio(_reading_the_new_topic)


async def _reading_the_new_topic() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 40)
    async with consumer_on(cluster, "t", **GROUP, auto_commit_interval_ms=1_000) as consumer:
        await _is_at_its_tenth(consumer, "batches")
        assert len(await read_values(consumer, 20)) == 20
        cluster.recreate("t")
        cluster.fill(tp, 60)
        assert len(await read_values(consumer, 60)) == 60
        for _ in range(5):
            await consumer.getmany(timeout_ms=500)
        assert cluster.committed == {("g", tp): 60}


# --- positions that move while calls wait -----------------------------------------------------------------------------------------


HOUR_MS: Final = 3_600_000


async def _iterate(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


async def _get_ones(consumer: Consumer) -> None:
    while True:
        await consumer.getone()


async def _get_many(consumer: Consumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=HOUR_MS)


async def _get_columns(consumer: Consumer) -> None:
    while True:
        await consumer.getarrow(timeout_ms=HOUR_MS)


EACH_WAY: Final = pytest.mark.parametrize(
    "read", [_iterate, _get_ones, _get_many, _get_columns], ids=lambda fn: fn.__name__.strip("_")
)


@EACH_WAY
@pytest.mark.parametrize("committed", [True, False])
@virtual
async def test_a_position_that_moves_past_markers_and_aborted_records_alone_is_committed_while_a_read_waits(
    read: Callable[[Consumer], Coroutine[Any, Any, None]], committed: bool
) -> None:
    cluster, one, _ = two_partitions()
    level = "read_uncommitted" if committed else "read_committed"
    async with (
        consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, isolation_level=level) as consumer,
        anyio.create_task_group() as tasks,
    ):
        consumer.assign([one])
        cluster.produce(one, *"abc", producer_id=7)
        tasks.start_soon(read, consumer)
        await anyio.sleep(60)
        assert cluster.committed == {("g", one): 13 if committed else 10}
        cluster.log(one).end_transaction(7, commit=committed)
        cluster.changed()
        await anyio.sleep(2)
        assert cluster.committed == {("g", one): 14}
        commits = len(cluster.asked(Api.OFFSET_COMMIT))
        await anyio.sleep(60)
        assert len(cluster.asked(Api.OFFSET_COMMIT)) == commits
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("read", [_iterate, _get_ones, _get_many], ids=lambda fn: fn.__name__.strip("_"))
@virtual
async def test_records_that_an_interceptor_drops_are_committed_while_a_read_waits(
    read: Callable[[Consumer], Coroutine[Any, Any, None]],
) -> None:
    class DropsAll:
        def on_consume(self, records: Records) -> Records:
            return {}

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    cluster, one, _ = two_partitions()
    async with (
        consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000, interceptors=(DropsAll(),)) as consumer,
        anyio.create_task_group() as tasks,
    ):
        consumer.assign([one])
        tasks.start_soon(read, consumer)
        await anyio.sleep(60)
        assert cluster.committed == {("g", one): 10}
        cluster.fill(one, 5)
        await anyio.sleep(2)
        assert cluster.committed == {("g", one): 15}
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("waits", [True, False])
def test_what_a_task_reads_at_last_is_committed_while_another_one_waits(waits: bool) -> None:
    """The last one waits for it, or finds it fetched already."""

    async def scenario() -> None:
        cluster, one, two = two_partitions()
        async with consumer_on(cluster, **GROUP, auto_commit_interval_ms=1_000) as consumer:
            consumer.assign([one, two])
            assert len(await read_values(consumer, 20)) == 20
            assert await consumer.getmany() == {}, "so this task is done with them"

            async def wait() -> None:
                await consumer.getone(one)

            async def read() -> int:
                return len((await consumer.getmany(two, timeout_ms=HOUR_MS))[two])

            waiting = asyncio.ensure_future(wait())
            reading = asyncio.ensure_future(read()) if waits else None
            await anyio.sleep(60)
            cluster.fill(two, 5)
            await anyio.sleep(60)
            assert await (reading or asyncio.ensure_future(read())) == 5
            await anyio.sleep(2)
            committed = dict(cluster.committed)
            waiting.cancel()
        assert committed == {("g", one): 10, ("g", two): 15}

    run_virtual_asyncio(scenario)


# --- where reading began, of partitions of which the group has nothing stored (promise 15) ----------------------------------------


LATEST: Final = {**GROUP, "auto_offset_reset": "latest", "enable_auto_commit": False}


@virtual
async def test_the_applications_commit_stores_where_other_partitions_began() -> None:
    cluster, one, two = two_partitions()
    told = CommitRecorder()
    async with consumer_on(cluster, "t", **LATEST, interceptors=(told,)) as consumer:
        assert [await consumer.position(each) for each in (one, two)] == [10, 10]
        await consumer.commit({one: 12})
        assert cluster.committed == {("g", one): 12, ("g", two): 10}
        cluster.produce(two, "a")
        assert len(await read_values(consumer, 1)) == 1
        await consumer.commit({one: 13})
        assert cluster.committed == {("g", one): 13, ("g", two): 10}, "the record may be in work"
        assert told.offsets == [{one: 12}, {one: 13}], "the interceptor is told what the application has committed"


@virtual
async def test_a_partition_without_a_record_as_young_as_the_duration_is_not_read_from_its_beginning_by_the_next_member() -> None:
    cluster, one, two = two_partitions()
    options = {**LATEST, "auto_offset_reset": "by_duration:PT1H"}
    async with consumer_on(cluster, "t", **options) as consumer:
        assert [await consumer.position(each) for each in (one, two)] == [10, 10]
        await consumer.commit({one: 12})
        assert cluster.committed == {("g", one): 12, ("g", two): 10}
    async with consumer_on(cluster, "t", **options) as consumer:
        assert await consumer.position(two) == 10


@virtual
async def test_a_beginning_is_not_stored_if_the_application_has_moved_or_an_offset_is_stored() -> None:
    cluster, one, two = two_partitions()
    async with consumer_on(cluster, "t", **LATEST) as consumer:
        await consumer.position(two)
        consumer.seek(two, 3)
        await consumer.commit({one: 12})
        assert cluster.committed == {("g", one): 12}
        await consumer.commit({two: 4})
    async with consumer_on(cluster, "t", **LATEST) as consumer:
        await consumer.position(two)
        commits = len(cluster.asked(Api.OFFSET_COMMIT))
        await consumer.commit({one: 14})
        (request,) = cluster.asked(Api.OFFSET_COMMIT)[commits:]
        assert [len(topic.partitions) for topic in request.request.topics] == [1]


@virtual
async def test_nothing_but_what_the_application_commits_is_stored_if_new_partitions_are_read_like_others() -> None:
    cluster, one, two = two_partitions()
    for options in ({"auto_offset_reset": "earliest"}, {"auto_offset_reset_new_partitions": "latest"}):
        async with consumer_on(cluster, "t", **{**LATEST, **options}) as consumer:
            await consumer.position(two)
            await consumer.commit({one: 1})
            assert cluster.committed == {("g", one): 1}


@virtual
async def test_a_beginning_that_is_refused_is_no_error_of_the_applications_commit() -> None:
    cluster, one, two = two_partitions()
    cluster.create_topic("u")
    other = TopicPartition("u", 0)
    async with consumer_on(cluster, "t", "u", **LATEST) as consumer:
        for each in (one, two, other):
            await consumer.position(each)
        cluster.topics["u"].error = TopicAuthorizationFailedError.errno
        await consumer.commit({one: 12})
        assert cluster.committed == {("g", one): 12, ("g", two): 10}
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.commit({other: 1})


@virtual
async def test_of_two_new_partitions_one_with_an_offset_does_not_make_the_other_one_old() -> None:
    cluster, one, two = two_partitions()
    async with consumer_on(cluster, "t", **LATEST) as consumer:
        await consumer.position(two)
        await consumer.commit({one: 10})
    cluster.add_partitions("t", 4)
    new = [TopicPartition("t", index) for index in (2, 3)]
    for each in new:
        cluster.produce(each, "a")
    cluster.groups.offsets.positions["g", new[1]] = 1  # a member that died was faster with this one
    async with consumer_on(cluster, "t", **LATEST) as consumer:
        assert [await consumer.position(each) for each in (one, two, *new)] == [10, 10, 0, 1]
