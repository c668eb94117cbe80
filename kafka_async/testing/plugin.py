"""Fixtures for pytest, registered by an entry point: ``kafka_cluster``, ``kafka_options``, ``virtual_time``.

Decides: whether a test's cluster is simulated, or the real one of ``--kafka-bootstrap``. Owns: the cluster of a test. Must never do
anything for a test that does not ask for a fixture: this file imports little but pytest, and the cluster only at its first use.
"""

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from ..errors import KafkaError

if TYPE_CHECKING:
    from . import Cluster
    from .real import RealCluster

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kafka-bootstrap``, ``--kafka-option`` and ``--kafka-config``."""
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


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[Cluster | RealCluster]":
    """A Kafka cluster of one broker for one test: ``kafka_async.testing.Cluster``, or the real one of ``--kafka-bootstrap``.

    On real brokers, give topics and groups names of their own. A test that does what only the simulation can do is skipped there,
    and the reason names the method.
    """
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
    from ..config.sources import options_of_properties, properties_options

    path, pairs = config.getoption("--kafka-config"), config.getoption("--kafka-option")
    options = {} if path is None else properties_options(path)
    bad = next((pair for pair in pairs if "=" not in pair), None)
    if bad is not None:
        raise ValueError(f"--kafka-option {bad}: expected KEY=VALUE")
    options |= options_of_properties(dict(pair.split("=", 1) for pair in pairs))
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
    import asyncio

    from .clock import virtual_loop

    real = request.config.getoption("--kafka-bootstrap") is not None

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=None if real else virtual_loop) as runner:
            return runner.run(coroutine)

    return run
