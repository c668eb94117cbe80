"""Protobuf values to columns (``value.format=protobuf``, extra ``protobuf``), in Confluent's wire format or bare.

With a registry, a list of indexes comes behind the id of the schema, in front of the value or in the header: which message of the
file it is. A value of another message than the one that is read is bad. Fields are found by their numbers, as Protobuf has it,
whichever version of the message wrote them.

A batch is read at once by ptars. If that refuses it, halves are tried, down to the values that are bad. Types are those of
``from_protobuf`` with ``upcast.unsigned.ints``: enums are texts; fields without presence have their default, not null.

Sources: the "Encoding" page of Protobuf; "Wire Format" of Confluent's schema registry.
"""

import base64
import binascii
import contextlib
import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...application.reading.arrow import array_of
from ...errors import KafkaConfigurationError
from ...values import evolve, frozen
from .ddl import Fields, check_names, list_type
from .decoding import BadValueError, Piece
from .framed import FRAME, GUID_SIZE, RegisteredDecoder, Writers, in_front, in_header, kept_schema
from .names import REGISTRY
from .registry import PROTOBUF, RegisteredSchema, Registry, UnusableSchemaError
from .secrets import References

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError
    from ptars import HandlerPool, PtarsConfig
except ImportError as missing:
    raise ImportError(
        "Protobuf values need ptars and protobuf, which the extra 'protobuf' brings: pip install '/path/to/clone[protobuf]'"
    ) from missing

_TYPES: Final = PtarsConfig(
    timestamp_unit="us",
    duration_unit="us",
    enum_repr="string",
    list_value_name="element",
    list_nullable=True,
    map_nullable=True,
    list_value_nullable=True,
    map_value_nullable=True,
)
_DEEPEST: Final = 30
"""Messages within messages."""


@frozen(kw_only=True)
class ProtobufDecoder(RegisteredDecoder):
    """Messages of one type. Schemas are texts of JSON: names and descriptors of files, that of the schema at the end."""

    message: str
    """The full name of the message."""

    def of_schema(self, number: int) -> tuple[str, Fields, Fields]:
        """Return a schema of the registry for reading, the types that Arrow builds, and the columns."""
        known = dict(self.known).get(number)
        schema = _loaded(self.registry, number) if known is None and self.registry is not None else known or self.schema
        built = _fields(schema, self.message, f"schema {number}")
        return schema, built, _as_columns(built, f"schema {number}")

    def piece(self, values: Any, ids: Any = None, topic: str = "") -> Piece:
        """Return the values decoded. Raises as ``Writers.check`` does, and ``RegistryError`` if the registry cannot be asked."""
        bad: dict[int, str] = {}
        listed: list[bytes | None] = values.to_pylist()
        if self.registry is not None:
            writers = Writers(self, topic, parse=_messages, load=_load)
            unframe = _Unframed(self.message, writers)
            of_headers = [None] * len(listed) if ids is None else ids.to_pylist()
            for place, (value, said) in enumerate(zip(listed, of_headers, strict=True)):
                try:
                    listed[place] = None if value is None else unframe(value, said)
                except BadValueError as error:
                    listed[place], bad[place] = None, str(error)
            if not writers.check(len(listed) - values.null_count):
                return self.piece(values, ids, topic)
        handler = _handler(self.schema, self.message)
        good = [place for place, value in enumerate(listed) if value is not None]
        batches = list(_read(handler, [(place, listed[place]) for place in good], bad))
        rows: list[int | None] = [None] * len(listed)
        for number, place in enumerate(place for place in good if place not in bad):
            rows[place] = number
        order = array_of(pa.int32(), rows)
        table = pa.Table.from_batches(batches, handler.schema())
        return Piece(arrays=[_cast(table.column(name).combine_chunks(), kind).take(order) for name, kind in self.columns], bad=bad)


def _read(handler: Any, values: Sequence[tuple[int, Any]], bad: dict[int, str]) -> list[Any]:
    """Return record batches of the values that can be read; ``bad`` gets why others cannot."""
    if not values:
        return []
    try:
        return [handler.list_to_record_batch([value for _, value in values])]
    except ValueError as error:
        if len(values) == 1:
            bad[values[0][0]] = f"it is not a message of the schema ({str(error).rpartition(': ')[2]})"
            return []
    middle = len(values) // 2
    return [*_read(handler, values[:middle], bad), *_read(handler, values[middle:], bad)]


def _cast(array: Any, kind: Any) -> Any:
    """Return a column in the type that Spark has."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return array.cast(kind)


class _Unframed:
    """Takes values out of their frames."""

    def __init__(self, message: str, writers: "Writers[_Messages]") -> None:
        self._message = message
        self._writers = writers
        self._right: set[bytes] = set()
        """What stood in front of values of the message, or in their headers."""

    def __call__(self, value: bytes, header: bytes | None) -> bytes:
        """Return the message in a value. Raises ``BadValueError`` if it is another one."""
        if header is not None:
            if header not in self._right:
                at = FRAME.size if header[:1] == b"\0" else GUID_SIZE
                self._check(self._writers(in_header(header, more=True)), io.BytesIO(header[at:]))
                self._right.add(header)
            return value
        # A list of one index is nearly always the only one: a zero byte.
        if (short := value[: FRAME.size + 1]) in self._right:
            return value[FRAME.size + 1 :]
        data = io.BytesIO(value)
        self._check(self._writers(in_front(data)), data)
        if data.tell() == FRAME.size + 1:
            self._right.add(short)
        return value[data.tell() :]

    def _check(self, messages: "_Messages", data: io.BytesIO) -> None:
        found = messages.at(_indexes(data))
        if found != self._message:
            raise BadValueError(f"it is a message {found}, not {self._message}")


def _indexes(data: io.BytesIO) -> tuple[int, ...]:
    """Return the indexes that lead to a message; a count of zero means the first. Raises ``BadValueError``."""
    count = _number(data)
    return tuple(_number(data) for _ in range(min(count, _DEEPEST))) if count else (0,)


def _number(data: io.BytesIO) -> int:
    """Return a varint in zigzag."""
    found = 0
    for shift in range(0, 35, 7):
        byte = data.read(1)
        if not byte:
            break
        found |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            if found & 1:
                break
            return found >> 1
    raise BadValueError("it does not name a message of its schema")


# --- schemas ---------------------------------------------------------------------------------------------------------------------


@frozen(eq=False)
class _Messages:
    """The messages of a file."""

    file: Any

    def at(self, indexes: Sequence[int]) -> str:
        """Return the full name of a message. Raises ``BadValueError`` if there is none."""
        names, types = [self.file.package] if self.file.package else [], self.file.message_type
        for index in indexes:
            if index >= len(types):
                raise BadValueError("it does not name a message of its schema")
            names.append(types[index].name)
            types = types[index].nested_type
        return ".".join(names)


@functools.lru_cache(maxsize=1000)
def _messages(schema: str) -> _Messages:
    files = json.loads(schema)
    return _Messages(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(files[-1][1])))


@functools.lru_cache(maxsize=1000)
def _load(registry: Registry, name: str | int) -> _Messages | str:
    """Return the messages of a schema, or why values cannot be read with it.

    An id means the same schema for ever, so both are kept. A registry that refuses us is neither: it raises.
    """
    try:
        return _messages(_loaded(registry, name))
    except UnusableSchemaError as error:
        return str(error)


@functools.lru_cache(maxsize=1000)
def _loaded(registry: Registry, name: str | int) -> str:
    return _files(registry.schema(name), f"schema {name}")


def _files(found: RegisteredSchema, where: str) -> str:
    """Return the files of a schema as a text. Raises ``UnusableSchemaError`` for what is not a descriptor."""
    files = [*found.references, (f"{where}.proto", found.schema)]
    checked = []
    for name, text in files:
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError, ValueError):
            text = f"{where}: {name} is not a descriptor; the registry has to know format=serialized"
            raise UnusableSchemaError(text) from None
        file.name = name  # what other files import it by
        checked.append((name, base64.b64encode(file.SerializeToString()).decode()))
    return json.dumps(checked)


@functools.cache
def _googles() -> Mapping[str, bytes]:
    """Return the files of Google's that serializers know, so that schemas import them without a reference."""
    from google.protobuf import (
        any_pb2,
        api_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
    from google.type import (
        calendar_period_pb2,
        color_pb2,
        date_pb2,
        datetime_pb2,
        dayofweek_pb2,
        decimal_pb2,
        expr_pb2,
        fraction_pb2,
        interval_pb2,
        latlng_pb2,
        localized_text_pb2,
        money_pb2,
        month_pb2,
        phone_number_pb2,
        postal_address_pb2,
        quaternion_pb2,
        timeofday_pb2,
    )

    modules = (
        *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2, timestamp_pb2),
        *(type_pb2, wrappers_pb2, calendar_period_pb2, color_pb2, date_pb2, datetime_pb2, dayofweek_pb2, decimal_pb2, expr_pb2),
        *(fraction_pb2, interval_pb2, latlng_pb2, localized_text_pb2, money_pb2, month_pb2, phone_number_pb2, postal_address_pb2),
        *(quaternion_pb2, timeofday_pb2),
    )
    return {module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb for module in modules}


@functools.lru_cache(maxsize=200)
def _pool(schema: str, *, googles: bool = False) -> Any:
    """Return the files of a schema, with what they import. Raises ``KafkaConfigurationError`` if something is missing.

    ``googles``: with Google's common types too, which an ``Any`` may hold without an import.
    """
    pool = descriptor_pool.DescriptorPool()
    given = {name: base64.b64decode(text) for name, text in json.loads(schema)}
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        data = given.get(name) or _CONFLUENTS.get(name) or _googles().get(name)
        if data is None:
            raise KafkaConfigurationError(f"a Protobuf schema imports {name!r}, which the registry did not send")
        for other in descriptor_pb2.FileDescriptorProto.FromString(data).dependency:
            add(other)
        pool.AddSerializedFile(data)

    for name in given:
        add(name)
    for name in _googles() if googles else ():
        with contextlib.suppress(TypeError):  # a schema may have such types in a file of another name
            add(name)
    return pool


def _descriptor(schema: str, message: str, where: str) -> Any:
    try:
        return _pool(schema).FindMessageTypeByName(message)
    except KeyError:
        raise KafkaConfigurationError(f"{where} has no message {message!r}") from None
    except TypeError as error:
        raise KafkaConfigurationError(f"{where} is not a Protobuf schema: {error}") from None


@functools.lru_cache(maxsize=100)
def _handler(schema: str, message: str) -> Any:
    descriptor = _descriptor(schema, message, "value.schema")
    return HandlerPool([descriptor.file], config=_TYPES).get_for_message(descriptor)


def _fields(schema: str, message: str, where: str) -> Fields:
    """Return the columns as ptars builds them. Raises ``KafkaConfigurationError`` for a message that contains itself."""
    _check_depth(_descriptor(schema, message, where), (), where)
    return tuple((each.name, each.type) for each in _handler(schema, message).schema())


def _check_depth(descriptor: Any, within: tuple[str, ...], where: str) -> None:
    if descriptor.full_name in within:
        raise KafkaConfigurationError(f"{where}: message {descriptor.full_name} contains itself, which has no column type")
    for each in descriptor.fields:
        if each.message_type is not None:
            _check_depth(each.message_type, (*within, descriptor.full_name), where)


def _as_columns(built: Fields, where: str) -> Fields:
    found = tuple((name, _as_column(kind, f"{where}, field {name!r}")) for name, kind in built)
    check_names((name for name, _ in found), where)
    return found


def _as_column(kind: Any, where: str) -> Any:
    """Return the type that Spark has for one of ptars."""
    if pa.types.is_struct(kind):
        if not kind.num_fields:
            raise KafkaConfigurationError(f"{where}: a message without fields has no column type")
        return pa.struct([(part.name, _as_column(part.type, where)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_as_column(kind.key_type, where), _as_column(kind.item_type, where))
    if pa.types.is_list(kind):
        return list_type(_as_column(kind.value_type, where))
    if pa.types.is_time(kind):
        raise KafkaConfigurationError(f"{where} is a time of day, which has no column type")
    return {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}.get(kind, kind)


def _stub(name: str, package: str, imports: Sequence[str], message: Callable[[Any], None]) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    message(file)
    return bytes(file.SerializeToString())


def _decimal(file: Any) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate(
        (("value", kinds.TYPE_BYTES), ("precision", kinds.TYPE_UINT32), ("scale", kinds.TYPE_INT32)), 1
    ):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)


_CONFLUENTS: Final = {
    # Its options say nothing about values.
    "confluent/meta.proto": _stub("confluent/meta.proto", "confluent", ("google/protobuf/descriptor.proto",), lambda file: None),
    "confluent/type/decimal.proto": _stub("confluent/type/decimal.proto", "confluent.type", (), _decimal),
}
"""Files that Confluent's serializers know without a reference."""


# --- options ---------------------------------------------------------------------------------------------------------------------


def message_reader(registry: Registry) -> Callable[[bytes, bytes | None], Any]:
    """Return what reads single values as Protobuf's JSON has them, with the names of fields that the schema has.

    Takes a value, and its header with the id of its schema if there is one. Raises ``BadValueError`` for a value that is none,
    ``UnknownSchemaError`` for an id that the registry does not have, and what ``Registry.schema`` raises.
    """

    def read(value: bytes, header: bytes | None) -> Any:
        data = io.BytesIO(value if header is None else header)
        name = in_front(data) if header is None else in_header(header, more=True)
        if header is not None:
            data.seek(FRAME.size if header[:1] == b"\0" else GUID_SIZE)
        schema = _loaded(registry, name)
        message = message_factory.GetMessageClass(_descriptor(schema, _messages(schema).at(_indexes(data)), f"schema {name}"))()
        try:
            message.ParseFromString(value[data.tell() :] if header is None else value)
        except DecodeError as error:
            raise BadValueError(f"it is not a message of its schema ({error})") from None
        try:
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=_pool(schema, googles=True))
        except RecursionError:  # messages in Any are read one by one, which no limit of Protobuf's stops
            raise BadValueError("it is nested too deeply") from None
        except (TypeError, ValueError, DecodeError, json_format.Error) as error:  # such as an Any of a type that nobody knows
            raise BadValueError(f"Protobuf's JSON cannot hold it ({error})") from None

    return read


def protobuf_decoder(
    options: Mapping[str, str], topics: Sequence[str], common: Mapping[str, Any], references: References
) -> ProtobufDecoder:
    """Return the decoder that the options ask for. Raises ``KafkaConfigurationError``, and what ``registry`` raises."""
    registry = Registry.of(options, references, PROTOBUF) if f"{REGISTRY}url" in options else None
    subject = options.get(f"{REGISTRY}subject") or (f"{topics[0]}-{common['part']}" if len(topics) == 1 else "")
    if (path := options.get("value.descriptor", "").strip()) and registry is None:
        return _of_descriptor(path, options.get("value.message", "").strip(), common)
    if registry is None or path:
        raise KafkaConfigurationError("value.format=protobuf needs one of value.descriptor and value.schema.registry.url")
    if not subject:
        raise KafkaConfigurationError(f"{REGISTRY}subject is missing: more than one topic may be read")
    found = registry.newest(subject, options.get(f"{REGISTRY}version", "latest"))
    where = f"subject {subject!r}"
    schema = _files(found, where)
    message = options.get("value.message", "").strip() or _messages(schema).at((0,))
    known = tuple((name, _files(each, f"schema {name}")) for name, each in registry.planned(subject).items())
    decoder = _decoder(schema, message, where, {**common, **kept_schema(found, options, topics)})
    return evolve(decoder, registry=registry, known=known)


def _of_descriptor(path: str, message: str, common: Mapping[str, Any]) -> ProtobufDecoder:
    """Return the decoder of bare values, from a file that ``protoc --descriptor_set_out --include_imports`` made."""
    if not message:
        raise KafkaConfigurationError("value.descriptor needs value.message, the full name of the message")
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes()).file
    except (OSError, DecodeError) as error:
        raise KafkaConfigurationError(f"value.descriptor={path!r}: {getattr(error, 'strerror', None) or error}") from None
    schema = json.dumps([(file.name, base64.b64encode(file.SerializeToString()).decode()) for file in found])
    return _decoder(schema, message, f"value.descriptor={path!r}", common)


def decoder_of_class(message: Any) -> ProtobufDecoder:
    """Return the decoder of bare values of a message whose class ``protoc`` has made. Raises ``KafkaConfigurationError``."""
    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name not in files:
            for other in file.dependencies:
                add(other)
            files[file.name] = base64.b64encode(file.serialized_pb).decode()

    add(message.DESCRIPTOR.file)
    return _decoder(json.dumps(list(files.items())), message.DESCRIPTOR.full_name, message.DESCRIPTOR.full_name, {})


def _decoder(schema: str, message: str, where: str, common: Mapping[str, Any]) -> ProtobufDecoder:
    built = _fields(schema, message, where)
    return ProtobufDecoder(schema=schema, message=message, built=built, columns=_as_columns(built, where), **common)
