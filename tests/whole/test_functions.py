"""Functions that a program hands over: those that would never run are refused, and what is no result is none."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from multiprocessing.pool import ThreadPool
from threading import Event
from typing import Any

import pytest

from kafka_async import ConsumerRebalanceListener, KafkaConsumer
from kafka_async.errors import DeserializationError
from kafka_async.functions import check_plain, check_work, finished, is_async, returned, why_never

from ..application.support import consumer_on, filled, read_values, virtual


def _generator(*arguments: Any) -> Iterator[None]:
    yield


async def _async_generator(*arguments: Any) -> AsyncIterator[None]:
    yield


async def _coroutine(*arguments: Any) -> None: ...


@functools.wraps(_generator)
def _driving(*arguments: Any) -> None:
    for _ in _generator(*arguments):
        pass


@pytest.mark.parametrize("function", [print, [].append, _coroutine, functools.partial(_coroutine, 1), _driving, lambda: None, int])
def test_nothing_is_said_against_functions_that_run(function: Callable[..., Any]) -> None:
    assert why_never(function) is None


def test_what_is_checked_depends_on_what_the_function_is_for() -> None:
    check_work(_coroutine, "handler", "a function", 1)
    check_plain(int, "order", "a function", 1)
    assert is_async(functools.partial(_coroutine, 1))
    for check, function in ((check_plain, _coroutine), (check_work, int), (check_work, 5), (check_plain, _generator)):
        with pytest.raises(TypeError, match=r"name=.*expected a function"):
            check(function, "name", "a function", 1)


class Method:
    def __call__(self, record: Any, more: Any = None) -> None: ...


def _decorated() -> Callable[..., Any]:
    @functools.wraps(_coroutine)
    def function(record: Any) -> None: ...

    return function


@pytest.mark.parametrize("function", [print, max, [].append, Method(), _driving, _decorated(), lambda *all_: None])
def test_functions_that_can_be_called_are_taken(function: Callable[..., Any]) -> None:
    check_work(function, "handler", "a function of a record", 1)


@pytest.mark.parametrize(("function", "count"), [(_decorated(), 2), (Method(), 3), (lambda *, record: None, 1), (lambda: None, 1)])
def test_functions_that_no_call_can_reach_are_refused(function: Callable[..., Any], count: int) -> None:
    with pytest.raises(TypeError, match=r"handler=.*: it cannot be called with .*; expected a function of a record"):
        check_work(function, "handler", "a function of a record", count)


@pytest.mark.parametrize("result", [None, 0, "", [_coroutine], {"a": 1}, object(), map(str, [1]), OSError()])
def test_a_result_is_a_result(result: Any) -> None:
    assert returned(result, "it") is result


@pytest.mark.parametrize("made", [_generator, _async_generator, _coroutine, Future, lambda: _coroutine])
def test_what_has_yet_to_be_done_is_no_result(made: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"it returned .*, so its work is not done"):
        returned(made(), "it")


class Anything:
    """Has every attribute that it is asked for, as a mock has."""

    def __getattr__(self, name: str) -> Any:
        return self


def _waited_for() -> Future[int]:
    future = Future[int]()
    future.set_result(1)
    return future


@pytest.mark.parametrize(
    "result", [None, 0, [1, [_coroutine]], {"a": 1}, (_waited_for(),), Anything(), {b"x"}, range(3), OSError()]
)
def test_work_is_finished_if_what_it_returns_holds_none(result: Any) -> None:
    assert finished(result, "it") is result


@pytest.mark.parametrize(
    "made", [lambda: map(print, [1]), lambda: [_waited_for(), Future()], lambda: {1: _coroutine()}, _generator]
)
def test_work_is_not_finished_while_what_it_returns_holds_some(made: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"it returned .*, so its work is not done"):
        finished(made(), "it")


def test_what_a_pool_has_taken_is_not_done() -> None:
    ended = Event()
    with ThreadPool(1) as pool:
        taken = pool.apply_async(ended.wait)
        for result in (taken, [taken]):
            with pytest.raises(TypeError, match="ApplyResult of a pool without waiting for its result, so its work is not done"):
                finished(result, "it")
        ended.set()
        assert taken.get()
        assert finished([taken], "it") == [taken]


# --- where functions are handed over -------------------------------------------------------------------------------------------


class Interceptor:
    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> Any:
        return None


@pytest.mark.parametrize("method", ["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"])
@pytest.mark.parametrize("odd", [_generator, _async_generator])
def test_a_listener_that_would_never_run_is_refused(method: str, odd: Any) -> None:
    consumer = KafkaConsumer(bootstrap_servers="localhost:1", group_id="g")
    listener = type("Listener", (ConsumerRebalanceListener,), {method: odd})()
    with pytest.raises(TypeError, match=rf"listener\.{method}=.*contains yield"):
        consumer.subscribe(["t"], listener=listener)


@pytest.mark.parametrize("method", ["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"])
def test_a_listener_that_cannot_be_told_of_partitions_is_refused(method: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers="localhost:1", group_id="g")
    listener = type("Listener", (ConsumerRebalanceListener,), {method: lambda self: None})()
    with pytest.raises(TypeError, match=rf"listener\.{method}=.*it cannot be called with 1 argument"):
        consumer.subscribe(["t"], listener=listener)


@pytest.mark.parametrize("method", ["on_consume", "on_commit"])
@pytest.mark.parametrize("odd", [_generator, _async_generator])
def test_an_interceptor_that_would_never_run_is_refused(method: str, odd: Any) -> None:
    interceptor = type("Odd", (Interceptor,), {method: odd})()
    with pytest.raises(ValueError, match=rf"interceptors=.*{method}: it is a generator function"):
        KafkaConsumer("t", bootstrap_servers="localhost:1", interceptors=[interceptor])


@pytest.mark.parametrize("odd", [_generator, _async_generator, _coroutine])
def test_a_trace_listener_that_would_never_run_is_refused(odd: Any) -> None:
    with pytest.raises(ValueError, match=r"trace=.*expected a plain callable"):
        KafkaConsumer("t", bootstrap_servers="localhost:1", trace=odd)


@virtual
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_listener_that_returned_no_result_is_an_error_of_the_read(asynchronous: bool) -> None:
    cluster, _ = filled()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> Any:
            return _nested() if asynchronous else _generator()

    async def _nested() -> Any:
        return _coroutine()

    async with consumer_on(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=Listener())
        with pytest.raises(TypeError, match="the rebalance listener returned"):
            await read_values(consumer, 1)


@virtual
async def test_a_deserializer_that_returned_a_coroutine_has_failed() -> None:
    cluster, _ = filled(3)

    async def deserialize(data: bytes) -> Any:
        return _coroutine()

    async with consumer_on(cluster, "t", value_deserializer=deserialize) as consumer:
        with pytest.raises(DeserializationError, match="returned the coroutine _coroutine"):
            await read_values(consumer, 1)


@virtual
async def test_an_interceptor_that_returned_a_coroutine_has_failed() -> None:
    cluster, _ = filled(3)

    class Nested(Interceptor):
        async def on_commit(self, offsets: Any) -> Any:
            return _coroutine()

    async with consumer_on(cluster, "t", group_id="g", interceptors=[Nested()], enable_auto_commit=False) as consumer:
        await read_values(consumer, 1)
        with pytest.raises(TypeError, match=r"on_commit\(\) returned the coroutine"):
            await consumer.commit()
