"""Questions to the cluster, and what becomes of the answers."""

import logging

import pytest

from kafka_async import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka_async.adapters.spark.plan.offsets import OffsetSpec
from kafka_async.errors import (
    DataLossError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka_async.events import ClusterDescription

from ..support import A0, A1, B0, Cluster, lookup, options

BEGINS, ENDS = {A0: 3, A1: 0}, {A0: 10, A1: 20}


def cluster() -> Cluster:
    return Cluster(logs={A0: (3, 10), A1: (0, 20), B0: (0, 5)})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"subscribe": "a"}, {A0, A1}),
        ({"subscribe": "a,b"}, {A0, A1, B0}),
        ({"assign": '{"a":[1],"b":[0]}'}, {A1, B0}),
        ({"subscribePattern": "[ab]"}, {A0, A1, B0}),
        ({"subscribePattern": "x.*"}, set()),
    ],
)
def test_each_way_to_name_topics_leads_to_their_partitions(given: dict[str, str], found: set[object]) -> None:
    assert lookup(cluster(), options(**given)).partitions() == found


@pytest.mark.parametrize(("pattern", "found"), [("", 3), ("a", 2), ("^a$", 2), ("b", 1), ("^.b", 0)])
def test_a_pattern_is_found_anywhere_in_a_name(pattern: str, found: int) -> None:
    assert len(lookup(cluster(), options(subscribePattern=pattern or ".*")).partitions()) == found


def test_a_pattern_finds_nothing_internal() -> None:
    there = cluster()
    there.internal.add("b")
    assert lookup(there, options(subscribePattern=".*")).partitions() == {A0, A1}


@pytest.mark.parametrize(("given", "name"), [({"subscribe": "a,nope"}, "nope"), ({"assign": '{"a":[0,7]}'}, "a-7")])
def test_what_does_not_exist_is_named_at_the_first_look(given: dict[str, str], name: str) -> None:
    asking = lookup(cluster(), options(**given))
    with pytest.raises(UnknownTopicOrPartitionError, match=name):
        asking.partitions()
    assert asking.partitions(first=False) <= {A0, A1}


def test_a_topic_that_is_like_a_missing_one_is_named() -> None:
    there = Cluster(logs={TopicPartition("orders", 0): (0, 1), TopicPartition("items", 0): (0, 1)})
    with pytest.raises(UnknownTopicOrPartitionError, match=r"do not exist: nope, ordres; did you mean 'orders'\?$"):
        lookup(there, options(subscribe="items,nope,ordres")).partitions()


def test_another_name_is_asked_for_once_and_shortly_when_the_last_look_has_failed() -> None:
    there = Cluster(logs={TopicPartition("orders", 0): (0, 1)})
    with pytest.raises(UnknownTopicOrPartitionError):
        lookup(there, options(subscribe="ordres", fetchOffset__numRetries="2")).partitions()
    assert [each.get("default_api_timeout_ms") for each in there.leased] == [None, None, None, "1000"]
    assert there.asked == ["topics"] * 4


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), TopicAuthorizationFailedError("orders")])
def test_that_nobody_tells_another_name_does_not_replace_the_error(error: KafkaError) -> None:
    class Silent(Cluster):
        def describe_topics(self, *names: str) -> ClusterDescription:
            if not names:
                raise error
            return super().describe_topics(*names)

    there = Silent(logs={TopicPartition("orders", 0): (0, 1)})
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: ordres$"):
        lookup(there, options(subscribe="ordres")).partitions()


def test_a_missing_topic_is_not_what_was_meant_though_it_is_there_by_now() -> None:
    there = Cluster(logs={TopicPartition("items", 0): (0, 1)})
    asking = lookup(there, options(subscribe="ordres", fetchOffset__numRetries="0"))
    there.on_topics = lambda: there.logs.update({TopicPartition("ordres", 0): (0, 1)})
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topics that do not exist: ordres$"):
        asking.partitions()


def test_failures_that_may_pass_are_met_with_patience() -> None:
    there = cluster()
    there.failures = [KafkaTimeoutError("late")] * 3
    assert lookup(there, options()).latest({A0}) == {A0: 10}


def test_a_look_up_fails_after_as_many_retries_as_the_option_says() -> None:
    there = cluster()
    there.failures = [KafkaTimeoutError("late")] * 3
    with pytest.raises(KafkaTimeoutError):
        lookup(there, options(fetchOffset__numRetries="2")).latest({A0})


def test_a_cluster_that_has_answered_before_is_waited_for() -> None:
    there = cluster()
    asking = lookup(there, options())
    asking.latest({A0})
    there.failures = [KafkaTimeoutError("late")] * 119
    assert asking.latest({A0}) == {A0: 10}
    there.failures = [KafkaTimeoutError("late")] * 1000
    with pytest.raises(KafkaTimeoutError):
        asking.latest({A0})


def test_partitions_that_are_gone_are_left_out_of_an_answer() -> None:
    there = cluster()
    asking = lookup(there, options(subscribePattern="[ab]"))
    wanted = asking.partitions()
    del there.logs[A1]
    del there.logs[B0]
    assert asking.latest(wanted) == {A0: 10}
    assert asking.earliest(wanted) == {A0: 3}
    assert asking.bounds(wanted) == ({A0: 3}, {A0: 10})
    there.logs.clear()
    assert asking.latest(wanted) == {}
    assert None not in there.waited_ms, "it was waited for as long as a consumer waits"


def test_offsets_of_what_is_there_are_waited_for() -> None:
    there = cluster()
    asking = lookup(there, options())
    wanted = asking.partitions()
    there.failures = [KafkaTimeoutError("late")] * 3
    assert asking.latest(wanted) == {A0: 10, A1: 20}


def test_what_does_not_pass_is_raised_at_once() -> None:
    there = cluster()
    there.failures = [TopicAuthorizationFailedError("a")]
    with pytest.raises(TopicAuthorizationFailedError):
        lookup(there, options()).latest({A0})
    assert len(there.leased) == 1


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (OffsetSpec("earliest", "o"), BEGINS),
        (OffsetSpec("latest", "o"), ENDS),
        (OffsetSpec("offsets", "o", {A0: 7, A1: -2}), {A0: 7, A1: 0}),
        (OffsetSpec("offsets", "o", {A0: -1, A1: 99}), {A0: 10, A1: 99}),
        (OffsetSpec("timestamp", "o", timestamp=5), {A0: 6, A1: 8}),
        (OffsetSpec("timestamps", "o", {A0: 1, A1: 2}), {A0: 6, A1: 8}),
        (OffsetSpec("committed", "o"), {A0: 4, A1: 0}),
    ],
)
def test_each_way_to_name_offsets_leads_to_an_offset_of_each_partition(spec: OffsetSpec, found: dict[object, int]) -> None:
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(6, 100), A1: OffsetAndTimestamp(8, 100)}
    there.committed = {A0: OffsetAndMetadata(4)}
    assert lookup(there, options(commitGroup="g")).resolve(spec, BEGINS, ENDS, start=True) == found


@pytest.mark.parametrize("numbers", [{A0: 1}, {A0: 1, A1: 1, B0: 1}])
def test_offsets_have_to_name_every_partition_and_no_other(numbers: dict[object, int]) -> None:
    spec = OffsetSpec("offsets", "startingOffsets", numbers)  # type: ignore[arg-type]  # the parameter's type is too wide for mypy
    with pytest.raises(KafkaConfigurationError, match="startingOffsets: expected every partition that is read, and no other"):
        lookup(cluster(), options()).resolve(spec, BEGINS, ENDS, start=True)


def test_a_time_that_no_record_reaches_is_an_error_the_end_or_the_end_as_asked() -> None:
    there = cluster()
    there.times = {A0: OffsetAndTimestamp(6, 100)}
    spec = OffsetSpec("timestamp", "startingTimestamp", timestamp=5)
    with pytest.raises(NoOffsetForPartitionError, match="no record of a-1 is at or after 5") as caught:
        lookup(there, options()).resolve(spec, BEGINS, ENDS, start=True)
    assert caught.value.partitions == (A1,)
    to_the_end = {A0: 6, A1: 20}
    assert lookup(there, options()).resolve(spec, BEGINS, ENDS, start=False) == to_the_end
    lenient = options(startingOffsetsByTimestampStrategy="latest")
    assert lookup(there, lenient).resolve(spec, BEGINS, ENDS, start=True) == to_the_end


def test_a_topic_that_was_made_anew_is_noticed() -> None:
    there = cluster()
    asking = lookup(there, options())
    asking.partitions()
    there.ids["a"] = 2
    with pytest.raises(DataLossError, match="'a' was deleted and created again"):
        asking.partitions()


def test_a_topic_that_was_missing_for_a_while_and_made_anew_is_noticed() -> None:
    there = cluster()
    asking = lookup(there, options(subscribePattern="[ab]"))
    asking.partitions()
    log = there.logs.pop(B0)
    assert asking.partitions(first=False) == {A0, A1}
    there.logs[B0], there.ids = log, {"b": 2}
    with pytest.raises(DataLossError, match="'b' was deleted and created again"):
        asking.partitions(first=False)


@pytest.mark.parametrize("retries", ["1", "3"])
def test_what_was_there_at_the_last_look_is_looked_for_as_often_as_the_option_says(retries: str) -> None:
    there = cluster()
    asking = lookup(there, options(fetchOffset__numRetries=retries))
    assert asking.partitions() == {A0, A1}
    there.lacking = [{A1}] * (int(retries) - 1)
    assert asking.partitions(first=False) == {A0, A1}
    there.lacking = [{A1}] * int(retries)
    assert asking.partitions(first=False) == {A0}
    there.lacking, there.asked = [{A1}], []
    assert asking.partitions(first=False) == {A0}, "it is gone, and not looked for any more"
    assert there.asked == ["topics"]


@pytest.mark.parametrize("given", [{"subscribe": "a"}, {"subscribePattern": "a"}, {"assign": '{"a":[1]}'}])
def test_what_a_checkpoint_names_is_looked_for_too_if_the_options_name_it(given: dict[str, str]) -> None:
    there = cluster()
    asking = lookup(there, options(**given))
    asking.expect({B0: 5}, {}, "c")
    asking.partitions()
    assert there.asked == ["topics"]
    asking = lookup(there, options(**given))
    asking.expect({A1: 20, B0: 5}, {}, "c")
    there.lacking, there.asked = [{A1}], []
    assert A1 in asking.partitions(first=False)
    assert there.asked == ["topics"] * 2


@pytest.mark.parametrize("looks", [2, 3])
def test_partitions_that_a_broker_does_not_have_are_left_out_of_an_answer_after_several_looks(looks: int) -> None:
    there = cluster()
    asking = lookup(there, options())
    wanted = asking.partitions()
    away = there.logs.pop(A1)
    there.lacking = [{A1}] * looks
    there.on_topics = lambda: there.logs.update({A1: away})  # too late for the first question
    assert asking.latest(wanted) == ({A0: 10, A1: 20} if looks < 3 else {A0: 10})


def test_a_broker_that_still_has_the_former_topic_makes_none_anew() -> None:
    there = cluster()
    asking = lookup(there, options())
    there.ids["a"] = 2
    asking.partitions()
    there.ids["a"] = 1
    there.on_topics = lambda: there.ids.update(a=2)
    assert asking.partitions(first=False) == {A0, A1}


def test_a_loss_that_is_tolerated_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    asking = lookup(cluster(), options(failOnDataLoss="false"))
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        asking.lost("offsets 1 to 2 of a-0 are gone")
        asking.lost("offsets 1 to 2 of a-0 are gone")
    assert caplog.text.count("offsets 1 to 2 of a-0 are gone; going on") == 1


def test_a_commit_that_fails_is_reported_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    there = cluster()
    there.failures = [KafkaTimeoutError("late")]
    asking = lookup(there, options(commitGroup="g"))
    with caplog.at_level(logging.WARNING, "kafka_async.spark"):
        assert not asking.commit({A0: 5})
    assert "could not be committed to group g: late" in caplog.text
    assert asking.commit({A0: 5})
    assert there.commits == [{A0: 5}]
    assert there.leased[-1]["group_id"] == "g"
    assert there.leased[-1]["default_api_timeout_ms"] == "5000", "a stream waits for it"


@pytest.mark.parametrize(("patience", "tries"), [(0.0, 1), (3.0, 3)])
def test_a_commit_is_tried_again_within_its_patience(patience: float, tries: int) -> None:
    there = cluster()
    there.commit_failures = [KafkaTimeoutError("late")] * 10
    assert not lookup(there, options(commitGroup="g")).commit({A0: 5}, patience=patience)
    assert there.asked.count("commit") == tries
