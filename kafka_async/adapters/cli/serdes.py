"""Keys and values with a schema in a registry, as JSON: ``-s value=avro -r URL``, as kcat has it.

Reading waits for the registry, so it runs on a thread.

What JSON has no type for: bytes become text, a character for each (as in Avro's own JSON); decimals, dates, times and UUIDs become
text; numbers that JSON does not have become "NaN", "Infinity" and "-Infinity" (as in Protobuf's JSON).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import typer
from attrs import frozen

from ...errors import KafkaConfigurationError, KafkaError
from ..values.names import REGISTRY
from .consumer_options import content_of
from .formats import Record, Writer, dump, json_line
from .launch import require

FORMATS: Final = ("avro", "protobuf", "json")
PARTS: Final = ("key", "value")
NEEDED: Final = {"avro": ("fastavro", "httpx", "pyarrow"), "protobuf": ("httpx", "ptars", "pyarrow"), "json": ()}
"""The modules of the extra that has the name of a format."""
_FRAME: Final = 5
Read = Callable[[bytes, bytes | None], Any]
"""Returns what a key or value is; the second is the header with the id of its schema, if there is one."""


@frozen(kw_only=True)
class Serdes:
    """What keys and values are read as."""

    formats: Mapping[str, str]
    """By ``key`` and ``value``."""
    registry: Mapping[str, str]
    """The options of the registry."""

    @classmethod
    def parse(cls, given: Sequence[str], url: str | None, options: Sequence[str]) -> "Serdes | None":
        """Return what ``-s``, ``-r`` and ``--registry-option`` mean; ``None`` without them. Raises ``typer.BadParameter``."""
        formats: dict[str, str] = {}
        for text in given:
            part, equals, name = text.rpartition("=")
            if name not in FORMATS or (equals and part not in PARTS):
                raise typer.BadParameter(f"{text!r}: expected avro, protobuf or json, or one part as in value=avro")
            formats |= dict.fromkeys((part,) if equals else PARTS, name)
        for name in dict.fromkeys(formats.values()):
            require(name, *NEEDED[name])
        if not formats and (url or options):
            raise typer.BadParameter("-r and --registry-option need -s, such as -s value=avro")
        if url is None and set(formats.values()) - {"json"}:
            raise typer.BadParameter("-s needs -r, the URL of the schema registry")
        if url is None:
            return cls(formats=formats, registry={}) if formats else None
        from ..values.registry import Registry  # takes time that only -s is worth

        chosen = dict(map(_option, options)) | {f"{REGISTRY}url": url}
        try:
            Registry.of(chosen)
        except KafkaConfigurationError as error:
            raise typer.BadParameter(str(error.args[0] if error.args else error).replace(REGISTRY, "registry ")) from None
        return cls(formats=formats, registry=chosen)

    def open(self) -> "Deserializer":
        """Return what reads. Raises ``ImportError`` that names the extra that is missing."""
        return Deserializer(
            readers={part: _reader(name, self.registry) for part, name in self.formats.items()}, formats=self.formats
        )


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter("--registry-option: expected NAME=VALUE; the text is not shown, because it may be a secret")
    return REGISTRY + name.strip(), content_of(name.strip(), value)


def _reader(name: str, options: Mapping[str, str]) -> Read:
    if name == "json":
        return _read_json
    from ..values.registry import AVRO, PROTOBUF, Registry

    if name == "avro":
        from ..values.avro import record_reader

        return record_reader(Registry.of(options, kind=AVRO))
    from ..values.protobuf import message_reader

    return message_reader(Registry.of(options, kind=PROTOBUF))


def _read_json(value: bytes, header: bytes | None) -> Any:
    """Return a value in JSON, behind the id of its schema if that is not in the header. The schema itself says nothing more."""
    if header is None and (value[:1] != b"\0" or len(value) < _FRAME):
        raise ValueError("it does not begin with a zero byte and the id of a schema")
    return json.loads(value if header is not None else value[_FRAME:])


@frozen(kw_only=True)
class Deserializer:
    """Reads the parts of records that have a schema."""

    readers: Mapping[str, Read]
    formats: Mapping[str, str]

    def objects(self, record: Record) -> dict[str, Any]:
        """Return what the parts are that are read, by name, as JSON can hold it. Raises ``ValueError`` that names the record."""
        found = {}
        headers = dict(record.headers)
        for part, read in self.readers.items():
            data = getattr(record, part)
            try:
                found[part] = None if data is None else as_json(read(data, headers.get(f"__{part}_schema_id")))
            except (ValueError, KafkaError, RecursionError) as error:
                why = "it is nested too deeply" if isinstance(error, RecursionError) else error
                where = f"{record.topic} [{record.partition}] at offset {record.offset}"
                text = f"{where}: the {part} cannot be read as {self.formats[part]}: {why}"
                if part == "key" and "value" in self.formats:  # most keys have no schema, and -s NAME means both
                    text += f"; to read only values with a schema: -s value={self.formats['value']}"
                raise ValueError(text) from error
        return found

    def writer(self, write: Writer, *, as_json: bool) -> Writer:
        """Return what writes a record with JSON in place of the parts that are read: as one JSON object, or as ``write`` does."""
        if as_json:
            return lambda record: json_line(record, self.objects(record))

        def write_texts(record: Record) -> bytes:
            texts = {part: None if value is None else dump(value) for part, value in self.objects(record).items()}
            return write(record._replace(key=texts.get("key", record.key), value=texts.get("value", record.value)))

        return write_texts


def as_json(value: Any) -> Any:
    """Return a value in the types that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return value
