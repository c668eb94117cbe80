"""Which handler a record goes to, what it is called with, and what becomes of records that fit nothing."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async import ConsumerRecord, Reject, Retry, RetryLater, Router, ShareConsumer, TopicPartition
from kafka_async.application.processing.redelivery import TOPIC
from kafka_async.errors import InvalidValue, NoRoute, ProcessingError
from kafka_async.testing import Cluster
from tests.application.support import consumer_on, virtual

from .world import GROUP, Record, World, processed, until, world


def record(topic: str, value: bytes | None = b"{}", headers: Sequence[tuple[str, bytes | None]] = ()) -> Record:
    return ConsumerRecord(topic, 0, 7, 1_000, 0, None, value, tuple(headers), None, -1, 1, 0)


def nothing(name: str) -> Any:
    async def handler(_: Any) -> None:
        raise AssertionError

    handler.__qualname__ = name
    return handler


@dataclass
class Order:
    id: int


class Refund(msgspec.Struct):
    id: int


# --- which ----------------------------------------------------------------------------------------------------------------------


def name_of(router: Router, record: Record) -> str | None:
    route = router.route_of(record)
    return None if route is None else route.name


def test_the_first_route_that_fits_counts() -> None:
    router = Router()
    router.on(topic="orders", header=("type", "created"))(nothing("created"))
    router.ignore(topic="orders", header=("type", b"\xff"))
    router.on(topic=re.compile("ord.*"))(nothing("orders"))
    router.on(topic=["a", "b"], header=("type", "created"))(nothing("a or b"))
    router.on(header=("type", "created"))(nothing("any"))
    router.check(decoded=False)
    created, other = [("type", b"created")], [("type", b"other")]
    assert name_of(router, record("orders", headers=created)) == "created"
    assert name_of(router, record("orders", headers=[*created, *other])) == "orders", "the last of several counts"
    assert name_of(router, record("orders", headers=[*other, *created])) == "created"
    assert name_of(router, record("orders", headers=[("type", b"\xff")])) == "ignore"
    assert name_of(router, record("orders", headers=[("type", None)])) == "orders"
    assert name_of(router, record("order")) == "orders"
    assert name_of(router, record("reorder")) is None, "a pattern matches the whole name"
    assert name_of(router, record("b", headers=created)) == "a or b"
    assert name_of(router, record("b")) is None
    assert name_of(router, record("c", headers=created)) == "any"


def test_the_default_comes_last_wherever_it_stands() -> None:
    router = Router()
    assert name_of(router, record("a")) is None
    router.default(nothing("rest"))
    router.on(topic="a")(nothing("a"))
    assert [name_of(router, record(topic)) for topic in ("a", "b")] == ["a", "rest"]
    with pytest.raises(ValueError, match="default: rest is the default already"):
        router.default(nothing("more"))


def test_a_retry_topic_belongs_to_its_first_topic() -> None:
    router = Router()
    router.on(topic="orders")(nothing("orders"))
    assert name_of(router, record("orders.billing.retry.60", headers=[(TOPIC, b"x"), (TOPIC, b"orders")])) == "orders"
    assert name_of(router, record("orders.billing.retry.60")) is None


TOPICS = st.sampled_from(["a", "b", "c"])
HEADERS = st.sampled_from([None, ("h", "1"), ("h", "2"), ("i", "1")])


@pytest.mark.slow
@given(
    routes=st.lists(st.tuples(st.none() | st.frozensets(TOPICS, min_size=1), HEADERS), max_size=6),
    topic=TOPICS,
    headers=st.lists(st.tuples(st.sampled_from("hi"), st.sampled_from([b"1", b"2", None])), max_size=3),
)
def test_routes_are_read_from_top_to_bottom(routes: Any, topic: str, headers: list[tuple[str, bytes | None]]) -> None:
    router = Router()
    for number, (topics, header) in enumerate(routes):
        router.on(topic=topics, header=header)(nothing(str(number)))
    found = name_of(router, record(topic, headers=headers))
    last = dict(headers)
    fits = [
        str(number)
        for number, (topics, header) in enumerate(routes)
        if (topics is None or topic in topics) and (header is None or last.get(header[0]) == header[1].encode())
    ]
    assert found == next(iter(fits), None)


@pytest.mark.slow
@given(st.lists(st.tuples(st.none() | st.frozensets(TOPICS, min_size=1), HEADERS), min_size=1, max_size=5))
def test_a_route_is_refused_if_and_only_if_those_above_take_all_its_records(routes: Any) -> None:
    router = Router()
    for number, (topics, header) in enumerate(routes):
        router.on(topic=topics, header=header)(nothing(str(number)))
    covered = False
    for place, (topics, header) in enumerate(routes):
        taken = [above[0] for above in routes[:place] if above[1] in (None, header)]
        covered |= None in taken or (topics is not None and topics <= frozenset().union(*taken))
    if covered:
        with pytest.raises(ValueError, match="the route of"):
            router.check(decoded=False)
    else:
        router.check(decoded=False)


# --- what is refused ------------------------------------------------------------------------------------------------------------


def plain(_: Any) -> None:
    raise AssertionError


def twice(router: Router) -> None:
    router.on(topic="a")(nothing("one"))
    router.on(topic=["a"])(nothing("two"))


def hidden(router: Router) -> None:
    router.on(topic=re.compile("a.*"))(nothing("wide"))
    router.on(topic=["ab", "ac"], header=("h", "1"))(nothing("narrow"))


def hidden_together(router: Router) -> None:
    router.on(topic="a")(nothing("one"))
    router.on(topic=re.compile("b+"), header=("h", "1"))(nothing("two"))
    router.on(topic=["a", "b"], header=("h", "1"))(nothing("both"))


def hidden_default(router: Router) -> None:
    router.default(nothing("rest"))
    router.on(topic="a")(nothing("one"))
    router.on()(nothing("every"))


def two_kinds(router: Router) -> None:
    router.on(topic="a")(nothing("one"))
    router.on(topic="b")(plain)


@pytest.mark.parametrize(
    ("declare", "error", "text"),
    [
        (lambda router: None, ValueError, "the router has no handler"),
        (lambda router: router.ignore(topic="a"), ValueError, "the router has no handler"),
        (twice, ValueError, "the route of two is ambiguous with that of one: both fit topic a"),
        (
            hidden,
            ValueError,
            r"the route of narrow never gets a record, .* wide: both fit topic ab, ac with the header",
        ),
        (
            hidden_together,
            ValueError,
            "both never gets a record, .* those of one, two: together they fit topic a, b with",
        ),
        (hidden_default, ValueError, "the route of rest never gets a record, .* that of every: both fit any topic"),
        (two_kinds, TypeError, "plain is a plain function, and other handlers of the router are async def"),
    ],
)
def test_a_bad_table_is_refused_before_anything_runs(declare: Any, error: type[Exception], text: str) -> None:
    router = Router()
    declare(router)
    with pytest.raises(error, match=text):
        router.check(decoded=False)


def generator(_: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("declare", "error", "text"),
    [
        (lambda router: router.on(topic=3), TypeError, "topic=3: expected a name"),
        (lambda router: router.on(topic=b"a")(plain), TypeError, "topic=b'a'"),
        (lambda router: router.on(topic=re.compile(b"a"))(plain), TypeError, "topic=re.compile"),
        (lambda router: router.on(topic=[])(plain), ValueError, "topic is empty"),
        (lambda router: router.on(topic="")(plain), TypeError, "topic=''"),
        (lambda router: router.on(header="h")(plain), TypeError, "header='h': expected a name and a value"),
        (lambda router: router.on(header=("h", 1))(plain), TypeError, "header="),
        (lambda router: router.on(concurrency=0), ValueError, "concurrency=0"),
        (lambda router: router.on(concurrency=True), TypeError, "concurrency=True"),
        (lambda router: router.on(retry=3), TypeError, "retry=3: expected a Retry"),
        (lambda router: router.on(value=object)(plain), TypeError, "value=<class 'object'>: expected a pydantic model"),
        (lambda router: router.on()(generator), TypeError, "generator function"),
        (lambda router: router.on()(lambda: None), TypeError, "it cannot be called with 1 argument"),
        (lambda router: router.default(lambda record, context, more: None), TypeError, "it cannot be called with 2 arguments"),
        (lambda router: router.default(Order), TypeError, "it is a class"),
        (lambda router: router.ignore(), TypeError, r"ignore\(\) needs a topic or a header"),
    ],
)
def test_bad_arguments_are_refused_where_they_stand(declare: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        declare(Router())


async def test_what_process_cannot_combine_is_refused() -> None:
    router = Router()
    router.on(value=Order)(nothing("orders"))
    some = world()
    async with some.consumer() as consumer:
        with pytest.raises(ValueError, match="batch=5: a router takes records one by one"):
            consumer.processing(router, batch=5)
        with pytest.raises(TypeError, match=r"handler=3: expected a function of a record, or a Router"):
            consumer.processing(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="the router has no handler"):
            consumer.processing(Router())
    async with some.consumer(value_deserializer=bytes.decode) as consumer:
        with pytest.raises(ValueError, match="the route of orders has value=, which decodes bytes: leave value_deserializer out"):
            consumer.processing(router)


# --- in process -----------------------------------------------------------------------------------------------------------------


def values(some: World, *found: bytes | None, keys: Sequence[bytes | None] | None = None) -> None:
    some.cluster.log(some.partitions[0]).append(list(found), keys=keys)
    some.cluster.changed()


def put(some: World, value: bytes, key: bytes | None = None, kind: bytes = b"") -> None:
    some.cluster.log(some.partitions[0]).append([value], keys=[key], headers=((b"kind", kind),))
    some.cluster.changed()


@virtual
async def test_handlers_get_values_and_find_their_records() -> None:
    some, router, seen = world(), Router(), []

    @router.on(topic="t", value=Order | None)
    async def orders(order: Order | None, context: Any) -> None:
        seen.append((order, context.record.offset, context.attempt, context.record.value))

    values(some, b'{"id": 1}', None, b'{"id": 3}')
    async with processed(some, router):
        await until(lambda: some.committed() == 3 or len(seen) == 3)
    assert sorted(seen, key=lambda each: each[1]) == [
        (Order(1), 0, 1, b'{"id": 1}'),
        (None, 1, 1, None),
        (Order(3), 2, 1, b'{"id": 3}'),
    ]
    assert some.committed() == 3


@virtual
async def test_what_fits_nothing_goes_to_on_failure_at_once_with_its_bytes() -> None:
    some, router, failed = world(), Router(), []

    @router.on(header=("never", "there"))
    async def never(_: Record) -> None:
        raise AssertionError

    async def keep(record: Record, error: BaseException, attempts: int) -> None:
        failed.append((record.value, type(error), error.record is record, attempts))  # type: ignore[attr-defined]

    values(some, b"a")
    async with processed(some, router, on_failure=keep, retry=Retry(attempts=5)):
        await until(lambda: len(failed) == 1)
    router.on(value=Refund)(nothing("refund"))
    values(some, b"no json", None)
    async with processed(some, router, on_failure=keep, retry=Retry(attempts=5)):
        await until(lambda: len(failed) == 3)
    assert failed[0] == (b"a", NoRoute, True, 1)
    assert sorted(failed[1:], key=str) == [(None, InvalidValue, True, 1), (b"no json", InvalidValue, True, 1)]
    assert some.committed() == 3


@virtual
async def test_without_on_failure_it_stops_and_says_why() -> None:
    some, router = world(), Router()
    router.on(topic="t", value=Refund)(nothing("refund"))
    values(some, b'{"id": "x"}')
    with pytest.raises(ProcessingError, match="t-0 at offset 0") as caught:
        async with processed(some, router) as run:
            await run.wait()
    cause = caught.value.__cause__
    assert isinstance(cause, InvalidValue)
    assert re.match(r"t-0 at offset 0: the value is no Refund: .*Expected `int`, got `str`", str(cause))
    assert isinstance(cause.__cause__, msgspec.ValidationError)
    assert some.committed() in (None, 0)


@virtual
async def test_a_route_has_retries_of_its_own() -> None:
    some, router, attempts = world(), Router(), dict[bytes, int]()

    async def failing(record: Record, context: Any) -> None:
        attempts[record.value] = context.attempt
        raise Reject if record.value == b"reject" else OSError

    router.on(header=("kind", "own"), retry=Retry(attempts=4, delay=1))(failing)
    router.default(failing)
    put(some, b"own", kind=b"own")
    values(some, b"other", b"reject")
    async with processed(some, router, retry=Retry(attempts=2), on_failure="skip"):
        await until(lambda: some.committed() == 3 or attempts.get(b"own") == 4)
    assert attempts == {b"own": 4, b"other": 2, b"reject": 1}
    assert some.committed() == 3


@virtual
async def test_order_by_key_holds_across_routes() -> None:
    some, router, seen = world(), Router(), dict[bytes | None, list[bytes]]()

    def handler(seconds: float) -> Any:
        async def handle(record: Record) -> None:
            await anyio.sleep(seconds)
            seen.setdefault(record.key, []).append(record.value)

        return handle

    router.on(header=("kind", "slow"), concurrency=1)(handler(1))
    router.default(handler(0.01))
    for number in range(60):
        put(some, b"%d" % number, b"k%d" % (number % 7), b"slow" if number % 3 == 0 else b"fast")
    async with processed(some, router):
        await until(lambda: sum(map(len, seen.values())) == 60)
    assert seen == {b"k%d" % key: [b"%d" % number for number in range(60) if number % 7 == key] for key in range(7)}
    assert some.committed() == 60


@pytest.mark.slow
@virtual
async def test_a_slow_route_leaves_the_workers_to_the_others() -> None:
    some, router = world(), Router()
    running, peak, fast = 0, 0, list[int]()

    @router.on(header=("kind", "slow"), concurrency=3)
    async def slow(_: Record) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        try:
            await anyio.sleep(5)
        finally:
            running -= 1

    @router.default
    async def rest(record: Record) -> None:
        fast.append(record.offset)

    for number in range(60):
        put(some, b"x", kind=b"slow" if number % 2 == 0 else b"fast")
    began = anyio.current_time()
    async with processed(some, router, concurrency=10) as run:
        await until(lambda: len(fast) == 30, 4)
        assert anyio.current_time() - began < 5, "before the first slow one ended"
        assert run.statistics().running == 3
        await until(lambda: run.statistics().running == 0)
    assert peak == 3
    assert some.committed() == 60


@virtual
async def test_what_waits_for_a_route_leaves_with_its_partition_and_comes_back() -> None:
    some, router, seen = world(2), Router(), list[tuple[int, int]]()

    @router.on(concurrency=1)
    async def one(record: Record) -> None:
        await anyio.sleep(1)
        seen.append((record.partition, record.offset))

    for partition in (0, 1):
        some.produce(10, partition=partition)
    async with some.consumer() as consumer, consumer.processing(router) as run:
        await until(lambda: len(seen) == 3)
        paused = TopicPartition("t", 0)
        consumer.pause(paused)
        await until(lambda: len([1 for partition, _ in seen if partition == 1]) == 10, 60)
        before = len(seen)
        consumer.resume(paused)
        await until(lambda: len(set(seen)) == 20, 60)
        assert len(seen) == 20
        assert before < 20
        consumer.seek(TopicPartition("t", 1), 5)
        await until(lambda: len(seen) == 25, 60)
        assert run.statistics().running == 0
    assert (some.committed(0), some.committed(1)) == (10, 10)


@virtual
async def test_a_stop_does_not_wait_for_what_waits_for_a_route() -> None:
    some, router, ended = world(), Router(), list[int]()

    @router.on(concurrency=1)
    async def one(record: Record) -> None:
        await anyio.sleep(5)
        ended.append(record.offset)

    some.produce(30)
    began = anyio.current_time()
    async with processed(some, router):
        await until(lambda: len(ended) == 1)
    assert anyio.current_time() - began < 11
    assert ended == [0, 1], "the one that ran was drained"
    assert some.committed() == 2


@virtual
async def test_retry_later_and_limits() -> None:
    some, router, seen = world(), Router(), list[tuple[int, int]]()

    @router.on(concurrency=2)
    async def one(record: Record, context: Any) -> None:
        await anyio.sleep(0.1)
        seen.append((record.offset, context.attempt))
        if context.attempt == 1 and record.offset % 2:
            raise RetryLater(3)

    some.produce(10)
    async with processed(some, router):
        await until(lambda: len(seen) == 15)
    assert sorted(seen) == sorted([*((n, 1) for n in range(10)), *((n, 2) for n in range(1, 10, 2))])
    assert some.committed() == 10


async def test_plain_handlers_run_on_threads() -> None:
    some, router, seen = world(), Router(), set[tuple[int, bool]]()
    running, peak, lock = 0, 0, threading.Lock()

    @router.on(topic="t", value=int, concurrency=2)
    def count(value: int, context: Any) -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        threading.Event().wait(0.001)
        with lock:
            running -= 1
            seen.add((context.record.offset - value, threading.current_thread() is threading.main_thread()))

    some.produce(200)
    async with processed(some, router, concurrency=8) as run:
        await until(lambda: run.statistics().attempts == 200)
    assert seen == {(0, False)}
    assert peak <= 2


# --- topics that are not read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "warned"),
    [
        (["t"], "typo, u"),
        (["t", "u"], "typo"),
        (["t", "u.billing.retry.60"], "typo"),
        (re.compile("[tu].*"), None),
        (re.compile("[tu]$"), "typo"),
        (None, None),
    ],
    ids=str,
)
@virtual
async def test_a_route_for_a_topic_that_is_not_read_is_said_once(
    topics: Any, warned: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    some, router = world(), Router()
    for topic in ("u", "u.billing.retry.60"):
        some.cluster.create_topic(topic, 1)
    router.on(topic="t")(nothing("t"))
    router.on(topic=["u", "typo"], header=("type", "created"))(nothing("u"))
    router.on(topic=re.compile("later.*"))(nothing("later"))
    router.ignore(topic="typo", header=("type", "other"))
    consumer = consumer_on(some.cluster, group_id=GROUP)
    if topics is not None:
        consumer.subscribe(**({"pattern": topics} if isinstance(topics, re.Pattern) else {"topics": topics}))
    async with consumer, consumer.processing(router):
        await anyio.sleep(1)
    said = [entry.message for entry in caplog.records if "does not read" in entry.message]
    assert said == ([] if warned is None else [said[0]])
    assert warned is None or said[0].endswith(f"routes are for topics that this consumer does not read: {warned}")


@virtual
async def test_a_share_consumer_says_so_too(caplog: pytest.LogCaptureFixture) -> None:
    cluster, router = Cluster(), Router()
    cluster.topic("jobs")
    router.on(topic=["jobs", "typo"])(nothing("jobs"))
    async with ShareConsumer("jobs", group_id="g", **cluster.options()) as consumer, consumer.processing(router):
        await anyio.sleep(1)
    assert caplog.text.count("routes are for topics that this consumer does not read: typo") == 1
