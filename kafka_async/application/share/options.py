"""The options of a share consumer, and what errors say about those that share groups do not have.

``config/options.py`` says what the others mean.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from ...background.share.share_settings import ShareSettings
from ...config import ConsumerConfig, ConsumerOptions
from ...config.options import CommonOptions, K, V
from ..arguments import at_least_one
from ..processing.process_options import CommonProcessOptions
from .record import ShareRecord

_GROUP: Final = "of the group's configuration; set it with 'kafka-async groups configure' or Java's kafka-configs"
_REFUSED: Final[Mapping[str, str]] = {
    "auto_offset_reset": f"a share group starts where its setting says: share.auto.offset.reset {_GROUP}",
    "auto_offset_reset_new_partitions": "a share group reads new partitions as its setting says: share.auto.offset.reset",
    "isolation_level": f"a share group has one setting for all members: share.isolation.level {_GROUP}",
    "enable_auto_commit": "share groups have no offsets to commit; records are acknowledged: accept(), or 'async with record'",
    "auto_commit_interval_ms": "share groups have no offsets to commit; acknowledgements go out with the next request",
    "group_instance_id": "share groups have no static members; a member that restarts joins as a new one and loses nothing",
    "group_protocol": "share groups have their own protocol; for other groups use KafkaConsumer",
    "group_remote_assignor": "the coordinator assigns the partitions of share groups",
    "partition_assignment_strategy": "the coordinator assigns the partitions of share groups",
    "session_timeout_ms": f"it is share.session.timeout.ms {_GROUP}",
    "heartbeat_interval_ms": f"it is share.heartbeat.interval.ms {_GROUP}",
    "exclude_internal_topics": "share groups subscribe by name only",
    "max_partition_fetch_bytes": "a share fetch has no limit for each partition; use fetch_max_bytes",
    "interceptors": "interceptors get committed offsets, and share groups have none",
}
"""Options of consumers that share groups do not have, and what to use instead."""
_JAVAS: Final[Mapping[str, str]] = {
    "share_acknowledgement_mode": "records are acknowledged one by one: accept(), or 'async with record'",
    "share_acquire_mode": "use strict_max_records=True for Java's record_limit",
}
"""Options that only Java's share consumer has."""

Reaction = Callable[[ShareRecord[Any, Any], BaseException, int], Awaitable[object] | object]
ShareOnFailure = Literal["stop", "skip", "release"] | Reaction
"""What ``ShareConsumer.process`` does about a record that failed for good."""

_OWN: Final = ("max_processing_ms", "bad_record_deliveries", "strict_max_records")


class ShareOptions(CommonOptions[K, V], total=False):
    """The options of a share consumer. Those not described here mean what they mean for every consumer (``ConsumerOptions``)."""

    group_id: str
    """Name of the share group; required."""
    max_processing_ms: int
    """How long the lock of a record is renewed automatically, counted from its delivery. After that the lock ends and others get
    the record.

    It is renewed while the record is in ``async with`` or in ``process``, waits for a delayed release, or is unread while reads go
    on. It is also renewed while the record waits its turn: ``getmany`` returned it with others, one of which is in ``async with``
    or was acknowledged within the time of a lock. Unread records are released if no read call comes for the time of a lock, or
    for ``max_poll_interval_ms`` if that is shorter. ``process`` releases records that wait for a handler if none begins or
    ends for that long.

    A record that takes long holds up its partition in the end: members get records only up to
    ``share.partition.max.record.locks`` (a setting of the group, 2000 by default) offsets past the first one that is not done,
    however many of those between are.

    Default: ``300000``. Allowed: an integer of at least 1, in milliseconds.
    """
    bad_record_deliveries: int
    """At which delivery a record that cannot be read (a corrupt batch, a deserializer that raises) is rejected for good. Before
    that it is released, for another attempt.

    Default: ``2``. Allowed: an integer of at least 1.
    """
    strict_max_records: bool
    """Lock no more records than read calls ask for, and read nothing ahead (KIP-1206): ``getone`` locks one. By default as many
    records as are asked for are locked ahead of the reads; or whole batches, if the application gets through one within a
    thirtieth of the lock duration.

    Default: ``False``. Needs brokers of Kafka 4.2.
    """
    max_poll_interval_ms: int
    """How long the application may go without reading before the consumer leaves the group; it joins again at the next read.
    Unread records are released then. Records that the application holds stay locked.

    Default: ``300000``, in milliseconds.
    """
    max_poll_records: int
    """How many records one read call returns at most, and how many a fetch asks for. The consumer reads ahead no more than the
    application gets to within a second, or ten records if these take longer, and within a third of the lock duration: others can
    work on the rest, and each member that stops costs what it has not handed out one of its deliveries. Until it knows how
    long the application takes for ten records, it reads only what is asked for.

    Default: ``500``.
    """


class ShareProcessOptions(CommonProcessOptions, total=False):
    """The options of ``ShareConsumer.process``. Times are in milliseconds, sizes in bytes."""

    on_failure: ShareOnFailure
    """What happens to a record after its last attempt. Default: ``"stop"``, which releases it."""


def share_options(options: Mapping[str, Any]) -> tuple[ConsumerConfig, ShareSettings]:
    """Return the configuration for ``options``, and the settings that only share consumers have.

    Raises ``TypeError`` for an unknown option, ``ValueError`` for a bad value and for an option that share groups do not have, with
    what to use instead.
    """
    refused = [f"{name}: {_REFUSED[name]}" for name in options if name in _REFUSED]
    if refused:
        raise ValueError(f"share groups do not have the option {'; '.join(refused)}")
    javas = [f"{name}: {_JAVAS[name]}" for name in options if name in _JAVAS]
    if javas:
        raise TypeError(f"unknown option {'; '.join(javas)}")
    own = {name: options[name] for name in _OWN if name in options}
    for name in ("max_processing_ms", "bad_record_deliveries"):
        at_least_one(own.get(name, 1), name)
    strict = own.get("strict_max_records", False)
    if not isinstance(strict, bool):
        raise ValueError(f"strict_max_records={strict!r}: expected True or False")
    others: ConsumerOptions = {name: value for name, value in options.items() if name not in _OWN}  # type: ignore[assignment]  # checked there
    config = ConsumerConfig.of(**others)
    if not config.group_id:
        raise ValueError(f"group_id={config.group_id!r}: a share consumer needs the name of its group")
    return config, ShareSettings(**own)
