"""Clusters of many releases, whose leaders, logs and topics change while a consumer reads."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from kafka_async import OffsetAndMetadata
from kafka_async.errors import (
    LogTruncationError,
    UnknownError,
)
from kafka_async.testing.simulation import HANG, KAFKA_2_1, KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Drop, FakeCluster
from kafka_async.wire import Api, Response
from kafka_async.wire.messages import FetchResponse

from .support import consumer_on, filled, numbers, read_values, virtual

RELEASES = {"2.1": KAFKA_2_1, "2.8": KAFKA_2_8, "3.9": KAFKA_3_9, "4.3": KAFKA_4_3}
every_release = pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES.keys())


# Releases, chunks, connections.


@every_release
@virtual
async def test_brokers_of_many_releases_are_read(release: Mapping[Api, int]) -> None:
    cluster, tps = filled(50, partitions=3, size=2, max_versions=release)
    async with consumer_on(cluster, "t") as consumer:
        assert len(await read_values(consumer, 150)) == 150
        cluster.fill(tps[0], 5)
        assert await read_values(consumer, 5) == numbers(5, 50)
        assert await consumer.end_offsets(tps) == {tps[0]: 55, tps[1]: 50, tps[2]: 50}
        versions = {entry.version for entry in cluster.asked(Api.FETCH)}
        assert versions == {release[Api.FETCH]}


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@virtual
async def test_any_chunking_of_the_bytes_gives_the_same_records(chunk: int) -> None:
    cluster, _ = filled(50, partitions=2, chunk=chunk)
    async with consumer_on(cluster, "t") as consumer:
        assert sorted(await read_values(consumer, 100)) == sorted(numbers(50) * 2)


@every_release
@virtual
async def test_a_leader_that_moves_is_followed(release: Mapping[Api, int]) -> None:
    cluster, (tp,) = filled(10, size=3, max_versions=release)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        for node in (1, 2, 0):
            cluster.move_leader(tp, node)
            start = cluster.log(tp).end
            cluster.fill(tp, 10)
            before = anyio.current_time()
            assert await read_values(consumer, 10) == numbers(10, start)
            assert anyio.current_time() - before < 2
        assert consumer.statistics().partitions[tp].leader == 0


@virtual
async def test_a_broker_that_comes_back_is_found_though_it_is_no_bootstrap_server_and_those_stay_away() -> None:
    cluster, (tp,) = filled(10, size=3)
    cluster.move_leader(tp, 2)
    servers = cluster.bootstrap_servers.split(",")[0]
    async with consumer_on(cluster, "t", bootstrap_servers=servers) as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        for node in range(3):
            cluster.stop(node)
        await anyio.sleep(60)  # all are given up, and the bootstrap servers are tried again
        cluster.fill(tp, 10)
        cluster.start(2)
        before = anyio.current_time()
        assert await read_values(consumer, 10) == numbers(10, 10)
        assert anyio.current_time() - before < 5


@virtual
async def test_a_hint_at_the_new_leader_spares_the_metadata_request() -> None:
    cluster, (tp,) = filled(10, size=2)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        cluster.move_leader(tp, 1)
        cluster.fill(tp, 10)
        start = anyio.current_time()
        assert await read_values(consumer, 10) == numbers(10, 10)
        assert anyio.current_time() - start < 0.1
        assert not cluster.asked(Api.METADATA, since=start)


@virtual
async def test_a_leader_that_dies_is_replaced_by_the_next_one() -> None:
    cluster, (tp,) = filled(10, size=3)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        cluster.stop(0)
        await anyio.sleep(3)
        cluster.move_leader(tp, 1)
        cluster.fill(tp, 10)
        assert await read_values(consumer, 10) == numbers(10, 10)


@virtual
async def test_a_broker_that_restarts_has_forgotten_the_session() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        for _ in range(3):
            cluster.stop(0)
            await anyio.sleep(1)
            cluster.start(0)
            start = cluster.log(tp).end
            cluster.fill(tp, 5)
            assert await read_values(consumer, 5) == numbers(5, start)


@virtual
async def test_a_connection_that_breaks_with_every_other_fetch_loses_nothing() -> None:
    cluster, _ = filled(200, partitions=2, size=2)
    turns = 0

    def unreliable(broker: object, request: object) -> Drop | None:
        nonlocal turns
        turns += 1
        return Drop() if turns % 2 else None

    cluster.control(Api.FETCH, unreliable, keep=True)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=200) as consumer:
        assert sorted(await read_values(consumer, 400, seconds=600)) == sorted(numbers(200) * 2)


@virtual
async def test_a_half_open_connection_is_given_up_at_the_request_timeout() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", request_timeout_ms=5000) as consumer:
        await read_values(consumer, 10)
        cluster.freeze(0)
        await anyio.sleep(1)
        cluster.start(0)
        cluster.fill(tp, 5)
        start = anyio.current_time()
        assert await read_values(consumer, 5) == numbers(5, 10)
        assert anyio.current_time() - start < 8


@virtual
async def test_a_frozen_leader_that_nothing_else_tells_of_is_given_up_within_seconds() -> None:
    cluster, (tp,) = filled(10, size=3)
    cluster.move_leader(tp, 1)
    async with consumer_on(cluster, "t", bootstrap_servers="b0:9092") as consumer:  # without a group there is no heartbeat
        await read_values(consumer, 10)
        await anyio.sleep(3.3)
        cluster.freeze(1)
        cluster.move_leader(tp, 2)
        cluster.fill(tp, 5)
        start = anyio.current_time()
        assert await read_values(consumer, 5) == numbers(5, 10)
        assert anyio.current_time() - start < 3


@virtual
async def test_a_leader_that_throttles_is_not_suspected() -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t") as consumer:
        await read_values(consumer, 10)
        cluster.network.throttle_ms = 5000
        cluster.fill(tp, 10)
        await read_values(consumer, 10)
        start = anyio.current_time()
        await anyio.sleep(60)
        assert 5 < len(cluster.asked(Api.FETCH, since=start)) < 15
        assert not cluster.asked(Api.METADATA, since=start)


@virtual
async def test_an_offset_that_a_frozen_leader_was_asked_for_comes_from_the_next_one() -> None:
    cluster, (tp,) = filled(10, size=2)
    cluster.move_leader(tp, 1)
    async with consumer_on(cluster) as consumer:  # which has nothing to fetch
        assert await consumer.end_offsets([tp]) == {tp: 10}
        cluster.freeze(1)
        cluster.elect()
        start = anyio.current_time()
        assert await consumer.end_offsets([tp]) == {tp: 10}
        assert anyio.current_time() - start < 3


@virtual
async def test_brokers_that_all_moved_are_found_by_bootstrapping_again() -> None:
    cluster, (tp,) = filled(10, size=3)
    async with consumer_on(cluster, "t", bootstrap_servers="b2:9092") as consumer:
        await read_values(consumer, 10)
        for node in (0, 1):
            cluster.stop(node)
        cluster.stop(2)
        await anyio.sleep(30)
        cluster.start(2)
        cluster.move_leader(tp, 2)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)


@virtual
async def test_the_broker_can_ask_for_a_new_bootstrap() -> None:
    cluster, (tp,) = filled(10, size=2)
    async with consumer_on(cluster, "t", metadata_max_age_ms=1000) as consumer:
        await read_values(consumer, 10)
        cluster.control(Api.METADATA, lambda broker, request: 129)
        await anyio.sleep(3)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)


# KIP-392.


@virtual
async def test_the_replica_in_the_same_rack_is_read() -> None:
    cluster, (tp,) = filled(10, size=3, racks={0: "a", 1: "b", 2: "c"})
    async with consumer_on(cluster, "t", client_rack="b") as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        assert consumer.statistics().partitions[tp].preferred_read_replica == 1
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 10)
        cluster.stop(1)
        cluster.fill(tp, 5)
        assert await read_values(consumer, 5) == numbers(5, 15)
        assert consumer.statistics().partitions[tp].preferred_read_replica is None


@pytest.mark.slow
@pytest.mark.parametrize("how", [HANG, Drop(), 56], ids=["hangs", "drops", "refuses"])
@virtual
async def test_a_replica_that_only_its_leader_can_reach_keeps_nobody_from_reading(how: Any) -> None:
    """The leader gives no records to whom it names a replica."""
    cluster, (tp,) = filled(10, size=3, racks={0: "a", 1: "b", 2: "c"})
    async with consumer_on(cluster, "t", client_rack="b") as consumer:
        assert await read_values(consumer, 10) == numbers(10)
        cluster.control(Api.FETCH, lambda broker, request: how if broker.node_id == 1 else None, keep=True)
        start = anyio.current_time()
        for number in range(10, 110):
            cluster.fill(tp, 1)
            assert await read_values(consumer, 1) == [b"%d" % number]
            await anyio.sleep(1)
        assert anyio.current_time() - start < 200
        tries = [entry.time for entry in cluster.asked(Api.FETCH, since=start) if entry.node_id == 1]
        assert 2 <= len(tries) < 15, "it is tried again, less and less often"


# KIP-320 and topics that are not the same any more.


@virtual
async def test_a_truncated_log_is_read_on_from_where_it_diverged() -> None:
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_values(consumer, 30) == numbers(30)
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        cluster.produce(tp, "new 20", "new 21")
        assert await read_values(consumer, 2) == [b"new 20", b"new 21"]
        assert await consumer.position(tp) == 22


@virtual
async def test_what_a_task_has_in_hand_after_a_truncation_is_not_committed_by_a_stop() -> None:
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, group_id="g") as consumer:
        consumer.assign([tp])
        assert await read_values(consumer, 30) == numbers(30)
        await consumer.commit()
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        cluster.produce(tp, "new 20", "new 21")
        await anyio.sleep(10)  # where the log diverged is known, and what comes there is here
        assert [record.offset for record in (await consumer.getmany())[tp]] == [20, 21]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.stop)
            await anyio.sleep(1)
    assert cluster.committed["g", tp] in (20, 30), "nobody says that the new records are done"


@virtual
async def test_a_truncated_log_without_a_policy_is_raised_with_the_safe_offset() -> None:
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        await read_values(consumer, 30)
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        cluster.produce(tp, "new 20")
        with pytest.raises(LogTruncationError) as caught:
            await consumer.getone()
        assert caught.value.positions == {tp: 30}
        assert caught.value.divergent_offsets == {tp: OffsetAndMetadata(20, "", 0)}
        consumer.seek(tp, caught.value.divergent_offsets[tp])
        assert await read_values(consumer, 1) == [b"new 20"]


@pytest.mark.parametrize("policy", ["earliest", "none"])
@virtual
async def test_a_truncation_behind_a_record_that_turns_out_bad_is_found_all_the_same(policy: str) -> None:
    """The bad record is dropped and fetched again, and what the background has found behind it is dropped with it."""
    cluster, (tp,) = filled(30, size=2)
    async with consumer_on(cluster, auto_offset_reset=policy) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert await read_values(consumer, 30) == numbers(30)
        cluster.produce(tp, "bad")
        cluster.log(tp).corrupt(30)
        await anyio.sleep(1)
        cluster.log(tp).truncate(20)
        cluster.move_leader(tp, 1)
        new = [b"new %d" % number for number in range(20, 35)]
        cluster.produce(tp, *new)
        await anyio.sleep(5)
        if policy == "none":
            with pytest.raises(LogTruncationError) as caught:
                await consumer.getone()
            assert caught.value.divergent_offsets == {tp: OffsetAndMetadata(20, "", 0)}
            consumer.seek(tp, caught.value.divergent_offsets[tp])
        assert await read_values(consumer, 15) == new


@virtual
async def test_a_seek_with_an_epoch_has_the_log_checked() -> None:
    cluster, (tp,) = filled(10, size=2)
    cluster.move_leader(tp, 1)
    cluster.fill(tp, 10)
    async with consumer_on(cluster) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, OffsetAndMetadata(15, "", 0))
        assert await read_values(consumer, 10) == numbers(10, 10)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("how", ["records", "commit"])
@virtual
async def test_a_leader_epoch_that_the_cluster_does_not_know_moves_no_position(policy: str, how: str) -> None:
    """Records were copied with their epochs, or offsets were committed in another cluster."""
    cluster = FakeCluster(size=2)
    (tp,) = cluster.create_topic("t")
    cluster.log(tp).append([str(n).encode() for n in range(50)], epoch=9 if how == "records" else 0)
    async with consumer_on(cluster, "t", group_id="g", enable_auto_commit=False) as consumer:
        assert await read_values(consumer, 30) == numbers(30)
        await consumer.commit(None if how == "records" else {tp: OffsetAndMetadata(30, "", 700)})
    begun = anyio.current_time()
    async with consumer_on(cluster, "t", group_id="g", auto_offset_reset=policy) as consumer:
        assert await read_values(consumer, 10) == numbers(10, 30)
        assert anyio.current_time() - begun < 5
        cluster.move_leader(tp, 1)
        assert await read_values(consumer, 10) == numbers(10, 40)


# Version 12 of Fetch names topics, so that a position that exists in the new topic as well cannot be told from an old one.
RECREATED = [(KAFKA_2_8, 40), (KAFKA_3_9, 5), (KAFKA_3_9, 40), (KAFKA_4_3, 5), (KAFKA_4_3, 40)]


@pytest.mark.parametrize(("release", "before"), RECREATED, ids=["2.8-40", "3.9-5", "3.9-40", "4.3-5", "4.3-40"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("subscribed", [True, False])
@virtual
async def test_a_topic_that_was_created_again_is_read_from_its_beginning(
    release: Mapping[Api, int], reset: str, subscribed: bool, before: int
) -> None:
    cluster, (tp,) = filled(before, max_versions=release)
    async with consumer_on(cluster, auto_offset_reset=reset, metadata_max_age_ms=5000) as consumer:
        if subscribed:
            consumer.subscribe(["t"])
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
        else:
            consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        assert await read_values(consumer, before) == numbers(before)
        cluster.recreate("t")
        cluster.fill(tp, 20)
        assert await read_values(consumer, 20, seconds=30) == numbers(20)


@virtual
async def test_a_topic_that_is_away_for_a_while_and_comes_back_new_is_read_from_its_beginning() -> None:
    cluster, (tp,) = filled(5)
    async with consumer_on(cluster, metadata_max_age_ms=2000, auto_offset_reset="latest") as consumer:
        consumer.assign([tp])
        await consumer.seek_to_beginning(tp)
        await read_values(consumer, 5)
        cluster.delete_topic("t")
        await read_values(consumer, 1, seconds=10)
        cluster.create_topic("t")
        cluster.fill(tp, 20)
        assert await read_values(consumer, 20, seconds=30) == numbers(20)


@pytest.mark.parametrize("code", [3, 5])
@virtual
async def test_brokers_that_do_not_know_the_topic_for_a_moment_cost_no_position(code: int) -> None:
    cluster, (tp,) = filled(10)
    async with consumer_on(cluster, "t", metadata_max_age_ms=500, auto_offset_reset="latest") as consumer:
        await consumer.seek_to_beginning()
        assert await read_values(consumer, 10) == numbers(10)
        end = cluster.control(Api.METADATA, lambda broker, request: code, keep=True)
        cluster.control(Api.FETCH, lambda broker, request: 100)
        assert await read_values(consumer, 1, seconds=2) == []
        cluster.fill(tp, 5)
        end()
        assert await read_values(consumer, 5, seconds=30) == numbers(5, 10)


# Sessions of the group, and of fetches.


@virtual
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_records_are_held_back_once_the_session_may_be_over_and_come_when_it_is_not(protocol: str) -> None:
    cluster, _ = filled(100)
    cluster.group_settings["consumer.session.timeout.ms"] = "10000"  # only the broker knows it
    options: dict[str, Any] = {"session_timeout_ms": 10_000} if protocol == "classic" else {}
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol, enable_auto_commit=False, **options) as consumer:
        await read_values(consumer, 10)
        ends = [
            cluster.control(api, lambda broker, request: HANG, keep=True) for api in (Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT)
        ]
        await anyio.sleep(9)
        assert len(await read_values(consumer, 10, seconds=0.5)) == 10, "the session lasts"
        await anyio.sleep(6)
        assert await read_values(consumer, 10, seconds=2) == []
        for end in ends:
            end()
        cluster.disconnect(0)
        assert len(await read_values(consumer, 80)) == 80


@virtual
async def test_a_read_that_waits_goes_on_when_the_session_turns_out_to_last() -> None:
    """Nothing else happens then: no state changes, no data comes."""
    cluster, _ = filled(100)
    cluster.group_settings["consumer.session.timeout.ms"] = "10000"
    options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer", "enable_auto_commit": False}
    async with consumer_on(cluster, "t", **options) as consumer:
        await read_values(consumer, 10)
        answer = cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT]

        async def late(*asked: Any) -> Any:
            cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT] = answer
            await anyio.sleep(20)
            response = answer(*asked)
            assert isinstance(response, Response)
            return response

        cluster.handlers[Api.CONSUMER_GROUP_HEARTBEAT] = late
        await anyio.sleep(15)
        assert await read_values(consumer, 1, seconds=1) == [], "it may be over"
        begun = anyio.current_time()
        assert await consumer.getone()
        assert anyio.current_time() - begun < 10


@pytest.mark.slow
@virtual
async def test_a_thousand_partitions_are_fetched_in_incremental_requests() -> None:
    cluster = FakeCluster()
    tps = cluster.create_topic("t", 1000)
    async with consumer_on(cluster, "t") as consumer:
        await consumer.getmany(timeout_ms=2000)
        start = anyio.current_time()
        cluster.fill(tps[7], 1)
        assert await read_values(consumer, 1) == [b"0"]
        await anyio.sleep(3)
        named = [sum(len(topic.partitions) for topic in entry.request.topics) for entry in cluster.asked(Api.FETCH, since=start)]
        assert max(named) <= 1


@virtual
async def test_an_answer_with_a_code_that_nobody_knows_is_survived() -> None:
    cluster, _ = filled(5)
    cluster.control(Api.FETCH, cluster.answering(FetchResponse(error_code=4242)))
    async with consumer_on(cluster, "t") as consumer:
        values: list[bytes] = []
        codes: list[int] = []
        for _ in range(3):
            try:
                values += await read_values(consumer, 5, seconds=5)
            except UnknownError as error:
                codes.append(error.errno)
        assert values == numbers(5)
        assert codes in ([], [4242])
