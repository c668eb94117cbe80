"""How a consumer ends: in which order, within which time, and whatever goes wrong on the way."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import anyio
import pytest
from attrs import Factory, define

from kafka_async import ConsumerInterceptor, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka_async.errors import (
    ConsumerStoppedError,
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_async.model import ConsumerRecord
from kafka_async.testing.simulation import FakeCluster
from kafka_async.trace import Fault, TraceEvent
from kafka_async.wire import Api

from ..support import Consumer, consumer_on, filled, read_values, virtual

OPTIONS: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 3_600_000}
both = pytest.mark.parametrize("protocol", ["classic", "consumer"])
COUNT = 7
"""Records that are read, and done with."""


@define(eq=False)
class Ending(ConsumerRebalanceListener):
    """A group with one member, and what happens when that ends."""

    protocol: str
    cluster: FakeCluster = Factory(lambda: filled(20)[0])
    happened: list[str] = Factory(list)
    seen: list[TraceEvent] = Factory(list)
    work: Callable[[], Any] = lambda: None

    def commits(self, *_: object) -> None:
        self.happened.append("commit")

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.happened.append("revoked")
        await self.work()

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.happened.append("lost")

    async def member(self, **options: Any) -> Consumer:
        """Return a member that has read some records; the task that has them is done with them when it calls ``stop``."""
        options = OPTIONS | {"group_protocol": self.protocol, "trace": self.seen.append} | options
        consumer = consumer_on(self.cluster, **options)
        consumer.subscribe(["t"], listener=self)
        await consumer.start()
        await read_values(consumer, COUNT)
        return consumer

    def faults(self) -> list[str]:
        return [event.text for event in self.seen if isinstance(event, Fault)]

    @property
    def stored(self) -> int | None:
        offsets = [offset for (group, _), offset in self.cluster.groups.offsets.positions.items() if group == "g"]
        return offsets[0] if offsets else None

    @property
    def has_left(self) -> bool:
        return not self.cluster.groups.members("g")


async def nothing() -> None:
    return


@both
@virtual
async def test_the_commit_comes_first_then_the_listener_then_the_leave_request(protocol: str) -> None:
    ending = Ending(protocol, work=nothing)
    consumer = await ending.member()
    ending.cluster.control(Api.OFFSET_COMMIT, ending.commits, keep=True)
    stored: list[int | None] = []

    async def look() -> None:
        stored.append(ending.stored)
        assert not ending.has_left

    ending.work = look
    await consumer.stop()
    assert ending.happened == ["commit", "revoked"]
    assert (stored, ending.has_left, ending.faults()) == ([COUNT], True, [])


@both
@pytest.mark.parametrize("api", [Api.OFFSET_COMMIT, None], ids=["the commit", "the listener"])
@virtual
async def test_what_never_ends_leaves_time_to_leave(protocol: str, api: Api | None) -> None:
    ending = Ending(protocol, work=nothing if api is not None else anyio.sleep_forever)
    consumer = await ending.member()
    if api is not None:
        loading = CoordinatorLoadInProgressError.errno  # it is asked again and again
        ending.cluster.control(api, lambda broker, request: loading, keep=True)
    before = anyio.current_time()
    await consumer.stop(timeout_ms=8_000)
    assert anyio.current_time() - before <= 8.01
    assert ending.happened == ["revoked"], "it is called all the same"
    assert ending.has_left
    assert (ending.stored is None) is (api is not None)
    if api is not None:
        assert "consumed offsets could not be committed" in ending.faults()


@both
@virtual
async def test_a_listener_that_raises_stops_nothing(protocol: str) -> None:
    async def fails() -> None:
        raise ZeroDivisionError("in the listener")

    ending = Ending(protocol, work=fails)
    consumer = await ending.member()
    await consumer.stop()
    assert ending.has_left
    assert ending.faults() == ["on_partitions_revoked failed while stopping"]


@both
@virtual
async def test_a_commit_that_is_refused_is_reported_and_stops_nothing(protocol: str) -> None:
    ending = Ending(protocol, work=nothing)
    consumer = await ending.member()
    ending.cluster.control(Api.OFFSET_COMMIT, lambda broker, request: GroupAuthorizationFailedError.errno, keep=True)
    await consumer.stop()
    assert ending.has_left
    assert "consumed offsets could not be committed" in ending.faults()


class Raising(ConsumerInterceptor):
    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise ZeroDivisionError("in the interceptor")


@both
@virtual
async def test_an_interceptor_that_raises_is_heard_after_the_member_has_left(protocol: str) -> None:
    ending = Ending(protocol, work=nothing)
    consumer = await ending.member(interceptors=(Raising(),))
    with pytest.raises(ZeroDivisionError):
        await consumer.stop()
    assert (ending.has_left, ending.stored) == (True, COUNT)
    assert ending.happened == ["revoked"], "it is called all the same"


class Hearing(ConsumerInterceptor):
    """Remembers up to where was committed."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.heard += [offset.offset for offset in offsets.values()]


class Hanging(Raising):
    async def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:  # type: ignore[override]  # or async
        await anyio.sleep_forever()


@both
@virtual
async def test_every_interceptor_hears_of_every_commit_though_one_raises_each_time(protocol: str) -> None:
    """A commit by interval is answered, and nothing has read since: the interceptors hear of it with the last one."""
    ending, second = Ending(protocol, work=nothing), Hearing()
    consumer = await ending.member(interceptors=(Raising(), second), auto_commit_interval_ms=1000)
    await anyio.sleep(2)
    await consumer.getmany(timeout_ms=0, max_records=5)
    await anyio.sleep(0.5)
    assert (ending.stored, second.heard) == (COUNT, [])
    with pytest.raises(ZeroDivisionError):
        await consumer.stop()
    assert (ending.stored, second.heard) == (COUNT + 5, [COUNT, COUNT + 5])
    assert ending.faults() == ["an interceptor failed while stopping"], "of two errors one is raised"


@both
@virtual
async def test_an_interceptor_that_never_returns_leaves_time_for_the_listener_and_to_leave(protocol: str) -> None:
    ending, second = Ending(protocol, work=lambda: anyio.sleep(0.5)), Hearing()
    consumer = await ending.member(interceptors=(Hanging(), second))
    before = anyio.current_time()
    await consumer.stop(timeout_ms=4000)
    assert anyio.current_time() - before <= 4
    assert (ending.has_left, ending.stored, second.heard) == (True, COUNT, [COUNT])
    assert ending.happened == ["revoked"]
    assert ending.faults() == ["an interceptor's on_commit() did not return in time while stopping; it was cancelled"]


@both
@virtual
async def test_what_another_task_is_done_with_is_committed_though_an_interceptor_raises(protocol: str) -> None:
    """The other task calls ``stop`` while the listener is at work, and so says that it is done."""
    ending = Ending(protocol, work=lambda: anyio.sleep(2))
    consumer = await ending.member(interceptors=(Raising(),))
    before: list[int | None] = []

    async def other() -> None:
        await read_values(consumer, COUNT)
        await anyio.sleep(2)
        before.append(ending.stored)
        await consumer.stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.sleep(1)
        with pytest.raises(ZeroDivisionError):
            await consumer.stop()
    assert (before, ending.stored, ending.has_left) == ([COUNT], 2 * COUNT, True)
    assert ending.faults() == ["an interceptor failed while stopping"], "only one of two can be raised"


@virtual
async def test_a_second_stop_waits_for_the_first_as_long_as_it_was_given() -> None:
    ending = Ending("classic", work=lambda: anyio.sleep(4))
    consumer = await ending.member()
    ended: dict[str, float] = {}
    before = anyio.current_time()

    async def stop(name: str, timeout_ms: float) -> None:
        await consumer.stop(timeout_ms=timeout_ms)
        ended[name] = anyio.current_time() - before

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop, "first", 20_000)
        await anyio.sleep(0.1)
        tasks.start_soon(stop, "short", 1_000)
        tasks.start_soon(stop, "long", 20_000)
    assert 1 <= ended["short"] < 1.5
    assert 4 <= ended["first"] < 5
    assert 4 <= ended["long"] < 5
    assert ending.happened == ["revoked"], "once"
    await consumer.stop()


@both
@virtual
async def test_a_listener_that_stops_the_consumer_that_is_stopping_does_not_wait_for_itself(protocol: str) -> None:
    ending = Ending(protocol, work=nothing)
    consumer = await ending.member()
    ending.work = consumer.stop
    before = anyio.current_time()
    await consumer.stop()
    assert anyio.current_time() - before < 1
    assert ending.has_left


@both
@virtual
async def test_a_read_that_waits_ends_at_once_and_nothing_is_handed_out_after(protocol: str) -> None:
    ending = Ending(protocol, work=lambda: anyio.sleep(2))
    consumer = await ending.member()
    await read_values(consumer, 20 - COUNT)
    ended: list[float] = []

    async def read() -> None:
        assert await consumer.getmany(timeout_ms=60_000) == {}
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany(timeout_ms=60_000)
        ended.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(1)
        before = anyio.current_time()
        await consumer.stop()
        assert ended == [pytest.approx(before, abs=0.1)]
    assert ending.stored == 20, "who asks for more is done with what it had"


@virtual
async def test_partitions_that_the_application_chose_are_committed_and_no_listener_hears_of_them() -> None:
    ending = Ending("classic", work=nothing)
    consumer = consumer_on(ending.cluster, **OPTIONS, trace=ending.seen.append)
    consumer.assign([TopicPartition("t", 0)])
    async with consumer:
        await read_values(consumer, COUNT)
    assert (ending.stored, ending.happened, ending.faults()) == (COUNT, [], [])


@virtual
async def test_a_start_that_fails_leaves_the_group_and_can_be_made_again() -> None:
    ending = Ending("classic", work=nothing)
    consumer = consumer_on(ending.cluster, **OPTIONS, request_timeout_ms=2_000)
    consumer.subscribe(["t", "later"], listener=ending)
    with pytest.raises(UnknownTopicOrPartitionError):
        await consumer.start()
    assert ending.has_left
    ending.cluster.create_topic("later", 1)
    await consumer.start()
    records: list[ConsumerRecord[Any, Any]] = []
    while not records:
        records = [each for part in (await consumer.getmany(timeout_ms=1000)).values() for each in part]
    await consumer.stop()
    assert ending.stored is not None
    assert ending.has_left


@both
@virtual
async def test_a_member_that_was_thrown_out_hears_that_its_partitions_are_lost_and_commits_nothing(protocol: str) -> None:
    ending = Ending(protocol, work=nothing)
    consumer = await ending.member()
    ending.cluster.groups.kick("g")
    await anyio.sleep(6)  # a heartbeat is answered meanwhile, and nothing is read
    await consumer.stop()
    assert (ending.happened, ending.stored, ending.has_left) == (["lost"], None, True)
