"""One topic of two partitions on a fake cluster, with its bad records, and call-backs that notify the model of what they see.

Decides: what a record's value says: ``partition:offset:kind``, and ``:anew`` with a number in later topics of the name. Owns: the
cluster, its coordinator and what it has stored. Must never touch the consumer: the runner does.
"""

from collections.abc import Collection, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import anyio
from attrs import Factory, define, evolve, field

from kafka_async import ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.errors import CoordinatorLoadInProgressError
from kafka_async.testing import Cluster
from kafka_async.testing.simulation import FakeBroker
from kafka_async.wire import Api
from kafka_async.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
)

from .model import ANOTHER_LIFE, Model
from .others import BEAT_MS, GROUP, Others
from .programs import PARTITIONS, Program

MAX_POLL: Final = 60.0
UNKNOWN_TOPIC: Final = 3
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"group_protocol": "classic", "partition_assignment_strategy": ("range",), "heartbeat_interval_ms": BEAT_MS},
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": ("cooperative-sticky",),
        "heartbeat_interval_ms": BEAT_MS,
    },
    "consumer": {"group_protocol": "consumer"},
    "manual": {},
}


class FlakyError(Exception):
    """Raised by a deserializer that cannot reach its registry."""

    retriable = True


@define(eq=False)
class World:
    """What a program runs in. ``FakeWorld`` is the cluster in memory under virtual time; ``real.py`` has one with a broker."""

    program: Program
    model: Model = field(init=False)
    partitions: list[TopicPartition] = field(init=False)
    refused: set[TopicPartition] = Factory(set)
    """Partitions whose commits the coordinator refuses."""
    arrived: list[tuple[TopicPartition, int]] = Factory(list)
    """Offsets that were stored, in order."""
    ending: bool = False
    """The consumer is being stopped."""
    troubled: bool = False
    """A broker was away, or commits are refused: a commit before a revocation may fail."""
    outside: bool = False
    """The member was out of the group since it was last assigned something."""
    unsubscribing: bool = False
    """``unsubscribe`` is running, which does not wait."""
    by_hand: bool = False
    """The application assigned the partitions."""
    consumer: "KafkaConsumer[Any, Any] | None" = None
    """The consumer that the program runs on."""
    failures: dict[tuple[int, int], int] = Factory(dict)
    """How often a deserializer was given a record that it accepts only the third time."""
    topic: str = "t"
    wait: float = 1.5
    """Seconds that a read may wait."""
    enough: float = 3000.0
    """Seconds that a program may take."""
    drain: float = 300.0
    """Seconds in which everything can be read."""
    interval: float = 5.0
    """Seconds between auto-commits."""
    pace: float = 1.0
    """Factor for the waits of a program."""

    # --- what differs ----------------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        """Return the options of the consumer."""
        raise NotImplementedError

    def end(self, partition: TopicPartition) -> int:
        """Return the end of the log."""
        raise NotImplementedError

    def append(self, partition: TopicPartition, values: list[bytes]) -> None:
        """Append a batch."""
        raise NotImplementedError

    def corrupt(self, partition: TopicPartition, offset: int) -> None:
        """Spoil the batch that holds an offset."""
        raise NotImplementedError

    def committed(self, partition: TopicPartition) -> int | None:
        """Return what the coordinator has stored, as of the last ``refresh``."""
        raise NotImplementedError

    async def refresh(self) -> None:
        """Learn what the coordinator has stored."""

    def refuse_reading(self, partition: TopicPartition, code: int) -> None:
        """Let the broker answer fetches of a partition with an error; 0: not any more."""
        raise NotImplementedError

    def make_anew(self) -> None:
        """Delete the topic and create it again, with records like those it had at first."""
        raise NotImplementedError

    def connections_left(self) -> bool:
        """Whether a consumer that has stopped is still connected."""
        raise NotImplementedError

    async def outage(self) -> None:
        """The broker is away for a moment."""
        raise NotImplementedError

    def half_open(self) -> None:
        """Let the connections carry nothing any more."""
        raise NotImplementedError

    @property
    def member(self) -> str | None:
        """The consumer's member, if it is in the group."""
        raise NotImplementedError

    async def rebalance(self) -> None:
        """Make the group rebalance."""
        raise NotImplementedError

    def without_assignments(self) -> AbstractContextManager[object]:
        """Let classic members find no coordinator that lets them join again."""
        raise NotImplementedError

    async def take(self, *partitions: TopicPartition) -> None:
        """Give others these partitions, and only these."""
        raise NotImplementedError

    def expel(self) -> None:
        """The session is over: others had everything for a moment, and read a little of it."""
        raise NotImplementedError

    def assigns_itself(self, by_hand: bool) -> None:
        """The application assigns partitions, or subscribes again."""
        self.by_hand = by_hand

    def unsettled(self) -> bool:
        """Whether a commit may be refused because the group rebalances, or somebody is away."""
        raise NotImplementedError

    def is_settled_with(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether no rebalance is under way, and the group knows that these are the member's."""
        raise NotImplementedError

    @property
    def said(self) -> set[TopicPartition]:
        """Partitions that the member knows to be for others."""
        raise NotImplementedError

    @property
    def others_own(self) -> set[TopicPartition]:
        raise NotImplementedError

    @property
    def has_taken(self) -> bool:
        """Whether any partition is meant for others."""
        raise NotImplementedError

    @property
    def is_to_give_up(self) -> bool:
        """Whether the member has a partition that is meant for others."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """The last generation in which the member received its assignment."""
        raise NotImplementedError

    # --- records ---------------------------------------------------------------------------------------------------------------

    def produce(self, partition: TopicPartition, count: int, kinds: Mapping[int, str] | None = None) -> None:
        """Append a batch; ``kinds``: what is wrong with its offsets."""
        first = self.end(partition)
        known = dict(kinds or {})
        if partition.partition == 0 and kinds is None:
            known = dict.fromkeys(self.program.poison, "poison") | dict.fromkeys(self.program.flaky, "flaky")
        values = []
        for offset in range(first, first + count):
            kind = known.get(offset, "good")
            if kind == "poison":
                self.model.poison.add((partition, offset))
            values.append(f"{partition.partition}:{offset}:{kind}{f':anew{self.model.topic}' if self.model.topic else ''}".encode())
        self.append(partition, values)

    def fill(self) -> None:
        """Write the records that the program starts with."""
        program = self.program
        for partition in self.partitions:
            while self.end(partition) < program.records:
                self.produce(partition, min(program.per_batch, program.records - self.end(partition)))
        if program.corrupt is not None and program.corrupt < program.records:
            self.corrupt(self.partitions[0], program.corrupt)

    # --- the consumer's options ------------------------------------------------------------------------------------------------

    def common_options(self) -> dict[str, Any]:
        """Return the options that are the same in every world."""
        program = self.program
        options: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": program.auto_commit,
            "auto_commit_interval_ms": int(self.interval * 1000),
        }
        if program.small:
            options |= {"fetch_buffer_bytes": 160, "max_partition_fetch_bytes": 140}
        if program.call_backs:
            options["value_deserializer"] = self._deserialize_slowly if program.slow else self._deserialize
            options["interceptors"] = (Interceptor(self.model),)
        return options

    def _deserialize(self, data: bytes) -> str:
        partition, offset, kind = data.decode().split(":")[:3]
        tp, at = self.partitions[int(partition)], int(offset)
        if kind == "flaky" and self.failures.setdefault((tp.partition, at), 0) < 2:
            self.failures[tp.partition, at] += 1
            raise FlakyError(f"the registry is away: {at}")
        self.model.saw("deserializer", tp, at)
        if kind == "poison":
            raise ValueError(f"poison at {at}")
        return data.decode()

    async def _deserialize_slowly(self, data: bytes) -> str:
        await anyio.sleep(self.program.slow)
        return self._deserialize(data)

    def start_of(self, partition: TopicPartition) -> int:
        """Return where a new owner begins."""
        return self.committed(partition) or 0


@define(eq=False)
class FakeWorld(World):
    """The test kit's cluster of one broker, in whose group another member does as the program says."""

    cluster: Cluster = field(init=False)
    others: Others = field(init=False)

    def __attrs_post_init__(self) -> None:
        # Where one broker has all roles, a single timeout finds all dead connections.
        self.cluster = Cluster(seed=self.program.schedule, brokers=3 if "half_open" in repr(self.program.steps) else 1)
        self.others = Others(self.cluster)
        self.cluster.simulated.handlers[Api.OFFSET_COMMIT] = self._store
        self.model = Model(eager=self.program.protocol == "classic")
        self.partitions = self.cluster.topic(self.topic, PARTITIONS)
        self.fill()

    def options(self) -> dict[str, Any]:
        return {
            **self.cluster.options(),
            "group_id": GROUP,
            "max_poll_interval_ms": int(MAX_POLL * 1000),
            "fetch_max_wait_ms": 5000,
            **self.common_options(),
            **_OPTIONS[self.program.protocol],
        }

    def end(self, partition: TopicPartition) -> int:
        return self.cluster.end(partition)

    def append(self, partition: TopicPartition, values: list[bytes]) -> None:
        self.cluster.simulated.produce(partition, *values)

    def corrupt(self, partition: TopicPartition, offset: int) -> None:
        self.cluster.corrupt(partition, offset)
        batch = next(b for b in self.cluster.simulated.log(partition).batches if b.base_offset <= offset <= b.last_offset)
        self.model.corrupt.setdefault(partition, []).append((batch.base_offset, batch.last_offset))

    def refuse_reading(self, partition: TopicPartition, code: int) -> None:
        self.cluster.simulated.partition(partition).error = code
        self.cluster.simulated.changed()

    def make_anew(self) -> None:
        self.cluster.recreate(self.topic)
        self.model.made_anew(self.partitions)
        self.fill()

    def connections_left(self) -> bool:
        return bool(self.cluster.simulated.network.live())

    async def outage(self) -> None:
        self.cluster.stop(0)
        await anyio.sleep(2)
        self.cluster.start(0)

    def half_open(self) -> None:
        self.cluster.half_open()

    @property
    def member(self) -> str | None:
        return self.others.me

    # --- commits ---------------------------------------------------------------------------------------------------------------

    def committed(self, partition: TopicPartition) -> int | None:
        return self.cluster.simulated.committed.get((GROUP, partition))

    async def _store(self, broker: FakeBroker, request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
        if self.program.commit_takes:
            await anyio.sleep(self.program.commit_takes)
        name = self.cluster.simulated.name_of
        asked = {
            TopicPartition(topic.name or name(topic.topic_id) or "", part.partition_index): part.committed_offset
            for topic in request.topics
            for part in topic.partitions
        }
        allowed = tuple(
            evolve(topic, partitions=tuple(part for part in topic.partitions if part.partition_index not in self._refused()))
            for topic in request.topics
        )
        answer = self.cluster.simulated.groups.commit(broker, evolve(request, topics=allowed), version, error)
        codes = {part.partition_index: part.error_code for topic in answer.topics for part in topic.partitions}
        for tp, offset in asked.items():
            if codes.setdefault(tp.partition, UNKNOWN_TOPIC):
                self.model.commit_refused(tp, self.start_of(tp))
            else:
                self.arrived.append((tp, offset))
                self.model.commit_arrived(tp, offset)
        parts = tuple(OffsetCommitResponsePartition(partition_index=index, error_code=codes[index]) for index in sorted(codes))
        return OffsetCommitResponse(topics=tuple(evolve(topic, partitions=parts) for topic in answer.topics))

    def _refused(self) -> set[int]:
        return {tp.partition for tp in self.refused}

    # --- the group -------------------------------------------------------------------------------------------------------------

    async def rebalance(self) -> None:
        self.cluster.rebalance(GROUP)

    def without_assignments(self) -> AbstractContextManager[object]:
        return self.cluster.failing(Api.JOIN_GROUP, CoordinatorLoadInProgressError, None)

    async def take(self, *partitions: TopicPartition) -> None:
        """Others have read a little of the partitions that they give back."""
        self._take(*partitions)

    def _take(self, *partitions: TopicPartition) -> None:
        back = self.others.own - set(partitions)
        self.model.taken(back)
        for partition in back:
            offset = min(self.start_of(partition) + 2, self.end(partition))
            self.cluster.simulated.committed[GROUP, partition] = offset
            self.model.others_committed(partition, offset)
        self.others.take(partitions)

    def expel(self) -> None:
        self.outside = True
        self.others.expel()
        self.others.take(self.partitions)
        self._take()

    def assigns_itself(self, by_hand: bool) -> None:
        self.by_hand = by_hand
        self.others.keep_away(by_hand)

    def unsettled(self) -> bool:
        return self.troubled or (not self.program.manual and self.others.joining)

    def is_settled_with(self, partitions: Collection[TopicPartition]) -> bool:
        return not self.others.joining and self.others.owned == partitions

    @property
    def said(self) -> set[TopicPartition]:
        return set(self.others.said)

    @property
    def others_own(self) -> set[TopicPartition]:
        return set(self.others.own)

    @property
    def has_taken(self) -> bool:
        return bool(self.others.taken)

    @property
    def is_to_give_up(self) -> bool:
        return bool(self.others.owned & self.others.taken)

    @property
    def generation(self) -> int:
        return self.others.settled


@define(eq=False)
class Interceptor:
    """Notifies the model of what it sees."""

    model: Model

    def on_consume(self, records: dict[TopicPartition, list[ConsumerRecord[Any, Any]]]) -> Any:
        for partition, some in records.items():
            for record in some:
                self.model.saw("interceptor", partition, record.offset)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """It says nothing that the coordinator does not know."""


@define(eq=False)
class ModelNotifier:
    """Notifies the model of the listener's calls."""

    world: World
    unsure: set[TopicPartition] = Factory(set)
    """Partitions that may have kept their pause, or not."""

    def begin(self, kind: str, partitions: Collection[TopicPartition]) -> int:
        """A call-back begins; return its generation."""
        world = self.world
        world.model.call_back_begins(kind, partitions)
        return world.generation

    def go_on(self, kind: str, partitions: Collection[TopicPartition], generation: int) -> None:
        """The committed offsets are known."""
        world, model = self.world, self.world.model
        if kind == "assigned":
            world.outside = False
            model.taken(world.others_own)
            self.unsure |= model.assigned({tp: world.start_of(tp) for tp in partitions}, generation)
        elif kind == "revoked":
            self._check_commits(partitions)

    def end(self, kind: str, partitions: Collection[TopicPartition], generation: int) -> None:
        """It is about to return."""
        if kind == "assigned":
            self.world.model.ready(partitions)
        else:
            # Partitions that unsubscribe gave up do not come back as they were.
            since = ANOTHER_LIFE if self.world.unsubscribing else generation
            self.world.model.revoked(partitions, lost=kind == "lost", generation=since)

    def _check_commits(self, revoked: Collection[TopicPartition]) -> None:
        """Auto-commit has committed everything that was consumed before partitions leave."""
        world = self.world
        if not world.program.auto_commit or world.ending or world.troubled or world.outside or world.unsubscribing:
            return
        for partition in revoked:
            cursor = world.model.cursors.get(partition) if partition not in world.model.parting else None
            # If it is more, the application committed it itself or has sought back, or ``commit_arrived`` complains.
            if cursor is not None and cursor.owed is not None and world.start_of(partition) < cursor.owed:
                committed = world.committed(partition)
                world.model.breach(f"{partition} was revoked at {cursor.owed}, committed was {committed}")


@define(eq=False)
class Listener(ConsumerRebalanceListener):
    """Takes its time in each call-back. A call-back begins when it is called, not when its coroutine takes its first step."""

    world: World
    notifier: ModelNotifier = Factory(lambda self: ModelNotifier(self.world), takes_self=True)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._called("revoked", revoked, self.notifier.begin("revoked", revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._called("lost", lost, self.notifier.begin("lost", lost))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._called("assigned", assigned, self.notifier.begin("assigned", assigned))

    async def _called(self, kind: str, partitions: Collection[TopicPartition], generation: int) -> None:
        well = False
        try:
            await self.world.refresh()
            self.notifier.go_on(kind, partitions, generation)
            if self.world.program.listener:
                await anyio.sleep(self.world.program.listener * self.world.pace)
            self.notifier.end(kind, partitions, generation)
            well = True
        finally:
            self.world.model.call_back_ends(kind, well=well)


@define(eq=False)
class PlainListener(ConsumerRebalanceListener):
    """The same with plain methods, which take no time."""

    world: World
    notifier: ModelNotifier = Factory(lambda self: ModelNotifier(self.world), takes_self=True)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._called("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._called("lost", lost)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._called("assigned", assigned)

    def _called(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        generation = self.notifier.begin(kind, partitions)
        self.notifier.go_on(kind, partitions, generation)
        self.notifier.end(kind, partitions, generation)
        self.world.model.call_back_ends(kind)
