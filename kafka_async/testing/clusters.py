"""The cluster that a user's test holds.

It offers what a test wants to do, and leaves to its brokers what a broker decides. It knows of a consumer only the requests that
arrived.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from math import inf
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypedDict

from attrs import define, field

from ..errors import BrokerResponseError, PolicyViolationError, for_code
from ..model import OffsetAndMetadata, TopicPartition
from ..trace import plural
from ..wire import Api
from .batches import CODECS, BatchSpec, RecordSpec
from .reading import WrittenRecord, records_in
from .serving import ClusterSockets
from .simulation import LOSE, FakeCluster, FakeNetwork, LoggedRequest
from .simulation.admin import colliding, is_topic_name
from .simulation.config_admin import BrokerSettings
from .simulation.groups.fellows import Fellow
from .simulation.kafka_settings import group_settings
from .simulation.traffic import SimulatedTraffic
from .simulation.versions import RELEASES
from .simulation.waking import Changes, SimulatedClock

Headers = Iterable[tuple[str, bytes | None]]
BATCH: Final = 100
"""Records of one batch of ``produce_many``."""
_PATIENCE: Final = 60.0
"""Seconds, by the event loop's clock, that ``assigned`` waits."""
_LOOK: Final = 1.0
"""Seconds after which to look again, since sessions end silently."""


class ClusterOptions(TypedDict):
    """The options with which a consumer finds the cluster."""

    bootstrap_servers: str
    transport_factory: FakeNetwork


@define(eq=False, init=False, repr=False)
class Cluster:
    """A Kafka cluster in the process, for tests: speaks Kafka's protocol, needs no broker, no Docker and no port.

    ``brokers``: how many, numbered from 0. ``kafka``: the release whose versions they speak, ``"4.4"``, ``"4.3"``, ``"3.9"``,
    ``"2.8"`` or ``"2.1"``. ``latency``: seconds from a request to its response. ``seed``: if given, each response takes a random
    time between 0 and twice the latency. The same seed gives the same times. So the order of responses differs from seed to seed,
    and a failure can be repeated with its seed.

    Nothing runs on its own: the brokers work inside the consumer's own reads, so no task, thread or socket can be left behind
    unless ``serve`` was called. Call ``close`` then, or use the cluster in a ``with`` or ``async with`` block.

    What is simulated is listed in ``kafka_async/testing/README.md``. A request for any other API raises ``NotSimulatedError``,
    which names it.
    """

    simulated: FakeCluster
    """The simulated brokers. Their methods are for tests of this package and may change."""
    _listener: ClusterSockets | None
    _transactions: int

    def __init__(
        self,
        brokers: int = 1,
        kafka: str = "4.4",
        *,
        latency: float = 0.001,
        seed: int | None = None,
        auto_create: int = 0,
        date: int | None = None,
        request_log: int = 50_000,
    ) -> None:
        """Make a cluster.

        ``auto_create``: partitions of a topic that a client's metadata request creates; 0: none is created. ``date``: milliseconds
        since the epoch at which the brokers' date begins; by default now, or 2023-11-14 22:13:20 UTC for a cluster that is made
        under virtual time. ``request_log``: how many requests ``requests`` remembers.
        """
        if kafka not in RELEASES:
            raise ValueError(f"kafka={kafka!r}: expected one of {', '.join(RELEASES)}")
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: expected at least 1")
        if request_log < 0:
            raise ValueError(f"request_log={request_log}: expected 0 or more requests")
        random = None if seed is None else Random(seed)  # noqa: S311 - repeatable on purpose
        self.simulated = FakeCluster(
            size=brokers,
            max_versions=RELEASES[kafka],
            latency=latency,
            broker_settings=BrokerSettings(auto_create),
            changes=Changes(SimulatedClock(date)),
            traffic=SimulatedTraffic(request_log),
        )
        self.simulated.network.random = random
        self._listener = None
        self._transactions = 0

    def __repr__(self) -> str:
        """Return a few words: pytest shows a cluster that a failed assertion names, and all its records would be no help."""
        brokers, topics = len(self.simulated.brokers), sorted(self.simulated.topics)
        named = ", ".join([*topics[:10], *(["..."] if topics[10:] else [])]) or "none"
        return f"<Cluster of {brokers} broker{plural(brokers)}; topics: {named}>"

    # --- topics and records ----------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int = 1, *, replicas: int | None = None, **config: object) -> list[TopicPartition]:
        """Create a topic, and return its partitions. Raises ``ValueError`` if it exists, and for arguments that Kafka refuses.

        ``replicas``: how many brokers have a copy of each partition; all by default. ``config``: Kafka's topic settings with ``_``
        for ``.``, such as ``cleanup_policy="compact"`` or ``retention_ms=60_000``. A setting that Kafka does not have, or a value
        that it would refuse, raises a ``ValueError`` that names it.
        """
        if name in self.simulated.topics:
            raise ValueError(f"topic {name!r}: it exists already")
        if not is_topic_name(name):
            raise ValueError(f"topic {name!r}: expected 1 to 249 letters, digits, '.', '_' and '-'")
        if (other := colliding(name, self.simulated.topics)) is not None:
            raise ValueError(f"topic {name!r}: it differs from {other!r} only in '.' and '_'")
        if partitions < 1:
            raise ValueError(f"topic {name!r}: partitions={partitions}: expected at least 1")
        brokers = len(self.simulated.brokers)
        if replicas is not None and not 1 <= replicas <= brokers:
            raise ValueError(f"topic {name!r}: replicas={replicas}: expected 1 to {brokers}, the number of brokers")
        return self.simulated.create_topic(name, partitions, replicas=replicas, config=config)

    def group(self, name: str, **config: object) -> None:
        """Set a group's own configuration, as ``kafka-configs --entity-type groups`` does, with ``_`` for ``.``.

        ``share_auto_offset_reset="earliest"`` makes a share group begin at the first record, ``consumer_session_timeout_ms=10_000``
        ends the sessions of a consumer group sooner. Raises ``ValueError`` for a setting that Kafka does not have or would refuse.
        """
        own = self.simulated.groups.own
        own[name] = group_settings(own.get(name, {}) | group_settings(config))

    def produce(
        self,
        topic: str,
        *,
        key: bytes | str | None = None,
        value: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        compression: str = "none",
    ) -> tuple[TopicPartition, int]:
        """Append one record; return its partition and offset.

        ``partition``: ``None`` for the one that Java's producer would choose for the key, or, without a key, for each partition
        in turn. ``timestamp``: milliseconds; ``None`` for a second after the record before. Raises ``ValueError`` for a topic
        or partition that does not exist, and the broker's error for a record that the topic's settings do not allow.
        """
        if compression not in CODECS:
            raise ValueError(f"compression={compression!r}: expected one of {', '.join(CODECS)}")
        tp = self._partition(topic, as_bytes(key), partition)
        part = self.simulated.partition(tp)
        record = made_record(key, value, headers)
        stamp = part.log.next_timestamp(self.simulated.clock.date()) if timestamp is None else timestamp
        spec = BatchSpec(
            records=(record,),
            base_offset=part.log.end,
            leader_epoch=part.epoch,
            base_timestamp=stamp,
            codec=CODECS[compression],
        )
        code, offset = self.simulated.producers.take(tp, spec.encode(), stamped=timestamp is not None)
        if code:
            raise for_code(code, str(tp))
        self.simulated.changed()
        return tp, offset

    def produce_many(self, topic: str, values: Iterable[bytes | str | None], *, partition: int | None = None) -> None:
        """Append records without keys, in batches of a hundred if they are for one partition."""
        if partition is None:
            for value in values:
                self.produce(topic, value=value)
            return
        tp = self._partition(topic, None, partition)
        found = [as_bytes(value) for value in values]
        for start in range(0, len(found), BATCH):
            self._append(tp, found[start : start + BATCH])
        self.simulated.changed()

    def _append(self, tp: TopicPartition, values: list[bytes | None]) -> None:
        part = self.simulated.partition(tp)
        records = tuple(RecordSpec(delta=i, timestamp_delta=i * 1000, value=value) for i, value in enumerate(values))
        stamp = part.log.next_timestamp(self.simulated.clock.date())
        spec = BatchSpec(records=records, base_offset=part.log.end, leader_epoch=part.epoch, base_timestamp=stamp)
        code, _ = self.simulated.producers.take(tp, spec.encode(), stamped=False)
        if code:
            raise for_code(code, str(tp))

    @contextmanager
    def transaction(self, producer_id: int | None = None) -> Generator["Transaction", None, None]:
        """Write records in a transaction, which is committed when the block ends, or aborted if it ends with an exception.

        ``producer_id``: by default each transaction has a producer of its own, so several can be open.
        """
        self._transactions += 1
        writing = Transaction(self, self._transactions if producer_id is None else producer_id)
        try:
            yield writing
        except BaseException:
            writing.end(commit=False)
            raise
        writing.end(commit=True)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._known(topic)
        self.simulated.delete_topic(topic)

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again: empty, with another id."""
        self._known(topic)
        self.simulated.recreate(topic)

    def add_partitions(self, topic: str, count: int) -> None:
        """Grow a topic to ``count`` partitions."""
        before = len(self._known(topic).partitions)
        if count <= before:
            raise ValueError(f"topic {topic!r} has {before} partitions; a topic only grows")
        self.simulated.add_partitions(topic, count)

    def truncate(self, partition: tuple[str, int], offset: int) -> None:
        """Lose the end of a log from the batch with ``offset`` on, as an unclean election does; the leader's epoch goes up."""
        self.simulated.truncate(self._within(partition, offset), offset)

    def delete_before(self, partition: tuple[str, int], offset: int) -> None:
        """Lose the start of a log, as retention does."""
        if offset != self.end(partition):
            self._within(partition, offset)
        if self._known(partition[0]).settings.only_compacts:
            raise PolicyViolationError(f"topic {partition[0]!r} is only compacted: its records are not deleted by their offsets")
        self.simulated.log(self._tp(partition)).delete_before(offset)
        self.simulated.changed()

    def compact(self, partition: tuple[str, int]) -> None:
        """Keep only the last record of each key, and none whose value is ``None``. Offsets stay what they were."""
        self.simulated.log(self._tp(partition)).compact()
        self.simulated.changed()

    def corrupt(self, partition: tuple[str, int], offset: int) -> None:
        """Flip a bit in the batch that holds ``offset``, so that its checksum is wrong."""
        self.simulated.log(self._within(partition, offset)).corrupt(offset)

    def end(self, partition: tuple[str, int]) -> int:
        """Return the offset after the last record."""
        return self.simulated.log(self._tp(partition)).end

    def records(self, topic: str, *, partition: int | None = None, committed: bool = True) -> list[WrittenRecord]:
        """Return the records of a topic, or of one partition: keys, values, headers and all, partition by partition.

        ``committed``: without those whose transaction was aborted or is open, and those after the latter.
        """
        parts = [part.index for part in self._known(topic).partitions] if partition is None else [partition]
        found: list[WrittenRecord] = []
        self.simulated.shares.end_locks()  # a broker does this by itself, and may write dead letters for it
        for tp in (self._tp((topic, index)) for index in parts):
            self.simulated.find(*tp)  # what is too old goes first
            log = self.simulated.log(tp)
            data = [batch.data for batch in log.read_all(committed=committed)]
            found += records_in(tp, data, log.start, log.aborted_from(log.start) if committed else ())
        return found

    # --- consumers -------------------------------------------------------------------------------------------------------------

    def options(self) -> ClusterOptions:
        """Return the options with which a consumer finds the cluster: ``KafkaConsumer("orders", **cluster.options())``."""
        return ClusterOptions(bootstrap_servers=self.simulated.bootstrap_servers, transport_factory=self.simulated.network)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed."""
        return self.simulated.groups.offsets.of(group)

    def shared(self, group: str) -> dict[TopicPartition, int]:
        """Return how far a share group is: for each partition, the offset before which every record is done."""
        return self.simulated.shares.starts(group)

    async def assigned(self, group: str, members: int = 1) -> None:
        """Wait until a group has this many members and each knows its whole assignment.

        Raises ``TimeoutError`` after 60 s of the event loop's time; its text describes the group.
        """
        groups = self.simulated.groups
        clock = self.simulated.clock
        deadline = clock.now() + _PATIENCE
        while not (len(groups.members(group)) == members and groups.settled(group)):
            if clock.now() >= deadline:
                found, state = len(groups.members(group)), "all assigned" if groups.settled(group) else "not all assigned"
                raise TimeoutError(
                    f"group {group!r} has {found} members, {state}; {members} were expected within {_PATIENCE:.0f} s"
                )
            await self.simulated.wait_for_change(min(deadline, clock.now() + _LOOK))

    def members(self, group: str) -> list[str]:
        """Return the ids of a group's members."""
        return self.simulated.groups.members(group)

    def join(self, group: str, *topics: str, partitions: Iterable[tuple[str, int]] | None = None) -> "Member":
        """Add a group member that the test plays: it needs no consumer, no task and no reads.

        It gets its share of the ``topics`` as the group assigns it, or takes these ``partitions`` for itself as soon as the other
        members have given them up. It uses the protocol of the group, rejoins at once when the group rebalances, and its session
        does not end. Raises ``ValueError`` for topics or partitions that do not exist, and for a share group.
        """
        claimed = None if partitions is None else [self._tp(partition) for partition in partitions]
        for name in topics:
            self._known(name)
        if not topics and not claimed:
            raise ValueError("a member needs topics, or partitions to take")
        if group in self.simulated.shares.groups:
            raise ValueError(f"{group!r} is a share group: a test plays members of consumer groups only")
        wanted = {*topics, *(partition.topic for partition in claimed or ())}
        return Member(self, group, self.simulated.groups.seat(group, wanted, claimed))

    def requests(self, api: Api | None = None) -> list[LoggedRequest]:
        """Return the requests that arrived, oldest first: all, or those of one API.

        Those before the last 50,000, or ``request_log``, are forgotten, and the records of Produce requests before the last 16 MiB.
        """
        return [entry for entry in self.simulated.requests if api is None or entry.api is api]

    # --- faults ----------------------------------------------------------------------------------------------------------------

    def control(self, api: Api, fn: Callable[[int, Any], Any], *, keep: bool = False) -> Callable[[], None]:
        """Let ``fn(broker, request)`` decide on the next request of an API, or with ``keep`` on every one.

        It returns ``None`` to let the request pass, an error (a class of ``kafka_async.errors``) for the response, a whole
        response, ``HANG`` to never respond, ``LOSE`` to do what was asked and close the connection, or ``Drop()`` to close it at
        once. Call the returned function to end this.
        """
        return self.simulated.control(api, lambda broker, request: _outcome(fn(broker.node_id, request)), keep=keep)

    @contextmanager
    def failing(self, api: Api, error: type[BrokerResponseError], times: int | None = 1) -> Generator[None, None, None]:
        """Make the next ``times`` requests of an API fail; ``None``: all within the block."""
        with self._deciding(api, error.errno, times):
            yield

    @contextmanager
    def losing(self, api: Api, times: int | None = 1) -> Generator[None, None, None]:
        """Lose the answers to the next ``times`` requests of an API; ``None``: to all within the block.

        The brokers do what was asked, and then the connection breaks: the client cannot know whether it was done.
        """
        with self._deciding(api, LOSE, times):
            yield

    @contextmanager
    def _deciding(self, api: Api, outcome: object, times: int | None) -> Generator[None, None, None]:
        left = inf if times is None else times

        def decide(broker: Any, request: Any) -> object:
            nonlocal left
            left -= 1
            return outcome if left >= 0 else None

        end = self.simulated.control(api, decide, keep=True)
        try:
            yield
        finally:
            end()

    def deny(self, topic: str) -> None:
        """Refuse access to a topic (TOPIC_AUTHORIZATION_FAILED)."""
        self._known(topic).error = 29
        self.simulated.changed()

    def allow(self, topic: str) -> None:
        """Grant access to a topic again."""
        self._known(topic).error = 0
        self.simulated.changed()

    def throttle(self, milliseconds: int) -> None:
        """Make every response say that a quota is exceeded, with this throttle time; 0: none does."""
        self.simulated.network.throttle_ms = milliseconds

    def stop(self, broker: int) -> None:
        """Take a broker down: its connections break, new ones are refused. The next broker that is up leads its partitions."""
        self._broker(broker)
        self.simulated.stop(broker)
        if self._listener is not None:
            self._listener.cut(broker)
        self.simulated.elect()

    def start(self, broker: int) -> None:
        """Bring a broker back."""
        self._broker(broker)
        self.simulated.start(broker)
        self.simulated.elect()

    def move_leader(self, partition: tuple[str, int], broker: int) -> None:
        """Make another broker the leader of a partition."""
        self._broker(broker)
        self.simulated.move_leader(self._tp(partition), broker)

    def move_coordinator(self, group: str, broker: int) -> None:
        """Make another broker the coordinator of a group."""
        self._broker(broker)
        self.simulated.groups.moved[group] = broker
        self.simulated.changed()

    def kick(self, group: str, member: str | None = None) -> None:
        """Remove a member from a group, or all members, as if their sessions had expired: they find out at their next request."""
        if member is not None and member not in self.members(group):
            raise no_member(group, member, self.members(group))
        self.simulated.groups.kick(group, member)

    def rebalance(self, group: str) -> None:
        """Make a group rebalance: classic members join again, those of the consumer protocol swap partitions."""
        self.simulated.groups.rebalance(group)

    def half_open(self) -> None:
        """Let nothing through on the existing connections any more, in either direction. New ones work."""
        for transport in self.simulated.network.live():
            transport.hang()
        if self._listener is not None:
            self._listener.half_open()

    def cut(self) -> None:
        """Break the existing connections. New ones work."""
        for transport in self.simulated.network.live():
            transport.end()
        if self._listener is not None:
            self._listener.cut()

    # --- other programs --------------------------------------------------------------------------------------------------------

    async def serve(self) -> str:
        """Listen on the loopback, so that any Kafka client can read and write; return ``host:port`` of every broker.

        Needs asyncio and real time. The listener belongs to the event loop; ``close`` ends it. If that loop is gone, this one
        listens.
        """
        if self._listener is None or self._listener.is_over:
            self._listener = await ClusterSockets.open(self.simulated)
        return self.simulated.bootstrap_servers

    @property
    def is_served(self) -> bool:
        """Whether it listens."""
        return self._listener is not None and not self._listener.is_over

    def close(self) -> None:
        """Close the sockets of ``serve``. Can be called more than once."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        listener = self._listener
        self.close()
        if listener is not None:
            await listener.ended()

    # --- arguments -------------------------------------------------------------------------------------------------------------

    def _known(self, topic: str) -> Any:
        return _topic(self.simulated, topic)

    def _tp(self, partition: tuple[str, int]) -> TopicPartition:
        return _existing(self.simulated, partition)

    def _within(self, partition: tuple[str, int], offset: int) -> TopicPartition:
        tp = self._tp(partition)
        log = self.simulated.log(tp)
        if not log.start <= offset < log.end:
            raise ValueError(f"{TopicPartition(*tp)}: no offset {offset}; its log goes from {log.start} to {log.end}")
        return tp

    def _partition(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        parts = self._known(topic).partitions
        if partition is not None:
            return self._tp((topic, partition))
        if key is None:
            return TopicPartition(topic, sum(part.log.end for part in parts) % len(parts))
        return TopicPartition(topic, (murmur2(key) & 0x7FFFFFFF) % len(parts))

    def _broker(self, broker: int) -> None:
        if broker not in self.simulated.brokers:
            raise ValueError(f"there is no broker {broker}; there are {sorted(self.simulated.brokers)}")


@define(eq=False)
class Member:
    """A group member that the test plays; ``Cluster.join`` returns it."""

    _cluster: Cluster
    group: str
    _fellow: Fellow

    @property
    def id(self) -> str:
        """Its member id."""
        return self._fellow.id

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that it has."""
        return set(self._cluster.simulated.groups.held(self.group, self.id))

    def take(self, *partitions: tuple[str, int]) -> None:
        """Take these partitions, and only these: the others give them up and share the rest.

        Raises ``ValueError`` if it has left, or for a partition that does not exist.
        """
        claimed = frozenset(_existing(self._cluster.simulated, partition) for partition in partitions)
        self._check()
        self._cluster.simulated.groups.claim(self.group, self._fellow, claimed)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for the group. Raises ``ValueError`` if it has left, or has not all of these partitions."""
        self._check()
        strange = {_existing(self._cluster.simulated, partition) for partition in offsets} - self.assignment()
        if strange:
            raise ValueError(f"member {self.id!r} does not have {sorted(strange)}; it has {sorted(self.assignment())}")
        for partition, offset in offsets.items():
            self._cluster.simulated.groups.offsets.store(self.group, TopicPartition(*partition), OffsetAndMetadata(offset))

    def leave(self) -> None:
        """Leave the group, and let the others have its partitions. Does nothing if it has left."""
        if self.id in self._cluster.members(self.group):
            self._cluster.kick(self.group, self.id)

    def _check(self) -> None:
        if self.id not in self._cluster.members(self.group):
            raise ValueError(f"member {self.id!r} is not in group {self.group!r} any more")


@define(eq=False)
class Transaction:
    """Writes records that readers of committed data see once it is committed."""

    _cluster: Cluster
    _producer_id: int
    _written: set[TopicPartition] = field(factory=set)

    def produce(self, topic: str, *values: bytes | str | None, partition: int = 0) -> int:
        """Append records as one batch; return the offset of the first."""
        tp = _existing(self._cluster.simulated, (topic, partition))
        self._written.add(tp)
        return self._cluster.simulated.produce(tp, *values, producer_id=self._producer_id)

    def end(self, *, commit: bool) -> None:
        """Write the markers."""
        for tp in sorted(self._written):
            part = self._cluster.simulated.partition(tp)
            now = self._cluster.simulated.clock.date()
            part.log.end_transaction(self._producer_id, commit=commit, epoch=part.epoch, now=now)
        self._written.clear()
        self._cluster.simulated.changed()


def murmur2(data: bytes) -> int:
    """Return the hash by which Java's producer chooses a partition."""
    length, m = len(data), 0x5BD1E995
    h = 0x9747B28C ^ length
    for i in range(0, length - length % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    rest = data[length - length % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def made_record(key: bytes | str | None, value: bytes | str | None, headers: Headers) -> RecordSpec:
    """Return a record as the encoder takes it."""
    return RecordSpec(key=as_bytes(key), value=as_bytes(value), headers=tuple((name.encode(), text) for name, text in headers))


def as_bytes(value: bytes | str | None) -> bytes | None:
    """Return text in UTF-8. Raises ``TypeError`` for what is neither text nor bytes."""
    if value is None or isinstance(value, bytes | str):
        return value.encode() if isinstance(value, str) else value
    raise TypeError(f"a key or value is bytes, text or None, not {type(value).__name__}")


def _outcome(said: Any) -> Any:
    return said.errno if isinstance(said, type) and issubclass(said, BrokerResponseError) else said


def no_topic(topic: str) -> ValueError:
    """Return the error for a topic that is not there."""
    return ValueError(f"there is no topic {topic!r}; create it with cluster.topic({topic!r})")


def no_member(group: str, member: str, members: list[str]) -> ValueError:
    """Return the error for a member that is not in the group."""
    return ValueError(f"group {group!r} has no member {member!r}; it has {members}")


def check_index(topic: str, index: int, count: int) -> None:
    """Raise ``ValueError`` for a partition that a topic of ``count`` partitions does not have."""
    if not 0 <= index < count:
        raise ValueError(f"topic {topic!r} has no partition {index}; it has {count}")


def _topic(simulated: FakeCluster, topic: str) -> Any:
    if topic not in simulated.topics:
        raise no_topic(topic)
    return simulated.topics[topic]


def _existing(simulated: FakeCluster, partition: tuple[str, int]) -> TopicPartition:
    topic, index = partition
    check_index(topic, index, len(_topic(simulated, topic).partitions))
    return TopicPartition(topic, index)
