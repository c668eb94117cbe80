"""Asking the cluster about itself: the Metadata request manager.

It also decides when to give the known brokers up and bootstrap again (KIP-899, KIP-1102).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, Protocol
from uuid import UUID

from ...config import ConsumerConfig
from ...errors import (
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    NameResolutionError,
    NodeNotReadyError,
    RebootstrapRequiredError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from ...events import Call, ClusterDescription, TopicDescription
from ...model import Node, TopicPartition
from ...network import UnsentRequest, unable_to_bootstrap
from ...trace import Fault, Listener, Notice, Recovered
from ...values import define, field
from ...wire.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ..boundary import EventHandler
from ..loop.environment import Network
from ..loop.request_manager import NEVER, Poll, RequestState, backoff_of
from .cluster_view import ClusterChanges, ClusterView, Leader
from .metadata_schedule import MetadataSchedule
from .wanted_topics import WantedTopics

_METADATA: Final = "metadata"
"""Outage while no broker answers Metadata requests."""


class ClusterListener(Protocol):
    """Acts on changes of the cluster."""

    def cluster_changed(self, changes: ClusterChanges, now: float) -> None: ...


@define(eq=False)
class _Lookup:
    """A caller's look-up of topics; answered by a request that was sent after the look-up was made."""

    call: Call[ClusterDescription]
    topics: frozenset[str] | None
    create: bool
    fail_fast: bool
    sent: bool = False


@define(eq=False)
class _Problems:
    """The errors of topics, and since when followed topics do not exist or no bootstrap server's name is resolved."""

    by_topic: dict[str, KafkaError] = field(factory=dict)
    unknown_since: dict[str, float] = field(factory=dict)
    unresolved_since: float | None = None

    def note(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or ""
        if not topic.error_code:
            self.by_topic.pop(name, None)
        elif topic.error_code == LeaderNotAvailableError.errno:
            self.by_topic[name] = for_code(topic.error_code, f"topic {name!r} has no leader yet")
        else:
            self.by_topic[name] = for_code(topic.error_code, f"topic {name!r}: {for_code(topic.error_code).description}")


@define(eq=False)
class MetadataManager:
    """Keeps ``ClusterView`` up to date."""

    config: ConsumerConfig
    wanted_topics: WantedTopics = field(repr=False)
    network: Network = field(repr=False)
    handler: EventHandler[Any] = field(repr=False)
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    listeners: list[ClusterListener] = field(factory=list, repr=False)
    """Notified of changes in this order."""
    cluster: ClusterView = field(init=False)
    schedule: MetadataSchedule = field(init=False)
    _request: RequestState = field(init=False)
    _lookups: list[_Lookup] = field(factory=list, init=False)
    _offered: frozenset[str] = field(default=frozenset(), init=False)
    """Followed topics that the cluster has been allowed to create once; one that is deleted later stays deleted."""
    _problems: _Problems = field(factory=_Problems, init=False)
    _last_error: KafkaError | None = field(default=None, init=False)
    _misled_at: float = field(default=-NEVER, init=False)
    """When an address that leads elsewhere last had us bootstrap again."""

    def __attrs_post_init__(self) -> None:
        self.cluster = ClusterView(self.config.request_timeout_ms / 1000)
        self.schedule = MetadataSchedule(self.config)
        self._request = RequestState(backoff_of(self.config, self.random))

    # --- the picture, as the group's managers know it ----------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, Node]:
        """See ``ClusterView``."""
        return self.cluster.nodes

    @property
    def topics(self) -> Mapping[str, TopicDescription]:
        """See ``ClusterView``."""
        return self.cluster.topics

    @property
    def names(self) -> Mapping[UUID, str]:
        """See ``ClusterView``."""
        return self.cluster.names

    @property
    def version(self) -> int:
        """See ``ClusterView``."""
        return self.cluster.version

    @property
    def covers_all(self) -> bool:
        """See ``ClusterView``."""
        return self.cluster.covers_all

    @property
    def expected_cluster(self) -> str | None:
        """The id of the cluster that brokers must be of; ``None`` if they need not: then a cluster made anew is taken as it is."""
        checked = self._rebootstraps and self.config.metadata_cluster_check_enable
        return self.cluster.cluster_id if checked else None

    @property
    def _rebootstraps(self) -> bool:
        return self.config.metadata_recovery_strategy == "rebootstrap"

    @property
    def is_out_of_reach(self) -> bool:
        """No broker can be reached."""
        return self.network.unreachable_since is not None

    def topic_id(self, topic: str) -> UUID | None:
        """See ``ClusterView``."""
        return self.cluster.topic_id(topic)

    def answered_since(self, moment: float) -> bool:
        """Whether the picture is from an answer that came after ``moment``."""
        return self.schedule.updated_at is not None and self.schedule.updated_at > moment

    # --- questions -------------------------------------------------------------------------------------------------------------

    def problem(self, topic: str) -> KafkaError | None:
        """Return why a topic cannot be used at the moment, as far as is known."""
        return self._problems.by_topic.get(topic) or self._last_error or self._unreachable()

    def problem_with(self, topics: frozenset[str]) -> KafkaError | None:
        """Return why one of ``topics``, or the cluster, is not known yet; the first reason there is."""
        problems = (self.problem(topic) for topic in (*sorted(topics), ""))
        return next((problem for problem in problems if problem is not None), None)

    def refusal(self, topic: str, since: float) -> KafkaError | None:
        """Return the error that the cluster gave for a topic after ``since``: it is denied, invalid, or does not exist."""
        updated_at = self.schedule.updated_at
        problem = self._problems.by_topic.get(topic) if updated_at is not None and updated_at > since else None
        return problem if isinstance(problem, UnknownTopicOrPartitionError) or (problem and not problem.retriable) else None

    def _unreachable(self) -> KafkaError | None:
        return self.network.problem() if self.schedule.updated_at is None else None

    def request_update(self, now: float) -> None:
        """Ask the cluster again as soon as the backoff allows: something that was known turned out wrong."""
        self.schedule.need(now)

    def need_leader(self, now: float) -> None:
        """Request metadata for a leader that is not known; the answer that is under way may name it."""
        if not self._request.in_flight:
            self.request_update(now)

    def request_new_topics(self, now: float) -> None:
        """Ask at once: for topics that were never asked about no backoff runs (Java's ``requestUpdateForNewTopics``).

        Those that never existed may be created, as far as ``allow_auto_create_topics`` and the broker let it.
        """
        self._request_at_once(now)
        self._offered = frozenset()

    def request_missing(self, topics: Set[str], now: float) -> None:
        """Ask at once if one of ``topics``, which a caller has just named, is not known; it is not created."""
        if not topics <= self.cluster.topics.keys():
            self._request_at_once(now)

    def _request_at_once(self, now: float) -> None:
        self.request_update(now)
        self.schedule.new_topics = True

    def look_up(self, call: Call[ClusterDescription], topics: frozenset[str] | None, *, create: bool, fail_fast: bool) -> None:
        """Answer ``call`` with metadata requested from now on; with ``fail_fast`` give up when no bootstrap server answers."""
        self._lookups.append(_Lookup(call, topics, create, fail_fast))

    # --- the conversation ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        """Return the next Metadata request if one is due."""
        self._maybe_rebootstrap(now)
        self._maybe_give_up(now)
        if self._lookups:
            self._lookups = [lookup for lookup in self._lookups if not lookup.call.done]
        unsent = self._lookups and any(not lookup.sent for lookup in self._lookups)
        due_at = now if unsent else self.schedule.due_at(now)
        if due_at > now or not self._request.may_send(now):
            return Poll(wake_at=min(max(due_at, self._request.wake_at()), self._rebootstraps_at()))
        self._request.sent()
        self.schedule.request_sent(now)
        creatable = self._creatable()
        names = self._names_with(creatable) if creatable else self._names()
        for lookup in self._lookups:
            lookup.sent = lookup.sent or names is None or (lookup.topics is not None and lookup.topics <= names)
        request = MetadataRequest(
            topics=None if names is None else tuple(MetadataRequestTopic(name=name) for name in sorted(names)),
            allow_auto_topic_creation=bool(creatable),
        )
        return Poll(
            requests=(
                UnsentRequest(
                    message=request,
                    on_done=lambda outcome, at: self._answered(names, creatable, outcome, at),
                    expires_at=now + self.config.request_timeout_ms / 1000,
                ),
            ),
            wake_at=self._rebootstraps_at(),
        )

    def poll_on_close(self, now: float) -> Poll:
        """Metadata sends nothing when the consumer stops."""
        return Poll()

    def _names(self) -> frozenset[str] | None:
        names = self.wanted_topics.wanted
        for lookup in self._lookups:
            if lookup.topics is None:
                return None
            if names is not None:
                names |= lookup.topics
        return names

    def _creatable(self) -> frozenset[str]:
        """Return the topics that the cluster may create: followed ones that never existed, and those that a caller wants
        created.
        """
        if not self.config.allow_auto_create_topics:
            return frozenset()
        followed = frozenset(name for name in self.wanted_topics.followed or () if not self.cluster.has_known(name)) - self._offered
        asked = (lookup.topics - self.cluster.topics.keys() for lookup in self._lookups if lookup.create and lookup.topics)
        return followed.union(*asked)

    def _names_with(self, creatable: frozenset[str]) -> frozenset[str]:
        """Return the topics of a request that may create them: none that is only looked up, and none that was deleted."""
        named = frozenset().union(
            self.wanted_topics.wanted or (), *(lookup.topics or () for lookup in self._lookups if lookup.create)
        )
        return creatable | frozenset(name for name in named if name in self.cluster.topics)

    def _rebootstraps_at(self) -> float:
        """Return when metadata has been requested in vain for too long; ``NEVER`` if that does not count."""
        since = self.schedule.asked_since
        if since is None or not self._may_rebootstrap:
            return NEVER
        return since + self.config.metadata_recovery_rebootstrap_trigger_ms / 1000

    @property
    def _may_rebootstrap(self) -> bool:
        """A failing broker makes metadata needed; while they are not needed, nothing has failed."""
        return self._rebootstraps and bool(self.cluster.nodes) and self.schedule.needed_since is not None

    def _maybe_rebootstrap(self, now: float) -> None:
        """Forget the brokers when none of them answers any more, so that the bootstrap servers are asked (KIP-899)."""
        misrouted = self.network.take_misrouted()
        if misrouted is not None and self.cluster.nodes and now >= self._misled_at + self.config.request_timeout_ms / 1000:
            self._misled_at = now  # not for each attempt: brokers that are found as before are led to as before
            self._rebootstrap(now, str(misrouted), misled=True)
        if self._may_rebootstrap and not self.network.has_usable_node(now):
            self._rebootstrap(now, "none of the known brokers can be reached")
        elif self._rebootstraps_at() <= now:
            self._rebootstrap(now, f"no metadata for {now - (self.schedule.asked_since or now):.0f} s")

    def _maybe_give_up(self, now: float) -> None:
        """Fail the look-ups that want a fast answer when every bootstrap server was tried and none could be reached."""
        if self.schedule.updated_at is not None or self.network.has_usable_node(now):
            return
        problems = self.network.problems()
        if self._may_resolve(problems, now):
            return
        for lookup in self._lookups:
            if lookup.fail_fast:
                lookup.call.fail(unable_to_bootstrap(self.config, problems))

    def _may_resolve(self, problems: Sequence[KafkaError], now: float) -> bool:
        """Whether only names are missing, which may come within ``bootstrap_resolve_timeout_ms`` (KIP-909)."""
        if not problems or not all(isinstance(problem, NameResolutionError) for problem in problems):
            return False
        if self._problems.unresolved_since is None:
            self._problems.unresolved_since = now
        return now < self._problems.unresolved_since + self.config.bootstrap_resolve_timeout_ms / 1000

    def _rebootstrap(self, now: float, why: str, *, misled: bool = False) -> None:
        self.cluster.forget_brokers(misled=misled)
        self.schedule.need_since(now)
        self.trace(Fault(now=now, text=f"{why}; asking the bootstrap servers again", subject="network"))

    # --- answers ---------------------------------------------------------------------------------------------------------------

    def _answered(self, asked: frozenset[str] | None, offered: frozenset[str], outcome: object, now: float) -> None:
        if isinstance(outcome, MetadataResponse) and outcome.error_code == 0 and not outcome.brokers:
            outcome = NodeNotReadyError("the broker has just started and knows of no broker")  # as in Java, not to be believed
        if not isinstance(outcome, MetadataResponse) or outcome.error_code:
            self._refused(outcome if isinstance(outcome, KafkaError) else for_code(getattr(outcome, "error_code", -1)), now)
            return
        self._request.succeeded()
        if self._last_error is not None:
            self.trace(Recovered(now=now, outage=_METADATA, subject="network"))
        self._last_error = None
        self._offered |= offered
        self.schedule.answered(now)
        self._take_over(asked, outcome, now)
        self._answer_lookups(now)
        self.schedule.settled(now)

    def _refused(self, error: KafkaError, now: float) -> None:
        self._request.failed(now)
        self._last_error = error
        self.request_update(now)
        for lookup in self._lookups:
            lookup.sent = False
            if not error.retriable and not isinstance(error, RebootstrapRequiredError):
                lookup.call.fail(error)
        if isinstance(error, RebootstrapRequiredError) and self._rebootstraps:
            self._rebootstrap(now, "the broker asks for it", misled=True)
        elif not error.retriable:
            self.handler.publish_error(error, to_all=True)
        else:
            self.trace(
                Fault(now=now, text="no metadata from the cluster; trying again", error=error, subject="network", outage=_METADATA)
            )

    def _take_over(self, asked: frozenset[str] | None, response: MetadataResponse, now: float) -> None:
        before, wanted = self.cluster.cluster_id, self.wanted_topics.wanted
        if asked is not None and (wanted is None or not wanted <= asked):  # a request that may create leaves out what it must not
            self.request_update(now)
        changes = self.cluster.update(response, asked, wanted, now, assigned=self.wanted_topics.assigned)
        if before is not None and self.cluster.cluster_id != before:
            text = f"the bootstrap servers lead to another cluster, {self.cluster.cluster_id!r}; it was {before!r} before"
            self.trace(Fault(now=now, text=f"{text}: its topics are others, whatever their names", subject="network"))
        for topic in response.topics:
            if topic.name is None or (asked is not None and topic.name not in asked):
                continue
            self._problems.note(topic)
            if topic.error_code == LeaderNotAvailableError.errno or any(part.leader_id < 0 for part in topic.partitions):
                self.request_update(now)
        if changes.outdated:
            self.request_update(now)
        for name in sorted(changes.recreated):
            self.trace(Notice(now=now, text=f"topic {name!r} was deleted and created again (its id changed)", subject="network"))
        self._report_problems(now)
        self._publish(changes, now)

    def _publish(self, changes: ClusterChanges, now: float) -> None:
        for listener in self.listeners:
            listener.cluster_changed(changes, now)

    def _report_problems(self, now: float) -> None:
        """Report topics that the subscription cannot use to the caller, and keep asking: access may be granted, a topic created."""
        problems, wanted = self._problems.by_topic, self.wanted_topics.wanted
        concerned = {name: error for name, error in problems.items() if wanted is not None and name in wanted}
        self._problems.by_topic = {name: e for name, e in problems.items() if name in concerned or self._is_looked_up(name)}
        if concerned:
            self.request_update(now)
        followed = self.wanted_topics.followed
        concerned = {name: error for name, error in concerned.items() if followed is not None and name in followed}
        for error_type in (TopicAuthorizationFailedError, InvalidTopicError):
            names = sorted(name for name, error in concerned.items() if isinstance(error, error_type))
            if error_type is TopicAuthorizationFailedError:
                self.handler.denied = frozenset(names)
            if names:
                self.handler.publish_error(error_type(f"topics {', '.join(map(repr, names))}: {error_type.description}"))
        self._report_unknown({name for name, error in concerned.items() if isinstance(error, UnknownTopicOrPartitionError)}, now)

    def _report_unknown(self, unknown: set[str], now: float) -> None:
        """A topic that does not exist may be about to appear; the caller gets an error after each request timeout."""
        before = self._problems.unknown_since
        since = self._problems.unknown_since = {name: before.get(name, now) for name in unknown}
        for name in sorted(before.keys() - unknown):
            if name in self.topics:
                self.trace(Recovered(now=now, outage=f"topic {name!r}", subject="network"))
        for name in sorted(unknown):
            text = f"topic {name!r} does not exist; asking again"
            self.trace(Fault(now=now, text=text, subject="network", outage=f"topic {name!r}"))
            if now - since[name] >= self.config.request_timeout_ms / 1000:
                since[name] = now
                self.handler.publish_error(UnknownTopicOrPartitionError(f"topic {name!r} does not exist"))

    def _is_looked_up(self, name: str) -> bool:
        return any(lookup.topics is not None and name in lookup.topics for lookup in self._lookups)

    def _answer_lookups(self, now: float) -> None:
        waiting = []
        for lookup in self._lookups:
            if not lookup.sent:
                waiting.append(lookup)
                continue
            known = self._problems.by_topic
            problems = [known[name] for name in lookup.topics or () if name in known]
            refused = [error for error in problems if not error.retriable]
            if refused:
                lookup.call.fail(refused[0])
            elif any(isinstance(error, LeaderNotAvailableError) for error in problems):
                waiting.append(lookup)
                self.request_update(now)  # also if this answer was about other topics; the backoff applies
            else:
                lookup.call.resolve(self.cluster.describe(lookup.topics))
        self._lookups = waiting

    # --- hints -----------------------------------------------------------------------------------------------------------------

    def update_leader(self, partition: TopicPartition, leader: Leader, endpoints: Mapping[int, Node], now: float) -> bool:
        """Take over a leader that an error response named (KIP-951). Return whether it is newer than what was known."""
        newer = self.cluster.update_leader(partition, leader, endpoints)
        if newer:
            self._publish(ClusterChanges(frozenset((partition,))), now)
        return newer

    def see_epoch(self, partition: TopicPartition, epoch: int | None, now: float) -> None:
        """Remember a leader epoch from another source; if it is newer than the known one, request metadata."""
        if self.cluster.see_epoch(partition, epoch, now):
            self.request_update(now)
