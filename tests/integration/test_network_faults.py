"""Each phase of a consumer's life meets each fault of a network, once: the consumer gets over it by itself, and in time.

A trap in the proxy strikes the very request or response of the phase. All cases of a phase run at the same time, each with a client
id and a group of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal

import pytest
from attrs import define, field, frozen

from kafka_async.trace import RequestSent, TraceEvent
from tests.brokers import KafkaCluster, payload
from tests.effort import apart
from tests.faults.proxy import PROXIED, Proxy, Strike, Trap, Way, proxied

from .groups import PROTOCOLS, Group, both, exactly, load, longest_wait, new_group, reading, several, shared
from .tools import PATIENCE, Consumer, Record, eventually, flat, make, new_topic, nothing_more, offsets, read, until

pytestmark = pytest.mark.brokers

RECORDS: Final = 10
SHORT: Final = {
    "request_timeout_ms": 2_000,
    "default_api_timeout_ms": 20_000,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_max_ms": 200,
    "auto_commit_interval_ms": 3_600_000,
    "enable_auto_commit": False,
}
LONGEST: Final = 15.0
"""Seconds in which a step is over: the longest wait is that for an answer to a JoinGroup."""
STOP_MS: Final = 1_500

Step = Literal["start", "steady", "stop"]

FAULTS: Final[tuple[tuple[Way, Strike], ...]] = (
    ("request", Strike.CUT),
    ("request", Strike.STALL),
    ("response", Strike.HALF),
    ("response", Strike.STALL),
    ("response", Strike.LENGTH),
    ("response", Strike.CORRELATION),
)
MORE_FAULTS: Final[tuple[tuple[Way, Strike], ...]] = (
    *FAULTS,
    ("request", Strike.HALF),
    ("request", Strike.AFTER),
    ("response", Strike.CUT),
    ("response", Strike.AFTER),
)


@frozen
class Phase:
    """A request of the life of a consumer: in which protocol, its API key, and the step before which its trap is armed."""

    name: str
    protocol: str
    api: int
    step: Step = "start"
    faults: tuple[tuple[Way, Strike], ...] = FAULTS


PHASES: Final = {
    "connect": [
        Phase("versions", "classic", 18, faults=MORE_FAULTS),
        Phase("metadata", "classic", 3),
        Phase("coordinator", "classic", 10),
    ],
    "join": [
        Phase("join", "classic", 11, faults=MORE_FAULTS),
        Phase("sync", "classic", 14),
        Phase("consumer-join", "consumer", 68, faults=MORE_FAULTS),
    ],
    "position": [
        Phase("offset-fetch", "classic", 9),
        Phase("list-offsets", "classic", 2),
        Phase("first-fetch", "classic", 1),
    ],
    "steady": [
        Phase("fetch", "classic", 1, "steady", faults=MORE_FAULTS),
        Phase("heartbeat", "classic", 12, "steady"),
        Phase("commit", "classic", 8, "steady", faults=MORE_FAULTS),
        Phase("consumer-heartbeat", "consumer", 68, "steady"),
        Phase("consumer-commit", "consumer", 8, "steady"),
    ],
    "leave": [Phase("leave", "classic", 13, "stop"), Phase("consumer-leave", "consumer", 68, "stop")],
}


@define(eq=False)
class Case:
    """One consumer and its fault."""

    phase: Phase
    way: Way
    strike: Strike
    proxy: Proxy
    group: Group
    topic: str
    consumer: Consumer = field(init=False)
    trap: Trap | None = None
    records: list[Record] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        options: dict[str, Any] = {"bootstrap_servers": self.proxy.bootstrap_servers, "client_id": self.name}
        if self.phase.api == 11:
            options |= {"max_poll_interval_ms": 1_000}  # the answer to a JoinGroup may take so long and 5 s more
        self.consumer = self.group.member(self.topic, **SHORT, **options)

    @property
    def name(self) -> str:
        """Also the client id."""
        return f"{self.phase.name}-{self.way}-{self.strike.name.lower()}"

    def _arm(self, step: Step) -> None:
        if step == self.phase.step:
            self.trap = self.proxy.line(self.name).set_trap(self.phase.api, self.way, self.strike)

    async def begin(self) -> None:
        """Start and read what is there; arm what is to strike from now on."""
        self._arm("start")
        await self.consumer.start()
        await self._read(RECORDS)
        self._arm("steady")
        await self.consumer.commit()
        if self.phase.step == "steady" and self.trap is not None:
            await self.trap.sprung.wait()

    async def go_on(self) -> None:
        """Read what came since, commit, leave: in time, whatever happens to the leave request."""
        await self._read(2 * RECORDS)
        await self.consumer.commit()
        self._arm("stop")
        before = time.monotonic()
        await self.consumer.stop(STOP_MS)
        assert time.monotonic() - before < STOP_MS / 1000 + 10, f"{self.name}: stop() took longer than its timeout"
        assert self.trap is not None
        assert self.trap.sprung.is_set(), f"{self.name}: nothing happened"

    async def _read(self, count: int) -> None:
        while len(self.records) < count:
            self.records += flat(await self.consumer.getmany(timeout_ms=LONGEST * 1000))


async def _all(what: Callable[[Case], Any], cases: list[Case]) -> None:
    """Run one step of every case at the same time; name those that fail."""

    async def step(case: Case) -> str | None:
        try:
            async with asyncio.timeout(LONGEST):
                await what(case)
        except Exception as error:  # noqa: BLE001,RUF100  # told with the name of the case
            return f"{case.name}: {error!r}; {case.consumer.statistics()}"
        return None

    failed = [text for text in await asyncio.gather(*map(step, cases)) if text is not None]
    assert not failed, "\n".join(failed)


@pytest.fixture
async def proxy(kafka_cluster3: KafkaCluster) -> AsyncIterator[Proxy]:
    """The three brokers behind proxies."""
    async with proxied(kafka_cluster3) as found:
        yield found


@pytest.mark.parametrize("phases", PHASES.values(), ids=PHASES)
async def test_a_fault_of_the_network_costs_no_record(kafka_cluster3: KafkaCluster, proxy: Proxy, phases: list[Phase]) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, RECORDS)
    cases = [
        Case(phase, way, strike, proxy, new_group(kafka_cluster3, phase.protocol, session_ms=6_000), topic)
        for phase in phases
        for way, strike in phase.faults
    ]
    try:
        await _all(Case.begin, cases)
        await asyncio.to_thread(kafka_cluster3.produce, topic, RECORDS)
        await _all(Case.go_on, cases)
    finally:
        await asyncio.gather(*(case.consumer.stop(0) for case in cases))
    for case in cases:
        assert offsets(case.records) == {0: list(range(2 * RECORDS))}, case.name
    committed = await asyncio.gather(*(case.group.commits(topic) for case in cases))
    assert committed == [{0: 2 * RECORDS}] * len(cases)


LINES: Final[dict[str, dict[str, Any]]] = {
    "slow": {"latency": 0.05},
    "narrow": {"rate": 20_000.0},
    "pieces": {"piece": 3},
    "merged": {"gather": 0.05},
}


async def test_a_slow_line_and_frames_in_pieces_or_merged_cost_no_record(kafka_cluster3: KafkaCluster, proxy: Proxy) -> None:
    topic = new_topic(kafka_cluster3, 3)
    kafka_cluster3.produce(topic, 300, partitions=3)

    async def live(name: str, protocol: str) -> None:
        client_id = f"{name}-{protocol}"
        for setting, value in LINES[name].items():
            setattr(proxy.line(client_id), setting, value)
        group = new_group(kafka_cluster3, protocol)
        options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, "client_id": client_id}
        async with group.member(topic, **options) as consumer:
            records = await read(consumer, 300)
            await nothing_more(consumer)
        assert offsets(records) == {partition: list(range(100)) for partition in range(3)}, client_id
        assert await group.commits(topic, 3) == dict.fromkeys(range(3), 100), client_id

    await asyncio.gather(*(live(name, protocol) for name in LINES for protocol in PROTOCOLS))


async def test_a_flipped_bit_in_records_is_refetched_once_and_not_delivered(kafka_cluster3: KafkaCluster, proxy: Proxy) -> None:
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, RECORDS)
    trap = proxy.line("flipped").set_trap(1, "response", Strike.RECORD)
    async with make(kafka_cluster3, topic, bootstrap_servers=proxy.bootstrap_servers, client_id="flipped", **SHORT) as consumer:
        records = await read(consumer, RECORDS)
        assert trap.sprung.is_set()
        await nothing_more(consumer)
    assert [(record.offset, record.value) for record in records] == [(index, payload(index, 100)) for index in range(RECORDS)]


@both
async def test_connections_that_are_cut_again_and_again_cost_no_place_and_no_record(
    kafka_cluster3: KafkaCluster, proxy: Proxy, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 6)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    async with several(group, 3, topic, bootstrap_servers=proxy.bootstrap_servers) as members:
        await shared(members, 6)
        before = [list(member.journal.entries) for member in members]
        async with load(kafka_cluster3, topic, 6) as writing:
            for _ in range(4):
                await asyncio.sleep(0.5)  # load goes on between the cuts
                await until(lambda: proxy.connected >= 3)
                proxy.cut()
        await exactly(members, dict(writing.offsets))
        # 0.3 s if nothing else keeps the machine busy. A connection may be cut twice in a row, and a backoff is up to a second.
        assert longest_wait(members, writing) < 15
        assert [list(member.journal.entries) for member in members] == before
    assert await group.commits(topic, 6) == {partition: numbers[-1] + 1 for partition, numbers in writing.offsets.items()}


@both
async def test_a_black_hole_shorter_than_the_session_costs_no_place_and_no_record(
    kafka_cluster3: KafkaCluster, proxy: Proxy, protocol: str
) -> None:
    topic = new_topic(kafka_cluster3, 6)
    group = new_group(kafka_cluster3, protocol, session_ms=30_000)
    options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 1_000}
    async with several(group, 3, topic, **options) as members:
        await shared(members, 6)
        before = [list(member.journal.entries) for member in members]
        async with load(kafka_cluster3, topic, 6) as writing:
            proxy.everyone.black_hole()
            await asyncio.sleep(3)  # three times as long as a request waits
            proxy.cut()  # a network that comes back knows nothing of the connections
            proxy.everyone.heal()
        await exactly(members, dict(writing.offsets))
        assert longest_wait(members, writing) < 15
        assert [list(member.journal.entries) for member in members] == before
    assert await group.commits(topic, 6) == {partition: numbers[-1] + 1 for partition, numbers in writing.offsets.items()}


@pytest.mark.parametrize("protocol", [*apart("classic"), "consumer"])
async def test_connections_that_carry_nothing_any_more_are_all_found_by_one_request_that_times_out(
    kafka_cluster3: KafkaCluster, proxy: Proxy, protocol: str
) -> None:
    """Not one after the other, each by a request of its own: the member would be out of its group by then."""
    topic = new_topic(kafka_cluster3, 6)
    group = new_group(kafka_cluster3, protocol, session_ms=6_000)
    options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, "request_timeout_ms": 3_000}
    async with several(group, 3, topic, **options) as members:
        await shared(members, 6)

        def progress() -> list[tuple[float, int]]:
            beats = (member.consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"] for member in members)
            return [(heartbeats, len(member.records)) for heartbeats, member in zip(beats, members, strict=True)]

        async def goes_on() -> None:
            before = progress()
            await until(
                lambda: all(now[0] > then[0] + 2 and now[1] > then[1] for now, then in zip(progress(), before, strict=True))
            )

        async with load(kafka_cluster3, topic, 6) as writing:
            await goes_on()
            assigned = [list(member.journal.entries) for member in members]
            for _ in range(3):
                assert proxy.forget() >= 3
                await goes_on()
        await exactly(members, dict(writing.offsets))
        assert [list(member.journal.entries) for member in members] == assigned
        assert longest_wait(members, writing) < 10
    assert await group.commits(topic, 6) == {partition: numbers[-1] + 1 for partition, numbers in writing.offsets.items()}


@pytest.mark.parametrize("astray", ["another broker", "another cluster"])
async def test_a_connection_that_is_led_astray_is_refused_by_name_and_reads_nothing_there(
    kafka_cluster3: KafkaCluster, kafka44: KafkaCluster, proxy: Proxy, astray: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By a proxy or a load balancer with an old map (KIP-1242)."""
    topic = new_topic(kafka_cluster3, 6)
    kafka_cluster3.produce(topic, 300, partitions=6)
    one, two, _ = kafka_cluster3.listener(PROXIED).split(",")
    if astray == "another cluster":
        kafka44.create_topic(topic, 6)
        kafka44.produce(topic, 60, partitions=6)  # whose records must not be taken for those of the other one
    # A server that is not led astray: a consumer that has to ask the cluster anew goes on with the cluster that it finds.
    options: dict[str, Any] = {"bootstrap_servers": proxy.addresses[2], "reconnect_backoff_max_ms": 200}
    async with make(kafka_cluster3, topic, **options) as consumer:
        records = await read(consumer, 300)
        kafka_cluster3.produce(topic, 300, partitions=6)
        records += await read(consumer, 300)
        proxy.detours |= {one: two, two: one} if astray == "another broker" else {one: kafka44.bootstrap_servers}
        proxy.cut()
        await asyncio.to_thread(kafka_cluster3.produce, topic, 300, partitions=6)

        async def told() -> bool:
            nonlocal records
            records += flat(await consumer.getmany(timeout_ms=200))
            return "another broker than broker" in caplog.text  # whichever of them was asked first: the log repeats nothing

        await eventually(told)
        proxy.detours.clear()
        while len(records) < 900:
            records += flat(await consumer.getmany(timeout_ms=PATIENCE * 1000))
        await nothing_more(consumer)
    assert offsets(records) == {partition: list(range(150)) for partition in range(6)}
    assert {record.value for record in records} == {payload(index, 100) for index in range(300)}


@both
async def test_behind_a_black_hole_nothing_is_handed_out_once_the_session_is_over(
    kafka_cluster3: KafkaCluster, proxy: Proxy, protocol: str
) -> None:
    """Others may own the partitions by then: what was prefetched of them is theirs."""
    topic = new_topic(kafka_cluster3)
    kafka_cluster3.produce(topic, 5_000)
    group = new_group(kafka_cluster3, protocol, session_ms=2_000)
    options: dict[str, Any] = {"bootstrap_servers": proxy.bootstrap_servers, "client_id": "lost", "max_poll_records": 10}
    options |= {"request_timeout_ms": 1_500, "enable_auto_commit": False}
    async with group.member(topic, **options) as consumer, group.member(enable_auto_commit=False) as other:
        await read(consumer, 1)
        proxy.line("lost").black_hole()
        other.subscribe([topic])
        took_over = await read(other, 1)  # once the session of the first is over
        assert took_over[0].offset == 0
        assert await consumer.getmany(timeout_ms=500) == {}
        proxy.cut("lost")
        proxy.line("lost").heal()


async def test_a_start_that_is_cancelled_before_the_member_has_its_name_leaves_no_ghost(
    kafka_cluster3: KafkaCluster, proxy: Proxy
) -> None:
    """The coordinator that has given a name waits for its bearer, and so do all others in a rebalance (KIP-394)."""
    topic = new_topic(kafka_cluster3, 2)
    group = new_group(kafka_cluster3, "classic", session_ms=60_000)
    line, asked = proxy.line("ghost"), asyncio.Event()

    def hear(event: TraceEvent) -> None:
        if isinstance(event, RequestSent) and event.api == "JoinGroup":
            line.stalled.add("response")
            asked.set()

    async with reading(group, topic) as stays:
        await shared([stays], 2)
        ghost = group.member(topic, bootstrap_servers=proxy.bootstrap_servers, client_id="ghost", trace=hear)
        start = asyncio.create_task(ghost.start())
        await asked.wait()
        start.cancel()
        await asyncio.sleep(0.05)  # the answer comes when the consumer has begun to stop
        line.heal()
        with pytest.raises(asyncio.CancelledError):
            await start
        async with asyncio.timeout(PATIENCE), reading(group, topic) as comes:
            await shared([stays, comes], 2)
