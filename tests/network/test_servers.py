"""``kafka_async.network.servers``: which servers requests may go to."""

from kafka_async.model import Node
from kafka_async.network.servers import KnownServers

BOOT, ONE, TWO = Node(-1, "boot", 9092), Node(1, "one", 9092), Node(2, "two", 9092)


def test_bootstrap_servers_serve_while_no_broker_is_named() -> None:
    servers = KnownServers()
    servers.set_bootstrap([BOOT])
    assert servers.current == {-1: BOOT}
    servers.set_named({1: ONE})
    assert servers.current == {1: ONE}
    servers.start_again(())
    assert servers.current == {-1: BOOT}


def test_the_last_brokers_serve_beside_the_bootstrap_servers_once_each() -> None:
    servers = KnownServers()
    servers.set_bootstrap([BOOT])
    servers.start_again([ONE, TWO, Node(3, "boot", 9092)])
    assert servers.current == {-1: BOOT, -2: Node(-2, "one", 9092), -3: Node(-3, "two", 9092)}
    servers.set_named({1: ONE})
    assert servers.current == {1: ONE}
    servers.start_again(())
    assert servers.current == {-1: BOOT}
