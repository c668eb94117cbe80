"""What each broker is sent next, and in which session: a fetch, acknowledgements, both, or the end of the session."""

from collections.abc import Collection
from math import inf
from operator import attrgetter
from typing import Final
from uuid import UUID

from ...config import ConsumerConfig
from ...model import TopicPartition
from ...network import Channel, UnsentRequest
from ...values import define, field
from ...wire.messages import (
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchRequest,
)
from ..by_topic import by_topic
from ..fetch.placement import Placement
from ..loop.request_manager import NEVER, Poll
from .acknowledgements import AcknowledgementPortion
from .answers import ShareAnswers
from .closing import Closing, ClosingState
from .orders import AcknowledgeType
from .read_ahead import ReadAhead
from .session import FINAL_EPOCH
from .share_broker import AssignedPartition, SentRequest, ShareBroker

_GRACE: Final = 0.5
"""Seconds for which the answer to a fetch may be on its way after the time for which the broker may hold it back."""


@define(eq=False)
class ShareRequests:
    """Makes the requests to all brokers."""

    config: ConsumerConfig
    member_id: str
    assigned: dict[TopicPartition, AssignedPartition]
    placement: Placement[ShareBroker]
    ahead: ReadAhead
    closing: Closing
    answers: ShareAnswers = field(repr=False)

    @property
    def _brokers(self) -> Collection[ShareBroker]:
        return self.placement.brokers.values()

    # --- which broker reads what -----------------------------------------------------------------------------------------------

    def place(self, now: float) -> float:
        """Put each assigned partition into the session of its leader. Return when to look again."""
        placement = self.placement
        if placement.collect(now):
            placement.changed.update(self.assigned)
        moved = {partition for partition in placement.changed if self._place(partition, now)}
        placement.changed.clear()
        if moved:
            self.answers.give_up_former(moved, now)
        return placement.timers.next

    def _place(self, partition: TopicPartition, now: float) -> bool:
        """Return whether another broker leads it than before, or perhaps, if it has just been assigned."""
        assigned, placement = self.assigned.get(partition), self.placement
        leader = placement.leader(partition, now) if assigned is not None else None
        if assigned is None or leader is None:
            placement.put(partition, None)
            return False
        moved = assigned.node_id != leader.node_id
        if assigned.node_id not in (None, leader.node_id):
            assigned.retry_at = 0.0
        assigned.node_id = leader.node_id
        if assigned.retry_at > now:
            placement.timers.set(partition, assigned.retry_at)
            placement.put(partition, None)
        else:
            placement.put(partition, leader.node_id, assigned.topic_id)
        return moved

    # --- what a broker gets next -----------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the requests that may go out now."""
        hurries, wake_at = self.closing.hurries, NEVER
        requests: list[UnsentRequest] = []
        # The broker asked least recently comes first: with a strict limit only one is asked at a time.
        for broker in sorted(self._brokers, key=attrgetter("asked_at")):
            if hurries:
                broker.acknowledgements.hurry(now)
            if broker.acknowledgements:
                wake_at = min(wake_at, broker.acknowledgements.expire(now, broker.failure))
            if broker.in_flight is None:
                request, until = self._next(broker, now)
                wake_at = min(wake_at, until)
                if request is not None:
                    requests.append(request)
                    wake_at = min(wake_at, broker.suspected_at)  # nothing else may come up until then
            else:
                wake_at = min(wake_at, broker.suspect(self.placement.metadata, now))
        return Poll(tuple(requests), wake_at)

    def _next(self, broker: ShareBroker, now: float) -> tuple[UnsentRequest | None, float]:
        """Return the next request to an idle broker, or when to look again."""
        fetches, again_at = bool(broker.session.wanted) and self.ahead.wants_more(self._brokers, now), NEVER
        if fetches and now < broker.dry_until and self.ahead.exchange.unread > 0:
            fetches, again_at = False, broker.dry_until
        request, until = self._request(broker, fetches=fetches, due_at=broker.acknowledgements.due_at(), now=now)
        return request, min(until, again_at)

    def _request(self, broker: ShareBroker, *, fetches: bool, due_at: float, now: float) -> tuple[UnsentRequest | None, float]:
        acknowledgements, session, metadata = broker.acknowledgements, broker.session, self.placement.metadata
        closes = self.closing.state is ClosingState.PARTING and session.is_open
        if not (fetches or closes or due_at < inf):
            return None, NEVER  # a read call wakes us
        if broker.node_id not in metadata.cluster.nodes:  # a request would only be refused
            if metadata.cluster.nodes:  # without any, all of them are being looked for anew
                self.answers.has_left(broker, now)
            if closes:
                session.reset()  # it has left the cluster, and ends with its connection
            elif fetches or acknowledgements:
                metadata.need_leader(now)
            return None, NEVER
        if not broker.backoff.ready(now):
            return None, broker.backoff.retry_at
        if closes:  # with what other tasks have acknowledged meanwhile
            self._release_others(broker, now)
            return self._send_acknowledgements(broker, acknowledgements.take(now, renewal=False), now, closes=True), NEVER
        if not session.is_open:
            return (self._open(broker, fetches=fetches, now=now), NEVER) if fetches or due_at <= now else (None, due_at)
        # Renewals go first, but never twice while something else may go out: an application may renew all the time.
        others = fetches or acknowledgements.has(now, renewals=False)
        broker.renewed = acknowledgements.has(now, renewals=True) and not (broker.renewed and others)
        if broker.renewed:
            return self._send_acknowledgements(broker, acknowledgements.take(now, renewal=True), now), NEVER
        return self._fetch_or_acknowledge(broker, fetches=fetches, due_at=due_at, now=now)

    def _release_others(self, broker: ShareBroker, now: float) -> None:
        """Release the records of partitions that have left the session, such as those that other members read now.

        A broker releases what is locked for us in the partitions of the session that ends, and nothing else.
        """
        locks = self.answers.locks
        for partition in locks.given_by(broker.node_id):
            held = locks.partitions[partition]
            if broker.session.includes(partition, held.topic_id):
                continue
            # A broker refuses all of a partition's acknowledgements if one lock has ended.
            left = {offset: lock for offset, lock in held.by_offset.items() if not lock.acknowledged and lock.deadline > now}
            if left:
                released = dict.fromkeys(left, (AcknowledgeType.RELEASE, None))
                broker.acknowledgements.add(partition, held.topic_id, released, now)
                locks.remove(partition, left)

    def _fetch_or_acknowledge(
        self, broker: ShareBroker, *, fetches: bool, due_at: float, now: float
    ) -> tuple[UnsentRequest | None, float]:
        acknowledgements, wanted = broker.acknowledgements, broker.session.wanted
        hurried = bool(self.closing.flushes)
        # A fetch takes along acknowledgements of its partitions; those of others would wait until there is nothing to fetch.
        if due_at <= now and (hurried or not fetches or broker.empty or acknowledgements.has_others(wanted)):
            portions = acknowledgements.take(now, renewal=False)
            if portions:
                return self._send_acknowledgements(broker, portions, now), NEVER
        if broker.empty and acknowledgements:
            return None, due_at
        broker.empty = False
        if not fetches:
            return None, due_at
        young = now < acknowledgements.due_at() and self.ahead.exchange.unread > 0
        portions = [] if young else acknowledgements.take(now, renewal=False, only=wanted)
        return self._fetch(broker, portions, now), NEVER

    def _open(self, broker: ShareBroker, *, fetches: bool, now: float) -> UnsentRequest:
        """Open a session. Old acknowledgements are settled before anything is acquired, so that they cannot affect new locks."""
        broker.empty = bool(broker.acknowledgements)
        return self._fetch(broker, [], now, acquires=fetches and not broker.empty)

    def _fetch(
        self, broker: ShareBroker, portions: list[AcknowledgementPortion], now: float, *, acquires: bool = True
    ) -> UnsentRequest:
        session, ahead, brokers = broker.session, self.ahead, self._brokers
        broker.asked_at = now
        topics, forgotten = session.build({portion.partition: portion.batches() for portion in portions})
        wait = ahead.longest_wait(brokers) if acquires else 0.0
        most = max(1, ahead.bytes(brokers)) if acquires else 0
        message = ShareFetchRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=int(wait * 1000),
            min_bytes=self.config.fetch_min_bytes if acquires else 0,
            max_bytes=most,
            max_records=max(1, ahead.records(brokers)) if acquires else 0,
            batch_size=self.config.max_poll_records,
            share_acquire_mode=int(ahead.is_limited),
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        names: dict[tuple[UUID | None, int], TopicPartition] = {(tid, tp.partition): tp for tp, tid in session.known.items()}
        return self._send(broker, message, SentRequest(now, True, portions, names), most, wait)

    def _send_acknowledgements(
        self, broker: ShareBroker, portions: list[AcknowledgementPortion], now: float, *, closes: bool = False
    ) -> UnsentRequest:
        listed = {(portion.topic_id, portion.partition.partition): portion.batches() for portion in portions}
        topics = tuple(
            ShareAcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    ShareAcknowledgePartition(partition_index=index, acknowledgement_batches=listed[topic_id, index])
                    for index in indexes
                ),
            )
            for topic_id, indexes in by_topic(sorted(listed)).items()
        )
        message = ShareAcknowledgeRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            share_session_epoch=FINAL_EPOCH if closes else broker.session.epoch,
            is_renew_ack=any(portion.renewal for portion in portions),
            topics=topics,
        )
        names: dict[tuple[UUID | None, int], TopicPartition] = {
            (portion.topic_id, portion.partition.partition): portion.partition for portion in portions
        }
        return self._send(broker, message, SentRequest(now, False, portions, names, closes), 0, 0.0)

    def _send(
        self, broker: ShareBroker, message: ShareFetchRequest | ShareAcknowledgeRequest, sent: SentRequest, most: int, wait: float
    ) -> UnsentRequest:
        broker.in_flight = sent
        broker.sent(most, wait, sent.at)
        for portion in sent.portions:
            portion.sent_at, portion.sent_to = sent.at, broker.node_id
        sent.rests_until = sent.at + wait + _GRACE
        return UnsentRequest(
            message=message,
            node_id=broker.node_id,
            channel=Channel.FETCH,
            on_done=lambda outcome, at: self.answers.answered(broker, sent, outcome, at),
            expires_at=sent.at + wait + self.config.request_timeout_ms / 1000,
            max_wait=wait,
        )
