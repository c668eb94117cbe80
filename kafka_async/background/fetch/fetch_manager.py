"""Reading ahead: the Fetch request manager.

Records are not looked at here (``measure`` reads batch headers to learn the next offset), and no data is held: a response goes into
the buffer at once, and the position moves past it.

Fetching is continuous: a broker gets its next request as soon as its answer is in the buffer, as far as there is room for it
(KIP-74, KIP-81). Partitions with unread data stay in the session as long as they are under their share of the buffer, so that one
slow partition cannot fill it, and a broker's session is not churned (KAFKA-17182). All that have unread data share half of it.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from typing import Final

from ...config import ConsumerConfig
from ...errors import (
    BrokerResponseError,
    CorruptRecordException,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    FrameSizeError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
    for_code,
)
from ...model import IsolationLevel, Node, TopicPartition
from ...network import NO_JITTER, Channel, ExponentialBackoff, UnsentRequest
from ...records import measure
from ...trace import Fault, Fetched, Listener, Recovered
from ...values import defaults_of, define, field
from ..boundary import EventHandler, FetchBuffer, FetchedData, Watermarks
from ..by_topic import named
from ..cluster.cluster_view import ClusterChanges, Leader
from ..cluster.metadata import MetadataManager
from ..loop.request_manager import Poll, backoff_of, retry_delay
from ..positions.partition_outage import PartitionOutage
from ..positions.positions import PositionsManager
from ..positions.subscription import FetchPosition, FetchState, PartitionState, PreferredReplica, SubscriptionState
from .fetch_broker import FetchBroker
from .fetch_session import ANSWERS, Answer, FetchSession, FetchTerms, PartitionAnswer, Wanted
from .fetch_size import FULL, FetchSize, RequestShare, largest_request
from .placement import Placement

_READING: Final = "reading"
"""Outage of partitions that cannot be fetched."""
_SESSION_ERRORS: Final = (FetchSessionIdNotFound.errno, InvalidFetchSessionEpoch.errno, FetchSessionTopicIdError.errno)
_SENT_AT: Final = attrgetter("sent_at")
_USUAL_BYTES: Final = defaults_of(ConsumerConfig)["max_partition_fetch_bytes"]
_REQUEST_SHARE: Final = 4
"""One request asks for at most this part of the buffer, so that receive buffers stay small and several brokers get a turn."""
_LONGEST_WITHOUT_REPLICA: Final = 30.0
"""Most seconds for which a leader is read since the replica that it named fails, or four times as long as the failure took."""
_SHORT_WAIT_MS: Final = 50
"""Milliseconds that a broker may hold a request for what is asked for, while others give way."""
_SHORTEST_WAIT_MS: Final = 5
"""Milliseconds that a broker may hold the first request after a partition was left out since much of it is unread."""


@define(eq=False, kw_only=True)
class _Broker(FetchBroker[FetchSession]):
    """As for share groups, and how much is asked for at a time."""

    size: FetchSize
    """What one of its partitions may bring in one answer."""
    share: RequestShare
    """What it may bring beside others."""
    hold_ms: int = _SHORTEST_WAIT_MS
    """How long it may hold the next request while one of its partitions is left out."""
    leader_only: set[TopicPartition] = field(factory=set)
    """Partitions that it leads and for which it named a replica that cannot be read from: it is not told our rack for a while."""

    @property
    def most(self) -> int:
        """Bytes that one of its partitions may bring in the next answer."""
        return min(self.size.bytes, self.share.bytes)


@define(eq=False)
class _LeftOut:
    """Partitions for which there is no room at the moment."""

    partitions: dict[TopicPartition, int] = field(factory=dict)
    """Their share of the buffer is unread, or they give way; with the broker that each is read from, -1 if that is not known."""
    first: frozenset[TopicPartition] = frozenset()
    """What all others give way to, since reads wait for it."""
    share: int = 0
    """Their share, once it is found; 0: not yet. To find it anew for each of a thousand partitions takes a million looks."""

    def gives_way(self, partition: TopicPartition) -> bool:
        return bool(self.first) and partition not in self.first


@define(eq=False)
class FetchManager:
    """Fetches the partitions that are assigned, have a position and are not paused."""

    config: ConsumerConfig
    subscription: SubscriptionState = field(repr=False)
    metadata: MetadataManager = field(repr=False)
    positions: PositionsManager = field(repr=False)
    buffer: FetchBuffer = field(repr=False)
    handler: EventHandler = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    _placement: Placement[_Broker] = field(init=False)
    _left_out: _LeftOut = field(factory=_LeftOut, init=False)
    _outage: PartitionOutage = field(init=False)
    _terms: FetchTerms = field(init=False)
    _largest_request: int = field(init=False)
    """Bytes that a request may ask for, however much room there is."""

    def __attrs_post_init__(self) -> None:
        self._largest_request = largest_request(self.config)
        self._placement = Placement(self.metadata, self._new_broker)
        patience = max(self.config.request_timeout_ms / 2000, 2 * self.config.retry_backoff_max)
        self._outage = PartitionOutage(self.trace, _READING, "cannot be fetched at the moment; trying again", patience)
        self._terms = FetchTerms.of(self.config)

    def changed(self, partition: TopicPartition) -> None:
        """Something about the partition changed; it is looked at again at the next poll."""
        self._placement.changed.add(partition)

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None:
        """See ``ClusterListener``."""
        for partition in changes.leaders:
            entry = self.subscription.get(partition)
            if entry is not None and entry.setbacks.failures:
                self.subscription.wait(entry, now)  # what one broker refuses another one may give
        for partition in self.subscription.partitions if changes.recreated else ():
            if partition.topic in changes.recreated:
                self.buffer.watermarks.pop(partition, None)
        self._placement.changed |= changes.leaders
        if changes.identified:  # else what is quiet stays in a session by name, and what is not goes on by id
            self._placement.changed.update(tp for tp in self._placement.placed if tp.topic in changes.identified)

    # --- deciding --------------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the Fetch requests that may go out now."""
        # Hungry while we look: bytes that the application's thread releases after our look at the room must wake us.
        was_hungry, self.buffer.hungry = self.buffer.hungry, True
        hungry = starving = False
        if self.buffer.asked or self._left_out.first:
            self._give_way()
        self._place_changed(now)
        requests: list[UnsentRequest] = []
        wake_at = self._placement.timers.next
        asked = 0
        idle: list[_Broker] = []
        for broker in self._placement.brokers.values():
            if broker.session.wanted:
                asked += 1
                if broker.expected is None:
                    idle.append(broker)
                else:
                    wake_at = min(wake_at, broker.suspect(self.metadata, now))
        # The partition that waited longest goes first: in a fixed order the first ones would take all the room, and the last get
        # none.
        idle.sort(key=_SENT_AT)
        for broker in idle:
            if broker.node_id not in self.metadata.cluster.nodes:
                self.metadata.need_leader(now)  # a request would only be refused, and cost a backoff
            elif broker.backoff.retry_at > now:
                wake_at = min(wake_at, broker.backoff.retry_at)
            elif size := self._request_size(len(idle), asked, broker):
                requests.append(self._request(broker, size, now))
                wake_at = min(wake_at, broker.suspected_at)  # nothing else may come up until then
            else:
                hungry = True
                starving = starving or not self.buffer.asked.isdisjoint(broker.session.wanted)
        self.buffer.announce()  # the application gets its turn after this one of the loop, which sends the requests
        self.buffer.hungry = hungry or bool(self._left_out.partitions)
        was_starving, self.buffer.starving = self.buffer.starving, starving
        if (self.buffer.hungry and not was_hungry) or (starving and not was_starving):
            self.buffer.on_parcel()  # a read that waits for a partition without room can say so, or give back what others hold
        return Poll(tuple(requests), wake_at)

    def _place_changed(self, now: float) -> None:
        """Look again at every partition that changed."""
        placement, self._left_out.share = self._placement, 0
        if placement.collect(now):  # a replica may be gone without a change of leader
            nodes = self.metadata.cluster.nodes
            placement.changed.update(partition for partition, node_id in placement.placed.items() if node_id not in nodes)
        if self._outage.failing:
            self._outage.keep(self.subscription.partitions)
            self._show_refused(now)
        if self._left_out.partitions:
            left_out, share = self._left_out, self._share()
            back = {tp for tp in left_out.partitions if self.buffer.unread(tp) < share and not left_out.gives_way(tp)}
            for node_id in {left_out.partitions[tp] for tp in back} & placement.brokers.keys():
                placement.brokers[node_id].hold_ms = _SHORTEST_WAIT_MS
            placement.changed |= back
            for partition in left_out.partitions.keys() & placement.changed:
                del left_out.partitions[partition]
        for partition in placement.changed:
            self._place(partition, now)
        placement.changed.clear()

    def _give_way(self) -> None:
        """Leave partitions out that no read waits for, while there is room only for those that one does."""
        useful = self._useful()
        first = self.buffer.asked if self.buffer.room() - self._reserved() - useful < useful else frozenset()
        if first != self._left_out.first:
            self._left_out.first = first
            self._placement.changed.update(self._placement.placed)

    def poll_on_close(self, now: float) -> Poll:
        """Close the sessions of brokers that have no request of ours to answer first: a long poll is never waited for."""
        return Poll(
            tuple(
                UnsentRequest(
                    message=last,
                    node_id=broker.node_id,
                    channel=Channel.FETCH,
                    on_done=lambda *_: None,
                    expires_at=now + 1.0,
                    final=True,
                )
                for broker in self._placement.brokers.values()
                if broker.expected is None and (last := broker.session.last_request()) is not None
            )
        )

    def _share(self) -> int:
        """Bytes that one partition may have unread before it is left out for a while.

        All that have unread data together take half of the buffer, so that there is always room for those that have none.
        """
        if not self._left_out.share:
            unread = sum(account.put != account.released for account in self.buffer.accounts.values())
            self._left_out.share = max(self.buffer.limit // (2 * max(unread, 1)), 1)
        return self._left_out.share

    def _reserved(self) -> int:
        """Return the bytes that the requests in flight may bring."""
        reserved = 0
        for broker in self._placement.brokers.values():
            reserved += broker.expected or 0
        return reserved

    def _useful(self) -> int:
        """Return the bytes of the smallest request that is worth it if nobody waits for it."""
        return min(self.config.max_partition_fetch_bytes, max(self.buffer.limit // _REQUEST_SHARE, 1))

    def _request_size(self, idle: int, brokers: int, broker: _Broker) -> int:
        """Return the bytes that the next request to a broker may ask for, or 0 if there is no room for a useful one.

        An empty partition's request holds its share for as long as its broker waits, so the shares are such that all have room.

        The sequence that fetches the same data again and again: reads of a busy partition and of a quiet one take turns, and
        whenever the quiet one is read, the busy one has filled the buffer. So room for one request is kept for what is asked for.
        """
        is_for_all = not self.buffer.asked or not broker.session.wanted.keys() <= self.buffer.asked
        spare = self._useful() if is_for_all and len(self.subscription.partitions) > 1 else 0
        reserved = self._reserved()
        room = self.buffer.room() - reserved - spare
        share = (self.buffer.limit - spare) // max(brokers, _REQUEST_SHARE)
        cap = max(1, min(self._largest_request, share))  # 0 is allowed: one batch at a time
        size = min(cap, room // idle)
        # What a read waits for is worth any request: dropping what others have fetched, to have room for more, costs more.
        worth_it = min(self.config.max_partition_fetch_bytes, cap, max(cap // _REQUEST_SHARE, broker.share.batch, 1))
        useful = worth_it if spare or not self._left_out.first else 1
        if size >= useful:
            return size
        if room >= useful:
            return useful
        return cap if reserved == 0 and self.buffer.total.unread == 0 else 0

    def _place(self, partition: TopicPartition, now: float) -> None:
        """Put the partition into the session of the broker it is to be read from, and out of any other."""
        placement, entry = self._placement, self.subscription.partitions.get(partition)
        if entry is None or entry.position is None or not entry.fetchable or (leader := self._leader(entry, now)) is None:
            placement.put(partition, None)
            return
        node_id = leader.node_id
        if entry.replica is not None:
            if entry.replica.until <= now or entry.replica.node_id not in self.metadata.cluster.nodes:
                self.subscription.end_lease(entry)
            else:
                node_id = entry.replica.node_id
                placement.timers.set(partition, entry.replica.until)
        broker = placement.brokers.get(node_id) or placement.broker(node_id)
        if broker.share.partitions < len(self.subscription.partitions):
            broker.share = self._equal_share()
        if entry.setbacks.leader_only_until > now and node_id == leader.node_id:
            broker.leader_only.add(partition)
        topic_id = self.metadata.cluster.topic_id(partition.topic)
        placement.put(partition, node_id, Wanted(topic_id, entry.position.offset, broker.most, leader.epoch))

    def _leader(self, entry: PartitionState, now: float) -> Leader | None:
        """Return the leader of a partition; ``None`` if it is not known, or has to wait."""
        partition, left_out = entry.partition, self._left_out
        if entry.retry_at > now:
            self._placement.timers.set(partition, entry.retry_at)
            return None
        unread = self.buffer.unread(partition)
        partitions = len(self.subscription.partitions)
        is_much = unread * 2 * partitions >= self.buffer.limit  # else it is less than its share, however many have some
        if (left_out.first and left_out.gives_way(partition)) or (is_much and unread >= self._share()):
            leader = self.metadata.cluster.leader(partition)
            left_out.partitions[partition] = entry.replica.node_id if entry.replica else leader.node_id if leader else -1
            return None
        return self._placement.leader(partition, now)

    def _new_broker(self, node_id: int) -> _Broker:
        backoff = backoff_of(self.config, self.random)
        return _Broker(node_id, backoff, FetchSession(self._terms), size=self._first_size(), share=self._equal_share())

    def _equal_share(self) -> RequestShare:
        """Return equal shares for all partitions in the largest request."""
        partitions = len(self.subscription.partitions)
        spare = self._useful() if partitions > 1 else 0
        return RequestShare.equal(min(self._largest_request, (self.buffer.limit - spare) // _REQUEST_SHARE), partitions)

    def _first_size(self) -> FetchSize:
        """Return a size that begins at ``max_partition_fetch_bytes``, and grows unless the user has set that option."""
        wished = self.config.max_partition_fetch_bytes
        most = max(self.buffer.limit // _REQUEST_SHARE, 1)
        least = min(wished, most)
        return FetchSize(least, most if wished == _USUAL_BYTES else least)

    def _request(self, broker: _Broker, size: int, now: float) -> UnsentRequest:
        max_wait_ms = self._max_wait_ms(broker)
        broker.sent(size, max_wait_ms / 1000, now)
        return UnsentRequest(
            message=broker.session.request(size, max_wait_ms, rack=not broker.leader_only or self._tells_rack(broker, now)),
            node_id=broker.node_id,
            channel=Channel.FETCH,
            on_done=partial(self._answered, broker),
            expires_at=now + (self.config.request_timeout_ms + self.config.fetch_max_wait_ms) / 1000,
            max_wait=max_wait_ms / 1000,
        )

    def _tells_rack(self, broker: _Broker, now: float) -> bool:
        """Return whether a broker is told our rack, although it may name a replica that cannot be read from.

        A partition that is read from this broker as a follower needs it: Redpanda lets followers serve only those who have one.
        """
        wanted = [entry for partition in broker.session.wanted if (entry := self.subscription.get(partition)) is not None]
        broker.leader_only &= {entry.partition for entry in wanted if entry.setbacks.leader_only_until > now}
        return not broker.leader_only or any(entry.replica and entry.replica.node_id == broker.node_id for entry in wanted)

    def _max_wait_ms(self, broker: _Broker) -> int:
        """Return how long a broker may hold the next request. Those that are left out cannot be asked for meanwhile.

        The sequence that reads one busy partition of thirty at 4 MB/s: it is left out for the moment in which the application reads
        a megabyte of it, and the request for the others, which have nothing, is held for half a second. So the first one is short;
        each that follows takes twice as long, since the application may not read at all.
        """
        longest, left_out = self.config.fetch_max_wait_ms, self._left_out
        if left_out.first:  # the read that others give way to may end at any time
            return min(longest, _SHORT_WAIT_MS)
        if broker.node_id not in left_out.partitions.values():
            return longest
        wait_ms = min(longest, broker.hold_ms)
        broker.hold_ms = min(2 * broker.hold_ms, max(longest, _SHORTEST_WAIT_MS))
        return wait_ms

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, broker: _Broker, outcome: Answer | BaseException, now: float) -> None:
        asked, broker.expected = broker.expected or 0, None
        broker.throttled_until = now + getattr(outcome, "throttle_time_ms", 0) / 1000
        if not isinstance(outcome, ANSWERS):
            self._request_failed(broker, outcome, now)
        elif outcome.error_code:
            self._refused(broker, outcome.error_code, now)
        elif (about := broker.session.read(outcome)) is None:
            self._misfit(broker, now)
        else:
            if broker.backoff.failures and not broker.session.misfit:
                self._recovered(broker, now)
            self._read(broker, outcome, about, asked, now)

    def _recovered(self, broker: _Broker, now: float) -> None:
        self.trace(Recovered(now=now, outage=broker.outage, subject="fetch"))
        broker.backoff.succeeded()

    def _misfit(self, broker: _Broker, now: float) -> None:
        """The response is about other partitions than the session: nothing of it was read, and a new session begins.

        The sequence that sends thousands of requests a second: a proxy swaps two brokers whose sessions have the same id, so each
        answers at once for the partitions of the other, again and again.
        """
        broker.backoff.failed(now)
        self.metadata.request_update(now)
        text = f"broker {broker.node_id} answers for another fetch session than ours; beginning a new one"
        self.trace(Fault(now=now, text=text, subject="fetch", outage=broker.outage))

    def _refused(self, broker: _Broker, error_code: int, now: float) -> None:
        if error_code in _SESSION_ERRORS:
            if error_code == FetchSessionTopicIdError.errno:
                broker.backoff.failed(now)  # metadata without topic ids: a full request right away would fail in the same way
                self.metadata.request_update(now)
            elif broker.session.is_full:
                broker.backoff.failed(now)  # this was a full request: the next one may fail in the same way
            broker.session.reset(keep_id=error_code != FetchSessionIdNotFound.errno)
        else:
            self._request_failed(broker, for_code(error_code), now)

    def _request_failed(self, broker: _Broker, outcome: object, now: float) -> None:
        """The broker is gone or refuses us: its fetch session is in doubt, and its partitions may be led elsewhere by now."""
        broker.session.reset()
        broker.backoff.failed(now)
        self.metadata.request_update(now)
        for partition, node_id in tuple(self._placement.placed.items()):
            entry = self.subscription.get(partition)
            if node_id == broker.node_id and entry is not None:
                if entry.replica is not None and entry.replica.node_id == node_id:
                    self._avoid_replica(entry, node_id, now, now - broker.sent_at)
                self._placement.changed.add(partition)
        if isinstance(outcome, KafkaError) and not outcome.retriable:
            self.handler.publish_error(outcome, to_all=True)  # another attempt would fail too
        elif isinstance(outcome, FrameSizeError) and (too_long := broker.too_long(outcome, self.config, now)) is not None:
            self.handler.publish_error(too_long)
        error = outcome if isinstance(outcome, BaseException) else None
        text = f"fetch from broker {broker.node_id} failed; trying again"
        self.trace(Fault(now=now, text=text, error=error, subject="fetch", outage=broker.outage))

    def _read(
        self, broker: _Broker, answer: Answer, about: Mapping[TopicPartition, PartitionAnswer], asked: int, now: float
    ) -> None:
        """Take what an answer says about partitions. ``asked``: the bytes that the request asked for."""
        failed: dict[type[KafkaError], tuple[KafkaError, set[TopicPartition]]] = {}
        well: list[TopicPartition] = []
        # How long the application has been waiting for records, in seconds.
        waited = now - self.handler.polled_at if self.handler.reading and not self.buffer.parcels else 0.0
        fill, largest, parcels = 0.0, 0, list[FetchedData]()
        leaders = self.metadata.cluster.leaders
        for partition, data in about.items():
            entry = self.subscription.partitions.get(partition)
            sent = broker.session.sent[partition]
            position = entry.position if entry is not None and entry.state is FetchState.FETCHING else None
            if entry is None or position is None or position.offset != sent.offset:
                continue  # assigned away, sought elsewhere or reset while the answer was on its way
            if self.metadata.cluster.incarnations.is_former(partition.topic, sent.topic_id):
                continue  # the topic was made anew meanwhile, and is read from the same offset
            leader = leaders.get(partition)
            if (leader is None or leader.epoch != sent.leader_epoch) and self._is_of_former_leader(entry, sent):
                continue  # the present leader's log may differ: what was checked there says nothing about this answer (KIP-320)
            if data.error_code:
                error = self._partition_failed(entry, data, answer, now)
                if error is not None:
                    failed.setdefault(type(error), (error, set()))[1].add(partition)
            else:
                well.append(partition)
                size = len(data.records or b"")
                fill = max(fill, size / sent.max_bytes)
                if size > sent.max_bytes:
                    largest = max(largest, size)
                self._accept(broker, entry, sent, data, now, parcels)
        if parcels:
            self.buffer.put(*parcels)
        self._learn_size(broker, asked, len(parcels), fill, largest, waited)
        if failed or self._outage.failing:
            self._outage.report(failed.values(), well, now, broker.sent_at)
            self._tell_of_refused([tp for _, partitions in failed.values() for tp in partitions], broker.sent_at, now)

    def _is_of_former_leader(self, entry: PartitionState, sent: Wanted) -> bool:
        leader = self.metadata.cluster.leader(entry.partition)
        if leader is not None:
            return None not in (leader.epoch, sent.leader_epoch) and leader.epoch != sent.leader_epoch
        # The leader that the position was checked at may come back in the same epoch, and then nothing is checked again.
        checked = entry.checked_epoch
        return sent.leader_epoch is not None and checked is not None and sent.leader_epoch < checked

    def _learn_size(self, broker: _Broker, asked: int, brought: int, fill: float, largest: int, waited: float) -> None:
        """Find out from an answer how much a partition should bring in the next one.

        ``brought``: how many partitions have brought records; ``largest``: the largest batch that exceeded what was asked for.
        """
        size, share, wanted = broker.size, broker.share, len(broker.session.wanted)
        if share.bytes >= size.bytes and (fill >= FULL or size.has_grown):
            size.answered(fill, waited, wanted)
        if brought and asked < size.bytes * wanted:
            if largest and share.exceeded(min(largest, size.least)):
                placed = self._placement.placed
                self._placement.changed.update(tp for tp, node_id in placed.items() if node_id == broker.node_id)
            else:
                share.answered(asked, wanted, brought, fill)

    def _accept(
        self,
        broker: _Broker,
        entry: PartitionState,
        sent: Wanted,
        data: PartitionAnswer,
        now: float,
        parcels: list[FetchedData],
    ) -> None:
        """Take what an answer says about a partition; its records are added to ``parcels``."""
        partition = entry.partition
        self.buffer.watermarks[partition] = Watermarks(
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark,
            log_start_offset=data.log_start_offset,
            fetched_at=now,
        )
        if not data.records:
            self.subscription.served(entry)
        if data.preferred_read_replica >= 0 and data.preferred_read_replica != broker.node_id:
            self._redirect(entry, data.preferred_read_replica, now)
        elif entry.replica is not None and entry.replica.node_id == broker.node_id:
            self.subscription.end_redirection(entry)
        if not data.records:
            return
        committed_only = self.config.isolation_level is IsolationLevel.READ_COMMITTED
        aborted = tuple((txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()) if committed_only else ()
        parcel = FetchedData(
            partition=partition,
            stamp=entry.stamp,
            fetch_offset=sent.offset,
            records=data.records,
            aborted=aborted,
            topic_id=sent.topic_id,
        )
        span = measure(data.records, sent.offset)
        epoch = span.leader_epoch
        if epoch is None and entry.position is not None:
            epoch = entry.position.offset_epoch
        self.subscription.advance(
            entry,
            FetchPosition(max(span.next_offset, sent.offset), epoch),
            checked_epoch=sent.leader_epoch,
            suspended=span.corrupt or span.next_offset <= sent.offset,  # the reader reports why, after the good records before it
        )
        parcels.append(parcel)
        self._placement.changed.add(partition)
        size = len(data.records)
        self.trace(Fetched(now=now, topic=partition.topic, partition=partition.partition, size=size, latency=now - broker.sent_at))

    def _redirect(self, entry: PartitionState, replica: int, now: float) -> None:
        """Read from the replica that the broker names (KIP-392).

        The sequence that spins: the leader names a follower that metadata does not list (it has just come back), so the leader is
        asked again, and answers at once. Likewise two brokers that name each other. Hence a second redirection waits, unless the
        replica has answered in between, and an unknown replica makes metadata be requested. The lease begins after that: one
        that is over by then would have the leader asked again, which gives no records.
        """
        is_known, goes_on_at = replica in self.metadata.cluster.nodes, now
        if entry.setbacks.redirected or not is_known:
            goes_on_at += self.config.retry_backoff_max
            self.subscription.delay(entry, goes_on_at)
        if is_known:
            self.subscription.read_from(entry, PreferredReplica(replica, goes_on_at + self._lease))
        else:
            self.metadata.request_update(now)
            self._avoid_replica(entry, replica, goes_on_at)
        self.subscription.count_redirection(entry)

    @property
    def _lease(self) -> float:
        """Seconds for which a replica is read before the leader is asked again."""
        return max(self.config.metadata_max_age_ms / 1000, self.config.retry_backoff)

    def _avoid_replica(self, entry: PartitionState, replica: int, now: float, spent: float = 0.0) -> None:
        """Read from the leader for as long as the failure took (``spent``), or a backoff; twice as long after each that follows.

        Not much longer than half a minute, since a replica may be well again, and what one does says nothing about another. But one
        that hangs takes a request timeout each time, in which nothing is read.

        The sequence that reads nothing for ever, from a leader that is well: it names a replica that it can reach and we cannot,
        and gives no records as long as it knows our rack.
        """
        spent = min(spent, self.config.request_timeout_ms / 1000)  # a process that was suspended has not waited
        setbacks, longest = entry.setbacks, min(self._lease, max(_LONGEST_WITHOUT_REPLICA, 4 * spent))
        failures = setbacks.replica_failures if setbacks.replica == replica else 0
        wait = ExponentialBackoff(max(self.config.retry_backoff, spent), longest).delay(failures, NO_JITTER)
        self.subscription.avoid_replica(entry, replica, now + wait)

    def _partition_failed(
        self, entry: PartitionState, data: PartitionAnswer, answer: Answer, now: float
    ) -> BrokerResponseError | None:
        """Java's ``FetchCollector.handleInitializeErrors``, per error code. Return the error of a partition that fails.

        No error of a broker stops a partition: whatever it is, it may pass, or another broker may not have it.
        """
        error = for_code(data.error_code)
        if isinstance(error, OffsetOutOfRangeError):
            if entry.replica is not None:
                self._avoid_replica(entry, entry.replica.node_id, now)  # the follower may lag: ask the leader before believing it
            else:
                self.positions.out_of_range(entry, now)
            return None
        hint = data.current_leader
        epoch = hint.leader_epoch if hint.leader_epoch >= 0 else None
        endpoints = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints}
        if hint.leader_id >= 0 and self.metadata.update_leader(entry.partition, Leader(hint.leader_id, epoch), endpoints, now):
            return None
        told = self._try_again(entry, error, now)
        if entry.replica is not None:
            self._avoid_replica(entry, entry.replica.node_id, entry.retry_at)
        return told

    def _try_again(self, entry: PartitionState, error: BrokerResponseError, now: float) -> BrokerResponseError:
        delay = retry_delay(self.config, entry.setbacks.failures)
        if isinstance(error, TopicAuthorizationFailedError):
            # Access can be given at any time: keep asking, but not often. With the text of the metadata, so that the error comes
            # once of a topic, and not once for each partition, when access was given back long ago.
            error = for_code(error.errno, topic=entry.partition.topic)
            self.handler.publish_error(error)
            delay = self.config.retry_backoff_max
        elif _is_refusal(error) and entry.setbacks.failures:
            delay = self.config.retry_backoff_max
        self.subscription.delay(entry, now + delay)
        if error.invalid_metadata:
            self.metadata.request_update(now)
        return error

    def _tell_of_refused(self, failed: Collection[TopicPartition], sent_at: float, now: float) -> None:
        """Tell the application, after each request timeout, of those partitions that failed now and that brokers refuse to read.

        What counts is when the request was sent: if the event loop was blocked since, the answer says nothing about that time.
        """
        self._show_refused(now)
        overdue: dict[type[KafkaError], tuple[KafkaError, list[TopicPartition]]] = {}
        for partition in filter(self.buffer.refused.__contains__, failed):
            error, since = self._outage.failing[partition][:2]
            is_to_be_told = error is not None and _is_refusal(error) and not isinstance(error, TopicAuthorizationFailedError)
            if error is not None and is_to_be_told and sent_at - since >= self.config.request_timeout_ms / 1000:
                overdue.setdefault(type(error), (error, []))[1].append(partition)
        for error, partitions in overdue.values():
            self._outage.told(partitions, now)
            self.handler.publish_error(self._naming(error, partitions))

    def _naming(self, error: KafkaError, partitions: list[TopicPartition]) -> KafkaError:
        first = partitions[0]
        text = f"{named(partitions)}: {error.args[0]}"
        if isinstance(error, CorruptRecordException):
            entry = self.subscription.get(first)
            offset = entry.position.offset if entry is not None and entry.position is not None else None
            return CorruptRecordException(text, topic=first.topic, partition=first.partition, offset=offset)
        return for_code(getattr(error, "errno", UnknownError.errno), text)

    def _show_refused(self, now: float) -> None:
        """Keep what the application sees of partitions that fail: what is refused, and what has lasted longer than an election."""
        failing = self._outage.failing.items()
        refused = {partition: error for partition, (error, *_) in failing if error is not None and _is_refusal(error)}
        refused |= self._outage.lasting(now)
        if refused or self.buffer.refused:
            self.buffer.refused = refused


def _is_refusal(error: KafkaError) -> bool:
    """Whether an error is more than a moment of the cluster's life, such as an election. It may pass all the same."""
    return isinstance(error, CorruptRecordException) or not (error.retriable or isinstance(error, UnknownError))
