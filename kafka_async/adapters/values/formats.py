"""Values to columns: what ``value.format`` and the other ``value.*`` options mean.

A decoder is a value, made once on the driver and sent to the executors, so that all of them have the same columns.

What the options mean is in the README of this adapter. ``key.*`` are the same for keys, which often have the names of fields of
their values: so their columns have the prefix ``key_`` if ``key.prefix`` is not given, and bad ones are in ``_corrupt_key``. Their
registry is that of the values, where none is given.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ...application.reading.arrow import array_of
from ...config.spelling import did_you_mean
from ...errors import KafkaConfigurationError
from .ddl import check_names, parse_fields, shown
from .decoding import CORRUPT, REASON, Piece, ValueDecoder
from .names import KEY, REGISTRY, VALUE, one_of, with_names
from .registry import NAMES as REGISTRY_OPTIONS
from .secrets import NO_REFERENCES, References
from .times import zone

FORMATS: Final = ("binary", "string", "json", "avro", "protobuf")
_COMMON: Final = ("value.format", "value.mode", "value.prefix", "value.keep")
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "binary": ("value.format",),
    "string": _COMMON,
    "json": (*_COMMON, "value.schema", "value.timezone", "value.framing"),
    "avro": (*_COMMON, "value.schema", *(f"{REGISTRY}{name}" for name in REGISTRY_OPTIONS)),
    "protobuf": (*_COMMON, "value.descriptor", "value.message", *(f"{REGISTRY}{name}" for name in REGISTRY_OPTIONS)),
}
_KNOWN: Final = tuple(sorted({name for names in _OPTIONS.values() for name in names}))


class StringDecoder(ValueDecoder):
    """Values as UTF-8 texts in a column ``value``."""

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values as texts without copying them, where all of them are UTF-8."""
        bad: dict[int, str] = {}
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            texts = array_of(pa.string(), [_text(value, place, bad) for place, value in enumerate(values.to_pylist())])
        return Piece(arrays=[texts for _ in self.columns], bad=bad)


def _text(value: bytes | None, place: int, bad: dict[int, str]) -> str | None:
    """Return a value as a text; ``bad`` gets what is wrong with one that is not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        bad[place] = f"it is not UTF-8 from byte {error.start} on"
        return None


def decoder_for(
    options: Mapping[str, str],
    *,
    topics: Sequence[str] = (),
    part: str = VALUE,
    references: References = NO_REFERENCES,
) -> ValueDecoder | None:
    """Return the decoder that the ``value.*`` options ask for, or the ``key.*`` options; ``None``: they stay bytes.

    Names of options are in small letters. ``topics``: what is read, where that is known; it names the subject in a schema registry.
    Raises ``KafkaConfigurationError`` for options that are unknown, contradict each other or name what cannot be decoded, and what
    ``registry`` raises if it is asked.
    """
    if part == VALUE:
        return _decoder_for({name: text for name, text in options.items() if not name.startswith("key.")}, topics, part, references)
    if not any(name.startswith("key.") for name in options):
        return None
    try:
        return _decoder_for(_of_keys(options), topics, part, references)
    except KafkaConfigurationError as error:
        raise KafkaConfigurationError(with_names(str(error), _KNOWN, lambda name: _of_key(name, options))) from None


def keeps(options: Mapping[str, str], part: str) -> bool:
    """Return whether a part of a record also stays as it is, next to its decoded fields."""
    return one_of(options, f"{part}.keep", ("false", "true")) == "true"


def _of_keys(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of keys by the names that those of values have."""
    own = {f"value.{name.removeprefix('key.')}": text for name, text in options.items() if name.startswith("key.")}
    if own.get("value.format", "").strip().lower() not in ("avro", "protobuf") or "value.schema.registry.url" in own:
        return own
    of_one_subject = (f"{REGISTRY}subject", f"{REGISTRY}version")
    return {name: text for name, text in options.items() if name.startswith(REGISTRY) and name not in of_one_subject} | own


def _of_key(name: str, given: Mapping[str, str]) -> str:
    """Return the option of keys that stands for an option of values, or that one if keys take it over from values."""
    own = f"{KEY}.{name.removeprefix('value.')}"
    return name if name.startswith(REGISTRY) and name in given and own not in given else own


def _decoder_for(options: Mapping[str, str], topics: Sequence[str], part: str, references: References) -> ValueDecoder | None:
    kind = one_of(options, "value.format", FORMATS)
    _check(options, kind, part)
    if kind == "binary":
        return None
    common: dict[str, Any] = {
        "permissive": one_of(options, "value.mode", ("permissive", "failfast")) == "permissive",
        "prefix": options.get("value.prefix", "key_" if part == KEY and kind != "string" else ""),
        "part": part,
    }
    if kind == "json":
        decoder: ValueDecoder = _json(options, common)
    elif kind == "string":
        decoder = StringDecoder(columns=((part, pa.string()),), **common)
    elif kind == "protobuf":
        from .protobuf import protobuf_decoder  # ptars is another extra

        decoder = _of_registry(protobuf_decoder, options, topics, common, references)
    else:
        from .avro import avro_decoder  # fastavro is another extra

        decoder = _of_registry(avro_decoder, options, topics, common, references)
    check_names((name for name, _ in decoder.fields), f"value.schema (besides {CORRUPT} and {REASON})")
    return decoder


def _of_registry(
    make: Callable[..., ValueDecoder],
    options: Mapping[str, str],
    topics: Sequence[str],
    common: Mapping[str, Any],
    references: References,
) -> ValueDecoder:
    from .framed import for_each_topic

    def of_topic(own: Mapping[str, str], topic: Sequence[str]) -> ValueDecoder:
        return make(own, topic, common, references)

    return for_each_topic(options, topics, common["part"], of_topic) or of_topic(options, topics)


def _check(options: Mapping[str, str], kind: str, part: str) -> None:
    for name in options:
        if name not in _KNOWN:
            given, *known = (f"{part}.{each.removeprefix('value.')}" for each in (name, *_KNOWN))
            raise KafkaConfigurationError(f"unknown option {given!r}{did_you_mean(given, known)}")
        if name not in _OPTIONS[kind]:
            raise KafkaConfigurationError(f"{name} has no meaning with value.format={kind}")


def _json(options: Mapping[str, str], common: Mapping[str, Any]) -> ValueDecoder:
    if not options.get("value.schema", "").strip():
        raise KafkaConfigurationError(
            "value.format=json needs value.schema: columns in Spark's DDL, such as 'id BIGINT, item STRING'"
        )
    columns = parse_fields(options["value.schema"])
    for _, column in columns:
        check_keys(column, "value.schema")
    from .json_values import JsonDecoder  # msgspec is another extra

    name = options.get("value.timezone", "UTC")
    framed = one_of(options, "value.framing", ("none", "confluent")) == "confluent"
    try:
        return JsonDecoder(columns=columns, zone=zone(name), framed=framed, **common)
    except ValueError:
        raise KafkaConfigurationError(f"value.timezone={name!r}: expected a name such as Europe/Berlin, or +02:00") from None


def check_keys(kind: Any, where: str) -> None:
    """Raise ``KafkaConfigurationError`` for a map within a type whose keys are not texts: JSON has no others."""
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise KafkaConfigurationError(f"{where}: {shown(kind)}; the keys of a map in JSON are STRING")
        check_keys(kind.item_type, where)
        return
    for i in range(kind.num_fields):
        check_keys(kind.field(i).type, where)
