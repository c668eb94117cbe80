"""Offsets in the shape of Spark's own connector."""

import json

import pytest

from kafka_async import TopicPartition
from kafka_async.adapters.spark.plan.offsets import (
    OffsetSpec,
    as_json,
    from_json,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from kafka_async.errors import KafkaConfigurationError

from ..support import A0, A1, B0

WORDS = ("earliest", "latest")


def test_topics_and_partitions_come_in_one_order() -> None:
    many = {TopicPartition("a", number): number for number in (10, 9, 2)}
    assert json.dumps(as_json({B0: 1} | many)) == '{"a": {"2": 2, "9": 9, "10": 10}, "b": {"0": 1}}'


def test_what_is_written_is_read_back() -> None:
    offsets = {A0: 0, A1: 2**62, B0: 5}
    assert from_json(json.loads(json.dumps(as_json(offsets))), "checkpoint") == offsets


@pytest.mark.parametrize("bad", [[], 5, None, {"a": 5}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a": {"-1": 1}}])
def test_what_is_no_offset_is_named(bad: object) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"^checkpoint: "):
        from_json(bad, "checkpoint")


def test_words_stand_for_themselves_in_any_case() -> None:
    assert parse_offsets("startingOffsets", " Earliest ", WORDS) == OffsetSpec("earliest", "startingOffsets")


def test_a_json_of_offsets_may_hold_the_words_as_numbers() -> None:
    spec = parse_offsets("startingOffsets", '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}', WORDS)
    assert (spec.kind, dict(spec.numbers)) == ("offsets", {A0: 23, A1: -2, B0: -1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("earlier", "expected earliest, latest or a JSON"),
        ('{"a": ', "is not JSON like"),
        ('{"a": {"0": -3}}', "offset -3 of a-0"),
        ('{"a": [0]}', "is not like"),
    ],
)
def test_bad_offsets_are_named(text: str, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        parse_offsets("startingOffsets", text, WORDS)


def test_times_are_milliseconds_by_partition() -> None:
    assert dict(parse_timestamps("startingOffsetsByTimestamp", '{"a": {"0": 1700000000000}}').numbers) == {A0: 1_700_000_000_000}
    with pytest.raises(KafkaConfigurationError, match="time -1 of a-0"):
        parse_timestamps("startingOffsetsByTimestamp", '{"a": {"0": -1}}')


def test_an_assignment_lists_partitions() -> None:
    assert parse_assignment('{"b": [0], "a": [1, 0, 1]}') == (A0, A1, B0)


@pytest.mark.parametrize("bad", ["", "a", "[]", "{}", '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}', '{"a": [true]}', '{"a": []}'])
def test_a_bad_assignment_is_named(bad: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="assign="):
        parse_assignment(bad)
