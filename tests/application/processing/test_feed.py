"""When records are read for the workers, and how many."""

from collections.abc import Collection, Sequence
from typing import Any

import anyio
from attrs import Factory, define, field

from kafka_async.application.processing.feed import LOOK_AGAIN, Feed
from kafka_async.application.processing.run_state import Bench, RunState
from kafka_async.application.processing.work import Received, Supply, Work
from kafka_async.errors import ConsumerStoppedError, DeserializationError, KafkaTimeoutError
from kafka_async.model import ConsumerRecord, TopicPartition
from kafka_async.trace import ProcessingFailed, TraceEvent
from tests.application.support import virtual

from .support import OTHER, TP, records, started, work

Record = ConsumerRecord[Any, Any]


@define(eq=False)
class Fetched:
    """What was fetched and not handed out, and what each read asked for."""

    there: dict[TopicPartition, list[Record]] = Factory(dict)
    errors: list[Exception] = Factory(list)
    asked: list[tuple[int, set[TopicPartition], float]] = Factory(list)
    retry_backoff: float = 0.5
    arrived: anyio.Event = field(factory=anyio.Event)

    def put(self, partition: TopicPartition, more: Sequence[Record]) -> None:
        self.there.setdefault(partition, []).extend(more)
        self.arrived.set()

    def take(self, limit: int, waiting: Collection[TopicPartition]) -> Supply:
        found: dict[TopicPartition, Received] = {}
        for partition, there in self.there.items():
            if partition not in waiting and there and limit:
                taken, self.there[partition] = there[:limit], there[limit:]
                limit -= len(taken)
                found[partition] = Received(taken, taken)
        return found

    def refused(self, partition: TopicPartition, record: Record) -> Supply:
        return {partition: Received([record], [record])}

    async def read(self, limit: int, waiting: Collection[TopicPartition], seconds: float) -> Supply:
        self.asked.append((limit, set(waiting), seconds))
        if self.errors:
            raise self.errors.pop(0)
        with anyio.move_on_after(seconds):
            while not (found := self.take(limit, waiting)):
                self.arrived = anyio.Event()
                await self.arrived.wait()
            return found
        return {}


@define(eq=False)
class Fed:
    """A feed, and what is at its ends."""

    queue: Work
    fetched: Fetched = Factory(Fetched)
    events: list[TraceEvent] = Factory(list)
    now: float = 0.0
    run: RunState = field(init=False)
    feed: Feed = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.run = RunState(lambda: self.now, self.events.append)
        self.feed = Feed(self.fetched, self.queue, self.run, Bench())


@virtual
async def test_once_there_was_no_room_workers_ask_again_when_a_step_of_the_records_is_done() -> None:
    fed = Fed(work(most=20))
    fed.fetched.put(TP, records(range(50)))
    assert await fed.feed.try_to_read(1.0)
    assert (fed.fetched.asked[0][0], fed.queue.held) == (20, 20)
    assert fed.feed.refill_below == -1, "a read asks for all that there is room for"
    fed.now = 1.0
    await fed.feed.try_to_read(1.0)
    assert fed.fetched.asked[1][0] == 0
    assert fed.feed.refill_below == 15


@virtual
async def test_what_was_fetched_is_taken_at_once_and_without_any_a_read_waits_for_it() -> None:
    fed = Fed(work(most=20))
    fed.feed.refill()
    assert (fed.queue.held, fed.feed.refill_below) == (0, -1), "there is room, and a read is at it"
    fed.fetched.put(TP, records(range(15)))
    fed.feed.refill()
    assert (fed.queue.held, fed.feed.refill_below) == (15, 15)


@virtual
async def test_nothing_is_read_while_processing_rests_or_ends_but_reads_go_on() -> None:
    fed = Fed(work(most=20))
    fed.fetched.put(TP, records(range(15)))
    fed.run.holding = True
    fed.feed.refill()
    assert await fed.feed.try_to_read(0.5)
    assert fed.fetched.asked == [(0, set(), 0.5)]
    assert fed.queue.held == 0


@virtual
async def test_a_partition_that_waits_for_room_is_looked_at_again_soon() -> None:
    fed = Fed(work(most=8))
    fed.fetched.put(TP, records(range(20)))
    fed.fetched.put(OTHER, records(range(1), partition=OTHER))
    fed.queue.assign(TP)
    fed.queue.assign(OTHER)
    while fed.queue.intake().limit and not fed.queue.intake().waiting:
        await fed.feed.try_to_read(0.5)
    await fed.feed.try_to_read(0.5)
    _, waiting, seconds = fed.fetched.asked[-1]
    assert waiting
    assert seconds == LOOK_AGAIN


@virtual
async def test_a_read_is_interrupted_when_there_is_more_to_ask_for_but_not_inside_a_call_back() -> None:
    fed = Fed(work(most=20))
    ended: list[str] = []

    async def read() -> None:
        assert await fed.feed.try_to_read(100.0)
        ended.append("read")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        with fed.feed.undisturbed():
            assert not fed.feed.asking, "it brings nothing before the call-back has returned, and is interrupted then"
            fed.feed.interrupt()
            await anyio.wait_all_tasks_blocked()
            assert ended == []
        assert fed.feed.asking
        await anyio.wait_all_tasks_blocked()
        assert ended == ["read"]
        assert not fed.feed.asking


@virtual
async def test_a_read_that_is_interrupted_as_its_records_come_still_brings_them_and_says_so_meanwhile() -> None:
    fed = Fed(work(most=20))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fed.feed.try_to_read, 100.0)
        await anyio.wait_all_tasks_blocked()
        assert fed.feed.asking
        fed.fetched.put(TP, records(range(1)))
        fed.run.holding = True
        fed.feed.interrupt()
        assert fed.feed.asking
        assert fed.queue.held == 0
        await fed.run.until(lambda: not fed.feed.asking)
        assert fed.queue.held == 1


@virtual
async def test_a_record_that_cannot_be_deserialized_is_work_too() -> None:
    fed = Fed(work(most=20))
    fed.fetched.errors.append(DeserializationError("no number", records([7])[0], "value"))
    assert await fed.feed.try_to_read(1.0)
    assert started(fed.queue) == [7]
    assert fed.run.failure is None


@virtual
async def test_an_error_that_may_pass_is_reported_and_any_other_ends_the_run() -> None:
    class Down(Exception):  # of another library: of a deserializer that asks a registry
        retriable = True

    fed = Fed(work(most=20))
    passing, lasting = KafkaTimeoutError("no answer"), ValueError("a bug")
    fed.fetched.errors += [passing, Down("no registry"), lasting]
    for number in (1, 2):
        assert await fed.feed.try_to_read(1.0)
        assert (len(fed.events), fed.run.failure) == (number, None)
    assert await fed.feed.try_to_read(1.0)
    assert fed.run.failure is lasting
    assert fed.run.halted
    assert isinstance(fed.events[-1], ProcessingFailed)


@virtual
async def test_a_consumer_that_is_being_stopped_ends_reading() -> None:
    fed = Fed(work(most=20))
    fed.fetched.errors.append(ConsumerStoppedError("stopped"))
    assert not await fed.feed.try_to_read(1.0)
    assert fed.run.failure is None
