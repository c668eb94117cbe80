"""The same scenarios on the simulated cluster and on real brokers, with equal results: what keeps the simulation honest.

Each scenario returns plain data. On the simulated cluster it runs under virtual time, on the real brokers several run at a time,
since most of their time is waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import KafkaError
from kafka_async.testing import Cluster
from kafka_async.testing.real import RealCluster
from tests.brokers import CURRENT, KafkaCluster
from tests.virtual import run_virtual_asyncio

from .scenarios import PATIENCE, Ownership, indexes, jobs, outcome, read, settled, told, until, values, worker
from .share import share_properties

pytestmark = pytest.mark.brokers

_AT_ONCE: Final = 6


Scenario = Callable[[Ownership], Awaitable[Any]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS[fn.__name__] = fn
    return fn


def in_both_protocols(fn: Callable[[Ownership, str], Awaitable[Any]]) -> None:
    for protocol in ("classic", "consumer"):

        async def run(place: Ownership, protocol: str = protocol) -> Any:
            return await fn(place, protocol)

        SCENARIOS[f"{fn.__name__}[{protocol}]"] = run


# --- reading --------------------------------------------------------------------------------------------------------------------


@scenario
async def everything_from_the_beginning(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    async with p.reader() as consumer:
        return await values(consumer, 3)


@scenario
async def only_what_is_new(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(auto_offset_reset="latest") as consumer:
        where = await consumer.position(p.tp())
        p.cluster.produce(p.t, value="b", partition=0)
        return where, await values(consumer, 1)


@scenario
async def keys_headers_timestamps_and_no_value(p: Ownership) -> Any:
    p.filled()
    p.cluster.produce(p.t, key="k", value=None, headers=[("h", b"1"), ("h", None)], timestamp=1_600_000_000_123)
    async with p.reader() as consumer:
        (record,) = await read(consumer, 1)
        return record.key, record.value, record.headers, record.timestamp, record.timestamp_type, record.offset, record.leader_epoch


@scenario
async def an_empty_value_is_not_none(p: Ownership) -> Any:
    p.filled("", None)
    async with p.reader() as consumer:
        return await values(consumer, 2)


@scenario
async def the_key_chooses_the_partition(p: Ownership) -> Any:
    p.filled(partitions=5)
    return [p.cluster.produce(p.t, key=str(number), value="v")[0].partition for number in range(20)]


@scenario
async def compressed_batches(p: Ownership) -> Any:
    p.filled()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        p.cluster.produce(p.t, value=codec * 50, compression=codec)
    async with p.reader() as consumer:
        return await values(consumer, 5)


@scenario
async def offsets_by_time(p: Ownership) -> Any:
    p.filled()
    for stamp in (1000, 2000, 3000):
        p.cluster.produce(p.t, value="v", timestamp=1_600_000_000_000 + stamp, partition=0)
    async with p.reader() as consumer:
        base = 1_600_000_000_000
        return [list((await consumer.offsets_for_times({p.tp(): base + stamp})).values()) for stamp in (0, 2000, 2001, 4000)]


@scenario
async def both_ends(p: Ownership) -> Any:
    p.filled("a", "b", "c", partitions=2)
    both = [p.tp(0), p.tp(1)]
    async with p.reader() as consumer:
        return list((await consumer.beginning_offsets(both)).values()), list((await consumer.end_offsets(both)).values())


@scenario
async def the_beginning_moves_when_records_are_deleted(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    p.cluster.delete_before(p.tp(), 2)
    async with p.reader() as consumer:
        return list((await consumer.beginning_offsets([p.tp()])).values()), await values(consumer, 1)


@scenario
async def the_position_moves_with_what_is_read(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    async with p.reader() as consumer:
        seen = [await consumer.position(p.tp())]
        await consumer.getone()
        return [*seen, await consumer.position(p.tp())]


@scenario
async def seeking(p: Ownership) -> Any:
    p.filled("a", "b", "c", "d")
    async with p.reader() as consumer:
        consumer.seek(p.tp(), 2)
        found = await values(consumer, 2)
        await consumer.seek_to_beginning(p.tp())
        found += await values(consumer, 4)
        await consumer.seek_to_end(p.tp())
        return found, await consumer.position(p.tp())


@scenario
async def seeking_past_the_end_resets(p: Ownership) -> Any:
    p.filled("a", "b")
    async with p.reader() as consumer:
        consumer.seek(p.tp(), 100)
        return await values(consumer, 2)


@scenario
async def seeking_before_the_beginning_resets(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    p.cluster.delete_before(p.tp(), 2)
    async with p.reader(auto_offset_reset="latest") as consumer:
        consumer.seek(p.tp(), 0)
        none = await values(consumer, 1, 2)
        p.cluster.produce(p.t, value="d", partition=0)
        return none, await values(consumer, 1)


@scenario
async def no_reset_is_an_error_where_nothing_is_committed(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(auto_offset_reset="none", group_id=p.g) as consumer:
        return await outcome(consumer.getone())


@scenario
async def no_reset_is_an_error_out_of_range(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(auto_offset_reset="none") as consumer:
        consumer.seek(p.tp(), 100)
        return await outcome(consumer.getone())


@scenario
async def a_topic_that_is_not_there(p: Ownership) -> Any:
    p.filled()
    async with p.reader(allow_auto_create_topics=False) as consumer:
        return consumer.partitions_for_topic(p.t + "-missing"), p.t in await consumer.topics()


@scenario
async def partitions_of_a_topic(p: Ownership) -> Any:
    p.filled(partitions=3)
    async with p.reader() as consumer:
        await consumer.topics()
        return consumer.partitions_for_topic(p.t)


@scenario
async def paused_partitions(p: Ownership) -> Any:
    p.spread(4, 2)
    async with p.reader(0, 1) as consumer:
        consumer.pause(p.tp(0))
        first = await values(consumer, 2)
        more = await values(consumer, 1, 1)
        consumer.resume(p.tp(0))
        return first, more, await values(consumer, 2)


@scenario
async def no_more_records_than_asked_for(p: Ownership) -> Any:
    p.filled()
    p.cluster.produce_many(p.t, [str(number) for number in range(20)], partition=0)
    async with p.reader() as consumer:
        await consumer.getone()
        return [len(records) for records in (await consumer.getmany(timeout_ms=1000, max_records=7)).values()]


@scenario
async def small_fetches_get_through(p: Ownership) -> Any:
    p.filled()
    for number in range(5):
        p.cluster.produce(p.t, value=str(number) * 2000, partition=0)
    async with p.reader(fetch_max_bytes=1000, max_partition_fetch_bytes=1000) as consumer:
        return [len(value or "") for value in await values(consumer, 5)]


@scenario
async def one_partition_of_two(p: Ownership) -> Any:
    p.spread(4, 2)
    async with p.reader(0, 1) as consumer:
        return [(await consumer.getone(p.tp(1))).value for _ in range(2)]


@scenario
async def high_watermarks_and_lag(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    async with p.reader() as consumer:
        await consumer.getone()
        return consumer.highwater(p.tp()), consumer.current_lag(p.tp())


# --- transactions ---------------------------------------------------------------------------------------------------------------


def _transactions(p: Ownership) -> None:
    p.filled("before")
    with p.cluster.transaction() as writing:
        writing.produce(p.t, "committed")
    with pytest.raises(ZeroDivisionError), p.cluster.transaction() as writing:
        raise ZeroDivisionError(writing.produce(p.t, "aborted"))
    p.cluster.produce(p.t, value="after", partition=0)


@scenario
async def committed_transactions_alone(p: Ownership) -> Any:
    _transactions(p)
    async with p.reader(isolation_level="read_committed") as consumer:
        return [(record.offset, record.value) for record in await read(consumer, 3)], await consumer.position(p.tp())


@scenario
async def every_transaction(p: Ownership) -> Any:
    _transactions(p)
    async with p.reader(isolation_level="read_uncommitted") as consumer:
        return [(record.offset, record.value) for record in await read(consumer, 4)]


@scenario
async def a_transaction_that_is_open_holds_readers_back(p: Ownership) -> Any:
    p.filled("before")
    async with p.reader(isolation_level="read_committed") as consumer:
        with p.cluster.transaction() as writing:
            writing.produce(p.t, "open")
            early = await values(consumer, 2, 1)
            ends = list((await consumer.end_offsets([p.tp()])).values())
        return early, ends, await values(consumer, 1)


@scenario
async def an_aborted_end_moves_the_position(p: Ownership) -> Any:
    p.filled("before")
    with pytest.raises(ZeroDivisionError), p.cluster.transaction() as writing:
        raise ZeroDivisionError(writing.produce(p.t, "a", "b"))
    async with p.reader(isolation_level="read_committed") as consumer:
        found = await values(consumer, 1)
        with anyio.move_on_after(PATIENCE):
            while await consumer.position(p.tp()) < 4:
                await consumer.getmany(timeout_ms=100)
        return found, await consumer.position(p.tp())


# --- committed offsets without members ------------------------------------------------------------------------------------------


@scenario
async def anybody_commits_for_a_group_without_members(p: Ownership) -> Any:
    p.filled("a", "b")
    async with p.reader(group_id=p.g) as consumer:
        await consumer.commit({p.tp(): OffsetAndMetadata(1, "note")})
        told = (await consumer.committed_offsets(p.tp()))[p.tp()]
        return told, await consumer.committed(p.tp()), p.committed()


@scenario
async def nothing_was_committed(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(group_id=p.g) as consumer:
        return await consumer.committed(p.tp()), p.committed()


@scenario
async def a_commit_for_a_topic_that_is_not_there(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(group_id=p.g, allow_auto_create_topics=False, default_api_timeout_ms=3000) as consumer:
        return await outcome(consumer.commit({TopicPartition(p.t, 7): 1})), p.committed()


@scenario
async def metadata_that_is_too_long(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(group_id=p.g) as consumer:
        return await outcome(consumer.commit({p.tp(): OffsetAndMetadata(1, "x" * 4097)})), p.committed()


@scenario
async def committed_offsets_go_with_their_topic(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(group_id=p.g) as consumer:
        await consumer.commit({p.tp(): 1})
    p.cluster.recreate(p.t)
    return p.committed()


@scenario
async def reading_goes_on_where_it_was_committed(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    async with p.reader(group_id=p.g) as consumer:
        await consumer.commit({p.tp(): 2})
    async with p.reader(group_id=p.g) as consumer:
        return await values(consumer, 1), await consumer.position(p.tp())


# --- groups ---------------------------------------------------------------------------------------------------------------------


@in_both_protocols
async def one_member_has_everything(p: Ownership, protocol: str) -> Any:
    p.spread(6, 3)
    async with p.member(protocol) as consumer:
        return sorted(value or "" for value in await values(consumer, 6)), indexes(consumer), len(p.cluster.members(p.g))


@in_both_protocols
async def two_members_share(p: Ownership, protocol: str) -> Any:
    p.spread(0, 4)
    async with p.member(protocol) as one, p.joining(protocol, one) as two:
        shared = await until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
        return shared, sorted(indexes(one) + indexes(two))


@in_both_protocols
async def three_members_of_two_partitions(p: Ownership, protocol: str) -> Any:
    p.spread(0, 2)
    async with p.member(protocol) as one, p.joining(protocol, one) as two, p.joining(protocol, one, two) as three:
        members = (one, two, three)
        done = await until(lambda: sorted(len(each.assignment()) for each in members) == [0, 1, 1], *members)
        return done, sorted(index for each in members for index in indexes(each))


@in_both_protocols
async def who_stays_has_everything(p: Ownership, protocol: str) -> Any:
    p.spread(0, 4)
    async with p.member(protocol) as one:
        async with p.joining(protocol, one) as two:
            shared = await until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
        return shared, await until(lambda: len(one.assignment()) == 4, one), indexes(one), len(p.cluster.members(p.g))


@in_both_protocols
async def the_next_member_goes_on(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b", "c")
    async with p.member(protocol) as one:
        first = [(await one.getone()).value, (await one.getone()).value]
        await one.commit()
    async with p.member(protocol) as two:
        return first, await values(two, 1), p.committed()


@in_both_protocols
async def auto_commit_at_the_end(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b", "c")
    async with p.member(protocol, enable_auto_commit=True) as one:
        found = await values(one, 3)
    return found, p.committed()


@in_both_protocols
async def a_member_that_is_kicked_comes_back(p: Ownership, protocol: str) -> Any:
    p.filled("a", partitions=2)
    async with p.member(protocol) as one:
        found = await values(one, 1)
        p.cluster.kick(p.g)
        back = await until(lambda: len(p.cluster.members(p.g)) == 1 and len(one.assignment()) == 2, one)
        return found, back


@in_both_protocols
async def a_stranger_may_not_commit_for_a_group_with_members(p: Ownership, protocol: str) -> Any:
    p.filled("a")
    async with p.member(protocol) as one, p.reader(group_id=p.g, group_protocol=protocol) as stranger:
        await until(lambda: len(one.assignment()) == 1, one)
        return await outcome(stranger.commit({p.tp(): 1})), p.committed()


@in_both_protocols
async def a_static_member_that_is_back_keeps_its_partitions(p: Ownership, protocol: str) -> Any:
    p.spread(0, 2)
    async with p.member(protocol, group_instance_id="one") as one:
        async with p.joining(protocol, one, group_instance_id="two") as before:
            shared = await until(lambda: len(one.assignment()) == len(before.assignment()) == 1, one, before)
            had = before.assignment()
        async with p.member(protocol, group_instance_id="two") as after:
            return shared, await until(lambda: after.assignment() == had, one, after), len(p.cluster.members(p.g))


@in_both_protocols
async def a_second_member_of_one_instance_id(p: Ownership, protocol: str) -> Any:
    p.filled("a")
    async with p.member(protocol, group_instance_id="one") as one:
        await until(lambda: len(one.assignment()) == 1, one)
        second = p.member(protocol, group_instance_id="one")
        with anyio.move_on_after(15):
            told = await outcome(second.start())
            first = await outcome(one.getmany(timeout_ms=8000)) if told is None else "goes on"
        await second.stop()
        return told, first if isinstance(first, str) else "goes on"


@in_both_protocols
async def a_pattern_takes_in_what_matches(p: Ownership, protocol: str) -> Any:
    p.filled("a")
    async with p.new(group_id=p.g, group_protocol=protocol) as consumer:
        consumer.subscribe(pattern=f"^{p.t}$")
        return await values(consumer, 1), indexes(consumer)


@in_both_protocols
async def another_subscription_another_assignment(p: Ownership, protocol: str) -> Any:
    p.filled("a")
    other = p.t + "-other"
    p.cluster.topic(other, 2)
    async with p.member(protocol) as consumer:
        found = await values(consumer, 1)
        consumer.subscribe([other])
        moved = await until(lambda: {tp.topic for tp in consumer.assignment()} == {other}, consumer)
        return found, moved, indexes(consumer)


@in_both_protocols
async def leaving_by_unsubscribe(p: Ownership, protocol: str) -> Any:
    p.filled("a")
    async with p.member(protocol) as consumer:
        found = await values(consumer, 1)
        consumer.unsubscribe()
        return found, await until(lambda: not p.cluster.members(p.g)), indexes(consumer)


@in_both_protocols
async def offsets_of_a_member_that_reads_committed_transactions(p: Ownership, protocol: str) -> Any:
    _transactions(p)
    async with p.member(protocol, isolation_level="read_committed") as consumer:
        found = await values(consumer, 3)
        await consumer.commit()
        return found, p.committed()


# --- share groups ---------------------------------------------------------------------------------------------------------------


@scenario
async def jobs_that_are_accepted_are_done(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    p.from_the_start()
    async with worker(p) as consumer:
        found = await jobs(consumer, 3)
        for record in found:
            record.accept()
        done = await settled(consumer)
    async with worker(p) as consumer:
        return told(found), done, told(await jobs(consumer, 1, 3))


@scenario
async def jobs_that_are_released_come_again(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    p.from_the_start()
    async with worker(p) as consumer:
        found = await jobs(consumer, 3)
        found[0].accept()
        found[1].release()
        found[2].reject()
        done = await settled(consumer)
        again = await jobs(consumer, 1)
        for record in again:
            record.accept()
        return told(found), done, told(again), told(await jobs(consumer, 1, 3))


@scenario
async def a_share_group_begins_at_the_end(p: Ownership) -> Any:
    p.filled("before")
    async with worker(p) as consumer:
        early = await jobs(consumer, 1, 6)
        p.cluster.produce(p.t, value="after", partition=0)
        found = await jobs(consumer, 1)
        for record in found:
            record.accept()
        return told(early), told(found)


@scenario
async def jobs_are_given_up_after_the_last_delivery(p: Ownership) -> Any:
    p.filled("poison")
    p.from_the_start(share_delivery_count_limit=2)
    async with worker(p) as consumer:
        found = []
        for _ in range(2):
            for record in await jobs(consumer, 1):
                found.append((record.offset, record.delivery_count))
                record.release()
            await consumer.flush()
        return found, told(await jobs(consumer, 1, 3))


@scenario
async def jobs_of_a_member_that_has_left_go_to_others(p: Ownership) -> Any:
    p.filled("a", "b")
    p.from_the_start()
    async with worker(p) as one:
        first = await jobs(one, 2)
        first[0].accept()
    async with worker(p) as two:
        second = await jobs(two, 1)
        for record in second:
            record.accept()
        return told(first), told(second), told(await jobs(two, 1, 3))


@scenario
async def jobs_of_several_partitions(p: Ownership) -> Any:
    p.spread(6, 3)
    p.from_the_start(share_record_lock_duration_ms=20_000)  # longer than it takes to read one by one
    async with worker(p) as one, worker(p) as two:
        seen: list[tuple[int, int, int]] = []
        with anyio.move_on_after(PATIENCE):
            while len(seen) < 6:
                for consumer in (one, two):
                    for record in await jobs(consumer, 1, 0.5):
                        seen.append((record.partition, record.offset, record.delivery_count))
                        record.accept()
        return sorted(seen), [await settled(one) is not None, await settled(two) is not None]


@scenario
async def jobs_of_transactions_that_were_committed(p: Ownership) -> Any:
    _transactions(p)
    p.from_the_start(share_isolation_level="read_committed")
    async with worker(p) as consumer:
        found = await jobs(consumer, 3)
        for record in found:
            record.accept()
        return told(found), await settled(consumer), told(await jobs(consumer, 1, 3))


@scenario
async def jobs_of_every_transaction(p: Ownership) -> Any:
    _transactions(p)
    p.from_the_start()
    async with worker(p) as consumer:
        found = await jobs(consumer, 4)
        for record in found:
            record.accept()
        return told(found), await settled(consumer), told(await jobs(consumer, 1, 3))


@scenario
async def a_lock_that_ends_makes_the_acknowledgement_late(p: Ownership) -> Any:
    p.filled("a")
    p.from_the_start(share_record_lock_duration_ms=3000)
    async with worker(p, max_processing_ms=1) as one, worker(p) as two:
        first = await jobs(one, 1) or await jobs(two, 1)
        again = await jobs(two, 1) or await jobs(one, 1)
        for record in again:
            record.accept()
        return told(first), told(again)


# --- dead letters of share groups (KIP-1191) ------------------------------------------------------------------------------------


def _dead_letters(
    p: Ownership, *, topic: bool = True, partitions: int = 1, prefix: str = "dlq.", copy: bool = False, **config: Any
) -> str:
    """Have the group write dead letters, and return the name of their topic. ``config``: the topic's settings."""
    name = f"{prefix}{p.t}"
    if topic:
        p.cluster.topic(name, partitions, **{"errors_deadletterqueue_group_enable": True} | config)
    p.from_the_start(
        errors_deadletterqueue_topic_name=name,
        errors_deadletterqueue_copy_record_enable=copy,
        share_delivery_count_limit=2,
        share_record_lock_duration_ms=3000,
    )
    return name


async def _letters(p: Ownership, name: str, count: int) -> list[Any]:
    await until(lambda: len(p.cluster.records(name)) >= count)
    found = p.cluster.records(name)
    return [
        (each.partition, each.key, each.value, [(key, _own(p, text)) for key, text in each.headers], each.timestamp_type)
        for each in found
    ]


def _own(p: Ownership, text: bytes) -> bytes:
    """The names of a scenario's topic and group differ from run to run."""
    return {p.t.encode(): b"<topic>", p.g.encode(): b"<group>"}.get(text, text)


@scenario
async def dead_letters_of_rejected_jobs(p: Ownership) -> Any:
    p.spread(12, 4)
    name = _dead_letters(p, partitions=3)
    async with worker(p) as consumer:
        for record in await jobs(consumer, 12):
            if record.value in (b"3", b"6", b"11"):
                record.reject()
            else:
                record.accept()
        said = await settled(consumer)
        # partitions 3, 2 and 3 of four: their letters are in 0, 2 and 0 of three
        return said, sorted(await _letters(p, name, 3)), told(await jobs(consumer, 1, 3))


@scenario
async def dead_letters_with_the_record(p: Ownership) -> Any:
    p.filled()
    p.cluster.produce(p.t, key="k", value="v" * 50, headers=[("h", b"1")], compression="zstd")
    p.cluster.produce(p.t, key=None, value=None, headers=[("h", b"1")])
    name = _dead_letters(p, copy=True)
    async with worker(p) as consumer:
        for record in await jobs(consumer, 2):
            record.reject()
        return await settled(consumer), await _letters(p, name, 2)


@scenario
async def dead_letters_of_jobs_that_were_released_too_often(p: Ownership) -> Any:
    p.filled("poison", "fine")
    name = _dead_letters(p)
    async with worker(p) as consumer:
        for record in await jobs(consumer, 2):
            if record.offset:
                record.accept()
            else:
                record.release()
        await consumer.flush()
        for record in await jobs(consumer, 1):
            record.release()
        said = await settled(consumer)
        return said, await _letters(p, name, 1), told(await jobs(consumer, 1, 3))


@scenario
async def dead_letters_of_jobs_whose_locks_ended(p: Ownership) -> Any:
    p.filled("slow")
    name = _dead_letters(p)
    async with worker(p, max_processing_ms=1) as consumer:
        taken = told(await jobs(consumer, 1)) + told(await jobs(consumer, 1))
        return taken, await _letters(p, name, 1)


@scenario
async def dead_letters_of_jobs_whose_members_left(p: Ownership) -> Any:
    p.filled("heavy")
    name = _dead_letters(p)
    taken = []
    for _ in range(2):
        async with worker(p) as consumer:
            taken += told(await jobs(consumer, 1))
    return taken, await _letters(p, name, 1)


@scenario
async def dead_letters_that_get_lost(p: Ownership) -> Any:
    found = []
    for wrong in (
        {"errors_deadletterqueue_group_enable": False},
        {"prefix": "letters."},
        {"cleanup_policy": "compact"},
        {"max_message_bytes": 100},
        {"topic": False},
    ):
        own = Ownership(p.cluster)
        own.filled("poison", "fine")
        name = _dead_letters(own, **wrong)
        async with worker(own) as consumer:
            for record in await jobs(consumer, 2):
                if record.offset:
                    record.accept()
                else:
                    record.reject()
            said = await settled(consumer)
            again = told(await jobs(consumer, 1, 2))
        found.append((said, again, await _letters(own, name, 0) if wrong.get("topic", True) else None))
    return found


@scenario
async def dead_letter_topics_that_may_not_be_set(p: Ownership) -> Any:
    refused = []
    for name in ("__letters", "__dlq.x", "", "dlq.x", "anything goes"):
        try:
            p.cluster.group(p.g, errors_deadletterqueue_topic_name=name)
        except ValueError:
            refused.append(name)
    return refused


# --- settings of topics ---------------------------------------------------------------------------------------------------------


@scenario
async def settings_that_do_not_exist(p: Ownership) -> Any:
    try:
        p.cluster.topic(p.t, no_such_setting=1)
    except (KafkaError, ValueError) as error:
        return "no.such.setting" in str(error)


@scenario
async def records_that_are_too_large(p: Ownership) -> Any:
    p.cluster.topic(p.t, max_message_bytes=500)
    p.cluster.produce(p.t, value="small", partition=0)
    try:
        p.cluster.produce(p.t, value="x" * 1000, partition=0)
    except KafkaError as error:
        return type(error).__name__, p.cluster.end(p.tp())


@scenario
async def compacted_topics_want_keys(p: Ownership) -> Any:
    p.cluster.topic(p.t, cleanup_policy="compact")
    p.cluster.produce(p.t, key="k", value="v", partition=0)
    try:
        p.cluster.produce(p.t, value="v", partition=0)
    except KafkaError as error:
        return type(error).__name__, p.cluster.end(p.tp())


@scenario
async def brokers_give_timestamps(p: Ownership) -> Any:
    p.cluster.topic(p.t, message_timestamp_type="LogAppendTime")
    p.cluster.produce(p.t, value="v", timestamp=7, partition=0)
    async with p.reader() as consumer:
        record = await consumer.getone()
        return record.timestamp_type, record.timestamp > 1_600_000_000_000


@scenario
async def timestamps_that_are_too_old(p: Ownership) -> Any:
    p.cluster.topic(p.t, message_timestamp_before_max_ms=3_600_000)
    try:
        p.cluster.produce(p.t, value="v", timestamp=7, partition=0)
    except KafkaError as error:
        return type(error).__name__, p.cluster.end(p.tp())


# --- two things at once ---------------------------------------------------------------------------------------------------------


@in_both_protocols
async def a_commit_before_the_beginning_of_the_log(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b", "c", "d")
    async with p.member(protocol, max_poll_records=1) as consumer:
        found = await values(consumer, 1)
        await consumer.commit()
    p.cluster.delete_before(p.tp(), 3)
    async with p.member(protocol) as consumer:
        found += await values(consumer, 1)
        return found, await consumer.position(p.tp()), p.committed()


@in_both_protocols
async def a_commit_past_the_end_of_the_log(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b")
    async with p.member(protocol) as consumer:
        await consumer.commit({p.tp(): 100})
    async with p.member(protocol, auto_offset_reset="none") as consumer:
        refused = await outcome(consumer.getone())
    async with p.member(protocol) as consumer:
        return refused, await values(consumer, 2), p.committed()


@in_both_protocols
async def a_topic_made_anew_under_a_member(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b", "c")
    async with p.member(protocol, metadata_max_age_ms=500) as consumer:
        found = await values(consumer, 3)
        await consumer.commit()
        p.cluster.recreate(p.t)
        p.cluster.produce(p.t, value="x", partition=0)
        found += await values(consumer, 1)
        return found, indexes(consumer), await consumer.position(p.tp())


@in_both_protocols
async def a_pause_outlives_a_rebalance(p: Ownership, protocol: str) -> Any:
    p.spread(4, partitions=2)
    strategy = {} if protocol == "consumer" else {"partition_assignment_strategy": ("cooperative-sticky",)}
    async with p.member(protocol, **strategy) as one:
        found = await values(one, 4)
        one.pause(p.tp(0), p.tp(1))
        async with p.joining(protocol, one, **strategy) as two:
            shared = await until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
            (kept,) = one.assignment()
            still = one.paused() == {kept}
            p.cluster.produce(p.t, value="x", partition=kept.partition)
            quiet = await values(one, 1, 1)
        one.resume(kept)
        rest = await values(one, 3)  # what was written meanwhile, and what two had, from the beginning since nothing was committed
        return len(found), shared, still, quiet, indexes(one), len(rest), "x" in rest


@in_both_protocols
async def a_static_member_that_is_kicked(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b", "c")
    async with p.member(protocol, group_instance_id="static", max_poll_records=1) as consumer:
        found = await values(consumer, 1)
        await consumer.commit()
        (before,) = p.cluster.members(p.g)
        p.cluster.kick(p.g)
        back = await until(lambda: bool(p.cluster.members(p.g)), consumer)
        same = p.cluster.members(p.g) == [before]
        owns = await until(lambda: indexes(consumer) == [0], consumer)
        return found, back, same, owns, await outcome(consumer.commit())


@scenario
async def a_static_member_that_stays_away_for_a_session(p: Ownership) -> Any:
    p.spread(4, partitions=2)
    options = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    async with p.member("classic", group_instance_id="one", **options) as one, p.joining("classic", one, **options) as two:
        shared = await until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
        await one.stop()
        kept = len(p.cluster.members(p.g)), indexes(two) != [0, 1]
        alone = await until(lambda: indexes(two) == [0, 1], two)
        return shared, kept, alone, len(p.cluster.members(p.g))


@scenario
async def a_position_that_retention_overtakes(p: Ownership) -> Any:
    p.filled("a", "b", "c", "d", "e")
    async with p.reader(max_poll_records=1, fetch_buffer_bytes=1024 * 1024) as consumer:
        consumer.seek(p.tp(), 1)
        consumer.pause(p.tp())
        await consumer.getmany(timeout_ms=50)
        p.cluster.delete_before(p.tp(), 3)
        consumer.seek(p.tp(), 1)
        consumer.resume(p.tp())
        found = await values(consumer, 2)
        return found, await consumer.beginning_offsets([p.tp()]) == {p.tp(): 3}


@scenario
async def no_reset_where_retention_overtakes_a_position(p: Ownership) -> Any:
    p.filled("a", "b", "c")
    async with p.reader(auto_offset_reset="none") as consumer:
        p.cluster.delete_before(p.tp(), 2)
        consumer.seek(p.tp(), 0)
        refused = await outcome(consumer.getone())
        consumer.seek(p.tp(), 2)
        return refused, await values(consumer, 1)


@scenario
async def aborted_transactions_whose_beginning_was_deleted(p: Ownership) -> Any:
    _transactions(p)
    p.cluster.delete_before(p.tp(), 2)
    async with p.reader(isolation_level="read_committed") as committed, p.reader() as every:
        return await values(committed, 9, 2), await values(every, 9, 2), p.cluster.end(p.tp())


@scenario
async def the_end_while_a_transaction_is_open(p: Ownership) -> Any:
    p.filled("a")
    async with p.reader(isolation_level="read_committed") as committed, p.reader() as every:
        with p.cluster.transaction() as writing:
            writing.produce(p.t, "b")
            ends = [(await each.end_offsets([p.tp()]))[p.tp()] for each in (committed, every)]
            await committed.seek_to_end()
            at = await committed.position(p.tp())
        after = [(await each.end_offsets([p.tp()]))[p.tp()] for each in (committed, every)]
        return ends, at, after, await values(committed, 1)


@scenario
async def offsets_by_time_of_what_was_deleted(p: Ownership) -> Any:
    p.cluster.topic(p.t)
    for stamp in (1000, 2000, 3000):
        p.cluster.produce(p.t, value="v", timestamp=stamp)
    p.cluster.delete_before(p.tp(), 2)
    async with p.reader() as consumer:
        found = [(await consumer.offsets_for_times({p.tp(): stamp}))[p.tp()] for stamp in (500, 2000, 3000, 3001)]
        return [None if each is None else (each.offset, each.timestamp) for each in found]


@in_both_protocols
async def a_rebalance_that_is_enforced(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b")
    async with p.member(protocol, max_poll_records=1) as consumer:
        found = await values(consumer, 1)
        (before,) = p.cluster.members(p.g)
        if protocol == "classic":
            consumer.enforce_rebalance()
        found += await values(consumer, 1)
        await p.cluster.assigned(p.g)
        return found, p.cluster.members(p.g) == [before], indexes(consumer)


@in_both_protocols
async def a_kick_between_a_read_and_its_commit(p: Ownership, protocol: str) -> Any:
    p.filled("a", "b")
    async with p.member(protocol, max_poll_records=1) as consumer:
        found = await values(consumer, 1)
        p.cluster.kick(p.g)
        refused = await outcome(consumer.commit({p.tp(): 1}))
        again = await values(consumer, 2)
        return found, refused, again, p.committed()


@scenario
async def jobs_that_retention_overtakes(p: Ownership) -> Any:
    p.filled("a", "b", "c", "d")
    p.from_the_start()
    async with worker(p) as consumer:
        taken = await jobs(consumer, 1)
        p.cluster.delete_before(p.tp(), 3)
        for record in taken:
            record.accept()
        said = await settled(consumer)
    async with worker(p) as consumer:
        return told(taken), said, told(await jobs(consumer, 1, 10))  # more, and its lock may end meanwhile


@scenario
async def jobs_of_a_transaction_that_is_open(p: Ownership) -> Any:
    p.filled("a")
    p.from_the_start(share_isolation_level="read_committed")
    async with worker(p) as consumer:
        with p.cluster.transaction() as writing:
            writing.produce(p.t, "b")
            p.cluster.produce(p.t, value="c")
            early = told(await jobs(consumer, 3, 2))
        return early, told(await jobs(consumer, 2, 10))


# --- both sides -----------------------------------------------------------------------------------------------------------------


async def _on_real(bootstrap: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with limit, RealCluster(bootstrap) as cluster:
            try:
                found[name] = await SCENARIOS[name](Ownership(cluster))
            except Exception as error:
                found[name] = error

    await asyncio.gather(*map(one, SCENARIOS))
    return found


@pytest.fixture(scope="module")
def real(real_brokers: None) -> dict[str, Any]:
    """The results of all scenarios on a real broker."""
    properties = share_properties() | {"group.initial.rebalance.delay.ms": "0"}
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        return asyncio.run(_on_real(cluster.bootstrap_servers))


@pytest.mark.parametrize("name", SCENARIOS)
def test_real_brokers_and_simulated_ones_do_the_same(name: str, real: dict[str, Any]) -> None:
    async def simulated() -> Any:
        async with asyncio.timeout(1000):
            return await SCENARIOS[name](Ownership(Cluster()))

    assert run_virtual_asyncio(simulated) == real[name]
