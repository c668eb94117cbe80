"""Consumers that stay connected between the tasks of a worker process.

Spark runs one task after the other in a Python worker, and asks one planner process for the offsets of a query: connecting anew
costs more than a small task does.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from ...config.java import in_login
from ...errors import KafkaConnectionError
from ...values import define, field
from ..values.secrets import Hidden
from .options.secrets import resolve
from .options.source_options import consumer_options, in_words_of_spark
from .worker import spare_collector

if TYPE_CHECKING:
    from ..sync import KafkaConsumer

IDLE_SECONDS: Final = 60.0
"""How long an idle consumer stays connected."""
TASK_PATIENCE: Final = 60.0
"""Seconds that a task tries to connect: the driver has just found the cluster, so brokers that refuse are about to come back."""
_PAUSE: Final = 0.5
STOP_MS: Final = 2000.0
"""Milliseconds that closing one may take."""

Lease = Callable[[Mapping[str, str]], AbstractContextManager["KafkaConsumer"]]
"""Gives a connected consumer for some options, for a while."""
_Key = frozenset[tuple[str, str]]
"""The options of a consumer."""


@define(eq=False)
class Connections:
    """The idle consumers of a process, by the options they were made with."""

    idle_seconds: float = IDLE_SECONDS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _idle: dict[_Key, list["_Idle"]] = field(factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextlib.contextmanager
    def lease(self, kafka: Mapping[str, str], *, patience: float = 0.0) -> "Iterator[KafkaConsumer]":
        """Yield a consumer for these options, connected. It comes back unless the block ends with an exception.

        ``patience``: seconds in which to try again if no broker can be reached.
        """
        key = frozenset(kafka.items())
        consumer, hidden = self._take(key) or self._connected(kafka, self.clock() + patience)
        good = False
        try:
            with hidden.from_errors():
                yield consumer
            good = True
        finally:
            if good:
                self._give_back(key, consumer, hidden)
            else:
                consumer.stop(timeout_ms=STOP_MS)

    def close(self) -> None:
        """Close the consumers that are idle."""
        with self._lock:
            entries = [entry for found in self._idle.values() for entry in found]
            self._idle.clear()
        for entry in entries:
            entry.keep()
            entry.consumer.stop(timeout_ms=STOP_MS)

    def _connected(self, kafka: Mapping[str, str], deadline: float) -> "tuple[KafkaConsumer, Hidden]":
        spare_collector()
        while True:
            hidden = Hidden()
            try:
                with hidden.from_errors():
                    return _started(kafka, hidden), hidden
            except KafkaConnectionError:
                if self.clock() >= deadline:
                    raise
                self.sleep(_PAUSE)

    def _take(self, key: _Key) -> "tuple[KafkaConsumer, Hidden] | None":
        with self._lock:
            found = self._idle.get(key)
            entry = found.pop() if found else None
        if entry is None:
            return None
        entry.keep()
        return entry.consumer, entry.hidden

    def _give_back(self, key: _Key, consumer: "KafkaConsumer", hidden: Hidden) -> None:
        entry = _Idle(consumer, hidden, threading.Timer(self.idle_seconds, lambda: self._expire(key, entry)))
        entry.timer.daemon = True
        entry.timer.name = "kafka_async idle consumer"
        with self._lock:
            self._idle.setdefault(key, []).append(entry)
            entry.timer.start()

    def _expire(self, key: _Key, entry: "_Idle") -> None:
        with self._lock:
            found = self._idle.get(key, [])
            mine = entry in found
            if mine:
                found.remove(entry)
        if mine:
            entry.consumer.stop(timeout_ms=STOP_MS)


def _started(kafka: Mapping[str, str], hidden: Hidden) -> "KafkaConsumer":
    """Return a connected consumer; secrets that references resolved to are hidden in errors."""
    from ..sync import KafkaConsumer  # only where a connection is wanted: Spark has these objects made in other processes too

    resolved = resolve(kafka)
    hidden.add(*(value for name, value in resolved.items() if value != kafka[name]))
    if "sasl_jaas_config" in kafka:  # only a reference is left of it by now
        hidden.add(*in_login(resolved["sasl_jaas_config"]))
    options = consumer_options(resolved)
    try:
        consumer = KafkaConsumer(**options)
        consumer.start()
    except ValueError as error:
        raise in_words_of_spark(error) from error
    return consumer


@define(eq=False)
class _Idle:
    consumer: "KafkaConsumer"
    hidden: Hidden
    timer: threading.Timer

    def keep(self) -> None:
        """End the timer; nobody but us has the consumer now."""
        self.timer.cancel()
        self.timer.join()


_process = Connections()
_before_fork: list[Connections] = []
"""Consumers of the parent process: their threads do not exist here. Kept, so that nothing tries to close them."""


def connections() -> Connections:
    """Return the consumers of this process."""
    return _process


def leased(kafka: Mapping[str, str]) -> "AbstractContextManager[KafkaConsumer]":
    """Lease a consumer of this process; see ``Connections.lease``."""
    return _process.lease(kafka)


def leased_for_a_task(kafka: Mapping[str, str]) -> "AbstractContextManager[KafkaConsumer]":
    """Lease a consumer of this process, with a task's patience."""
    return _process.lease(kafka, patience=TASK_PATIENCE)


def _forked() -> None:
    global _process
    _before_fork.append(_process)
    _process = Connections()


os.register_at_fork(after_in_child=_forked)
