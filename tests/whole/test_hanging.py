"""A test that runs out of time says what its consumers knew."""

import os
import subprocess
import sys
import weakref
from collections import deque
from io import StringIO
from pathlib import Path
from threading import Event

import attrs
import pytest

from kafka_async import TopicPartition

from ..application.support import consumer_on, filled, virtual
from ..hanging import Watch, report, shown

ROOT = Path(__file__).parents[2]
HANGS = """
import pytest
from kafka_async.testing import Cluster
from kafka_async import KafkaConsumer


@pytest.mark.timeout({seconds})
async def test_a_read_that_never_ends():
    cluster = Cluster()
    cluster.topic("nothing", partitions=2)
    async with KafkaConsumer("nothing", **cluster.options()) as consumer:
        await consumer.getone()
"""


@pytest.mark.slow
@virtual
async def test_positions_sessions_and_the_last_events_are_shown() -> None:
    cluster, (one, two) = filled(20, partitions=2)
    async with consumer_on(cluster, "t", client_id="the-one") as consumer:
        await consumer.getmany(one, timeout_ms=1000, max_records=7)
        text = "\n".join(report())
    assert "the-one" in text
    for known in ("FetchSession(session_id=", "PartitionState(partition=", "Cursor(partition=", "ResponseReceived(", "position=7"):
        assert known in text
    assert repr(two) in text


@pytest.mark.slow
def test_what_other_tests_left_behind_does_no_harm() -> None:
    class Thing:
        pass

    thing = Thing()
    proxy = weakref.proxy(thing)
    del thing
    with pytest.raises(ReferenceError):
        isinstance(proxy, int)
    assert any("consumers know" in line for line in report())


@attrs.frozen
class Holder:
    held: list[int]


def test_nothing_is_shown_at_length() -> None:
    assert shown(bytes(10_000)).endswith("...")
    assert len(shown(list(range(10_000)))) < 200
    assert shown(deque(range(100))).endswith("98, 99]")
    assert shown((1, [list(range(10_000))] * 3), 1) == "[1, <list of 3>]"
    assert shown(Holder([0] * 10_000)) == "Holder(held=[" + "0, " * 30 + "...])"
    assert shown(Holder([0] * 10_000), 0) == "<Holder>"
    assert shown({TopicPartition("t", 0): {1}}) == "{TopicPartition(topic='t', partition=0): [1]}"


@pytest.mark.brokers
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_test_that_hangs_says_it_however_it_is_ended(method: str, tmp_path: Path) -> None:
    """In a run of its own, within a folder of these tests, which has their ``conftest.py``."""
    file = ROOT / "tests" / f"hangs_{os.getpid()}_{method}.py"  # another run that begins now does not collect it
    file.write_text(HANGS.format(seconds=6))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout-method={method}", str(file)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    finally:
        file.unlink()
    assert done.returncode != 0
    assert "what 1 consumers know" in done.stdout + done.stderr
    assert "TopicPartition(topic='nothing', partition=1)" in done.stdout + done.stderr


class _Elsewhere(StringIO):
    """What a test has in place of standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.goes_on = Event(), Event()

    def write(self, text: str) -> int:
        self.written.set()
        assert self.goes_on.wait(30)
        return super().write(text)


@pytest.mark.slow
def test_a_report_that_cannot_be_written_holds_up_no_test_and_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, first, second = Watch(), _Elsewhere(), _Elsewhere()
    monkeypatch.setattr(sys, "stderr", first)
    watch.begin(0.0)
    assert first.written.wait(30)
    watch.end()
    watch.begin(300.0)  # while the report of the first one is being written
    watch.end()
    first.close()  # by the test, which is over
    monkeypatch.setattr(sys, "stderr", second)
    first.goes_on.set()
    watch.begin(0.0)
    assert second.written.wait(30), "the third one hangs, too"
    watch.end()
    second.goes_on.set()
