"""What programs are told between polls: of a healthy cluster always everything, of one that is down nothing after a while."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import field, frozen

from kafka_async.adapters.admin import Admin, Client
from kafka_async.adapters.monitor import Book, Snapshot, Survey
from kafka_async.adapters.web.messages import WebRequest
from kafka_async.adapters.web.site import LastSeen, Site
from kafka_async.config import ConsumerConfig
from kafka_async.testing.simulation import HANG, KAFKA_2_8, FakeCluster
from kafka_async.wire import Api
from tests.adapters.monitor.support import commit
from tests.application.support import virtual


@frozen
class Scrape:
    """What was told at one moment."""

    time: float
    told: frozenset[str]
    """Series whose number has to be known."""
    unknown: int
    """Groups that are UNKNOWN."""
    json: tuple[int, int | None]
    """Groups with a lag, and the controller."""
    polled: float
    """Seconds that the last poll took."""


@frozen
class Scraping:
    """A monitor whose numbers are read much more often than it polls."""

    cluster: FakeCluster
    interval: float
    found: list[Scrape] = field(factory=list)

    async def run(self, seconds: float, then: Callable[[], object] = lambda: None, after: float = 0.0) -> list[Scrape]:
        """Scrape for ``seconds``; do something once ``after`` seconds have passed."""
        config = ConsumerConfig.from_options({"bootstrap_servers": self.cluster.bootstrap_servers})
        async with Client.connect(config, self.cluster.network) as client, anyio.create_task_group() as tasks:
            survey = Survey(Admin(client), Book(self.interval), wall=lambda: self.cluster.clock.date() / 1000)
            last: list[tuple[Snapshot, float]] = []

            async def poll() -> None:
                async for snapshot in survey.snapshots():
                    last[:] = [(snapshot, client.clock())]

            tasks.start_soon(poll)
            began, done = anyio.current_time(), False
            while (now := anyio.current_time() - began) < seconds:
                await anyio.sleep(min(self.interval / 10, 0.5))
                if after and now > after and not done:
                    then()
                    done = True
                if last:
                    self.scrape(now, LastSeen(snapshot=last[0][0], age=client.clock() - last[0][1]))
            tasks.cancel_scope.cancel()
        return self.found

    def scrape(self, now: float, seen: LastSeen) -> None:
        site = Site(self.interval, partitions=True)

        def ask(path: str) -> str:
            return site.answer(WebRequest("GET", path, {}, {}), seen).body.decode()

        numbers = dict(line.rsplit(" ", 1) for line in ask("/metrics").splitlines() if not line.startswith("#"))
        told = {name for name in numbers if "_lag{" in name or name.startswith("kafka_async_cluster_")}
        unknown = sum(float(value) == 1 for name, value in numbers.items() if 'status="UNKNOWN"' in name)
        rows: list[Any] = json.loads(ask("/api/v1/groups"))["groups"]
        lags = sum(row["lag"] is not None and row["lag_complete"] for row in rows)
        controller = json.loads(ask("/api/v1/cluster"))["controller"]
        self.found.append(
            Scrape(now, frozenset(told), unknown, (lags, controller), seen.snapshot.poll_seconds if seen.snapshot else 0.0)
        )


def crowd(groups: int, size: int = 1, **options: Any) -> FakeCluster:
    cluster = FakeCluster(size=size, **options)
    tps = cluster.create_topic("t", size)
    for tp in tps:
        cluster.fill(tp, 100)
    for number in range(groups):
        name = f"g{number:05}"
        cluster.groups.moved[name] = number % size
        commit(cluster, name, tps[number % size], 50)
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "interval", "options"),
    [
        (25, 1.0, {"max_versions": KAFKA_2_8, "latency": 0.1}),
        (12, 0.5, {"size": 3, "latency": 0.3}),
        (12, 5.0, {"size": 3, "latency": 0.5}),
    ],
    ids=["each third poll", "slow polls", "slower polls"],
)
def test_of_a_healthy_cluster_no_number_ever_vanishes_however_long_polls_take(
    groups: int, interval: float, options: dict[str, Any]
) -> None:
    """A group whose turn comes each third poll was UNKNOWN for a moment before it was told again, and its series had a gap."""

    @virtual
    async def test() -> None:
        found = await Scraping(crowd(groups, **options), interval).run(10 * interval + 10)
        complete = [scrape for scrape in found if len(scrape.told) == 2 * groups + 3 and not scrape.unknown]

        assert complete, "all groups were told once"
        later = [scrape for scrape in found if scrape.time >= complete[0].time]
        assert len(later) > 60
        gaps = [(round(s.time, 2), len(s.told), s.unknown) for s in later if s.told != complete[0].told or s.unknown]
        assert not gaps
        assert {scrape.json[0] for scrape in later} == {groups}
        assert None not in {scrape.json[1] for scrape in later}

    test()


@pytest.mark.slow
@pytest.mark.parametrize("interval", [0.5, 5.0, 15.0])
@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.OFFSET_FETCH, Api.LIST_GROUPS])
def test_a_broker_that_does_not_answer_costs_the_groups_of_the_others_nothing(interval: float, api: Api) -> None:
    """The poll takes longer, and the numbers before it are none the less those of the last one."""

    @virtual
    async def test() -> None:
        cluster = crowd(12, size=3)

        def hang() -> None:
            cluster.control(api, lambda *_: HANG, keep=True, node=1)

        found = await Scraping(cluster, interval).run(20 * interval, hang, 5 * interval)
        others = {f'kafka_async_group_lag{{group="g{each:05}"}}' for each in range(12) if each % 3 != 1}
        assert len(found) > 150
        assert all(others <= scrape.told for scrape in found)
        assert all(scrape.json[1] is not None for scrape in found)

    test()


@pytest.mark.slow
@pytest.mark.parametrize("interval", [0.5, 5.0, 15.0])
def test_of_a_cluster_that_is_down_no_number_is_left_after_three_polls(interval: float) -> None:
    @virtual
    async def test() -> None:
        cluster = crowd(6, size=3)

        def stop() -> None:
            for node in range(3):
                cluster.stop(node)

        found = await Scraping(cluster, interval).run(30 * interval, stop, 10 * interval)
        until = 10 * interval + 6 * max(interval, *(scrape.polled for scrape in found))
        soon = [scrape for scrape in found if scrape.time < 12 * interval]
        late = [scrape for scrape in found if scrape.time > until]
        assert {(len(scrape.told), scrape.unknown, scrape.json[0]) for scrape in soon} == {(15, 0, 6)}
        assert len(late) > 50
        assert {(scrape.told, scrape.unknown, scrape.json) for scrape in late} == {(frozenset(), 6, (0, None))}

    test()


@virtual
async def test_of_a_monitor_that_polls_no_longer_no_number_is_left() -> None:
    cluster = crowd(3)
    config = ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers})
    async with Client.connect(config, cluster.network) as client:
        snapshot = await Survey(Admin(client), Book(5.0)).poll()
    scraping = Scraping(cluster, 5.0)
    for age in (0.0, 14.9, 15.1):
        scraping.scrape(age, LastSeen(snapshot=snapshot, age=age))
    assert [(len(each.told), each.unknown, each.json) for each in scraping.found] == [
        (9, 0, (3, 0)),
        (9, 0, (3, 0)),
        (0, 3, (0, None)),
    ]
