"""What every test stands on: which decoder is loaded, and that a test leaves nothing behind."""

import gc
import logging
import os
import signal
import threading
import warnings
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kafka_async.records import IMPLEMENTATION

from . import hanging, tiers
from .again import Failures
from .clusters import SHARED, in_order

# A shared machine is slow at times, which proves nothing about an example; and CI runs the same examples each time.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=os.environ.get("CI") == "true"
)
settings.register_profile("long", settings.get_profile("tests"), max_examples=5000, derandomize=False)
settings.register_profile("few", settings.get_profile("tests"), max_examples=10)
settings.load_profile("tests")  # --hypothesis-profile=long replaces it: tests/README.md


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--apart", action="store_true", help="run the tests that take long and rarely fail, too")


def pytest_report_header() -> str:
    return f"kafka_async decoder: {IMPLEMENTATION}"


def pytest_configure(config: pytest.Config) -> None:
    """Tests are watched: which tier they are in is what they do (``tiers.py``).

    Ctrl-C and SIGHUP work in the programs that tests start, even if the tests run as a background job, for which shells turn
    them off.

    And Java compiles lightly. The programs that tests start keep what Python has compiled, as a user's do.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for line in tiers.MARKERS:
        config.addinivalue_line("markers", line)
    tiers.install()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup; a program that is started has no handler of ours
        signal.signal(signal.SIGHUP, lambda *_: None)
    # Spark's processes live for seconds, most of which they would spend on compiling their code well.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def _tier(item: pytest.Item) -> str:
    return tiers.tier_of(mark.name for mark in item.iter_markers())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the marker of its tier, before tests are chosen by it.

    A slow test without a tier may do no more than a fast one, but is left out of ``-m fast``.
    """
    for item in items:
        markers = [mark.name for mark in item.iter_markers()]
        try:
            tier = tiers.tier_of(markers)
        except ValueError as error:
            raise pytest.UsageError(f"{item.nodeid} {error}") from None
        if tier not in markers and not (tier == tiers.FAST and "slow" in markers):
            item.add_marker(tier)
        if "timeout" not in markers:
            item.add_marker(pytest.mark.timeout(tiers.SECONDS[tier]))
    left_out = [] if config.getoption("apart") else [item for item in items if item.get_closest_marker("apart")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = in_order([item for item in items if item not in left_out])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give workers the files in an order that saves clusters, if whole files are asked for (``--dist loadfile``)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from .workers import ByKind  # xdist is not needed to run a test

    return ByKind(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected becomes garbage before all is there: looking for garbage again and again finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Tests collect garbage, time and again: thousands of test items are none of it.

    The fixture ``_nothing_left_behind`` collects after each test. To look for garbage every few hundred objects within one, too,
    would take a tenth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


_HANGING = hanging.Watch()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Before pytest-timeout ends a test, what its consumers know is written down."""
    _HANGING.begin(settings.timeout)
    return (yield)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_cancel_timer() -> Generator[None, object, object]:
    _HANGING.end()
    return (yield)


def _watched(item: pytest.Item) -> AbstractContextManager[None]:
    tier = _tier(item)
    needed = tiers.tier_needed(getattr(item, "fixturenames", ()))
    if tiers.TIERS.index(needed) > tiers.TIERS.index(tier):
        pytest.fail(f"a test of the tier {tier!r} has a fixture of the tier {needed!r}: see tests/tiers.py")
    return tiers.WATCH.over(tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    SHARED.prepare(item)
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _watched(item):
        return (yield)


def pytest_sessionstart() -> None:
    """CI must not test the slow path without noticing: the compiled decoder is there unless the pure one was asked for."""
    expected = "python" if os.environ.get("KAFKA_ASYNC_PURE") == "1" else "cython"
    if os.environ.get("CI") == "true" and expected != IMPLEMENTATION:
        raise pytest.UsageError(f"the {IMPLEMENTATION} decoder is loaded, expected {expected}: did the extension fail to build?")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets the level of the package's log, and where it goes."""
    logger = logging.getLogger("kafka_async")
    before = (logger.propagate, logger.level, list(logger.handlers))
    yield
    logger.propagate, logger.level, logger.handlers = before[0], before[1], before[2]


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No thread of ours survives a test; unclosed sockets and consumers turn up as warnings, which are errors."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect(0)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("kafka_async")]
    for thread in ours:
        thread.join(10)  # one that has told its result may not have returned yet, on a busy machine
    left = [thread.name for thread in ours if thread.is_alive()]
    assert not left, f"threads left behind: {left}"
