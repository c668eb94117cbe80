"""Fixtures for pytest, registered by an entry point: ``kafka_cluster``, ``kafka_options``, ``virtual_time`` and others.

``kafka_module_cluster`` and ``kafka_session_cluster`` are clusters for a module and for the whole run. ``kafka_name`` makes names
for the tests that share them. The marker ``virtual_time`` runs an async test under virtual time.

A test that asks for no fixture pays for nothing: this file imports little but pytest, and the cluster only at its first use.
"""

import contextlib
import functools
import inspect
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from ..errors import KafkaError

if TYPE_CHECKING:
    from . import Cluster
    from .real import RealCluster

T = TypeVar("T")
_LIMIT: Final = "kafka_virtual_time_limit"
_DAY: Final = 86_400.0
"""Seconds of virtual time in which a test has to end, unless it says otherwise: one that waits for something that never comes would
run for ever, since the consumer's own timers let time pass."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kafka-bootstrap``, ``--kafka-option`` and ``--kafka-config``, and a limit of virtual time to the ini file."""
    group = parser.getgroup("kafka-async")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="run tests with the fixtures kafka_cluster and kafka_options against these brokers instead of simulated ones",
    )
    group.addoption(
        "--kafka-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of Kafka's clients for --kafka-bootstrap, such as security.protocol=SASL_SSL; can be given several times",
    )
    group.addoption(
        "--kafka-config",
        metavar="FILE",
        help="a properties file with such options, as Kafka's own tools take with --command-config",
    )
    parser.addini(
        _LIMIT,
        "seconds of virtual time that a test may take, 86400 unless set, or none; @pytest.mark.virtual_time(limit=...) is for one "
        "test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``virtual_time``, and check the limit in the ini file."""
    _limit_of_all(config)
    config.addinivalue_line(
        "markers",
        "virtual_time(limit=86400): run this async test in an event loop whose time jumps when nothing is ready, up to so many "
        "seconds, or None (kafka_async.testing)",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run an async test with the marker: give pytest a plain function in its place, which it calls as any other.

    A plugin for async tests has put one of its own there by now. Under virtual time that one is passed by, and nothing else: what
    decorates the test is part of it. On real brokers the plugin keeps the test, with its event loop and fixtures.
    """
    if pyfuncitem.get_closest_marker("virtual_time") is None or "anyio_backend" in pyfuncitem.fixturenames:
        return (yield)
    of_hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)  # calls the test again and again
    holder, name = (pyfuncitem, "obj") if of_hypothesis is None else (of_hypothesis, "inner_test")
    given = getattr(holder, name)
    test = given if _is_real(pyfuncitem.config) else inspect.unwrap(given, stop=inspect.iscoroutinefunction)
    if not inspect.iscoroutinefunction(test):
        return (yield)
    run = _runner(pyfuncitem)

    @functools.wraps(test)
    def plain(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    setattr(holder, name, plain)
    try:
        return (yield)
    finally:
        setattr(holder, name, given)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster | RealCluster]":
    """A Kafka cluster of one broker for one test: ``kafka_async.testing.Cluster``, or the real one of ``--kafka-bootstrap``.

    On real brokers, give topics and groups names of their own, such as those of ``kafka_name``. A test that does what only the
    simulation can do is skipped there, and the reason names the method.
    """
    yield from _cluster(request)


@pytest.fixture(scope="module")
def kafka_module_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster | RealCluster]":
    """The same for all tests of a module. Its date goes on from one event loop to the next."""
    yield from _cluster(request)


@pytest.fixture(scope="session")
def kafka_session_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster | RealCluster]":
    """The same for all tests."""
    yield from _cluster(request)


@pytest.fixture
def kafka_name() -> Callable[[str], str]:
    """A function that makes a name which no other test uses, for a topic or a group: ``kafka_name("orders")``."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:12]}"


def _cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster | RealCluster]":
    bootstrap = request.config.getoption("--kafka-bootstrap")
    if bootstrap is None:
        from . import Cluster

        with Cluster() as cluster:
            yield cluster
        return
    from .real import RealCluster

    wrong = None
    with contextlib.ExitStack() as stack:
        try:
            real = stack.enter_context(RealCluster(bootstrap, unable=pytest.skip, config=_client_options(request.config)))
            real.connect()
        except (OSError, TypeError, ValueError, KafkaError) as error:
            wrong = f"--kafka-bootstrap {bootstrap!r}: {error}"
        if wrong is not None:
            # The command line is wrong, not the test: tracebacks, and errors that led to this one, would only hide the sentence.
            pytest.fail(wrong, pytrace=False)
        yield real


def _client_options(config: pytest.Config) -> dict[str, Any]:
    """Return the consumer's options from the command line, which override those of the file.

    Raises ``OSError``, ``TypeError``, ``ValueError`` or ``KafkaError`` if they cannot be read, or mean nothing.
    """
    from ..config.consumer_config import option_texts
    from ..config.sources import options_of_properties, properties_options
    from ..config.texts import option_name

    path, pairs = config.getoption("--kafka-config"), config.getoption("--kafka-option")
    bad = next((pair for pair in pairs if "=" not in pair), None)
    if bad is not None:
        raise ValueError(f"--kafka-option {bad}: expected KEY=VALUE")
    typed = dict(pair.split("=", 1) for pair in pairs)
    # Without TLS and SASL their options are left out; but here it may be the file that turns them on.
    elsewhere = {} if path is None or "security_protocol" in map(option_name, typed) else {"security_protocol": "SASL_SSL"}
    options = options_of_properties(typed, option_texts(), given=elsewhere)
    options = options if path is None else {**properties_options(path, option_texts(), options), **options}
    return {name: value for name, value in options.items() if name != "bootstrap_servers"}


@pytest.fixture
def kafka_options(kafka_cluster: "Cluster | RealCluster") -> dict[str, Any]:
    """Options with which a ``KafkaConsumer`` finds ``kafka_cluster``."""
    return dict(kafka_cluster.options())


@pytest.fixture
def virtual_time(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, T]], T]:
    """A function that runs a coroutine to its end in an event loop of its own, whose time jumps when nothing is ready.

    With ``--kafka-bootstrap`` the loop's time is real: brokers do not jump.
    """
    return _runner(request.node)


def _runner(item: pytest.Item) -> Callable[[Coroutine[Any, Any, T]], T]:
    import asyncio

    from .clock import virtual_loop

    loop_factory = None if _is_real(item.config) else functools.partial(virtual_loop, _limit(item))

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(coroutine)

    return run


def _limit(item: pytest.Item) -> float | None:
    """Return how many seconds of virtual time a test may take; ``None``: as many as it likes."""
    marker = item.get_closest_marker("virtual_time")
    if marker is None or not (marker.args or marker.kwargs):
        return _limit_of_all(item.config)
    given = [*marker.args, *marker.kwargs.values()]
    if len(given) == 1 and marker.kwargs.keys() <= {"limit"}:
        limit = given[0]
        if limit is None or (isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0):
            return limit
    shown = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
    pytest.fail(f"@pytest.mark.virtual_time({shown}): expected limit=, a number of seconds above 0 or None", pytrace=False)


def _limit_of_all(config: pytest.Config) -> float | None:
    """Return the limit in the ini file. Raises ``pytest.UsageError`` if it is none."""
    text = str(config.getini(_LIMIT)).strip()
    if not text:
        return _DAY
    if text.lower() == "none":
        return None
    with contextlib.suppress(ValueError):
        if (limit := float(text)) > 0:
            return limit
    raise pytest.UsageError(f"{_LIMIT} = {text}: expected a number of seconds above 0, or none")


def _is_real(config: pytest.Config) -> bool:
    """Whether tests run on real brokers."""
    return config.getoption("--kafka-bootstrap") is not None
