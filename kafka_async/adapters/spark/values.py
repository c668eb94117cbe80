"""Values to columns: what ``value.format`` and the other ``value.*`` options mean.

Decides: which decoder turns the bytes of values into columns, and what is refused before anything runs. Owns nothing: a decoder
is a value, made once on the driver and sent to the executors, so that all of them have the same columns. Must never do anything
where values stay bytes.

| option | meaning |
|---|---|
| ``value.format`` | ``binary`` (values stay as they are), ``string``, ``json`` or ``avro`` |
| ``value.schema`` | json: columns in Spark's DDL; avro: the schema in JSON, the reader's schema where there is a registry |
| ``value.mode`` | ``permissive``: bad values are null and their bytes are in ``_corrupt``; ``failfast``: the first ends the read |
| ``value.prefix`` | stands before the name of each column, where a field is named like a column of Kafka |
| ``value.timezone`` | json: the zone of times that have none; UTC, since the session's zone is not known here |
| ``value.schema.registry.*`` | avro: see ``registry`` |
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from ...errors import KafkaConfigurationError
from .ddl import check_names, ddl, parse_fields
from .decoding import CORRUPT, Decoder, Piece, one_of
from .json_values import JsonDecoder
from .times import zone

FORMATS: Final = ("binary", "string", "json", "avro")
_COMMON: Final = ("value.format", "value.mode", "value.prefix")
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "binary": ("value.format",),
    "string": _COMMON,
    "json": (*_COMMON, "value.schema", "value.timezone"),
    "avro": (
        *_COMMON,
        "value.schema",
        "value.schema.registry.url",
        "value.schema.registry.subject",
        "value.schema.registry.version",
        "value.schema.registry.basic.auth.user.info",
        "value.schema.registry.ssl.ca.location",
    ),
}


class ValueDecoder(Protocol):
    """Turns the values of one partition's stretch of records into columns."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Name and DDL type of the columns that stand in place of ``value``."""
        ...

    def select(self, types: Mapping[str, Any]) -> "ValueDecoder":
        """Return a decoder of at least those columns, by name and Arrow type; of all of them where ``_corrupt`` is one."""
        ...

    def decode(self, values: Any, *, topic: str, partition: int, offsets: Any) -> Sequence[Any]:
        """Return one array per field for a binary array of values; ``offsets`` is an int64 array of the same length."""
        ...


class StringDecoder(Decoder):
    """Values as UTF-8 texts in a column ``value``."""

    @property
    def has_bulk(self) -> bool:
        """Whether there is a column."""
        return bool(self.columns)

    def bulk(self, values: Any) -> list[Any] | None:
        """Return the values as texts without copying them, where all of them are UTF-8."""
        try:
            return [values.cast(pa.string())] if self.columns else None
        except pa.ArrowInvalid:
            return None

    def each(self, values: list[bytes | None]) -> Piece:
        """Return the values that are UTF-8."""
        texts: list[str | None] = []
        bad = {}
        for place, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                bad[place] = f"it is no UTF-8 from byte {error.start} on"
        return Piece(arrays=[pa.array(texts, pa.string())] if self.columns else [], bad=bad)


def decoder_for(options: Mapping[str, str], *, topics: Sequence[str] = ()) -> ValueDecoder | None:
    """Return the decoder that the ``value.*`` options ask for; ``None``: values stay bytes.

    Names of options are in small letters. ``topics``: what is read, where that is known; it names the subject in a schema registry.
    Raises ``KafkaConfigurationError`` for options that are unknown, contradict each other or name what cannot be decoded, and what
    ``registry`` raises where it is asked.
    """
    kind = one_of(options, "value.format", FORMATS)
    _check(options, kind)
    if kind == "binary":
        return None
    common: dict[str, Any] = {
        "permissive": one_of(options, "value.mode", ("permissive", "failfast")) == "permissive",
        "prefix": options.get("value.prefix", ""),
    }
    if kind == "json":
        decoder: Decoder = _json(options, common)
    elif kind == "string":
        decoder = StringDecoder(columns=(("value", pa.string()),), **common)
    else:
        from .avro import avro_decoder  # fastavro is another extra

        decoder = avro_decoder(options, topics, common)
    check_names((name for name, _ in decoder.fields), f"value.schema (one column is {CORRUPT})")
    return decoder


def _check(options: Mapping[str, str], kind: str) -> None:
    known = sorted({name for names in _OPTIONS.values() for name in names})
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            raise KafkaConfigurationError(f"unknown option {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
        if name not in _OPTIONS[kind]:
            raise KafkaConfigurationError(f"{name} has no meaning with value.format={kind}")


def _json(options: Mapping[str, str], common: Mapping[str, Any]) -> Decoder:
    if not options.get("value.schema", "").strip():
        raise KafkaConfigurationError(
            "value.format=json needs value.schema: columns in Spark's DDL, such as 'id BIGINT, item STRING'"
        )
    columns = parse_fields(options["value.schema"])
    for _, column in columns:
        _check_keys(column)
    name = options.get("value.timezone", "UTC")
    try:
        return JsonDecoder(columns=columns, zone=zone(name), **common)
    except ValueError:
        raise KafkaConfigurationError(f"value.timezone={name!r}: expected a name such as Europe/Berlin, or +02:00") from None


def _check_keys(kind: Any) -> None:
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise KafkaConfigurationError(f"value.schema: {ddl(kind)}; the keys of a map in JSON are STRING")
        _check_keys(kind.item_type)
        return
    for i in range(kind.num_fields):
        _check_keys(kind.field(i).type)
