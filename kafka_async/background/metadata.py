"""Who leads what: the Metadata request manager.

Decides: when to ask the cluster about itself (by age, by need, by error), whom to believe (leader epochs, KIP-320 and
KIP-951; topic ids, KIP-516), and when to give the known brokers up and bootstrap again (KIP-899, KIP-1102). Owns: brokers,
topics and leaders as last heard. Must never connect, resolve names or judge a fetch position: it tells ``on_change`` which
leaders moved and ``on_recreated`` which topics are not the same any more.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Final
from uuid import UUID

from attrs import define, evolve, field, frozen

from ..config import ConsumerConfig
from ..errors import (
    AuthenticationFailedError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    NoBrokersAvailable,
    NodeNotReadyError,
    RebootstrapRequiredError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from ..events import Call, ClusterDescription, PartitionDescription, TopicDescription
from ..model import Node, TopicPartition
from ..network import UnsentRequest
from ..trace import Fault, Listener, Notice
from ..wire.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from .request_manager import Poll, RequestState, backoff_of

_ERROR: Final = {
    "unauthorized": TopicAuthorizationFailedError.errno,
    "invalid": InvalidTopicError.errno,
    "unknown": UnknownTopicOrPartitionError.errno,
}


@frozen
class Leader:
    """Where a partition is led, and in which epoch (``None``: the broker does not say)."""

    node_id: int
    epoch: int | None


@define(eq=False)
class _Lookup:
    """A caller's question about topics; answered by a request that was sent after it was asked."""

    call: Call[ClusterDescription]
    topics: frozenset[str] | None
    create: bool
    fail_fast: bool
    asked: bool = False


@define(eq=False)
class MetadataManager:
    """Keeps the picture of the cluster that every other manager decides by."""

    config: ConsumerConfig
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    followed: Callable[[], frozenset[str] | None] = field(repr=False)
    """The topics that the subscription needs; ``None`` for all of them."""
    asked: Callable[[], frozenset[str]] = field(repr=False)
    """The topics that somebody looks offsets up of; who does so asks for their ``refusal``."""
    has_usable_node: Callable[[float], bool] = field(repr=False)
    """Whether any known broker is connected, connecting, or may be tried now."""
    connection_error: Callable[[], KafkaError | None] = field(repr=False)
    """Why the last attempt to connect failed."""
    on_change: Callable[[frozenset[TopicPartition], float], None] = field(repr=False)
    """Told of partitions whose leader or leader epoch is new."""
    on_recreated: Callable[[str], None] = field(repr=False)
    """Told of topics whose id is another than before."""
    on_error: Callable[[KafkaError], None] = field(repr=False)
    """Told of topics that the subscription needs and may not see."""
    on_lasting_error: Callable[[KafkaError], None] = field(repr=False)
    """Told why the cluster says nothing to us, when another attempt does no better."""

    nodes: Mapping[int, Node] = field(factory=dict)
    """Brokers by id; empty until the first answer and after the decision to bootstrap again."""
    topics: dict[str, TopicDescription] = field(factory=dict)
    leaders: dict[TopicPartition, Leader] = field(factory=dict)
    names: dict[UUID, str] = field(factory=dict)
    cluster_id: str | None = None
    version: int = 0
    """Grows with every change of the picture."""

    _request: RequestState = field(init=False)
    _lookups: list[_Lookup] = field(factory=list, init=False)
    _needed: bool = field(default=True, init=False)
    _has_new_topics: bool = field(default=False, init=False)
    _repeats: int = field(default=0, init=False)
    _needed_since: float | None = field(default=None, init=False)
    _updated_at: float | None = field(default=None, init=False)
    _problems: dict[str, KafkaError] = field(factory=dict, init=False)
    _unknown_since: dict[str, float] = field(factory=dict, init=False)
    _last_ids: dict[str, UUID] = field(factory=dict, init=False)
    """Ids by name. They outlive a topic that is wanted and away, so that a new one of its name is known for what it is."""
    _doubted: dict[TopicPartition, float] = field(factory=dict, init=False)
    """Since when only epochs older than the known one were heard."""
    _last_error: KafkaError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._request = RequestState(backoff_of(self.config, self.random))

    @property
    def wanted(self) -> frozenset[str] | None:
        """The topics that are asked about; ``None`` for all of them."""
        followed = self.followed()
        return None if followed is None else followed | self.asked()

    # --- questions -------------------------------------------------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition if it is known and its address is."""
        leader = self.leaders.get(partition)
        return leader if leader is not None and leader.node_id in self.nodes else None

    def topic_id(self, topic: str) -> UUID | None:
        known = self.topics.get(topic)
        topic_id: UUID | None = known.topic_id if known is not None else None
        return topic_id

    def problem(self, topic: str) -> KafkaError | None:
        """Return why a topic cannot be used at the moment, as far as the cluster said."""
        return self._problems.get(topic) or self._last_error or self._unreachable()

    def refusal(self, topic: str, since: float) -> KafkaError | None:
        """Return what the cluster has said against a topic after ``since``: it is denied, badly named, or there is none."""
        problem = self._problems.get(topic) if self._updated_at is not None and self._updated_at > since else None
        return problem if isinstance(problem, UnknownTopicOrPartitionError) or (problem and not problem.retriable) else None

    def missing(self, partition: TopicPartition) -> KafkaError | None:
        """Return what to say about a partition that its topic, which exists, does not have; ``None`` where it has it."""
        known = self.topics.get(partition.topic)
        if known is None or not known.partitions or partition.partition < len(known.partitions):
            return None
        text = f"topic {partition.topic!r} has no partition {partition.partition}; it has {len(known.partitions)}, from 0 on"
        return UnknownTopicOrPartitionError(text)

    def _unreachable(self) -> KafkaError | None:
        return self.connection_error() if self._updated_at is None else None

    def describe(self) -> ClusterDescription:
        return ClusterDescription(cluster_id=self.cluster_id, brokers=tuple(self.nodes.values()), topics=dict(self.topics))

    def request_update(self, now: float) -> None:
        """Ask the cluster again as soon as the backoff lets it: something that was believed turned out wrong."""
        self._needed = True
        if self._needed_since is None:
            self._needed_since = now

    def need_leader(self, now: float) -> None:
        """Have a leader looked for that is not known; the answer that is under way may name it."""
        if not self._request.in_flight:
            self.request_update(now)

    def request_new_topics(self, now: float) -> None:
        """Ask at once: for topics that were never asked about no backoff runs (Java's ``requestUpdateForNewTopics``)."""
        self.request_update(now)
        self._has_new_topics = True

    def look_up(self, call: Call[ClusterDescription], topics: frozenset[str] | None, *, create: bool, fail_fast: bool) -> None:
        """Answer ``call`` with what the cluster says from now on; with ``fail_fast`` give up when no bootstrap server answers."""
        self._lookups.append(_Lookup(call, topics, create, fail_fast))

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the next Metadata request if one is due."""
        self._maybe_rebootstrap(now)
        self._maybe_give_up(now)
        self._lookups = [lookup for lookup in self._lookups if not lookup.call.done]
        due_at = self._due_at(now)
        if due_at > now or not self._request.may_send(now):
            return Poll(wake_at=max(due_at, self._request.wake_at()))
        self._request.sent()
        soon = self._updated_at is not None and now - self._updated_at <= 2 * self.config.retry_backoff_max
        self._repeats = self._repeats + 1 if self._needed and soon else 0
        self._needed = False
        self._has_new_topics = False
        for lookup in self._lookups:
            lookup.asked = True
        names = self._names()
        create = self.config.allow_auto_create_topics and any(lookup.create for lookup in self._lookups)
        request = MetadataRequest(
            topics=None if names is None else tuple(MetadataRequestTopic(name=name) for name in sorted(names)),
            allow_auto_topic_creation=create,
        )
        return Poll(
            requests=(
                UnsentRequest(
                    message=request,
                    on_done=lambda outcome, at: self._answered(names, outcome, at),
                    expires_at=now + self.config.request_timeout_ms / 1000,
                ),
            )
        )

    def poll_on_close(self, now: float) -> Poll:
        """Metadata has no last words."""
        return Poll()

    def _due_at(self, now: float) -> float:
        """Look-ups are asked at once, an update that is needed again soon waits a backoff, and every picture grows old."""
        if self._updated_at is None or self._has_new_topics or any(not lookup.asked for lookup in self._lookups):
            return now
        if self._needed:  # again and again, as while a partition has no leader: less and less often
            return self._updated_at + self.config.retry_delay(self._repeats)
        return self._updated_at + max(self.config.retry_backoff, self.config.metadata_max_age_ms / 1000)

    def _names(self) -> frozenset[str] | None:
        names = self.wanted
        for lookup in self._lookups:
            if lookup.topics is None:
                return None
            if names is not None:
                names |= lookup.topics
        return names

    def _maybe_rebootstrap(self, now: float) -> None:
        """Forget the brokers when none of them answers any more, so that the bootstrap servers are asked (KIP-899)."""
        if self._needed_since is None or self.config.metadata_recovery_strategy != "rebootstrap" or not self.nodes:
            return  # a broker that fails has its metadata questioned: while nothing does, nothing has failed
        if not self.has_usable_node(now):
            self._rebootstrap(now, "none of the known brokers can be reached")
        elif (
            self._needed_since is not None
            and now - self._needed_since >= self.config.metadata_recovery_rebootstrap_trigger_ms / 1000
        ):
            self._rebootstrap(now, f"no metadata for {now - self._needed_since:.0f} s")

    def _maybe_give_up(self, now: float) -> None:
        """Fail the look-ups that want a fast answer when every bootstrap server was tried and none could be reached."""
        if self._updated_at is not None or self.has_usable_node(now):
            return
        for lookup in self._lookups:
            if lookup.fail_fast:
                lookup.call.fail(self._unable_to_bootstrap())

    def _unable_to_bootstrap(self) -> KafkaError:
        cause = self.connection_error()
        if isinstance(cause, AuthenticationFailedError):  # the same as a request would get that waits for a server
            error: KafkaError = copy(cause)
            error.__cause__ = cause.__cause__
            return error
        servers = ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        error = NoBrokersAvailable(f"Unable to bootstrap from {servers}: {cause}")
        error.__cause__ = cause
        return error

    def _rebootstrap(self, now: float, why: str) -> None:
        self.nodes = {}
        self.version += 1
        self._needed = True
        self._needed_since = now
        self.trace(Fault(now=now, text=f"{why}; asking the bootstrap servers again"))

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, asked: frozenset[str] | None, outcome: object, now: float) -> None:
        if isinstance(outcome, MetadataResponse) and outcome.error_code == 0 and not outcome.brokers:
            outcome = NodeNotReadyError("the broker has just started and knows of no broker")  # as in Java, not to be believed
        if isinstance(outcome, MetadataResponse) and outcome.error_code == 0:
            self._request.succeeded()
            self._last_error = None
            self._updated_at = now
            self._update(asked, outcome, now)
            self._answer_lookups(now)
            self._needed_since = now if self._needed else None
            return
        self._refused(outcome if isinstance(outcome, KafkaError) else for_code(getattr(outcome, "error_code", -1)), now)

    def _refused(self, error: KafkaError, now: float) -> None:
        self._request.failed(now)
        self._last_error = error
        self.request_update(now)
        for lookup in self._lookups:
            lookup.asked = False
            if not error.retriable and not isinstance(error, RebootstrapRequiredError):
                lookup.call.fail(error)
        if isinstance(error, RebootstrapRequiredError) and self.config.metadata_recovery_strategy == "rebootstrap":
            self._rebootstrap(now, "the broker asks for it")
        elif not error.retriable:
            self.on_lasting_error(error)
        else:
            self.trace(Fault(now=now, text="no metadata from the cluster; trying again", error=error))

    def _update(self, asked: frozenset[str] | None, response: MetadataResponse, now: float) -> None:
        self.nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}
        self.cluster_id = response.cluster_id
        changed: set[TopicPartition] = set()
        seen: set[str] = set()
        for topic in response.topics:
            if topic.name is None or (asked is not None and topic.name not in asked):
                continue  # an id must not get the name of a topic that nobody asked about: assignments by id would go by it
            seen.add(topic.name)
            changed |= self._update_topic(topic, now)
        gone = set(self.topics) - seen if asked is None else set(self.topics) - (self.wanted or frozenset(self.topics)) - seen
        for name in gone:
            changed |= self._drop_topic(name)
        kept = (self.wanted or frozenset()) | self.topics.keys()
        self._last_ids = {name: topic_id for name, topic_id in self._last_ids.items() if name in kept}
        self.version += 1
        self._report_problems(now)
        self.on_change(frozenset(changed), now)

    def _update_topic(self, topic: MetadataResponseTopic, now: float) -> set[TopicPartition]:
        name = topic.name or ""
        if topic.error_code not in (0, LeaderNotAvailableError.errno):
            self._problems[name] = for_code(topic.error_code, f"topic {name!r}: {for_code(topic.error_code).description}")
            return self._drop_topic(name) if topic.error_code == _ERROR["unknown"] else set()
        self._problems.pop(name, None)
        if topic.error_code:
            self._problems[name] = for_code(topic.error_code, f"topic {name!r} has no leader yet")
            self.request_update(now)
            if not topic.partitions and name in self.topics:
                return set()  # it says that there is no leader, not that there are no partitions
        before = self._last_ids.get(name)
        recreated = None not in (before, topic.topic_id) and before != topic.topic_id
        if recreated:
            self._drop_topic(name)
        changed: set[TopicPartition] = set()
        partitions = []
        for part in sorted(topic.partitions, key=lambda p: p.partition_index):
            partition = TopicPartition(name, part.partition_index)
            leader = Leader(part.leader_id, part.leader_epoch if part.leader_epoch >= 0 else None)
            if part.leader_id < 0:
                self.request_update(now)
            if self._believe(partition, leader, now):
                changed.add(partition)
            known = self.leaders.get(partition, leader)
            partitions.append(
                PartitionDescription(
                    partition=part.partition_index,
                    leader=known.node_id if known.node_id >= 0 else None,
                    leader_epoch=known.epoch,
                    replicas=part.replica_nodes,
                    isr=part.isr_nodes,
                )
            )
        topic_id = topic.topic_id
        self.topics[name] = TopicDescription(name=name, topic_id=topic_id, internal=topic.is_internal, partitions=tuple(partitions))
        if topic_id is not None:
            self.names[topic_id] = name
            self._last_ids[name] = topic_id
        if recreated:
            self.trace(Notice(now=now, text=f"topic {name!r} was deleted and created again (its id changed)"))
            self.on_recreated(name)
        return changed

    def _believe(self, partition: TopicPartition, leader: Leader, now: float) -> bool:
        """Take a leader over unless its epoch is older than the known one: brokers learn of elections at different times.

        When for a whole request timeout nobody has said anything but an older one, then what was known was wrong: a broker's error,
        or a cluster that was set up anew. Holding on to it would be waiting for ever for an epoch that nobody knows.
        """
        known = self.leaders.get(partition)
        older = known is not None and known.epoch is not None and leader.epoch is not None and leader.epoch < known.epoch
        if older and now - self._doubted.setdefault(partition, now) < self.config.request_timeout_ms / 1000:
            return False
        self._doubted.pop(partition, None)
        self.leaders[partition] = leader
        return known != leader

    def _drop_topic(self, name: str) -> set[TopicPartition]:
        known = self.topics.pop(name, None)
        if known is None:
            return set()
        if known.topic_id is not None:
            self.names.pop(known.topic_id, None)
        dropped = {TopicPartition(name, part.partition) for part in known.partitions}
        for partition in dropped:
            self.leaders.pop(partition, None)
            self._doubted.pop(partition, None)
        return dropped

    def _report_problems(self, now: float) -> None:
        """Bring what the subscription cannot have to the caller, and keep asking: access can be given, a topic created."""
        wanted = self.wanted
        concerned = {name: e for name, e in self._problems.items() if wanted is not None and name in wanted}
        self._problems = {name: error for name, error in self._problems.items() if name in concerned or self._is_asked(name)}
        if concerned:
            self.request_update(now)
        followed = self.followed()
        concerned = {name: error for name, error in concerned.items() if followed is not None and name in followed}
        for error_type in (TopicAuthorizationFailedError, InvalidTopicError):
            names = sorted(name for name, error in concerned.items() if isinstance(error, error_type))
            if names:
                self.on_error(error_type(f"topics {', '.join(map(repr, names))}: {error_type.description}"))
        self._report_unknown({name for name, error in concerned.items() if isinstance(error, UnknownTopicOrPartitionError)}, now)

    def _report_unknown(self, unknown: set[str], now: float) -> None:
        """A topic that does not exist may be on its way; after a request timeout the caller is told, and again after each."""
        self._unknown_since = {name: self._unknown_since.get(name, now) for name in unknown}
        if unknown:
            self.trace(Fault(now=now, text=f"topics {', '.join(map(repr, sorted(unknown)))} do not exist; asking again"))
        for name, since in self._unknown_since.items():
            if now - since >= self.config.request_timeout_ms / 1000:
                self._unknown_since[name] = now
                self.on_error(UnknownTopicOrPartitionError(f"topic {name!r} does not exist"))

    def _is_asked(self, name: str) -> bool:
        return any(lookup.topics is not None and name in lookup.topics for lookup in self._lookups)

    def _answer_lookups(self, now: float) -> None:
        waiting = []
        for lookup in self._lookups:
            if not lookup.asked:
                waiting.append(lookup)
                continue
            problems = {name: self._problems[name] for name in lookup.topics or () if name in self._problems}
            refused = [e for e in problems.values() if not e.retriable]
            if refused:
                lookup.call.fail(refused[0])
            elif any(isinstance(error, LeaderNotAvailableError) for error in problems.values()):
                waiting.append(lookup)  # the update that is needed anyway, after its backoff, answers it
            else:
                lookup.call.resolve(self._describe_for(lookup.topics))
        self._lookups = waiting

    def _describe_for(self, topics: Iterable[str] | None) -> ClusterDescription:
        whole = self.describe()
        if topics is None:
            return whole
        return evolve(whole, topics={name: whole.topics[name] for name in topics if name in whole.topics})

    # --- hints -----------------------------------------------------------------------------------------------------------------

    def hear_leader(self, partition: TopicPartition, leader: Leader, endpoints: Mapping[int, Node], now: float) -> bool:
        """Take over a leader that an error response named (KIP-951). Return whether it is newer than what was known."""
        known = self.leaders.get(partition)
        if known is None or leader.epoch is None or (known.epoch is not None and leader.epoch <= known.epoch):
            return False
        if leader.node_id not in self.nodes and leader.node_id not in endpoints:
            return False
        self.nodes = {**self.nodes, **{node_id: endpoints[node_id] for node_id in endpoints if node_id == leader.node_id}}
        self.leaders[partition] = leader
        self.version += 1
        self.on_change(frozenset((partition,)), now)
        return True
