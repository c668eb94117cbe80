"""The rest of the group: a member that takes partitions and gives them back, and what the consumer's member was told of it.

Decides: nothing; the coordinator is the test kit's. Owns: what passed between the coordinator and the consumer's member. Must never
change an answer.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from attrs import define, field

from kafka_async import TopicPartition
from kafka_async.testing import Cluster, Member
from kafka_async.testing.simulation import FakeBroker
from kafka_async.testing.simulation.groups.classic import State
from kafka_async.testing.simulation.waking import Answering
from kafka_async.wire import Api, Response, decode_assignment, decode_subscription
from kafka_async.wire.messages import ConsumerProtocolTopicPartition

GROUP: Final = "g"
BEAT_MS: Final = 3000
_REBALANCING: Final = 27


@define(eq=False)
class Others:
    """The other members of the group ``g``."""

    cluster: Cluster
    taken: frozenset[TopicPartition] = frozenset()
    """Partitions meant for others, who have them as soon as the consumer's member does not."""
    said: frozenset[TopicPartition] = frozenset()
    """Partitions that the consumer's member knows to be for others."""
    settled: int = 0
    """The last generation in which it received its assignment."""
    _away: bool = False
    _reported: frozenset[TopicPartition] = frozenset()
    """What it has in a classic group, as far as the group knows."""
    _member: Member | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.cluster.simulated.group_settings["consumer.heartbeat.interval.ms"] = str(BEAT_MS)
        self._watch(Api.JOIN_GROUP, self._asked_to_join, lambda request, answer: None)
        self._watch(Api.SYNC_GROUP, lambda request: None, self._synced)
        self._watch(Api.HEARTBEAT, lambda request: None, self._beaten)
        self._watch(Api.CONSUMER_GROUP_HEARTBEAT, lambda request: None, self._told)

    # --- what a test does ------------------------------------------------------------------------------------------------------

    def take(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Take these partitions, and only these."""
        before = self.taken
        self.taken, self.said = frozenset(partitions), frozenset()
        if self.taken == before:
            self.cluster.rebalance(GROUP)
        else:
            self._arrange()

    def keep_away(self, away: bool) -> None:
        """Leave the group for as long as the consumer assigns itself partitions: it could not commit beside members."""
        if self._away != away:
            self._away = away
            self._arrange()

    def expel(self) -> None:
        """End the session of the consumer's member, if it has not ended yet."""
        me = self.me
        if me is not None:
            self.cluster.kick(GROUP, me)
        else:
            self.cluster.rebalance(GROUP)

    def _arrange(self) -> None:
        wanted = frozenset() if self._away else self.taken
        if self._member is not None and wanted:
            self._member.take(*wanted)
        elif self._member is not None:
            self._member.leave()
            self._member = None
        elif wanted:
            self._member = self.cluster.join(GROUP, partitions=wanted)

    # --- what the coordinator knows --------------------------------------------------------------------------------------------

    @property
    def me(self) -> str | None:
        """The consumer's member."""
        mine = None if self._member is None else self._member.id
        return next((each for each in self.cluster.members(GROUP) if each != mine), None)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What the consumer's member may read, as far as the group knows."""
        me, groups = self.me, self.cluster.simulated.groups
        if me is None:
            return frozenset()
        if GROUP not in groups.consumer:
            return self._reported
        parts = groups.consumer[GROUP].members[me].assigned | groups.consumer[GROUP].members[me].revoking
        return frozenset(TopicPartition(self.cluster.simulated.name_of(topic_id) or "", index) for topic_id, index in parts)

    @property
    def own(self) -> frozenset[TopicPartition]:
        """The partitions that others have by now."""
        return self.taken - self.owned

    @property
    def joining(self) -> bool:
        """Whether a rebalance is under way for the consumer's member."""
        me, groups = self.me, self.cluster.simulated.groups
        if me is None:
            return True
        if GROUP not in groups.consumer:
            return groups.classic[GROUP].state is not State.STABLE
        return groups.consumer[GROUP].members[me].epoch != groups.consumer[GROUP].epoch

    # --- what passes -----------------------------------------------------------------------------------------------------------

    def _watch(self, api: Api, asked: Callable[[Any], None], answered: Callable[[Any, Any], None]) -> None:
        handlers = self.cluster.simulated.handlers
        honest = handlers[api]

        def handle(broker: FakeBroker, request: Any, version: int, error: int) -> Any:
            asked(request)
            answer = honest(broker, request, version, error)
            if isinstance(answer, Generator):
                return wait(request, answer)
            answered(request, answer)
            return answer

        def wait(request: Any, answer: Answering[Response]) -> Answering[Response]:
            done = yield from answer
            answered(request, done)
            return done

        handlers[api] = handle

    def _asked_to_join(self, request: Any) -> None:
        self._reported = _named(decode_subscription(request.protocols[0].metadata).owned_partitions)

    def _synced(self, request: Any, answer: Any) -> None:
        if not answer.error_code:
            self.said = self.taken
            self.settled = request.generation_id
            self._reported |= _named(decode_assignment(answer.assignment).assigned_partitions)

    def _beaten(self, request: Any, answer: Any) -> None:
        group = self.cluster.simulated.groups.classic.get(GROUP)
        if answer.error_code == _REBALANCING and group is not None and group.protocol != "cooperative-sticky":
            self.said = self.taken

    def _told(self, request: Any, answer: Any) -> None:
        group = self.cluster.simulated.groups.consumer.get(GROUP)
        if not answer.error_code and group is not None and request.member_id in group.members:
            has = group.members[request.member_id].assigned
            self.said = frozenset(tp for tp in self.taken if (self.cluster.simulated.topics[tp.topic].id, tp.partition) not in has)


def _named(topics: Iterable[ConsumerProtocolTopicPartition]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partitions)
