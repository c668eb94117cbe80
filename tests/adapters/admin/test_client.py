import socket
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kafka_async.adapters.admin import Client
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from kafka_async.model import Node
from kafka_async.testing.simulation import HANG, KAFKA_2_8, Drop, FakeCluster
from kafka_async.wire import Api, FindCoordinatorRequest, OffsetFetchRequest
from kafka_async.wire.messages import OffsetFetchRequestGroup
from tests.application.support import settle, virtual

FIND = FindCoordinatorRequest(coordinator_keys=("g",))


def config(cluster: FakeCluster, **options: Any) -> ConsumerConfig:
    return ConsumerConfig.from_options({"bootstrap_servers": cluster.bootstrap_servers, **options})


def failing(*errors: Exception) -> Callable[[], Awaitable[int]]:
    """Return what raises the errors one after the other, and then returns how many there were."""
    left = list(errors)

    async def attempt() -> int:
        if left:
            raise left.pop(0)
        return len(errors)

    return attempt


@virtual
async def test_a_request_goes_to_the_broker_that_is_named() -> None:
    cluster = FakeCluster(size=3)

    async with Client.connect(config(cluster), cluster.network) as client:
        assert client.nodes == (0, 1, 2)
        await client.ask(FIND, 2)

    assert [entry.node_id for entry in cluster.asked(Api.FIND_COORDINATOR)] == [2]
    await settle(cluster)


@virtual
async def test_a_version_can_be_bounded() -> None:
    cluster = FakeCluster()
    message = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))

    async with Client.connect(config(cluster), cluster.network) as client:
        await client.ask(message, 0, highest_version=8)

    assert [entry.version for entry in cluster.asked(Api.OFFSET_FETCH)] == [8]


@virtual
async def test_what_a_broker_does_not_offer_is_an_error_at_once() -> None:
    cluster = FakeCluster(max_versions=KAFKA_2_8)
    two = FindCoordinatorRequest(coordinator_keys=("g", "h"))

    async with Client.connect(config(cluster), cluster.network) as client:
        with pytest.raises(UnsupportedVersionError, match="2 keys"):
            await client.ask(two)


@virtual
async def test_an_answer_that_does_not_come_ends_with_the_request_timeout() -> None:
    cluster = FakeCluster()
    cluster.control(Api.FIND_COORDINATOR, lambda *_: HANG)

    async with Client.connect(config(cluster, request_timeout_ms=3000), cluster.network) as client:
        began = anyio.current_time()
        with pytest.raises(KafkaTimeoutError):
            await client.ask(FIND)
        assert anyio.current_time() - began == pytest.approx(3, abs=0.2)
    await settle(cluster)


@virtual
async def test_a_broken_connection_is_an_error_and_the_next_request_makes_another() -> None:
    cluster = FakeCluster()
    cluster.control(Api.FIND_COORDINATOR, lambda *_: Drop())

    async with Client.connect(config(cluster), cluster.network) as client:
        with pytest.raises(KafkaConnectionError):
            await client.ask(FIND)
        assert (await client.persist(lambda: client.ask(FIND))).coordinators[0].node_id == 0


@virtual
async def test_no_broker_at_all_is_an_error_after_the_request_timeout() -> None:
    cluster = FakeCluster()
    cluster.stop(0)

    with pytest.raises(KafkaTimeoutError):
        async with Client.connect(config(cluster, request_timeout_ms=2000), cluster.network):
            pass
    assert anyio.current_time() == pytest.approx(2, abs=0.1)
    await settle(cluster)


@virtual
async def test_a_server_to_start_from_is_asked_under_its_canonical_names_if_so_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def addresses(host: str, port: int) -> list[Any]:
        return [(socket.AF_INET, address, port) for address in ("10.0.0.0", "10.0.0.1")]

    async def name(ip: str, port: int) -> str:
        return f"b{ip[-1]}"

    monkeypatch.setattr("kafka_async.network.transport.look_up_addresses", addresses)
    monkeypatch.setattr("kafka_async.network.transport.look_up_name", name)
    cluster = FakeCluster(size=2)
    lookup = {"bootstrap_servers": "alias:9092", "client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}

    async with Client.connect(config(cluster, **lookup), cluster.network, fail_fast=True) as client:  # knows no "alias"
        assert client.nodes == (0, 1)
    await settle(cluster)


@virtual
async def test_a_file_of_tls_that_cannot_be_used_is_an_error_about_its_option() -> None:
    options = {"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}

    with pytest.raises(ValueError, match=r"ssl_cafile='/nowhere/ca.pem': cannot read the file"):
        async with Client.connect(config(FakeCluster(), **options)):
            pass


@virtual
async def test_a_caller_who_does_not_wait_gets_the_reason_as_soon_as_each_server_was_tried() -> None:
    cluster = FakeCluster(size=2)
    cluster.stop(0)
    cluster.stop(1)

    with pytest.raises(NoBrokersAvailable, match="Unable to bootstrap from"):
        async with Client.connect(config(cluster, request_timeout_ms=2000), cluster.network, fail_fast=True):
            pass
    assert anyio.current_time() < 1
    await settle(cluster)


@virtual
async def test_a_caller_who_does_not_wait_is_served_by_the_one_server_that_can_be_reached() -> None:
    cluster = FakeCluster(size=2)
    cluster.stop(0)

    async with Client.connect(config(cluster), cluster.network, fail_fast=True) as client:
        assert (await client.persist(lambda: client.ask(FIND))).coordinators


@virtual
async def test_a_broker_that_another_one_names_can_be_asked() -> None:
    cluster = FakeCluster(size=2)
    cluster.stop(1)

    async with Client.connect(config(cluster, bootstrap_servers="b0:9092"), cluster.network) as client:
        assert client.nodes == (0,)
        cluster.start(1)
        client.learn(Node(1, "b1", 9092))
        await client.ask(FIND, 1)

    assert [entry.node_id for entry in cluster.asked(Api.FIND_COORDINATOR)] == [1]


@virtual
async def test_failures_that_may_pass_are_tried_again() -> None:
    cluster = FakeCluster()

    async with Client.connect(config(cluster), cluster.network) as client:
        assert await client.persist(failing(*[CoordinatorLoadInProgressError()] * 4)) == 4


@virtual
async def test_failures_that_do_not_pass_are_raised_at_once() -> None:
    cluster = FakeCluster()

    async with Client.connect(config(cluster), cluster.network) as client:
        began = anyio.current_time()
        with pytest.raises(GroupAuthorizationFailedError):
            await client.persist(failing(GroupAuthorizationFailedError()))
        assert anyio.current_time() == began


@virtual
async def test_trying_again_has_an_end() -> None:
    cluster = FakeCluster()

    async with Client.connect(config(cluster, default_api_timeout_ms=5000, retry_backoff_ms=0), cluster.network) as client:
        began = anyio.current_time()
        with pytest.raises(CoordinatorLoadInProgressError):
            await client.persist(failing(*[CoordinatorLoadInProgressError()] * 1000))
        assert 3 < anyio.current_time() - began <= 5


@virtual
async def test_an_error_of_the_caller_comes_out_as_it_is_and_leaves_no_connection() -> None:
    cluster = FakeCluster()

    async def work() -> None:
        async with Client.connect(config(cluster), cluster.network) as client:
            await client.ask(FIND)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    await settle(cluster)


@virtual
async def test_cancellation_leaves_no_connection() -> None:
    cluster = FakeCluster()
    cluster.control(Api.FIND_COORDINATOR, lambda *_: HANG)

    with anyio.move_on_after(1) as scope:
        async with Client.connect(config(cluster), cluster.network) as client:
            await client.ask(FIND)
    assert scope.cancelled_caught
    await settle(cluster)
