"""Functions that a program hands over: those that would never run are refused, and what is no result is none."""

import ast
import functools
import importlib
import json
import operator
import pickle
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from decimal import Decimal
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, KafkaConsumer, ShareConsumer, scan
from kafka_async.adapters.dead_letters import DeadLetters
from kafka_async.adapters.workers.entry import RefusedProgram, find
from kafka_async.errors import DeserializationError
from kafka_async.functions import (
    check_handler,
    check_plain,
    check_work,
    finished,
    is_async,
    returned,
    takes_context,
    takes_three,
    why_never,
    why_uncallable,
)
from kafka_async.spark import add_lag_listener
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from kafka_async.sync import ShareConsumer as BlockingShareConsumer

from ..application.support import consumer_on, filled, read_values, virtual
from .house import files, name_of, nodes_of


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


@pytest.mark.parametrize("method", ["on_consume", "on_commit"])
def test_an_interceptor_that_cannot_be_called_is_refused(method: str) -> None:
    interceptor = type("Odd", (Interceptor,), {method: lambda self: None})()
    with pytest.raises(ValueError, match=rf"interceptors=.*{method}: it cannot be called with 1 argument"):
        KafkaConsumer("t", bootstrap_servers="localhost:1", interceptors=[interceptor])


class Both:
    """A deserializer with a method, and what may be handed over instead by mistake: its class."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
        return data


class OfTopicAndBytes:
    def deserialize(self, topic: str, data: bytes) -> bytes:
        return data


def _three(topic: str, headers: Any, data: bytes) -> bytes:
    return data


@functools.wraps(_three)
def _wrapping(*arguments: Any) -> bytes:
    return _three(*arguments)


DESERIALIZERS: list[Any] = [
    None, bytes.decode, json.loads, int, str, len, bool, Decimal, bytes, pickle.loads, functools.partial(int, base=10),
    functools.partial(struct.unpack, ">q"), functools.partial(_three, "t", ()), operator.methodcaller("decode"), _three, _wrapping,
    _coroutine, Both(), Both().deserialize, lambda data, *more: data, lambda data, /, upper=True: data, lambda *all_: all_,
    type("Called", (), {"__call__": lambda self, data: data})(), type("Made", (), {"__init__": lambda self, data: None}),
]  # fmt: skip


@pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer, BlockingConsumer, BlockingShareConsumer])
@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
def test_deserializers_that_can_be_called_are_taken(made: Any, name: str) -> None:
    for each in DESERIALIZERS:
        if each is not _coroutine or made in (KafkaConsumer, ShareConsumer):
            made("t", bootstrap_servers="localhost:1", group_id="g", **{name: each})


@pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer, BlockingConsumer, BlockingShareConsumer])
@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
@pytest.mark.parametrize(
    "odd",
    [
        lambda: b"",
        lambda topic, data: data,
        lambda topic, headers, data, more: data,
        lambda data, *, schema: data,
        functools.partial(_three, "t", (), b""),
        functools.partial(_three, "t"),
        OfTopicAndBytes(),
        Both,
    ],
)
def test_a_deserializer_that_no_record_can_be_given_to_is_refused(made: Any, name: str, odd: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"{name}=.*: it cannot be called with 1 argument \(.*expected a callable that takes bytes, or"
    ):
        made("t", bootstrap_servers="localhost:1", group_id="g", **{name: odd})


@pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer])
def test_a_trace_listener_that_cannot_be_called_is_refused(made: Any) -> None:
    taken: tuple[Any, ...] = (print, list[Any]().append, Method(), lambda event, more=None: None)
    for trace in taken:
        made("t", bootstrap_servers="localhost:1", group_id="g", trace=trace)
    for odd in (lambda: None, lambda event, more: None):
        with pytest.raises(ValueError, match=r"trace=.*: it cannot be called with 1 argument .*; expected a plain callable that"):
            made("t", bootstrap_servers="localhost:1", group_id="g", trace=odd)


@pytest.mark.parametrize("odd", [lambda scope: "token", type("Odd", (), {"token": lambda self, scope: "token"})()])
def test_a_source_of_tokens_that_wants_arguments_is_refused(odd: Any) -> None:
    options: Any = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": odd}
    with pytest.raises(ValueError, match=r"sasl_oauth_token_provider: expected .* a callable without arguments"):
        ConsumerConfig.of(**options)
    ConsumerConfig.of(**{**options, "sasl_oauth_token_provider": lambda scope="all": "token"})


def test_other_functions_that_cannot_be_called_are_refused_where_they_are_handed_over() -> None:
    producer: Any = type("Producer", (), {"send_and_wait": _coroutine})()
    DeadLetters(producer, lambda record: record.topic)
    for function in (lambda: "dead", _coroutine):
        with pytest.raises(TypeError, match=r"topic=.*expected the name of a topic or a function of a record"):
            DeadLetters(producer, function)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"progress=.*: it cannot be called with 1 argument"):
        scan("t", progress=lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(TypeError, match=r"report=.*: it cannot be called with 2 arguments"):
        add_lag_listener(None, lambda lag: None)  # type: ignore[arg-type, misc]


_ANNOTATED = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from somewhere import Context, Order

class Decoder:
    def deserialize(self, topic: "str | None", headers: Order, data: bytes) -> Order: ...

async def handle(order: Order, context: Context) -> Order: ...

def decode(data: bytes) -> Order: ...

async def main() -> Order: ...

async def demanding(order: Order) -> Order: ...
"""


@pytest.fixture
def annotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module whose functions are annotated with what is imported for type checkers only.

    Up to Python 3.13 such annotations are text. Since 3.14 they need not be, and evaluating one raises ``NameError``.
    """
    text = _ANNOTATED if sys.version_info >= (3, 14) else f"from __future__ import annotations\n{_ANNOTATED}"
    (tmp_path / "annotated_for_checkers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("annotated_for_checkers")
    del sys.modules["annotated_for_checkers"]


@pytest.mark.parametrize("made", [KafkaConsumer, ShareConsumer, BlockingConsumer, BlockingShareConsumer])
def test_annotations_that_only_type_checkers_understand_are_not_evaluated(made: Any, annotated: Any) -> None:
    made(group_id="g", key_deserializer=annotated.Decoder(), value_deserializer=annotated.decode)
    assert takes_three(annotated.Decoder().deserialize)
    assert takes_context(annotated.handle)
    check_handler(annotated.handle, "a handler")
    assert why_uncallable(annotated.demanding, 1) is None
    assert find("annotated_for_checkers:main") is annotated.main
    with pytest.raises(RefusedProgram, match=r"expected a function without arguments, got demanding\(order: '?Order'?\)"):
        find("annotated_for_checkers:demanding")


@pytest.mark.slow
def test_one_place_asks_for_signatures() -> None:
    """The one that does not evaluate annotations, whatever Python it is."""
    asking = {
        name_of(path)
        for path in files()
        for node in nodes_of(path)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "inspect.signature")
        or (isinstance(node, ast.ImportFrom) and node.module == "inspect" and "signature" in {each.name for each in node.names})
    }
    assert asking == {"functions.py"}


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
