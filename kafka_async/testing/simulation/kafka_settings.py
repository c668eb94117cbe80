"""Settings of topics, groups and brokers: Kafka's names, allowed values and defaults.

Source: ``TopicConfig``, ``LogConfig``, ``GroupConfig`` and ``DynamicBrokerConfig`` of Kafka 4.4, and their answers.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from attrs import field, frozen

from .log import PartitionLog

Check = Callable[[str], bool]
_INT, _LONG = 2**31 - 1, 2**63 - 1
FOREVER: Final = _LONG


@frozen
class Setting:
    """One setting."""

    default: str
    check: Check
    expected: str
    is_list: bool = False
    """Values can be appended and taken away."""


def _number(default: int, least: int | None, most: int = _LONG) -> Setting:
    low = -most - 1 if least is None else least

    def check(value: str) -> bool:
        return re.fullmatch(r"\s*[+-]?\d+\s*", value) is not None and low <= int(value) <= most

    bounds = f"from {low} to {most}" if most not in (_INT, _LONG) else f"of at least {low}"
    return Setting(str(default), check, f"a number {bounds}")


def _fraction(default: str) -> Setting:
    return Setting(default, lambda value: re.fullmatch(r"0(\.\d+)?|1(\.0+)?", value) is not None, "a number from 0 to 1")


def _flag(default: str) -> Setting:
    return Setting(default, lambda value: value.strip().lower() in ("true", "false"), "true or false")


def _one_of(*allowed: str) -> Setting:
    """A choice; the first is the default."""
    texts = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
    return Setting(allowed[0], lambda value: value in allowed, texts)


def _level(default: int, *levels: int) -> Setting:
    return Setting(str(default), lambda value: value in map(str, levels), f"a level from {levels[0]} to {levels[-1]}")


def is_true(value: str) -> bool:
    """Return what a flag's text means."""
    return value.strip().lower() == "true"


def as_list(value: str) -> list[str]:
    """Return the items of a setting that is a list."""
    return [item.strip() for item in value.split(",") if item.strip()]


def _policies(value: str) -> bool:
    return set(as_list(value)) <= {"delete", "compact"}


def _replicas(value: str) -> bool:
    return value in ("", "*") or all(re.fullmatch(r"\d+:\d+", item) for item in as_list(value))


_THROTTLED: Final = Setting("", _replicas, "'*', or pairs of partition and broker such as 0:1,1:2", is_list=True)
TOPIC: Final[Mapping[str, Setting]] = {
    "cleanup.policy": Setting("delete", _policies, "delete, compact, or both with a comma between", is_list=True),
    "retention.ms": _number(-1, -1),  # Kafka has a week; here tests decide how old records are
    "retention.bytes": _number(-1, None),
    "max.message.bytes": _number(1_048_588, 0, _INT),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "message.timestamp.before.max.ms": _number(FOREVER, 0),
    "message.timestamp.after.max.ms": _number(3_600_000, 0),
    "min.insync.replicas": _number(1, 1, _INT),
    "errors.deadletterqueue.group.enable": _flag("false"),
}
"""Topic settings that take effect."""
UNNOTICED: Final[Mapping[str, Setting]] = {
    "compression.gzip.level": _level(-1, *range(1, 10), -1),
    "compression.lz4.level": _number(9, 1, 17),
    "compression.type": _one_of("producer", "gzip", "snappy", "lz4", "zstd", "uncompressed"),
    "compression.zstd.level": _number(3, -131_072, 22),
    "delete.retention.ms": _number(86_400_000, 0),
    "file.delete.delay.ms": _number(60_000, 0),
    "flush.messages": _number(FOREVER, 1),
    "flush.ms": _number(FOREVER, 0),
    "follower.replication.throttled.replicas": _THROTTLED,
    "index.interval.bytes": _number(4096, 0, _INT),
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": _number(-2, -2),
    "local.retention.ms": _number(-2, -2),
    "max.compaction.lag.ms": _number(FOREVER, 1),
    "min.cleanable.dirty.ratio": _fraction("0.5"),
    "min.compaction.lag.ms": _number(0, 0),
    "preallocate": _flag("false"),
    "remote.log.copy.disable": _flag("false"),
    "remote.log.delete.on.disable": _flag("false"),
    "remote.storage.enable": _flag("false"),
    "segment.bytes": _number(1_073_741_824, 1_048_576, _INT),
    "segment.index.bytes": _number(10_485_760, 4, _INT),
    "segment.jitter.ms": _number(0, 0),
    "segment.ms": _number(604_800_000, 1),
    "unclean.leader.election.enable": _flag("false"),
}
"""Topic settings that say how brokers store records. No consumer can notice them: they are described on request, and no more."""
ALL_OF_TOPICS: Final[Mapping[str, Setting]] = {**TOPIC, **UNNOTICED}


def _reset(value: str) -> bool:
    return value in ("earliest", "latest") or duration(value) is not None


def duration(value: str) -> int | None:
    """Return the milliseconds of ``by_duration:PT1H`` (KIP-1106); ``None`` if a text is not of this form."""
    found = re.fullmatch(r"by_duration:P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", value)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


GROUP: Final[Mapping[str, Setting]] = {
    "consumer.session.timeout.ms": _number(45_000, 1000, 60_000),
    "consumer.heartbeat.interval.ms": _number(1000, 100, 15_000),  # Kafka has 5000: tests settle sooner
    "share.session.timeout.ms": _number(45_000, 1000, 60_000),
    "share.heartbeat.interval.ms": _number(1000, 100, 15_000),  # as above
    "share.record.lock.duration.ms": _number(30_000, 1000, 60_000),
    "share.auto.offset.reset": Setting("latest", _reset, "earliest, latest, or a duration such as by_duration:PT1H"),
    "share.isolation.level": _one_of("read_uncommitted", "read_committed"),
    "share.delivery.count.limit": _number(5, 2, 10),
    "share.partition.max.record.locks": _number(2000, 100, 4000),
    "share.renew.acknowledge.enable": _flag("true"),
    "errors.deadletterqueue.topic.name": Setting("", lambda value: not value.startswith("__"), "no __ at its start"),
    "errors.deadletterqueue.copy.record.enable": _flag("false"),
}
"""Settings of groups. Where brokers set limits of their own, these allow as short times as brokers can be made to allow."""
SYNONYMS: Final[Mapping[str, str]] = {
    "log.cleanup.policy": "cleanup.policy",
    "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes",
    "message.max.bytes": "max.message.bytes",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "min.insync.replicas": "min.insync.replicas",
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.preallocate": "preallocate",
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""Settings of brokers -> the settings of topics whose defaults they are."""
BROKER: Final[Mapping[str, Setting]] = {name: ALL_OF_TOPICS[topic] for name, topic in SYNONYMS.items()} | {
    "background.threads": _number(10, 1, _INT),
    "log.cleaner.backoff.ms": _number(15_000, 0),
    "log.cleaner.threads": _number(1, 1, _INT),
    "max.connections": _number(_INT, 0, _INT),
    "max.connections.per.ip": _number(_INT, 0, _INT),
    "num.io.threads": _number(8, 1, _INT),
    "num.network.threads": _number(3, 1, _INT),
    "num.recovery.threads.per.data.dir": _number(2, 1, _INT),
    "num.replica.fetchers": _number(1, 1, _INT),
    "producer.id.expiration.ms": _number(86_400_000, 1, _INT),
}
"""Settings of brokers that can be changed while they run. The others are refused, as those that Kafka reads at its start are."""


def topic_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a topic as Kafka writes them. Raises ``ValueError`` that names what is wrong."""
    found = _checked("topic", given, TOPIC, UNNOTICED)
    least, most = (int(found.get(name, UNNOTICED[name].default)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if least > most:
        raise ValueError(f"min.compaction.lag.ms={least}: expected at most max.compaction.lag.ms, which is {most}")
    return found


def group_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a group as Kafka writes them. Raises ``ValueError`` that names what is wrong."""
    found = _checked("group", given, GROUP, {})
    for kind in ("consumer", "share"):
        names = (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
        beat, session = (int(found.get(name, GROUP[name].default)) for name in names)
        if beat >= session:
            raise ValueError(f"{names[0]}={beat}: expected less than {names[1]}, which is {session}")
    return found


def broker_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a broker as Kafka writes them. Raises ``ValueError`` that names what is wrong."""
    return _checked("broker that runs", given, BROKER, {})


def _checked(kind: str, given: Mapping[str, object], known: Mapping[str, Setting], also: Mapping[str, Setting]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        key = name.replace("_", ".")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        setting = known.get(key) or also.get(key)
        if setting is None:
            raise ValueError(f"{key}: Kafka has no such setting for a {kind}; simulated are {', '.join(known)}")
        if not setting.check(text):
            raise ValueError(f"{key}={text}: expected {setting.expected}")
        found[key] = text
    return found


MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP, INVALID_RECORD = 10, 19, 32, 87


@frozen
class TopicSettings:
    """The settings of a topic, and what follows from them."""

    given: Mapping[str, str] = field(factory=dict)
    defaults: Mapping[str, str] = field(factory=dict)
    """What the brokers' settings make of the defaults. It may change."""

    def value(self, name: str) -> str:
        """Return a setting."""
        return self.given.get(name) or self.defaults.get(name) or TOPIC[name].default

    def allows(self, name: str) -> bool:
        """Return a setting that is true or false."""
        return is_true(self.value(name))

    def number(self, name: str) -> int:
        """Return a setting that is a number."""
        return int(self.value(name))

    @property
    def stamps(self) -> bool:
        """Brokers set the timestamps of records."""
        return self.value("message.timestamp.type") == "LogAppendTime"

    @property
    def only_compacts(self) -> bool:
        """Records are never deleted for their age."""
        return set(as_list(self.value("cleanup.policy"))) == {"compact"}

    def refusal(self, size: int, keys: Iterable[bytes | None], timestamps: Iterable[int], now: int, latest: int) -> int:
        """Return the code with which a batch is refused, 0 if it is accepted.

        ``now``: the brokers' date in milliseconds. ``latest``: the date from which on a timestamp counts as ahead of time.
        """
        if size > self.number("max.message.bytes"):
            return MESSAGE_TOO_LARGE
        if "compact" in self.value("cleanup.policy") and any(key is None for key in keys):
            return INVALID_RECORD
        before, after = self.number("message.timestamp.before.max.ms"), self.number("message.timestamp.after.max.ms")
        if not self.stamps and any(now - stamp > before or stamp - latest > after for stamp in timestamps):
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
