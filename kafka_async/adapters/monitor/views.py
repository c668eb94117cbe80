"""What a monitor shows of a cluster, as values: groups, their partitions and members, brokers.

What is not known is ``None``, and never 0.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen

from ...model import TopicPartition
from .status import Status, worst
from .times import Age, Certainty
from .window import GAP

TOO_OLD: Final = "too old to tell"
_LONG: Final = 5.0
"""Seconds that a poll may take, however short the interval is: each broker that does not answer is waited for."""


@frozen(kw_only=True)
class PartitionView:
    """A partition of a group."""

    partition: TopicPartition
    status: Status
    note: str
    lag: int | None
    committed: int | None
    """Of a share group the first offset that is not done."""
    end: int | None
    start: int | None
    age: Age | None
    """How long ago the first record that is not done was appended."""
    owner: str | None
    """``client@host`` of the member that has it; of a share group all of them."""
    unmoved: float | None
    """Seconds in which nothing was committed."""
    in_rate: float | None
    out_rate: float | None
    lost: int
    """Records that were deleted before they were read."""
    retention_in: float | None
    """Seconds until the log's start reaches what is not read yet."""
    taken_at: float | None
    """When its numbers were told, on the clock of the polls; ``None``: never."""

    @property
    def clear_in(self) -> float | None:
        """Seconds until it will have caught up at the speeds of now; infinite if it will not, ``None`` if that is not known."""
        if self.lag is None or self.in_rate is None or self.out_rate is None:
            return None
        if not self.lag:
            return 0.0
        gain = self.out_rate - self.in_rate
        return self.lag / gain if gain > 0 else float("inf")

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "status": self.status.value,
            "note": self.note or None,
            "lag": self.lag,
            "lag_seconds": _seconds(self.age),
            "lag_seconds_over": _over(self.age),
            "committed": self.committed,
            "end": self.end,
            "start": self.start,
            "owner": self.owner,
            "unmoved_seconds": _rounded(self.unmoved),
            "in_rate": _rounded(self.in_rate),
            "out_rate": _rounded(self.out_rate),
            "lost": self.lost,
            "retention_in": _rounded(self.retention_in),
        }

    def without_numbers(self) -> "PartitionView":
        """Return it once its numbers are too old to be those of now."""
        return evolve(
            self,
            status=Status.UNKNOWN,
            note=self.note if self.status is Status.UNKNOWN else TOO_OLD,
            lag=None,
            committed=None,
            end=None,
            start=None,
            age=None,
            unmoved=None,
            in_rate=None,
            out_rate=None,
            retention_in=None,
        )


@frozen(kw_only=True)
class MemberView:
    """A member of a group."""

    member_id: str
    owner: str
    """``client@host``."""
    partitions: tuple[TopicPartition, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names."""
        return {
            "member_id": self.member_id,
            "owner": self.owner,
            "partitions": [partition._asdict() for partition in self.partitions],
        }


@frozen
class Heard:
    """When brokers last told of a group, on the clock of the polls."""

    listed_at: float
    """Its state."""
    members_at: float | None = None
    """Its members; ``None``: never."""


@frozen(kw_only=True)
class GroupView:
    """A group."""

    name: str
    kind: str
    """``classic``, ``consumer``, ``share``, ``streams``; empty if the broker is too old to tell."""
    state: str
    status: Status
    notes: tuple[str, ...]
    members: tuple[MemberView, ...] | None
    """``None``: not known."""
    partitions: tuple[PartitionView, ...]
    lag: int | None
    """The sum of what is known; ``None`` if nothing is."""
    complete: bool
    """Whether that is the lag of all partitions."""
    rebalances: int
    """How many were seen."""
    rebalances_hour: int
    """How many of them in the last hour."""
    taken_at: float | None
    """When a broker last told how far it is, on the clock of the polls; ``None``: never."""
    heard: Heard
    now: float
    """When this was put together, on the same clock."""
    history: tuple[int, ...] = ()
    """The lag of the last polls."""

    @property
    def age_seconds(self) -> float | None:
        """How old the values are."""
        return self.now - self.taken_at if self.taken_at is not None else None

    @property
    def age(self) -> Age | None:
        """How long ago the oldest record that is not done was appended; ``None`` if that is known of no partition with lag.

        It is at least that long while it is not known of some partition.
        """
        ages = [part.age for part in self.partitions if part.age is not None and part.lag is not None]
        oldest = max(ages, key=lambda age: age.seconds, default=None)
        if oldest is None or (self.complete and len(ages) == len(self.partitions)):
            return oldest
        return evolve(oldest, certainty=Certainty.OVER) if oldest.seconds else None

    @property
    def in_rate(self) -> float | None:
        """Records a second that come."""
        return _sum(part.in_rate for part in self.partitions)

    @property
    def out_rate(self) -> float | None:
        """Records a second that are done."""
        return _sum(part.out_rate for part in self.partitions)

    @property
    def clear_in(self) -> float | None:
        """Seconds until the last partition will have caught up; infinite if one will not, ``None`` if that is not known."""
        if self.lag == 0 and self.complete:
            return 0.0
        times = [part.clear_in for part in self.partitions if part.lag]
        return max((time for time in times if time is not None), default=None) if None not in times else None

    @property
    def worst(self) -> PartitionView | None:
        """The partition to look at first."""
        return max(self.partitions, key=_trouble, default=None)

    @property
    def retention_in(self) -> float | None:
        """Seconds until records are deleted before they are read; ``None`` if nothing speaks for it."""
        return min((part.retention_in for part in self.partitions if part.retention_in is not None), default=None)

    @property
    def trouble(self) -> tuple[int, float, int]:
        """What groups are sorted by, the worst last: the status, how far behind in time, and in records."""
        return self.status.severity, self.age.seconds if self.age is not None else 0.0, self.lag or 0

    def known(self, oldest: float) -> "GroupView":
        """Return what was known of it then: what nobody had told for more than ``oldest`` seconds was not.

        For programs. People see the old values beside the status; a program takes a lag of 0 for one, and ends an alert.
        """
        late = self._is_late(self.taken_at, oldest)
        old = [late or self._is_late(part.taken_at, oldest) for part in self.partitions]
        nobody = self._is_late(self.heard.members_at, oldest)
        parts = [part.without_numbers() if is_old else part for part, is_old in zip(self.partitions, old, strict=True)]
        parts = [evolve(part, owner=None) for part in parts] if nobody else parts
        lags = [part.lag for part in parts if part.lag is not None]
        told = TOO_OLD in self.notes or self.taken_at is None
        return evolve(
            self,
            state="" if self._is_late(self.heard.listed_at, oldest) else self.state,
            status=Status.UNKNOWN if late else worst((self.status, Status.UNKNOWN)) if any(old) else self.status,
            notes=(*self.notes, TOO_OLD) if late and not told else self.notes,
            members=None if nobody else self.members,
            partitions=tuple(parts),
            lag=self.lag if not any(old) else sum(lags) if lags else None,
            complete=self.complete and not any(old),
        )

    def _is_late(self, at: float | None, oldest: float) -> bool:
        return at is None or self.now - at > oldest

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names, for programs. ``clear_in`` is ``null`` if it is not known, and if it is never.

        ``clears`` tells these apart: true, false, or ``null`` if that is not known.
        """
        clear = self.clear_in
        worst = self.worst
        return {
            "group": self.name,
            "type": self.kind or None,
            "state": self.state or None,
            "status": self.status.value,
            "notes": list(self.notes),
            "lag": self.lag,
            "lag_complete": self.complete,
            "lag_seconds": _seconds(self.age),
            "lag_seconds_over": _over(self.age),
            "lag_seconds_about": self.age is not None and self.age.certainty is Certainty.ABOUT,
            "in_rate": _rounded(self.in_rate),
            "out_rate": _rounded(self.out_rate),
            "clear_in": _rounded(clear) if clear != float("inf") else None,
            "clears": None if clear is None else clear != float("inf"),
            "members": len(self.members) if self.members is not None else None,
            "member_list": [member.as_json() for member in self.members or ()],
            "worst": str(worst.partition) if worst is not None else None,
            "retention_in": _rounded(self.retention_in),
            "rebalances": self.rebalances,
            "rebalances_hour": self.rebalances_hour,
            "partitions": [part.as_json() for part in self.partitions],
            "age_seconds": _rounded(self.age_seconds),
        }


@frozen(kw_only=True)
class BrokerView:
    """A broker."""

    node_id: int
    address: str
    rack: str | None
    leads: int
    """Partitions that it leads."""
    age_seconds: float | None
    """Since when it has not answered; 0 if it did in the last poll, ``None``: it never has."""
    note: str = ""
    """What it answers in place of what was asked."""
    asked: bool = True
    """It was asked in the last poll: if groups are named, only their coordinators are."""

    def as_json(self, *, told: bool = True) -> dict[str, Any]:
        """Return the values under their names. ``told``: what it leads is."""
        return {
            "id": self.node_id,
            "address": self.address,
            "rack": self.rack,
            "leads": self.leads if told else None,
            "age_seconds": _rounded(self.age_seconds),
            "note": self.note or None,
            "asked": self.asked,
        }


@frozen(kw_only=True)
class ClusterOverview:
    """The cluster."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerView, ...]
    leaderless: tuple[TopicPartition, ...]
    """Partitions without a leader: nobody reads or writes them."""
    under_replicated: tuple[TopicPartition, ...]
    """Partitions some of whose replicas are behind or down."""
    overdue: float = 0.0
    """Seconds for which no broker has told it, although they are asked."""
    told: bool = True
    """Whether it is what is so now. Otherwise it was, and nobody tells any more."""

    def known(self, oldest: float) -> "ClusterOverview":
        """Return what was known of it then: what nobody had told for more than ``oldest`` seconds was not."""
        return evolve(self, told=self.overdue <= oldest)

    @property
    def skew(self) -> float | None:
        """How many times as many partitions as on average the busiest broker leads; ``None`` without brokers or partitions."""
        leads = [broker.leads for broker in self.brokers]
        return max(leads) * len(leads) / sum(leads) if sum(leads) else None

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names."""
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller if self.told else None,
            "brokers": [broker.as_json(told=self.told) for broker in self.brokers],
            "leaderless": [str(partition) for partition in self.leaderless] if self.told else None,
            "under_replicated": [str(partition) for partition in self.under_replicated] if self.told else None,
            "skew": _rounded(self.skew) if self.told else None,
        }


@frozen(kw_only=True)
class Snapshot:
    """What there is to show after a poll."""

    number: int
    """Of the poll; the first is 1."""
    groups: tuple[GroupView, ...]
    """The worst first."""
    cluster: ClusterOverview
    poll_seconds: float
    oldest: float
    """Seconds after which what was told is not known any more."""
    errors: int
    """What was refused or not answered since the start."""
    missing: tuple[str, ...] = ()
    """Groups that were asked for by name, and do not exist."""
    lacks_topic: bool = False
    """The topic that was asked for does not exist, or may not be described."""

    def known(self, age: float = 0.0) -> "Snapshot":
        """Return what is known of all this ``age`` seconds later, in place of what was too old to tell already.

        What waits for the next poll is not older than the poll makes it. But if that does not come, nothing is known any more.
        """
        return evolve(
            self,
            groups=tuple(self.known_of(group, age) for group in self.groups),
            cluster=self.cluster.known(self._bound(age)),
        )

    def known_of(self, group: GroupView, age: float) -> GroupView:
        """Return what is known of one of the groups ``age`` seconds later."""
        return evolve(group.known(self._bound(age)), now=group.now + age)

    def _bound(self, age: float) -> float:
        """Return how old what was told may have been at the poll; nothing is young enough if the next one does not come."""
        return self.oldest if age <= max(self.oldest, GAP * max(self.poll_seconds, _LONG)) else float("-inf")

    def counts(self) -> Mapping[Status, int]:
        """Return how many groups have each status, the worst first."""
        found = [group.status for group in self.groups]
        return {status: found.count(status) for status in sorted(set(found), key=lambda each: -each.severity)}

    def find(self, name: str) -> GroupView | None:
        """Return a group."""
        return next((group for group in self.groups if group.name == name), None)


def _trouble(part: PartitionView) -> tuple[int, float, int]:
    return part.status.severity, part.age.seconds if part.age is not None else 0.0, part.lag or 0


def _seconds(age: Age | None) -> float | None:
    return _rounded(age.seconds) if age is not None and age.certainty is not Certainty.OVER else None


def _over(age: Age | None) -> float | None:
    return _rounded(age.seconds) if age is not None and age.certainty is Certainty.OVER else None


def _rounded(number: float | None) -> float | None:
    return round(number, 3) if number is not None else None


def _sum(numbers: Any) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
