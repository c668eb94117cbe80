"""A streaming read of topics that are created again, and of partitions that are missing for a while."""

from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from attrs import define
from pyspark.sql.streaming.datasource import ReadMaxRows

from kafka_async import TopicPartition
from kafka_async.errors import DataLossError

from .queries import A2, ALL, Query, cluster, ended
from .support import A0, A1, B0, Cluster


@pytest.mark.parametrize("size", [7, 25], ids=["shorter", "longer"])
@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(5)], ids=["all", "limited"])
def test_a_topic_known_to_be_made_anew_is_read_from_its_beginning(size: int, limit: Any) -> None:
    there = cluster()
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs, there.ids = {A0: (0, size)}, {"a": 2}
    taken = []
    for _ in range(10):
        end = query.latest(start, limit)
        if end == start:
            break
        ranges = query.ranges(start, end)
        assert query.ranges(start, end) == ranges, "a batch is what it was when it is planned again"
        taken += [offset for first, stop in ranges.values() for offset in range(first, stop)]
        start = end
    assert taken == list(range(size))


def test_a_topic_made_anew_with_the_old_end_offset_is_read_without_waiting_for_more() -> None:
    there = Cluster(logs={A0: (0, 10)})
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.ids = {"a": 2}
    end = query.latest(start)
    assert query.ranges(start, end) == {A0: (0, 10)}
    assert Query(there, failOnDataLoss="false").ranges(start, end) == {A0: (0, 10)}, "after a restart too"
    assert query.latest(end) == end
    there.logs[A0] = (0, 11)
    assert query.ranges(end, query.latest(end)) == {A0: (10, 11)}


def test_a_topic_made_anew_between_a_look_at_topics_and_its_end_is_read_from_its_beginning() -> None:
    there = Cluster(logs={A0: (0, 10)})
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs, there.ids = {A0: (0, 7)}, {"a": 2}
    query.now -= 10.0  # what was heard of topics is not a second old
    end = query.latest(start)
    assert query.ranges(start, end) == {A0: (0, 7)}
    there.logs[A0] = (0, 9)
    assert query.ranges(end, query.latest(end)) == {A0: (7, 9)}


@pytest.mark.parametrize("size", [3, 10, 25], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("moment", ["before the ends", "after the ends", "after the plan"])
@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(4)], ids=["all", "limited"])
def test_each_record_of_a_topic_made_anew_is_read_once_whenever_that_happens(moment: str, size: int, limit: Any) -> None:
    there = Cluster(logs={A0: (0, 10)})
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())

    def make_anew() -> None:
        there.logs, there.ids = {A0: (0, size)}, {"a": 2}

    if moment == "before the ends":
        make_anew()
    else:
        there.logs[A0] = (0, 12)
    taken: list[int] = []
    for turn in range(40):
        query.now -= 10.0 - 0.1  # what is known of topics is not a second old; latest() adds ten seconds
        end = query.latest(start, limit)
        if turn == 0 and moment == "after the ends":
            make_anew()
        if end != start:
            for first, stop in query.ranges(start, end).values():
                if there.ids:  # else they are of the old topic
                    taken += range(first, stop)
        if turn == 0 and moment == "after the plan":
            make_anew()
        start = end
    assert taken == list(range(size))


@define(eq=False)
class Vanishing(Cluster):
    """Topics that are deleted as soon as someone knows where they begin."""

    vanishes: bool = False

    def beginning_offsets(self, partitions: Any, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        found = super().beginning_offsets(partitions, timeout_ms)
        if self.vanishes:
            self.logs.clear()
        return found


def test_tasks_know_which_topic_their_offsets_are_of() -> None:
    there = Vanishing(logs={A0: (0, 10)})
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest")
    start = query.reader.initialOffset()
    end = query.latest(start)

    def topics() -> list[Any]:
        return [piece.topic_id for task in query.reader.partitions(start, end) for piece in task.value[0]]

    assert topics() == [UUID(int=1)]
    there.vanishes = True
    assert topics() == [UUID(int=1)], "the task finds out whether it comes back, and as another one"


def test_a_partition_that_is_missing_from_one_look_at_topics_is_gone_on_from(caplog: pytest.LogCaptureFixture) -> None:
    there = cluster()
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest", subscribePattern="a")
    start = query.latest(query.reader.initialOffset())
    gone = there.logs.pop(A1)
    there.logs[A0] = (0, 12)
    without = query.latest(start)
    assert without == ended({"a": {"0": 12}, f"__away__/a:{UUID(int=1)}/1=20": {}})
    assert query.ranges(start, without) == {A0: (10, 12)}
    there.logs[A1] = gone
    assert query.latest(without) == without, "a batch for nothing"
    there.logs[A1] = (0, 23)
    back = query.latest(without)
    assert query.ranges(without, back) == {A1: (20, 23)}
    restarted = Query(there, failOnDataLoss="false", subscribePattern="a")
    assert restarted.ranges(without, back) == {A1: (20, 23)}, "a batch is what it was when it is planned again"
    there.logs[A1] = (0, 24)
    after = query.latest(back)
    assert query.ranges(back, after) == {A1: (23, 24)}
    assert after == ended({"a": {"0": 12, "1": 24}})


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize(("topic", "taken"), [(1, {A1: (20, 23)}), (2, {A0: (0, 13), A1: (0, 23)})], ids=["the same", "made anew"])
def test_a_partition_that_is_missing_for_a_while_is_gone_on_from_after_restarts_too(
    topic: int, taken: dict[TopicPartition, tuple[int, int]], available_now: bool
) -> None:
    there = cluster()

    def restarted() -> Query:
        query = Query(there, failOnDataLoss="false", subscribePattern="a")
        if available_now:
            query.reader.prepareForTriggerAvailableNow()
        return query

    end: dict[str, Any] = {"a": {"0": 10, "1": 20}}
    del there.logs[A1]
    for size in (12, 13):
        there.logs[A0] = (0, size)
        end = restarted().latest(end)
        assert end == ended({"a": {"0": size}, f"__away__/a:{UUID(int=1)}/1=20": {}})
    there.logs[A1], there.ids = (0, 23), {"a": topic}
    query = restarted()
    back = query.latest(end)
    assert query.ranges(end, back) == taken
    there.logs[A0] = (0, 14)
    assert restarted().latest(back) == ended({"a": {"0": 14, "1": 23}}, a=topic)


def test_not_all_that_ever_was_missing_is_kept() -> None:
    there = cluster()
    former, away = UUID(int=3), [f"{number}=5" for number in range(1, 1000)]
    kept: dict[str, Any] = {f"__away__/b:{former}/{','.join(away)}": {}}
    query = Query(there, failOnDataLoss="false", subscribePattern="[ab]")
    there.logs |= {A0: (0, 12), A2: (0, 5), B0: (0, 4)}
    end = query.latest({"a": {"0": 10, "1": 20, "2": 5}, "b": {"0": 4}} | kept)
    assert end == ended({"a": {"0": 12, "1": 20, "2": 5}, "b": {"0": 4}} | kept)
    del there.logs[A1]
    end = query.latest(end)
    assert end == ended({"a": {"0": 12, "2": 5}, "b": {"0": 4}, f"__away__/a:{UUID(int=1)}/1=20": {}} | kept)
    del there.logs[A2]
    kept = {f"__away__/b:{former}/{','.join(away[1:])}": {}}
    assert query.latest(end) == ended({"a": {"0": 12}, "b": {"0": 4}, f"__away__/a:{UUID(int=1)}/1=20,2=5": {}} | kept)


def test_however_many_partitions_are_missing_one_more_does_not_make_them_read_again() -> None:
    there = cluster()
    many = {TopicPartition("b", number): (0, 5) for number in range(1200)}
    there.logs |= many
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest", subscribePattern="[ab]")
    end = query.latest(query.reader.initialOffset())
    for partition in many:
        del there.logs[partition]
    end = query.latest(end)
    del there.logs[A1]
    end = query.latest(end)
    there.logs |= {A1: (0, 23)} | dict.fromkeys(many, (0, 7))
    assert query.ranges(end, query.latest(end)) == {A1: (20, 23)} | dict.fromkeys(many, (5, 7))


def test_a_partition_that_is_missing_as_another_topic_is_made_anew_is_gone_on_from() -> None:
    there = Cluster(logs={A0: (0, 10), B0: (0, 20)})
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest", subscribePattern="[ab]")
    start = query.latest(query.reader.initialOffset())
    gone = there.logs.pop(B0)
    there.logs[A0], there.ids = (0, 3), {"a": 2}
    without = query.latest(start)
    assert query.ranges(start, without) == {A0: (0, 3)}
    there.logs[B0] = (0, gone[1] + 2)
    assert query.ranges(without, query.latest(without)) == {B0: (20, 22)}


LENIENT = {"failOnDataLoss": "false"}


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("size", [0, 3, 10, 25], ids=["empty", "shorter", "as long", "longer"])
def test_a_topic_made_anew_while_the_query_is_stopped_is_an_error_at_each_start_or_read_from_its_beginning(
    size: int, available_now: bool
) -> None:
    there = cluster()
    query = Query(there, startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs, there.ids = {A0: (0, size), A1: (0, 0)}, {"a": 2}

    def run(**given: str) -> Query:
        query = Query(there, **given)
        if available_now:
            query.reader.prepareForTriggerAvailableNow()
        return query

    for failing in (query, run(), run()):
        with pytest.raises(DataLossError, match="topic 'a' was deleted and created again"):
            failing.latest(start)
    query = run(**LENIENT)
    end = query.latest(start)
    assert query.ranges(start, end) == ({A0: (0, size)} if size else {})
    assert query.latest(end) == run(**LENIENT).latest(end) == run().latest(end) == end
    there.logs[A0] = (0, size + 2)
    for again in (run(), run(**LENIENT)):
        assert again.ranges(end, again.latest(end)) == {A0: (size, size + 2)}


@pytest.mark.parametrize("first", [False, True])
def test_a_batch_of_a_topic_made_anew_since_then_has_nothing_when_it_is_planned_again(first: bool) -> None:
    there = Cluster(logs={A0: (0, 8)})
    query = Query(there, startingOffsets="earliest")
    start = query.reader.initialOffset()
    if not first:
        start = query.latest(start)
        there.logs[A0] = (0, 12)
    end = query.latest(start)
    there.logs, there.ids = {A0: (0, 25)}, {"a": 2}
    with pytest.raises(DataLossError, match="topic 'a' was deleted and created again"):
        Query(there).ranges(start, end)
    query = Query(there, **LENIENT)
    assert query.ranges(start, end) == {}
    assert query.ranges(end, query.latest(end)) == {A0: (0, 25)}


def test_a_partition_that_a_topic_made_anew_gets_only_later_is_read_from_its_beginning() -> None:
    there = cluster()
    query = Query(there, startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs, there.ids = {A0: (0, 5)}, {"a": 2}
    query = Query(there, **LENIENT)
    end = query.latest(start)
    assert query.ranges(start, end) == {A0: (0, 5)}
    there.logs[A1] = (0, 30)
    assert query.ranges(end, query.latest(end)) == {A1: (0, 30)}


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_broker_that_still_has_the_former_topic_is_not_believed_after_a_restart(strict: str) -> None:
    there = cluster()
    there.ids = {"a": 2}
    query = Query(there, startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    there.logs[A0] = (0, 12)
    there.former = [{"a": 1}]
    query = Query(there, failOnDataLoss=strict)
    assert query.ranges(end, query.latest(end)) == {A0: (10, 12)}


def test_ids_of_topics_in_another_cluster_mean_nothing() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    there.cluster_id, there.ids, there.logs[A0] = "d", {"a": 2}, (0, 12)
    for moved in (Query(there, commitGroup="g"), Query(there, commitGroup="g")):
        after = moved.latest(end)
        assert after == {"a": {"0": 12, "1": 20}, f"__topics__/a:{UUID(int=2)}/d": {}}
        assert moved.ranges(end, after) == {A0: (10, 12)}
        assert there.commits[-1] == {A0: 10, A1: 20}
        assert set(there.commit_ids[-1].values()) == {None}
        Query(there, commitGroup="g").reader.commit(end)
        assert set(there.commit_ids[-1].values()) == {None}, "before the first batch too"
    there.ids = {"a": 3}
    with pytest.raises(DataLossError, match="topic 'a' was deleted and created again"):
        Query(there).latest(after)


def test_offsets_are_committed_for_the_topic_that_they_were_read_of_after_a_restart_too() -> None:
    there = cluster()
    query = Query(there, commitGroup="g", startingOffsets="earliest")
    end = query.latest(query.reader.initialOffset())
    there.ids = {"a": 2}
    query = Query(there, commitGroup="g", **LENIENT)
    query.latest(end)
    assert there.commits == [{A0: 10, A1: 20}]
    assert set(there.commit_ids[0].values()) == {UUID(int=1)}


@pytest.mark.parametrize(("topic", "begin"), [(1, 7), (2, 0)], ids=["the same", "made anew"])
def test_a_topic_that_is_missing_when_a_query_starts_again_is_gone_on_from(topic: int, begin: int) -> None:
    there = Cluster(logs={A0: (0, 10), B0: (0, 7)})
    query = Query(there, subscribePattern="[ab]", startingOffsets="earliest")
    start = query.latest(query.reader.initialOffset())
    there.logs = {A0: (0, 12)}
    query = Query(there, subscribePattern="[ab]", **LENIENT)
    without = query.latest(start)
    assert query.ranges(start, without) == {A0: (10, 12)}
    there.logs[B0], there.ids = (0, 9), {"b": topic}
    for back in (query, Query(there, subscribePattern="[ab]", **LENIENT)):
        assert back.ranges(without, back.latest(without)) == {B0: (begin, 9)}


def restarted(there: Cluster, how: str) -> tuple[Query, dict[str, Any]]:
    """Return a query that goes on from a checkpoint at the ends of the topics, and that checkpoint."""
    query, start = Query(there, failOnDataLoss="false", subscribePattern="a"), {"a": {"0": 10, "1": 20}}
    if how == "a batch is planned again":
        assert query.ranges({"a": {"0": 7, "1": 20}}, start) == {A0: (7, 10)}
    else:
        assert query.latest(start) == start
    return query, start


@pytest.mark.parametrize("how", ["nothing new comes", "a batch is planned again"])
def test_a_topic_made_anew_after_a_restart_is_read_from_its_beginning_before_a_first_batch_too(how: str) -> None:
    there = cluster()
    query, start = restarted(there, how)
    there.logs, there.ids = {A0: (0, 25), A1: (0, 3)}, {"a": 2}
    assert query.ranges(start, query.latest(start)) == {A0: (0, 25), A1: (0, 3)}


@pytest.mark.parametrize("how", ["nothing new comes", "a batch is planned again"])
def test_a_partition_that_is_missing_for_a_while_after_a_restart_is_gone_on_from(how: str) -> None:
    there = cluster()
    query, start = restarted(there, how)
    del there.logs[A1]
    there.logs[A0] = (0, 12)
    without = query.latest(start)
    assert query.ranges(start, without) == {A0: (10, 12)}
    there.logs[A1] = (0, 23)
    assert query.ranges(without, query.latest(without)) == {A1: (20, 23)}


def test_a_partition_that_is_missing_is_an_error_before_a_batch_without_it_is_logged() -> None:
    there = cluster()
    start = {"a": {"0": 10, "1": 20}}
    there.logs = {A0: (0, 12)}
    with pytest.raises(DataLossError, match="a-1 up to offset 20: was read before, but no longer exists"):
        Query(there).latest(start)
    there.logs[A1] = (0, 23)
    query = Query(there)
    assert query.ranges(start, query.latest(start)) == {A0: (10, 12), A1: (20, 23)}


def test_a_batch_that_was_logged_without_a_partition_is_planned_again_once_that_is_there() -> None:
    there = Cluster(logs={A0: (0, 12)})
    start, end = {"a": {"0": 10, "1": 20}}, {"a": {"0": 12}, f"__away__/a:{UUID(int=1)}/1=20": {}}
    with pytest.raises(DataLossError, match="a-1 up to offset 20: was read before, but no longer exists"):
        Query(there).ranges(start, end)
    there.logs[A1] = (0, 23)
    query = Query(there)
    assert query.ranges(start, end) == {A0: (10, 12)}
    assert query.ranges(end, query.latest(end)) == {A1: (20, 23)}
    for other in ({"a": {"0": 12}}, {"a": {"0": 12}, f"__away__/a:{UUID(int=2)}/1=20": {}}):
        with pytest.raises(DataLossError, match="a-1 up to offset 20: was read before, but no longer exists"):
            Query(there).ranges(start, other)


@pytest.mark.parametrize("available_now", [False, True])
def test_one_broker_that_lacks_a_partition_does_not_end_a_batch_that_was_logged_without_it(available_now: bool) -> None:
    there = Cluster(logs={A0: (0, 12), A1: (0, 23)}, lacking=[{A1}])
    start, end = {"a": {"0": 10, "1": 20}}, {"a": {"0": 12}, f"__away__/a:{UUID(int=1)}/1=20": {}}
    query = Query(there)
    if available_now:
        query.reader.prepareForTriggerAvailableNow()
    assert query.ranges(start, end) == {A0: (10, 12)}
    assert query.ranges(end, query.latest(end)) == {A1: (20, 23)}


@pytest.mark.parametrize("named", [False, True], ids=["an older checkpoint", "with ids"])
@pytest.mark.parametrize("how", ["at once", "later", "after a restart"])
def test_what_a_batch_lacks_since_a_partition_was_missing_when_it_was_planned_comes_with_the_next(how: str, named: bool) -> None:
    there = Cluster(logs={A0: (0, 12)})
    query = Query(there, commitGroup="g", failOnDataLoss="false")
    start, end = {"a": {"0": 10, "1": 20}}, {"a": {"0": 12, "1": 23, "2": 5}}
    if named:
        start, end = ended(start), ended(end)
    assert query.ranges(start, end) == {A0: (10, 12)}
    if how != "at once":
        start, end = end, query.latest(end)
        assert query.ranges(start, end) == {}
        assert query.latest(end) == end
        assert there.commits == [{A0: 12}]
    if how == "after a restart":
        query = Query(there, failOnDataLoss="false")
        assert query.ranges(start, end) == {}
    there.logs |= {A1: (0, 25), A2: (0, 6)}
    back = query.latest(end)
    query.reader.commit(end)
    assert query.ranges(end, back) == {A1: (20, 25), A2: (0, 6)}
    assert Query(there).ranges(end, back) == {A1: (20, 25), A2: (0, 6)}, "a batch is what it was when it is planned again"
    assert query.latest(back) == back
    assert there.commits == [{A0: 12}] + ([{A0: 12, A1: 25, A2: 6}] if how != "after a restart" else [])
    if how != "at once":
        there.logs[A0] = (0, 14)
        assert Query(there).ranges(start, end) == {}, "without an error, since the partition is there again"


def test_a_topic_without_a_known_id_that_was_missing_when_a_batch_was_planned_is_read_again_rather_than_skipped() -> None:
    there = Cluster(logs={A0: (0, 12)})
    query = Query(there, failOnDataLoss="false", subscribePattern="[ab]")
    start, end = {"a": {"0": 10}, "b": {"0": 20}}, {"a": {"0": 12}, "b": {"0": 23}}
    assert query.ranges(start, end) == {A0: (10, 12)}
    there.logs[B0] = (0, 25)
    assert query.ranges(end, query.latest(end)) == {B0: (0, 25)}


@pytest.mark.parametrize("first", [False, True])
def test_a_batch_that_makes_up_for_one_is_planned_though_nothing_new_has_come(first: bool) -> None:
    there = Cluster(logs={A0: (0, 10)})
    given = {"failOnDataLoss": "false", "subscribePattern": "a", "startingOffsets": "earliest"}
    query = Query(there, **given)
    start, begin = query.reader.initialOffset(), 0
    if not first:  # this batch too begins elsewhere than at its start
        start, begin = query.latest(start), 10
        there.logs.clear()
        start = query.latest(start)
        there.logs[A0] = (0, 13)
    end, gone = query.latest(start), there.logs.pop(A0)
    query = Query(there, **given)
    assert query.ranges(start, end) == {}
    there.logs[A0] = gone
    back = query.latest(end)
    assert back != end, "Spark plans no batch that ends where it starts"
    for again in (query, Query(there, **given)):
        assert again.ranges(end, back) == {A0: (begin, gone[1])}
        assert again.latest(back) == back, "a batch for nothing"
    there.logs[A0] = (0, 24)
    assert query.ranges(back, query.latest(back)) == {A0: (gone[1], 24)}


@pytest.mark.parametrize("returns", ["in the same run", "in the next run"])
def test_a_partition_that_goes_missing_under_available_now_is_gone_on_from(returns: str) -> None:
    there = Cluster(logs={A0: (0, 12), A1: (0, 23)})

    def run() -> Query:
        query = Query(there, failOnDataLoss="false")
        query.reader.prepareForTriggerAvailableNow()
        return query

    query, start = run(), {"a": {"0": 10, "1": 20}}
    del there.logs[A1]
    end = query.latest(start)
    assert query.ranges(start, end) == {A0: (10, 12)}
    assert query.latest(end) == end
    there.logs[A1] = (0, 25)
    query = query if returns == "in the same run" else run()
    back = query.latest(end)
    assert query.ranges(end, back) == {A1: (20, 23 if returns == "in the same run" else 25)}
    assert query.latest(back) == back


@pytest.mark.parametrize("strict", ["true", "false"])
@pytest.mark.parametrize("look", range(5))
def test_one_broker_that_does_not_have_a_partition_ends_nothing_and_loses_nothing(
    look: int, strict: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = cluster()
    query = Query(there, failOnDataLoss=strict, startingOffsets="earliest", subscribePattern="a")
    start = query.latest(query.reader.initialOffset())
    there.logs |= {A1: (0, 25), A2: (0, 7)}
    there.lacking = [set()] * look + [{A0, A1, A2}]
    taken: dict[TopicPartition, list[int]] = {A1: [], A2: []}
    for _ in range(3):
        end = query.latest(start)
        for partition, (first, stop) in query.ranges(start, end).items():
            taken[partition] += range(first, stop)
        start = end
    assert taken == {A1: list(range(20, 25)), A2: list(range(7))}
    assert "going on, since failOnDataLoss is false" not in caplog.text


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("strict", ["true", "false"])
def test_the_broker_that_is_asked_first_after_a_restart_may_be_behind(strict: str, available_now: bool) -> None:
    there = Cluster(logs={A0: (0, 10), B0: (0, 20)})

    def restarted() -> Query:
        query = Query(there, failOnDataLoss=strict, subscribePattern="[ab]")
        there.lacking = [{B0}]
        if available_now:
            query.reader.prepareForTriggerAvailableNow()
        return query

    planned, end = {"a": {"0": 10}, "b": {"0": 15}}, ended({"a": {"0": 10}, "b": {"0": 20}})
    assert restarted().ranges({"a": {"0": 5}, "b": {"0": 10}}, planned) == {A0: (5, 10), B0: (10, 15)}
    query = restarted()
    assert query.latest(planned) == end
    assert query.ranges(planned, end) == {B0: (15, 20)}


def test_a_partition_that_was_missing_and_belongs_to_another_topic_now_is_read_from_its_beginning() -> None:
    there = cluster()
    there.logs[B0] = (0, 7)
    query = Query(there, failOnDataLoss="false", startingOffsets="earliest", subscribePattern="[ab]")
    start = query.latest(query.reader.initialOffset())
    del there.logs[B0]
    there.logs[A0] = (0, 12)
    without = query.latest(start)
    there.logs[B0], there.ids = (0, 9), {"b": 2}
    assert query.ranges(without, query.latest(without)) == {B0: (0, 9)}
