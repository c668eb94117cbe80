"""The options of the source: names, meanings, and what is refused before anything runs.

No error shows the value of a ``kafka.*`` option: it may be a secret.

Names and meanings are those of Spark's own connector (``KafkaSourceProvider``); Spark hands names over in any case.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ....config.consumer_config import NAMES as CONSUMERS
from ....config.consumer_config import option_texts
from ....config.java import MEANINGLESS, UNUSED_IN_PLAINTEXT, Dialect
from ....config.java import NAMES as JAVAS
from ....config.spelling import did_you_mean
from ....errors import KafkaConfigurationError
from ....model import TopicPartition
from ....values import field, frozen
from ...ranges.offsets import names_of
from ...ranges.planner import PACK_RECORDS, OffsetRange, Task, plan
from ...values.names import one_of, with_names
from ..plan.offsets import OffsetSpec, check_order, parse_assignment, parse_offsets, parse_timestamps
from .patterns import python_pattern
from .secrets import REGISTRY_SECRETS, check, is_reference


def _make_msk(region: str, **given: str) -> Any:
    from ....network import MskTokenProvider  # of another extra, and needed where a connection is made

    return MskTokenProvider(region, **given)


SPARK: Final = Dialect(
    prefix="kafka.",
    make_msk=_make_msk,
    tokens="kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauth.token.provider=module:callable, which returns a token",
    secrets="use env:NAME, file:/path or file:NAME as the value of an option that holds a secret",
    is_reference=is_reference,
)
"""Security options that only Java's client has, as options ``kafka.*`` of a job."""

_REFUSED: Final[Mapping[str, str]] = {
    **SPARK.refused,
    "auto_offset_reset": "use startingOffsets; the source keeps its offsets itself",
    "key_deserializer": "keys are bytes; cast them, or use value.format for values",
    "value_deserializer": "values are bytes; cast them, or use value.format",
    "enable_auto_commit": "the source keeps its offsets itself; use commitGroup to let lag tools see them",
    "interceptors": "interceptors do not see columns",
    "interceptor_classes": "interceptors do not see columns",
    "background": "the source decides where the consumer runs",
    "trace": "it takes a Python object",
    "ssl_context": "it takes a Python object",
}

_UNITS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?")
_POWERS: Final[Mapping[str, int]] = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION: Final = re.compile(r"(\d+)\s*([a-z]*)")
_DURATIONS: Final = re.compile(r"\d+\s*[a-z]*|(?:\d+\s*[a-z]+\s*)+")
_STRAYS: Final = frozenset(
    (
        *("path", "paths", "mode", "header", "inferschema", "mergeschema", "multiline", "topic", "checkpointlocation", "queryname"),
        *("encoding", "charset", "sep", "delimiter", "compression", "timezone", "locale", "dateformat", "timestampformat"),
        *("columnnameofcorruptrecord", "samplingratio", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"),
        *("ignorecorruptfiles", "ignoremissingfiles", "maxfilespertrigger", "latestfirst", "basepath"),
    )
)
"""Options of other sources and of sinks, which jobs hand to any source; Spark's own connector passes over them."""


@frozen(kw_only=True)
class SourceOptions:
    """All options of a source, validated. Build it with ``parse``."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """The regular expression that is found in names of topics, in Python's notation; people write Java's."""
    partitions: tuple[TopicPartition, ...] = ()
    starting: OffsetSpec | None = None
    """``None``: not given, which means ``earliest`` for a batch and ``latest`` for a stream."""
    ending: OffsetSpec | None = None
    latest_without_match: bool = False
    """Whether to begin at the end if no record is at or after the time to begin at; else that is an error."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    pack_records: int = PACK_RECORDS
    """How many offsets several ranges that share a task have together, at most; 0: each has a task of its own."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    """About how many bytes the keys and values of a micro-batch have, at most."""
    max_trigger_delay: float = 900.0
    """Seconds."""
    poll_timeout_ms: int = 120_000
    retries: int = 3
    retry_interval: float = 1.0
    """Seconds."""
    columns: tuple[str, ...] = ()
    commit_group: str | None = None
    group_id_prefix: str | None = None
    value: Mapping[str, str] = field(factory=dict)
    """The ``value.*`` and ``key.*`` options."""
    strays: tuple[str, ...] = ()
    """Options that mean nothing here, and are not mistakes."""
    unused: tuple[str, ...] = ()
    """Options of Java's client that ``PLAINTEXT`` turns off."""
    kafka: Mapping[str, str] = field(factory=dict, repr=False)
    """Options of the consumer, by its names and still as texts; a text may be a reference to a secret, or to one of JAAS."""

    @property
    def group(self) -> str | None:
        """The group whose committed offsets ``startingOffsets=committed`` means."""
        return self.commit_group or self.kafka.get("group_id")

    @property
    def reading(self) -> dict[str, str]:
        """The consumer's options for tasks: without a group, and with errors instead of positions that move by themselves."""
        kept = {name: text for name, text in self.kafka.items() if name not in ("group_id", "group_instance_id")}
        forced = {"auto_offset_reset": "none", "enable_auto_commit": "false"}
        return {"client_id": self._client_id, "allow_auto_create_topics": "false"} | _LARGE_FETCHES | kept | forced

    @property
    def looking(self) -> dict[str, str]:
        """The consumer's options for looking offsets up, those that a group committed too."""
        return self.reading | ({"group_id": self.group} if self.group is not None else {})

    @property
    def sampling(self) -> dict[str, str]:
        """The consumer's options for reading a few records to learn how large they are."""
        return self.looking | _SMALL_FETCHES

    @property
    def exposed(self) -> tuple[str, ...]:
        """The options whose values are secrets themselves and show in the plan of a stream: Spark redacts by names and words."""
        key = "ssl_keystore_key"
        secrets = {key: self.kafka.get(key), **{name: self.value.get(name) for name in REGISTRY_SECRETS}}
        shown = (name for name, text in secrets.items() if text is not None and not is_reference(name, text))
        return tuple(SPARK.dotted(name) if name == key else name for name in shown)

    @staticmethod
    def of_reading(options: Mapping[str, str]) -> bool:
        """Return whether an option says what to read; if none does, Spark may have been asked to write."""
        return any(name.lower() in map(str.lower, _STRATEGIES) for name in options)

    @property
    def committing(self) -> dict[str, str]:
        """The consumer's options for committing offsets: a stream waits for it, and can do without."""
        return self.looking | {"default_api_timeout_ms": _COMMIT_MS}

    @property
    def _client_id(self) -> str:
        return f"{self.group_id_prefix or 'spark'}-kafka-async"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """Return the options. Raises ``KafkaConfigurationError`` that names the option, what was given and what is expected."""
        given = _recognized(options)
        unused = _unused(given)
        parsed = cls(
            **_topics(given),
            **{field: read(name, given[name]) for name, (field, read) in _PLAIN.items() if name in given},
            starting=_spec(given, "starting", ("earliest", "latest", "committed")),
            ending=_spec(given, "ending", ("earliest", "latest")),
            value=_value(given),
            strays=tuple(sorted(name for name in options if name.lower() in _STRAYS)),
            unused=tuple(sorted(unused)),
            kafka=_kafka({name: text for name, text in given.items() if name not in unused}),
        )
        parsed._check_together()
        return parsed

    def _check_together(self) -> None:
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise KafkaConfigurationError(f"minOffsetsPerTrigger={low} is above maxOffsetsPerTrigger={high}")
        if self.starting is not None and self.starting.kind == "committed" and self.group is None:
            raise KafkaConfigurationError("startingOffsets=committed needs commitGroup, or kafka.group.id, to name the group")
        if "bootstrap_servers" not in self.kafka:
            raise KafkaConfigurationError("kafka.bootstrap.servers is missing; expected 'host:port' or a list of them with commas")

    def check_batch(self) -> None:
        """Raise ``KafkaConfigurationError`` for what only a stream can mean."""
        if self.starting is not None and (self.starting.kind == "latest" or -1 in _offsets(self.starting)):
            raise KafkaConfigurationError(f"{self.starting.option}: a batch that begins at the end (latest, -1) reads nothing")
        if self.ending is not None and (self.ending.kind == "earliest" or -2 in _offsets(self.ending)):
            raise KafkaConfigurationError(f"{self.ending.option}: a batch that ends at the beginning (earliest, -2) reads nothing")
        for spec in filter(None, (self.starting, self.ending)):
            foreign = {partition for partition in spec.numbers if not self.may_read(partition)}
            if foreign:
                raise KafkaConfigurationError(f"{spec.option}: {names_of(foreign)} is not read")
        if self.starting is not None and self.ending is not None:
            check_order(self.starting, self.ending)

    def tasks(self, ranges: Iterable[OffsetRange]) -> list[Task]:
        """Return the tasks that read ``ranges``. How many cores executors have is not known here; the driver's stand for them."""
        return plan(
            ranges,
            min_partitions=self.min_partitions,
            max_records=self.max_records_per_partition,
            pack=self.pack_records,
            cores=os.cpu_count() or 1,
        )

    @property
    def named(self) -> tuple[str, ...]:
        """The topics of ``subscribe`` and of ``assign``; none for a pattern."""
        return self.topics or tuple(sorted({partition.topic for partition in self.partitions}))

    def may_read(self, partition: TopicPartition) -> bool:
        """Return whether ``subscribe``, ``subscribePattern`` or ``assign`` names a partition, or would if it existed."""
        return self.selects(partition.topic) or partition.topic in self.topics or partition in self.partitions

    def selects(self, topic: str) -> bool:
        """Return whether ``subscribePattern`` is found in the name of a topic, at any place, as Spark's own connector has it."""
        return self.pattern is not None and re.search(self.pattern, topic) is not None

    def check_stream(self) -> None:
        """Raise ``KafkaConfigurationError`` for what only a batch can mean."""
        if self.ending is not None:
            raise KafkaConfigurationError(f"{self.ending.option}: a stream has no end; it is for batch reads")


# --- one option ------------------------------------------------------------------------------------------------------------------


def _recognized(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the names that they have here. Raises ``KafkaConfigurationError`` for unknown ones."""
    known = {name.lower(): name for name in _NAMES}
    given = {}
    for name, text in options.items():
        lower = name.lower()
        if lower.startswith(("kafka.", "value.", "key.")):
            given[lower] = text
        elif lower in known:
            given[known[lower]] = text
        elif lower in _STRAYS:
            continue
        elif lower == "provider":  # what Spark adds for CREATE TABLE
            raise KafkaConfigurationError(
                "a permanent table is not supported; expected CREATE TEMPORARY VIEW ... USING kafka_async"
            )
        else:
            raise KafkaConfigurationError(f"unknown option {name!r}{did_you_mean(name, _NAMES)}")
    return given


def _topics(given: Mapping[str, str]) -> dict[str, Any]:
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        found = f"; found {' and '.join(chosen)}" if chosen else ""
        raise KafkaConfigurationError(f"expected exactly one of subscribe, subscribePattern and assign{found}")
    text = given[chosen[0]]
    if chosen[0] == "assign":
        return {"partitions": parse_assignment(text)}
    if chosen[0] == "subscribe":
        topics = tuple(sorted(set(_words(text))))
        if not topics:
            raise KafkaConfigurationError(f"subscribe={text!r}: expected topic names with commas between them")
        return {"topics": topics}
    if not text.strip():
        raise KafkaConfigurationError("subscribePattern is empty; expected a regular expression")
    return {"pattern": python_pattern(text.strip())}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _columns(name: str, text: str) -> tuple[str, ...]:
    columns = tuple(_words(text))
    if not columns:  # read as "all of them" it would be the opposite of what it says
        raise KafkaConfigurationError(f"{name}={text!r}: expected names of columns with commas between them")
    return columns


def _spec(given: Mapping[str, str], side: str, words: tuple[str, ...]) -> OffsetSpec | None:
    """Return where to begin or to end; of several options the first of these, as in Spark's own connector."""
    whole, each, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if whole in given:
        return OffsetSpec("timestamp", whole, timestamp=_at_least(0)(whole, given[whole]))
    if each in given:
        return parse_timestamps(each, given[each])
    return parse_offsets(offsets, given[offsets], words) if offsets in given else None


def _offsets(spec: OffsetSpec) -> frozenset[int]:
    return frozenset(spec.numbers.values()) if spec.kind == "offsets" else frozenset()


def _at_least(low: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number < 2**63:
            raise KafkaConfigurationError(f"{name}={text!r}: expected a whole number of at least {low}, below 2**63")
        return number

    return read


def _flag(name: str, text: str) -> bool:
    return one_of({name: text}, name, ("true", "false")) == "true"


def _without_match(name: str, text: str) -> bool:
    return one_of({name: text}, name, ("error", "latest")) == "latest"


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise KafkaConfigurationError(f"{name} is empty")
    return text


def _bytes(name: str, text: str) -> int:
    """Return a size as Spark writes them, ``64m``; bytes if it has no unit."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise KafkaConfigurationError(f"{name}={text!r}: expected a size such as 1048576, 64m or 1g")
    return int(match[1]) << _POWERS[match[2]]


def _seconds(name: str, text: str) -> float:
    """Return a duration as Spark writes them, ``15m`` or ``1 hour 30 minutes``; milliseconds if it has no unit."""
    parts = _DURATION.findall(text.strip().lower())
    if not _DURATIONS.fullmatch(text.strip().lower()) or any((unit or "ms") not in _UNITS for _, unit in parts):
        raise KafkaConfigurationError(f"{name}={text!r}: expected a duration such as 500ms, 30s, 15m, 1h or '1 minute'")
    return sum(int(number) * _UNITS[unit or "ms"] for number, unit in parts)


_PLAIN: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "startingOffsetsByTimestampStrategy": ("latest_without_match", _without_match),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "includeHeaders": ("include_headers", _flag),
    "minPartitions": ("min_partitions", _at_least(1)),
    "maxRecordsPerPartition": ("max_records_per_partition", _at_least(1)),
    "groupIdPrefix": ("group_id_prefix", _text),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _at_least(1)),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", _at_least(1)),
    "maxTriggerDelay": ("max_trigger_delay", _seconds),
    "kafkaConsumer.pollTimeoutMs": ("poll_timeout_ms", _at_least(1)),
    "fetchOffset.numRetries": ("retries", _at_least(0)),
    "fetchOffset.retryIntervalMs": ("retry_interval", lambda name, text: _at_least(0)(name, text) / 1000),
    # Not in Spark's own connector:
    "columns": ("columns", _columns),
    "commitGroup": ("commit_group", _text),
    "packRecords": ("pack_records", _at_least(0)),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _bytes),
}
"""The options that are read by themselves: which attribute they set, and what reads them."""
_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_NAMES: Final = (
    *_STRATEGIES,
    *_PLAIN,
    *(f"{side}{what}" for side in ("starting", "ending") for what in ("Offsets", "OffsetsByTimestamp", "Timestamp")),
)


# --- options of the consumer -----------------------------------------------------------------------------------------------------


def _our_name(name: str) -> str:
    """Return the consumer's name of an option ``kafka.*``."""
    return name.removeprefix("kafka.").replace(".", "_").replace("-", "_")


def _unused(given: Mapping[str, str]) -> frozenset[str]:
    """Return the options of Java's client that ``PLAINTEXT`` turns off: it does not look at them, so a store need not be there.

    Without that word they are not turned off: it is more likely that ``SSL`` was forgotten.
    """
    kafka = {_our_name(name): name for name in given if name.startswith("kafka.")}
    if given.get(kafka.get("security_protocol", "")) != "PLAINTEXT":
        return frozenset()
    return frozenset(kafka[name] for name in kafka.keys() & UNUSED_IN_PLAINTEXT - (CONSUMERS - {"sasl_mechanism"}))


def _kafka(given: Mapping[str, str]) -> dict[str, str]:
    """Return the ``kafka.*`` options by the consumer's names. Raises ``KafkaConfigurationError`` for unknown or refused ones."""
    known = CONSUMERS | JAVAS
    found = {}
    for name, text in given.items():
        if not name.startswith("kafka."):
            continue
        ours = _our_name(name)
        if ours in _REFUSED:
            raise KafkaConfigurationError(f"{name} is not supported: {_REFUSED[ours]}")
        if ours in MEANINGLESS:
            continue
        if ours not in known:
            names = [SPARK.dotted(other) for other in known - _REFUSED.keys()]
            if ours in ("sasl_username", "sasl_password"):  # librdkafka's
                raise KafkaConfigurationError(f"unknown option {name!r}; a login is given in 'kafka.sasl.jaas.config'")
            raise KafkaConfigurationError(f"unknown option {name!r}{did_you_mean(name, names)}")
        found[ours] = text
    found = SPARK.in_our_words(found)
    for ours, text in found.items():
        check(ours, text, SPARK.dotted(ours))
    return found


def _value(given: Mapping[str, str]) -> dict[str, str]:
    """Return the ``value.*`` and ``key.*`` options. Raises ``KafkaConfigurationError`` for a reference in one that takes none."""
    found = {name: text for name, text in given.items() if name.startswith(("value.", "key."))}
    for name, text in found.items():
        check(name, text, name)
    return found


def consumer_options(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the consumer's options with texts turned into what each option takes.

    Raises ``KafkaConfigurationError`` that names the option, and not what was given: it may be a secret.
    """
    options: dict[str, Any] = {}
    for name, text in SPARK.with_stores(SPARK.with_login(kafka)).items():
        convert, expected = option_texts().reading_of(name)
        try:
            options[name] = convert(text) if isinstance(text, str) else text
        except (ValueError, KeyError):
            raise KafkaConfigurationError(f"{SPARK.dotted(name)}: expected {expected}") from None
    return options


def in_words_of_spark(error: ValueError) -> KafkaConfigurationError:
    """Return what the consumer says about an option, with the names that options have here."""
    return KafkaConfigurationError(with_names(str(error), CONSUMERS - _REFUSED.keys(), SPARK.dotted))


_LARGE_FETCHES: Final = {"max_partition_fetch_bytes": str(8 * 2**20), "fetch_buffer_bytes": str(64 * 2**20)}
"""A task reads few partitions to their ends, so fetches are large: the fixed cost of one nearly disappears."""

_SMALL_FETCHES: Final = {
    "max_partition_fetch_bytes": str(64 * 2**10),
    "fetch_buffer_bytes": str(8 * 2**20),
    "default_api_timeout_ms": "10000",
}

_COMMIT_MS: Final = "5000"
"""How long one try to commit may take."""
