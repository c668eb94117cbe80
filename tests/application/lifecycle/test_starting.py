"""How a consumer starts: what it waits for, what it survives, and what it fails with."""

import logging
import re
import socket
from typing import Any

import anyio
import pytest

import kafka_async
from kafka_async import ConsumerState, KafkaConsumer, ShareConsumer
from kafka_async.errors import (
    ConsumerStoppedError,
    CoordinatorLoadInProgressError,
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NameResolutionError,
    NoBrokersAvailable,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kafka_async.testing.simulation import HANG, KAFKA_4_3, LOSE, Drop, FakeCluster
from kafka_async.testing.simulation.config_admin import BrokerSettings
from kafka_async.trace import ConnectionOpened, TraceEvent
from kafka_async.wire import Api

from ..support import cancelled_at, consumer_on, filled, numbers, read_values, settle, virtual, watched


@virtual
async def test_every_connection_begins_with_the_name_and_version_of_the_client() -> None:
    """KIP-511; the broker refuses characters that are not in its pattern."""
    cluster, tps = filled()
    async with consumer_on(cluster) as consumer:
        consumer.assign(tps)
        await read_values(consumer, 20)
    said = {
        (entry.request.client_software_name, entry.request.client_software_version) for entry in cluster.asked(Api.API_VERSIONS)
    }
    assert said == {("kafka-async-consumer", kafka_async.__version__)}
    assert all(re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?", word) for names in said for word in names)


@virtual
async def test_start_waits_for_the_assignment() -> None:
    cluster, tps = filled(partitions=3)
    consumer = consumer_on(cluster, "t")
    states = [consumer.state]
    assert consumer.assignment() == set()
    await consumer.start()
    states.append(consumer.state)
    assert consumer.assignment() == set(tps)
    assert consumer.subscription() == {"t"}
    await consumer.stop()
    states.append(consumer.state)
    assert states == [ConsumerState.NEW, ConsumerState.STEADY, ConsumerState.CLOSED]


@pytest.mark.parametrize("protocol", ["auto", "consumer", "classic"])
@virtual
async def test_a_pattern_that_is_subscribed_before_the_start_is_assigned_by_it(protocol: str) -> None:
    cluster, tps = filled(partitions=3)
    consumer = consumer_on(cluster, group_id="g", group_protocol=protocol)
    consumer.subscribe(pattern="^t$")
    async with consumer:
        assert consumer.assignment() == set(tps)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@virtual
async def test_start_of_a_second_member_waits_for_what_the_first_one_gives_up(protocol: str) -> None:
    cluster, _ = filled(partitions=4)
    async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol) as first, anyio.create_task_group() as tasks:

        async def read() -> None:
            while True:
                await first.getmany(timeout_ms=100)

        tasks.start_soon(read)
        async with consumer_on(cluster, "t", group_id="g", group_protocol=protocol) as second:
            assert len(second.assignment()) == 2
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("api", "highest"), [(Api.METADATA, 9), (Api.OFFSET_COMMIT, 8)])
@virtual
async def test_brokers_that_offer_the_consumer_protocol_without_what_it_needs_get_the_classic_one(api: Api, highest: int) -> None:
    cluster, tps = filled(max_versions={**KAFKA_4_3, api: highest})
    async with consumer_on(cluster, "t", group_id="g") as consumer:
        assert await read_values(consumer, 20) == numbers(20)
        await consumer.commit()
        assert await consumer.committed(tps[0]) == 20
    assert cluster.asked(Api.JOIN_GROUP)
    assert not cluster.asked(Api.CONSUMER_GROUP_HEARTBEAT)
    with pytest.raises(UnsupportedVersionError, match="group_protocol='consumer'") as caught:
        await consumer_on(cluster, "t", group_id="g", group_protocol="consumer").start()
    assert f"without {api.name} {highest + 1} and above" in str(caught.value.__cause__)


@virtual
async def test_start_fails_soon_if_no_server_answers() -> None:
    cluster = FakeCluster(size=2)
    cluster.stop(0)
    cluster.stop(1)
    consumer = consumer_on(cluster, "t")
    with pytest.raises(NoBrokersAvailable, match="b0:9092, b1:9092"):
        await consumer.start()
    assert anyio.current_time() < 1
    assert consumer.state is ConsumerState.NEW
    for tp in cluster.create_topic("t"):
        cluster.fill(tp, 20)
    cluster.start(0)
    await consumer.start()
    assert await read_values(consumer, 20) == numbers(20)
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await consumer.start()


@pytest.mark.parametrize(("timeout_ms", "ends_at"), [(0, 0.3), (3_000, 3.0), (10_000, None)])
@virtual
async def test_names_that_are_not_there_yet_are_tried_again_as_long_as_wished(timeout_ms: int, ends_at: float | None) -> None:
    cluster, _ = filled()

    async def connect(host: str, port: int, *, timeout: float, attempt: int) -> Any:
        if anyio.current_time() < 6:
            raise NameResolutionError(f"{host}:{port}: the name cannot be resolved: not known")
        return await cluster.network(host, port, timeout=timeout, attempt=attempt)

    options: Any = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer("t", transport_factory=connect, bootstrap_resolve_timeout_ms=timeout_ms, **options)
    if ends_at is None:
        async with consumer:
            assert await read_values(consumer, 20) == numbers(20)
        return
    with pytest.raises(NoBrokersAvailable, match="b0:9092: the name cannot be resolved") as caught:
        await consumer.start()
    assert isinstance(caught.value.__cause__, NameResolutionError)
    assert ends_at <= anyio.current_time() + 0.3 < ends_at + 1.5


@virtual
async def test_a_name_server_that_does_not_answer_is_asked_again_as_long_as_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(host: str, port: int) -> list[Any]:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", addresses)
    options: Any = {"bootstrap_servers": "b0:9092", "bootstrap_resolve_timeout_ms": 60_000, "default_api_timeout_ms": 600_000}
    with pytest.raises(NoBrokersAvailable, match="b0:9092: the name was not resolved within") as caught:
        await KafkaConsumer("t", **options).start()
    assert isinstance(caught.value.__cause__, NameResolutionError)
    assert 60 <= anyio.current_time() < 120


@virtual
async def test_canonical_names_are_taken_when_they_are_there_and_anew_when_all_brokers_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, (tp, *_) = filled()
    seen: list[TraceEvent] = []
    hosts: list[str] = []  # for which "alias" stands, and that can be reached

    async def addresses(host: str, port: int) -> list[Any]:
        if not hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, "10.0.0.1", port)]

    async def name(ip: str, port: int) -> str:
        return hosts[0]

    async def connect(host: str, port: int, *, timeout: float, attempt: int) -> Any:
        if not hosts:
            raise NameResolutionError(f"{host}:{port}: the name cannot be resolved: not known")
        if host not in ("alias", *hosts):
            raise KafkaConnectionError(f"{host}:{port}: Connection refused")
        return await cluster.network(hosts[0], port, timeout=timeout, attempt=attempt)

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", addresses)
    monkeypatch.setattr("kafka_async.network.transport.look_up_name", name)
    lookup: Any = "resolve_canonical_bootstrap_servers_only"
    options: Any = {"bootstrap_servers": "alias:9092", "client_dns_lookup": lookup, "bootstrap_resolve_timeout_ms": 60_000}
    consumer = KafkaConsumer("t", transport_factory=connect, auto_offset_reset="earliest", trace=seen.append, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.start)
        await anyio.sleep(5)
        hosts.append("b0")
    assert await read_values(consumer, 20) == numbers(20)
    cluster.brokers[0].listens("c0", 9092)
    hosts[:] = ["c0"]
    cluster.disconnect(0)
    cluster.fill(tp, 5)
    assert len(await read_values(consumer, 5, seconds=60)) == 5
    await consumer.stop()
    opened = {event.node.partition(":")[0] for event in seen if isinstance(event, ConnectionOpened)}
    assert opened == {"b0", "c0"}, "a login to the alias would be for another service"


@virtual
async def test_start_tries_every_bootstrap_server() -> None:
    cluster, _ = filled(size=3)
    cluster.stop(0)
    cluster.stop(1, "hang")
    async with consumer_on(cluster, "t") as consumer:
        assert anyio.current_time() < 5
        assert consumer.assignment()


@virtual
async def test_start_on_a_server_that_never_answers_ends_after_a_second_chance() -> None:
    cluster, _ = filled()
    cluster.control(Api.API_VERSIONS, lambda broker, request: HANG, keep=True)
    with pytest.raises(
        NoBrokersAvailable, match=r"from b0:9092: b0:9092 .* accepted the connection and sent nothing for 4.1 s; is it a Kafka port"
    ):
        await consumer_on(cluster, "t", request_timeout_ms=4000).start()
    assert 8 < anyio.current_time() < 9
    await settle(cluster)


@virtual
async def test_start_on_a_server_that_never_answers_ends_at_its_deadline() -> None:
    cluster, _ = filled()
    cluster.control(Api.API_VERSIONS, lambda broker, request: HANG, keep=True)
    with pytest.raises(KafkaTimeoutError, match=r"b0:9092 .*sent nothing"):
        await consumer_on(cluster, "t", request_timeout_ms=4000, default_api_timeout_ms=5000).start()
    with pytest.raises(KafkaTimeoutError, match=r"b0:9092 .* accepted the connection and has sent nothing yet"):
        await consumer_on(cluster, "t", request_timeout_ms=4000, default_api_timeout_ms=3000).start()
    assert 8 <= anyio.current_time() < 9
    await settle(cluster)


@virtual
@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.METADATA, Api.FIND_COORDINATOR, Api.CONSUMER_GROUP_HEARTBEAT])
async def test_start_gets_over_one_answer_that_never_comes(api: Api) -> None:
    cluster, tps = filled()
    cluster.control(api, lambda broker, request: HANG)
    async with consumer_on(cluster, "t", group_id="g", request_timeout_ms=4000) as consumer:
        for _ in range(5):
            await consumer.getmany(timeout_ms=1000)
        assert consumer.assignment() == set(tps)
        assert consumer.state is ConsumerState.STEADY
    assert anyio.current_time() < 10


@virtual
@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.METADATA])
async def test_start_gets_over_a_connection_that_is_cut_once(api: Api) -> None:
    cluster, tps = filled()
    cluster.control(api, lambda broker, request: Drop())
    async with consumer_on(cluster, "t") as consumer:
        assert consumer.assignment() == set(tps)
    assert anyio.current_time() < 1


@virtual
@pytest.mark.parametrize("instance", [None, "i"])
async def test_start_gets_over_a_join_whose_answer_is_lost(instance: str | None) -> None:
    """The coordinator knows the member already, and lets nobody join under an instance id that is in use."""
    cluster, tps = filled()
    cluster.control(Api.CONSUMER_GROUP_HEARTBEAT, lambda broker, request: LOSE)
    async with consumer_on(cluster, "t", group_id="g", group_protocol="consumer", group_instance_id=instance) as consumer:
        assert consumer.assignment() == set(tps)
    assert anyio.current_time() < 10


@virtual
async def test_start_fails_under_an_instance_id_that_another_member_has_and_costs_that_one_nothing() -> None:
    cluster, tps = filled(3)
    options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer", "group_instance_id": "i"}
    async with consumer_on(cluster, "t", **options) as first:
        with pytest.raises(UnreleasedInstanceIdError, match="'i'"):
            await consumer_on(cluster, "t", **options).start()
        assert first.assignment() == set(tps)
        assert await read_values(first, 3) == numbers(3)
    async with consumer_on(cluster, "t", **options) as second:
        assert second.assignment() == set(tps)


@virtual
@pytest.mark.parametrize(("api", "why"), [(Api.API_VERSIONS, "another security_protocol"), (Api.METADATA, "demand SASL")])
async def test_start_names_the_likely_cause_if_every_connection_is_cut(api: Api, why: str) -> None:
    cluster, _ = filled()
    cluster.control(api, lambda broker, request: Drop(), keep=True)
    with pytest.raises(NoBrokersAvailable, match=why):
        await consumer_on(cluster, "t").start()
    assert anyio.current_time() < 1
    await settle(cluster)


@virtual
async def test_connections_that_are_cut_later_raise_no_question_about_the_port(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = filled(3)
    async with consumer_on(cluster, "t") as consumer:
        assert await consumer.getmany(timeout_ms=1000)
        cluster.control(Api.API_VERSIONS, lambda broker, request: Drop(), keep=True)
        cluster.disconnect(0)
        await consumer.getmany(timeout_ms=5000)
    assert "closed the connection before it answered" in caplog.text
    assert "does the port" not in caplog.text


@virtual
async def test_start_without_topics_needs_only_a_broker() -> None:
    async with consumer_on(FakeCluster()) as consumer:
        assert consumer.assignment() == set()
        with pytest.raises(IllegalStateError):
            await consumer.start()


@virtual
async def test_start_fails_for_a_topic_that_does_not_exist_in_time() -> None:
    cluster = FakeCluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        await consumer_on(cluster, "missing", request_timeout_ms=3000).start()
    assert 2.5 <= anyio.current_time() < 4
    await settle(cluster)


@virtual
@pytest.mark.parametrize("kind", ["group", "share group"])
async def test_a_start_that_fails_names_a_topic_that_is_like_the_missing_one(kind: str) -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders", 1)
    given: Any = {"bootstrap_servers": cluster.bootstrap_servers, "request_timeout_ms": 3000, "allow_auto_create_topics": False}
    missing = ("nope", "ordres")
    consumer: KafkaConsumer[Any, Any] | ShareConsumer[Any, Any] = (
        KafkaConsumer(*missing, transport_factory=cluster.network, **given)
        if kind == "group"
        else ShareConsumer(*missing, group_id="g", transport_factory=cluster.network, **given)
    )
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: nope, ordres; did you mean 'orders'\?$"):
        await consumer.start()
    await settle(cluster)


@virtual
async def test_a_start_that_fails_does_not_name_a_missing_topic_that_is_there_by_now() -> None:
    cluster = FakeCluster()

    def made_meanwhile(broker: Any, request: Any) -> None:
        if request.topics is None and anyio.current_time() > 2:
            cluster.create_topic("ordres", 1)

    cluster.control(Api.METADATA, made_meanwhile, keep=True)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: ordres$"):
        await consumer_on(cluster, "ordres", request_timeout_ms=3000, allow_auto_create_topics=False).start()
    await settle(cluster)


@virtual
async def test_a_start_that_fails_does_not_wait_long_for_the_names_of_other_topics() -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders", 1)
    cluster.control(Api.METADATA, lambda broker, request: HANG if request.topics is None else None, keep=True)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: ordres$"):
        await consumer_on(cluster, "ordres", request_timeout_ms=3000, allow_auto_create_topics=False).start()
    assert 2.5 <= anyio.current_time() < 4
    await settle(cluster)


@virtual
async def test_start_waits_for_a_topic_that_is_created_meanwhile() -> None:
    cluster = FakeCluster()
    async with anyio.create_task_group() as tasks:

        async def create_later() -> None:
            await anyio.sleep(2)
            cluster.create_topic("late", 2)

        tasks.start_soon(create_later)
        async with consumer_on(cluster, "late") as consumer:
            assert len(consumer.assignment()) == 2
            assert anyio.current_time() < 4


@virtual
async def test_the_broker_may_create_the_topic() -> None:
    cluster = FakeCluster(broker_settings=BrokerSettings(auto_create=2))
    async with consumer_on(cluster, "new") as consumer:
        assert consumer.partitions_for_topic("new") == {0, 1}


@virtual
async def test_the_broker_may_not_create_the_topic_if_configured_so() -> None:
    cluster = FakeCluster(broker_settings=BrokerSettings(auto_create=2))
    with pytest.raises(UnknownTopicOrPartitionError):
        await consumer_on(cluster, "new", allow_auto_create_topics=False, request_timeout_ms=2000).start()


@virtual
async def test_start_fails_at_once_without_access_to_the_topic() -> None:
    cluster, _ = filled()
    cluster.topics["t"].error = TopicAuthorizationFailedError.errno
    with pytest.raises(TopicAuthorizationFailedError, match="'t'"):
        await consumer_on(cluster, "t").start()
    assert anyio.current_time() < 1


@virtual
async def test_start_fails_at_once_for_a_name_that_the_broker_calls_invalid() -> None:
    cluster, _ = filled()
    cluster.control(Api.METADATA, lambda broker, request: 17, keep=True)
    with pytest.raises(InvalidTopicError):
        await consumer_on(cluster, "t").start()


@virtual
async def test_start_may_be_cancelled_at_any_await() -> None:
    finished = False
    for place in range(1, 60):
        cluster, _ = filled(size=2)
        runtime, signal = watched()
        consumer = consumer_on(cluster, "t", runtime=runtime)
        finished = await cancelled_at(place, consumer.start()) is not None
        await consumer.stop()
        assert signal.waiting == 0
        await settle(cluster)
        if finished:
            break
        assert consumer.state is ConsumerState.CLOSED
    assert finished


@virtual
async def test_start_says_what_it_waits_for_if_another_member_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    cluster, _ = filled(partitions=2)
    options = {"group_id": "g", "group_protocol": "classic"}
    async with consumer_on(cluster, "t", **options) as idle:
        assert len(idle.assignment()) == 2
        await idle.getmany(timeout_ms=0)  # until then it would hold nobody up
        caplog.set_level("INFO", "kafka_async")
        began = anyio.current_time()
        async with consumer_on(cluster, "t", client_id="second", **options) as second:
            assert anyio.current_time() - began == pytest.approx(30, abs=1), "request_timeout_ms: reads go on waiting"
            assert second.assignment() == set()
            said = [entry.getMessage() for entry in caplog.records if "second" in entry.getMessage()]
            waits = [text for text in said if "still no assignment: the group waits for members" in text]
            assert len(waits) == 1
            assert [text for text in said if "started without an assignment" in text]


@pytest.mark.parametrize("seconds", [0.7, 3.0])
@pytest.mark.parametrize("kind", ["classic", "consumer", "assigned", "commits", "share"])
@virtual
async def test_a_coordinator_that_loads_for_a_second_at_first_is_no_fault(
    kind: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The first group of a new cluster has its topic created: brokers name a coordinator, which then loads what is empty."""
    cluster, tps = filled()

    def load(*_: object) -> int | None:
        return CoordinatorLoadInProgressError.errno if anyio.current_time() < seconds else None

    for api in (Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_FETCH, Api.OFFSET_COMMIT, Api.SHARE_GROUP_HEARTBEAT):
        cluster.control(api, load, keep=True)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "transport_factory": cluster.network}
    consumer: KafkaConsumer[Any, Any] | ShareConsumer[Any, Any]
    if kind == "share":
        consumer = ShareConsumer("t", group_id="g", **options)
    else:
        joins = kind in ("classic", "consumer")
        protocol: Any = kind if joins else "classic"
        consumer = KafkaConsumer(*(("t",) if joins else ()), group_id="g", group_protocol=protocol, **options)
        if not joins:
            consumer.assign(tps)
    async with consumer:
        if kind == "commits" and isinstance(consumer, KafkaConsumer):
            await consumer.commit({tps[0]: 1})
        await consumer.getmany(timeout_ms=8000)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert bool(warned) == (seconds > 1), warned
