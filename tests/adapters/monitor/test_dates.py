"""How old records are that waited before the first poll: their timestamps are looked up, with few requests."""

from typing import Any

import anyio
import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.monitor import Certainty
from kafka_async.adapters.monitor.survey import SEARCHES
from kafka_async.adapters.monitor.times import ROUNDS
from kafka_async.testing.simulation import HANG, FakeCluster
from kafka_async.wire import Api
from kafka_async.wire.messages import ListOffsetsRequest
from tests.adapters.monitor.support import INTERVAL, commit, group_of, next_poll, watching
from tests.application.support import virtual


def hang_on_times(_broker: Any, request: ListOffsetsRequest) -> object:
    """Answer what asks for the ends of logs, and not what asks for records by time."""
    return HANG if any(part.timestamp >= 0 for topic in request.topics for part in topic.partitions) else None


@virtual
async def test_what_waited_before_the_first_poll_is_found_by_time() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    for _ in range(50):
        cluster.produce(tp, *["x"] * 10)
        await anyio.sleep(12)
    commit(cluster, "g", tp, 200)  # written six minutes ago
    async with watching(cluster) as survey:
        age = group_of(await survey.poll()).age
        since = anyio.current_time()
        await next_poll(survey)
        assert len(cluster.asked(Api.LIST_OFFSETS, since=since)) == 1  # not looked up again

    assert age is not None
    assert age.certainty is Certainty.ABOUT
    assert age.seconds == pytest.approx(6 * 60, abs=12)


async def paused() -> tuple[FakeCluster, TopicPartition, list[float]]:
    """Return a log of a minute, a pause of ten, one more record, and four minutes until now; and when each record came."""
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    written: list[float] = []
    for seconds in (*[1.0] * 59, 600.0, 240.0):
        cluster.produce(tp, "x")
        written.append(anyio.current_time())
        await anyio.sleep(seconds)
    return cluster, tp, written


@virtual
async def test_each_of_several_groups_is_as_far_behind_as_its_own_record_is_old() -> None:
    """Only the time of the furthest one's record was looked up, and the others were put on a line from there to now."""
    cluster, tp, written = await paused()
    groups = {f"g{offset}": offset for offset in (0, 1, 8, 17, 29, 35, 44, 58, 59, 60)}
    for name, offset in groups.items():
        commit(cluster, name, tp, offset)
    async with watching(cluster) as survey:
        counts: list[int] = []
        for _ in range(6):
            since = anyio.current_time()
            snapshot = await next_poll(survey)
            counts.append(len(cluster.asked(Api.LIST_OFFSETS, since=since)))
            for name, offset in groups.items():
                truth = anyio.current_time() - written[offset]
                age = group_of(snapshot, name).age
                assert age is not None
                assert age.certainty is Certainty.ABOUT
                assert truth - 0.1 <= age.seconds <= 1.02 * truth + 1
    assert counts[-2:] == [1, 1], "they have stopped, and are not looked up again"


@virtual
async def test_many_groups_are_dated_in_a_few_polls_of_few_requests_and_never_too_young() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    written: list[float] = []
    for number in range(100):  # with pauses that get longer
        cluster.produce(tp, "x")
        written.append(anyio.current_time())
        await anyio.sleep(1 + number / 12)
    groups = {f"g{offset}": offset for offset in range(0, 100, 7)}
    for name, offset in groups.items():
        commit(cluster, name, tp, offset)
    counts: list[int] = []
    ages: dict[int, float] = {}
    async with watching(cluster) as survey:
        for _ in range(8):
            since = anyio.current_time()
            snapshot = await next_poll(survey)
            now = anyio.current_time()
            counts.append(len(cluster.asked(Api.LIST_OFFSETS, since=since)))
            for name, offset in groups.items():
                age = group_of(snapshot, name).age
                assert age is not None
                assert age.certainty is Certainty.ABOUT
                assert age.seconds >= now - written[offset] - 0.1
                ages[offset] = age.seconds
    for offset, seconds in ages.items():
        assert seconds == pytest.approx(now - written[offset], rel=0.02, abs=1)
    assert max(counts) <= 2 + SEARCHES * ROUNDS, "one for the end, one for the start, and a few searches"
    assert counts[-2:] == [1, 1]


@pytest.mark.slow
@virtual
async def test_a_group_that_moves_is_looked_up_once_a_minute() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    written: list[float] = []
    for _ in range(200):
        cluster.produce(tp, "x")
        written.append(anyio.current_time())
        await anyio.sleep(3)
    counts: list[int] = []
    async with watching(cluster) as survey:
        for number in range(37):
            commit(cluster, "g", tp, 4 * number)
            since = anyio.current_time()
            age = group_of(await next_poll(survey)).age
            counts.append(len(cluster.asked(Api.LIST_OFFSETS, since=since)))
            assert age is not None
            assert age.certainty is Certainty.ABOUT
            assert age.seconds >= anyio.current_time() - written[4 * number] - 0.01
    assert sum(counts[1:]) <= 36 + 3 + 3 * ROUNDS, "one for the end, and each minute one for the start and a search"


@virtual
async def test_a_group_that_stays_two_minutes_behind_is_not_said_to_fall_back() -> None:
    cluster = FakeCluster()
    (tp,) = cluster.create_topic("t")
    written: list[float] = []

    async def go_on(seconds: int) -> None:
        for _ in range(seconds):
            cluster.produce(tp, "x")
            written.append(anyio.current_time())
            await anyio.sleep(1)

    await go_on(300)
    async with watching(cluster) as survey:
        for _ in range(30):
            await go_on(5)
            offset = len(written) - 120
            commit(cluster, "g", tp, offset)
            snapshot = await survey.poll()
            age = group_of(snapshot).age
            assert age is not None
            assert -INTERVAL - 1 <= age.seconds - (anyio.current_time() - written[offset]) <= 20
    assert age is not None
    assert age.certainty is Certainty.SEEN


@virtual
async def test_a_record_whose_time_could_not_be_asked_for_is_looked_up_a_minute_later() -> None:
    cluster, tp, written = await paused()
    commit(cluster, "g", tp, 30)
    async with watching(cluster) as survey:
        again = cluster.control(Api.LIST_OFFSETS, hang_on_times, keep=True)
        first = group_of(await survey.poll()).age
        again()
        for _ in range(13):
            snapshot = await next_poll(survey)

    assert first is None or first.certainty is Certainty.OVER
    age = group_of(snapshot).age
    assert age is not None
    assert age.certainty is Certainty.ABOUT
    assert age.seconds == pytest.approx(anyio.current_time() - written[30], rel=0.02)
