"""Events from the background, sorted for the calls that need them.

None that was under way before the application unsubscribed or assigned again still counts (promise 14).
"""

import threading
from collections import deque
from typing import Any
from uuid import UUID

from ..background.boundary import EventHandler
from ..events import (
    AssignPartitions,
    BackgroundEvent,
    ClusterDescription,
    ClusterReachability,
    ErrorEvent,
    GroupChanged,
    MetadataUpdated,
    RevokePartitions,
    TopicDescription,
)
from ..model import ConsumerState, GroupMetadata, Node
from ..values import define, evolve, field
from .reported import Reported


@define(eq=False)
class _Sorting:
    """Who is processing events."""

    lock: "threading.RLock" = field(factory=threading.RLock)
    by_me: bool = False
    """The thread that holds the lock has begun; a signal handler in it may ask for more."""


@define(eq=False)
class Inbox:
    """What the background has reported, on the application's side."""

    handler: EventHandler[Any] = field(repr=False)
    group: GroupMetadata
    group_state: ConsumerState | None = None
    assigned_once: bool = False
    """The group has given this member an assignment, maybe of no partitions. Never goes back."""
    coordinator: Node | None = None
    cluster: ClusterDescription = field(factory=lambda: ClusterDescription(cluster_id=None, brokers=(), topics={}))
    looked_up: dict[str, TopicDescription] = field(factory=dict)
    """Topics as they were when somebody last asked for them by name; ``cluster`` has what is kept up to date."""
    reachability: ClusterReachability = field(factory=lambda: ClusterReachability(unreachable_since=None, last_answer_at=None))
    reported: Reported = field(factory=Reported)
    proposals: deque[AssignPartitions | RevokePartitions] = field(factory=deque)
    """What the background proposes for the assignment; it waits for a read call."""
    subscription: int = 0
    """How often the application has subscribed, unsubscribed or assigned."""
    valid_from: int = 0
    """The number of the last unsubscribe or assign: proposals that were made before it are void."""
    joins_from: int = -1
    """The number of the first subscription with a group since then. It may wait here for the end of the former one: until the
    background has come to it, what that says of the group is not about this one.
    """
    _sorting: _Sorting = field(factory=_Sorting, init=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """Nothing has to be dealt with before records are read."""
        return not (self.handler.background_events or self.proposals or self.reported)

    @property
    def has_losses(self) -> bool:
        """Whether the background has reported partitions as lost that the application's side has not given up yet."""
        self.sort()
        return any(isinstance(each, RevokePartitions) and each.lost for each in tuple(self.proposals))  # others may sort meanwhile

    def topic(self, name: str) -> TopicDescription | None:
        """Return what is known of a topic."""
        return self.cluster.topics.get(name) or self.looked_up.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic that is subscribed or assigned, as far as the application was told; ``None``: not known."""
        self.sort()
        known = self.cluster.topics.get(name)
        return None if known is None else known.topic_id

    def subscribe(self, *, leaves: bool = False, joins: bool = False) -> int:
        """Count a new subscription or assignment and return its number. ``leaves``: the previous one is void; ``joins``: a group
        divides the partitions.
        """
        with self._sorting.lock:
            self.subscription += 1
            self.sort()
            self.reported.clear()
            if leaves:
                self.valid_from = self.subscription
                self.proposals.clear()
                self.group_state = None
            if joins and self.joins_from < self.valid_from:
                self.joins_from = self.subscription
                self.group_state = ConsumerState.JOINING
        return self.subscription

    def sort(self) -> None:
        """Process the background's events. From any thread: ``state`` and the like may be read by others than the one that reads.

        The sequences that this must not let happen: two threads take an event each, and the older one is processed last, so that an
        older generation is shown from then on; or the thread that reads finds nothing to deal with, since another one has taken a
        revocation and not put it among the proposals yet.
        """
        if not self.handler.background_events:
            return
        with self._sorting.lock:
            if self._sorting.by_me:
                return  # a signal handler asks, in the midst of this
            self._sorting.by_me = True
            try:
                for event in self.handler.drain_background():
                    self._sort(event)
            finally:
                self._sorting.by_me = False

    def _sort(self, event: BackgroundEvent) -> None:
        match event:
            case ErrorEvent():
                if event.subscription >= self.subscription:
                    self.reported.add(event)
            case MetadataUpdated():
                self.cluster = event.cluster
            case ClusterReachability():
                self.reachability = event
            case AssignPartitions() | RevokePartitions():
                again = bool(self.proposals) and self.proposals[-1] is event  # a signal handler has raised before it left the queue
                if event.subscription >= self.valid_from and not again:
                    self.proposals.append(event)
            case GroupChanged():
                self.group = evolve(self.group, member_id=event.member_id, generation_id=event.generation)
                self.coordinator = event.coordinator
                if not event.denied and event.state is not ConsumerState.FATAL:
                    self.reported.final = None  # access was given back
                self.group_state = self._state_in(event)
                is_member = event.generation > 0  # one that has left has nothing to wait for, and is steady, too
                self.assigned_once |= is_member and self.group_state is ConsumerState.STEADY

    def _state_in(self, event: GroupChanged) -> ConsumerState | None:
        if self.joins_from >= self.valid_from:
            return ConsumerState.JOINING if event.subscription < self.joins_from else event.state
        return event.state if event.subscription >= self.valid_from else None
