"""What every test stands on: which decoder is loaded, and that a test leaves nothing behind."""

import gc
import os
import signal
import threading
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafka_async.records import IMPLEMENTATION

# A shared machine is slow at times, which says nothing about an example; and CI runs the same examples each time.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=os.environ.get("CI") == "true"
)
settings.load_profile("tests")


def pytest_report_header() -> str:
    return f"kafka_async decoder: {IMPLEMENTATION}"


def pytest_configure() -> None:
    """Ctrl-C works in the programs that tests start, even where the tests run as a background job, for which shells turn it off.

    And Java compiles lightly.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Spark's processes live for seconds, most of which they would spend on compiling their code well.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_sessionstart() -> None:
    """CI must not test the slow path without noticing: the compiled decoder is there unless the pure one was asked for."""
    expected = "python" if os.environ.get("KAFKA_ASYNC_PURE") == "1" else "cython"
    if os.environ.get("CI") == "true" and expected != IMPLEMENTATION:
        raise pytest.UsageError(f"the {IMPLEMENTATION} decoder is loaded, expected {expected}: did the extension fail to build?")


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No thread of ours survives a test; unclosed sockets and consumers turn up as warnings, which are errors."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect(0)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka_async")]
    assert not left, f"threads left behind: {left}"
