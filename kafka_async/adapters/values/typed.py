"""The columns that values become without Spark: ``values="json", schema=...`` of scans and exports.

What a value holds is decided by the decoders, which serve Spark as well. They build the types that Spark has; where a schema asks
for a relative of one of these (``large_string``, ``timestamp("ns")``), a column is cast once it is built.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...application.reading.arrow import array_of, scalar_of
from ...config.spelling import did_you_mean
from ...errors import DeserializationError, KafkaConfigurationError
from ...model import at_offset
from ...values import evolve, frozen
from .ddl import Fields, parse_fields
from .decoding import CORRUPT, REASON, ValueDecoder, bad_columns
from .formats import StringDecoder, check_keys, decoder_for
from .names import REGISTRY, with_names
from .registry import JSON, Registry
from .registry import NAMES as REGISTRY_OPTIONS
from .relatives import built_as, cast_to, relaxed
from .times import zone

VALUES: Final = ("json", "avro", "protobuf", "text")
"""What ``values`` may be."""
ON_BAD: Final = ("column", "null", "raise")
"""What ``on_bad`` may be."""
UTC: Final = "UTC"
"""The ``timezone`` of times that name none, unless another is given."""
INFER: Final = "infer"
"""What ``schema`` is where the fields of JSON are found in a sample."""
Registered: TypeAlias = str | Mapping[str, str | int]
"""The URL of a schema registry, or its options: ``url``, ``subject``, ``version``, ``basic.auth.user.info`` and so on."""

_ABOUT_BAD: Final = ((CORRUPT, pa.binary()), (REASON, pa.string()))
_ARGUMENTS: Final = {
    "value.format": "values",
    "value.schema": "schema",
    "value.message": "message",
    "value.descriptor": "schema",
    "value.timezone": "timezone",
    REGISTRY.removesuffix("."): "registry",
    **{f"{REGISTRY}{name}": f"registry {name}" for name in REGISTRY_OPTIONS},
}
"""The arguments by the names that Spark's options have for them."""


def decoder(
    values: str,
    *,
    on_bad: str,
    schema: Any = None,
    registry: Registered | None = None,
    topics: Sequence[str] = (),
    timezone: str | None = None,
    message: str | None = None,
    sample: Any = None,
) -> "FieldsDecoder":
    """Return what turns records into the fields of their values.

    ``values``: ``json``, ``avro``, ``protobuf``, or ``text``, which is one field ``value``.

    ``schema``: for JSON the fields, as a ``pyarrow.Schema`` (or anything with ``__arrow_c_schema__``, such as polars' schemas), in
    Spark's DDL (``"id BIGINT, at TIMESTAMP"``), or ``"infer"``: they are found in ``sample``, a binary array of values. ``infer``
    says how, and the decoder's ``conflicts`` say what is doubtful. For Avro a schema, in JSON or as a mapping, unless the
    registry's newest one is meant. For Protobuf, without a registry, the class that ``protoc``
    made of the message, or the path of a file that ``protoc --descriptor_set_out --include_imports`` made; ``message`` is then the
    full name of the message.

    ``registry``: for values in Confluent's wire format, the URL of the schema registry, or a mapping of its options. For JSON it is
    asked once, for the JSON Schema that names the fields; ``conflicts`` say which of them are texts for want of a type.
    ``topics``: what is read, where that is known: the subject is ``TOPIC-value`` if the registry's options do not name it.

    ``on_bad``: ``column`` has null in place of the fields that cannot be read, the bytes of such a value in the column
    ``_corrupt``, and why in ``_corrupt_reason``; ``null`` is just null; ``raise`` ends at the first bad value, with
    ``DeserializationError``.

    ``timezone``: of times in JSON that name none; ``UTC`` unless it is given.

    Raises ``ValueError`` for arguments that mean nothing, and for schemas that cannot be read with, ``ImportError`` that names an
    extra that is missing, and ``KafkaConfigurationError`` or ``KafkaConnectionError`` if the registry cannot be asked.
    """
    check(values, schema=schema, registry=registry, message=message, timezone=timezone)
    if on_bad not in ON_BAD:
        raise ValueError(f"on_bad={on_bad!r}: expected one of {', '.join(ON_BAD)}{did_you_mean(str(on_bad), ON_BAD)}")
    if values == "text":
        return FieldsDecoder(
            decoder=StringDecoder(columns=(("value", pa.string()),)), kinds=(("value", pa.string()),), on_bad=on_bad
        )
    if values == "json":
        return _without_clash(_json(schema, registry, topics, _zone(timezone), sample, on_bad))
    try:
        found: ValueDecoder | None
        if values == "protobuf" and hasattr(schema, "DESCRIPTOR"):
            found = _of_class(schema, registry, message)
        else:
            found = decoder_for(_options(values, schema, registry, message), topics=topics)
    except KafkaConfigurationError as error:
        raise _renamed(error) from None
    assert found is not None  # noqa: S101  # only "binary" has none
    return _without_clash(FieldsDecoder(decoder=found, kinds=found.columns, on_bad=on_bad, version=found.version))


def _without_clash(made: "FieldsDecoder") -> "FieldsDecoder":
    """Return the decoder, unless values have fields that are called as the columns about bad values."""
    about = {name for name, _ in _ABOUT_BAD} if made.on_bad == "column" else frozenset[str]()
    for name, _ in made.kinds:
        if name in about:
            raise ValueError(f"schema: {name!r} is a column about bad values; on_bad='null' or 'raise' leave its name to the field")
    return made


def _of_class(schema: Any, registry: Registered | None, message: str | None) -> ValueDecoder:
    if registry is not None or message is not None:
        raise ValueError("schema: a class says which message it is, and takes neither registry nor message beside it")
    from .protobuf import decoder_of_class  # ptars is another extra

    return decoder_of_class(schema)


_USED: Final[Mapping[str, frozenset[str]]] = {
    "json": frozenset(("schema", "registry", "timezone")),
    "avro": frozenset(("schema", "registry")),
    "protobuf": frozenset(("schema", "registry", "message")),
    "text": frozenset(),
}


def check(values: str, *, timezone: str | None, **given: Any) -> None:
    """Raise ``ValueError`` for values that there are not, for arguments that mean nothing with them, and for an unknown zone.

    ``given``: ``schema``, ``registry`` and ``message``. Nobody is asked, and a schema is not looked at. ``UTC`` changes nothing,
    and may be given with all values.
    """
    if values not in VALUES:
        raise ValueError(f"values={values!r}: expected one of {', '.join(VALUES)}{did_you_mean(str(values), VALUES)}")
    for name, each in sorted({**given, "timezone": None if timezone == UTC else timezone}.items()):
        if each is not None and name not in _USED[values]:
            raise ValueError(f"{name} has no meaning with values={values!r}")
    _zone(timezone)


def _zone(name: str | None) -> tzinfo:
    try:
        return zone(UTC if name is None else name)
    except ValueError:
        raise ValueError(f"timezone={name!r}: expected a name such as Europe/Berlin, or +02:00") from None


def _options(values: str, schema: Any, registry: Registered | None, message: str | None) -> dict[str, str]:
    """Return the arguments as the options that Spark's jobs give."""
    options = {"value.format": values}
    if schema is not None:
        if values == "avro" and isinstance(schema, Mapping):
            schema = json.dumps(schema)
        if not isinstance(schema, str):
            expected = (
                "an Avro schema, as a mapping or in JSON"
                if values == "avro"
                else "the class of a message or the path of a file of descriptors"
            )
            raise ValueError(f"schema: expected {expected}, got {type(schema).__name__}")
        options["value.schema" if values == "avro" else "value.descriptor"] = schema
    if message is not None:
        options["value.message"] = message
    if registry is not None:
        named = (
            {"url": registry} if isinstance(registry, str) else {name.replace("_", "."): text for name, text in registry.items()}
        )
        for name, given in named.items():
            if name not in REGISTRY_OPTIONS:
                raise ValueError(f"registry: unknown option {name!r}{did_you_mean(name, REGISTRY_OPTIONS)}")
            if not isinstance(given, str) and (name != "version" or type(given) is not int):
                raise ValueError(f"registry: the option {name!r} is a text; got {type(given).__name__}")
        if "url" not in named:
            raise ValueError("registry: the option 'url' is missing")
        options |= {f"{REGISTRY}{name}": str(given) for name, given in named.items()}
    return options


def _renamed(error: KafkaConfigurationError) -> KafkaConfigurationError:
    """Return an error about Spark's options as one about the arguments."""
    return type(error)(with_names(str(error).replace("value.format=", "values="), _ARGUMENTS, _ARGUMENTS.__getitem__))


def _json(
    schema: Any, registry: Registered | None, topics: Sequence[str], where: tzinfo, sample: Any, on_bad: str
) -> "FieldsDecoder":
    conflicts: tuple[str, ...] = ()
    version: int | None = None
    if registry is not None:
        if schema is not None:
            raise ValueError("values='json' takes schema or registry: in JSON nothing else is read from a registry")
        schema, conflicts, version = _registered_fields(registry, topics)
    if schema is None or (isinstance(schema, str) and not schema.strip()):
        raise ValueError(
            "values='json' needs schema: a pyarrow schema, columns in DDL such as 'id BIGINT, item STRING', or 'infer' to find "
            "them in the first values; or a registry that has a JSON Schema"
        )
    if isinstance(schema, str) and schema == INFER:
        if sample is None:
            raise ValueError("schema='infer' needs a sample of values")
        from .inference import infer

        found = infer(sample)
        schema, conflicts = found.schema, found.conflicts
    kinds = _fields_of(schema)
    from .json_values import JsonDecoder  # msgspec is another extra

    columns = tuple((name, built_as(kind, f"schema, field {name!r}")) for name, kind in kinds)
    for _, kind in columns:
        check_keys(kind, "schema")
    own = JsonDecoder(columns=columns, zone=where, framed=True)
    return FieldsDecoder(decoder=own, kinds=kinds, on_bad=on_bad, version=version, conflicts=conflicts)


def _registered_fields(registry: Registered, topics: Sequence[str]) -> tuple[Any, tuple[str, ...], int | None]:
    """Return the fields of the JSON Schema of a registry, what is doubtful, and its version."""
    from .json_schema import fields_of

    options = _options("json", None, registry, None)
    subject = options.get(f"{REGISTRY}subject") or (f"{topics[0]}-value" if len(topics) == 1 else "")
    if not subject:
        raise ValueError("registry: the option 'subject' is missing: more than one topic may be read")
    try:
        found = Registry.of(options, kind=JSON).newest(subject, options.get(f"{REGISTRY}version", "latest"))
        return (*fields_of(found, f"subject {subject!r}"), found.version)
    except KafkaConfigurationError as error:
        raise _renamed(error) from None


def _fields_of(schema: Any) -> Fields:
    """Return the fields that a schema names. Raises ``ValueError``."""
    if isinstance(schema, str):
        try:
            return parse_fields(schema)
        except KafkaConfigurationError as error:
            raise ValueError(str(_renamed(error))) from None
    if not hasattr(schema, "__arrow_c_schema__"):
        raise ValueError(f"schema: expected a pyarrow schema, columns in DDL or 'infer', got {type(schema).__name__}")
    fields = pa.schema(schema)
    if not len(fields):
        raise ValueError("schema: there are no fields")
    for name in fields.names:
        if fields.names.count(name) > 1:
            raise ValueError(f"schema: two fields have the name {name!r}")
    return tuple((each.name, relaxed(each.type)) for each in fields)


@frozen(kw_only=True)
class FieldsDecoder:
    """Turns ``getarrow``'s columns into the fields of values. A value: it is sent to worker processes."""

    decoder: ValueDecoder
    kinds: Fields
    """Names and types of the fields that are read, in order."""
    on_bad: str
    names: frozenset[str] | None = None
    """The columns of ``batch``; ``None``: all."""
    version: int | None = None
    """The version of the registry's schema that names the fields."""
    conflicts: tuple[str, ...] = ()
    """With ``schema="infer"``: a sentence for each field whose values in the sample have no type in common."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of ``batch``. All fields may be null, because values may be."""
        fields = (*self.kinds, *(_ABOUT_BAD if self.on_bad == "column" else ()))
        return pa.schema([(name, kind) for name, kind in fields if self.names is None or name in self.names])

    @property
    def needs(self) -> frozenset[str]:
        """The columns of ``getarrow`` that ``batch`` reads."""
        return frozenset(("topic", "partition", "offset", "value", *(("headers",) if self.decoder.id_header else ())))

    def begin_reading(self) -> None:
        """Say that the same records may come again."""
        self.decoder.begin_reading()

    def select(self, names: Collection[str]) -> Self:
        """Return a decoder of only these of its fields; others cost nothing, and their faults are not noticed.

        With ``_corrupt`` or ``_corrupt_reason`` among the names all fields are read: what counts as bad does not depend on which of
        them are wanted. Unknown names are ignored.
        """
        names = frozenset(names)
        if self.on_bad == "column" and any(name in names for name, _ in _ABOUT_BAD):
            return evolve(self, names=names if self.names is None else names & self.names)
        on_bad = "null" if self.on_bad == "column" else self.on_bad
        kinds = tuple((name, kind) for name, kind in self.kinds if name in names)
        return evolve(self, decoder=evolve(self.decoder, permissive=False).select(names), kinds=kinds, on_bad=on_bad)

    def batch(self, records: Any) -> Any:
        """Return a ``pyarrow.RecordBatch`` with one row of ``schema`` for each record.

        Raises ``DeserializationError`` with topic, partition and offset for the first bad value if ``on_bad`` is ``raise``.
        """
        values = _bytes_of(records.column("value"))
        header = self.decoder.id_header
        ids = None if header is None else _last_headers(records.column("headers"), header)
        parts: list[Sequence[Any]] = []
        bad: dict[int, str] = {}
        for topic, start, rows in _runs(records.column("topic")):
            piece = self.decoder.piece(values.slice(start, rows), None if ids is None else ids.slice(start, rows), topic)
            parts.append(piece.arrays)
            bad |= {start + place: why for place, why in piece.bad.items()}
        by_name = {name: _joined([part[i] for part in parts], kind) for i, (name, kind) in enumerate(self.decoder.columns)}
        arrays = [cast_to(kind, by_name[name], f"field {name!r}", bad) for name, kind in self.kinds]
        if bad and self.on_bad == "raise":
            place = min(bad)
            topic, partition, offset = (records.column(name)[place].as_py() for name in ("topic", "partition", "offset"))
            raise DeserializationError(f"{at_offset(topic, partition, offset)}: the value cannot be decoded: {bad[place]}")
        about = bad_columns(values, bad) if self.on_bad == "column" else []
        return _batch([*arrays, *about], (*self.kinds, *(_ABOUT_BAD if about else ())), len(values)).select(self.schema.names)


def _batch(arrays: Sequence[Any], fields: Fields, rows: int) -> Any:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(fields)))
    return pa.RecordBatch.from_struct_array(array_of(pa.struct([]), [{}] * rows))  # without columns it still has its rows


def _joined(arrays: Sequence[Any], kind: Any) -> Any:
    if not arrays:
        return array_of(kind, [])
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _bytes_of(values: Any) -> Any:
    """Return the values of a batch, which may be views, as a binary array."""
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _runs(topics: Any) -> Iterator[tuple[str, int, int]]:
    """Yield topic, first row and number of rows of each stretch of one topic; ``topics`` is ``getarrow``'s column."""
    names = topics.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], 0, len(topics)
        return
    codes = topics.indices
    if not len(codes):
        return
    ends = [] if len(codes) == 1 else pc.indices_nonzero(pc.not_equal(codes.slice(1), codes.slice(0, len(codes) - 1))).to_pylist()
    start = 0
    for end in (*(each + 1 for each in ends), len(codes)):
        yield names[codes[start].as_py()], start, end - start
        start = end


def _last_headers(headers: Any, name: str) -> Any:
    """Return the value of the last header of a name in each record, as a binary array; ``None`` if no record has one."""
    entries = headers.flatten()
    found = pc.indices_nonzero(pc.equal(entries.field("key"), scalar_of(pa.string(), name)))
    if not len(found):
        return None
    rows = pc.list_parent_indices(headers).take(found).to_pylist()
    places: list[int | None] = [None] * len(headers)
    for row, entry in zip(rows, found.to_pylist(), strict=True):
        places[row] = entry
    return entries.field("value").take(array_of(pa.int32(), places))
