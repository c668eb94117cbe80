"""That nothing of Kafka's schemas is forgotten."""

from typing import Any, cast

import attrs
import pytest

from kafka_async.errors import UnsupportedVersionError
from kafka_async.wire import Struct
from kafka_async.wire.layout import SKIPPED, WireField, layout_of, struct_types
from kafka_async.wire.messages import FetchRequest, HeartbeatRequest, PartitionData
from tests.wire import kafka_schemas
from tests.wire.layouts import LAYOUTS


def own_fields(cls: type[Struct]) -> set[str]:
    return {field.name for field in attrs.fields(cast(Any, cls))}


def test_every_field_of_kafka_is_ours_or_skipped_on_purpose() -> None:
    missing = {
        (struct.cls.__name__, field.name)
        for _, struct in LAYOUTS
        for field in struct.fields
        if field.skipped is None and field.name not in own_fields(struct.cls)
    }
    assert missing == set()


def test_every_field_of_ours_is_kafkas_in_some_version() -> None:
    seen: dict[type[Struct], set[str]] = {}
    for _, struct in LAYOUTS:
        seen.setdefault(struct.cls, set()).update(field.name for field in struct.fields)
    assert {cls.__name__: own_fields(cls) - names for cls, names in seen.items() if own_fields(cls) - names} == {}


def test_no_skipped_field_is_ours() -> None:
    classes = {struct.cls.__name__: struct.cls for _, struct in LAYOUTS}
    assert [(cls, name) for cls, name in SKIPPED if name in own_fields(classes[cls])] == []


def test_fields_that_some_version_lacks_have_a_default() -> None:
    lacking = {
        (struct.cls.__name__, name)
        for _, struct in LAYOUTS
        for name in own_fields(struct.cls) - {field.name for field in struct.fields if field.tag is None}
        if attrs.fields_dict(cast(Any, struct.cls))[name].default is attrs.NOTHING
    }
    assert lacking == set()


def test_times_are_milliseconds_and_error_codes_plain_numbers() -> None:
    layout = layout_of("FetchRequest", 17, FetchRequest)
    fields = {field.name: field for field in layout.fields}
    assert fields["max_wait_ms"] == WireField(
        name="max_wait_ms", kind="i", array=False, nullable=False, tag=None, struct=None, skipped=None
    )
    partition = struct_types(struct_types(FetchRequest.response)["responses"])["partitions"]
    assert partition is PartitionData
    data = next(struct for version, struct in LAYOUTS if struct.cls is PartitionData and version == 17)
    assert next(field.kind for field in data.fields if field.name == "error_code") == "h"


def test_version_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest has no version 99; those from 0 to 4 are known"):
        layout_of("HeartbeatRequest", 99, HeartbeatRequest)


def test_the_table_of_schemas_is_kafkas() -> None:
    assert kafka_schemas.PATH.read_text() == kafka_schemas.text(), "python -m tests.wire.kafka_schemas writes it anew"
