"""Real Apache Kafka brokers for tests and benchmarks, run from Kafka's own Maven artifact in KRaft mode.

Decides: broker properties that suit tests, ports, when a broker counts as ready. Owns: the jar cache, the processes it starts and
their temporary directory. Must never: listen beyond 127.0.0.1, or signal a process that it did not start.

Every node is controller and broker at once (``process.roles=broker,controller``) and every node is a voter, so a cluster of three
lives on when one dies. Sources: KIP-595 and KIP-631 (KRaft), KIP-853 (``--initial-controllers``), KIP-848 (group settings),
``kafka.tools.StorageTool``.
"""

import atexit
import base64
import contextlib
import fcntl
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from attrs import define, field, frozen
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark what it re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from . import storage
from .cache import cache

CURRENT: Final = "4.4.0"
"""The newest Kafka that the tests run against."""
PREVIOUS: Final = "4.3.0"
"""The release before it."""
OLDER: Final = "3.9.2"
"""The last of the 3.x line: older API versions, and a broker that refuses KIP-848 groups with UNSUPPORTED_VERSION."""

START_TIMEOUT: Final = 90.0
"""Seconds until a broker that does not answer counts as failed; it takes 3 to 6 s on an idle machine."""
STOP_TIMEOUT: Final = 30.0
"""Seconds that a broker has for an orderly stop before it is killed."""
R = TypeVar("R")
_MOVING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError._TRANSPORT,  # librdkafka's own codes are called so
        KafkaError._TIMED_OUT,
    }
)
"""Codes of an outside client that a later attempt does not meet: what it asks for is moving."""

# kafka-tools: Java's VerifiableConsumer, for mixed groups. The artifacts bring no logging backend for slf4j; slf4j-simple writes to
# stderr, which becomes the log file.
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>kafka-async</groupId><artifactId>test-broker</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


class BrokerStartError(RuntimeError):
    """A broker ended or did not answer in time; the message carries the end of its log."""


def available() -> str | None:
    """Return why real brokers cannot run here, or ``None`` if they can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"a real broker needs {' and '.join(missing)} on the PATH" if missing else None


def required() -> bool:
    """Return whether a missing broker is a failure (``CI=true`` or ``KAFKA_ASYNC_REQUIRE_BROKERS=1``) and not a skip."""
    return os.environ.get("CI") == "true" or os.environ.get("KAFKA_ASYNC_REQUIRE_BROKERS") == "1"


def jars(version: str) -> Path:
    """Return the directory with the jars of Kafka ``version``, downloading them once (``KAFKA_ASYNC_CACHE`` names the cache).

    Raises ``BrokerStartError`` with Maven's output if it cannot. The directory appears in one rename under a lock, so a run that
    is interrupted or that runs beside another never leaves or sees half of it.
    """
    return maven_jars(version, _POM, version)


def maven_jars(name: str, pom: str, version: str) -> Path:
    """Return the directory of the cache, called ``name``, with the jars that ``pom`` depends on in ``version``. See ``jars``."""
    folder = cache()
    target = folder / f"{name}-{zlib.crc32(pom.encode()):08x}"  # another list of jars is another directory
    # One lock for all, since they share Maven's own repository, which is not made for several writers.
    with (folder / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                (Path(work) / "pom.xml").write_text(pom.format(version=version))
                command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
                done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)  # noqa: S603  # fixed words
                if done.returncode:
                    raise BrokerStartError(f"Maven cannot fetch the jars of {name}:\n{(done.stdout + done.stderr)[-4000:]}")
                (Path(work) / "libs").rename(target)
    return target


def class_archive(version: str) -> Path:
    """Return the archive of the classes that a broker of ``version`` loads, made once beside its jars.

    With it a broker starts in less than half of the time (Java's class data sharing). Java ignores an archive that another Java has
    made, so its name tells them apart. Raises ``BrokerStartError`` if the broker that it is made with does not start.
    """
    libs = jars(version)
    java = Path(shutil.which("java") or "java").resolve()
    target = libs.with_name(f"{libs.name}-{zlib.crc32(f'{java} {java.stat().st_mtime_ns}'.encode()):08x}.jsa")
    with (libs.parent / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            with (
                tempfile.TemporaryDirectory(dir=libs.parent) as work,
                KafkaCluster(version, archive_to=Path(work) / "jsa") as cluster,
            ):
                cluster.produce(cluster.create_topic("classes"), 1)
                cluster.stop(0)  # it writes the archive as it ends
                (Path(work) / "jsa").rename(target)
    return target


def payload(index: int, size: int) -> bytes:
    """Return the value that ``KafkaCluster.produce`` writes by default: the index, then dots up to ``size`` bytes."""
    return b"%d" % index + b"." * (size - len(str(index)))


def _kafka_uuid() -> str:
    """Return a random id as Kafka writes it. A leading dash would look like an option to StorageTool."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


FIRST_PORT: Final = 20_000
"""All are below the ephemeral range of Linux, 32768 and up."""
PORTS_OF_A_BLOCK: Final = 100
BLOCKS: Final = 120
_given_out: Final[set[int]] = set()
"""Ports that this process gave to clusters. One that is stopped, or rests, comes back to its own."""
_blocks: Final[dict[int, Any]] = {}
"""The blocks of ports that this process has, each with the file whose lock keeps others away."""


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range, each once in a process, and none that another process of these tests may take.

    A port inside that range may be taken as the local end of someone's connection while its broker is down, and a client that keeps
    connecting to it may even connect to itself; then the broker cannot come back.
    """
    found: list[int] = []
    while True:
        ports = [port for block in _blocks for port in _ports_of(block) if port not in _given_out]
        for port in random.sample(ports, len(ports)):
            if len(found) == count:
                return found
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            _given_out.add(port)  # or taken by somebody else
        if len(found) == count:
            return found
        _take_block()


def _ports_of(block: int) -> range:
    return range(FIRST_PORT + block * PORTS_OF_A_BLOCK, FIRST_PORT + (block + 1) * PORTS_OF_A_BLOCK)


def _take_block() -> None:
    """Take another block of ports, until this process ends: several runs, and the workers of one, share the machine."""
    folder = Path(tempfile.gettempdir()) / f"kafka-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for block in range(BLOCKS):
        if block not in _blocks:
            file = (folder / str(block)).open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
            else:
                _blocks[block] = file
                return
    raise BrokerStartError(f"no free ports from {FIRST_PORT} on: all {BLOCKS} blocks are taken by other runs of the tests")


@define(eq=False)
class _Node:
    """One broker's fixed identity and, while it runs, its process."""

    id: int
    port: int
    controller_port: int
    directory: Path
    listener_ports: dict[str, int]
    advertised_ports: dict[str, int] = field(factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    guard: "subprocess.Popen[bytes] | None" = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    def spawn(self, command: Sequence[str]) -> None:
        """Start the broker in a session of its own, so that Ctrl-C reaches only the tests, which then end it."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(  # noqa: S603  # our own command line
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        # The guard ends the broker when this process dies without a chance to do so: its end of the pipe closes, whatever happens.
        script = 'read -r _ || { kill -9 "$1"; rm -rf "$2"; }'
        self.guard = subprocess.Popen(  # noqa: S603  # fixed words and a pid
            ["/bin/sh", "-c", script, "guard", str(self.process.pid), str(self.directory.parent)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def signal(self, number: int) -> None:
        if self.process is not None and self.running:
            self.process.send_signal(number)

    def condition(self) -> str:
        """Return what its process is doing, and the end of what it wrote."""
        if self.process is None:
            return f"broker {self.id}: not running"
        status = Path(f"/proc/{self.process.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        doing = ", ".join(" ".join(line.split()) for line in lines if line.startswith(("State", "VmRSS", "Threads")))
        wrote = self.log.read_bytes()[-2000:].decode(errors="replace") if self.log.exists() else ""
        return f"broker {self.id}: pid {self.process.pid}, exit status {self.process.poll()}, {doing}\n{wrote}"

    def reap(self, timeout: float) -> None:
        """Wait for the end of the process, killing it after ``timeout`` seconds, and dismiss the guard."""
        if self.process is None:
            return
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        if self.guard is not None:
            with contextlib.suppress(BrokenPipeError):
                self.guard.communicate(b"\n")
            self.guard = None


@frozen(kw_only=True)
class Produced:
    """What ``KafkaCluster.produce`` wrote: acknowledged offsets per partition, in order."""

    offsets: dict[int, list[int]]

    @property
    def count(self) -> int:
        """Records written."""
        return sum(map(len, self.offsets.values()))


_LIGHT: Final = {
    # Java's threads look for work several times a second, and fewer of them cost less: a sixth of what idle brokers do.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "group.coordinator.threads": "1",
    "background.threads": "2",
}
"""Properties of brokers that start quickly and serve little."""


def _properties(node: _Node, nodes: Sequence[_Node], protocols: Mapping[str, str], extra: Mapping[str, str]) -> str:
    replicas = str(min(3, len(nodes)))
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | dict(protocols)
    ports = {"PLAINTEXT": node.port, **node.listener_ports}
    addresses, advertised = (
        [f"{name}://127.0.0.1:{port}" for name, port in named.items()] for named in (ports, ports | node.advertised_ports)
    )
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{node.controller_port}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{n.controller_port}" for n in nodes),
        "log.dirs": str(node.directory / "data"),
        "num.partitions": "1",
        "default.replication.factor": replicas,
        # The partitions of a killed broker move, and it may register again, only after this; 9 s by default. A lone broker has
        # nobody to give them to: there it would only take a broker that a busy machine held up for dead.
        "broker.session.timeout.ms": "3000" if len(nodes) > 1 else "9000",
        "broker.heartbeat.interval.ms": "500",
        # A record twice a second that says nothing, written, replicated and read by each broker: a fifth of what idle brokers do.
        "metadata.max.idle.interval.ms": "0",
        # Few partitions for the internal topics: each costs files and start-up time.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),  # default 128 MiB, a third of our heap
        # What a disk of a few gigabytes has room for: two index files of 10 MiB for each partition are mostly holes, but not every
        # file system has those; and what is deleted stays for a minute.
        "log.index.size.max.bytes": str(256 << 10),
        "log.segment.delete.delay.ms": "1000",
        # A record is as old as a test says, and stays: every five minutes a broker would delete those of more than a week ago.
        "log.retention.ms": "-1",
        # Groups that settle at once and limits that let a test ask for short sessions.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.session.timeout.ms": "1000",
    }
    extra = {name: value.replace("{broker}", str(node.id)) for name, value in extra.items()}
    return "".join(f"{name}={value}\n" for name, value in (properties | extra).items())


class KafkaCluster:
    """A Kafka cluster of this process, as a context manager. Brokers are numbered from 0, which is also their ``node.id``.

    ``version``: Kafka's version. ``brokers``: how many. ``properties``: broker properties over those for tests, with ``{broker}``
    for a broker's number. ``features``: feature levels to format with, such as ``{"group.version": 0}``. ``heap_mb``: Java heap of
    each broker. ``listeners``: further listeners by name, each with its security protocol, such as ``{"TLS": "SSL"}``. ``scram``:
    credentials to format with, as ``StorageTool`` takes them. ``plugins``: a directory with Java classes that the brokers can load.
    ``java_options``: further options of the brokers' virtual machines. ``quick_start``: compile their code lightly and load it from
    an archive; they start in a quarter of the time and never get as fast as they can. ``archive_to``: make such an archive, of what
    the broker has loaded when it stops. ``proxied``: those of ``listeners`` that the brokers advertise at other ports than they
    listen at, for ``tests.faults.proxy`` to open.

    Ports and data stay over ``stop`` and ``start``. Methods block. Everything ends with the ``with`` block, at interpreter exit, or
    when this process is killed, whichever is first.
    """

    def __init__(
        self,
        version: str = CURRENT,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        heap_mb: int = 384,
        listeners: Mapping[str, str] | None = None,
        scram: Sequence[str] = (),
        plugins: Path | None = None,
        java_options: Sequence[str] = (),
        quick_start: bool = True,
        proxied: Sequence[str] = (),
        archive_to: Path | None = None,
    ) -> None:
        self.version = version
        self._extra = dict(properties or {})
        self._features = dict(features or {})
        self._heap_mb = heap_mb
        self._listeners = dict(listeners or {})
        self._scram = tuple(scram)
        self._plugins = plugins
        self._java_options = tuple(java_options)
        self._quick_start = quick_start
        self._proxied = tuple(proxied)
        self._archive_to = archive_to
        self._archive: Path | None = None
        self._disturbed = False
        self._directory: Path | None = None
        self._nodes: list[_Node] = []
        self._brokers = brokers
        self._clients = contextlib.ExitStack()
        self._admin: AdminClient | None = None
        self._replaced: list[AdminClient] = []
        self._admin_lock = threading.Lock()

    def __enter__(self) -> Self:
        if reason := available():
            raise BrokerStartError(reason)
        libs = jars(self.version)
        self._archive = class_archive(self.version) if self._quick_start and self._archive_to is None else None
        self._directory = Path(tempfile.mkdtemp(prefix=f"kafka-{self.version}-"))
        atexit.register(self.close)
        try:
            self._prepare(libs)
            for node in self._nodes:
                self._spawn(node)
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the brokers and delete their data. Killing is enough: nothing of theirs is kept."""
        atexit.unregister(self.close)
        self._drop_admin()
        for node in self._nodes:
            node.signal(signal.SIGKILL)
        for node in self._nodes:
            node.reap(STOP_TIMEOUT)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # ---- where it is

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of all brokers, running or not, separated by commas."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._nodes)

    def address(self, broker: int) -> str:
        """``host:port`` of one broker."""
        return f"127.0.0.1:{self._nodes[broker].port}"

    def controller(self, broker: int) -> str:
        """``host:port`` at which a broker is a KRaft controller."""
        return f"127.0.0.1:{self._nodes[broker].controller_port}"

    def listener(self, name: str) -> str:
        """``host:port`` of all brokers on one of the further ``listeners``, separated by commas."""
        return ",".join(f"127.0.0.1:{node.listener_ports[name]}" for node in self._nodes)

    def advertised(self, name: str) -> list[str]:
        """``host:port`` that each broker advertises for one of the ``proxied`` listeners."""
        return [f"127.0.0.1:{node.advertised_ports[name]}" for node in self._nodes]

    def pid(self, broker: int) -> int | None:
        """Process id of a running broker."""
        process = self._nodes[broker].process
        return process.pid if process is not None else None

    def log(self, broker: int = 0) -> str:
        """What a broker has logged so far."""
        return self._nodes[broker].log.read_text(errors="replace")

    # ---- life of a broker

    def start(self, broker: int, *, wait: bool = True) -> None:
        """Start a stopped broker on its old port and data; ``wait`` until it serves. Raises ``BrokerStartError``."""
        node = self._nodes[broker]
        if node.running:
            raise ValueError(f"broker {broker} is running")
        node.reap(0)
        self._spawn(node)
        if wait:
            self.wait_ready(broker)

    def stop(self, broker: int) -> None:
        """Stop a broker in an orderly way (SIGTERM): it hands its leaderships over first."""
        self._disturbed = True
        node = self._nodes[broker]
        node.signal(signal.SIGCONT)  # a stopped process does not see SIGTERM
        node.signal(signal.SIGTERM)
        node.reap(STOP_TIMEOUT)

    def kill(self, broker: int) -> None:
        """Kill a broker (SIGKILL)."""
        self._disturbed = True
        self._nodes[broker].signal(signal.SIGKILL)
        self._nodes[broker].reap(STOP_TIMEOUT)

    def restart(self, broker: int) -> None:
        """``stop`` and ``start``."""
        self.stop(broker)
        self.start(broker)

    def pause(self, broker: int) -> None:
        """Freeze a broker (SIGSTOP): its connections stay open and silent."""
        self._disturbed = True
        self._nodes[broker].signal(signal.SIGSTOP)

    def unpause(self, broker: int) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        self._nodes[broker].signal(signal.SIGCONT)

    def rest(self) -> None:
        """Let no broker run until ``heal``; ports and data stay.

        A lone broker leaves in an orderly way, in a third of a second, and so may register again at once. Several cannot leave
        together, since those that remain are no quorum.
        """
        if not any(node.running for node in self._nodes):
            return
        self._drop_admin()
        if len(self._nodes) == 1:
            self.stop(0)
            return
        for node in self._nodes:
            node.signal(signal.SIGKILL)
        for node in self._nodes:
            self.kill(node.id)

    def heal(self) -> None:
        """Bring every broker back: unpause the frozen, start the dead, wait for all. Does nothing if nothing was done to any."""
        if not self._disturbed and all(node.running for node in self._nodes):
            return
        for node in self._nodes:
            node.signal(signal.SIGCONT)
            if not node.running:
                self.start(node.id, wait=False)
        self.wait_ready()
        self._disturbed = False
        if len(self._nodes) > 1:
            self.spread_leaders()

    def spread_leaders(self) -> None:
        """Give leadership back to the brokers that had it first, as far as they are in sync: after a rest one leads everything."""
        with contextlib.suppress(KafkaException):  # partitions that have their leader are errors of their own
            self.admin.elect_leaders(ElectionType.PREFERRED, None).result()

    def wait_ready(self, *brokers: int) -> None:
        """Wait until ``brokers`` (all by default) serve and know each other. Raises ``BrokerStartError`` with the log's end."""
        nodes = [self._nodes[i] for i in brokers] or self._nodes
        deadline = time.monotonic() + START_TIMEOUT
        for node in nodes:
            while not self._accepts(node):
                self._check(node, deadline)
        ids = {node.id for node in nodes}
        for node in nodes:
            self._wait_metadata(node, lambda metadata: ids <= metadata.brokers.keys(), deadline)

    # ---- topics and settings

    @property
    def admin(self) -> AdminClient:
        """confluent-kafka's admin client, for what has no method here."""
        with self._admin_lock:
            if self._admin is None:
                self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return self._admin

    def _replace_admin(self) -> None:
        """Ask with a new client from now on. The old one is kept: if it went, what other threads ask it would fail."""
        with self._admin_lock:
            self._replaced += [self._admin] if self._admin is not None else []
            self._admin = None

    def _drop_admin(self) -> None:
        with self._admin_lock:
            self._replaced.clear()
            self._admin = None

    def conditions(self) -> list[str]:
        """Return what each broker's process is doing, and the end of what it wrote."""
        return [node.condition() for node in self._nodes]

    def create_topic(
        self, name: str, partitions: int = 1, *, replicas: int | None = None, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and wait until every running broker knows a leader for each partition. Returns ``name``.

        Waits for brokers that have come back and are still fenced: until one is not, there is nobody to put a partition on.
        """
        topic = NewTopic(name, partitions, replicas or min(3, self._brokers), config=dict(config or {}))
        deadline = time.monotonic() + START_TIMEOUT
        unanswered = False
        while True:
            try:
                self.admin.create_topics([topic])[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if unanswered and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                if code not in (KafkaError.INVALID_REPLICATION_FACTOR, *_MOVING) or time.monotonic() > deadline:
                    raise
                if code in _MOVING:  # the client may wait for good for a controller that was there before brokers came back
                    unanswered = True
                    self._replace_admin()
                time.sleep(0.05)
            else:
                break
        self._wait_topic(name, lambda metadata: metadata is not None and _has_leaders(metadata, partitions))
        return name

    def delete_topics(self, *names: str) -> None:
        """Delete topics and wait until every running broker has forgotten them."""
        for result in self.admin.delete_topics(list(names)).values():
            result.result()
        for name in names:
            self._wait_topic(name, lambda metadata: metadata is None)

    def clear(self) -> None:
        """Delete every topic but the brokers' own; they are gone soon. Each costs its leader time whenever a follower asks."""
        with contextlib.suppress(KafkaException):  # brokers that are busy with worse keep what they have
            names = [name for name in self.admin.list_topics(timeout=10).topics if not name.startswith("__")]
            for result in self.admin.delete_topics(names).values() if names else ():
                result.result()

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        self.admin.create_partitions([NewPartitions(name, total)])[name].result()
        self._wait_topic(name, lambda metadata: metadata is not None and _has_leaders(metadata, total))

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Move partitions to the given brokers and wait until they lead them there. Raises ``RuntimeError`` if it is refused."""
        from .moving import move  # benchmarks do without the package that it writes requests with

        deadline = time.monotonic() + START_TIMEOUT
        for node in itertools.cycle(self._nodes):  # one that is down or frozen does not answer
            try:
                refused = move(self.address(node.id), topic, replicas)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                break
        if refused:
            raise RuntimeError(f"the partitions of {topic} cannot be moved, with the error codes {refused}")
        wanted = {partition: set(there) for partition, there in replicas.items()}
        self._wait_topic(topic, lambda metadata: metadata is not None and _lives_on(metadata, wanted))

    def alter_config(self, kind: Literal["topic", "group", "broker"], name: str, config: Mapping[str, str]) -> None:
        """Set dynamic settings of a topic, a group (KIP-848) or a broker (its number as text)."""
        entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
        types = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "broker": ResourceType.BROKER}
        resource = ConfigResource(types[kind], name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result()

    def leader(self, topic: str, partition: int = 0) -> int:
        """Number of the broker that leads a partition."""
        return int(self._patiently(lambda: self.admin.list_topics(topic, timeout=10)).topics[topic].partitions[partition].leader)

    def coordinator(self, group: str) -> int:
        """Number of the broker that coordinates a group that has members or commits."""
        described = self._patiently(lambda: self.admin.describe_consumer_groups([group])[group].result())
        return int(described.coordinator.id)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Committed offsets of a group by topic and partition, as an independent client reads them.

        librdkafka 2.16 ends the process (signal 11) if the one that it asks is not the group's coordinator, or not yet: of a new
        cluster that is so for the first groups. A description is refused in order, so that comes first.
        """
        self.coordinator(group)
        asked = [ConsumerGroupTopicPartitions(group)]
        result = self._patiently(lambda: self.admin.list_consumer_group_offsets(asked)[group].result())
        return {(tp.topic, tp.partition): tp.offset for tp in result.topic_partitions}

    def in_sync(self, *topics: str) -> bool:
        """Whether every replica of ``topics`` (all by default) is in sync, so that a broker may fail and no record is lost."""
        try:
            found = self.admin.list_topics(timeout=5).topics
        except KafkaException:
            return False
        partitions = [part for name, topic in found.items() if not topics or name in topics for part in topic.partitions.values()]
        return all(partition.leader >= 0 and len(partition.isrs) == len(partition.replicas) for partition in partitions)

    # ---- records

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Offset after the last record of every partition of a topic, as the leaders report it to an independent client."""
        deadline = time.monotonic() + START_TIMEOUT
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent-kafka has no types for it
        while True:
            numbers = self._patiently(lambda: self.admin.list_topics(topic, timeout=10)).topics[topic].partitions
            found = self.admin.list_offsets({TopicPartition(topic, number): end for number in numbers})
            with contextlib.suppress(KafkaException):  # a leader that is new does not know the end yet (KIP-207)
                ends = {partition.partition: future.result().offset for partition, future in found.items()}
                if min(ends.values()) >= 0:
                    return ends
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the leaders of {topic} did not tell in {START_TIMEOUT:.0f} s where it ends")

    def produce(
        self,
        topic: str,
        count: int,
        size: int = 100,
        *,
        partitions: int | Sequence[int] = 1,
        codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none",
        keys: Callable[[int], bytes | None] | None = None,
        values: Callable[[int], bytes | None] | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamps: Callable[[int], int] | None = None,
        transaction: Literal["commit", "abort"] | None = None,
        start: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> Produced:
        """Write ``count`` records with indices from ``start``; return their offsets once all are acknowledged.

        ``size``: bytes of a value (see ``payload``) unless ``values`` makes them. ``partitions``: how many, or which; records go
        round them by index. ``keys``, ``values``, ``timestamps`` (milliseconds): called with the index. ``transaction``: write
        all in one and end it so. ``settings``: further settings of librdkafka. Raises
        ``KafkaException`` for the first record that failed, ``TimeoutError`` if one is neither acknowledged nor refused in 60 s.
        """
        where = range(partitions) if isinstance(partitions, int) else partitions
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "compression.codec": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "enable.idempotence": True,  # retries neither repeat nor reorder records, so offsets are what a test expects
            "socket.timeout.ms": 10_000,  # of 60 s: a broker that was frozen never answers some requests
            "log_level": 0,
        }
        if transaction is not None:
            config["transactional.id"] = f"test-{uuid.uuid4()}"
        producer = Producer(config | dict(settings or {}))
        offsets: dict[int, list[int]] = {partition: [] for partition in where}
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets[message.partition()].append(message.offset())

        if transaction is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for index in range(start, start + count):
            arguments: dict[str, Any] = {
                "value": values(index) if values else payload(index, size),
                "key": keys(index) if keys else None,
                "partition": where[index % len(where)],
                "headers": list(headers),
            }
            if timestamps is not None:
                arguments["timestamp"] = timestamps(index)
            _offer(producer, topic, arguments, delivered)
        _flush(producer, topic)
        if transaction == "commit":
            producer.commit_transaction(30)
        elif transaction == "abort":
            producer.abort_transaction(30)
        if failures:
            raise KafkaException(failures[0])
        return Produced(offsets=offsets)

    # ---- inside

    def _patiently(self, ask: Callable[[], R]) -> R:
        """Ask until the brokers answer: leaders and coordinators move between a question and the next, as a broker comes back."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                    raise
            self._replace_admin()  # one that was once answered by a coordinator may ask the same broker for good
            time.sleep(0.05)

    def _prepare(self, libs: Path) -> None:
        assert self._directory is not None
        ports = iter(free_ports((2 + len(self._listeners) + len(self._proxied)) * self._brokers))
        for i in range(self._brokers):
            directory = self._directory / str(i)
            directory.mkdir()
            own, controller = next(ports), next(ports)
            named = {name: next(ports) for name in self._listeners}
            self._nodes.append(_Node(i, own, controller, directory, named, {name: next(ports) for name in self._proxied}))
        self._classpath = f"{libs}/*" if self._plugins is None else f"{libs}/*:{self._plugins}"
        formatted = self._formatted(libs)
        extra = (_LIGHT if self._quick_start else {}) | self._extra
        cluster_id = _kafka_uuid()
        controllers = [node.controller_port for node in self._nodes]
        for node in self._nodes:
            (node.directory / "server.properties").write_text(_properties(node, self._nodes, self._listeners, extra))
            storage.lay_out(formatted, node.directory / "data", cluster_id=cluster_id, broker=node.id, ports=controllers)

    def _formatted(self, libs: Path) -> Path:
        """Return what StorageTool writes for such a cluster, made once beside its jars (``storage.py``)."""
        voters = storage.voters([storage.nominal_port(node.id) for node in self._nodes])
        options = ["--initial-controllers", voters]
        options += [f"--feature={name}={level}" for name, level in self._features.items()]
        options += [f"--add-scram={credential}" for credential in self._scram]
        target = libs.with_name(f"{libs.name}-storage-{zlib.crc32(' '.join(options).encode()):08x}")
        with (libs.parent / "storage.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=libs.parent) as work:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                node = _Node(0, storage.nominal_port(self._brokers), storage.nominal_port(0), Path(work), {})
                path = node.directory / "server.properties"
                path.write_text(_properties(node, [node], {}, {}))
                command = [*self._java("kafka.tools.StorageTool", "format", "-t", _kafka_uuid(), "-c", str(path)), *options]
                done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own command line
                if done.returncode:
                    raise BrokerStartError(f"the storage of brokers cannot be formatted:\n{(done.stdout + done.stderr)[-4000:]}")
                (node.directory / "data").rename(target)
        return target

    def _spawn(self, node: _Node) -> None:
        archiving = [f"-XX:ArchiveClassesAtExit={self._archive_to}"] if self._archive_to is not None else []
        java, *rest = self._java("kafka.Kafka", str(node.directory / "server.properties"))
        node.spawn([java, *archiving, *rest])

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = [
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",  # which is sampled 20 times a second, for nobody
            *(["-XX:TieredStopAtLevel=1"] if self._quick_start else []),
            *([f"-XX:SharedArchiveFile={self._archive}"] if self._archive is not None else []),
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            *self._java_options,
        ]
        return ["java", *options, "-cp", self._classpath, main, *arguments]

    @staticmethod
    def _log_end(node: _Node) -> str:
        return "\n".join(node.log.read_text(errors="replace").splitlines()[-40:])

    @staticmethod
    def _accepts(node: _Node) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", node.port), timeout=1):
            return True
        return False

    def _check(self, node: _Node, deadline: float) -> None:
        """Wait a moment, or raise if waiting is in vain."""
        if not node.running or time.monotonic() > deadline:
            why = "does not answer" if node.running else "ended"
            raise BrokerStartError(f"broker {node.id} of Kafka {self.version} {why}; the end of its log:\n{self._log_end(node)}")
        time.sleep(0.05)

    def _wait_topic(self, name: str, done: Callable[[Any], bool]) -> None:
        """Ask each running broker by itself: metadata reaches them one after the other."""
        deadline = time.monotonic() + START_TIMEOUT
        for node in self._running():
            self._wait_metadata(node, lambda metadata: done(metadata.topics.get(name)), deadline)

    def _wait_metadata(self, node: _Node, done: Callable[[Any], bool], deadline: float) -> None:
        """Ask for metadata until those of this very broker are as wanted. Raises ``BrokerStartError`` if they never are.

        librdkafka may settle on any broker that it has learned of, whichever it was given. Then what it says does not count, and a
        new client tries.
        """
        admin = None
        while True:
            admin = admin or AdminClient({"bootstrap.servers": self.address(node.id), "log_level": 0})
            try:
                metadata = admin.list_topics(timeout=10)
            except KafkaException as error:
                if error.args[0].code() not in _MOVING:
                    raise
            else:
                if metadata.orig_broker_id not in (node.id, -1):  # -1: the one it was given, before it knew its number
                    admin = None
                elif done(metadata):
                    return
            self._check(node, deadline)

    def _running(self) -> Iterator[_Node]:
        return (node for node in self._nodes if node.running)


def _has_leaders(metadata: Any, partitions: int) -> bool:
    return len(metadata.partitions) == partitions and all(p.leader >= 0 for p in metadata.partitions.values())


def _lives_on(metadata: Any, wanted: Mapping[int, set[int]]) -> bool:
    found = {number: partition for number, partition in metadata.partitions.items() if number in wanted}
    return all(set(found[number].replicas) == brokers and found[number].leader in brokers for number, brokers in wanted.items())


def _flush(producer: Producer, topic: str) -> None:
    if left := producer.flush(60):
        raise TimeoutError(f"{left} records for {topic} were neither acknowledged nor refused in 60 s")


def _offer(producer: Producer, topic: str, arguments: dict[str, Any], delivered: Callable[[Any, Any], None]) -> None:
    """Queue one record, waiting for room if the queue is full."""
    while True:
        try:
            producer.produce(topic, on_delivery=delivered, **arguments)
        except BufferError:
            producer.poll(1)
        else:
            producer.poll(0)
            return
