"""The same requests to the simulated cluster and to a real broker, with equal answers: error codes, and what became of the request.

They go through this package's own codec and no client, so that they can ask for what no client would ask for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import pytest
from attrs import evolve

from kafka_async import ConsumerConfig, TopicPartition
from kafka_async.adapters.admin import Client
from kafka_async.testing.batches import TRANSACTIONAL, BatchSpec, RecordSpec
from kafka_async.wire import Request, Response, encode_subscription
from kafka_async.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolSubscription,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicPartitions,
)
from kafka_async.wire.messages.admin import (
    AlterableConfig,
    ConfiguredResource,
    ConsumerGroupDescribeRequest,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    ShareGroupDescribeRequest,
)
from kafka_async.wire.messages.produce import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.brokers import CURRENT, KafkaCluster

from .scenarios import Ownership, on_real, on_simulated
from .share import share_properties
from .tools import eventually

pytestmark = pytest.mark.brokers

R = TypeVar("R", bound=Response)
HOUR: Final = 3_600_000
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
RETRY: Final = {3, 5, 14, 15, 16, 51, 100}


class Ask(Protocol):
    """Sends a request to the one broker."""

    async def __call__(self, message: Request[R]) -> R: ...


Scenario = Callable[[Ownership, Ask], Awaitable[Any]]
SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS[fn.__name__] = fn
    return fn


async def topic_id(p: Ownership, ask: Ask, name: str | None = None) -> Any:
    return (await ask(MetadataRequest(topics=(MetadataRequestTopic(name=name or p.t),)))).topics[0].topic_id


async def settled(ask: Ask, message: Request[R], code: Callable[[R], int] = lambda answer: cast(Any, answer).error_code) -> R:
    """Ask until the broker, or what it waits for, is ready."""
    while True:
        answer = await ask(message)
        if code(answer) not in RETRY:
            return answer
        await asyncio.sleep(0.1)


async def coordinated(ask: Ask, key: str, kind: int = 0) -> None:
    """Wait until the broker coordinates a group (0) or a transaction (1)."""
    search = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    await settled(ask, search, lambda answer: answer.coordinators[0].error_code)


async def beat(p: Ownership, ask: Ask, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """A member of the consumer protocol joins, when the coordinator is ready."""
    request: dict[str, Any] = {
        "group_id": p.g,
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": (p.t,),
        "topic_partitions": (),
    }
    await coordinated(ask, p.g)
    return await settled(ask, ConsumerGroupHeartbeatRequest(**(request | fields)))


def parts(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    found = answer.assignment.topic_partitions if answer.assignment is not None else ()
    return sorted(index for topic in found for index in topic.partitions)


# --- reading --------------------------------------------------------------------------------------------------------------------


async def _fetched(p: Ownership, ask: Ask, **fields: Any) -> tuple[int, Any, int, int, int]:
    part = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, **fields})
    topic = FetchTopic(topic=p.t, topic_id=fields.get("topic_id") or await topic_id(p, ask), partitions=(part,))
    answer = (await ask(FetchRequest(max_wait_ms=1, session_epoch=-1, topics=(topic,)))).responses[0].partitions[0]
    return answer.error_code, answer.records, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


@scenario
async def errors_of_partitions_carry_no_records_but_not_null(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    wrong: list[dict[str, Any]] = [{"fetch_offset": 7}, {"partition": 7}, {"current_leader_epoch": 9}]
    return [await _fetched(p, ask, **fields) for fields in wrong]


@scenario
async def incremental_answers_list_what_has_changed(p: Ownership, ask: Ask) -> Any:
    p.filled("a", partitions=3)
    wanted = FetchTopic(topic=p.t, topic_id=await topic_id(p, ask))
    parts = tuple(FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(3))
    first = await ask(FetchRequest(max_wait_ms=1, session_epoch=0, topics=(evolve(wanted, partitions=parts),)))
    epoch, found = 0, []

    async def more(*changed: FetchPartition) -> None:
        nonlocal epoch
        epoch += 1
        topics = (evolve(wanted, partitions=changed),) if changed else ()
        request = FetchRequest(max_wait_ms=1, session_id=first.session_id, session_epoch=epoch, topics=topics)
        answer = await ask(request)
        found.append([(each.partition_index, bool(each.records)) for topic in answer.responses for each in topic.partitions])

    await more()
    await more(evolve(parts[0], fetch_offset=1))
    await more()
    p.cluster.produce(p.t, value="b", partition=1)
    await more()
    await more(evolve(parts[1], fetch_offset=1))
    await more(evolve(parts[2], fetch_offset=5))
    await more()
    p.cluster.delete_before(p.tp(), 1)
    await more(parts[2])
    await more()
    return [each.partition_index for topic in first.responses for each in topic.partitions], found


@scenario
async def errors_of_shared_partitions_carry_no_records_but_not_null(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    join = ShareGroupHeartbeatRequest(
        group_id=p.g, member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=0, subscribed_topic_names=(p.t,)
    )
    await coordinated(ask, p.g)
    await settled(ask, join)
    topic = ShareFetchTopic(topic_id=await topic_id(p, ask), partitions=(ShareFetchPartition(partition_index=7),))
    fetch = ShareFetchRequest(
        group_id=p.g,
        member_id=join.member_id,
        share_session_epoch=0,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1000,
        max_records=1,
        batch_size=1,
        topics=(topic,),
    )
    (found,) = (await ask(fetch)).responses
    return [(each.error_code, each.records) for each in found.partitions]


async def _listed(p: Ownership, ask: Ask, timestamp: int, isolation: int = 0) -> tuple[int, int, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(isolation_level=isolation, topics=(ListOffsetsTopic(name=p.t, partitions=(part,)),))
    (found,) = (await ask(request)).topics[0].partitions
    return found.error_code, found.offset, found.timestamp


@scenario
async def the_record_with_the_latest_timestamp(p: Ownership, ask: Ask) -> Any:
    p.filled()
    empty = await _listed(p, ask, -3)
    for stamp in (3000, 9000, 9000, 1000):
        p.cluster.produce(p.t, value="v", timestamp=1_600_000_000_000 + stamp, partition=0)
    return empty, await _listed(p, ask, -3)


@scenario
async def offsets_by_time_end_at_what_readers_of_committed_data_may_see(p: Ownership, ask: Ask) -> Any:
    p.filled()
    base = 1_600_000_000_000
    p.cluster.produce(p.t, value="v", timestamp=base + 1000, partition=0)
    with p.cluster.transaction() as writing:
        writing.produce(p.t, "open")
        p.cluster.produce(p.t, value="v", timestamp=base + 2000, partition=0)
        asked = [0, base + 1000, base + 1001, -1, -2, -3]
        both = [[(await _listed(p, ask, stamp, isolation))[:2] for stamp in asked] for isolation in (0, 1)]
    return both, [(await _listed(p, ask, stamp, 1))[:2] for stamp in (0, base + 1000, base + 1001, -1, -2)]


@scenario
async def other_special_timestamps(p: Ownership, ask: Ask) -> Any:
    p.filled("a", "b")
    p.cluster.delete_before(p.tp(), 1)
    return [await _listed(p, ask, stamp) for stamp in (-4, -5)], [(await _listed(p, ask, stamp))[0] for stamp in (-6,)]


# --- writing --------------------------------------------------------------------------------------------------------------------


async def _produced(p: Ownership, ask: Ask, spec: BatchSpec, transaction: str | None = None) -> tuple[int, int]:
    data = PartitionProduceData(index=0, records=spec.encode())
    topic = TopicProduceData(name=p.t, topic_id=await topic_id(p, ask), partition_data=(data,))
    (answer,) = (await ask(ProduceRequest(transactional_id=transaction, topic_data=(topic,)))).responses[0].partition_responses
    return answer.error_code, answer.base_offset


@scenario
async def timestamps_hours_ahead(p: Ownership, ask: Ask) -> Any:
    p.filled()
    now = round(time.time() * 1000)  # a program under virtual time may have the real date
    found = [
        await _produced(p, ask, BatchSpec(records=(RecordSpec(),), leader_epoch=-1, base_timestamp=now + ahead))
        for ahead in (0, HOUR // 2, 2 * HOUR, 48 * HOUR)
    ]
    p.cluster.topic(p.t + "-free", message_timestamp_after_max_ms=100 * HOUR)
    other = Ownership(p.cluster, p.run)
    free = TopicPartition(other.t + "-free", 0)
    p.cluster.produce(*free[:1], value="v", timestamp=now + 48 * HOUR, partition=0)
    return found, p.cluster.end(free)


class Writer:
    """A transactional producer, request by request."""

    def __init__(self, p: Ownership, ask: Ask) -> None:
        self.p, self.ask, self.name = p, ask, f"transaction-{p.run}"
        self.id = self.epoch = -1
        self.sequence = 0

    async def begin(self) -> int:
        await coordinated(self.ask, self.name, 1)
        answer = await settled(self.ask, InitProducerIdRequest(transactional_id=self.name))
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    async def add(self) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=self.p.t, partitions=(0,)),),
        )

        def code(answer: AddPartitionsToTxnResponse) -> int:
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        return code(await settled(self.ask, request, code))

    async def write(self) -> tuple[int, int]:
        spec = BatchSpec(
            records=(RecordSpec(),),
            leader_epoch=-1,
            base_timestamp=1_600_000_000_000,
            attributes=TRANSACTIONAL,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        self.sequence += 1
        return await _produced(self.p, self.ask, spec, self.name)

    async def end(self, *, commit: bool) -> int:
        request = EndTxnRequest(transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit)
        return (await settled(self.ask, request)).error_code

    async def stands_at(self, offset: int) -> int:
        """Wait for the markers, which are written after the answer."""
        for _ in range(100):
            if self.p.cluster.end(self.p.tp()) >= offset:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)  # and for one too many
        return cast(int, self.p.cluster.end(self.p.tp()))


@scenario
async def a_transaction_that_is_ended_again(p: Ownership, ask: Ask) -> Any:
    p.filled()
    writer = Writer(p, ask)
    found: list[Any] = [await writer.begin(), await writer.end(commit=True), await writer.add(), await writer.write()]
    found += [await writer.end(commit=True), await writer.stands_at(2), await writer.end(commit=True), await writer.stands_at(2)]
    found += [await writer.end(commit=False), await writer.add(), await writer.write(), await writer.end(commit=False)]
    found += [await writer.stands_at(4), await writer.end(commit=False), await writer.end(commit=True), await writer.stands_at(4)]
    return found


@scenario
async def a_transaction_that_wrote_nothing_has_markers_too(p: Ownership, ask: Ask) -> Any:
    p.filled()
    writer = Writer(p, ask)
    found: list[Any] = [await writer.begin(), await writer.add(), await writer.end(commit=True), await writer.stands_at(1)]
    return [*found, await writer.add(), await writer.end(commit=False), await writer.stands_at(2)]


# --- members --------------------------------------------------------------------------------------------------------------------


_PATTERNS: Final = (
    *(r"orders.*", r"(?i)ORDERS", r"(?:o|x)rders(?P<rest>\.retry\.\d+)??", r"[(?=!]*o[*+.]+-", r"\++|\*+|x{1,2}|orders"),
    *(r"[]\](?>x]*orders", r"(?!.*\.retry\.).*", r"(?=o).*", r".*(?<=s)", r".*(?<!1)", r"(o)rders|\1", r"(?P<o>o)rders|(?P=o)"),
    *(r"(o)?(?(1)rders|x)", r"(?>o)rders", r"o*+rders", r"o{1,2}+rders", r"(?#a comment)orders", r"(?x) orders", r"(?a)orders"),
    *(r"orders\Z", r"\u006frders", r"\N{BULLET}", r"("),
)


@scenario
async def patterns_of_python_that_are_none_of_re2_are_refused(p: Ownership, ask: Ask) -> Any:
    answers = {each: await beat(p, ask, subscribed_topic_names=None, subscribed_topic_regex=each) for each in _PATTERNS}
    return {pattern: answer.error_code for pattern, answer in answers.items()}


# --- tools: topics --------------------------------------------------------------------------------------------------------------


async def _made(ask: Ask, name: str, **config: str) -> int:
    settings = tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items())
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
    return (await ask(CreateTopicsRequest(topics=(wanted,)))).topics[0].error_code


@scenario
async def names_that_collide(p: Ownership, ask: Ask) -> Any:
    names = (f"{p.t}.a_b", f"{p.t}_a.b", f"{p.t}.a.b", f"{p.t}-a-b", f"{p.t}.a_b", "..", "a b", "x" * 250)
    return [await _made(ask, name) for name in names]


VALUES: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": ("", "delete,compact", "delete, compact", "DELETE", "compact,compact", "none"),
    "compression.type": ("producer", "uncompressed", "gzip", "none", "brotli"),
    "compression.gzip.level": ("-1", "0", "1", "9", "10", "x"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.zstd.level": ("-131073", "-131072", "0", "22", "23"),
    "delete.retention.ms": ("-1", "0", "5"),
    "file.delete.delay.ms": ("-1", "0"),
    "flush.messages": ("0", "1"),
    "flush.ms": ("-1", "0"),
    "follower.replication.throttled.replicas": ("", "*", "0:1,1:2", "none", "x"),
    "leader.replication.throttled.replicas": ("*", "x"),
    "index.interval.bytes": ("-1", "0", "5"),
    "local.retention.bytes": ("-3", "-2", "-1", "5"),
    "local.retention.ms": ("-3", "-2", "-1", "5"),
    "max.compaction.lag.ms": ("0", "1"),
    "max.message.bytes": ("-1", "0", "1.5", "2147483647", "2147483648"),
    "message.timestamp.after.max.ms": ("-1", "0", "9223372036854775808"),
    "message.timestamp.before.max.ms": ("-1", "0"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
    "min.cleanable.dirty.ratio": ("-0.1", "0", "0.5", "1", "1.1", "x"),
    "min.compaction.lag.ms": ("-1", "0", "5"),
    "min.insync.replicas": ("0", "1", "5"),
    "preallocate": ("true", "FALSE", "yes"),
    "remote.copy.disable": ("maybe",),
    "remote.log.delete.on.disable": ("maybe",),
    "remote.storage.enable": ("maybe", "false"),
    "retention.bytes": ("-2", "-1", "0", "x"),
    "retention.ms": ("-2", "-1", "0", ""),
    "segment.bytes": ("1", "1048575", "1048576", "2147483648"),
    "segment.index.bytes": ("3", "4"),
    "segment.jitter.ms": ("-1", "0"),
    "segment.ms": ("0", "1"),
    "unclean.leader.election.enable": ("true", "1"),
    "no.such.setting": ("1",),
}


@scenario
async def values_of_every_setting_of_a_topic(p: Ownership, ask: Ask) -> Any:
    found = {}
    for number, (key, values) in enumerate(VALUES.items()):
        for place, value in enumerate(values):
            found[key, value] = await _made(ask, f"{p.t}-{number}-{place}", **{key.replace(".", "_"): value})
    return found


@scenario
async def settings_that_do_not_fit_together(p: Ownership, ask: Ask) -> Any:
    return [
        await _made(ask, p.t + "-1", min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
        await _made(ask, p.t + "-2", local_retention_ms="10", retention_ms="5"),
        await _made(ask, p.t + "-3", local_retention_bytes="10", retention_bytes="5"),
        await _made(ask, p.t + "-4", segment_jitter_ms="10", segment_ms="5"),
    ]


async def _altered(ask: Ask, kind: int, name: str, *changes: tuple[str, int, str | None], check: bool = False) -> int:
    configs = tuple(AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes)
    asked = ConfiguredResource(resource_type=kind, resource_name=name, configs=configs)
    (found,) = (await ask(IncrementalAlterConfigsRequest(resources=(asked,), validate_only=check))).responses
    return found.error_code


async def _described(ask: Ask, kind: int, name: str, *keys: str) -> Any:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    (found,) = (await ask(DescribeConfigsRequest(resources=(asked,)))).results
    return found.error_code, [(each.name, each.value, each.config_source) for each in found.configs if keys]


async def _becomes(read: Callable[[], Awaitable[Any]], before: Any) -> Any:
    """Brokers learn of a change a little later."""
    for _ in range(40):
        if (found := await read()) != before:
            return found
        await asyncio.sleep(0.05)
    return await read()


@scenario
async def lists_that_are_appended_to(p: Ownership, ask: Ask) -> Any:
    p.filled()

    async def policy() -> Any:
        return await _described(ask, TOPIC, p.t, "cleanup.policy")

    found: list[Any] = [before := await policy()]
    for operation, value in ((APPEND, "compact"), (SUBTRACT, "delete"), (APPEND, "delete"), (DELETE, None)):
        found.append(await _altered(ask, TOPIC, p.t, ("cleanup.policy", operation, value)))
        found.append(before := await _becomes(policy, before))
    found.append(await _altered(ask, TOPIC, p.t, ("retention.ms", APPEND, "5")))
    found.append(await _altered(ask, TOPIC, p.t, ("cleanup.policy", APPEND, "compact"), check=True))
    found.append(await _altered(ask, TOPIC, p.t, ("retention.ms", SET, "5"), ("retention.ms", SET, "6")))
    found.append(await _altered(ask, TOPIC, p.t, ("segment.bytes", SET, "1")))
    found.append(await _altered(ask, TOPIC, p.t, ("retention.ms", SET, None)))
    found.append(await _altered(ask, TOPIC, p.t + "-missing", ("retention.ms", SET, "5")))
    return [*found, await policy()]


@scenario
async def settings_of_brokers(p: Ownership, ask: Ask) -> Any:
    key = "log.flush.interval.ms"

    async def differs() -> bool:
        found: Any = await _described(ask, BROKER, "0", key)
        return bool(found[1] == [(key, "1234567", 2)])

    found: list[Any] = [await _altered(ask, BROKER, "0", (key, SET, "1234567"))]
    found += [await _becomes(differs, before=False), await _altered(ask, BROKER, "0", (key, DELETE, None))]
    found += [await _altered(ask, BROKER, "0", ("node.id", SET, "5")), await _altered(ask, BROKER, "0", (key, SET, "x"))]
    found += [(await _described(ask, BROKER, "7", key))[0], await _altered(ask, BROKER, "7", (key, SET, "1"))]
    return [*found, await _altered(ask, 16, "0", (key, SET, "1"))]


async def _is(found: Awaitable[int], wanted: int) -> bool:
    return await found == wanted


async def _grown(
    ask: Ask, name: str, count: int, *, check: bool = False, brokers: tuple[tuple[int, ...], ...] | None = None
) -> int:
    chosen = None if brokers is None else tuple(CreatePartitionsAssignment(broker_ids=each) for each in brokers)
    topic = CreatePartitionsTopic(name=name, count=count, assignments=chosen)
    return (await ask(CreatePartitionsRequest(topics=(topic,), validate_only=check))).results[0].error_code


@scenario
async def topics_that_grow(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    found = [
        await _grown(ask, p.t + "-missing", 2),
        await _grown(ask, p.t, 1),
        await _grown(ask, p.t, 0),
        await _grown(ask, p.t, -1),
        await _grown(ask, p.t, 3, check=True),
        await _grown(ask, p.t, 2, brokers=((7,),)),
        await _grown(ask, p.t, 3, brokers=((0,),)),
        await _grown(ask, p.t, 2, brokers=((0, 0),)),
        await _grown(ask, p.t, 2, brokers=((0,),)),
        await _grown(ask, p.t, 4),
    ]

    async def count() -> int:
        return len((await ask(MetadataRequest(topics=(MetadataRequestTopic(name=p.t),)))).topics[0].partitions)

    await eventually(lambda: _is(count(), 4))
    return found, await count(), p.cluster.produce(p.t, value="b", partition=3)[1]


@scenario
async def records_that_may_not_be_deleted(p: Ownership, ask: Ask) -> Any:
    found = []
    for number, policy in enumerate(("delete", "compact", "compact,delete")):
        name = f"{p.t}-{number}"
        p.cluster.topic(name, cleanup_policy=policy)
        p.cluster.produce(name, key="k", value="v", partition=0)
        for offset in (1, 9, -1, -2):
            part = DeleteRecordsPartition(partition_index=0, offset=offset)
            (topic,) = (await ask(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=name, partitions=(part,)),)))).topics
            found.append((topic.partitions[0].error_code, topic.partitions[0].low_watermark))
    return found


# --- tools: groups --------------------------------------------------------------------------------------------------------------


async def _committed(p: Ownership, ask: Ask, offset: int = 1, group: str | None = None) -> None:
    position = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=p.t, topic_id=await topic_id(p, ask), partitions=(position,))
    await coordinated(ask, group or p.g)
    commit = OffsetCommitRequest(group_id=group or p.g, topics=(topic,))
    await settled(ask, commit, lambda answer: answer.topics[0].partitions[0].error_code)


async def _deleted(ask: Ask, *names: str) -> list[int]:
    results = {each.group_id: each.error_code for each in (await ask(DeleteGroupsRequest(groups_names=names))).results}
    return [results[name] for name in names]


@scenario
async def groups_that_are_deleted(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    await _committed(p, ask)
    found: list[Any] = [await _deleted(ask, p.g, p.g + "-missing"), p.committed(), await _deleted(ask, p.g)]
    await beat(p, ask)
    await _committed(p, ask, group=p.g + "-other")
    found.append(await _deleted(ask, p.g, p.g + "-other"))
    await beat(p, ask, member_epoch=-1)
    return [*found, await _deleted(ask, p.g), await _deleted(ask, p.g)]


@scenario
async def share_groups_that_are_deleted(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    join = ShareGroupHeartbeatRequest(
        group_id=p.g, member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=0, subscribed_topic_names=(p.t,)
    )
    await coordinated(ask, p.g)
    await settled(ask, join)
    busy = await _deleted(ask, p.g)
    (group,) = (await ask(ShareGroupDescribeRequest(group_ids=(p.g,)))).groups
    (member,) = group.members
    await ask(evolve(join, member_epoch=-1))
    for _ in range(40):  # the state of its partitions is being set up meanwhile
        if (code := await _deleted(ask, p.g)) == [0]:
            break
        await asyncio.sleep(0.1)
    gone = (await ask(ShareGroupDescribeRequest(group_ids=(p.g,)))).groups[0].error_code
    return busy, (bool(member.client_id), member.client_host), code, gone, await _deleted(ask, p.g)


async def _forgotten(p: Ownership, ask: Ask, *indexes: int, group: str | None = None, topic: str | None = None) -> Any:
    parts = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
    request = OffsetDeleteRequest(group_id=group or p.g, topics=(OffsetDeleteRequestTopic(name=topic or p.t, partitions=parts),))
    answer = await ask(request)
    return answer.error_code, [part.error_code for each in answer.topics for part in each.partitions]


@scenario
async def offsets_that_are_deleted(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    other = p.t + "-other"
    p.cluster.topic(other)
    await coordinated(ask, p.g)
    found = [await _forgotten(p, ask, 0)]
    await _committed(p, ask)
    found += [await _forgotten(p, ask, 7), await _forgotten(p, ask, 0, topic=p.t + "-missing"), p.committed()]
    found += [await _forgotten(p, ask, 0), p.committed(), await _forgotten(p, ask, 0)]
    await _committed(p, ask)
    await beat(p, ask)
    return [*found, await _forgotten(p, ask, 0), await _forgotten(p, ask, 0, topic=other), p.committed()]


async def _joined(p: Ownership, ask: Ask, **fields: Any) -> Any:
    said = encode_subscription(ConsumerProtocolSubscription(topics=(p.t,)))
    join = JoinGroupRequest(
        group_id=p.g,
        session_timeout_ms=fields.get("session", 10_000),
        rebalance_timeout_ms=10_000,
        protocols=(JoinGroupRequestProtocol(name="range", metadata=said),),
    )
    await coordinated(ask, p.g)
    answer = await settled(ask, join)
    if answer.error_code == 79:
        answer = await ask(evolve(join, member_id=answer.member_id))
    return answer


@scenario
async def offsets_of_a_classic_group_that_are_deleted(p: Ownership, ask: Ask) -> Any:
    p.filled("a")
    other = p.t + "-other"
    p.cluster.topic(other)
    await _committed(p, ask)
    joined = await _joined(p, ask)
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    await ask(
        SyncGroupRequest(
            group_id=p.g,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(share,),
        )
    )
    (group,) = (await ask(DescribeGroupsRequest(groups=(p.g,)))).groups
    (member,) = group.members
    said = member.member_id.startswith(member.client_id), bool(member.client_id), member.client_host, group.group_state
    return said, await _forgotten(p, ask, 0), await _forgotten(p, ask, 0, topic=other), await _deleted(ask, p.g)


@scenario
async def sessions_that_are_too_short_or_too_long(p: Ownership, ask: Ask) -> Any:
    p.filled()
    return [(await _joined(p, ask, session=session)).error_code for session in (999, 1_800_001, 1000)]


@scenario
async def assignors_of_the_broker(p: Ownership, ask: Ask) -> Any:
    p.spread(0, 5)
    found: list[Any] = [(await beat(p, ask, server_assignor="no-such")).error_code]
    ids = [letter * 22 for letter in "AB"]
    first = await beat(p, ask, member_id=ids[0], server_assignor="range")
    owned: tuple[TopicPartitions, ...] = (TopicPartitions(topic_id=await topic_id(p, ask), partitions=tuple(parts(first))),)
    second = await beat(p, ask, member_id=ids[1], server_assignor="range")
    for _ in range(100):
        first = await beat(p, ask, member_id=ids[0], member_epoch=first.member_epoch, topic_partitions=owned)
        if first.assignment is not None:
            owned = tuple(
                TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in first.assignment.topic_partitions
            )
        second = await beat(p, ask, member_id=ids[1], member_epoch=second.member_epoch, topic_partitions=None)
        (group,) = (await ask(ConsumerGroupDescribeRequest(group_ids=(p.g,)))).groups
        has = {each.member_id: each.assignment.topic_partitions for each in group.members}
        if all(has.values()) and group.group_state == "Stable":
            break
        await asyncio.sleep(0.1)
    shares = [sorted(index for each in has[key] for index in each.partitions) for key in ids]
    hosts = {(bool(each.client_id), each.client_host) for each in group.members}
    return [*found, shares, group.assignor_name, hosts]


@scenario
async def an_instance_id_is_released_before_anybody_takes_it_again_even_its_own_member(p: Ownership, ask: Ask) -> Any:
    p.filled("a", partitions=2)
    one, other = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
    first = await beat(p, ask, member_id=one, instance_id="i")
    while parts(first) != [0, 1]:  # computed once a second
        epoch = first.member_epoch
        first = await beat(p, ask, member_id=one, instance_id="i", member_epoch=epoch, topic_partitions=None)
        await asyncio.sleep(0.1)
    said = [
        (one, 0),
        (other, 0),
        (other, -2),
        (other, -1),
        (one, -2),
        (one, -2),
        (one, 0),
        (one, 0),
        (one, -2),
        (other, 0),
        (one, -2),
        (one, 0),
        (one, 1),
        (other, -1),
        (one, -2),
    ]
    found: list[Any] = []
    for member, epoch in said:
        answer = await beat(
            p, ask, member_id=member, member_epoch=epoch, instance_id="i", topic_partitions=() if not epoch else None
        )
        found.append((member, epoch, answer.error_code, parts(answer) if answer.member_epoch > 0 else None))
    return found, (await beat(p, ask, member_id=one, member_epoch=-2, instance_id="unknown")).error_code


GROUP_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "consumer.heartbeat.interval.ms": ("99", "100", "500", "15000", "15001", "x"),
    "consumer.session.timeout.ms": ("999", "6000", "60000", "60001"),
    "share.auto.offset.reset": (
        "earliest",
        "latest",
        "none",
        "LATEST",
        "by_duration:PT1H",
        "by_duration:P1D",
        "by_duration:-PT1H",
        "by_duration:",
        "by_duration:1h",
        "by_duration",
    ),
    "share.delivery.count.limit": ("1", "2", "10", "11"),
    "share.heartbeat.interval.ms": ("99", "100", "5000", "15001"),
    "share.isolation.level": ("read_committed", "READ_COMMITTED", "none"),
    "share.partition.max.record.locks": ("99", "100", "10000", "10001"),
    "share.record.lock.duration.ms": ("999", "1000", "60000", "60001"),
    "share.renew.acknowledge.enable": ("true", "false", "no"),
    "share.session.timeout.ms": ("999", "6000", "60000", "60001"),
    "retention.ms": ("5",),
}


@scenario
async def values_of_every_setting_of_a_group(p: Ownership, ask: Ask) -> Any:
    found = {}
    for number, (key, values) in enumerate(GROUP_VALUES.items()):
        for place, value in enumerate(values):
            found[key, value] = await _altered(ask, GROUP, f"{p.g}-{number}-{place}", (key, SET, value))
    return found


# --- both sides -----------------------------------------------------------------------------------------------------------------


def _client(options: Any) -> AbstractAsyncContextManager[Client]:
    config = ConsumerConfig.from_options({"bootstrap_servers": options["bootstrap_servers"]})
    return Client.connect(config, options.get("transport_factory"))


async def _outcome(name: str, p: Ownership) -> Any:
    async with _client(p.cluster.options()) as client:

        async def ask(message: Request[R]) -> R:
            return await client.ask(message, 0)

        return await SCENARIOS[name](p, ask)


@pytest.fixture(scope="module")
def real(real_brokers: None) -> dict[str, Any]:
    """The results of all scenarios on a real broker."""
    properties = share_properties() | {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        return asyncio.run(on_real(cluster.bootstrap_servers, {name: partial(_outcome, name) for name in SCENARIOS}))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_real_broker_and_the_simulated_one_answer_alike(name: str, real: dict[str, Any]) -> None:
    assert on_simulated(partial(_outcome, name)) == real[name]
