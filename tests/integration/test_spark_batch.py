"""Batch reads through Spark: row for row those of Spark's own connector, and what bad input gets."""

import json
import time
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from tests.brokers import KafkaCluster

from .spark import JVM, OURS, Row, rows, source
from .test_reading_positions import raise_log_start
from .tools import new_topic, spoil

pytestmark = pytest.mark.spark

BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: retention goes by the times of records, and would take older ones."""


@pytest.fixture(scope="module")
def topics(kafka44: KafkaCluster) -> dict[str, str]:
    """Topics with everything that a log may hold."""
    plain = new_topic(kafka44, 3)
    for codec in ("none", "lz4", "zstd"):
        kafka44.produce(
            plain,
            300,
            partitions=3,
            codec=codec,
            keys=lambda i: b"key %d" % i if i % 3 else None,
            values=lambda i: None if i % 7 == 0 else b"" if i % 7 == 1 else b"\xff value %d" % i,
            headers=[("trace", b"\x00\x01"), ("trace", b"again"), ("none", None)] if codec == "lz4" else (),
            timestamps=lambda i: BEGAN_MS + 1000 * i,
        )
    append_time = new_topic(kafka44, message_timestamp_type="LogAppendTime")
    kafka44.produce(append_time, 50, timestamps=lambda i: BEGAN_MS)
    compacted = new_topic(
        kafka44, cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms="60000", min_compaction_lag_ms="0"
    )
    for start in range(0, 200, 50):
        kafka44.produce(compacted, 50, start=start, keys=lambda i: b"%d" % (i % 10), timestamps=lambda i: BEGAN_MS)
    kafka44.produce(compacted, 1, keys=lambda i: b"last", timestamps=lambda i: BEGAN_MS + 3_600_000)
    transactional = new_topic(kafka44)
    for number, end in enumerate(("commit", "abort", "commit", "abort")):
        kafka44.produce(transactional, 20, start=20 * number, transaction=end)  # type: ignore[arg-type]  # a literal of the two
    return {"plain": plain, "append_time": append_time, "compacted": compacted, "transactional": transactional}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_sparks_own_connector(spark: Any, kafka44: KafkaCluster, topics: dict[str, str], isolation: str) -> None:
    wanted = {"subscribe": ",".join(topics.values()), "includeHeaders": "true", "kafka__isolation__level": isolation}
    ours, theirs = (source(spark, kafka44, wanted, kind=kind).load() for kind in (OURS, JVM))

    assert ours.schema == theirs.schema
    found = rows(ours)
    if found != (expected := rows(theirs)):  # the cleaner may have come between the two
        found, expected = rows(ours), rows(theirs)
    assert found == expected
    count = sum(row[2] == topics["transactional"] for row in found)
    assert count == (80 if isolation == "read_uncommitted" else 40)


@pytest.mark.parametrize(
    "wanted",
    [
        {"startingOffsets": "5", "endingOffsets": "90"},
        {"startingTimestamp": str(BEGAN_MS + 100_000), "endingTimestamp": str(BEGAN_MS + 200_000)},
        {"startingOffsetsByTimestamp": str(BEGAN_MS + 250_000), "minPartitions": "7"},
        {"startingOffsets": "-2", "endingOffsets": "-1", "maxRecordsPerPartition": "40"},
    ],
    ids=["offsets", "time", "times", "words"],
)
def test_options_mean_what_they_mean_to_sparks_own_connector(
    spark: Any, kafka44: KafkaCluster, topics: dict[str, str], wanted: dict[str, str]
) -> None:
    topic = topics["plain"]
    spelled = {
        name: json.dumps({topic: dict.fromkeys("012", int(text))}) if "Offsets" in name else text for name, text in wanted.items()
    }
    ours, theirs = (source(spark, kafka44, spelled, kind=kind, assign=f'{{"{topic}":[0,1,2]}}').load() for kind in (OURS, JVM))
    assert rows(ours) == rows(theirs)
    if "minPartitions" in wanted:
        assert ours.rdd.getNumPartitions() >= 7


def test_a_pattern_means_what_it_means_to_sparks_own_connector(spark: Any, kafka44: KafkaCluster, topics: dict[str, str]) -> None:
    pattern = f"({topics['plain']}|{topics['append_time'][:-1]}.|nope-.*)"
    longer = f"x-{topics['plain']}-x"
    kafka44.create_topic(longer, 1)
    kafka44.produce(longer, 3)
    ours, theirs = (
        rows(source(spark, kafka44, kind=kind, subscribePattern=pattern, includeHeaders="true").load()) for kind in (OURS, JVM)
    )
    assert ours == theirs
    assert {row[2] for row in ours} == {topics["plain"], topics["append_time"], longer}


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_time_after_all_records_means_what_it_means_to_sparks_own_connector(
    spark: Any, kafka44: KafkaCluster, topics: dict[str, str], option: str
) -> None:
    topic, moment = topics["plain"], BEGAN_MS + 298_500  # only partition 2 has later ones
    text = str(moment) if option == "startingTimestamp" else json.dumps({topic: dict.fromkeys("012", moment)})

    def read(kind: str, strategy: str) -> list[Row]:
        given = {"subscribe": topic, option: text, "startingOffsetsByTimestampStrategy": strategy}
        return rows(source(spark, kafka44, given, kind=kind).load())

    found = read(OURS, "latest")
    assert found == read(JVM, "latest")
    assert {row[3] for row in found} == {2}
    with pytest.raises(Exception, match=topic):
        read(JVM, "error")
    with pytest.raises(Exception, match=f"{option}: no record of {topic}-0 is at or after {moment}"):
        read(OURS, "error")


def test_a_schema_of_the_users_reads_fewer_columns(spark: Any, kafka44: KafkaCluster, topics: dict[str, str]) -> None:
    wanted = source(spark, kafka44, subscribe=topics["append_time"])
    (row,) = (
        wanted.schema("offset BIGINT, value BINARY").load().selectExpr("count(*)", "sum(offset)", "max(length(value))").collect()
    )
    assert tuple(row) == (50, sum(range(50)), 100)
    assert source(spark, kafka44, subscribe=topics["plain"], columns="topic,offset").load().columns == ["topic", "offset"]


def test_offsets_that_are_gone_are_an_error_or_left_out(spark: Any, kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100)
    raise_log_start(kafka44, topic, 30)
    wanted = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":10}}}}'}
    with pytest.raises(Exception, match=f"offsets 10 to 29 of {topic}-0 are gone: its log begins at 30"):
        source(spark, kafka44, wanted).load().count()
    assert source(spark, kafka44, wanted, failOnDataLoss="false").load().count() == 70


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("wanted", [{"endingOffsets": "20"}, {"startingOffsets": "65", "endingTimestamp": str(BEGAN_MS + 55_000)}])
def test_a_range_that_cannot_be_is_an_error_as_in_sparks_own_connector(
    spark: Any, kafka44: KafkaCluster, wanted: dict[str, str], strict: str
) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 100, timestamps=lambda i: BEGAN_MS + 1000 * i)
    raise_log_start(kafka44, topic, 50)
    given = {name: f'{{"{topic}":{{"0":{text}}}}}' if "Offsets" in name else text for name, text in wanted.items()}
    for kind, message in (
        (JVM, "resolved start offset (50|65) is greater than the resolved end"),
        (OURS, f"(50|65) of {topic}-0 is above ending"),
    ):
        with pytest.raises(Exception, match=message):
            source(spark, kafka44, given, kind=kind, subscribe=topic, failOnDataLoss=strict).load().count()


def test_a_corrupt_batch_is_named_and_what_is_before_and_behind_it_is_read(spark: Any, kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    for start in range(0, 100, 10):
        kafka44.produce(topic, 10, start=start, values=lambda index: b"record %d." % index)
    spoil(kafka44, topic, b"record 45.")

    def read(start: int, end: int) -> list[int]:
        places = (json.dumps({topic: {"0": offset}}) for offset in (start, end))
        given = dict(zip(("startingOffsets", "endingOffsets"), places, strict=True))
        return [row[4] for row in rows(source(spark, kafka44, given, subscribe=topic).load())]

    with pytest.raises(Exception, match=f"CorruptRecordException: .*{topic}-0.* offset 40"):
        read(0, 100)
    assert read(0, 40) + read(50, 100) == [*range(40), *range(50, 100)]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"subscribe": "nope-nope"}, "topics that do not exist: nope-nope"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "a batch that ends at the beginning"),
    ],
    ids=["topic", "option", "end"],
)
def test_what_cannot_be_is_named_before_anything_runs(
    spark: Any, kafka44: KafkaCluster, wanted: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        source(spark, kafka44, wanted).load().count()


def test_a_read_that_is_left_early_ends_and_the_next_one_is_whole(spark: Any, kafka44: KafkaCluster) -> None:
    topic = new_topic(kafka44)
    kafka44.produce(topic, 30_000)
    frame = source(spark, kafka44, subscribe=topic).load()
    assert len(frame.take(3)) == 3
    assert frame.count() == 30_000
