"""The delegate on its way from the servers to start from to the cluster's brokers: whom it asks, and what the log says of that."""

import pytest

from kafka_async.errors import KafkaConnectionError
from kafka_async.model import Node
from kafka_async.network import Channel
from kafka_async.trace import ConnectionOpened, LoggingListener
from tests.network.peers import BOOT, BOOT_TWO, ONE, World, heartbeat, metadata, opens, shuts

REFUSED = KafkaConnectionError("refused")


def test_a_server_that_is_asked_under_other_names_has_its_attempt_end_without_a_failure() -> None:
    world = World(BOOT, BOOT_TWO)
    world.add(metadata(world.done))
    ((asked, _),) = opens(world.plan(0.0))
    asked_host, key = (BOOT if asked == -1 else BOOT_TWO).host, world.key(asked)
    world.delegate.replace_bootstrap(asked_host, 9092, ["canonical"], 0.1)
    plan = world.plan(0.1)
    assert shuts(plan) == [key]
    world.delegate.opened(key, 0.1)  # it was too late to cancel it
    ((other, _),) = opens(plan)
    assert other != asked
    world.fail_open(REFUSED, 0.2, other)
    world.plan(0.2)
    hosts = {state.node.host for state in world.delegate.connection_states()}
    assert hosts == {BOOT.host, BOOT_TWO.host, "canonical"} - {asked_host}
    assert world.outcomes == []
    world.delegate.disconnect_all(1.0)
    world.plan(2.0)
    hosts = {state.node.host for state in world.delegate.connection_states()}
    assert hosts == {BOOT.host, BOOT_TWO.host}, "what they stand for is looked up again"


def lines(world: World, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log says of all that was traced."""
    caplog.set_level("INFO", logger="kafka_async")
    listener = LoggingListener()
    for event in world.trace:
        listener(event)
    return [record.getMessage() for record in caplog.records]


def test_the_outage_of_a_server_to_start_from_ends_when_brokers_are_known(caplog: pytest.LogCaptureFixture) -> None:
    world = World(BOOT, BOOT_TWO)
    world.add(heartbeat(world.done, node_id=-1))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1, -1)
    world.connect(0.2, -2)
    world.delegate.set_nodes({1: ONE}, 0.5)
    world.plan(0.5)
    began, ended = lines(world, caplog)
    assert began.startswith("connection to boot:9092 (id -1) failed while connecting")
    assert ended == "no longer needed: the connection to boot:9092 (id -1), after 0.4 s and 1 failure"


def test_the_outage_of_a_broker_ends_when_it_starts_again_from_the_servers(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ONE)
    world.delegate.set_bootstrap([Node(-1, ONE.host, ONE.port)])
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1)
    world.delegate.disconnect_all(1.0)
    world.connect(2.0, -1)
    world.delegate.set_nodes({1: ONE}, 2.5)
    assert world.seen().state.may_send
    assert lines(world, caplog)[1:] == ["recovered: the connection to one:9092 (id 1), after 2.4 s and 1 failure"]


def test_the_outage_of_a_server_that_is_asked_again_under_its_name_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World(BOOT)
    for at in (0.0, 20.0, 40.0):
        world.add(heartbeat(world.done, node_id=-1), now=at)
        world.plan(at)
        world.fail_open(REFUSED, at + 0.1, -1)
        world.delegate.disconnect_all(at + 0.2)
    (began,) = [line for line in lines(world, caplog) if "boot:9092" in line]
    assert began.startswith("connection to boot:9092 (id -1) failed while connecting")


def test_a_connection_that_is_being_made_again_has_the_outage_of_its_former_name_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Node(-1, ONE.host, ONE.port), BOOT_TWO)
    world.add(heartbeat(world.done, node_id=-1))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1, -1)
    world.add(heartbeat(world.done, node_id=-1), now=1.0)
    assert opens(world.plan(1.0)) == [(-1, Channel.MAIN)]
    world.delegate.set_nodes({1: ONE}, 1.5)
    world.negotiate(2.0, -1)
    assert [event.node for event in world.trace if isinstance(event, ConnectionOpened)] == [str(ONE)]
    assert lines(world, caplog)[1:] == ["no longer needed: the connection to one:9092 (id -1), after 1.4 s and 1 failure"]


def test_a_consumer_that_stops_says_nothing_of_outages_that_go_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World(ONE)
    world.add(heartbeat(world.done))
    world.plan(0.0)
    world.fail_open(REFUSED, 0.1)
    world.delegate.close(1.0)
    (began,) = lines(world, caplog)
    assert "failed while connecting" in began
