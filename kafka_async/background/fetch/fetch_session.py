"""One broker's fetch session (KIP-227): what the broker remembers, so that a request names only what changed.

The cost of a request is that of the changes since the last one, whatever the number of partitions. Any doubt about what the
broker remembers (an error, a lost connection) ends in a full request, which loses nothing.

Nearly every request of a consumer that keeps up moves one partition on, and nearly every answer has records of one. Whether these
go in the short form of ``wire/step.py`` is decided here, and nobody else has to know.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self, TypeAlias
from uuid import UUID

from ...config import ConsumerConfig
from ...model import IsolationLevel, TopicPartition
from ...values import define, field, frozen
from ...wire import FetchedStep, FetchStep
from ...wire.messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData
from ..by_topic import by_topic

Answer: TypeAlias = FetchResponse | FetchedStep
"""The answer to a request of a session, in either form."""
ANSWERS: Final = (FetchedStep, FetchResponse)
PartitionAnswer: TypeAlias = PartitionData | FetchedStep
"""What an answer says about one partition. The short form has no errors, and is about its only partition."""

_INITIAL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class Wanted(NamedTuple):
    """How one partition is to be fetched. A tuple: one is made, and compared, for each answer."""

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int | None


@frozen(kw_only=True)
class FetchTerms:
    """What every request of a consumer says alike."""

    min_bytes: int = 1
    isolation_level: int = 0
    rack_id: str = ""

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self:
        """Return what the options say."""
        committed_only = config.isolation_level is IsolationLevel.READ_COMMITTED
        return cls(min_bytes=config.fetch_min_bytes, isolation_level=int(committed_only), rack_id=config.client_rack)


@define(eq=False)
class FetchSession:
    """The session with one broker."""

    session_id: int = field(default=0, init=False)
    epoch: int = field(default=_INITIAL_EPOCH, init=False)
    terms: FetchTerms = field(factory=FetchTerms, repr=False)
    wanted: dict[TopicPartition, Wanted] = field(factory=dict, init=False)
    sent: dict[TopicPartition, Wanted] = field(factory=dict, init=False)
    """What the last request, and those before it in the session, asked for."""
    misfit: bool = field(default=False, init=False)
    """An answer was about another session than ours, and none has shown since that the broker has ours."""
    _names: dict[UUID, str] = field(factory=dict, init=False)
    """Names of the topic ids that were sent, to read answers by: metadata may have moved on meanwhile."""
    _changed: set[TopicPartition] = field(factory=set, init=False)
    _known: dict[tuple[bytes, int], TopicPartition] = field(factory=dict, init=False)
    """The partitions that short answers were about, by the topic's id and the number."""

    @property
    def is_full(self) -> bool:
        """Whether the request is, or the next one will be, about everything that is wanted."""
        return self.epoch == _INITIAL_EPOCH

    def want(self, partition: TopicPartition, how: Wanted | None) -> None:
        """Fetch a partition like this from the next request on; ``None``: not at all."""
        if how is None:
            self.wanted.pop(partition, None)
        else:
            self.wanted[partition] = how
        self._changed.add(partition)

    # --- requests --------------------------------------------------------------------------------------------------------------

    def request(self, size: int, max_wait_ms: int, *, rack: bool = True) -> FetchRequest | FetchStep:
        """Return the next request and take it as sent. ``size``: the bytes that it asks for, at most.

        Without our ``rack`` a leader gives records itself and names no replica: it is a part of each request, not of the session.
        """
        if len(self._changed) == 1 and self.epoch != _INITIAL_EPOCH:
            (partition,) = self._changed
            before, after = self.sent.get(partition), self.wanted.get(partition)
            is_same = before is not None and after is not None and before.topic_id is after.topic_id
            if is_same and after is not None and after.topic_id is not None and before != after:
                self.sent[partition] = after
                self._changed.clear()
                terms = self.terms
                return FetchStep(
                    session_id=self.session_id,
                    session_epoch=self.epoch,
                    topic=partition.topic,
                    topic_id=after.topic_id,
                    partition=partition.partition,
                    leader_epoch=-1 if after.leader_epoch is None else after.leader_epoch,
                    offset=after.offset,
                    partition_max_bytes=after.max_bytes,
                    max_wait_ms=max_wait_ms,
                    min_bytes=terms.min_bytes,
                    max_bytes=size,
                    isolation_level=terms.isolation_level,
                    rack_id=terms.rack_id if rack else "",
                )
        topics, forgotten = self._everything() if self.epoch == _INITIAL_EPOCH else self._changes()
        return self._request(self.epoch, size, max_wait_ms, topics, forgotten, rack=rack)

    def last_request(self) -> FetchRequest | None:
        """Return the request that closes the session; ``None`` if the broker holds none."""
        return self._request(_FINAL_EPOCH, 0, 0) if self.session_id else None

    def _request(
        self,
        epoch: int,
        size: int,
        max_wait_ms: int,
        topics: tuple[FetchTopic, ...] = (),
        forgotten: tuple[ForgottenTopic, ...] = (),
        *,
        rack: bool = True,
    ) -> FetchRequest:
        terms = self.terms
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=terms.min_bytes,
            max_bytes=size,
            isolation_level=terms.isolation_level,
            session_id=self.session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id=terms.rack_id if rack else "",
        )

    def _everything(self) -> tuple[tuple[FetchTopic, ...], tuple[ForgottenTopic, ...]]:
        self._known.clear()
        self.sent = dict(self.wanted)
        self._changed.clear()
        self._names = {how.topic_id: tp.topic for tp, how in self.sent.items() if how.topic_id is not None}
        return _named(self.sent), ()

    def _changes(self) -> tuple[tuple[FetchTopic, ...], tuple[ForgottenTopic, ...]]:
        send: dict[TopicPartition, Wanted] = {}
        forget: list[tuple[TopicPartition, UUID | None]] = []
        for partition in self._changed:
            before, after = self.sent.get(partition), self.wanted.get(partition)
            same = before is not None and after is not None and _is_same(before.topic_id, after.topic_id)
            if before is not None and after is not None and (before.topic_id is None) is not (after.topic_id is None):
                self.reset(keep_id=True)  # a broker refuses ids in a session that began by names, and the reverse
                return self._everything()
            if before is not None and not same:
                forget.append((partition, before.topic_id))
            if after is None:
                self.sent.pop(partition, None)
            elif before != after:
                send[partition] = self.sent[partition] = after
                if not same and after.topic_id is not None:
                    self._names[after.topic_id] = partition.topic
        self._changed.clear()
        if not send and self.sent and not self._names:
            # A session by topic names stays one only while its requests name a topic: the version is chosen by what they carry.
            partition, how = next(iter(self.sent.items()))
            send[partition] = how
        return _named(send), _forgotten(forget)

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def read(self, answer: Answer) -> Mapping[TopicPartition, PartitionAnswer] | None:
        """Return what an answer says, by partition; ``None`` if it is about other partitions than those of the session.

        It then belongs to another session, or to another broker behind the same address. (Java's ``FetchSessionHandler``.)
        """
        about: Mapping[TopicPartition, PartitionAnswer]
        if isinstance(answer, FetchedStep):
            partition = self._known.get((answer.topic_id, answer.partition_index))
            if partition is None:
                name = self._names.get(UUID(bytes=answer.topic_id), "")
                partition = self._known[answer.topic_id, answer.partition_index] = TopicPartition(name, answer.partition_index)
            about = {partition: answer}
        else:
            about = {
                TopicPartition(topic.topic or self._name(topic.topic_id), part.partition_index): part
                for topic in answer.responses
                for part in topic.partitions
            }
        if not about.keys() <= self.sent.keys():
            self.misfit = True
            self.reset()
            return None
        session_id, is_full = answer.session_id, self.epoch == _INITIAL_EPOCH
        # A full response always fits: only an incremental one shows that the broker has our session.
        self.misfit = self.misfit and is_full and session_id != 0
        if session_id == 0:
            self.reset()  # the broker keeps no session for us
        elif is_full and len(about) < len(self.sent):
            self.session_id = session_id
            self.reset(keep_id=True)  # a full response is about all partitions: what it leaves out may be missing in the session
        else:
            self.epoch = 1 if session_id != self.session_id or self.epoch >= _EPOCH_MAX else self.epoch + 1
            self.session_id = session_id
        return about

    def _name(self, topic_id: UUID | None) -> str:
        return self._names.get(topic_id, "") if topic_id is not None else ""

    def reset(self, *, keep_id: bool = False) -> None:
        """Start afresh with a full request; with ``keep_id`` it also closes the session that the broker may still hold."""
        if not keep_id:
            self.session_id = 0
        self.epoch = _INITIAL_EPOCH


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
