"""What the answers of brokers mean for records, locks and acknowledgements (KIP-932)."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Final
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    CorruptRecordException,
    FrameSizeError,
    GroupIdNotFound,
    InvalidRecordStateError,
    InvalidShareSessionEpochError,
    KafkaError,
    MalformedResponseError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    UnknownError,
    UnknownTopicIdError,
    UnsupportedVersionError,
    for_code,
)
from ...model import Node, TopicPartition
from ...trace import Fault, Listener, Recovered
from ...values import define, field
from ...wire.messages import AcquiredRecords, ShareAcknowledgeResponse, ShareFetchResponse, SharePartitionData
from ..boundary import Exchange
from ..cluster.cluster_view import Leader
from ..fetch.placement import Placement
from ..loop.request_manager import retry_delay
from ..positions.partition_outage import PartitionOutage
from .acknowledgements import AcknowledgementPortion, Entry
from .closing import Closing
from .locks import Lock, Locks, PartitionLocks
from .orders import AcknowledgeType, Delivery, Lost, Renewed, Settled, weight
from .read_ahead import SHORT_POLL, ReadAhead
from .share_broker import AssignedPartition, SentRequest, ShareBroker
from .share_membership import unsupported
from .share_settings import ShareSettings
from .unpacking import Unpacked, unpack

_NOT_DONE: Final = (InvalidShareSessionEpochError, ShareSessionLimitReachedError)
"""The broker looked at nothing else in the request."""


@define(eq=False)
class ShareAnswers:
    """Takes over what brokers answer."""

    config: ConsumerConfig
    settings: ShareSettings
    exchange: Exchange = field(repr=False)
    assigned: dict[TopicPartition, AssignedPartition]
    placement: Placement[ShareBroker]
    locks: Locks
    ahead: ReadAhead
    closing: Closing
    trace: Listener = field(repr=False)
    _numbers: int = field(default=0, init=False)
    """Of the last delivery."""
    _outage: PartitionOutage = field(init=False)

    def __attrs_post_init__(self) -> None:
        patience = max(self.config.request_timeout_ms / 2000, 2 * self.config.retry_backoff_max)
        self._outage = PartitionOutage(self.trace, "reading", "cannot be fetched at the moment; trying again", patience)

    def answered(self, broker: ShareBroker, sent: SentRequest, outcome: object, now: float) -> None:
        broker.in_flight = broker.expected = None
        broker.throttled_until = now + getattr(outcome, "throttle_time_ms", 0) / 1000
        if isinstance(outcome, ShareFetchResponse | ShareAcknowledgeResponse) and not outcome.error_code:
            if broker.backoff.failures:
                self.trace(Recovered(now=now, outage=broker.outage, subject="fetch"))
            broker.backoff.succeeded()
            broker.failure = None
            self._went_well(broker, sent, outcome, now)
        else:
            self._failed(broker, sent, _error_of(outcome, self.config.group_id), now)

    def _went_well(
        self, broker: ShareBroker, sent: SentRequest, answer: ShareFetchResponse | ShareAcknowledgeResponse, now: float
    ) -> None:
        if answer.acquisition_lock_timeout_ms > 0:
            self.exchange.lock_seconds = self.locks.duration = answer.acquisition_lock_timeout_ms / 1000
        endpoints = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints}
        if isinstance(answer, ShareFetchResponse):
            broker.session.fetched()
            found = any(part.acquired_records for topic in answer.responses for part in topic.partitions)
            broker.dry_until = -inf if found or sent.portions else now + SHORT_POLL
            parts = [(topic.topic_id, part) for topic in answer.responses for part in topic.partitions]
            codes = {
                (topic_id, part.partition_index): (part.acknowledge_error_code, part.acknowledge_error_message)
                for topic_id, part in parts
            }
            self._settle(broker, sent, codes, now)
            self._read_all(broker, parts, sent, endpoints, now)
            return
        if sent.closes:
            broker.session.reset()
        else:
            broker.session.acknowledged()
        broker.dry_until = -inf
        results = [(topic.topic_id, part) for topic in answer.responses for part in topic.partitions]
        answers = {(topic_id, part.partition_index): (part.error_code, part.error_message) for topic_id, part in results}
        self._settle(broker, sent, answers, now)
        for topic_id, result in results:
            partition = sent.names.get((topic_id, result.partition_index))
            if partition is not None and result.error_code and result.current_leader.leader_id >= 0:  # without an error both are 0
                leader = Leader(result.current_leader.leader_id, result.current_leader.leader_epoch)
                self.placement.metadata.update_leader(partition, leader, endpoints, now)

    def _settle(
        self, broker: ShareBroker, sent: SentRequest, codes: Mapping[tuple[UUID | None, int], tuple[int, str | None]], now: float
    ) -> None:
        for portion in sent.portions:
            code = codes.get((portion.topic_id, portion.partition.partition))
            error: KafkaError | None = None
            if code is None:
                left_out = MalformedResponseError(f"{portion.partition}: the broker did not answer the acknowledgements")
                broker.acknowledgements.settle(portion, left_out, now)
                continue
            if code[0]:
                error = for_code(code[0], f"{portion.partition}: {code[1] or for_code(code[0]).description}")
                if error.invalid_metadata:
                    self.placement.metadata.request_update(now)
            broker.acknowledgements.answered(portion, error, now)

    def _failed(self, broker: ShareBroker, sent: SentRequest, error: KafkaError, now: float) -> None:
        """The whole request was not carried out, or it is unknown whether it was."""
        broker.failure = error
        broker.session.reset()
        broker.backoff.failed(now)
        self.placement.metadata.request_update(now)
        if isinstance(error, (ShareSessionNotFoundError, InvalidShareSessionEpochError)) and broker.backoff.failures == 1:
            broker.backoff.retry_at = now  # a new session, at once
        # Kafka up to 4.3 answers so, for the whole request, when a topic of the session is deleted: the others must go on.
        final = not error.retriable and not isinstance(error, UnknownError)
        # A broker that answers still has the locks, also if it opens another session for us; one that does not releases them.
        locks_gone = not isinstance(error, BrokerResponseError) or isinstance(error, ShareSessionNotFoundError)
        for portion in sent.portions:
            if final:
                broker.acknowledgements.answered(portion, error, now)
            else:
                self._once_more(broker, portion, error, locks_gone=locks_gone)
        if locks_gone:  # also if the login to a new connection was refused: the former one had ended
            self._lose_all(broker, error, now, releases=not final)  # a release that nobody takes would hold up every flush
        if final:
            broker.backoff.retry_at = now + self.config.retry_backoff_max
            if isinstance(error, UnsupportedVersionError):
                error = unsupported(error, self.config.group_id or "")
            self.exchange.handler.publish_error(error, to_all=True)
        elif isinstance(error, FrameSizeError) and (too_long := broker.too_long(error, self.config, now)) is not None:
            self.exchange.handler.publish_error(too_long)
        text = f"the share session with broker {broker.node_id} is lost; opening another one"
        self.trace(Fault(now=now, text=text, error=error, subject="fetch", outage=broker.outage))

    def _once_more(self, broker: ShareBroker, portion: AcknowledgementPortion, error: KafkaError, *, locks_gone: bool) -> None:
        if portion.renewal:
            for _, lock in portion.entries.values():
                if lock is not None:
                    self.locks.look_at(lock)
        elif isinstance(error, _NOT_DONE):
            broker.acknowledgements.again(portion)
        else:
            broker.acknowledgements.unanswered(portion, error, locks_gone=locks_gone)

    def _lose_all(self, broker: ShareBroker, error: KafkaError, now: float, *, releases: bool) -> None:
        """The connection is gone, and with it every lock. ``releases``: release those left, in case the broker has not noticed."""
        broker.acknowledgements.disconnected(error)
        for partition in self.locks.given_by(broker.node_id):
            held = self.locks.partitions[partition]
            # A broker refuses all of a partition's acknowledgements if one lock has ended.
            ours = [offset for offset, lock in held.by_offset.items() if not lock.acknowledged and lock.deadline > now]
            left: dict[int, Entry] = dict.fromkeys(ours, (AcknowledgeType.RELEASE, None))
            self._lose(partition, _session_lost(partition, error))
            if left and releases:
                broker.acknowledgements.add(partition, held.topic_id, left, now)

    def give_up_former(self, moved: Collection[TopicPartition], now: float) -> None:
        """Other brokers lead these partitions now, or other topics have them: former locks are gone, not handed on (KIP-932)."""
        for partition in moved:
            held = self.locks.partitions.get(partition)
            if held is None or (error := self._moved(partition, held.topic_id, held.node_id)) is None:
                continue
            if self._lose(partition, error):
                text, which = "locks are gone, so others get the records", frozenset((partition,))
                self.trace(Fault(now=now, text=text, error=error, subject="fetch", partitions=which))
        # Also where no lock is left: with the connection to a broker that crashed went its locks, and what was to be sent waits.
        for broker in self.placement.brokers.values():

            def why(portion: AcknowledgementPortion, node_id: int = broker.node_id) -> KafkaError | None:
                return self._moved(portion.partition, portion.topic_id, node_id) if portion.partition in moved else None

            if broker.acknowledgements:
                broker.acknowledgements.drop(why, now)

    def has_left(self, broker: ShareBroker, now: float) -> None:
        """The broker is not in the cluster: it answers nothing about partitions that others lead now, or that are not ours.

        What is in flight to it as a partition moves comes back later, once the request has failed.
        """

        def why(portion: AcknowledgementPortion) -> KafkaError | None:
            if portion.partition in self.assigned:  # without a leader, one waits: the broker may come back as the leader
                return self._moved(portion.partition, portion.topic_id, broker.node_id)
            return NotLeaderOrFollowerError(f"{portion.partition}: the broker that locked the records has left the cluster")

        broker.acknowledgements.drop(why, now)

    def _moved(self, partition: TopicPartition, topic_id: UUID, node_id: int) -> KafkaError | None:
        """Return why a broker can have no locks on an assigned partition, of this topic, any more; ``None`` if it may have some."""
        assigned = self.assigned[partition]
        if assigned.topic_id != topic_id:
            return UnknownTopicIdError(f"{partition}: the topic was deleted, and another one has its name now")
        if not assigned.is_read_at(topic_id, node_id):
            return NotLeaderOrFollowerError(f"{partition}: the partition moved to another broker")
        return None

    def _lose(self, partition: TopicPartition, error: KafkaError) -> bool:
        """The locks on a partition's records are gone. Return whether there were any on records that are not acknowledged."""
        lost = self.locks.forget(partition)
        if lost:
            self.ahead.lost_at = self.exchange.delivered
            self.exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in lost), error))
        return bool(lost)

    # --- records ---------------------------------------------------------------------------------------------------------------

    def _read_all(
        self,
        broker: ShareBroker,
        parts: list[tuple[UUID | None, SharePartitionData]],
        sent: SentRequest,
        endpoints: Mapping[int, Node],
        now: float,
    ) -> None:
        failed: list[tuple[KafkaError, tuple[TopicPartition]]] = []
        well, named = set[TopicPartition](), set[TopicPartition]()
        for topic_id, part in parts:
            partition = sent.names.get((topic_id, part.partition_index))
            if partition is None:
                continue
            named.add(partition)
            if not part.error_code:
                well.add(partition)
                self._read(broker, partition, topic_id, part, sent, now)
            elif (error := self._partition_failed(partition, part, endpoints, now)) is not None:
                failed.append((error, (partition,)))
        if failed or self._outage.failing:
            # A broker leaves out a partition that has nothing for us, and one of which it cannot tell yet, such as while its state
            # loads, which fails again and again. A refusal comes at once: without it, access was given back.
            for partition, (reason, *_) in self._outage.failing.items():
                assigned = self.assigned.get(partition)
                was_asked = assigned is not None and broker.session.includes(partition, assigned.topic_id)
                if was_asked and partition not in named and not _passes(reason):
                    well.add(partition)
            self._outage.report(failed, well, now, sent.at)
            self.show_refused(now)

    def show_refused(self, now: float) -> None:
        """Keep what the application sees of partitions that fail: what is refused, and what has lasted longer than an election."""
        if self._outage.failing or self.exchange.handler.refused:
            self._outage.keep(self.assigned)
            failing = self._outage.failing.items()
            refused = {tp: error for tp, (error, *_) in failing if error is not None and not _passes(error)}
            self.exchange.handler.refused = refused | self._outage.lasting(now)

    def _read(
        self,
        broker: ShareBroker,
        partition: TopicPartition,
        topic_id: UUID | None,
        part: SharePartitionData,
        sent: SentRequest,
        now: float,
    ) -> None:
        assigned = self.assigned.get(partition)
        if assigned is not None:
            assigned.failures = 0
        if not part.acquired_records or topic_id is None:
            return
        if assigned is not None and not assigned.is_read_at(topic_id, broker.node_id):
            # A late answer about what the partition was before. Its locks would take the place of those that we have now.
            ranges = (range(batch.first_offset, batch.last_offset + 1) for batch in part.acquired_records)
            entries = dict.fromkeys(chain.from_iterable(ranges), (AcknowledgeType.RELEASE, None))
            broker.acknowledgements.add(partition, topic_id, entries, now)
            return
        self._supersede(broker, partition, part.acquired_records, now)
        found = unpack(
            partition,
            part.records,
            part.acquired_records,
            check_crcs=self.config.check_crcs,
            max_decompressed_bytes=self.config.max_decompressed_bytes,
        )
        self.ahead.saw(found.batch)
        self._leave_out(broker, partition, topic_id, found, now)
        if found.records and partition.topic not in self.exchange.topics:
            # It was asked for before the application unsubscribed: it will not be read, and its locks would be renewed.
            entries = dict.fromkeys((record.offset for record in found.records), (AcknowledgeType.RELEASE, None))
            broker.acknowledgements.add(partition, topic_id, entries, now)
        elif found.records:
            self._numbers += 1
            offsets = [record.offset for record in found.records]
            # The lock began when the broker sent the answer, at the earliest when it was asked. The earlier time counts, since the
            # network may have held up the answer: with a deadline that was too late, a yes counted after the lock had ended.
            deadline = self.locks.add(partition, PartitionLocks(topic_id, broker.node_id), offsets, self._numbers, sent.at)
            size = weight(found.records)
            self.ahead.expansion = max(1.0, size / (len(part.records) or 1))
            self.exchange.delivered += len(found.records)
            self.exchange.put_bytes += size
            self.exchange.report(Delivery(partition, self._numbers, found.records, found.counts, deadline))

    def _supersede(self, broker: ShareBroker, partition: TopicPartition, ranges: Sequence[AcquiredRecords], now: float) -> None:
        """These records were not ours meanwhile. The broker knows members, not deliveries: it would take old acknowledgements."""
        error = InvalidRecordStateError(f"{partition}: the lock had ended; the record was delivered again")
        lost = self.locks.supersede(partition, ranges)
        if lost:
            self.exchange.report(Lost(partition, tuple((lock.number, offset) for offset, lock in lost), error))
        broker.acknowledgements.supersede(partition, ranges, error, now)

    def _leave_out(self, broker: ShareBroker, partition: TopicPartition, topic_id: UUID, found: Unpacked, now: float) -> None:
        """Give back at once what cannot be handed out: gaps for good, unreadable records for another attempt."""
        limit = self.settings.bad_record_deliveries
        entries: dict[int, Entry] = dict.fromkeys(found.gaps, (AcknowledgeType.GAP, None))
        entries |= dict.fromkeys(found.missing, (AcknowledgeType.RELEASE, None))
        for offset, count in found.bad:
            entries[offset] = (AcknowledgeType.REJECT if count >= limit else AcknowledgeType.RELEASE, None)
        if entries:
            broker.acknowledgements.add(partition, topic_id, entries, now)
        if found.error is not None and found.bad:
            self.exchange.handler.publish_error(found.error)

    def _partition_failed(
        self,
        partition: TopicPartition,
        part: SharePartitionData,
        endpoints: Mapping[int, Node],
        now: float,
    ) -> KafkaError | None:
        """Return the error, unless the partition is not ours any more, or another broker is to be asked."""
        assigned = self.assigned.get(partition)
        if assigned is None:
            return None
        text = f"{partition}: {part.error_message or for_code(part.error_code).description}"
        # With the topic: no access is then one error, and not one for each partition, some read long after access was given back.
        error = for_code(part.error_code, text, topic=partition.topic)
        hint = part.current_leader
        epoch = hint.leader_epoch if hint.leader_epoch >= 0 else None
        if hint.leader_id >= 0 and self.placement.metadata.update_leader(partition, Leader(hint.leader_id, epoch), endpoints, now):
            return None
        # A retry must neither spin nor go unreported.
        assigned.retry_at = now + retry_delay(self.config, assigned.failures)
        assigned.failures += 1
        self.placement.changed.add(partition)
        if error.invalid_metadata:
            self.placement.metadata.request_update(now)
        if not _passes(error):
            assigned.retry_at = now + self.config.retry_backoff_max
            self.exchange.handler.publish_error(error)
        return error

    # --- results of acknowledgements -------------------------------------------------------------------------------------------

    def settled(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        if portion.renewal:
            self._renewed(portion, error, now)
            return
        said: dict[tuple[int, AcknowledgeType], dict[int, Lock]] = {}
        last: Entry | None = None
        alike: dict[int, Lock] = {}
        for offset, entry in portion.entries.items():
            kind, lock = entry
            if lock is None:
                continue
            if entry is not last:  # neighbours share theirs
                last, alike = entry, said.setdefault((lock.number, kind), {})
            alike[offset] = lock
        for (number, kind), locks in said.items():
            self.locks.remove(portion.partition, locks)
            self.report(portion.partition, number, tuple(locks), kind, error)

    def _renewed(self, portion: AcknowledgementPortion, error: KafkaError | None, now: float) -> None:
        """A refusal does not mean that the lock is gone: the group may not allow renewals. The lock then ends in its time."""
        # A lock that has ended meanwhile is not ours, whatever the broker says: see ``acknowledgements``.
        partition = portion.partition
        locks = {offset: lock for offset, (_, lock) in portion.entries.items() if lock is not None and lock.deadline > now}
        if error is None:
            renewed = self.locks.renewed(partition, locks, portion.sent_at)
            held = self.locks.partitions.get(partition)
            if held is not None:
                self.placement.broker(held.node_id).acknowledgements.renewed(partition, renewed)
            deadline = portion.sent_at + self.locks.duration
            self.exchange.report(Renewed(partition, tuple((lock.number, offset) for offset, lock in renewed.items()), deadline))
            if held is not None and now < deadline and len(locks) < len(portion.entries):  # else those locks have ended, too
                self._release_late(portion, held, now)
        else:
            for offset, lock in locks.items():
                self.locks.keep(partition, lock.number, (offset,), kept=False)
            self.trace(Fault(now=now, text="locks could not be renewed", error=error, subject="fetch"))

    def _release_late(self, portion: AcknowledgementPortion, held: PartitionLocks, now: float) -> None:
        """Locks that had ended here were renewed: release those that nobody has acknowledged, since nobody works on the records.

        The broker would keep them for as long as a lock lasts, and give the records to nobody.
        """
        if (held.topic_id, held.node_id) != (portion.topic_id, portion.sent_to):
            return  # there are no such locks there, and a release would spoil other acknowledgements
        late: dict[int, Entry] = {}
        for offset, (_, lock) in portion.entries.items():
            if lock is None or lock.deadline > now:
                continue
            current = held.by_offset.get(offset)
            if current is None or (current.number == lock.number and current.deadline <= now and not current.acknowledged):
                late[offset] = (AcknowledgeType.RELEASE, None)
        if late:
            self.placement.broker(held.node_id).acknowledgements.add(portion.partition, held.topic_id, late, now)

    def report(
        self, partition: TopicPartition, number: int, offsets: tuple[int, ...], kind: AcknowledgeType, error: KafkaError | None
    ) -> None:
        self.closing.note(partition, error)
        self.exchange.report(Settled(partition, number, offsets, kind, error))


def _error_of(outcome: object, group: str | None) -> KafkaError:
    if isinstance(outcome, ShareFetchResponse | ShareAcknowledgeResponse):
        return for_code(outcome.error_code, outcome.error_message, group=group)
    return outcome if isinstance(outcome, KafkaError) else MalformedResponseError(f"answered with {type(outcome).__name__}")


def _passes(error: KafkaError | None) -> bool:
    """Whether an error of a partition is a moment of the cluster's life, such as an election; else it is a refusal."""
    # The share coordinator says GROUP_ID_NOT_FOUND while a partition loads its state (``SharePartition.fetchPersisterError``).
    return isinstance(error, UnknownError | GroupIdNotFound) or (
        error is not None and error.retriable and not isinstance(error, CorruptRecordException)
    )


def _session_lost(partition: TopicPartition, cause: KafkaError) -> KafkaError:
    error = InvalidRecordStateError(f"{partition}: the connection that the records were locked over is gone: {cause}")
    error.__cause__ = cause
    return error
