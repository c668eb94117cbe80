"""A program that shuts down by cancelling every task of its event loop, also those that it did not make."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from kafka_async import ConsumerInterceptor, ConsumerRebalanceListener, KafkaConsumer, ShareConsumer, TopicPartition
from kafka_async.errors import IllegalStateError
from kafka_async.testing.simulation import FakeCluster
from kafka_async.trace import Fault, TraceEvent
from tests.virtual import run_virtual_asyncio

from ..support import filled

KINDS = pytest.mark.parametrize("kind", ["classic", "consumer", "share"])


def _member(cluster: FakeCluster, kind: str, **own: Any) -> Any:
    options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network, "group_id": "g", **own}
    if kind == "share":
        cluster.groups.own["g"] = {"share.auto.offset.reset": "earliest"}
        return ShareConsumer("t", **options)
    options |= {"group_protocol": kind, "auto_offset_reset": "earliest", "auto_commit_interval_ms": 3_600_000}
    return KafkaConsumer("t", **options)


async def _everything_is_cancelled() -> None:
    """The recipe that people copy for SIGTERM."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    run_virtual_asyncio(main)


async def _read(member: Any, count: int) -> None:
    while count > 0:
        count -= sum(map(len, (await member.getmany(timeout_ms=1000, max_records=count)).values()))


@KINDS
@pytest.mark.parametrize("leaves", ["the block", "stop"])
def test_a_stop_after_every_task_was_cancelled_commits_and_leaves(kind: str, leaves: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)

        async def service() -> None:
            if leaves == "the block":
                async with _member(cluster, kind) as member:
                    await _read(member, 20)
                    await member.getmany(timeout_ms=600_000)  # the twenty are done
            else:
                member = _member(cluster, kind)
                await member.start()
                try:
                    await _read(member, 20)
                    await member.getmany(timeout_ms=600_000)
                finally:
                    await asyncio.sleep(1)  # something else is shut down first
                    await member.stop()

        task = asyncio.create_task(service())
        await asyncio.sleep(30)
        assert cluster.groups.members("g")
        await _everything_is_cancelled()
        assert task.cancelled()
        assert cluster.groups.members("g") == []
        if kind != "share":
            assert cluster.groups.offsets.positions["g", tp] == 20

    _run(main)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_commit_on_the_way_out_counts(kind: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)

        async def service() -> None:
            member = _member(cluster, kind)
            await member.start()
            try:
                await _read(member, 20)
                await member.getmany(timeout_ms=600_000)
            finally:
                await member.commit({tp: 7})
                await member.stop()

        task = asyncio.create_task(service())
        await asyncio.sleep(1)
        await _everything_is_cancelled()
        assert task.cancelled()
        assert cluster.groups.members("g") == []

    _run(main)


def test_a_reader_that_goes_on_goes_on() -> None:
    """Somebody cancelled a task that is not his, and the readers are none of those."""

    async def main() -> None:
        cluster, (tp,) = filled(20)
        async with _member(cluster, "consumer") as member:
            await _read(member, 20)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
            cluster.fill(tp, 20)
            await _read(member, 20)
            assert member.alive

    _run(main)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stop_without_any_time_sends_the_request_to_leave(protocol: str) -> None:
    async def main() -> None:
        cluster, _ = filled(20)
        member = _member(cluster, protocol)
        await member.start()
        await _read(member, 20)
        before = asyncio.get_running_loop().time()
        await member.stop(timeout_ms=0)
        assert asyncio.get_running_loop().time() - before < 1
        await asyncio.sleep(1)
        assert cluster.groups.members("g") == []

    _run(main)


class _Working(ConsumerRebalanceListener):
    """Awaits ``work`` when topic ``u`` is assigned, and its worker when partitions leave."""

    def __init__(self) -> None:
        self.called: list[tuple[str, set[str]]] = []
        self.work: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(600)
        self.worker: asyncio.Task[Any] | None = None

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.called.append(("assigned", {tp.topic for tp in assigned}))
        if "u" in self.called[-1][1]:
            await self.work()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.called.append(("revoked", {tp.topic for tp in revoked}))
        if self.worker is not None:
            await self.worker


async def _read_with_a_listener(member: Any, listener: ConsumerRebalanceListener) -> None:
    """Read all of ``t``."""
    member.subscribe(["t"], listener=listener)
    await member.start()
    await _read(member, 20)


async def _with_a_listener_at_work(cluster: FakeCluster, member: Any, listener: ConsumerRebalanceListener) -> None:
    """Read all of ``t``, and wait in a read whose rebalance brings ``u``."""
    cluster.create_topic("u", 1)
    await _read_with_a_listener(member, listener)
    member.subscribe(["t", "u"], listener=listener)
    while True:
        await member.getmany(timeout_ms=600_000)


MEMBERS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@MEMBERS
def test_a_call_back_that_was_cancelled_too_does_not_keep_a_stop_from_committing_and_calling_back(protocol: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)
        seen: list[TraceEvent] = []
        listener, stopped = _Working(), []

        async def service() -> None:
            member = _member(cluster, protocol, trace=seen.append)
            try:
                await _with_a_listener_at_work(cluster, member, listener)
            finally:
                await member.stop()
                stopped.append(dict(cluster.groups.offsets.positions))

        task = asyncio.create_task(service())
        await asyncio.sleep(60)
        assert listener.called[-1][0] == "assigned"
        await _everything_is_cancelled()
        assert task.cancelled()
        assert [positions["g", tp] for positions in stopped] == [20]
        assert listener.called[-1] == ("revoked", {"t", "u"})
        assert cluster.groups.members("g") == []
        assert [event.text for event in seen if isinstance(event, Fault)] == ["a call-back failed while stopping"]

    _run(main)


@MEMBERS
def test_a_stop_that_was_under_way_when_the_rest_was_cancelled_leaves_the_group(protocol: str) -> None:
    """The loop ends while the call-back is at work, and is not there for the request to leave."""

    async def main() -> None:
        cluster, _ = filled(20)
        listener, member = _Working(), _member(cluster, protocol)
        await _read_with_a_listener(member, listener)
        others = asyncio.all_tasks()
        listener.worker = asyncio.create_task(asyncio.sleep(1))
        stop = asyncio.create_task(member.stop())
        await asyncio.sleep(0.5)
        for task in others - {asyncio.current_task()}:
            task.cancel()
        await stop
        assert cluster.groups.members("g") == []

    _run(main)


@MEMBERS
def test_a_call_back_that_was_cancelled_is_a_failure_for_the_read_that_waits_for_it(protocol: str) -> None:
    async def main() -> None:
        cluster, _ = filled(20)
        listener, member = _Working(), _member(cluster, protocol)

        async def cancelled() -> None:
            asyncio.get_running_loop().call_later(1, worker.cancel)
            await worker

        worker, listener.work = asyncio.create_task(asyncio.sleep(600)), cancelled
        with pytest.raises(IllegalStateError, match="call-back of the rebalance listener was cancelled"):
            await _with_a_listener_at_work(cluster, member, listener)
        await member.stop()

    _run(main)


@MEMBERS
def test_a_call_back_of_a_stop_may_wait_for_a_task_that_was_cancelled(protocol: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)
        seen: list[TraceEvent] = []
        listener, stopped = _Working(), []

        async def service() -> None:
            member = _member(cluster, protocol, trace=seen.append)
            worker = asyncio.create_task(asyncio.sleep(600))
            listener.work = lambda: asyncio.sleep(0)
            try:
                await _with_a_listener_at_work(cluster, member, listener)
            finally:
                listener.worker = worker
                await member.stop()
                stopped.append(dict(cluster.groups.offsets.positions))

        task = asyncio.create_task(service())
        await asyncio.sleep(60)
        await _everything_is_cancelled()
        assert task.cancelled()
        assert [positions["g", tp] for positions in stopped] == [20]
        assert listener.called[-1] == ("revoked", {"t", "u"})
        assert [event.text for event in seen if isinstance(event, Fault)] == ["on_partitions_revoked failed while stopping"]

    _run(main)


class _Waiting(ConsumerInterceptor):
    """Waits for a task when offsets were committed."""

    def __init__(self) -> None:
        self.worker: asyncio.Task[Any] | None = None

    def on_consume(self, records: Any) -> Any:
        return records

    async def on_commit(self, offsets: Any) -> None:
        if self.worker is not None:
            await self.worker


@MEMBERS
def test_an_interceptor_may_wait_for_a_task_that_was_cancelled_when_a_consumer_stops(protocol: str) -> None:
    async def main() -> None:
        cluster, (tp,) = filled(20)
        listener, interceptor = _Working(), _Waiting()
        member = _member(cluster, protocol, interceptors=(interceptor,))
        await _read_with_a_listener(member, listener)
        interceptor.worker = asyncio.create_task(asyncio.sleep(600))
        await _everything_is_cancelled()
        with pytest.raises(IllegalStateError, match="call-back of an interceptor was cancelled"):
            await member.stop()
        assert cluster.groups.offsets.positions["g", tp] == 20
        assert listener.called[-1] == ("revoked", {"t"})
        assert cluster.groups.members("g") == []

    _run(main)


@MEMBERS
def test_a_stop_that_is_cancelled_in_a_call_back_ends_there(protocol: str) -> None:
    async def main() -> None:
        cluster, _ = filled(20)
        listener, member = _Working(), _member(cluster, protocol)
        await _read_with_a_listener(member, listener)
        listener.worker = asyncio.create_task(asyncio.sleep(600))
        task = asyncio.create_task(member.stop())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert cluster.groups.members("g") == []

    _run(main)


class _Yielding(ConsumerRebalanceListener):
    """Lets others run before it says that it was called."""

    def __init__(self) -> None:
        self.called: list[Collection[TopicPartition]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.called.append(revoked)


@MEMBERS
@pytest.mark.parametrize("commits", [False, True], ids=["no commit", "a last commit"])
def test_a_task_that_was_cancelled_and_has_not_felt_it_yet_is_cancelled_once_it_has_stopped_the_consumer(
    protocol: str, commits: bool
) -> None:
    """Such as by Ctrl-C while a synchronous handler runs. A task that was told is to stop in the same way as one that felt it."""

    async def main() -> None:
        cluster, (tp,) = filled(20)
        seen: list[TraceEvent] = []
        listener, member = _Yielding(), _member(cluster, protocol, trace=seen.append, enable_auto_commit=commits)
        member.subscribe(["t"], listener=listener)
        await member.start()
        went_on = []

        async def stops() -> None:
            await _read(member, 20)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await member.stop()
            went_on.append(True)

        task = asyncio.create_task(stops())
        await asyncio.wait([task])
        assert task.cancelled()
        assert went_on == []
        assert listener.called == [{tp}]
        assert cluster.groups.offsets.positions.groups.get("g", {}).get(tp) == (20 if commits else None)
        assert cluster.groups.members("g") == []
        assert [event.text for event in seen if isinstance(event, Fault)] == []

    _run(main)


@MEMBERS
def test_a_stop_whose_call_back_cancels_its_task_ends_in_the_next_call_back(protocol: str) -> None:
    class Cancels(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return records

        def on_commit(self, offsets: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async def main() -> None:
        cluster, (tp,) = filled(20)
        listener, member = _Yielding(), _member(cluster, protocol, interceptors=(Cancels(),))
        member.subscribe(["t"], listener=listener)
        await member.start()

        async def stops() -> None:
            await _read(member, 20)
            await member.stop()

        task = asyncio.create_task(stops())
        await asyncio.wait([task])
        assert task.cancelled()
        assert cluster.groups.offsets.positions["g", tp] == 20
        assert cluster.groups.members("g") == []

    _run(main)
