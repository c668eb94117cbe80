"""The cluster for users' tests: what its methods do to a consumer."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from kafka_async.testing import HANG, Cluster, ThreadedCluster
from kafka_async.wire import Api
from tests.virtual import run_virtual, run_virtual_asyncio

Run = Callable[[Callable[[], Awaitable[None]]], None]
on_both = pytest.mark.parametrize("run", [run_virtual, run_virtual_asyncio], ids=["trio", "asyncio"])
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def consumer(cluster: Cluster, *topics: str, **options: Any) -> KafkaConsumer[Any, Any]:
    return KafkaConsumer(*topics, **{"auto_offset_reset": "earliest", "group_id": "g", **cluster.options(), **options})


async def values(reader: KafkaConsumer[Any, Any], count: int) -> list[bytes]:
    found: list[bytes] = []
    with anyio.fail_after(60):
        while len(found) < count:
            batch = await reader.getmany(timeout_ms=1000)
            found += [record.value for records in batch.values() for record in records]
    return found


@on_both
@both_protocols
def test_what_is_produced_is_read_and_what_is_committed_can_be_seen(run: Run, protocol: str) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=3)
        cluster.topic("orders", partitions=3)
        where, offset = cluster.produce("orders", key="k", value="v", headers=[("h", b"1")], timestamp=7)
        async with consumer(cluster, "orders", group_protocol=protocol) as reader:
            record = await reader.getone()
            assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"v", (("h", b"1"),), 7)
            await cluster.assigned("g")
            await reader.commit()
        assert cluster.committed("g")[where] == OffsetAndMetadata(offset + 1, "", 0)
        assert cluster.members("g") == []

    run(main)


@on_both
@both_protocols
def test_members_share_the_partitions_and_one_that_is_kicked_comes_back(run: Run, protocol: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", partitions=4)
        one, two = (consumer(cluster, "t", group_protocol=protocol) for _ in range(2))
        async with one, two, anyio.create_task_group() as tasks:
            for reader in (one, two):
                tasks.start_soon(pump, reader)
            await cluster.assigned("g", members=2)
            await anyio.sleep(10)
            assert len(one.assignment()) == len(two.assignment()) == 2
            assert not one.assignment() & two.assignment()
            cluster.kick("g", cluster.members("g")[0])
            assert len(cluster.members("g")) == 1
            await cluster.assigned("g", members=2)
            await anyio.sleep(10)
            assert len(one.assignment() | two.assignment()) == 4
            tasks.cancel_scope.cancel()

    run(main)


@on_both
def test_members_that_give_up_one_after_the_other_are_assigned_when_the_last_generation_has_begun(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t", partitions=4)
        how: dict[str, Any] = {"group_protocol": "classic", "partition_assignment_strategy": ("cooperative-sticky",)}
        async with consumer(cluster, "t", **how) as one:
            await cluster.assigned("g")
            async with consumer(cluster, "t", **how) as two, anyio.create_task_group() as tasks:
                for reader in (one, two):
                    tasks.start_soon(pump, reader)
                await cluster.assigned("g", members=2)
                generation = cluster.simulated.groups.classic["g"].generation
                await anyio.sleep(10)
                assert cluster.simulated.groups.classic["g"].generation == generation
                assert len(one.assignment()) == len(two.assignment()) == 2
                tasks.cancel_scope.cancel()

    run(main)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_that_has_not_been_told_its_assignment_is_waited_for(run: Run, strategy: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        taken, kept = cluster.topic("t", partitions=2)
        how: dict[str, Any] = {"group_protocol": "classic", "partition_assignment_strategy": (strategy,)}
        async with consumer(cluster, "t", **how) as reader, anyio.create_task_group() as tasks:
            tasks.start_soon(pump, reader)
            await cluster.assigned("g")
            cluster.join("g", partitions=[taken])  # it leads, so that the group is stable without the other's SyncGroup
            with cluster.failing(Api.SYNC_GROUP, CoordinatorLoadInProgressError, times=None):
                with anyio.move_on_after(10) as waiting:
                    await cluster.assigned("g", members=2)
                assert waiting.cancelled_caught
            await cluster.assigned("g", members=2)
            await anyio.sleep(1)
            assert reader.assignment() == {kept}
            tasks.cancel_scope.cancel()

    run(main)


async def pump(reader: KafkaConsumer[Any, Any]) -> None:
    while True:
        await reader.getmany(timeout_ms=500)


@on_both
def test_a_session_expires(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t")
        async with consumer(cluster, "t", group_protocol="classic", session_timeout_ms=10_000):
            await cluster.assigned("g")
            cluster.half_open()
            cluster.control(Api.FIND_COORDINATOR, lambda broker, request: HANG, keep=True)
            await anyio.sleep(9.5)
            assert len(cluster.members("g")) == 1
            await anyio.sleep(5)
            assert cluster.members("g") == []

    run(main)


@on_both
def test_requests_fail_as_often_as_they_should(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t")
        cluster.produce("t", value=b"1")
        async with consumer(cluster, "t") as reader:
            assert await values(reader, 1) == [b"1"]
            with cluster.failing(Api.OFFSET_COMMIT, CoordinatorLoadInProgressError, times=2):
                await reader.commit()
        assert len(cluster.requests(Api.OFFSET_COMMIT)) >= 3
        assert cluster.committed("g")[TopicPartition("t", 0)].offset == 1

    run(main)


@on_both
def test_brokers_stop_and_start_and_what_they_led_and_coordinated_goes_on(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=2)
        cluster.topic("t", partitions=2)
        async with consumer(cluster, "t") as reader:
            await cluster.assigned("g")
            cluster.stop(0)
            for partition in (0, 1):
                cluster.produce("t", value=str(partition), partition=partition)
            assert sorted(await values(reader, 2)) == [b"0", b"1"]
            cluster.start(0)
            cluster.move_leader(("t", 0), 0)
            cluster.move_coordinator("g", 1)
            cluster.produce("t", value="2", partition=0)
            assert await values(reader, 1) == [b"2"]
            cluster.cut()
            cluster.produce("t", value="3", partition=0)
            assert await values(reader, 1) == [b"3"]
            await reader.commit()
        assert cluster.committed("g")[TopicPartition("t", 0)].offset == 3

    run(main)


@on_both
def test_transactions_compaction_retention_and_access(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("t")
        with cluster.transaction() as writing:
            writing.produce("t", "a", "b")
        with pytest.raises(ZeroDivisionError), cluster.transaction() as writing:
            raise ZeroDivisionError(writing.produce("t", "never"))
        async with consumer(cluster, "t", isolation_level="read_committed") as reader:
            assert await values(reader, 2) == [b"a", b"b"]
            cluster.produce("t", key="k", value="1")
            assert await values(reader, 1) == [b"1"]
            cluster.deny("t")
            cluster.produce("t", key="k", value="2")
            with pytest.raises(TopicAuthorizationFailedError):
                await values(reader, 1)
            cluster.allow("t")
            await anyio.sleep(1)
            assert await values(reader, 1) == [b"2"]
        cluster.compact(("t", 0))
        async with consumer(cluster, "t", group_id=None) as reader:
            assert await values(reader, 1) == [b"2"]
            cluster.produce("t", value="3")
            assert await values(reader, 1) == [b"3"]

    run(main)


@on_both
def test_a_member_with_a_pattern_loses_a_topic_that_it_may_not_see_any_more(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("orders")
        async with consumer(cluster, group_protocol="classic", metadata_max_age_ms=5000) as reader:
            reader.subscribe(pattern="ord.*")
            cluster.produce("orders", value="1")
            assert await values(reader, 1) == [b"1"]
            cluster.deny("orders")
            until = anyio.current_time() + 10
            while anyio.current_time() < until:  # refused until the next look at the topics
                with contextlib.suppress(TopicAuthorizationFailedError):
                    await reader.getmany(timeout_ms=1000)
            assert reader.assignment() == set()
            assert await reader.getmany(timeout_ms=5000) == {}
            cluster.allow("orders")
            cluster.produce("orders", value="2")
            found: list[bytes] = []
            while b"2" not in found:
                found += await values(reader, 1)

    run(main)


@on_both
def test_offsets_of_a_topic_that_a_client_may_not_see_are_refused(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster()
        seen, hidden = *cluster.topic("seen"), *cluster.topic("hidden")
        async with consumer(cluster) as reader:
            reader.assign([seen, hidden])
            await reader.commit({seen: 1, hidden: 2})
            cluster.deny("hidden")
            with pytest.raises(TopicAuthorizationFailedError):
                await reader.committed(hidden)
            assert await reader.committed(seen) == 1
            cluster.allow("hidden")
            assert await reader.committed(hidden) == 2

    run(main)


def test_arguments_that_are_wrong_are_named() -> None:
    cluster = Cluster()
    cluster.topic("t")
    for wrong, text in (
        (lambda: Cluster(kafka="1.0"), "expected one of 4.4, 4.3"),
        (lambda: Cluster(brokers=0), "expected at least 1"),
        (lambda: cluster.topic("t"), "it exists already"),
        (lambda: cluster.produce("missing", value="v"), "there is no topic 'missing'"),
        (lambda: cluster.produce("t", value="v", partition=1), "has no partition 1; it has 1"),
        (lambda: cluster.stop(1), "there is no broker 1"),
        (lambda: cluster.kick("g", "m"), "has no member 'm'"),
        (lambda: cluster.topic("a b"), "expected 1 to 249 letters"),
        (lambda: cluster.topic("u", partitions=0), "expected at least 1"),
        (lambda: cluster.topic("u", replicas=2), "expected 1 to 1, the number of brokers"),
        (lambda: cluster.add_partitions("t", 1), "only grows"),
        (lambda: cluster.produce("t", value="v", compression="brotli"), "expected one of none, gzip"),
        (lambda: cluster.truncate(("t", 0), 0), "no offset 0; its log goes from 0 to 0"),
        (lambda: cluster.delete_before(("t", 0), 1), "no offset 1"),
        (lambda: cluster.corrupt(("t", 0), 0), "no offset 0"),
        (lambda: cluster.join("g"), "needs topics, or partitions"),
        (lambda: cluster.join("g", "missing"), "there is no topic 'missing'"),
        (lambda: cluster.join("g", partitions=[("t", 1)]), "has no partition 1"),
    ):
        with pytest.raises(ValueError, match=text):
            wrong()
    with pytest.raises(TypeError, match="not dict"):
        cluster.produce("t", value={"order": 1})  # type: ignore[arg-type]  # what a user may try


def test_members_that_have_left_say_so() -> None:
    cluster = Cluster()
    mine, other = cluster.topic("t", partitions=2)
    member = cluster.join("g", partitions=[mine])
    with pytest.raises(ValueError, match="does not have"):
        member.commit({other: 1})
    cluster.kick("g")
    with pytest.raises(ValueError, match="not in group 'g' any more"):
        member.take(other)
    with pytest.raises(ValueError, match="not in group 'g' any more"):
        member.commit({mine: 1})


def test_a_seed_repeats_its_schedule() -> None:
    def times(seed: int | None) -> list[tuple[float, Api]]:
        cluster = Cluster(brokers=3, seed=seed)
        cluster.topic("t", partitions=3)
        cluster.produce_many("t", ["1", "2", "3"])

        async def main() -> None:
            async with consumer(cluster, "t", group_id=None, client_id="c") as reader:
                await values(reader, 3)

        run_virtual_asyncio(main)
        return [(round(entry.time, 6), entry.api) for entry in cluster.requests()]

    assert times(1) == times(1) != times(2)
    assert times(None) == times(None)


@on_both
def test_quotas_are_reported_and_old_releases_speak_old_versions(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster(kafka="2.1")
        cluster.topic("t")
        cluster.produce("t", value="v")
        cluster.throttle(100)
        async with consumer(cluster, "t", group_protocol="classic") as reader:
            assert await values(reader, 1) == [b"v"]
            await reader.commit()
        assert {entry.version for entry in cluster.requests(Api.FETCH)} == {10}
        assert cluster.committed("g")[TopicPartition("t", 0)].offset == 1

    run(main)


def test_a_consumer_in_a_thread_of_its_own_reads_what_is_produced_here() -> None:
    cluster = Cluster()
    cluster.topic("t")
    options: Any = cluster.options()
    with BlockingConsumer("t", group_id="g", auto_offset_reset="earliest", **options) as reader:
        for value in ("1", "2"):
            cluster.produce("t", value=value)
            assert next(iter(reader)).value == value.encode()
        reader.commit()
        assert len(cluster.members("g")) == 1
        cluster.cut()
        cluster.produce("t", value="3")
        assert next(iter(reader)).value == b"3"
    assert cluster.committed("g")[TopicPartition("t", 0)].offset >= 2


@pytest.mark.slow
def test_a_cluster_with_many_records_is_shown_in_a_few_words() -> None:
    cluster = Cluster(brokers=3)
    assert repr(cluster) == "<Cluster of 3 brokers; topics: none>"
    for number in range(12):
        cluster.topic(f"t{number:02}")
    cluster.produce_many("t00", [b"x"] * 10_000)
    shown = "<Cluster of 3 brokers; topics: t00, t01, t02, t03, t04, t05, t06, t07, t08, t09, ...>"
    assert repr(cluster) == shown
    assert repr(ThreadedCluster(cluster)) == f"ThreadedCluster(cluster={shown}, bootstrap='', _entered=0)"
    assert len(repr(cluster.simulated)) < 200
