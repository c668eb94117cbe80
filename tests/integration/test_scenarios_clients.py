"""The same scenarios by other clients: aiokafka, confluent-kafka, kafka-python and Kafka's own tools find no difference between the
simulated cluster on TCP and a real broker.

CI runs each scenario with every client but Java's tools, whose processes take seconds to start, and one with these. The others run
with ``--apart`` (tests/README.md).
"""

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from kafka_async.testing import Cluster, RealCluster, ThreadedCluster
from tests.brokers import CURRENT, KafkaCluster

from .other_clients import CLIENTS, OtherClient
from .scenarios import Ownership
from .share import share_properties

pytestmark = [pytest.mark.brokers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of aiokafka

HOUR: Final = 3_600_000
Scenario = Callable[[Ownership, OtherClient], Any]
SCENARIOS: Final[dict[str, tuple[Scenario, frozenset[str]]]] = {}
"""Each with the clients that can do it."""
SELECTED: Final = frozenset(CLIENTS) - {"java"}


def by(*clients: str) -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario.__name__] = scenario, frozenset(clients or CLIENTS)
        return scenario

    return add


def written(p: Ownership) -> list[str]:
    return [(record.value or b"").decode() for record in p.cluster.records(p.t)]


def eventually(found: Callable[[], Any], wanted: Any) -> Any:
    """Return what is found once it is what was wanted, or at the end of patience: nobody tells when they are there."""
    end = time.monotonic() + 10
    while (value := found()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return value


@by()
def writing_and_reading_with_every_acks(p: Ownership, client: OtherClient) -> Any:
    p.filled()
    outcomes = [client.write(p.t, [f"{acks}-{number}" for number in range(3)], acks=acks) for acks in (0, 1, -1)]
    there = eventually(lambda: len(written(p)), 9)
    return outcomes, there, sorted(written(p)), sorted(client.read(p.t, p.g, 9)), p.committed()


@by("aiokafka", "confluent-kafka", "kafka-python")
def writing_without_answers_to_a_topic_that_refuses(p: Ownership, client: OtherClient) -> Any:
    """A broker can only close the connection; the next record is written all the same."""
    p.cluster.topic(p.t, max_message_bytes=1000)
    client.write(p.t, ["a"], acks=0)
    client.write(p.t, ["x" * 2000], acks=0)
    client.write(p.t, ["b"], acks=0)
    return eventually(lambda: len(written(p)), 2), written(p)


@by()
def reading_on_where_the_log_has_no_such_offset_any_more(p: Ownership, client: OtherClient) -> Any:
    """An error in a Fetch response, and then the reset."""
    p.filled("a", "b", "c")
    first = client.read(p.t, p.g, 3)
    p.cluster.produce_many(p.t, ["d", "e", "f"], partition=0)
    p.cluster.delete_before(p.tp(), 5)
    return first, client.read(p.t, p.g, 1), p.committed()


@by("aiokafka", "confluent-kafka", "kafka-python")
def transactions(p: Ownership, client: OtherClient) -> Any:
    p.filled()
    for number in range(4):
        client.transact(p.t, f"t-{p.run}", str(number), commit=number % 2 == 0)
    client.write(p.t, ["last"])
    eventually(lambda: len(written(p)), 3)  # the last marker is written after the answer
    there = p.cluster.end(p.tp()), written(p)
    return there, client.read(p.t, p.g, 3, committed=True), client.read(p.t, p.g + "-all", 5)


@by("aiokafka", "confluent-kafka", "kafka-python")
def timestamps(p: Ownership, client: OtherClient) -> Any:
    p.filled()
    now = round(time.time() * 1000)
    found = [client.write(p.t, ["v"], timestamp=now + ahead) for ahead in (-1000 * HOUR, 0, HOUR // 2, 2 * HOUR)]
    return found, len(written(p))


@by()
def topics_that_are_made_and_grow(p: Ownership, client: OtherClient) -> Any:
    names = (f"{p.t}.a_b", f"{p.t}_a.b", f"{p.t}.a_b")
    found = [client.create(name) for name in names]
    found += [client.create(f"{p.t}-small", segment_bytes="1"), client.create(f"{p.t}-unknown", no_such="1")]
    found += [client.grow(names[0], 3), client.grow(names[0], 2), client.grow(f"{p.t}-missing", 2)]
    return found, eventually(lambda: p.cluster.produce(names[0], value="v", partition=2)[1], 0)


@by("confluent-kafka", "kafka-python", "java")
def groups_that_are_deleted(p: Ownership, client: OtherClient) -> Any:
    p.filled("a")
    client.read(p.t, p.g, 1)
    there = p.g in client.groups(), p.committed()
    deleted = [client.delete_group(p.g), client.delete_group(p.g)]
    return there, [str(each).replace(p.g, "g") for each in deleted], p.g in client.groups(), p.committed()


@by("kafka-python", "java")
def offsets_that_are_deleted(p: Ownership, client: OtherClient) -> Any:
    p.filled("a")
    client.read(p.t, p.g, 1)
    there = p.committed()
    gone = str(client.forget(p.g, p.t)).replace(p.t, "t")
    return there, gone, p.committed(), client.read(p.t, p.g, 1)


@by("confluent-kafka", "java")
def the_latest_timestamp(p: Ownership, client: OtherClient) -> Any:
    p.filled()
    for stamp in (3000, 9000, 1000):
        p.cluster.produce(p.t, value="v", timestamp=1_600_000_000_000 + stamp, partition=0)
    return client.latest(p.t)


@by("confluent-kafka", "kafka-python")
def members_as_tools_describe_them(p: Ownership, client: OtherClient) -> Any:
    p.filled("a")
    reading = threading.Thread(target=client.read, args=(p.t, p.g, 2))
    reading.start()
    eventually(lambda: len(p.cluster.members(p.g)), 1)
    client_id, host = client.member(p.g)
    p.cluster.produce(p.t, value="b", partition=0)
    reading.join()
    return client_id, host


# --- both sides -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(real_brokers: None) -> Iterator[str]:
    properties = share_properties() | {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def _others_leave_sockets() -> Iterator[None]:
    """kafka-python leaves some to the garbage collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _pairs() -> Iterator[Any]:
    for name, (_, clients) in SCENARIOS.items():
        for client in sorted(clients):
            selected = client in SELECTED or name == "the_latest_timestamp"
            yield pytest.param(name, client, marks=() if selected else pytest.mark.apart, id=f"{name}-{client}")


def _run(name: str, client: str, bootstrap: str) -> Any:
    with RealCluster(bootstrap) as cluster:
        return SCENARIOS[name][0](Ownership(cluster), CLIENTS[client](bootstrap))


@pytest.mark.parametrize(("name", "client"), list(_pairs()))
def test_other_clients_find_no_difference(name: str, client: str, real: str) -> None:
    with ThreadedCluster(Cluster()) as served:
        simulated = _run(name, client, served.bootstrap)
    assert simulated == _run(name, client, real)
