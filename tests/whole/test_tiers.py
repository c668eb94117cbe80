"""The watch over what a test does: it finds processes, other programs and Spark in a tier that must not have them."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ..tiers import BROKERS, FAST, SPARK, WATCH, Watch, tier_needed, tier_of

JAVA = ("java", ["java", "org.apache.spark.deploy.SparkSubmit"], None, None)


@contextmanager
def a_failing_test(complaint: str) -> Iterator[None]:
    with pytest.raises(pytest.fail.Exception, match=complaint):
        yield


def test_a_test_without_a_marker_is_fast() -> None:
    assert tier_of(["slow", "timeout"]) == FAST
    assert tier_of(iter(["slow", "brokers"])) == BROKERS


def test_a_test_is_in_one_tier() -> None:
    with pytest.raises(ValueError, match="is marked brokers and spark"):
        tier_of(["brokers", "spark"])


def test_a_fixture_that_starts_something_needs_its_tier() -> None:
    assert tier_needed(["tmp_path"]) == FAST
    assert tier_needed(["kafka44", "real_brokers"]) == BROKERS
    assert tier_needed(["kafka44", "real_brokers", "spark"]) == SPARK


@pytest.mark.parametrize("event", ["subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"])
def test_a_fast_test_starts_no_process(event: str) -> None:
    watch = Watch()
    with a_failing_test("a test of the tier 'fast' starts a process"), watch.over(FAST):
        watch.audit(event, ("java", ["java", "-version"], None, None))


def test_only_a_test_of_spark_starts_spark() -> None:
    watch = Watch()
    with a_failing_test("starts Spark"), watch.over(BROKERS):
        watch.audit("subprocess.Popen", JAVA)
    with watch.over(SPARK):
        watch.audit("subprocess.Popen", JAVA)


def test_a_fast_test_connects_to_sockets_of_its_own_process() -> None:
    watch = Watch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with watch.over(FAST):
            watch.audit("socket.connect", (server, address))
    with watch.over(FAST):
        watch.audit("socket.connect", (server, address))  # nobody is there any more, which costs nothing


@pytest.mark.brokers
@pytest.mark.skipif(sys.platform != "linux", reason="who listens is read from Linux's files")
def test_a_fast_test_connects_to_no_other_program() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    watch = Watch()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:  # noqa: S603  # our own program
        assert other.stdin is not None
        assert other.stdout is not None
        address = ("127.0.0.1", int(other.stdout.readline()))
        with a_failing_test("connects to another program, at 127.0.0.1:"), watch.over(FAST):
            watch.audit("socket.connect", (None, address))
        other.stdin.close()


@pytest.mark.brokers
def test_this_process_is_watched() -> None:
    with a_failing_test("starts a process"), WATCH.over(FAST):
        subprocess.run([sys.executable, "-c", ""], check=True)  # our own program
