"""Puts the background together: every part is made here, and given the objects that it talks to.

Java: ``RequestManagers`` and the constructor of ``AsyncKafkaConsumer``.
"""

from typing import TYPE_CHECKING

from ...config import ConsumerConfig
from ...values import evolve
from ..boundary import EventHandler, FetchBuffer
from ..cluster.cluster_reports import ClusterReports
from ..cluster.metadata import MetadataManager
from ..cluster.wanted_topics import WantedTopics
from ..fetch.fetch_manager import FetchManager
from ..positions.list_offsets import ListOffsetsManager
from ..positions.positions import PositionsManager
from ..positions.stopped_ends import StoppedEnds
from ..positions.subscription import SubscriptionState
from ..positions.topic_follower import TopicFollower
from .agenda import Agenda
from .dispatch import Background, Subscriber
from .environment import Environment
from .loop_state import LoopState
from .request_manager import RequestManager

if TYPE_CHECKING:  # imported when they are needed: not every consumer has a group or telemetry
    from ..cluster.telemetry import TelemetryManager
    from ..group.group_managers import GroupManagers


def assemble(config: ConsumerConfig, handler: EventHandler, buffer: FetchBuffer, environment: Environment) -> Background:
    """Return everything that decides, in one object without a clock, a socket or an event loop."""
    loop_state = LoopState(environment.trace)
    environment = evolve(environment, trace=loop_state.trace)
    random, trace = environment.random, environment.trace
    subscription = SubscriptionState()
    wanted_topics = WantedTopics(subscription)
    metadata = MetadataManager(
        config=config, wanted_topics=wanted_topics, network=environment.network, handler=handler, random=random, trace=trace
    )
    list_offsets = ListOffsetsManager(config=config, metadata=metadata, random=random, trace=trace)
    positions = PositionsManager(
        config=config,
        subscription=subscription,
        metadata=metadata,
        list_offsets=list_offsets,
        buffer=buffer,
        handler=handler,
        wall_ms=environment.wall_ms,
        trace=trace,
    )
    fetch = FetchManager(
        config=config,
        subscription=subscription,
        metadata=metadata,
        positions=positions,
        buffer=buffer,
        handler=handler,
        random=random,
        trace=trace,
    )
    ends = StoppedEnds(config, subscription, list_offsets, buffer)
    group = _group(config, handler, buffer, environment, subscription, metadata) if config.group_id is not None else None
    # Whoever asks another manager for something is polled before it, so that the request leaves in the same turn: the group asks
    # for its coordinator, positions for committed offsets and look-ups. Fetch uses what all of them decided. Metadata last: every
    # one of them may find that it needs an update, and polled before them it would sleep over that.
    managers: tuple[RequestManager, ...]
    subscriber: Subscriber
    if group is not None:
        subscriber = group
        positions.stored = group.fetches
        wanted_topics.askers.append(group)
        managers = (group, positions, group.commits, group.fetches, group.coordinator, ends, list_offsets, fetch, metadata)
    else:
        subscriber = follower = TopicFollower(config, metadata.cluster, handler)
        managers = (follower, positions, ends, list_offsets, fetch, metadata)
    wanted_topics.followers.append(subscriber)
    wanted_topics.askers.append(list_offsets)
    subscription.listeners += (positions, fetch, ends)
    metadata.listeners += (positions, list_offsets, fetch)
    telemetry = telemetry_of(config, environment)
    return Background(
        handler=handler,
        buffer=buffer,
        subscription=subscription,
        metadata=metadata,
        list_offsets=list_offsets,
        positions=positions,
        subscriber=subscriber,
        group=group,
        telemetry=telemetry,
        agenda=Agenda(
            managers=(*managers, telemetry) if telemetry is not None else managers,
            fetch=fetch,
            subscription=subscription,
            metadata=metadata,
            network=environment.network,
        ),
        cluster_reports=ClusterReports(config, handler, metadata.cluster, subscription, environment.network, trace, buffer),
        loop_state=loop_state,
        trace=trace,
    )


def _group(
    config: ConsumerConfig,
    handler: EventHandler,
    buffer: FetchBuffer,
    environment: Environment,
    subscription: SubscriptionState,
    metadata: MetadataManager,
) -> "GroupManagers":
    from ..group.group_managers import GroupManagers

    return GroupManagers(
        config=config, handler=handler, subscription=subscription, metadata=metadata, buffer=buffer, environment=environment
    )


def telemetry_of(config: ConsumerConfig, environment: Environment) -> "TelemetryManager | None":
    """Return the manager that pushes metrics; ``None`` without a source of metrics."""
    if environment.metrics_source is None:
        return None
    from ..cluster.telemetry import TelemetryManager

    return TelemetryManager(
        config=config,
        source=environment.metrics_source,
        network=environment.network,
        random=environment.random,
        trace=environment.trace,
    )
