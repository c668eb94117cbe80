"""Streaming reads through Spark: nothing lost, nothing twice, whatever the first batch, a failure or the other connector does."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest

from tests.effort import apart

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from attrs import Factory, define
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kafka_async.spark import Lag, add_lag_listener, report_lag
from tests.brokers import KafkaCluster

from .spark import JVM, OURS, Row, rows, source
from .test_reading_positions import raise_log_start
from .tools import PATIENCE, new_topic, wait_until

pytestmark = pytest.mark.spark

Ownership = tuple[str, int, int]


class SinkFailed(Exception):
    """What a failing sink raises."""


@define(eq=False)
class Sink:
    """Keeps what each batch brought, as a sink that writes a batch once does; fails in the batches it is told to."""

    fails_in: set[int] = Factory(set)
    batches: dict[int, list[Ownership]] = Factory(dict)
    replayed: list[tuple[list[Ownership], list[Ownership]]] = Factory(list)
    """What a batch brought before a failure, and after it."""
    tried: dict[int, list[Ownership]] = Factory(dict)
    arrived: threading.Event = Factory(threading.Event)

    def write(self, frame: Any, number: int) -> None:
        places = sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())
        if number in self.tried:
            self.replayed.append((self.tried.pop(number), places))
        if number in self.fails_in:
            self.fails_in.discard(number)
            self.tried[number] = places
            raise SinkFailed(number)
        assert number not in self.batches
        self.batches[number] = places
        self.arrived.set()

    @property
    def places(self) -> list[Ownership]:
        """All that was brought; a place that came twice is there twice."""
        return sorted(place for places in self.batches.values() for place in places)


@define(eq=False)
class Job:
    """One streaming job: what it reads, where it keeps its offsets, what it writes to."""

    spark: Any
    cluster: KafkaCluster
    checkpoint: Path
    sink: Sink = Factory(Sink)

    def start(self, *, kind: str = OURS, now: bool = True, **options: str) -> Any:
        frame = source(self.spark, self.cluster, options, kind=kind, stream=True).load()
        writer = frame.writeStream.foreachBatch(self.sink.write).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")).start()

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read all that is there, and return the progress of each batch. Raises what ended the query."""
        query = self.start(**options)
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress]

    def fail(self, **options: Any) -> None:
        """Read until the sink fails."""
        with pytest.raises(Exception, match="SinkFailed"):
            self.run(**options)


@pytest.fixture
def job(spark: Any, kafka44: KafkaCluster, tmp_path: Path) -> Job:
    return Job(spark, kafka44, tmp_path / "checkpoint")


def places(topic: str, **ends: int) -> list[Ownership]:
    """Return every place from the first offsets to ``ends``, by partition: ``p0=5``."""
    return sorted((topic, int(name[1:]), offset) for name, end in ends.items() for offset in range(end))


@contextmanager
def producing(cluster: KafkaCluster, topic: str) -> Iterator[Callable[[], int]]:
    """Write to a topic all the time. Yields what returns the number of records written, and stops then."""
    stopped = threading.Event()
    written = [0]

    def write() -> None:
        while not stopped.is_set():
            written[0] += cluster.produce(topic, 20, start=written[0]).count

    writer = threading.Thread(target=write)

    def stop() -> int:
        stopped.set()
        writer.join()
        return written[0]

    writer.start()
    try:
        yield stop
    finally:
        stop()


def test_a_listener_gets_the_lag_of_each_batch(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 250, partitions=2)
    told: list[tuple[str, Lag]] = []
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("test")
    listeners = [add_lag_listener(job.spark, lambda name, found: told.append((name, found))), report_lag(job.spark, meter)]
    try:
        with caplog.at_level(logging.INFO, "kafka_async.spark"):
            job.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
            wait_until(lambda: len(told) >= 3 and "nothing behind" in caplog.text, PATIENCE)
    finally:
        for listener in listeners:
            job.spark.streams.removeListener(listener)

    assert [found.records for _, found in told] == [150, 50, 0]
    assert told[0][1].partitions == {(topic, 0): 75, (topic, 1): 75}
    assert told[0][1].seconds is not None
    ((name,),) = {(name,) for name, _ in told}
    assert f"query {name}: 150 records behind ({topic}: 150), " in caplog.text
    assert f"query {name}: nothing behind ({topic}: 0)" in caplog.text
    data: Any = reader.get_metrics_data()
    metrics = {each.name: each.data.data_points for each in data.resource_metrics[0].scope_metrics[0].metrics}
    ((records,), (seconds,)) = (metrics[f"kafka_async.spark.lag.{unit}"] for unit in ("records", "seconds"))
    assert (records.value, records.attributes) == (0, {"query": name, "topic": topic})
    assert (seconds.value, seconds.attributes) == (0.0, {"query": name})


def test_a_batch_has_about_as_many_bytes_as_it_may(job: Job) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 400, values=lambda n: bytes(1000 if n < 200 else 2000), partitions=2)
    job.run(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="100k")

    assert job.sink.places == places(topic, p0=200, p1=200)
    sizes = [sum(1000 if 2 * offset < 200 else 2000 for _, _, offset in batch) for batch in job.sink.batches.values()]
    assert len(sizes) >= 5
    assert all(70_000 < size < 135_000 for size in sizes[:-1])


@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "middle", "last"])
def test_a_batch_that_failed_is_read_again_and_nothing_else(job: Job, place: int) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 250, partitions=2)
    wanted = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", "commitGroup": f"g-{topic}"}
    job.sink.fails_in = {place}
    job.fail(**wanted)
    progress = job.run(**wanted)

    assert job.sink.places == places(topic, p0=125, p1=125)
    ((before, after),) = job.sink.replayed
    assert before == after
    assert {len(batch) for batch in job.sink.batches.values()} <= {0, 50}
    (last,) = progress[-1]["sources"]
    ends = {topic: {"0": 125, "1": 125}}
    assert {name: parts for name, parts in last["endOffset"].items() if "/" not in name} == ends
    assert last["latestOffset"] == (ends if place < 4 else None), "Spark asks for it only when it plans a batch"
    assert job.cluster.committed(f"g-{topic}") == {(topic, 0): 125, (topic, 1): 125}


def test_a_start_at_the_end_loses_nothing_when_the_first_batch_fails(job: Job) -> None:
    topic = new_topic(job.cluster)
    with producing(job.cluster, topic) as stop:
        job.sink.fails_in = {0, 1}
        for _ in range(2):
            query = job.start(now=False, subscribe=topic)
            with pytest.raises(Exception, match="SinkFailed"):
                query.awaitTermination(60)
        written = stop()
    (first,) = (
        int(name.removeprefix(prefix))
        for prefix in [f"__initial__/{topic}/0="]
        for name in json.loads((job.checkpoint / "offsets" / "0").read_text().splitlines()[2])
        if name.startswith(prefix)
    )
    job.run(subscribe=topic)
    assert job.sink.places == [(topic, 0, offset) for offset in range(first, written)]
    assert [before for before, _ in job.sink.replayed] == [after for _, after in job.sink.replayed]
    assert len(job.sink.replayed) == 2


@pytest.mark.parametrize(("before", "after"), [(JVM, OURS), (OURS, JVM)], ids=["to ours", "from ours"])
@pytest.mark.parametrize("fails", [*apart(0, 1), 2])
def test_a_job_moves_from_one_connector_to_the_other(job: Job, before: str, after: str, fails: int) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 200, partitions=2)
    wanted = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    job.sink.fails_in = {fails}
    job.fail(kind=before, **wanted)
    job.run(kind=after, **wanted)
    assert job.sink.places == places(topic, p0=100, p1=100)
    ((old, new),) = job.sink.replayed
    assert old == new


@pytest.mark.parametrize(("before", "after"), [(JVM, OURS), (OURS, JVM)], ids=["to ours", "from ours"])
@pytest.mark.parametrize("start", [*apart("earliest"), "latest"])
def test_a_job_that_finished_one_batch_moves_from_one_connector_to_the_other(job: Job, before: str, after: str, start: str) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 200, partitions=2)
    wanted = {"subscribe": topic, "startingOffsets": start}
    job.run(kind=before, **wanted)
    assert list(job.sink.batches) == [0]
    job.cluster.produce(topic, 100, start=200, partitions=2)
    job.run(kind=after, **wanted)
    job.cluster.produce(topic, 20, start=300, partitions=2)
    job.run(kind=before, **wanted)
    first = 0 if start == "earliest" else 100
    assert job.sink.places == [(topic, number, offset) for number in range(2) for offset in range(first, 160)]


def test_sparks_own_connector_passes_over_what_is_kept_of_missing_partitions(job: Job) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 10)
    wanted = {"subscribe": topic, "startingOffsets": "earliest"}
    job.run(**wanted)
    kept = job.checkpoint / "offsets" / "0"
    *head, end = kept.read_text().splitlines()
    kept.write_text("\n".join((*head, json.dumps(json.loads(end) | {f"__away__/{topic}:{UUID(int=7)}/1=5": {}}))))
    kept.with_name(".0.crc").unlink(missing_ok=True)  # there is none unless the session writes checksums
    job.cluster.produce(topic, 5, start=10)
    job.run(kind=JVM, **wanted)
    assert job.sink.places == places(topic, p0=15)


def test_new_partitions_and_topics_are_read_and_the_end_is_committed(job: Job) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 10)
    query = job.start(now=False, subscribePattern=f"{topic}.*", startingOffsets="earliest", commitGroup=f"g-{topic}")
    try:
        assert job.sink.arrived.wait(PATIENCE)
        job.cluster.add_partitions(topic, 2)
        job.cluster.produce(topic, 20, partitions=(1,))
        other = job.cluster.create_topic(f"{topic}-more")
        job.cluster.produce(other, 5)
        wanted = sorted(places(topic, p0=10, p1=20) + places(other, p0=5))
        wait_until(lambda: job.sink.places == wanted)
        ends = {(topic, 0): 10, (topic, 1): 20, (other, 0): 5}
        wait_until(lambda: job.cluster.committed(f"g-{topic}") == ends)
    finally:
        query.stop()


@pytest.mark.parametrize("wanted", ["subscribe", "subscribePattern"])
def test_a_topic_that_is_deleted_under_a_query_is_an_error_at_once_or_gone_on_without(job: Job, wanted: str) -> None:
    kept, deleted = new_topic(job.cluster), new_topic(job.cluster)
    topics = {"subscribe": f"{kept},{deleted}", "subscribePattern": f"{kept}|{deleted}"}[wanted]
    options = {wanted: topics, "startingOffsets": "earliest", "commitGroup": f"g-{kept}"}
    strict = Job(job.spark, job.cluster, job.checkpoint.with_name("strict"))
    for topic in (kept, deleted):
        job.cluster.produce(topic, 10)
    queries = [strict.start(now=False, **options), job.start(now=False, failOnDataLoss="false", **options)]
    try:
        before = sorted(places(kept, p0=10) + places(deleted, p0=10))
        wait_until(lambda: job.sink.places == strict.sink.places == before)
        job.cluster.delete_topics(deleted)
        job.cluster.produce(kept, 5)
        after = sorted(places(kept, p0=15) + places(deleted, p0=10))
        began = time.monotonic()
        wait_until(lambda: job.sink.places == after)
        with pytest.raises(Exception, match=f"{deleted}-0 up to offset 10: was read before, but no longer exists"):
            queries[0].awaitTermination(PATIENCE)
        assert time.monotonic() - began < 40, "it was waited for what is gone"
        wait_until(lambda: job.cluster.committed(f"g-{kept}").get((kept, 0)) == 15)
    finally:
        for query in queries:
            query.stop()


def test_a_checkpoint_of_another_topic_is_refused(job: Job) -> None:
    first, second = new_topic(job.cluster), new_topic(job.cluster)
    job.cluster.produce(first, 5)
    job.run(subscribe=first, startingOffsets="earliest")
    job.cluster.produce(second, 5)
    with pytest.raises(Exception, match=f"{first}-0 up to offset 5: was read before, but no longer exists or is no"):
        job.run(subscribe=second)


@pytest.mark.parametrize("size", [7, 60])
def test_a_topic_that_was_made_anew_is_an_error_or_read_from_its_beginning(job: Job, size: int) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 50)
    job.run(subscribe=topic, startingOffsets="earliest")
    job.cluster.delete_topics(topic)
    job.cluster.create_topic(topic)
    job.cluster.produce(topic, size)
    for _ in range(2):
        with pytest.raises(Exception, match=f"topic '{topic}' was deleted and created again"):
            job.run(subscribe=topic)
    job.run(subscribe=topic, failOnDataLoss="false")
    assert job.sink.places == sorted(places(topic, p0=50) + places(topic, p0=size))


@pytest.mark.parametrize("pause", [0.0, 1.5])
def test_a_topic_that_is_made_anew_under_a_query_is_read_once_and_whole(job: Job, pause: float) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 25)
    query = job.start(now=False, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    try:
        wait_until(lambda: job.sink.places == places(topic, p0=25))
        job.cluster.delete_topics(topic)
        time.sleep(pause)
        job.cluster.create_topic(topic)
        job.cluster.produce(topic, 25)
        wait_until(lambda: len(job.sink.places) >= 50)
        time.sleep(2)  # long enough for what would come twice
        assert job.sink.places == sorted(2 * places(topic, p0=25))
    finally:
        query.stop()


@define(eq=False)
class LateSink(Sink):
    """Does something between the plan of the second batch and its tasks."""

    first: Callable[[], object] = lambda: None

    def write(self, frame: Any, number: int) -> None:
        if number == 1 and 1 not in self.batches:
            self.first()
        super().write(frame, number)


def test_a_topic_that_is_made_anew_between_a_plan_and_its_tasks_is_read_once_and_whole(job: Job) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 10)

    def make_anew() -> None:
        job.cluster.delete_topics(topic)
        job.cluster.create_topic(topic)
        job.cluster.produce(topic, 25)

    job.sink = LateSink(first=make_anew)
    query = job.start(now=False, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    try:
        wait_until(lambda: job.sink.places == places(topic, p0=10))
        job.cluster.produce(topic, 7)
        wait_until(lambda: len(job.sink.places) >= 35)
        job.cluster.produce(topic, 1)
        wait_until(lambda: (topic, 0, 25) in job.sink.places)
        assert job.sink.places == sorted(places(topic, p0=10) + places(topic, p0=26))
        assert job.sink.batches[1] == []
    finally:
        query.stop()


def test_records_that_were_deleted_end_the_query_or_are_left_out(job: Job) -> None:
    topic = new_topic(job.cluster)
    job.cluster.produce(topic, 50)
    job.run(subscribe=topic, startingOffsets="earliest")
    job.cluster.produce(topic, 50)
    raise_log_start(job.cluster, topic, 80)
    with pytest.raises(Exception, match=f"DataLossError: offsets 50 to 79 of {topic}-0 are gone: its log begins at 80"):
        job.run(subscribe=topic)
    job.run(subscribe=topic, failOnDataLoss="false")
    assert job.sink.places == [(topic, 0, offset) for offset in (*range(50), *range(80, 100))]


def test_a_poisoned_value_ends_a_failfast_query_and_a_permissive_one_goes_on(job: Job) -> None:
    topic = new_topic(job.cluster, 2)
    job.cluster.produce(topic, 20, partitions=2, values=lambda index: b"{" if index == 11 else b'{"a":1}')
    wanted = {"subscribe": topic, "startingOffsets": "earliest", "value__format": "json", "value__schema": "a INT"}
    with pytest.raises(Exception, match=f"DeserializationError: {topic}-1, offset 5: the value cannot be decoded: it is not JSON"):
        job.run(value__mode="failfast", **wanted)
    assert job.sink.places == []
    job.run(value__mode="permissive", **wanted)
    assert job.sink.places == places(topic, p0=10, p1=10)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_sparks_own_connector(job: Job, isolation: str) -> None:
    topic = new_topic(job.cluster, 2)
    began = int(time.time() * 1000) - 3_600_000  # retention goes by it
    ends: list[Literal["commit", "abort"] | None] = [None, "commit", "abort", "commit", "abort"]
    for number, end in enumerate(ends):
        job.cluster.produce(
            topic,
            40,
            start=40 * number,
            partitions=2,
            transaction=end,
            codec="lz4" if number % 2 else "none",
            keys=lambda i: b"key %d" % i if i % 3 else None,
            values=lambda i: None if i % 7 == 0 else b"\xff value %d" % i,
            headers=[("trace", b"\x00\x01"), ("none", None)] if number % 2 else (),
            timestamps=lambda i: began + 1000 * i,
        )

    def read(kind: str) -> list[Row]:
        given = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "50"}
        frame = source(job.spark, job.cluster, given, kind=kind, stream=True, kafka__isolation__level=isolation).load()
        name = f"rows_of_{kind}"
        writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(job.checkpoint / kind))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return rows(job.spark.table(name))

    found = read(OURS)
    assert found == read(JVM)
    assert len(found) == (200 if isolation == "read_uncommitted" else 120)
