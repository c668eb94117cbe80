"""The driver's requests to the cluster: which partitions there are, and where they begin and end.

An exception on the driver ends a streaming query. So requests that may succeed later are repeated here
(``fetchOffset.numRetries``), after the consumer itself has tried until its ``default_api_timeout_ms``; and for ``PATIENCE`` once
the cluster has answered.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ....config.spelling import did_you_mean_one
from ....errors import DataLossError, KafkaConfigurationError, KafkaError, NoOffsetForPartitionError, UnknownTopicOrPartitionError
from ....events import TopicDescription
from ....model import OffsetAndMetadata, TopicPartition
from ....values import define, field
from ...ranges.offsets import Offsets, below, names_of
from ...ranges.sizes import Sample, samples_of
from ..connections import Lease, leased
from ..options.source_options import SourceOptions
from .offsets import EARLIEST, LATEST, OffsetSpec

if TYPE_CHECKING:
    from ...sync import KafkaConsumer

T = TypeVar("T")
PATIENCE: Final = 120.0
"""Seconds for which a cluster that has answered before is asked again."""
_SHORTEST_PAUSE: Final = 0.05
"""Seconds between two questions, at least."""
_HASTE_MS: Final = 2000.0
"""How long to wait for offsets before checking whether the partitions are gone."""
_HINT_MS: Final = "1000"
"""How long to look for what else may be meant, with a connection of its own: the error that it belongs to is known."""
_log = logging.getLogger("kafka_async.spark")

_COMMIT_INTERVAL: Final = 1.0
Partitions = Collection[TopicPartition]
_GONE: Final = "was deleted and created again since the last check; its offsets now refer to other records"


@define(eq=False)
class Lookup:
    """Asks a cluster on behalf of one source."""

    options: SourceOptions
    lease: Lease = leased
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    topic_ids: Mapping[str, Any] = field(factory=dict, init=False)
    """Ids of topics, as of the last look at partitions; ``None``: the cluster has none."""
    cluster_id: str | None = field(default=None, init=False)
    """Of the last look, or else of a checkpoint; ``None``: not known yet."""
    uncommitted: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """The partitions for which the group had committed nothing when it was asked last."""
    _found: frozenset[TopicPartition] = field(default=frozenset(), init=False)
    """The partitions that were there before: at the last look, or according to a checkpoint."""
    _last_ids: dict[str, Any] = field(factory=dict, init=False)
    """Ids by name, also of topics that are missing: else one that is created again between two batches passes for the old one."""
    _missing: list[str] = field(factory=list, init=False)
    """The topics for lack of which a look failed last."""
    _answered: bool = field(default=False, init=False)
    _reported: set[str] = field(factory=set, init=False)

    # --- partitions ------------------------------------------------------------------------------------------------------------

    def partitions(self, *, first: bool = True) -> frozenset[TopicPartition]:
        """Return the partitions that the options name.

        Raises ``UnknownTopicOrPartitionError`` for topics or partitions of ``subscribe`` and ``assign`` that do not exist. After
        the ``first`` check they are left out instead, and the caller that has read them reports the loss.

        Any broker answers, and one may be behind the others: right after it started, or after a change. So what was there before
        is looked for ``fetchOffset.numRetries`` times in all before it counts as gone, or as another topic.
        """
        look = lambda: self._persist(lambda consumer: self._look(consumer, strict=first))  # noqa: E731
        try:
            found, ids = self._looked(look, lambda seen: self._unlike(*seen))
        except UnknownTopicOrPartitionError as error:
            if hint := self._like(self._missing):
                raise UnknownTopicOrPartitionError(f"{error.args[0]}{hint}") from None
            raise
        self._found = found
        self._check_ids(ids)
        return found

    def _like(self, missing: Collection[str]) -> str:
        """Return the end of an error: a topic that may be meant; the empty text if there is none, or nobody tells soon."""
        if not missing:
            return ""
        try:
            with self.lease(self.options.looking | {"default_api_timeout_ms": _HINT_MS}) as consumer:
                return did_you_mean_one(missing, consumer.describe_topics().topics)
        except KafkaError:
            return ""

    def expect(self, partitions: Iterable[TopicPartition], ids: Mapping[str, Any], cluster_id: str) -> None:
        """Look for partitions next time as for those of the last look, if the options still name them.

        ``ids``: of their topics in a cluster, as far as they are known. They mean nothing in another cluster.
        """
        self._found |= {partition for partition in partitions if self.options.may_read(partition)}
        if ids and self.cluster_id in (None, cluster_id):
            self.cluster_id = cluster_id
            self._last_ids |= ids

    def has_seen(self, name: str, topic_id: str) -> bool:
        """Return whether the last topic of this name that was there, however long ago, has this id."""
        return str(self._last_ids.get(name)) == topic_id

    def _looked(self, look: Callable[[], T], lacking: Callable[[T], Set[TopicPartition]]) -> T:
        """Return what a look sees, the first that lacks nothing, or the last of as many as there may be."""
        for _ in range(self.options.retries - 1):
            if not (unlike := lacking(seen := look())):
                return seen
            _log.warning("%s: a broker does not have what was there before; asking again", names_of(unlike))
            self._pause()
        return look()

    def _look(self, consumer: "KafkaConsumer", *, strict: bool) -> tuple[frozenset[TopicPartition], Mapping[str, Any]]:
        """Return the partitions, and the ids of their topics."""
        named = self.options.named
        described = consumer.describe_topics(*named)
        if self.cluster_id != (cluster_id := described.cluster_id or ""):
            self.cluster_id, self._last_ids = cluster_id, {}
        topics: Mapping[str, TopicDescription] = described.topics
        if self.options.pattern is not None:
            topics = {name: topic for name, topic in topics.items() if self.options.selects(name) and not topic.internal}
        missing = sorted(name for name in named if name not in topics or not topics[name].partitions)
        self._missing = missing if strict else []
        if missing and strict:
            raise UnknownTopicOrPartitionError(f"topics that do not exist: {', '.join(missing)}")
        found = _partitions_of(topics)
        absent = set(self.options.partitions) - found
        if absent and strict:
            raise UnknownTopicOrPartitionError(f"assign: partitions that do not exist: {names_of(absent)}")
        partitions = frozenset(self.options.partitions) & found if self.options.partitions else frozenset(found)
        return partitions, {name: topic.topic_id for name, topic in topics.items()}

    def _unlike(self, found: Set[TopicPartition], ids: Mapping[str, Any]) -> Set[TopicPartition]:
        """Return the partitions that were there before and are missing, or seem to belong to other topics."""
        others = {name for name, topic_id in ids.items() if self._is_another(name, topic_id)}
        return {partition for partition in self._found if partition not in found or partition.topic in others}

    def _is_another(self, name: str, topic_id: Any) -> bool:
        return topic_id is not None and self._last_ids.get(name, topic_id) != topic_id

    def _check_ids(self, ids: Mapping[str, Any]) -> None:
        others = [name for name, topic_id in ids.items() if self._is_another(name, topic_id)]
        self.topic_ids = dict(ids)
        self._last_ids |= {name: topic_id for name, topic_id in ids.items() if topic_id is not None}
        for name in others:
            self.lost(f"topic {name!r} {_GONE}")

    # --- offsets ---------------------------------------------------------------------------------------------------------------

    def bounds(self, partitions: Partitions) -> tuple[Offsets, Offsets]:
        """Return where each partition that is still there begins and ends (``read_committed``: the last stable offset)."""
        begins = self.earliest(partitions)
        ends = self.confirmed(self.latest(begins), begins)
        if low := below(ends, begins):
            self.lost(f"{names_of(low)}: the brokers say that its log ends before it begins")
            ends |= {partition: begins[partition] for partition in low}
        return {partition: begins[partition] for partition in ends}, ends

    def confirmed(self, ends: Offsets, known: Mapping[TopicPartition, int], *, patience: float = 0.0) -> Offsets:
        """Return ``ends``, asked again where they are below what is ``known``: after a change of leaders a broker may answer with
        an older end (SPARK-26267). The brokers are asked ``fetchOffset.numRetries`` times in all, and until ``patience`` (seconds)
        is over.

        Each time the topics are looked at first: that leads to the leader of now, and tells whether a topic was created again, of
        which nothing is known. Its ends come back as they are.
        """
        ids, began, asks = self.topic_ids, self.clock(), 1
        while low := below(ends, known):
            if asks >= self.options.retries and self.clock() >= began + patience:
                break
            _log.warning("%s: a broker gave an end below an offset that is there; asking again", names_of(low))
            self._pause()
            self.partitions(first=False)
            now = self.topic_ids
            known = {partition: known[partition] for partition in low if ids.get(partition.topic) == now.get(partition.topic)}
            ends = ends | self.latest(known)
            asks += 1
        return ends

    def earliest(self, partitions: Partitions) -> Offsets:
        """Return where each partition that is still there begins."""
        return self._listed(lambda consumer, left, limit: consumer.beginning_offsets(left, limit), partitions)

    def latest(self, partitions: Partitions) -> Offsets:
        """Return where each partition that is still there ends."""
        return self._listed(lambda consumer, left, limit: consumer.end_offsets(left, limit), partitions)

    def _listed(self, ask: "Callable[[KafkaConsumer, Partitions, float | None], Offsets]", partitions: Partitions) -> Offsets:
        """Ask for offsets. A deleted topic has no leader to report that: after a failure, check which partitions are there."""
        left, doubted = frozenset(partitions), False
        limit: float | None = _HASTE_MS

        def attempt(consumer: "KafkaConsumer") -> Offsets:
            nonlocal left, limit, doubted
            if doubted:
                there = self._still_there(consumer, left)
                limit, left = None if there == left else _HASTE_MS, there
            doubted = True
            return ask(consumer, left, limit) if left else {}

        return self._persist(attempt) if left else {}

    def _still_there(self, consumer: "KafkaConsumer", partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that are there. Those that are missing are looked for as often as in ``partitions``."""
        topics = {partition.topic for partition in partitions}
        look = lambda: partitions & _partitions_of(consumer.describe_topics(*topics).topics)  # noqa: E731
        there = self._looked(look, lambda seen: partitions - seen)
        self._found -= partitions - there
        return there

    def resolve(self, spec: OffsetSpec, begins: Offsets, ends: Offsets, *, start: bool) -> Offsets:
        """Return the offsets that ``spec`` means, of the partitions of ``begins``; ``start``: to begin there, not to end.

        Raises ``KafkaConfigurationError`` if it does not name exactly these partitions, ``NoOffsetForPartitionError`` if no record
        is at or after the time to begin at, or nothing is committed.
        """
        match spec.kind:
            case "earliest":
                return dict(begins)
            case "latest":
                return dict(ends)
            case "committed":
                return self._committed(begins)
            case "offsets":
                self._check_complete(spec, begins)
                words = {EARLIEST: begins, LATEST: ends}
                return {partition: words[at][partition] if at < 0 else at for partition, at in spec.numbers.items()}
            case _:
                times = dict.fromkeys(begins, spec.timestamp) if spec.kind == "timestamp" else spec.numbers
                self._check_complete(spec, begins)
                return self._by_time(times, ends, spec.option, strict=start and not self.options.latest_without_match)

    def _by_time(self, times: Mapping[TopicPartition, int], ends: Offsets, option: str, *, strict: bool) -> Offsets:
        found = self._persist(lambda consumer: consumer.offsets_for_times(times)) if times else {}
        ends = self.confirmed(ends, {partition: answer.offset for partition, answer in found.items() if answer is not None})
        none = sorted(partition for partition, answer in found.items() if answer is None)
        if none and strict:
            text = f"{option}: no record of {none[0]} is at or after {times[none[0]]}"
            raise NoOffsetForPartitionError(f"{text}; startingOffsetsByTimestampStrategy=latest begins at the end", tuple(none))
        # A record that came since the ends were looked up is not there yet.
        return {tp: ends[tp] if answer is None else min(answer.offset, ends[tp]) for tp, answer in found.items()}

    def _committed(self, begins: Offsets) -> Offsets:
        found = self._persist(lambda consumer: consumer.committed_offsets(*begins)) if begins else {}
        self.uncommitted = frozenset(partition for partition, committed in found.items() if committed is None)
        for partition in sorted(self.uncommitted):
            _log.info("group %s has committed nothing for %s; beginning at its first offset", self.options.group, partition)
        return {partition: begins[partition] if at is None else at.offset for partition, at in found.items()}

    @staticmethod
    def _check_complete(spec: OffsetSpec, partitions: Iterable[TopicPartition]) -> None:
        given, there = set(spec.numbers), set(partitions)
        if spec.kind == "timestamp" or given == there:
            return
        problems = [f"no offset is given for {names_of(there - given)}"] if there - given else []
        problems += [f"{names_of(given - there)} is not read"] if given - there else []
        expected = "expected every partition that is read, and no other"
        raise KafkaConfigurationError(f"{spec.option}: {expected}: {'; '.join(problems)}")

    def samples(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Sample]:
        """Return what ``samples_of`` does; nothing if they cannot be read. Asks once: a size that is not known ends nothing."""
        if not ranges:
            return {}
        try:
            with self.lease(self.options.sampling) as consumer:
                return samples_of(consumer, ranges)
        except (KafkaError, DataLossError) as error:
            _log.warning("the size of records is not known: %s", error)
            return {}

    # --- commits ---------------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, ids: Mapping[str, Any] | None = None, *, patience: float = 0.0) -> bool:
        """Commit finished offsets to ``commitGroup``, for tools that show lag. Return whether it worked; a failure stops nothing.

        ``ids``: of the topics that they are offsets of, as far as they are known. Nothing is committed for others of these names.
        ``patience``: seconds in which to try again after temporary failures.
        """
        deadline = self.clock() + patience
        while True:
            try:
                with self.lease(self.options.committing) as consumer:
                    consumer.assign(offsets)
                    consumer.pause(*offsets)  # nothing is to be fetched
                    consumer.commit(
                        {tp: OffsetAndMetadata(offset, topic_id=(ids or {}).get(tp.topic)) for tp, offset in offsets.items()}
                    )
            except KafkaError as error:
                _log.warning("offsets could not be committed to group %s: %s", self.options.commit_group, error)
                if not error.retriable or self.clock() + _COMMIT_INTERVAL >= deadline:
                    return False
            else:
                return True
            self.sleep(_COMMIT_INTERVAL)

    # --- failures --------------------------------------------------------------------------------------------------------------

    def lost(self, text: str) -> None:
        """Records are gone: raise ``DataLossError``, or report it."""
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{text}; set failOnDataLoss to false to go on all the same")
        if text not in self._reported:
            self._reported.add(text)
            _log.warning("%s; going on, since failOnDataLoss is false", text)

    def _persist(self, ask: "Callable[[KafkaConsumer], T]", kafka: Mapping[str, str] | None = None) -> T:
        """Ask, and repeat after temporary failures. ``kafka``: the options of the consumer that asks."""
        deadline = self.clock() + (PATIENCE if self._answered else 0.0)
        retries = 0
        while True:
            try:
                with self.lease(self.options.looking if kafka is None else kafka) as consumer:
                    answer = ask(consumer)
            except KafkaError as error:
                if not error.retriable or (retries >= self.options.retries and self.clock() >= deadline):
                    raise
                _log.warning("asking again after %s", error)
            else:
                self._answered = True
                return answer
            retries += 1
            self.sleep(self.options.retry_interval)

    def _pause(self) -> None:
        self.sleep(max(self.options.retry_interval, _SHORTEST_PAUSE))


def _partitions_of(topics: Mapping[str, TopicDescription]) -> set[TopicPartition]:
    return {TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions}
