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


def test_a_bootstrap_server_is_replaced_by_the_hosts_that_it_stands_for_until_all_starts_again() -> None:
    servers = KnownServers()
    servers.set_bootstrap([BOOT, Node(-2, "other", 9092)])
    servers.start_again([ONE])
    before = servers.current
    assert servers.replace_bootstrap("nowhere", 9092, ["two"]) is None
    assert servers.current == before
    assert servers.replace_bootstrap("boot", 9092, ["one", "two", "two", "other", "three"]) == BOOT
    found = {-4: Node(-4, "two", 9092), -5: Node(-5, "three", 9092)}
    assert servers.current == {-2: Node(-2, "other", 9092), -3: Node(-3, "one", 9092)} | found, "each once, and no id is another's"
    assert servers.replace_bootstrap("boot", 9092, ["two"]) is None
    servers.set_named({1: ONE})
    servers.start_again(())
    assert servers.current == {-1: BOOT, -2: Node(-2, "other", 9092)}


def test_a_bootstrap_server_that_is_one_of_its_hosts_stays() -> None:
    servers = KnownServers()
    servers.set_bootstrap([BOOT])
    assert servers.replace_bootstrap("boot", 9092, ["boot", "two"]) is None
    assert servers.current == {-1: BOOT, -2: Node(-2, "two", 9092)}
