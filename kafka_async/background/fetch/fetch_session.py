"""One broker's fetch session (KIP-227): what the broker remembers, so that a request names only what changed.

Decides: whether the next request is full or incremental, and which partitions it names. Owns: what we want from the broker,
what we last sent it, and the session's id and epoch. Must never know why a partition is wanted.

The cost of a request is that of the changes since the last one, whatever the number of partitions. Any doubt about what the
broker remembers (an error, a lost connection) ends in a full request, which loses nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ...model import TopicPartition
from ...values import define, field, frozen
from ...wire.messages import FetchPartition, FetchTopic, ForgottenTopic
from ..by_topic import by_topic

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class Wanted(NamedTuple):
    """How one partition is to be fetched. A tuple: one is made, and compared, for each answer."""

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int | None


@frozen(kw_only=True)
class SessionRequest:
    """The session part of a Fetch request."""

    session_id: int
    epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


@define(eq=False)
class FetchSession:
    """The session with one broker."""

    session_id: int = 0
    epoch: int = INITIAL_EPOCH
    wanted: dict[TopicPartition, Wanted] = field(factory=dict)
    sent: dict[TopicPartition, Wanted] = field(factory=dict)
    names: dict[UUID, str] = field(factory=dict)
    """Names of the topic ids that were sent, to read answers by: metadata may have moved on meanwhile."""
    _changed: set[TopicPartition] = field(factory=set, init=False)
    _known: dict[tuple[bytes, int], TopicPartition] = field(factory=dict, init=False)
    """The partitions that answers were about, by the topic's id and the number."""

    def want(self, partition: TopicPartition, how: Wanted | None) -> None:
        """Fetch a partition like this from the next request on; ``None``: not at all."""
        if how is None:
            self.wanted.pop(partition, None)
        else:
            self.wanted[partition] = how
        self._changed.add(partition)

    def step(self) -> tuple[TopicPartition, UUID, Wanted] | None:
        """Return the one partition that moved on, if nothing else changed since the last request, and take that as sent.

        That is what ``build`` returns nearly always, without what it takes to say everything else. ``None``: nothing is taken.
        """
        if len(self._changed) != 1 or self.epoch == INITIAL_EPOCH:
            return None
        (partition,) = self._changed
        before, after = self.sent.get(partition), self.wanted.get(partition)
        if before is None or after is None or after.topic_id is None or before.topic_id is not after.topic_id:
            return None
        self.sent[partition] = after
        self._changed.clear()
        return partition, after.topic_id, after

    def build(self) -> SessionRequest:
        """Return the next request and take it as sent."""
        if self.epoch == INITIAL_EPOCH:
            self._known.clear()
            self.sent = dict(self.wanted)
            self._changed.clear()
            self.names = {how.topic_id: tp.topic for tp, how in self.sent.items() if how.topic_id is not None}
            return SessionRequest(session_id=self.session_id, epoch=self.epoch, topics=_named(self.sent), forgotten=())
        send: dict[TopicPartition, Wanted] = {}
        forget: list[tuple[TopicPartition, UUID | None]] = []
        for partition in self._changed:
            before, after = self.sent.get(partition), self.wanted.get(partition)
            same = before is not None and after is not None and _is_same(before.topic_id, after.topic_id)
            if before is not None and not same:
                forget.append((partition, before.topic_id))
            if after is None:
                self.sent.pop(partition, None)
            elif before != after:
                send[partition] = self.sent[partition] = after
                if not same and after.topic_id is not None:
                    self.names[after.topic_id] = partition.topic
        self._changed.clear()
        if not send and self.sent and not self.names:
            # A session by topic names stays one only while its requests name a topic: the version is chosen by what they carry.
            partition, how = next(iter(self.sent.items()))
            send[partition] = how
        return SessionRequest(session_id=self.session_id, epoch=self.epoch, topics=_named(send), forgotten=_forgotten(forget))

    def fits(self, answered: Mapping[TopicPartition, object]) -> bool:
        """Whether a response may be about these partitions: only about those of the session.

        Anything else belongs to another session, or to another broker behind the same address. (Java's ``FetchSessionHandler``.)
        """
        return answered.keys() <= self.sent.keys()

    def succeeded(self, session_id: int, answered: int) -> None:
        """The broker answered about so many partitions; ``session_id`` 0 means that it keeps no session for us."""
        if session_id == 0:
            self.reset()
            return
        if self.epoch == INITIAL_EPOCH and answered < len(self.sent):
            self.session_id = session_id
            self.reset(keep_id=True)  # a full response is about all partitions: what it leaves out may be missing in the session
            return
        self.epoch = 1 if session_id != self.session_id or self.epoch >= _EPOCH_MAX else self.epoch + 1
        self.session_id = session_id

    def reset(self, *, keep_id: bool = False) -> None:
        """Start afresh with a full request; with ``keep_id`` it also closes the session that the broker may still hold."""
        if not keep_id:
            self.session_id = 0
        self.epoch = INITIAL_EPOCH

    def name(self, topic: str, topic_id: UUID | None) -> str | None:
        """Return the topic that an answer is about: by name up to version 12, by id after."""
        return topic or (self.names.get(topic_id) if topic_id is not None else None)

    def partition(self, topic_id: bytes, number: int) -> TopicPartition:
        """Return the partition that an answer is about; one without a topic if it was never asked for."""
        known = self._known.get((topic_id, number))
        if known is None:
            known = TopicPartition(self.names.get(UUID(bytes=topic_id), ""), number)
            if known.topic:
                self._known[topic_id, number] = known
        return known


def _is_same(one: UUID | None, other: UUID | None) -> bool:
    return one is other or one == other  # nearly always the former: comparing ids is a call of Python


def _named(partitions: Mapping[TopicPartition, Wanted]) -> tuple[FetchTopic, ...]:
    if not partitions:
        return ()  # nothing is new: what the broker remembers is all that we want
    if len(partitions) == 1:
        ((partition, how),) = partitions.items()
        return (FetchTopic(topic=partition.topic, topic_id=how.topic_id, partitions=(_named_partition(partition, how),)),)
    topics: dict[tuple[str, UUID | None], list[FetchPartition]] = {}
    for partition, how in partitions.items():
        topics.setdefault((partition.topic, how.topic_id), []).append(_named_partition(partition, how))
    return tuple([FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(parts)) for (name, topic_id), parts in topics.items()])


def _named_partition(partition: TopicPartition, how: Wanted) -> FetchPartition:
    return FetchPartition(
        partition=partition.partition,
        current_leader_epoch=-1 if how.leader_epoch is None else how.leader_epoch,
        fetch_offset=how.offset,
        partition_max_bytes=how.max_bytes,
    )


def _forgotten(partitions: Sequence[tuple[TopicPartition, UUID | None]]) -> tuple[ForgottenTopic, ...]:
    if not partitions:
        return ()
    topics = by_topic(((partition.topic, topic_id), partition.partition) for partition, topic_id in partitions)
    return tuple(ForgottenTopic(topic=name, topic_id=topic_id, partitions=parts) for (name, topic_id), parts in topics.items())
