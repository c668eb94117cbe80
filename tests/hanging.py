"""What consumers knew when a test ran out of time, for the report of that test.

A read that never ends leaves nothing else behind: no error, no log, and stacks that show an event loop that waits. So shortly
before pytest-timeout ends a test, what its consumers and brokers are like is written to its standard error.
"""

import gc
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import attrs

from kafka_async import KafkaConsumer, ShareConsumer
from kafka_async.application.lifecycle.metrics import Requests
from kafka_async.application.reading.unread import Unread
from kafka_async.background.cluster.metadata import MetadataManager
from kafka_async.background.fetch.fetch_manager import FetchManager
from kafka_async.background.positions.positions import PositionsManager
from kafka_async.background.positions.subscription import SubscriptionState

from .brokers import KafkaCluster

MARGIN: Final = 5.0
"""Seconds before the end of a test's time at which it is hanging. Writing takes a while on a busy machine."""
INSIDE: Final = (SubscriptionState, Unread, FetchManager, PositionsManager, MetadataManager, Requests)
"""What a consumer knows: positions and their states, unread data, fetch sessions, leaders, the last trace events."""
DEPTH: Final = 6
MOST: Final = 30
"""Items of a collection that are shown: the last ones of a queue, the first ones of anything else."""
LENGTH: Final = 300


class Watch:
    """Writes what is known once a test has taken nearly all of its time. One for all tests: so is its thread, which costs some."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due_at = self._wakes_at = math.inf
        self._thread = threading.Thread(target=self._run, name="hanging", daemon=True)

    def begin(self, seconds: float) -> None:
        """A test begins that has so much time."""
        if not self._thread.is_alive():
            self._thread.start()
        with self._changed:
            self._due_at = time.monotonic() + max(seconds - MARGIN, seconds / 2)
            if self._due_at < self._wakes_at:
                self._changed.notify()

    def end(self) -> None:
        """The test is over in time."""
        self._due_at = math.inf

    def _run(self) -> None:
        while True:
            self._wait()
            # The next test may begin meanwhile: neither has it to wait, nor may a report that fails end the watch over it.
            text = _tried(lambda: "\n".join(report()))
            with suppress(Exception):  # the test is over by now, and with it what it had in place of standard error
                sys.stderr.write(text + "\n")
                sys.stderr.flush()

    def _wait(self) -> None:
        """Return once a test has taken nearly all of its time."""
        with self._changed:
            while (left := self._due_at - time.monotonic()) > 0:
                self._wakes_at = self._due_at
                self._changed.wait(None if left == math.inf else left)
            self._due_at = self._wakes_at = math.inf


def report() -> Iterator[str]:
    """Yield lines about all consumers and brokers of this process. Called in a thread beside a test that hangs."""
    # By type: ``isinstance`` asks objects for their class, and a weak proxy of something that is gone raises an error then.
    wanted = (KafkaConsumer, ShareConsumer, KafkaCluster, *INSIDE)
    found = [each for each in gc.get_objects() if issubclass(type(each), wanted)]
    yield f"--- what {sum(isinstance(each, KafkaConsumer | ShareConsumer) for each in found)} consumers know"
    for each in found:
        if isinstance(each, KafkaConsumer | ShareConsumer):
            yield f"{each!r}: {_tried(lambda each=each: shown(each.statistics()))}"
    for each in found:
        if isinstance(each, INSIDE):
            yield _tried(lambda each=each: shown(each))
    for each in found:
        if isinstance(each, KafkaCluster):
            yield _tried(lambda each=each: "\n".join(each.conditions()))


def _tried(make: Any) -> str:
    try:
        return str(make())
    except Exception as error:  # noqa: BLE001,RUF100  # the test goes on in its own thread, and changes what is looked at
        return f"({type(error).__name__}: {error})"


def shown(value: Any, depth: int = DEPTH) -> str:
    """Return a value with all that it holds, down to a depth, and nothing at length."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _with_fields(value, value._fields, max(depth - 1, 0))
    if not depth:
        return _outline(value)
    if isinstance(value, INSIDE) and depth < DEPTH:
        return f"<{type(value).__name__}>"  # shown by itself
    if attrs.has(type(value)):
        left_out = ("config", "handler", "buffer", "environment", "network")
        return _with_fields(value, [each.name for each in attrs.fields(type(value)) if each.name not in left_out], depth - 1)
    if isinstance(value, Mapping):
        items = ", ".join(f"{shown(key, 1)}: {shown(held, depth - 1)}" for key, held in islice(tuple(value.items()), MOST))
        return f"{{{items}{_more(value)}}}"
    if isinstance(value, deque):
        return f"[{'... ' if len(value) > MOST else ''}{_each(tuple(value)[-MOST:], depth)}]"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{_each(islice(tuple(value), MOST), depth)}{_more(value)}]"
    return _outline(value)


def _outline(value: Any) -> str:
    """Return a value without what it holds: a whole cluster with all of its records may hang on it."""
    if isinstance(value, str | bytes | bytearray):
        return repr(value) if len(value) <= LENGTH else f"{value[:LENGTH]!r}..."
    if isinstance(value, Mapping | deque | list | tuple | set | frozenset):
        return f"<{type(value).__name__} of {len(value)}>"
    if attrs.has(type(value)):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= LENGTH else f"{text[:LENGTH]}..."


def _with_fields(value: Any, names: Iterable[str], depth: int) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={shown(getattr(value, name, None), depth)}' for name in names)})"


def _each(values: Iterable[Any], depth: int) -> str:
    return ", ".join(shown(each, depth - 1) for each in values)


def _more(values: Any) -> str:
    return ", ..." if len(values) > MOST else ""
