"""Which records a scan reads."""

import logging
import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import evolve

from kafka_async import IsolationLevel, TopicPartition
from kafka_async.adapters.tables import PinnedRanges
from kafka_async.adapters.tables.scan import scan
from kafka_async.errors import (
    DataLossError,
    KafkaConfigurationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafka_async.testing import Cluster
from kafka_async.wire import Api

from .support import A0, A1, Scanned, filled, offsets, scanned

TIMES = (10, 20, 30, 15, 40, 25)


def timed(found: Scanned, *times: int) -> None:
    """Create a topic ``a`` with a record at each time, in milliseconds."""
    found.do(lambda cluster: cluster.topic("a"))
    for ms in times:
        found.do(lambda cluster, ms=ms: cluster.produce("a", value=str(ms), timestamp=ms, partition=0))


def at(ms: int) -> str:
    return f"1970-01-01T00:00:00.{ms:03}Z"


# --- what is pinned --------------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_before_it_is_used() -> None:
    with filled() as found:
        table = found.scan("a")
        assert repr(table) == "<scan of a, not used yet>"
        assert table.schema.names[0] == "topic"
        assert found.cluster.requests() == []
        assert table.ranges == {A0: (0, 100)}
        assert repr(table) == "<scan of a: 100 offsets of 1 partition>"


def test_records_that_come_later_are_those_of_another_scan() -> None:
    with filled() as found:
        table = found.scan("a")
        assert offsets(table.to_arrow()) == list(range(100))
        found.do(lambda cluster: cluster.produce_many("a", ["more"] * 5, partition=0))
        assert offsets(table.to_arrow()) == list(range(100))
        assert table.count() == 100
        assert table.refresh().count() == 105


def test_no_group_is_joined_and_nothing_is_committed() -> None:
    with filled() as found:
        found.scan("a").to_arrow()
        asked = {logged.api for logged in found.cluster.requests()}
    assert not asked & {Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT, Api.FIND_COORDINATOR}


def test_offsets_are_pinned_once_for_all_who_read() -> None:
    with filled() as found:
        table = found.scan("a")
        table.to_arrow()
        before = len(found.cluster.requests(Api.LIST_OFFSETS))
        table.to_arrow()
        assert table.count() == 100
        assert len(found.cluster.requests(Api.LIST_OFFSETS)) == before


def test_no_backoff_is_waited_for_where_nothing_fails() -> None:
    with filled() as found:
        long = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000, "default_api_timeout_ms": 10_000}
        assert found.scan("a", **long).count() == 100


@pytest.mark.slow
def test_the_ranges_of_a_scan_are_read_again() -> None:
    with filled(partitions=2) as found:
        table = found.scan("a", since={0: 10}, until={1: 50})
        ranges = table.ranges
        assert ranges == {A0: (10, 100), A1: (0, 50)}
        found.do(lambda cluster: cluster.produce_many("a", ["more"] * 5, partition=0))
        sent = pickle.loads(pickle.dumps(ranges))  # noqa: S301  # ours
        for again in (ranges, sent, PinnedRanges.from_json(ranges.as_json()), dict(ranges)):
            other = found.scan(ranges=again, ordered=True)
            assert other.to_arrow().column("offset").to_pylist() == [*range(10, 100), *range(50)]
            assert other.ranges.topic_ids == ranges.topic_ids


def test_partitions_are_chosen() -> None:
    with filled(partitions=3) as found:
        assert found.scan("a", partitions=[2]).ranges == {TopicPartition("a", 2): (0, 100)}
        assert found.scan("a", partitions=[0, ("a", 1)]).count() == 200
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions that do not exist: a-7"):
            found.scan("a", partitions=[7]).count()


def test_an_empty_partition_and_an_empty_topic_end_at_once() -> None:
    with filled(partitions=2) as found:
        found.do(lambda cluster: cluster.topic("empty", partitions=2))
        assert found.scan("empty").to_arrow().num_rows == 0
        assert found.scan("empty").to_arrow().schema == found.scan("a").schema
        assert found.scan("empty", "a").count() == 200


def test_a_topic_that_is_not_there_is_named() -> None:
    with filled() as found, pytest.raises(UnknownTopicOrPartitionError, match="topic 'b' does not exist"):
        found.scan("b").count()


# --- since and until -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, TIMES),
        ({"since": at(20)}, (20, 30, 40, 25)),
        ({"since": at(41)}, ()),
        ({"until": at(31)}, (10, 20, 30, 15)),
        ({"until": at(31), "late": "0.02s"}, (10, 20, 30, 15, 25)),
        ({"since": at(16), "until": at(31), "late": "1s"}, (20, 30, 25)),
        ({"until": at(10)}, ()),
        ({"since": "end"}, ()),
        ({"since": {0: 2}, "until": {0: 4}}, (30, 15)),
        ({"until": "2100-01-01"}, TIMES),
    ],
)
def test_times_that_are_not_in_order(given: dict[str, Any], expected: tuple[int, ...]) -> None:
    """``since`` misses nothing, and drops what is older; ``until`` misses what comes late unless that is looked for."""
    with scanned() as found:
        timed(found, *TIMES)
        table = found.scan("a", **given)
        assert [int(value) for value in table.to_arrow().column("value").to_pylist()] == list(expected)
        assert table.count() == len(expected)
        assert found.scan(ranges=table.ranges).count() == len(expected)
        assert [int(each["value"]) for each in found.scan("a", columns=["value"], **given).head(9).to_pylist()] == list(expected)


@pytest.mark.slow
def test_where_a_group_has_committed() -> None:
    with filled(partitions=2) as found:
        member = found.do(lambda cluster: cluster.join("billing", "a"))
        found.do(lambda cluster: member.commit({A0: 40}))
        assert found.scan("a", since="committed:billing").ranges == {A0: (40, 100), A1: (0, 100)}
        assert found.scan("a", until="committed:billing", partitions=[0]).ranges == {A0: (0, 40)}
        with pytest.raises(NoOffsetForPartitionError, match="until: group 'billing' has committed nothing for a-1"):
            found.scan("a", until="committed:billing").count()
        with pytest.raises(NoOffsetForPartitionError, match="since: group 'biling' has committed nothing for a-0"):
            found.scan("a", since="committed:biling").count()


@pytest.mark.slow  # waits for some seconds
def test_an_end_beyond_the_log_is_an_error_with_the_offsets() -> None:
    with filled() as found:
        table = found.scan("a", until={0: 110})
        with pytest.raises(
            OffsetOutOfRangeError, match="offsets 100 to 109 of a-0 are not in its log, which ends at 100"
        ) as caught:
            table.count()
        assert caught.value.offsets == {A0: 100}
        with pytest.raises(OffsetOutOfRangeError, match="offsets 100 to 199 of a-0"):
            found.scan("a", since={0: 200}).count()
        skipping = found.scan("a", until={0: 110}, on_loss="skip")
        assert skipping.count() == 100
        assert skipping.losses == ("offsets 100 to 109 of a-0 are not in its log, which ends at 100",)


# --- transactions and gaps -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_aborted_records_and_markers_at_the_end_are_passed() -> None:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a"))
        found.do(lambda cluster: cluster.produce_many("a", ["1", "2"], partition=0))
        found.do(lambda cluster: _transaction(cluster, commit=True))
        assert found.scan("a").count() == 3
        found.do(lambda cluster: _transaction(cluster, commit=False))
        assert found.scan("a").count() == 3
        assert found.scan("a", isolation_level="read_uncommitted").count() == 4


def _transaction(cluster: Cluster, *, commit: bool) -> None:
    log = cluster.simulated.log(A0)
    cluster.simulated.produce(A0, "in a transaction", producer_id=7)
    log.end_transaction(7, commit=commit)
    cluster.simulated.changed()


@pytest.mark.slow
def test_what_an_open_transaction_holds_back_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with filled(5) as found:
        found.do(lambda cluster: cluster.simulated.produce(A0, "open", producer_id=7))
        found.do(lambda cluster: cluster.produce_many("a", ["behind"] * 2, partition=0))
        table = found.scan("a")
        with caplog.at_level(logging.WARNING, "kafka_async.scan"):
            assert table.ranges == {A0: (0, 5)}
        assert "3 offsets are held back by transactions that are still open, and left out: 3 of a-0" in caplog.text
        assert table.held_back == {A0: 3}
        assert "a-0: 0 to 5, 5 offsets, 3 more behind an open transaction" in str(table.plan())
        assert found.scan("a", isolation_level="read_uncommitted").count() == 8
        assert found.scan("a", isolation_level=IsolationLevel.READ_COMMITTED).held_back == {A0: 3}
        assert found.scan("a", isolation_level=IsolationLevel.READ_UNCOMMITTED).held_back == {}


def test_ranges_are_read_whole_though_a_broker_that_is_behind_says_that_a_transaction_is_open() -> None:
    with filled() as found:
        ranges = found.scan("a").ranges
        handlers = found.cluster.simulated.handlers
        honest: Any = handlers[Api.LIST_OFFSETS]

        def behind(broker: Any, request: Any, *asked: Any) -> Any:
            """Answer what comes first after ranges were pinned: where the stable part ends."""
            if not request.isolation_level:
                return honest(broker, request, *asked)
            handlers[Api.LIST_OFFSETS] = honest
            answer = honest(broker, request, *asked)
            (topic,) = answer.topics
            (part,) = topic.partitions
            return evolve(answer, topics=(evolve(topic, partitions=(evolve(part, offset=60),)),))

        handlers[Api.LIST_OFFSETS] = behind
        table = found.scan(ranges=ranges)
        assert table.count() == 100
        assert table.held_back == {}
        assert handlers[Api.LIST_OFFSETS] is honest


@pytest.mark.slow
@pytest.mark.parametrize("answers", [1, 10])
def test_a_broker_that_knows_another_topic_of_the_name_is_asked_again(answers: int) -> None:
    with filled() as found:
        ranges = found.scan("a").ranges
        handlers = found.cluster.simulated.handlers
        honest: Any = handlers[Api.METADATA]
        left = answers

        def behind(broker: Any, request: Any, *asked: Any) -> Any:
            nonlocal left
            answer = honest(broker, request, *asked)
            if not answer.topics or not left:
                return answer
            left -= 1
            return evolve(answer, topics=tuple(evolve(topic, topic_id=UUID(int=77)) for topic in answer.topics))

        handlers[Api.METADATA] = behind
        if answers == 1:
            assert found.scan(ranges=ranges).count() == 100
        else:
            with pytest.raises(DataLossError, match="topic 'a' was deleted and created again since its offsets were pinned"):
                found.scan(ranges=ranges).count()


@pytest.mark.slow  # waits for some seconds
def test_a_broker_that_refuses_offsets_that_are_there_is_not_asked_for_ever() -> None:
    """With on_loss="skip": there was nothing to skip."""
    with filled() as found:
        table = found.scan("a", on_loss="skip")
        assert table.ranges
        handlers = found.cluster.simulated.handlers
        honest: Any = handlers[Api.FETCH]

        def refuses(broker: Any, request: Any, version: int, error: int) -> Any:
            return honest(broker, request, version, OffsetOutOfRangeError.errno)

        handlers[Api.FETCH] = refuses
        with pytest.raises(DataLossError, match="its leader refuses them, and says that they are there"):
            table.count()


@pytest.mark.slow
def test_ranges_of_which_a_part_lies_behind_an_open_transaction_leave_it_out() -> None:
    with filled(5) as found:
        found.do(lambda cluster: cluster.simulated.produce(A0, "open", producer_id=7))
        table = found.scan(ranges={A0: (0, 6)})
        assert table.count() == 5
        assert table.held_back == {A0: 1}


def test_a_tail_that_compaction_took_is_passed() -> None:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a", cleanup_policy="compact"))
        for key in "xyxy":
            found.do(lambda cluster, key=key: cluster.produce("a", key=key, value="v", partition=0))
        found.do(lambda cluster: cluster.produce("a", key="z", value=None, partition=0))
        found.do(lambda cluster: cluster.compact(("a", 0)))
        table = found.scan("a")
        assert offsets(table.to_arrow()) == [2, 3]
        assert table.ranges == {A0: (0, 5)}


# --- losses ----------------------------------------------------------------------------------------------------------------------


def test_offsets_that_are_gone_before_the_first_use() -> None:
    with filled() as found:
        found.do(lambda cluster: cluster.delete_before(A0, 30))
        with pytest.raises(DataLossError, match="offsets 10 to 29 of a-0 are gone: its log begins at 30; on_loss='skip'"):
            found.scan("a", since={0: 10}).count()
        table = found.scan("a", since={0: 10}, on_loss="skip")
        assert offsets(table.to_arrow()) == list(range(30, 100))
        assert table.losses == ("offsets 10 to 29 of a-0 are gone: its log begins at 30",)
        assert found.scan("a").count() == 70


def test_offsets_that_are_gone_once_they_are_pinned(caplog: pytest.LogCaptureFixture) -> None:
    with filled() as found:
        table, skipping = found.scan("a"), found.scan("a", on_loss="skip")
        assert table.ranges == skipping.ranges == {A0: (0, 100)}
        found.do(lambda cluster: cluster.delete_before(A0, 30))
        with pytest.raises(DataLossError, match="on_loss='skip' goes on without these records"):
            table.to_arrow()
        with caplog.at_level(logging.WARNING, "kafka_async.scan"):
            assert offsets(skipping.to_arrow()) == list(range(30, 100))
        assert skipping.losses == ("a-0: offsets 0 to 99 are gone, in part or all; reading 30 to 99 of them",)
        assert skipping.losses[0] in caplog.text


@pytest.mark.slow
def test_records_that_were_read_before_their_logs_were_truncated(caplog: pytest.LogCaptureFixture) -> None:
    def truncate(cluster: Cluster) -> None:
        for partition in (A0, A1):
            cluster.truncate(partition, 300)
            cluster.produce_many("a", ["new"] * 900, partition=partition.partition)

    with filled(1000, partitions=2) as found:
        small = {"max_partition_fetch_bytes": 100, "fetch_buffer_bytes": 2000}
        table = found.scan("a", on_loss="skip", **small)
        read: dict[TopicPartition, list[int]] = {A0: [], A1: []}
        gone: dict[TopicPartition, int] = {}  # the last record of each log that was cut off
        truncated = False
        for batch in table:
            for topic, number, offset, value in zip(*map(batch.column, ("topic", "partition", "offset", "value")), strict=True):
                partition = TopicPartition(topic.as_py(), number.as_py())
                read[partition].append(offset.as_py())
                if value.as_py() != b"new":
                    gone[partition] = offset.as_py()
            if not truncated and all(len(each) > 400 for each in read.values()):
                found.do(truncate)
                truncated = True
    assert read == {A0: [*range(1000)], A1: [*range(1000)]}
    for partition, text in zip((A0, A1), sorted(table.losses), strict=True):
        what = "were read and are gone; what has these offsets now is left out"
        assert text == f"{partition}: offsets 300 to {gone[partition]} {what}"
        assert text in caplog.text


@pytest.mark.slow  # waits for some seconds
def test_a_topic_that_was_made_anew_between_two_readings() -> None:
    with filled() as found:
        table, skipping = found.scan("a"), found.scan("a", on_loss="skip")
        assert table.count() == skipping.count() == 100
        found.do(lambda cluster: cluster.recreate("a"))
        found.do(lambda cluster: cluster.produce_many("a", ["other"] * 200, partition=0))
        with pytest.raises(DataLossError, match="a-0: deleted and created again since this read was planned"):
            table.to_arrow()
        assert skipping.to_arrow().num_rows == 0
        with pytest.raises(DataLossError, match="topic 'a' was deleted and created again since its offsets were pinned"):
            found.scan(ranges=table.ranges).count()
        assert table.refresh().count() == 200


@pytest.mark.slow  # waits for some seconds
def test_ranges_of_topics_that_are_gone_are_losses() -> None:
    with filled(partitions=2) as found:
        for name in "bc":
            found.do(lambda cluster, name=name: cluster.topic(name))
            found.do(lambda cluster, name=name: cluster.produce_many(name, ["x"] * 5, partition=0))
        ranges = found.scan("a", "b", "c").ranges
        found.do(lambda cluster: cluster.delete("b"))
        found.do(lambda cluster: cluster.recreate("c"))
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'b' does not exist"):
            found.scan(ranges=ranges).count()
        table = found.scan(ranges=ranges, on_loss="skip")
        assert table.count() == 200
        assert table.ranges == {A0: (0, 100), A1: (0, 100)}
        assert table.losses == (
            "c-0: deleted and created again since these offsets were pinned; the records are left out",
            "b-0: deleted since these offsets were pinned; the records are left out",
        )
        found.do(lambda cluster: cluster.delete("a"))
        gone = found.scan(ranges={A0: (0, 100), A1: (50, 50)}, on_loss="skip")
        assert gone.to_arrow().num_rows == 0
        assert gone.losses == ("a-0: deleted since these offsets were pinned; the records are left out",)


# --- columns ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_columns_come_in_the_order_that_was_asked_for() -> None:
    with filled(3) as found:
        assert found.scan("a", columns=["value", "offset"]).to_arrow().to_pydict() == {
            "value": [b"0", b"1", b"2"],
            "offset": [0, 1, 2],
        }
        assert found.scan("a", columns=["topic", "_kafka_key"]).to_arrow().to_pylist()[0] == {"topic": "a", "_kafka_key": None}
        assert found.scan("a", columns="partition").schema.names == ["partition"]


def test_the_topics_of_several_fit_an_arrow_file() -> None:
    with filled(3) as found:
        found.do(lambda cluster: cluster.topic("b"))
        found.do(lambda cluster: cluster.produce_many("b", ["b"] * 3, partition=0))
        sink = pa.BufferOutputStream()
        table = found.scan("b", "a", ordered=True)
        with pa.ipc.new_file(sink, table.schema) as file:
            for batch in table:
                file.write_batch(batch)
        back = pa.ipc.open_file(sink.getvalue()).read_all()
        assert back.column("topic").to_pylist() == ["a"] * 3 + ["b"] * 3


def test_an_order_of_partitions_and_offsets() -> None:
    with filled(50, partitions=3) as found:
        table = found.scan("a", ordered=True).to_arrow()
        assert table.column("partition").to_pylist() == [0] * 50 + [1] * 50 + [2] * 50
        assert offsets(table) == [*range(50)] * 3
        assert found.scan("a").head(60).column("partition").to_pylist() == [0] * 50 + [1] * 10
        assert found.scan("a").head(0).num_rows == 0


def test_the_plan_says_what_will_be_read() -> None:
    with filled(1000, partitions=2) as found:
        found.do(lambda cluster: cluster.add_partitions("a", 3))
        plan = found.scan("a").plan()
        assert (plan.offsets, plan.ranges[A1]) == (2000, (0, 1000))
        assert 4000 <= plan.bytes <= 8000  # numbers of 1 to 3 digits
        assert 0 < plan.seconds < 10
        assert str(plan).splitlines()[0].startswith("2,000 offsets of 3 partitions, about 5")
        assert "  a-2: 0 to 0, empty" in str(plan)


@pytest.mark.slow
def test_the_plan_of_records_that_are_gone_by_now_is_that_of_the_others_or_says_so() -> None:
    with filled(1000, partitions=2) as found:
        table, skipping, whole = found.scan("a"), found.scan("a", on_loss="skip"), found.scan("a").plan()
        assert table.ranges == skipping.ranges == whole.ranges
        found.do(lambda cluster: cluster.delete_before(A0, 900))
        plan = skipping.plan()
        assert plan.offsets == 2000
        assert whole.bytes * 0.5 < plan.bytes < whole.bytes * 0.7
        with pytest.raises(DataLossError, match="on_loss='skip' goes on without these records"):
            table.plan()
        found.do(lambda cluster: cluster.delete_before(A0, 1000))
        assert whole.bytes * 0.4 < skipping.plan().bytes < whole.bytes * 0.6


@pytest.mark.slow
def test_the_plan_looks_behind_gaps() -> None:
    with scanned() as found:
        found.do(lambda cluster: cluster.topic("a", cleanup_policy="compact"))
        old, new = [("k", b"v" * 100)] * 700, [(f"k{number}", b"v" * 100) for number in range(300)]
        for key, value in old + new:
            found.do(lambda cluster, key=key, value=value: cluster.produce("a", key=key, value=value, partition=0))
        found.do(lambda cluster: cluster.compact(("a", 0)))
        assert 28_000 < found.scan("a").plan().bytes < 34_000


# --- what makes no sense ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"group_id": "g"}, "group_id: a scan joins no group; since='committed:GROUP'"),
        ({"value_deserializer": bytes}, "value_deserializer: values='json'"),
        ({"auto_offset_reset": "earliest"}, "auto_offset_reset: a scan reads exactly its ranges"),
        ({"on_loss": "ignore"}, "on_loss='ignore': expected 'raise' or 'skip'"),
        ({"columns": []}, r"columns=\[\]: expected at least one"),
        ({"columns": ["offset", "offset"]}, "each once"),
        ({"columns": ["offest"]}, "columns: 'offest' is not one of"),
        ({"since": "2026-01-02", "until": "2026-01-01"}, "since is after until"),
        ({"since": "-1h", "until": "-2h"}, "since is after until"),
        ({"partitions": []}, "partitions: there are none; leave it out to read all"),
        ({"ranges": {A0: (0, 5)}, "since": "-1h"}, "ranges say what is read"),
        ({"ranges": {A0: (5, 0)}}, "expected TopicPartition"),
        ({"ranges": {}}, "there are none"),
        ({"ranges": {TopicPartition("b", 0): (0, 5)}}, "there is none of topic 'a'"),
        ({"partitions": [-1]}, "partitions: -1 is not a partition of a"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=match):
        scan("a", **given)


def test_a_scan_is_of_something() -> None:
    with pytest.raises(TypeError, match="needs the name of a topic"):
        scan()
    with pytest.raises(TypeError, match="unknown option 'sinc'; did you mean 'since'"):
        scan("orders", sinc="-1d")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown option 'bootstrap_server'; did you mean 'bootstrap_servers'"):
        scan("a", bootstrap_server="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"topics: \['a', 'b'\] is no name; several topics are given one after the other"):
        scan(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress='bar': expected True, False or a function"):
        scan("a", progress="bar")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n=-1"):
        scan("a").head(-1)


def test_times_of_which_one_depends_on_now_are_compared_at_the_first_use() -> None:
    with filled() as found:
        table = found.scan("a", since="2100-01-01", until="-1h")
        with pytest.raises(KafkaConfigurationError, match="since is after until"):
            table.count()
        assert found.scan("a", since="-2h", until="-1h").count() == 0


@pytest.mark.parametrize("option", ["since", "until"])
def test_offsets_of_partitions_that_are_not_read_are_refused(option: str) -> None:
    topics: dict[str, Any] = {"partitions": [("a", 0), ("b", 2)], option: {("a", 0): 3, ("a", 1): 3, ("b", 0): 4}}
    with pytest.raises(KafkaConfigurationError, match=f"{option}: a-1, b-0: not among the partitions that are read, a-0, b-2"):
        scan("a", "b", **topics)


@pytest.mark.parametrize("chosen", [0, 1])
def test_each_of_some_scans_may_be_given_the_offsets_of_all_partitions(chosen: int) -> None:
    with filled(partitions=2) as found:
        table = found.scan("a", since={0: 2, 1: 1}, until={0: 4, 1: 4}, partitions=[chosen])

        assert table.ranges == {TopicPartition("a", chosen): ((2, 1)[chosen], 4)}


def test_offsets_that_begin_behind_their_end_are_refused() -> None:
    with filled() as found, pytest.raises(KafkaConfigurationError, match="since: 5 of a-0 is behind until, 2"):
        found.scan("a", since={0: 5}, until={0: 2}).count()
