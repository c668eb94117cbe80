"""Handlers of every odd shape: what looks like an end and is none, decisions within task groups, context variables."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import starmap
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async import KafkaConsumer, Reject, Retry, RetryLater, ShareConsumer, Skip
from kafka_async.application.processing.processing import Processing
from kafka_async.errors import ProcessingError
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from tests.application.support import virtual
from tests.virtual import run_virtual, run_virtual_asyncio

from .test_on_asyncio import until as until_on_asyncio
from .world import Record, processed, until, world

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def _generator(*arguments: Any) -> Iterator[None]:
    yield


async def _async_generator(*arguments: Any) -> AsyncIterator[None]:
    yield


@contextmanager
def _manager(*arguments: Any) -> Iterator[None]:
    yield


@asynccontextmanager
async def _async_manager(*arguments: Any) -> AsyncIterator[None]:
    yield


async def _coroutine(*arguments: Any) -> None: ...


class Yielding:
    def __call__(self, *arguments: Any) -> Iterator[None]:
        yield

    def method(self, *arguments: Any) -> Iterator[None]:
        yield


ODD: dict[str, Callable[..., Any]] = {
    "generator": _generator,
    "async generator": _async_generator,
    "context manager": _manager,
    "async context manager": _async_manager,
    "partial": partial(_generator, 1),
    "object": Yielding(),
    "method": Yielding().method,
}
NO_END: dict[str, Callable[[], Any]] = {
    "coroutine": _coroutine,
    "generator": _generator,
    "async generator": _async_generator,
    "context manager": _manager,
    "async context manager": _async_manager,
    "future of a thread": Future,
    "function": lambda: _coroutine,
    "partial": lambda: partial(_coroutine, 1),
    "list of coroutines": lambda: [None, _coroutine(), _coroutine()],
    "futures of threads by name": lambda: {"one": Future(), "other": 1},
    "tuple with a future": lambda: (1, Future()),
    "set of coroutines": lambda: {_coroutine()},
    "map": lambda: map(print, [1]),
    "filter": lambda: filter(print, [1]),
    "starmap": lambda: starmap(print, [(1,)]),
}
"""What a handler may return although its work is not done."""


def _settled(run: Processing) -> int:
    found = run.statistics()
    return found.handled + found.skipped + found.dead_letters


# --- refused before anything runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", [KafkaConsumer, ShareConsumer, BlockingConsumer])
@pytest.mark.parametrize("shape", [*ODD, "class"])
def test_what_would_run_nothing_is_refused(shape: str, consumer: Any) -> None:
    consumer = consumer("t", group_id="g", bootstrap_servers="localhost:1")
    odd = ODD.get(shape, Yielding)
    why = "it is a class" if shape == "class" else "context manager" if "manager" in shape else "contains yield"
    with pytest.raises(TypeError, match=rf"handler=.*{why}.*expected a function of a record"):
        consumer.processing(odd)
    with pytest.raises(TypeError, match=rf"on_failure=.*{why}"):
        consumer.processing(print, on_failure=odd)


@pytest.mark.parametrize("odd", [*ODD.values(), _coroutine], ids=[*ODD, "async"])
def test_an_order_must_return_its_lane(odd: Callable[..., Any]) -> None:
    consumer = KafkaConsumer("t", group_id="g", bootstrap_servers="localhost:1")
    with pytest.raises(TypeError, match=r'order=.*expected "key", "partition", "none" or a function of a record'):
        consumer.processing(print, order=odd)
    with pytest.raises(TypeError, match=r"delay=.*expected seconds, or a function"):
        Retry(attempts=2, delay=odd)


# --- errors that say much, or nothing -------------------------------------------------------------------------------------------


class Mute(Exception):
    """Nothing can be said about it."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def _unreadable() -> Exception:
    try:
        (b"x" * 1_000_000 + b"\xff").decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@virtual
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(("error", "text"), [(_unreadable(), "invalid start byte"), (Mute(), "<Mute, whose text raised")])
async def test_what_stops_it_is_named_in_a_few_words(error: Exception, text: str, asynchronous: bool) -> None:
    some = world()
    some.produce(3)

    async def handle(record: Record) -> None:
        fail(record)

    def fail(record: Record) -> None:
        if record.offset == 1:
            raise error

    async with some.consumer() as consumer:
        with pytest.raises(ProcessingError, match=f"t-0 at offset 1 failed after attempt 1: .*{text}") as caught:
            await consumer.process(handle if asynchronous else fail, order="partition")
        assert caught.value.__cause__ is error
        assert len(str(caught.value)) < 300
    assert some.committed() == 1


# --- the record's failure ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("shape", NO_END)
async def test_what_a_handler_returns_may_be_no_end(shape: str, asynchronous: bool, batch: int | None) -> None:
    some = world()
    some.produce(5)
    letters: list[tuple[int, str]] = []

    def answer(record: Any) -> Any:
        offset = record.offset if batch is None else record[0].offset
        if offset > 1:
            return record  # anything else means nothing
        end = NO_END[shape]()
        return _nested(end) if shape == "coroutine" and not asynchronous else end

    async def _nested(end: Any) -> Any:
        return end  # a coroutine that a plain handler returns is awaited, so only what that returns is no end

    async def handle(record: Any) -> Any:
        return answer(record)

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, str(error)))

    handler = handle if asynchronous else answer
    async with processed(some, handler, on_failure=write, batch=batch, order="partition") as run:
        await until_on_asyncio(lambda: _settled(run) == 5)
    assert [offset for offset, _ in letters] == [0, 1]
    assert all("the handler returned" in text and "its work is not done" in text for _, text in letters)
    assert some.committed() == 5


@virtual
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_dead_letter_that_returned_no_end_is_not_written(asynchronous: bool) -> None:
    some = world()
    some.produce(3)

    async def handle(record: Record) -> None:
        if record.offset == 1:
            raise OSError("down")

    async def write(record: Record, error: BaseException, attempts: int) -> Any:
        return _coroutine()

    on_failure = write if asynchronous else lambda record, error, attempts: _generator()
    async with some.consumer() as consumer:
        with pytest.raises(Exception, match="on_failure returned"):
            await consumer.process(handle, on_failure=on_failure)
    assert some.committed() == 1


@virtual
async def test_an_order_that_has_to_be_awaited_is_the_failure_of_its_record() -> None:
    some = world()
    some.produce(3)
    letters: list[str] = []

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(str(error))

    async with processed(some, order=lambda record: _coroutine(), on_failure=write):
        await until(lambda: len(letters) == 3)
    assert not some.started
    assert set(letters) == {"order returned the coroutine _coroutine without awaiting it, so its work is not done"}


# --- what is no Exception ------------------------------------------------------------------------------------------------------


class Panic(BaseException):
    """What extensions written in Rust raise for a bug of theirs."""


def _panics(*arguments: Any) -> Any:
    raise Panic


def _leaks(*arguments: Any) -> Any:
    raise GeneratorExit


async def _panics_later(*arguments: Any) -> Any:
    await anyio.sleep(0.01)
    raise Panic


@virtual
@pytest.mark.parametrize("kind", ["async", "plain", "lambda", "timeout", "batch"])
async def test_a_handler_that_leaks_a_generator_exit_fails_for_its_record(kind: str) -> None:
    some = world()
    some.produce(10, keys=10)
    letters: list[int] = []

    def plain(record: Any) -> None:
        if (record[0] if kind == "batch" else record).offset == 7:
            raise GeneratorExit

    async def handle(record: Any) -> None:
        await anyio.sleep(0.01)
        plain(record)

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append(record.offset)

    handler: Any = {"plain": plain, "lambda": lambda record: handle(record)}.get(kind, handle)
    how: dict[str, Any] = {"batch": 1 if kind == "batch" else None, "timeout_ms": 1000 if kind == "timeout" else None}
    async with processed(some, handler, on_failure=write, concurrency=3, **how) as run:
        await until(lambda: _settled(run) == 10)
    assert letters == [7]
    assert some.committed() == 10


@virtual
@pytest.mark.parametrize("raises", [_panics, _leaks])
@pytest.mark.parametrize("what", ["delay", "on_failure", "order", "not_before", "value_deserializer"])
async def test_no_function_of_the_application_ends_processing_unheard(what: str, raises: Callable[..., Any]) -> None:
    some = world()
    some.produce(10, keys=10)

    async def handle(record: Record) -> None:
        if what in ("delay", "on_failure") and record.offset == 7:
            raise OSError("down")

    how: dict[str, Any] = {"retry": Retry(attempts=2, delay=raises)} if what == "delay" else {what: raises}
    options = {what: how.pop(what)} if what == "value_deserializer" else {}
    async with some.consumer(**options) as consumer:
        with anyio.fail_after(60), pytest.raises(BaseException) as found:  # noqa: PT011 - one of three, below
            await consumer.process(handle, **how)
        assert not consumer.alive
    assert isinstance(found.value, Panic | GeneratorExit | ProcessingError)
    assert isinstance(found.value, Panic) or raises is _leaks


@virtual
async def test_a_deserializer_that_panics_while_it_is_awaited_ends_processing_with_that() -> None:
    some = world()
    some.produce(3)
    async with some.consumer(value_deserializer=_panics_later) as consumer:
        with anyio.fail_after(60), pytest.raises(Panic):
            await consumer.process(print)
        assert not consumer.alive


# --- decisions within task groups ----------------------------------------------------------------------------------------------


async def test_what_a_task_of_a_task_group_decides_counts() -> None:
    some = world()
    some.produce(6)
    letters: list[tuple[int, type[BaseException], int]] = []
    calls: list[tuple[int, int]] = []
    decisions: dict[int, list[Exception]] = {
        1: [Skip("a duplicate")],
        2: [Reject("not for us"), OSError("down")],
        3: [RetryLater(0.01), Skip("later")],
        4: [OSError("down"), Skip("a duplicate")],
    }

    async def decide(error: Exception) -> None:
        raise error

    async def handle(record: Record, context: Any) -> None:
        calls.append((record.offset, context.attempt))
        if record.offset != 3 or context.attempt == 1:
            async with asyncio.TaskGroup() as outer:

                async def inner() -> None:
                    async with asyncio.TaskGroup() as group:
                        for error in decisions.get(record.offset, []):
                            group.create_task(decide(error))

                outer.create_task(inner())

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        letters.append((record.offset, type(error), attempts))

    retry = Retry(attempts=2)
    async with some.consumer() as consumer, consumer.processing(handle, on_failure=write, retry=retry) as run:
        await until_on_asyncio(lambda: _settled(run) == 6)
        await run.drain()
        found = run.statistics()
    assert sorted(calls) == [(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)]
    assert letters == [(2, Reject, 1), (4, ExceptionGroup, 2)]
    assert found.skipped == 1
    assert some.committed() == 6


# --- context variables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain", "lambda", "batch", "timeout", "plain with timeout"])
async def test_context_variables_stay_with_their_record(kind: str) -> None:
    some = world()
    some.produce(40, keys=7)
    WHO.set("the service")
    seen: list[tuple[int, str, int]] = []
    on_failure: list[tuple[int, str]] = []

    async def handle(record: Any, context: Any) -> None:
        one = record[0] if kind == "batch" else record
        seen.append((one.offset, WHO.get(), context.attempt))
        WHO.set(f"customer {one.offset}")
        await asyncio.sleep(0)
        assert WHO.get() == f"customer {one.offset}"
        if one.offset % 5 == 0:
            raise OSError("down")

    def plain(record: Record, context: Any) -> None:
        seen.append((record.offset, WHO.get(), context.attempt))
        WHO.set(f"customer {record.offset}")
        if record.offset % 5 == 0:
            raise OSError("down")

    async def write(record: Record, error: BaseException, attempts: int) -> None:
        on_failure.append((record.offset, WHO.get()))
        WHO.set("whoever writes")

    def write_plainly(record: Record, error: BaseException, attempts: int) -> None:
        on_failure.append((record.offset, WHO.get()))
        WHO.set("whoever writes")

    handler: Any = plain if "plain" in kind else (lambda record, context: handle(record, context)) if kind == "lambda" else handle
    how: dict[str, Any] = {"batch": 1 if kind == "batch" else None, "timeout_ms": 60_000 if "timeout" in kind else None}
    reaction = write_plainly if "plain" in kind else write

    def delay(attempt: int, error: BaseException) -> float:
        WHO.set("whoever waits")
        return 0.001

    retry = Retry(attempts=2, delay=delay)
    async with (
        some.consumer() as consumer,
        consumer.processing(handler, retry=retry, on_failure=reaction, concurrency=3, **how) as run,
    ):
        await until_on_asyncio(lambda: _settled(run) == 40)
    assert {who for _, who, _ in seen} == {"the service"}
    assert len(seen) == 48
    assert sorted(on_failure) == [(offset, f"customer {offset}") for offset in range(0, 40, 5)]
    assert WHO.get() == "the service"


async def test_a_failure_is_logged_with_the_context_variables_of_its_record() -> None:
    some = world()
    some.produce(3)
    logged: list[str] = []

    async def handle(record: Record) -> None:
        WHO.set(f"customer {record.offset}")
        raise OSError("down")

    def listen(event: Any) -> None:
        if type(event).__name__ == "RecordFailed":
            logged.append(WHO.get())

    async with some.consumer(trace=listen) as consumer, consumer.processing(handle, on_failure="skip") as run:
        await until_on_asyncio(lambda: run.statistics().skipped == 3)
    assert sorted(logged) == ["customer 0", "customer 1", "customer 2"]


# --- all of it, at random ------------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[], Any]] = {
    "well": lambda: None,
    "well, with a value": lambda: {"a": 1},
    **{f"returns a {shape}": made for shape, made in NO_END.items()},
}
RAISES: dict[str, Callable[[], BaseException]] = {
    "fails": lambda: OSError("down"),
    "leaks a GeneratorExit": GeneratorExit,
    "skips": lambda: Skip("a duplicate"),
    "rejects": lambda: Reject("not for us"),
    "waits": lambda: RetryLater(1),
    "skips in a group": lambda: ExceptionGroup("", [ExceptionGroup("", [Skip()]), Skip()]),
    "rejects in a group": lambda: ExceptionGroup("", [OSError(), Reject()]),
    "waits in a group": lambda: BaseExceptionGroup("", [RetryLater(2), Skip()]),
    "fails in a group": lambda: ExceptionGroup("", [OSError(), Skip()]),
}
_GOOD = {"well", "well, with a value", "skips", "skips in a group"}
_AGAIN = {"waits", "waits in a group"}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    what=st.lists(st.lists(st.sampled_from([*ENDS, *RAISES]), min_size=1, max_size=4), min_size=1, max_size=10),
    keys=st.integers(0, 3),
    attempts=st.integers(1, 3),
    on_asyncio=st.booleans(),
)
def test_each_record_ends_as_its_handler_says(what: list[list[str]], keys: int, attempts: int, on_asyncio: bool) -> None:
    """For each record a list of what its attempts do; the last one stands for all later ones, and then ends well."""

    async def scenario() -> None:
        some = world()
        some.produce(len(what), keys=keys)
        letters: list[int] = []
        tried = dict.fromkeys(range(len(what)), 0)

        async def handle(record: Record) -> Any:
            assert WHO.get() == "nobody"
            WHO.set("somebody")
            tried[record.offset] += 1
            said = what[record.offset]
            does = said[tried[record.offset] - 1] if tried[record.offset] <= len(said) else "well"
            if does in RAISES:
                raise RAISES[does]()
            await anyio.sleep(0.01)
            return ENDS[does]()

        async def write(record: Record, error: BaseException, attempts: int) -> None:
            assert not isinstance(error, (Skip, RetryLater))
            letters.append(record.offset)

        async with processed(some, handle, retry=Retry(attempts=attempts), on_failure=write) as run:
            await until(lambda: _settled(run) == len(what))
            await run.drain()
        expected = [_fate(said, attempts) for said in what]
        assert {offset for offset, (calls, _) in enumerate(expected) if tried[offset] != calls} == set()
        assert sorted(letters) == [offset for offset, (_, letter) in enumerate(expected) if letter]
        assert some.committed() == len(what)

    (run_virtual_asyncio if on_asyncio else run_virtual)(scenario)


def _fate(said: list[str], attempts: int) -> tuple[int, bool]:
    """Return how often the handler is called, and whether the record is a dead letter."""
    for attempt, does in enumerate([*said, "well"], 1):
        if does in _GOOD:
            return attempt, False
        if "rejects" in does or (does not in _AGAIN and attempt >= attempts):
            return attempt, True
    raise AssertionError("the last one ends well")
