"""A program that takes every path of a task which makes Arrow's data, and prints what of pandas was asked for.

Pyarrow imports pandas, where it is installed, when it is handed values of Python's. It need not be, here.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ASKED: list[str] = []


class Watch(MetaPathFinder):
    """Notes what is imported of pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "pandas":
            ASKED.append(name)


sys.meta_path.insert(0, Watch())

import pyarrow as pa  # noqa: E402  # it is watched

from kafka_async.adapters.spark.columns import BatchBuilder  # noqa: E402  # it is watched
from kafka_async.adapters.values.formats import decoder_for  # noqa: E402  # it is watched
from kafka_async.application.reading.arrow import record_batch  # noqa: E402  # it is watched
from kafka_async.records import ColumnBuilder, Columns  # noqa: E402  # it is watched

from .test_columns import TYPES, records, spark_schema  # noqa: E402  # it is watched

AVRO = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"s","type":"string"}]}'
PLAIN = "a INT, b STRING, c DOUBLE, e TIMESTAMP, f DATE, g ARRAY<INT>, h STRUCT<x: INT>"
JSON = (b'{"a":1,"f":"2020-01-01"}', None, b"{", b'{"a":"x","i":{"k":1}}')


def values(texts: Sequence[bytes | None]) -> Columns:
    into = ColumnBuilder()
    for offset, text in enumerate(texts):
        into.append((offset, 0, 0, None, text, (), None, 0))
    into.end_run("t", 0, len(texts))
    return into.finish()


def decode(options: Mapping[str, str], *texts: bytes | None) -> None:
    decoder: Any = decoder_for(options)
    kinds = dict(decoder.columns) | {"_corrupt": pa.binary(), "_corrupt_reason": pa.string()}
    names = tuple(name for name, _ in decoder.fields)
    batch = BatchBuilder(names, pa.schema([(name, kinds[name]) for name in names]), {"value": decoder}).build(values(texts))
    batch.validate(full=True)


BatchBuilder(tuple(TYPES), spark_schema()).build(records().finish()).validate(full=True)
record_batch(records().finish()).validate(full=True)
decode({"value.format": "string"}, b"a", None, b"\xff")
for schema in PLAIN, f"{PLAIN}, d DECIMAL(6,2), i MAP<STRING, INT>, j BINARY":
    decode({"value.format": "json", "value.schema": schema}, *JSON)
if importlib.util.find_spec("fastavro") is not None:
    decode({"value.format": "avro", "value.schema": AVRO}, b"\x02\x02x", None, b"\x02")
if importlib.util.find_spec("ptars") is not None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    message = file.message_type.add(name="A")
    for number, kind in enumerate(
        (descriptor_pb2.FieldDescriptorProto.TYPE_INT64, descriptor_pb2.FieldDescriptorProto.TYPE_STRING), 1
    ):
        message.field.add(name=f"f{number}", number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    with tempfile.NamedTemporaryFile() as descriptor:
        Path(descriptor.name).write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
        decode(
            {"value.format": "protobuf", "value.descriptor": descriptor.name, "value.message": "a.A"},
            b"\x08\x01\x12\x01x",
            None,
            b"\xff",
        )
print(ASKED)  # noqa: T201  # what it is for
