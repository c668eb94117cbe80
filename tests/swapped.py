"""aiokafka's own tests of its consumer, run against this one.

``python -m tests.swapped PATH`` takes a clone of aiokafka (its packages hold no tests), in the version that is installed, and runs
its ``test_consumer.py`` and ``test_transactional_consumer.py`` on a real broker. Their names ``AIOKafkaConsumer``,
``TopicPartition`` and the like, and those of exceptions, are ours; their producer and the client that makes topics are aiokafka's.

Decides: what may fail. ``PRIVATE`` has the tests that look into aiokafka's private attributes or modules, and ``DIFFERENT`` those
whose difference is meant, with the reason, which ``kafka_async/application/MIGRATING.md`` has too. Anything else that fails, and
anything of these that passes, is an error.
"""

import argparse
import asyncio
import gc
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka.abc
import aiokafka.errors
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

import kafka_async
from kafka_async import errors

from .brokers import CURRENT, KafkaCluster

FILES: Final = ("_testutil.py", "test_consumer.py", "test_transactional_consumer.py")
PRIVATE: Final = frozenset(
    {
        "test_consumer_cleanup_unassigned_data_getmany",  # _fetcher._records
        "test_consumer_cleanup_unassigned_data_getone",  # _fetcher._records
        "test_consumer_compacted_topic",  # replaces a method of aiokafka.consumer.fetcher
        "test_consumer_compressed_returns_older_msgs",  # _client.send
        "test_consumer_invalid_crc_in_records",  # _client.send
        "test_consumer_position",  # _subscription.wait_for_assignment
        "test_consumer_propagates_commit_refresh_errors",  # _coordinator
        "test_consumer_propagates_coordinator_errors",  # _coordinator
        "test_consumer_propagates_heartbeat_errors",  # _coordinator
        "test_consumer_seek_backward",  # counts instances of a class of aiokafka.consumer.fetcher
        "test_consumer_seek_forward_getmany",  # the same
        "test_consumer_seek_forward_getone",  # the same
        "test_kafka_consumer_sets_coordinator_values",  # _coordinator
        "test_kip_345_disabled",  # _subscription.wait_for_assignment
        "test_kip_345_enabled",  # _subscription.wait_for_assignment
        "test_rebalance_listener_with_coroutines",  # _coordinator
    }
)
DIFFERENT: Final = {
    "test_consumer_arguments": "the text of a ValueError: ours names the option, the value and what is expected",
    "test_consumer_commit_validation": "(offset, metadata, epoch) may be committed, and so may a partition that is not assigned",
    "test_consumer_rebalance_on_new_topic": "a rebalance is carried out in the read calls, and this test makes none",
    "test_max_poll_interval_ms": "a rebalance is carried out in the read calls, and this test waits for one before it makes any",
}
_ROOT: Final = Path(__file__).parents[1]


class _Cluster:
    """What tests ask aiokafka's client about topics, answered by public methods."""

    def __init__(self, consumer: "AIOKafkaConsumer") -> None:
        self._consumer = consumer

    def topics(self) -> set[str]:
        return set(self._consumer.subscription())


class _Client:
    def __init__(self, consumer: "AIOKafkaConsumer") -> None:
        self._consumer = consumer
        self.cluster = _Cluster(consumer)

    async def force_metadata_update(self) -> None:
        await self._consumer.topics()


class AIOKafkaConsumer(kafka_async.KafkaConsumer[Any, Any]):
    """Our consumer under aiokafka's name, with those of its private attributes that have a public counterpart."""

    def __init__(self, *topics: str, **options: Any) -> None:
        if "KAFKA_ASYNC_SWAPPED_PROTOCOL" in os.environ:
            options.setdefault("group_protocol", os.environ["KAFKA_ASYNC_SWAPPED_PROTOCOL"])
        super().__init__(*topics, **options)
        self._client = _Client(self)
        self._fetcher = object()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def _closed(self) -> bool:
        return self.state is kafka_async.ConsumerState.CLOSED

    @property
    def _group_instance_id(self) -> str | None:
        return self.group_metadata().group_instance_id


_NAMES: Final[dict[str, Any]] = {
    "AIOKafkaConsumer": AIOKafkaConsumer,
    "ConsumerRebalanceListener": kafka_async.ConsumerRebalanceListener,
    "OffsetAndMetadata": kafka_async.OffsetAndMetadata,
    "OffsetAndTimestamp": kafka_async.OffsetAndTimestamp,
    "TopicPartition": kafka_async.TopicPartition,
}


def pytest_configure() -> None:
    """As this is a plugin of the run, the listeners that its helpers define are ours from the beginning."""
    aiokafka.ConsumerRebalanceListener = aiokafka.abc.ConsumerRebalanceListener = kafka_async.ConsumerRebalanceListener


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Put our names where aiokafka's were imported."""
    for module in {item.module for item in items}:
        for name, value in tuple(vars(module).items()):
            if name in _NAMES:
                setattr(module, name, _NAMES[name])
            elif isinstance(value, type) and value.__module__ == aiokafka.errors.__name__ and hasattr(errors, name):
                setattr(module, name, getattr(errors, name))


def _certificate(directory: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """Return the properties of a broker's listener ``TLS``, and the context of a client that trusts it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the only format of private keys that Java reads
    (directory / "broker.pem").write_bytes(pem + b"".join(each.bytes() for each in issued.cert_chain_pems))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / "broker.pem")}, context


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaCluster, ssl.SSLContext]]:
    """A broker as aiokafka's tests expect it: topics are made when they are named, with two partitions."""
    properties, context = _certificate(tmp_path_factory.mktemp("certificate"))
    properties |= {"num.partitions": "2", "auto.create.topics.enable": "true"}
    # Else a second member that starts right after the first one waits a second for its share, and the heartbeats of our brokers are
    # so frequent that its start does not wait that long.
    properties |= {"group.consumer.assignment.interval.ms": "0"}
    with KafkaCluster(CURRENT, properties=properties, listeners={"TLS": "SSL"}) as cluster:
        yield cluster, context


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop, kafka_server: tuple[KafkaCluster, ssl.SSLContext]
) -> None:
    """Set what aiokafka's own ``conftest.py`` sets."""
    cluster, context = kafka_server
    host, _, port = cluster.address(0).partition(":")
    wanted = request.cls
    wanted.loop, wanted.hosts, wanted.kafka_host, wanted.kafka_port = loop, [cluster.address(0)], host, int(port)
    wanted.kafka_ssl_port = int(cluster.listener("TLS").rpartition(":")[2])
    wanted.kafka_version = cluster.version
    wanted.create_ssl_context = lambda _: context


class _Outcomes:
    """Keeps how each test ended."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ended: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed or (report.when == "call" and name not in self._ended) or report.skipped:
            self._ended[name] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._ended))


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(_Outcomes(Path(os.environ["KAFKA_ASYNC_SWAPPED"])))


def judge(ended: dict[str, str]) -> list[str]:
    """Return what is wrong: failures that are in neither list, and names in the lists that did not fail."""
    failed = {name for name, outcome in ended.items() if outcome == "failed"}
    listed = PRIVATE | frozenset(DIFFERENT)
    return [f"{name} failed" for name in sorted(failed - listed)] + [f"{name} did not fail" for name in sorted(listed - failed)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.swapped", description="Run aiokafka's tests of its consumer against this one."
    )
    parser.add_argument("clone", type=Path, help="a clone of aiokafka, of the version that is installed")
    parser.add_argument(
        "--protocol", choices=("auto", "classic", "consumer"), default="auto", help="of the groups; default: %(default)s"
    )
    parser.add_argument("rest", nargs="*", help="options of pytest, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        theirs = place / "aiokafkas"
        theirs.mkdir()
        (theirs / "__init__.py").touch()
        for name in FILES:
            shutil.copy(options.clone / "tests" / name, theirs)
        (place / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nmarkers =\n    ssl\nfilterwarnings = ignore\n")
        environment = {"KAFKA_ASYNC_SWAPPED": str(place / "ended.json"), "KAFKA_ASYNC_SWAPPED_PROTOCOL": options.protocol}
        environment |= {"PYTHONPATH": str(_ROOT)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            __spec__.name,
            "-p",
            "no:cacheprovider",
            "--assert=plain",
            "--timeout=120",
            "-q",
        ]
        subprocess.run([*command, *options.rest], cwd=place, env=os.environ | environment, check=False)  # noqa: S603  # our command
        ended = json.loads((place / "ended.json").read_text())
    wrong = judge(ended)
    print(f"{len(ended)} tests, {sum(outcome == 'passed' for outcome in ended.values())} passed", *wrong, sep="\n")  # noqa: T201  # result
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
