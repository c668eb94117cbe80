"""Polls of a simulated cluster: how many requests they take, and what is shown if brokers, groups and topics do what they do."""

import json
from collections.abc import Callable
from http import HTTPStatus
from math import ceil
from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.monitor import Book, Certainty, Snapshot, Status, Survey
from kafka_async.adapters.web.messages import RefusedRequest, WebRequest
from kafka_async.adapters.web.site import LastSeen, Site
from kafka_async.config import ConsumerConfig
from kafka_async.testing.simulation import HANG, KAFKA_2_8, FakeCluster
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_async.wire.messages.admin import ConsumerGroupDescribeResponse, DescribedConsumerGroup, ListedGroup, ListGroupsResponse
from tests.adapters.monitor.support import INTERVAL, commit, group_of, next_poll, watching
from tests.application.support import consumer_on, virtual

DENIED, LOADING = 30, 14
ABOUT_GROUPS = (
    Api.LIST_GROUPS,
    Api.DESCRIBE_GROUPS,
    Api.CONSUMER_GROUP_DESCRIBE,
    Api.SHARE_GROUP_DESCRIBE,
    Api.OFFSET_FETCH,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.FIND_COORDINATOR,
)


def crowded(count: int, size: int = 3, **options: Any) -> tuple[FakeCluster, list[TopicPartition]]:
    cluster = FakeCluster(size=size, **options)
    tps = cluster.create_topic("t", 3)
    for tp in tps:
        cluster.fill(tp, 100)
    for number in range(count):
        name = f"g{number:05}"
        cluster.groups.moved[name] = number % size
        commit(cluster, name, tps[number % 3], 50)
    return cluster, tps


def refusing(code: int) -> Callable[[Any, OffsetFetchRequest], OffsetFetchResponse]:
    """Return what answers requests for offsets with an error for each group."""

    def refuse(_broker: Any, request: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=tuple(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups)
        )

    return refuse


# --- what it costs -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_poll_of_many_groups_takes_no_more_requests_than_the_formula() -> None:
    """B + L + 2 x (the hundreds of groups of each broker and kind), and once in a while the layout and the starts of logs."""
    count = 5000

    @virtual
    async def test() -> None:
        cluster, _ = crowded(count)
        async with watching(cluster) as survey:
            await survey.poll()
            begun = anyio.current_time()
            snapshot = await next_poll(survey)
            asked = cluster.asked(*ABOUT_GROUPS, since=begun)

        assert len(snapshot.groups) == count
        assert snapshot.errors == 0
        hundreds = sum(ceil(len(range(node, count, 3)) / 100) for node in range(3))
        assert len(asked) <= 3 + 3 + 2 * hundreds

    test()


@pytest.mark.slow
@virtual
async def test_groups_that_have_nothing_to_do_are_asked_each_sixth_poll() -> None:
    cluster, tps = crowded(0)
    for number in range(500):
        commit(cluster, f"g{number:05}", tps[0], 100)
    async with watching(cluster) as survey:
        counts = []
        for _ in range(13):
            since = anyio.current_time()
            snapshot = await next_poll(survey)
            counts.append(len(cluster.asked(Api.OFFSET_FETCH, since=since + INTERVAL)))

    assert counts == [5, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 5]
    assert {group.status for group in snapshot.groups} == {Status.OK}


@virtual
async def test_a_group_that_had_nothing_to_do_shows_its_lag_at_once_and_is_asked_again() -> None:
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.fill(tps[0], 7)
        assert group_of(await next_poll(survey)).lag == 7
        commit(cluster, "g", tps[0], 105)
        assert group_of(await next_poll(survey)).lag == 2


@virtual
async def test_a_program_that_commits_without_being_a_member_is_not_behind_the_moment_it_goes_on() -> None:
    """Its offsets are asked for each sixth poll, and were held against the ends of now: a lag, and a STOP, that never were."""
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        for done in (600, 600, 700, 700, 700, 1000):
            cluster.fill(tps[0], done - cluster.log(tps[0]).end)
            commit(cluster, "g", tps[0], done)
            group = group_of(await next_poll(survey))
            assert (group.status, group.lag, group.partitions[0].committed) == (Status.OK, 0, done)


@virtual
async def test_a_group_without_members_whose_offsets_are_not_told_when_its_records_come_keeps_its_values() -> None:
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.fill(tps[0], 7)
        cluster.control(Api.OFFSET_FETCH, refusing(LOADING))
        meanwhile, later = group_of(await next_poll(survey)), group_of(await next_poll(survey))

    assert meanwhile.age_seconds == pytest.approx(INTERVAL, abs=0.1)
    assert (later.lag, later.status) == (7, Status.STOP)


@virtual
async def test_a_group_that_is_named_takes_a_request_of_each_sort() -> None:
    cluster, _ = crowded(300)
    async with watching(cluster, "g00001") as survey:
        await survey.poll()
        since = anyio.current_time()
        snapshot = await next_poll(survey)
        asked = [entry.api for entry in cluster.asked(*ABOUT_GROUPS, since=since)]

    assert [group.name for group in snapshot.groups] == ["g00001"]
    assert sorted(asked) == sorted([Api.FIND_COORDINATOR, Api.LIST_GROUPS, Api.DESCRIBE_GROUPS, Api.OFFSET_FETCH, Api.LIST_OFFSETS])


@virtual
async def test_a_name_that_is_of_no_group_is_told() -> None:
    cluster, _ = crowded(3)
    async with watching(cluster, "g00001", "typo") as survey:
        assert (await survey.poll()).missing == ("typo",)


# --- brokers that do not answer ------------------------------------------------------------------------------------------------


@virtual
async def test_a_silent_broker_keeps_its_groups_old_values_and_the_others_are_fresh_within_an_interval() -> None:
    cluster, tps = crowded(30)
    async with watching(cluster) as survey:
        await survey.poll()
        await next_poll(survey)
        for api in ABOUT_GROUPS:
            cluster.control(api, lambda *_: HANG, keep=True, node=1)
        cluster.fill(tps[0], 5)
        cluster.fill(tps[2], 5)
        begun = anyio.current_time()
        snapshot = await next_poll(survey)
        took = anyio.current_time() - begun - INTERVAL
        for _ in range(3):
            later = await next_poll(survey)

    assert took < INTERVAL
    assert group_of(snapshot, "g00000").lag == group_of(snapshot, "g00002").lag == 55
    old = group_of(snapshot, "g00001")
    assert old.lag == 50
    assert old.age_seconds is not None
    assert old.age_seconds >= INTERVAL
    assert {group.status for group in later.groups if int(group.name[1:]) % 3 == 1} == {Status.UNKNOWN}
    assert {group.status for group in later.groups if int(group.name[1:]) % 3 != 1} == {Status.STOP}
    ages = {broker.node_id: broker.age_seconds for broker in later.cluster.brokers}
    assert ages[0] == ages[2] == pytest.approx(0, abs=0.1)
    assert (ages[1] or 0) > 3 * INTERVAL


@virtual
async def test_a_leader_that_does_not_answer_leaves_the_lag_of_its_partitions_as_it_was() -> None:
    cluster, tps = crowded(0)
    for tp in tps:
        commit(cluster, "g", tp, 50)
    async with watching(cluster) as survey:
        await survey.poll()
        await next_poll(survey)
        cluster.control(Api.LIST_OFFSETS, lambda *_: HANG, keep=True, node=2)
        for tp in tps:
            cluster.fill(tp, 5)
        for _ in range(4):
            snapshot = await next_poll(survey)

    parts = group_of(snapshot).partitions
    assert [part.lag for part in parts] == [55, 55, 50]
    assert [part.status for part in parts] == [Status.STOP, Status.STOP, Status.UNKNOWN]
    numbers = series(snapshot)
    assert (numbers['group_lag{group="g"}'], numbers['group_lag_complete{group="g"}']) == (110, 0)
    assert [name for name in numbers if name.startswith("partition_lag")] == [
        f'partition_lag{{group="g",topic="t",partition="{each}"}}' for each in (0, 1)
    ]


@virtual
async def test_a_leader_that_has_never_answered_leaves_the_lag_unknown_and_never_nothing() -> None:
    cluster, tps = crowded(0)
    for tp, offset in zip(tps, (100, 100, 50), strict=True):
        commit(cluster, "g", tp, offset)
    commit(cluster, "other", tps[2], 50)
    hanging = cluster.control(Api.LIST_OFFSETS, lambda *_: HANG, keep=True, node=2)
    async with watching(cluster) as survey:
        for _ in range(5):
            snapshot = await next_poll(survey)
            assert scaled(snapshot) is HTTPStatus.SERVICE_UNAVAILABLE
            group, other = group_of(snapshot), group_of(snapshot, "other")
            assert [part.lag for part in group.partitions] == [0, 0, None]
            assert (group.status, group.lag, group.complete) == (Status.UNKNOWN, 0, False)
            assert (other.status, other.lag, other.complete) == (Status.UNKNOWN, None, False)
        hanging()
        snapshot = await poll_until(survey, lambda found: group_of(found).status is Status.STOP)

    group = group_of(snapshot)
    assert (group.lag, group.complete) == (50, True)
    assert scaled(snapshot) is HTTPStatus.OK


def scaled(snapshot: Snapshot, name: str = "g") -> HTTPStatus:
    """Return what a scaler is answered."""
    try:
        return Site(INTERVAL).answer(WebRequest("GET", f"/keda/groups/{name}", {}, {}), LastSeen(snapshot=snapshot)).status
    except RefusedRequest as refused:
        return refused.status


@virtual
async def test_an_offset_that_may_not_be_read_leaves_the_lag_unknown() -> None:
    cluster, tps = crowded(0, size=1)
    for tp in tps[:2]:
        commit(cluster, "g", tp, 100)
    part = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=100, metadata="", error_code=0)]
    part += [OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata="", error_code=DENIED)]
    told = OffsetFetchResponseGroup(group_id="g", topics=(OffsetFetchResponseTopics(name="t", partitions=tuple(part)),))
    cluster.control(Api.OFFSET_FETCH, cluster.answering(OffsetFetchResponse(groups=(told,))), keep=True)
    async with watching(cluster) as survey:
        group = group_of(await survey.poll())

    assert [part.lag for part in group.partitions] == [0, None]
    assert (group.status, group.lag, group.complete) == (Status.UNKNOWN, 0, False)


def served(path: str, snapshot: Snapshot) -> str:
    site = Site(INTERVAL, partitions=True)
    return site.answer(WebRequest("GET", path, {}, {}), LastSeen(snapshot=snapshot)).body.decode()


def series(snapshot: Snapshot) -> dict[str, float]:
    """Return the numbers for Prometheus, by the name of the series without that of the project."""
    found = dict(line.rsplit(" ", 1) for line in served("/metrics", snapshot).splitlines() if not line.startswith("#"))
    return {name.removeprefix("kafka_async_"): float(value) for name, value in found.items()}


@pytest.mark.slow
@virtual
async def test_programs_get_no_number_of_a_cluster_that_has_been_down_for_more_than_three_polls() -> None:
    """An alert on ``lag > 0`` ended with the brokers, and one on missing series never came."""
    cluster, tps = crowded(3)
    commit(cluster, "done", tps[0], 100)
    async with consumer_on(cluster, "t", group_id="live"), watching(cluster) as survey:
        for _ in range(3):
            await next_poll(survey)
        for broker in range(3):
            cluster.stop(broker)
        soon = await next_poll(survey)
        for _ in range(6):
            later = await next_poll(survey)

        numbers, lag = series(soon), 'group_lag{group="%s"}'
        assert (numbers[lag % "done"], numbers[lag % "g00000"], numbers["cluster_brokers"]) == (0, 50, 3)
        numbers = series(later)
        named = {name.partition("{")[0] for name in numbers}
        unknown = {"group_lag", "group_lag_seconds", "group_members", "partition_lag"}
        unknown |= {f"cluster_{name}" for name in ("brokers", "offline_partitions", "under_replicated_partitions")}
        assert not named & unknown
        assert {value for name, value in numbers.items() if name.startswith("group_lag_complete")} == {0}
        assert numbers['group_status{group="done",status="UNKNOWN"}'] == 1
        assert numbers['group_poll_age_seconds{group="done"}'] > 3 * INTERVAL

        rows = json.loads(served("/api/v1/groups", later))["groups"]
        assert len(rows) == 5
        assert {(row["lag"], row["lag_complete"], row["lag_seconds"], row["members"], row["state"]) for row in rows} == {
            (None, False, None, None, None)
        }
        parts = [part for row in rows for part in row["partitions"]]
        assert {(part["status"], part["lag"], part["committed"], part["end"], part["owner"]) for part in parts} == {
            ("UNKNOWN", None, None, None, None)
        }
        told = json.loads(served("/api/v1/cluster", later))
        assert (told["controller"], told["leaderless"], told["under_replicated"], told["skew"]) == (None,) * 4
        assert [(broker["id"], broker["leads"]) for broker in told["brokers"]] == [(0, None), (1, None), (2, None)]
        assert group_of(later, "g00000").lag == 50, "people see it beside the status"

        for broker in range(3):
            cluster.start(broker)
        back = await poll_until(survey, lambda found: group_of(found, "done").status is Status.OK)

    numbers = series(back)
    assert (numbers[lag % "done"], numbers["cluster_brokers"]) == (0, 3)


@virtual
async def test_a_broker_that_comes_back_is_believed_again() -> None:
    cluster, _ = crowded(3)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.freeze(1)
        for _ in range(5):
            snapshot = await next_poll(survey)
        assert group_of(snapshot, "g00001").status is Status.UNKNOWN
        cluster.start(1)
        cluster.disconnect(1)
        for _ in range(4):
            snapshot = await next_poll(survey)
    assert group_of(snapshot, "g00001").status is Status.STOP
    assert group_of(snapshot, "g00001").lag == 50


@virtual
async def test_a_group_whose_new_coordinator_does_not_answer_yet_is_not_forgotten() -> None:
    """As in each rolling restart: the coordinator moves back, and has to load what is committed first."""
    cluster, tps = crowded(0, 2)
    cluster.groups.moved["g"] = 1
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        while group_of(await next_poll(survey)).in_rate is None:
            pass
        cluster.groups.moved["g"] = 0
        loading = cluster.control(Api.LIST_GROUPS, cluster.answering(ListGroupsResponse(error_code=LOADING)), keep=True, node=0)
        meanwhile = group_of(await next_poll(survey))
        loading()
        snapshot = await next_poll(survey)

    assert (meanwhile.status, meanwhile.lag) == (Status.STOP, 50)
    assert meanwhile.age_seconds == pytest.approx(INTERVAL, abs=0.1)
    group = group_of(snapshot)
    assert (group.status, group.lag, group.in_rate) == (Status.STOP, 50, 0.0), "its window goes on"
    assert group.age_seconds == pytest.approx(0, abs=0.1)


@virtual
async def test_what_a_broker_said_is_over_once_it_coordinates_none_of_the_groups_that_are_named() -> None:
    cluster, tps = crowded(0, 3)
    cluster.groups.moved["g"] = 1
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster, "g") as survey:
        await survey.poll()
        cluster.control(Api.LIST_GROUPS, cluster.answering(ListGroupsResponse(error_code=LOADING)), node=1)
        said = [broker.note != "" for broker in (await next_poll(survey)).cluster.brokers]
        cluster.groups.moved["g"] = 2
        snapshot = await next_poll(survey)

    assert said == [False, True, False]
    assert [(broker.note, broker.asked) for broker in snapshot.cluster.brokers] == [("", False), ("", False), ("", True)]
    assert group_of(snapshot).age_seconds == pytest.approx(0, abs=0.1)


@virtual
async def test_a_group_that_moves_to_a_broker_that_has_just_joined_is_found_there() -> None:
    cluster, tps = crowded(0, 2)
    cluster.groups.moved["g"] = 1
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        cluster.stop(1)
        while len((await next_poll(survey)).cluster.brokers) == 2:  # its coordinator is broker 0 meanwhile
            pass
        cluster.start(1)
        snapshot = await next_poll(survey)

    assert len(snapshot.cluster.brokers) == 2
    assert group_of(snapshot).age_seconds == pytest.approx(0, abs=0.1)
    assert snapshot.errors == 0


class Balanced(FakeCluster):
    """A cluster behind a load balancer, whose brokers answer at no address but the one that they name."""

    def server_at(self, host: str, port: int) -> Any:
        return next((each for each in self.brokers.values() if host == "balancer" or (each.host, each.port) == (host, port)), None)


@virtual
async def test_a_cluster_that_comes_back_at_other_addresses_is_found_again() -> None:
    cluster = Balanced(size=2)
    (tp,) = cluster.create_topic("t", 1)
    cluster.fill(tp, 100)
    commit(cluster, "g", tp, 50)
    config = ConsumerConfig.from_options({"bootstrap_servers": "balancer:9092"})
    async with Client.connect(config, cluster.network) as client:
        survey = Survey(Admin(client), Book(INTERVAL))
        assert group_of(await survey.poll()).status is Status.STOP
        for node in range(2):
            cluster.stop(node)
        for _ in range(5):
            snapshot = await next_poll(survey)
        assert group_of(snapshot).status is Status.UNKNOWN
        for node in range(2):
            cluster.brokers[node].listens(f"c{node}", 9093)
            cluster.start(node)
        cluster.fill(tp, 5)
        for _ in range(3):
            snapshot = await next_poll(survey)

    assert (group_of(snapshot).status, group_of(snapshot).lag) == (Status.STOP, 55)
    assert {broker.address for broker in snapshot.cluster.brokers} == {"c0:9093", "c1:9093"}


@virtual
async def test_many_brokers_that_do_not_answer_make_a_poll_no_longer_than_a_few() -> None:
    cluster, _ = crowded(3, 12)
    async with watching(cluster) as survey:
        await survey.poll()
        for node in range(12):
            cluster.freeze(node)
        await next_poll(survey)
        begun = anyio.current_time()
        await survey.poll()
        took = anyio.current_time() - begun
        for node in range(12):
            cluster.start(node)
            cluster.disconnect(node)
        snapshot = await poll_until(survey, lambda found: group_of(found, "g00001").status is Status.STOP)

    assert took < 3 * INTERVAL
    assert snapshot.number < 8


@pytest.mark.slow
@virtual
@pytest.mark.parametrize("first", [True, False])
async def test_many_brokers_that_do_not_answer_cost_a_poll_no_more_if_it_looks_where_partitions_are(first: bool) -> None:
    """They were asked one after the other, each for as long as a broker has: all windows began anew."""
    cluster, _ = crowded(60, 30)
    async with watching(cluster) as survey:
        if not first:
            for _ in range(6):
                await survey.poll()
                await anyio.sleep(INTERVAL)
        for node in range(10):
            cluster.freeze(node)
        begun = anyio.current_time()
        snapshot = await survey.poll()
        took = anyio.current_time() - begun

    assert took < 3 * INTERVAL
    assert group_of(snapshot, "g00015").state == "Empty"
    assert len(cluster.asked(Api.METADATA, since=begun)) <= 16, "an answer about all topics may be long"


@virtual
async def test_a_broker_that_knows_of_no_broker_yet_is_not_believed() -> None:
    cluster, _ = crowded(1, 1)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.control(Api.METADATA, cluster.answering(MetadataResponse(brokers=(), topics=())))
        await anyio.sleep(30)  # it is asked where partitions are
        for _ in range(2):
            snapshot = await next_poll(survey)

    assert len(snapshot.cluster.brokers) == 1
    assert group_of(snapshot, "g00000").age_seconds == pytest.approx(0, abs=0.1)


@virtual
async def test_a_group_that_may_not_be_read_is_unknown_and_says_why() -> None:
    cluster, _ = crowded(2, size=1)
    cluster.control(Api.OFFSET_FETCH, refusing(DENIED), keep=True)
    async with watching(cluster) as survey:
        snapshot = await survey.poll()

    group = group_of(snapshot, "g00001")
    assert (group.status, group.lag) == (Status.UNKNOWN, None)
    assert "authoriz" in " ".join(group.notes).lower() or "access" in " ".join(group.notes).lower()
    assert group.as_json()["lag"] is None


@virtual
async def test_brokers_before_3_0_get_through_all_groups_in_turns() -> None:
    cluster, _ = crowded(60, size=1, max_versions=KAFKA_2_8, latency=0.1)
    async with watching(cluster) as survey:
        known = []
        for _ in range(3):
            snapshot = await next_poll(survey)
            known.append(len([group for group in snapshot.groups if group.lag is not None]))

    assert 0 < known[0] < 60
    assert known[0] < known[1]
    assert known[2] == 60


async def polls(survey: Survey, count: int) -> list[Snapshot]:
    """Return what so many polls find, each of which begins an interval after the one before."""
    found = []
    for _ in range(count):
        began = anyio.current_time()
        found.append(await survey.poll())
        await anyio.sleep(max(0.0, INTERVAL - (anyio.current_time() - began)))
    return found


@pytest.mark.slow
@virtual
async def test_a_broker_that_does_not_get_through_its_groups_in_a_poll_tells_all_of_them_in_turns() -> None:
    """Descriptions of all came first, so the time was over before any offsets were asked for, in each poll anew."""
    cluster, _ = crowded(700, size=1, latency=0.5)
    async with watching(cluster) as survey:
        found = await polls(survey, 4)
    known = [sum(group.lag is not None for group in snapshot.groups) for snapshot in found]

    assert 0 < known[0] < known[1]
    assert known[-1] == 700


@pytest.mark.slow
@virtual
async def test_a_group_whose_turn_comes_each_third_poll_is_judged_as_the_others_are() -> None:
    """Three intervals between two looks were a gap, after which nothing is known: it was fine for ever."""
    cluster, _ = crowded(90, size=1, max_versions=KAFKA_2_8, latency=0.1)
    async with watching(cluster) as survey:
        found = await polls(survey, 12)
    known = [sum(group.lag is not None for group in snapshot.groups) for snapshot in found]

    assert known[1] < known[2] == 90
    for snapshot in found[8:]:
        assert {group.status for group in snapshot.groups} <= {Status.STOP, Status.UNKNOWN}


# --- groups and topics ---------------------------------------------------------------------------------------------------------


@virtual
async def test_a_member_that_stops_is_told_within_three_polls() -> None:
    cluster, tps = crowded(0)
    async with watching(cluster) as survey:
        consumer = consumer_on(cluster, "t", group_id="g", auto_commit_interval_ms=1000)
        await consumer.start()
        await consumer.getmany(timeout_ms=2000)
        await consumer.commit()
        await survey.poll()
        snapshot = await next_poll(survey)
        running = group_of(snapshot)
        await consumer.stop()
        for tp in tps:
            cluster.fill(tp, 40)
        found = [group_of(await next_poll(survey)).status for _ in range(3)]

    assert (running.status, running.members and len(running.members)) == (Status.OK, 1)
    assert running.worst is not None
    assert running.worst.owner is not None
    assert found[-1] is Status.STOP


@virtual
async def test_how_long_records_wait_is_right_to_an_interval() -> None:
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        await anyio.sleep(3)
        cluster.fill(tps[0], 10_000)
        written = anyio.current_time()
        for _ in range(8):
            snapshot = await next_poll(survey)

        age = group_of(snapshot).age
        assert age is not None
        assert age.certainty is Certainty.SEEN
        assert age.seconds == pytest.approx(anyio.current_time() - written, abs=INTERVAL)


@virtual
async def test_a_topic_that_is_created_again_is_unreadable() -> None:
    cluster, tps = crowded(0)
    for tp in tps:
        commit(cluster, "g", tp, 100)
    cluster.create_topic("other")
    commit(cluster, "g", TopicPartition("other", 0), 0)
    async with watching(cluster) as survey:
        await survey.poll()
        await next_poll(survey)
        cluster.recreate("t")
        cluster.fill(tps[0], 5)
        found = [group_of(await next_poll(survey)).status for _ in range(2)]

    assert found[-1] is Status.UNREADABLE


@virtual
async def test_an_offset_that_stays_when_its_topic_is_created_again_is_unreadable() -> None:
    """Members of a former protocol commit it again."""
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.recreate("t")
        commit(cluster, "g", tps[0], 100)
        found = [group_of(await next_poll(survey)).status for _ in range(2)]

    assert found[-1] is Status.UNREADABLE


@virtual
async def test_a_former_topic_says_nothing_of_one_that_was_created_and_filled_since() -> None:
    """Its log is the longer one, so only the topic's id tells. The lag was as old as the monitor, and records were lost unread."""
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        cluster.log(tps[0]).delete_before(40)
        await survey.poll()
        await anyio.sleep(60)
        await next_poll(survey)  # is told the starts of logs, and asks again in a minute
        cluster.recreate("t")
        await anyio.sleep(30)
        cluster.produce(tps[0], *["x"] * 200)
        commit(cluster, "g", tps[0], 10)
        found = [group_of(await next_poll(survey)) for _ in range(4)]

    for number, group in enumerate(found, 1):
        assert group.age is not None
        assert group.age.seconds <= number * INTERVAL + 1
        assert group.status is not Status.ERR
        assert [part.lost for part in group.partitions] == [0]


@virtual
async def test_the_log_of_a_topic_is_forgotten_once_no_group_has_it() -> None:
    """When it grew in between is not known, and was guessed from the ends before and after."""
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 100)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.groups.offsets.forget("g")
        await next_poll(survey)
        await anyio.sleep(300)
        cluster.produce(tps[0], *["x"] * 100)
        commit(cluster, "g", tps[0], 150)
        age = group_of(await next_poll(survey)).age

    assert age is not None
    assert age.seconds <= INTERVAL + 1


@virtual
async def test_what_is_known_of_a_log_outlives_a_list_that_lacks_its_group() -> None:
    """While a coordinator moves, neither broker may list it."""
    cluster, tps = crowded(0)
    cluster.log(tps[0]).delete_before(60)
    commit(cluster, "g", tps[0], 40)
    async with watching(cluster) as survey:
        assert [part.start for part in group_of(await survey.poll()).partitions] == [60]
        cluster.groups.offsets.forget("g")
        await next_poll(survey)
        commit(cluster, "g", tps[0], 40)
        assert [part.start for part in group_of(await next_poll(survey)).partitions] == [60]


@virtual
async def test_a_group_that_is_deleted_is_forgotten_and_another_kind_under_its_name_begins_anew() -> None:
    cluster, tps = crowded(0)
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.groups.offsets.forget("g")
        assert (await next_poll(survey)).find("g") is None
        commit(cluster, "g", tps[0], 60)
        await next_poll(survey)
        kind = ListGroupsResponse(groups=(ListedGroup(group_id="g", group_state="Stable", group_type="Consumer"),))
        cluster.control(Api.LIST_GROUPS, cluster.answering(kind), keep=True, node=0)
        described = ConsumerGroupDescribeResponse(
            groups=(DescribedConsumerGroup(group_id="g", group_state="Stable", group_epoch=4),)
        )
        cluster.control(Api.CONSUMER_GROUP_DESCRIBE, cluster.answering(described), keep=True)
        group = group_of(await next_poll(survey))

    assert (group.kind, group.rebalances, group.in_rate) == ("consumer", 0, None)


@pytest.mark.slow
@virtual
async def test_rebalances_are_counted_by_the_epoch_of_the_group() -> None:
    cluster, _ = crowded(0)
    async with watching(cluster) as survey:
        first = consumer_on(cluster, "t", group_id="g", group_protocol="consumer")
        await first.start()
        await survey.poll()
        for _ in range(2):
            async with consumer_on(cluster, "t", group_id="g", group_protocol="consumer"):
                await anyio.sleep(1)
        group = group_of(await next_poll(survey))
        await first.stop()

    assert group.rebalances >= 4
    assert group.rebalances_hour == group.rebalances


@virtual
async def test_a_share_group_that_has_not_begun_is_unknown_and_not_zero() -> None:
    cluster, _ = crowded(0)
    answer = ListGroupsResponse(groups=(ListedGroup(group_id="s", protocol_type="share", group_state="Empty", group_type="share"),))
    cluster.control(Api.LIST_GROUPS, cluster.answering(answer), keep=True, node=0)
    async with watching(cluster) as survey:
        group = group_of(await survey.poll(), "s")

    assert (group.status, group.lag, group.as_json()["lag"]) == (Status.UNKNOWN, None, None)


@pytest.mark.parametrize(
    ("kind", "protocol", "status"),
    [
        ("classic", "consumer", Status.UNKNOWN),
        ("consumer", "consumer", Status.UNKNOWN),
        ("", "consumer", Status.UNKNOWN),  # before Kafka 3.8
        ("classic", "connect", Status.OK),  # its workers commit no offsets, and there is nothing to know
    ],
)
@virtual
async def test_a_group_that_has_committed_nothing_is_unknown_and_not_well(kind: str, protocol: str, status: Status) -> None:
    cluster, _ = crowded(0)
    answer = ListGroupsResponse(groups=(ListedGroup(group_id="g", protocol_type=protocol, group_state="Empty", group_type=kind),))
    cluster.control(Api.LIST_GROUPS, cluster.answering(answer), keep=True, node=0)
    async with watching(cluster) as survey:
        group = group_of(await survey.poll())

    assert (group.status, group.lag, group.complete) == (status, None, False)
    assert ("nothing committed" in group.notes) == (status is Status.UNKNOWN)


def as_streams(cluster: FakeCluster, state: str) -> Callable[[], None]:
    """Have the groups listed as one of Kafka Streams in this state; return what ends this."""
    listed = ListedGroup(group_id="g", protocol_type="streams", group_state=state, group_type="Streams")
    return cluster.control(Api.LIST_GROUPS, cluster.answering(ListGroupsResponse(groups=(listed,))), keep=True)


@virtual
async def test_a_group_of_kafka_streams_that_is_listed_without_members_has_stopped() -> None:
    """Such groups are not described, so what is known of their members is what the list says."""
    cluster, tps = crowded(0, 1)
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        empty = as_streams(cluster, "Empty")
        found = [group_of(await next_poll(survey)) for _ in range(9)]
        empty()
        as_streams(cluster, "Stable")
        running = group_of(await next_poll(survey))

    assert {(group.kind, group.status, group.notes, group.members) for group in found} == {
        ("streams", Status.STOP, ("no members",), ())
    }
    assert running.members is None


@pytest.mark.parametrize(("state", "note"), [("NotReady", "not ready for 60 s"), ("Reconciling", "rebalancing for 60 s")])
@virtual
async def test_a_group_of_kafka_streams_that_never_gets_ready_is_an_error_until_it_is(state: str, note: str) -> None:
    cluster, tps = crowded(0, 1)
    commit(cluster, "g", tps[0], 50)
    async with watching(cluster) as survey:
        unready = as_streams(cluster, state)
        found = [group_of(await next_poll(survey)) for _ in range(13)]
        unready()
        as_streams(cluster, "Stable")
        ready = group_of(await next_poll(survey))

    assert (found[-1].status, found[-1].notes) == (Status.ERR, (note,))
    assert {group.status for group in found[:9]} == {Status.OK}
    assert ready.status is not Status.ERR


@virtual
async def test_members_that_have_left_are_none_though_the_group_cannot_be_described_just_then() -> None:
    cluster, tps = crowded(0, 1)
    async with watching(cluster) as survey:
        consumer = consumer_on(cluster, "t", group_id="g")
        await consumer.start()
        await consumer.getmany(timeout_ms=2000)
        await consumer.stop()
        cluster.fill(tps[0], 40)
        await survey.poll()
        listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Empty", group_type="Classic")
        cluster.control(Api.LIST_GROUPS, cluster.answering(ListGroupsResponse(groups=(listed,))), keep=True)
        cluster.control(Api.DESCRIBE_GROUPS, lambda *_: HANG, keep=True)
        group = group_of(await next_poll(survey))

    assert group.members == ()


@virtual
async def test_only_partitions_of_a_topic_count_if_one_is_named() -> None:
    cluster, _ = crowded(3)
    cluster.create_topic("u")
    commit(cluster, "g00000", TopicPartition("u", 0), 0)
    async with watching(cluster, topic="u") as survey:
        snapshot = await survey.poll()

    assert [(group.name, [part.partition.topic for part in group.partitions]) for group in snapshot.groups] == [("g00000", ["u"])]


@pytest.mark.parametrize("code", [DENIED, LOADING])
@pytest.mark.parametrize("names", [("g00000",), ()])
@virtual
async def test_a_group_whose_offsets_are_not_told_is_unknown_and_not_of_other_topics(names: tuple[str, ...], code: int) -> None:
    """With ``--topic`` it was left out, and a check that found nothing else said that all is well."""
    cluster, _ = crowded(1, size=1)
    refused = cluster.control(Api.OFFSET_FETCH, refusing(code), keep=True)
    async with watching(cluster, *names, topic="t") as survey:
        for _ in range(2):
            snapshot = await next_poll(survey)
            assert group_of(snapshot, "g00000").status is Status.UNKNOWN
            assert scaled(snapshot, "g00000") is HTTPStatus.SERVICE_UNAVAILABLE
        refused()
        snapshot = await next_poll(survey)

    assert (group_of(snapshot, "g00000").status, group_of(snapshot, "g00000").lag) == (Status.STOP, 50)


@virtual
async def test_a_group_of_other_topics_stays_away_until_it_is_refused_for_too_long() -> None:
    cluster, _ = crowded(1, size=1)
    cluster.create_topic("u")
    async with watching(cluster, topic="u") as survey:
        assert (await survey.poll()).groups == ()
        cluster.control(Api.OFFSET_FETCH, refusing(DENIED), keep=True)
        assert (await next_poll(survey)).groups == ()
        snapshot = await poll_until(survey, lambda found: bool(found.groups))

    assert snapshot.number > 3
    assert group_of(snapshot, "g00000").status is Status.UNKNOWN


@virtual
async def test_partitions_without_a_leader_are_told_and_their_lag_is_unknown() -> None:
    cluster = FakeCluster(size=3)
    tps = cluster.create_topic("t", 3, replicas=1)
    for tp in tps:
        cluster.fill(tp, 10)
        commit(cluster, "g", tp, 4)
    async with watching(cluster) as survey:
        await survey.poll()
        cluster.stop(2)
        for _ in range(7):
            snapshot = await next_poll(survey)

    group = group_of(snapshot)
    assert snapshot.cluster.leaderless == (tps[2],)
    assert [part.lag for part in group.partitions] == [6, 6, None]
    assert (group.lag, group.complete) == (12, False)


@pytest.mark.slow
@virtual
async def test_an_open_transaction_that_holds_a_group_up_is_named() -> None:
    cluster, tps = crowded(0)
    cluster.produce(tps[0], "x", producer_id=7)
    cluster.fill(tps[0], 20)
    async with watching(cluster) as survey:
        reader = consumer_on(cluster, "t", group_id="g", isolation_level="read_committed", auto_commit_interval_ms=100)
        await reader.start()
        for _ in range(12):
            await reader.getmany(timeout_ms=100)
            snapshot = await next_poll(survey)
        await reader.stop()

    group = group_of(snapshot)
    assert group.status is Status.STALL
    assert group.notes[0] == "an open transaction holds what comes after 100"


async def poll_until(survey: Survey, holds: Callable[[Snapshot], bool]) -> Snapshot:
    while True:
        snapshot = await next_poll(survey)
        if holds(snapshot):
            return snapshot


@virtual
async def test_the_worst_group_comes_first_and_json_has_the_names_that_programs_know() -> None:
    cluster, tps = crowded(0)
    commit(cluster, "fine", tps[0], 100)
    commit(cluster, "far", tps[0], 10)
    commit(cluster, "near", tps[0], 90)
    async with watching(cluster) as survey:
        await survey.poll()
        snapshot = await poll_until(survey, lambda found: found.number == 3)

    assert [group.name for group in snapshot.groups] == ["far", "near", "fine"]
    assert dict(snapshot.counts()) == {Status.STOP: 2, Status.OK: 1}
    row = snapshot.groups[0].as_json()
    pinned = "group type state status lag lag_seconds in_rate out_rate clear_in members partitions age_seconds"
    assert set(pinned.split()) <= row.keys()
    assert (row["group"], row["type"], row["status"], row["lag"], row["members"]) == ("far", "classic", "STOP", 90, 0)
    (part,) = row["partitions"]
    assert {"topic", "partition", "lag", "committed", "end", "start", "owner", "unmoved_seconds"} <= part.keys()
    assert (part["committed"], part["end"], part["start"], part["owner"]) == (10, 100, 0, None)
