"""The same scenarios on the simulated cluster and on real brokers, with equal results: what keeps the simulation honest.

Each scenario returns plain data. On the simulated cluster it runs under virtual time, on the real brokers several run at a time,
since most of their time is waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kafka_async import OffsetAndMetadata, TopicPartition
from kafka_async.errors import KafkaError
from tests.brokers import CURRENT, KafkaCluster

from .scenarios import PATIENCE, Ownership, Scenario, indexes, on_real, on_simulated, outcome, read, transactions, until, values

pytestmark = pytest.mark.brokers

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


@scenario
async def committed_transactions_alone(p: Ownership) -> Any:
    transactions(p)
    async with p.reader(isolation_level="read_committed") as consumer:
        return [(record.offset, record.value) for record in await read(consumer, 3)], await consumer.position(p.tp())


@scenario
async def every_transaction(p: Ownership) -> Any:
    transactions(p)
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
async def offsets_of_a_member_that_reads_committedtransactions(p: Ownership, protocol: str) -> Any:
    transactions(p)
    async with p.member(protocol, isolation_level="read_committed") as consumer:
        found = await values(consumer, 3)
        await consumer.commit()
        return found, p.committed()


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


@scenario
async def a_topic_made_anew_keeps_its_settings(p: Ownership) -> Any:
    p.cluster.topic(p.t, 2, message_timestamp_type="LogAppendTime")
    p.cluster.recreate(p.t)
    p.cluster.produce(p.t, value="a", partition=1)
    async with p.reader(1) as consumer:
        (record,) = await read(consumer, 1)
        return record.timestamp_type, record.value, record.offset


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
    transactions(p)
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


# --- both sides -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(real_brokers: None) -> dict[str, Any]:
    """The results of all scenarios on a real broker."""
    with KafkaCluster(CURRENT, properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        return asyncio.run(on_real(cluster.bootstrap_servers, SCENARIOS))


@pytest.mark.parametrize("name", SCENARIOS)
def test_real_brokers_and_simulated_ones_do_the_same(name: str, real: dict[str, Any]) -> None:
    assert on_simulated(SCENARIOS[name]) == real[name]
