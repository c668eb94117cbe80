"""Settings of topics and groups: Kafka's names, allowed values and defaults.

Decides: which settings are accepted. Owns: nothing. Must never accept a name that Kafka does not have, or act as if it knew one.
Source: ``TopicConfig`` and ``GroupConfig`` of Kafka 4.3.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import field, frozen

from .log import TIMESTAMP, PartitionLog
from .waking import clock

Check = Callable[[str], bool]


def _at_least(least: int) -> Check:
    return lambda value: value.lstrip("-").isdigit() and int(value) >= least


def _one_of(*allowed: str) -> Check:
    return lambda value: value in allowed


def _policies(value: str) -> bool:
    return {part.strip() for part in value.split(",")} <= {"delete", "compact", ""}


@frozen
class Setting:
    """One setting."""

    default: str
    check: Check
    expected: str


FOREVER: Final = 2**63 - 1
_NUMBER: Final = "a number of at least"
TOPIC: Final[Mapping[str, Setting]] = {
    "cleanup.policy": Setting("delete", _policies, "delete, compact, or both with a comma between"),
    "retention.ms": Setting("-1", _at_least(-1), f"{_NUMBER} -1"),  # Kafka has a week; here tests decide how old records are
    "retention.bytes": Setting("-1", _at_least(-1), f"{_NUMBER} -1"),
    "max.message.bytes": Setting("1048588", _at_least(0), f"{_NUMBER} 0"),
    "message.timestamp.type": Setting("CreateTime", _one_of("CreateTime", "LogAppendTime"), "CreateTime or LogAppendTime"),
    "message.timestamp.before.max.ms": Setting(str(FOREVER), _at_least(0), f"{_NUMBER} 0"),
    "message.timestamp.after.max.ms": Setting(str(FOREVER), _at_least(0), f"{_NUMBER} 0"),  # Kafka has an hour
    "min.insync.replicas": Setting("1", _at_least(1), f"{_NUMBER} 1"),
}
"""Topic settings that take effect."""
UNNOTICED: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "remote.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Topic settings that say how brokers store records. No consumer can notice them: they are described on request, and no more."""
GROUP: Final[Mapping[str, Setting]] = {
    "consumer.session.timeout.ms": Setting("45000", _at_least(1), f"{_NUMBER} 1"),
    "consumer.heartbeat.interval.ms": Setting("1000", _at_least(1), f"{_NUMBER} 1"),  # Kafka has 5000: tests settle sooner
    "share.session.timeout.ms": Setting("45000", _at_least(1), f"{_NUMBER} 1"),
    "share.heartbeat.interval.ms": Setting("1000", _at_least(1), f"{_NUMBER} 1"),  # as above
    "share.record.lock.duration.ms": Setting("30000", _at_least(1), f"{_NUMBER} 1"),
    "share.auto.offset.reset": Setting("latest", _one_of("earliest", "latest"), "earliest or latest"),
    "share.isolation.level": Setting(
        "read_uncommitted", _one_of("read_uncommitted", "read_committed"), "read_uncommitted or read_committed"
    ),
    "share.delivery.count.limit": Setting("5", _at_least(1), f"{_NUMBER} 1"),
    "share.partition.max.record.locks": Setting("2000", _at_least(1), f"{_NUMBER} 1"),
    "share.renew.acknowledge.enable": Setting("true", _one_of("true", "false"), "true or false"),
}


def now_ms() -> int:
    """Return the brokers' time in milliseconds: the event loop's clock, from the timestamp of offset 0 on."""
    return TIMESTAMP + round(clock() * 1000)


def topic_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a topic as Kafka writes them. Raises ``ValueError`` that names what is wrong."""
    return _checked("topic", given, TOPIC, UNNOTICED)


def group_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a group as Kafka writes them. Raises ``ValueError`` that names what is wrong."""
    return _checked("group", given, GROUP, frozenset())


def _checked(kind: str, given: Mapping[str, object], known: Mapping[str, Setting], also: frozenset[str]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        key = name.replace("_", ".")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if key not in known and key not in also:
            raise ValueError(f"{key}: Kafka has no such setting for a {kind}; simulated are {', '.join(known)}")
        if key in known and not known[key].check(text):
            raise ValueError(f"{key}={text}: expected {known[key].expected}")
        found[key] = text
    return found


MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP, INVALID_RECORD = 10, 19, 32, 87


@frozen
class TopicSettings:
    """The settings of a topic, and what follows from them."""

    given: Mapping[str, str] = field(factory=dict)

    def value(self, name: str) -> str:
        """Return a setting."""
        return self.given.get(name, TOPIC[name].default)

    def number(self, name: str) -> int:
        """Return a setting that is a number."""
        return int(self.value(name))

    @property
    def stamps(self) -> bool:
        """Brokers set the timestamps of records."""
        return self.value("message.timestamp.type") == "LogAppendTime"

    def refusal(self, size: int, keys: Iterable[bytes | None], timestamps: Iterable[int], now: int) -> int:
        """Return the code with which a batch is refused, 0 if it is accepted. ``now``: milliseconds."""
        if size > self.number("max.message.bytes"):
            return MESSAGE_TOO_LARGE
        if "compact" in self.value("cleanup.policy") and any(key is None for key in keys):
            return INVALID_RECORD
        before, after = self.number("message.timestamp.before.max.ms"), self.number("message.timestamp.after.max.ms")
        if not self.stamps and any(now - stamp > before or stamp - now > after for stamp in timestamps):
            return INVALID_TIMESTAMP
        return 0

    def retain(self, log: PartitionLog, now: int) -> None:
        """Drop what is too old or too much, like a broker that checks all the time. A log that is only compacted keeps all."""
        if "delete" not in self.value("cleanup.policy"):
            return
        if (age := self.number("retention.ms")) >= 0:
            log.retain(now - age)
        if (size := self.number("retention.bytes")) >= 0:
            log.shrink(size)
