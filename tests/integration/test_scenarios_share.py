"""Share groups on the simulated cluster and on real brokers, with equal results: see ``test_scenarios.py``."""

import asyncio
from typing import Any

import anyio
import pytest

from tests.brokers import CURRENT, KafkaCluster

from .scenarios import PATIENCE, Ownership, Scenario, jobs, on_real, on_simulated, settled, told, transactions, until, worker
from .share import share_properties

pytestmark = pytest.mark.brokers

SCENARIOS: dict[str, Scenario] = {}


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS[fn.__name__] = fn
    return fn


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
    transactions(p)
    p.from_the_start(share_isolation_level="read_committed")
    async with worker(p) as consumer:
        found = await jobs(consumer, 3)
        for record in found:
            record.accept()
        return told(found), await settled(consumer), told(await jobs(consumer, 1, 3))


@scenario
async def jobs_of_every_transaction(p: Ownership) -> Any:
    transactions(p)
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


async def _accepted(consumer: Any) -> list[Any]:
    """Take and accept records until none comes any more."""
    found: list[Any] = []
    while more := await jobs(consumer, 1, 3):
        for record in more:
            record.accept()
        found += more
    return found


@scenario
async def jobs_behind_one_that_is_not_done(p: Ownership) -> Any:
    p.filled(*map(str, range(150)))
    p.from_the_start(share_partition_max_record_locks=100, share_record_lock_duration_ms=30_000)
    async with worker(p) as consumer:
        (held,) = await jobs(consumer, 1)
        async with held:
            behind = await _accepted(consumer)
        await settled(consumer)
        return told([held]), told(behind), told(await _accepted(consumer))


@scenario
async def jobs_that_are_given_back_behind_one_that_is_not_done(p: Ownership) -> Any:
    p.filled(*map(str, range(110)))
    p.from_the_start(share_partition_max_record_locks=100, share_record_lock_duration_ms=30_000)
    async with worker(p) as consumer:
        (held,) = await jobs(consumer, 1)
        async with held:
            behind = await jobs(consumer, 99)
            for record in behind:
                record.release() if record.offset <= 10 else record.accept()
            await settled(consumer)
            return told(behind), told(await _accepted(consumer))


@scenario
async def jobs_in_batches_that_are_longer_than_what_may_be_locked(p: Ownership) -> Any:
    found = []
    for strict in (False, True):
        place = Ownership(p.cluster)
        place.filled()
        for start in range(0, 400, 100):
            place.cluster.produce_many(place.t, map(str, range(start, start + 100)), partition=0)
        place.from_the_start(share_partition_max_record_locks=150, share_record_lock_duration_ms=30_000)
        async with worker(place, strict_max_records=strict) as consumer:
            found.append(told(await jobs(consumer, 400, 10)))
    return found


@scenario
async def jobs_of_a_partition_that_others_read_when_a_member_stops(p: Ownership) -> Any:
    p.spread(2, partitions=2)
    p.from_the_start(share_record_lock_duration_ms=60_000)
    async with worker(p) as one:
        first = await jobs(one, 2)
        async with worker(p) as two:
            await p.cluster.assigned(p.g, members=2)
            quiet = await jobs(one, 1, 3)  # meanwhile it leaves one of the partitions to the other member
            await one.stop()
            again = await jobs(two, 2, 20)
            return sorted(told(first)), told(quiet), sorted(told(again))


@scenario
async def a_member_of_a_share_group_that_is_kicked(p: Ownership) -> Any:
    p.filled("a")
    p.from_the_start()
    async with worker(p) as consumer:
        await p.cluster.assigned(p.g)
        (before,) = p.cluster.members(p.g)
        p.cluster.kick(p.g)
        gone = p.cluster.members(p.g)
        with anyio.move_on_after(PATIENCE):
            while not p.cluster.members(p.g):
                await jobs(consumer, 1, 0.1)
        return gone, p.cluster.members(p.g) == [before]


# --- dead letters of share groups (KIP-1191) ------------------------------------------------------------------------------------


def _dead_letters(
    p: Ownership,
    *,
    topic: bool = True,
    partitions: int = 1,
    prefix: str = "dlq.",
    copy: bool = False,
    lock_ms: int = 30_000,
    **config: Any,
) -> str:
    """Have the group write dead letters, and return the name of their topic. ``config``: the topic's settings."""
    name = f"{prefix}{p.t}"
    if topic:
        p.cluster.topic(name, partitions, **{"errors_deadletterqueue_group_enable": True} | config)
    p.from_the_start(
        errors_deadletterqueue_topic_name=name,
        errors_deadletterqueue_copy_record_enable=copy,
        share_delivery_count_limit=2,
        share_record_lock_duration_ms=lock_ms,
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
    name = _dead_letters(p, lock_ms=3000)
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


# --- two things at once ---------------------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def real(real_brokers: None) -> dict[str, Any]:
    """The results of all scenarios on a real broker."""
    # A lock that ends costs a record a delivery: where it is not to end, it lasts as long as Kafka's own, on a busy machine too.
    properties = share_properties() | {"group.share.record.lock.duration.ms": "30000"}
    with KafkaCluster(CURRENT, properties=properties) as cluster:
        return asyncio.run(on_real(cluster.bootstrap_servers, SCENARIOS))


@pytest.mark.parametrize("name", SCENARIOS)
def test_real_brokers_and_simulated_ones_share_alike(name: str, real: dict[str, Any]) -> None:
    assert on_simulated(SCENARIOS[name]) == real[name]
