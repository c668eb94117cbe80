"""Share groups on the simulated cluster: what happens to records, locks, sessions and members."""

import itertools
from typing import Any

import anyio
import pytest

from kafka_async import KafkaConsumer, TopicPartition
from kafka_async.application.share.consumer import ShareConsumer
from kafka_async.application.share.record import ShareRecord
from kafka_async.errors import CommitFailedError, CoordinatorNotAvailableError, InvalidRecordStateError, KafkaError, LockLostError
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from kafka_async.testing import Cluster, ThreadedCluster
from kafka_async.testing.batches import BatchSpec, RecordSpec
from kafka_async.testing.simulation import PartitionLog
from kafka_async.testing.simulation.share_partition import Limits, SharePartition, WantedRecords
from kafka_async.trace import RequestSent, TraceEvent
from kafka_async.wire import Api
from tests.virtual import run_virtual_asyncio

from .test_clusters import Run, on_both

Record = ShareRecord[bytes, bytes]


def member(cluster: Cluster, *topics: str, **options: Any) -> ShareConsumer[bytes, bytes]:
    return ShareConsumer(*topics or ("jobs",), **{"group_id": "workers", **cluster.options(), **options})


def jobs(*values: str, partitions: int = 1, **config: Any) -> Cluster:
    cluster = Cluster()
    cluster.topic("jobs", partitions=partitions)
    cluster.group("workers", share_auto_offset_reset="earliest", **config)
    for value in values:
        cluster.produce("jobs", value=value)
    return cluster


async def take(consumer: ShareConsumer[bytes, bytes], count: int) -> list[Record]:
    found: list[Record] = []
    with anyio.fail_after(60):
        while len(found) < count:
            batch = await consumer.getmany(timeout_ms=1000)
            found += [record for records in batch.values() for record in records]
    return found


@on_both
def test_what_is_accepted_is_done_and_what_is_released_comes_again(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("a", "b", "c")
        async with member(cluster) as consumer:
            await cluster.assigned("workers")
            a, b, c = await take(consumer, 3)
            a.accept()
            b.release()
            c.reject()
            assert await consumer.flush() == {TopicPartition("jobs", 0): None}
            (again,) = await take(consumer, 1)
            assert (again.value, again.delivery_count) == (b"b", 2)
            assert cluster.shared("workers") == {TopicPartition("jobs", 0): 1}
            again.accept()
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 3}
        assert cluster.members("workers") == []

    run(main)


@on_both
def test_members_share_a_partition_and_nobody_gets_what_another_one_holds(run: Run) -> None:
    async def main() -> None:
        cluster = jobs(*(str(number) for number in range(20)))
        async with member(cluster, max_poll_records=5) as one, member(cluster, max_poll_records=5) as two:
            await cluster.assigned("workers", members=2)
            seen: list[bytes] = []
            while len(seen) < 20:
                for consumer in (one, two):
                    for records in (await consumer.getmany(timeout_ms=100, max_records=3)).values():
                        for record in records:
                            seen.append(record.value)
                            record.accept()
        assert sorted(seen, key=int) == [str(number).encode() for number in range(20)]
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 20}

    run(main)


@on_both
def test_a_lock_ends_after_its_time_and_a_late_acknowledgement_is_refused(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("a", share_record_lock_duration_ms=5000)
        async with member(cluster, max_processing_ms=1) as one:
            (record,) = await take(one, 1)
            async with member(cluster) as two:
                (again,) = await take(two, 1)
                assert again.delivery_count == 2
                again.accept()
                await two.flush()
            record.accept()
            (result,) = (await one.flush()).values()
            assert isinstance(result, InvalidRecordStateError)
            assert record.lost
            assert not again.lost
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 1}

    run(main)


async def all_there_is(consumer: ShareConsumer[bytes, bytes], *, accept: bool = True) -> list[Record]:
    """Return the records that come until none comes any more."""
    found: list[Record] = []
    while batch := await consumer.getmany(timeout_ms=3000):
        found += [record for records in batch.values() for record in records]
        if accept:
            for record in found[-sum(map(len, batch.values())) :]:
                record.accept()
    return found


@on_both
def test_a_partition_goes_only_so_far_past_an_unfinished_record_as_it_may_have_records_locked(run: Run) -> None:
    """What is done behind that record counts as well."""

    async def main() -> None:
        cluster = jobs(*map(str, range(150)), share_partition_max_record_locks=100)
        async with member(cluster) as consumer:
            held = await consumer.getone()
            async with held:
                assert [record.offset for record in await all_there_is(consumer)] == list(range(1, 100))
            await consumer.flush()
            assert [record.offset for record in await all_there_is(consumer)] == list(range(100, 150))
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 150}

    run(main)


@on_both
def test_what_was_given_back_comes_again_though_the_partition_may_go_no_further(run: Run) -> None:
    async def main() -> None:
        cluster = jobs(*map(str, range(110)), share_partition_max_record_locks=100)
        async with member(cluster) as consumer:
            held = await consumer.getone()
            async with held:
                for record in await all_there_is(consumer, accept=False):
                    record.release() if record.offset <= 10 else record.accept()
                again = await all_there_is(consumer)
                assert [(record.offset, record.delivery_count) for record in again] == [(offset, 2) for offset in range(1, 11)]

    run(main)


@on_both
@pytest.mark.parametrize("strict", [True, False])
def test_a_partition_goes_to_the_end_of_a_batch_though_it_may_have_fewer_records_locked(run: Run, strict: bool) -> None:
    async def main() -> None:
        cluster = jobs(share_partition_max_record_locks=150)
        cluster.produce_many("jobs", map(str, range(400)), partition=0)  # batches of a hundred
        async with member(cluster, strict_max_records=strict) as consumer:
            found = await all_there_is(consumer, accept=False)
            assert [record.offset for record in found] == list(range(200))

    run(main)


@on_both
def test_a_record_is_given_up_after_its_last_delivery(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("poison", share_delivery_count_limit=2)
        async with member(cluster) as consumer:
            for count in (1, 2):
                (record,) = await take(consumer, 1)
                assert record.delivery_count == count
                record.release()
            await consumer.flush()
            assert await consumer.getmany(timeout_ms=2000) == {}
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 1}

    run(main)


@on_both
def test_what_a_broken_connection_held_goes_to_others(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("a")
        async with member(cluster) as one, member(cluster) as two:
            (held,) = await take(one, 1)
            cluster.cut()
            with anyio.fail_after(60):
                while not (again := await two.getmany(timeout_ms=100)):
                    await one.getmany(timeout_ms=100)
            (record,) = next(iter(again.values()))
            assert record.delivery_count == 2
            record.accept()
            held.release()
            await two.flush()
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 1}

    run(main)


@on_both
def test_of_two_members_that_accepted_a_record_only_one_learns_that_it_counts(run: Run) -> None:
    """The broker says yes to the late one too, since the record is below the group's start by then."""

    async def main() -> None:
        cluster = jobs("a")
        late = dict.fromkeys(("reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms", "retry_backoff_max_ms"), 5000)
        async with member(cluster, **late) as one, member(cluster) as two:
            (record,) = await take(one, 1)
            record.accept()
            cluster.cut()
            (again,) = await take(two, 1)
            again.accept()
            assert await two.flush() == {TopicPartition("jobs", 0): None}
            (result,) = (await one.flush()).values()
            assert isinstance(result, InvalidRecordStateError)
            assert (record.lost, again.lost) == (True, False)
            assert [each.statistics().accepted for each in (one, two)] == [0, 1]
            assert [each.statistics().refused for each in (one, two)] == [1, 0]
            assert [each.statistics().unanswered for each in (one, two)] == [0, 0]

    run(main)


async def taken_across_a_move(cluster: Cluster, consumer: ShareConsumer[bytes, bytes]) -> Record:
    """Work on a job at one leader, and return another one, which the next leader has locked."""
    cluster.produce("jobs", value="1")
    (record,) = await take(consumer, 1)
    record.accept()
    await consumer.flush()
    cluster.move_leader(("jobs", 0), 1)
    cluster.produce("jobs", value="2")
    (record,) = await take(consumer, 1)
    return record


@on_both
def test_leaders_that_move_and_members_that_are_kicked(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=2)
        cluster.topic("jobs")
        cluster.group("workers", share_auto_offset_reset="earliest")
        async with member(cluster) as consumer:
            record = await taken_across_a_move(cluster, consumer)
            record.accept()
            await consumer.flush()
            cluster.kick("workers")
            cluster.produce("jobs", value="3")
            await cluster.assigned("workers")
            (record,) = await take(consumer, 1)
            record.accept()
            with cluster.failing(Api.SHARE_ACKNOWLEDGE, CoordinatorNotAvailableError):
                await consumer.flush()
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 3}

    run(main)


@on_both
@pytest.mark.parametrize("how", ["moved", "stopped"])
def test_another_leader_knows_of_no_delivery_that_has_not_ended_and_an_orderly_stop_ends_it(run: Run, how: str) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=2)
        cluster.topic("jobs", partitions=1)
        cluster.group("workers", share_auto_offset_reset="earliest", share_delivery_count_limit=2)
        cluster.produce("jobs", value="a")
        async with member(cluster) as one:
            (first,) = await take(one, 1)
            first.release()
            (last,) = await take(one, 1)
            assert last.delivery_count == 2
            if how == "moved":
                cluster.move_leader(("jobs", 0), 1)
            else:
                cluster.stop(0)
            async with member(cluster) as other:
                counts = [record.delivery_count for batch in (await other.getmany(timeout_ms=5000)).values() for record in batch]
        assert counts == ([2] if how == "moved" else []), "after an orderly stop that was its last delivery"

    run(main)


@on_both
def test_the_end_of_a_session_at_the_former_leader_leaves_what_the_new_one_has_locked(run: Run) -> None:
    async def main() -> None:
        cluster = Cluster(brokers=2)
        cluster.topic("jobs", partitions=1)
        cluster.group("workers", share_auto_offset_reset="earliest")
        async with member(cluster) as consumer:
            record = await taken_across_a_move(cluster, consumer)
            cluster.stop(0)
            async with member(cluster) as other:
                assert await other.getmany(timeout_ms=5000) == {}
            record.accept()
            assert await consumer.flush() == {TopicPartition("jobs", 0): None}

    run(main)


async def outcome(consumer: ShareConsumer[bytes, bytes] | KafkaConsumer[bytes, bytes]) -> str:
    """Return the name of the error with which a member is refused, or an empty text."""
    try:
        with anyio.fail_after(60):
            async with consumer:
                await consumer.getmany(timeout_ms=1000)
                if isinstance(consumer, KafkaConsumer):
                    await consumer.commit()
    except KafkaError as error:
        return type(error).__name__
    return ""


@on_both
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("records", [0, 1])
def test_a_group_stays_of_its_kind_when_its_members_are_gone(run: Run, protocol: str, records: int) -> None:
    async def main() -> None:
        cluster = jobs(*["a"] * records)
        protocols: Any = {"group_protocol": protocol, "auto_offset_reset": "earliest", **cluster.options()}
        assert await outcome(KafkaConsumer("jobs", group_id="readers", **protocols)) == ""
        assert await outcome(member(cluster, group_id="readers")) == "GroupIdNotFound"
        assert await outcome(member(cluster)) == ""
        refused = "InconsistentGroupProtocolError" if protocol == "classic" else "GroupIdNotFound"
        assert await outcome(KafkaConsumer("jobs", group_id="workers", **protocols)) == refused
        other: Any = {**protocols, "group_protocol": {"classic": "consumer", "consumer": "classic"}[protocol]}
        assert await outcome(KafkaConsumer("jobs", group_id="readers", **other)) == "", "these two change places"

    run(main)


@on_both
def test_nobody_commits_offsets_of_a_share_group(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("a")
        assert await outcome(member(cluster)) == ""
        partition = TopicPartition("jobs", 0)
        async with KafkaConsumer(group_id="workers", **cluster.options()) as consumer:
            consumer.assign([partition])
            with pytest.raises(CommitFailedError):
                await consumer.commit({partition: 1})
            assert await consumer.committed(partition) is None

    run(main)


@on_both
def test_groups_can_be_limited_to_committed_records(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("before", share_isolation_level="read_committed")
        with pytest.raises(ZeroDivisionError), cluster.transaction() as writing:
            raise ZeroDivisionError(writing.produce("jobs", "never"))
        with cluster.transaction() as writing:
            writing.produce("jobs", "committed")
        async with member(cluster) as consumer:
            found = await take(consumer, 2)
            assert [record.value for record in found] == [b"before", b"committed"]
            for record in found:
                record.accept()
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 5}

    run(main)


async def test_a_member_reads_over_tcp_and_what_it_held_is_free_when_its_connection_ends() -> None:
    async with jobs("a", "b") as cluster:
        bootstrap = await cluster.serve()
        async with ShareConsumer("jobs", group_id="workers", bootstrap_servers=bootstrap) as one:
            a, b = await take(one, 2)
            a.accept()
            await one.flush()
            async with ShareConsumer("jobs", group_id="workers", bootstrap_servers=bootstrap) as two:
                cluster.cut()
                with anyio.fail_after(60):
                    while not (found := await two.getmany(timeout_ms=100)):
                        await one.getmany(timeout_ms=100)
                (again,) = next(iter(found.values()))
                assert (again.value, again.delivery_count) == (b.value, 2)
                again.accept()
                await two.flush()
    assert cluster.shared("workers") == {TopicPartition("jobs", 0): 2}


def test_a_cluster_in_a_thread_serves_programs_that_block() -> None:
    with ThreadedCluster(jobs("a")) as served:
        served.call(lambda cluster: cluster.produce("jobs", value="b")).result()
        with BlockingConsumer("jobs", auto_offset_reset="earliest", bootstrap_servers=served.bootstrap) as reader:
            assert [record.value for record in itertools.islice(reader, 2)] == [b"a", b"b"]
        with pytest.raises(ValueError, match="there is no topic"):
            served.call(lambda cluster: cluster.produce("missing", value="b")).result()
    with pytest.raises(RuntimeError, match="'with' block"):
        served.call(lambda cluster: None)


def test_settings_of_groups_are_checked() -> None:
    cluster = Cluster()
    with pytest.raises(ValueError, match=r"share\.auto\.reset: Kafka has no such setting for a group"):
        cluster.group("g", share_auto_reset="earliest")
    with pytest.raises(ValueError, match=r"share\.auto\.offset\.reset=first: expected earliest, latest, or a duration"):
        cluster.group("g", share_auto_offset_reset="first")


@on_both
def test_the_deadline_of_a_record_is_not_that_of_unread_records_that_came_with_it(run: Run) -> None:
    async def main() -> None:
        cluster = jobs("a", "b", "c", share_record_lock_duration_ms=15_000)
        async with member(cluster) as consumer:
            mine = await consumer.getone()
            began = anyio.current_time()
            await anyio.sleep(12)  # the locks of the others have been renewed meanwhile, since nobody has read them
            assert mine.deadline <= began + 15
            other = await consumer.getone()
            assert other.deadline > began + 15
            await anyio.sleep(4)
            assert (mine.lost, other.lost) == (True, False)

    run(main)


@on_both
def test_a_group_may_allow_no_renewals_and_is_not_asked_for_one_again_and_again(run: Run) -> None:
    async def main() -> None:
        cluster = jobs(*map(str, range(100)), share_record_lock_duration_ms=15_000, share_renew_acknowledge_enable=False)
        sent: list[TraceEvent] = []
        async with member(cluster, trace=sent.append) as consumer:
            found = await take(consumer, 100)
            with pytest.raises(LockLostError):
                async with found[0]:
                    await anyio.sleep(60)
        assert all(record.lost for record in found)
        assert len([event for event in sent if isinstance(event, RequestSent) and event.api == "ShareAcknowledge"]) < 10

    run(main)


def test_a_group_begins_as_long_ago_as_it_should() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.topic("ages")
        cluster.group("workers", share_auto_offset_reset="by_duration:PT1H")
        cluster.produce("ages", value="old")
        await anyio.sleep(2 * 3600)
        cluster.produce("ages", value="new")
        async with ShareConsumer("ages", group_id="workers", **cluster.options()) as consumer:
            found = await consumer.getmany(timeout_ms=10_000)
            assert [record.value for records in found.values() for record in records] == [b"new"]

    run_virtual_asyncio(main)


def compacted(**config: Any) -> Cluster:
    """Keyed jobs with the offsets 1 and 2: that of offset 0 was compacted away."""
    cluster = Cluster()
    cluster.topic("jobs", cleanup_policy="compact")
    cluster.group("workers", share_auto_offset_reset="earliest", **config)
    for key, value in (("k", "1"), ("k", "2"), ("j", "3")):
        cluster.produce("jobs", key=key, value=value)
    cluster.compact(("jobs", 0))
    return cluster


@on_both
def test_what_compaction_removed_is_done(run: Run) -> None:
    async def main() -> None:
        cluster = compacted(share_partition_max_record_locks=100)
        async with member(cluster) as consumer:
            assert [record.value for record in await all_there_is(consumer)] == [b"2", b"3"]
            await consumer.flush()
            assert cluster.shared("workers") == {TopicPartition("jobs", 0): 3}
            for number in range(150):
                cluster.produce("jobs", key=str(number), value="v")
            assert [record.offset for record in await all_there_is(consumer)] == list(range(3, 153))
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 153}

    run(main)


def test_a_gap_that_is_long_is_passed_at_once() -> None:
    partition, log = SharePartition(0, 0), PartitionLog()
    log.append_batch(BatchSpec(base_offset=2**40, records=(RecordSpec(),)))
    _, (acquired,) = partition.acquire(log, "member", WantedRecords(10, 1000, strict=False), Limits(), 0.0)
    assert (acquired.first_offset, acquired.last_offset, partition.start) == (2**40, 2**40, 2**40)


@on_both
def test_what_was_given_back_and_then_compacted_away_is_done_and_what_is_locked_is_not(run: Run) -> None:
    async def main() -> None:
        cluster = compacted(share_delivery_count_limit=10)
        async with member(cluster) as consumer:
            a, b = await take(consumer, 2)
            for key in ("k", "j", "l"):  # 1 and 2 are compacted away while they are locked
                cluster.produce("jobs", key=key, value="new")
            cluster.compact(("jobs", 0))
            for record in await take(consumer, 3):
                record.accept()
            await consumer.flush()
            assert cluster.shared("workers") == {TopicPartition("jobs", 0): 1}
            a.release()
            b.accept()
            assert await consumer.flush() == {TopicPartition("jobs", 0): None}
            assert await all_there_is(consumer) == []
        assert cluster.shared("workers") == {TopicPartition("jobs", 0): 6}

    run(main)
