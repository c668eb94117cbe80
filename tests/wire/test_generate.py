"""What is checked in is what the generator writes from Kafka's schemas, and what it does with schemas of the future."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kafka_async.wire.messages import describing, group
from tests.brokers import CURRENT, available, jars, required
from tests.wire.generate import SchemaError, generated, schemas_in

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(not required() and available() is not None, reason=str(available())),
]
GROUP, DESCRIBING = Path(group.__file__), Path(describing.__file__)


@pytest.fixture(scope="module")
def kafkas() -> dict[str, Any]:
    return schemas_in(jars(CURRENT) / f"kafka-clients-{CURRENT}.jar")


@pytest.fixture
def schemas(kafkas: dict[str, Any]) -> dict[str, Any]:
    return deepcopy(kafkas)


def lines_of(cls: str, text: str) -> Iterator[str]:
    """Yield the fields of a class."""
    _, _, rest = text.partition(f"class {cls}(")
    yield from (line.strip() for line in rest.partition("\n\n\n")[0].splitlines()[3:])


def named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def test_the_messages_are_kafkas(kafkas: dict[str, Any]) -> None:
    for path, text in generated(kafkas).items():
        assert path.read_text() == text, f"python -m tests.wire.generate .../kafka-clients-{CURRENT}.jar writes it anew"


def test_a_new_field_comes_at_its_place_with_kafkas_words_about_it(schemas: dict[str, Any]) -> None:
    rows = schemas["HeartbeatResponse"]["fields"]
    rows.insert(1, {"name": "NextMs", "type": "int64", "versions": "3+", "default": "-1", "about": "When to beat again."})
    rows.append({"name": "Many", "type": "[]int32", "versions": "0+", "about": "Numbers."})
    rows.append({"name": "Hints", "type": "[]string", "versions": "4+", "nullableVersions": "4+", "tag": 0, "about": "Hints."})

    text = generated(schemas)[GROUP]

    assert [*lines_of("HeartbeatResponse", text)] == [
        "throttle_time_ms: int32 = since(1, default=0)",
        "next_ms: int64 = since(3, default=-1)  # When to beat again.",
        "error_code: int16 = 0",
        "many: tuple[int32, ...] = ()  # Numbers.",
        "hints: tuple[str, ...] | None = since(4, tag=0, default=())  # Hints.",
    ]
    assert "\nfrom .base import Request, Response, Struct, int16, int32, int64, since\n" in text


def test_a_field_of_a_version_that_is_not_spoken_is_left_out(schemas: dict[str, Any], kafkas: dict[str, Any]) -> None:
    schemas["HeartbeatResponse"]["fields"].append({"name": "Later", "type": "int8", "versions": "5+"})

    assert generated(schemas) == generated(kafkas)


def test_a_field_that_is_gone_goes_and_one_that_changes_changes(schemas: dict[str, Any]) -> None:
    rows = schemas["LeaveGroupResponse"]["fields"]
    named(rows, "ThrottleTimeMs")["type"] = "int64"
    named(rows, "ErrorCode")["versions"] = "0-3"
    rows.remove(named(rows, "Members"))

    assert [*lines_of("LeaveGroupResponse", generated(schemas)[GROUP])] == [
        "throttle_time_ms: int64 = since(1, default=0)",
        "error_code: int16 = since(0, until=3, default=0)",
    ]


def test_a_new_struct_is_a_class_before_the_one_that_has_it(schemas: dict[str, Any]) -> None:
    inner: dict[str, Any] = {"name": "At", "type": "Rack", "versions": "0+", "about": "Where.", "fields": []}
    inner["fields"] = [{"name": "Zone", "type": "string", "versions": "0+", "about": "The zone."}]
    row = {"name": "Places", "type": "[]Place", "versions": "1+", "about": "Where it may be.", "fields": [inner]}
    named(schemas["DescribeClusterResponse"]["fields"], "Brokers")["fields"].append(row)

    text = generated(schemas)[DESCRIBING]

    place, rack = '@frozen(kw_only=True)\nclass Place(Struct):\n    """Where it may be."""\n\n', "    zone: str  # The zone.\n\n\n"
    assert f"{rack}{place}    at: Rack  # Where.\n\n\n@frozen(kw_only=True)\nclass DescribeClusterBroker(Struct):" in text
    assert [*lines_of("DescribeClusterBroker", text)][-1] == "places: tuple[Place, ...] = since(1, default=())  # Where it may be."


def test_a_new_struct_whose_name_is_taken_has_to_be_named_by_hand(schemas: dict[str, Any]) -> None:
    row = {
        "name": "Places",
        "type": "[]NodeEndpoint",
        "versions": "0+",
        "fields": [{"name": "A", "type": "int8", "versions": "0+"}],
    }
    schemas["HeartbeatResponse"]["fields"].append(row)

    with pytest.raises(SchemaError, match="HeartbeatResponse needs a class for Places, and there is another one called NodeE"):
        generated(schemas)


def test_a_class_that_cannot_serve_two_messages_any_longer_is_named(schemas: dict[str, Any]) -> None:
    topics = named(schemas["ShareAcknowledgeRequest"]["fields"], "Topics")
    batches = named(named(topics["fields"], "Partitions")["fields"], "AcknowledgementBatches")
    batches["fields"].append({"name": "Reason", "type": "string", "versions": "2+"})

    with pytest.raises(SchemaError, match="AcknowledgementBatch is not in ShareAcknowledgeRequest what it is elsewhere"):
        generated(schemas)


def test_a_first_flexible_version_that_is_not_kafkas_is_named(schemas: dict[str, Any]) -> None:
    schemas["FetchResponse"]["flexibleVersions"] = "13+"

    with pytest.raises(SchemaError, match=r"FetchResponse is flexible in 13\+, and from 12 on in FLEXIBLE"):
        generated(schemas)


def test_words_that_are_too_long_for_the_line_stand_above_it(schemas: dict[str, Any]) -> None:
    row = {"name": "Note", "type": "string", "versions": "0+", "about": " ".join(["word"] * 40)}
    schemas["HeartbeatResponse"]["fields"].append(row)

    above = [*lines_of("HeartbeatResponse", generated(schemas)[GROUP])][2:]

    assert above == ["# " + " ".join(["word"] * 25), "# " + " ".join(["word"] * 15), "note: str"]


def test_comments_of_kafkas_license_are_no_json(kafkas: dict[str, Any]) -> None:
    assert json.dumps(kafkas["OffsetFetchResponse"])
    assert {name.endswith(("Request", "Response")) for name in kafkas} == {True, False}
