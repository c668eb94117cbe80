"""What a worker tells its parent: lines of JSON through a pipe.

A report is about the process and each of its consumers. It is made on the worker's event loop, so one that stands still is silent.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, Protocol

from attrs import astuple, frozen

from ...application.lifecycle.metrics import Point, points

INTERVAL: Final = 2.0
"""Seconds between two reports."""
LARGEST: Final = 16 << 20
"""Bytes of a line at most."""


class Observed(Protocol):
    """A consumer of the worker."""

    @property
    def assigned_once(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    def metrics(self) -> dict[str, dict[str, float]]: ...


@frozen
class Report:
    """A worker, as it sees itself."""

    assigned_once: bool = False
    """It has consumers, and each of them that has anything to read has been assigned partitions once."""
    alive: bool = True
    """No consumer needs a restart."""
    rss: int = 0
    """Bytes of memory."""
    measured: tuple[tuple[str, tuple[Point, ...]], ...] = ()
    """The name and the numbers of each consumer."""

    def line(self) -> bytes:
        """Return the report as a line."""
        measured = [(name, [astuple(each, recurse=False) for each in found]) for name, found in self.measured]
        told = {"assigned_once": self.assigned_once, "alive": self.alive, "rss": self.rss, "measured": measured}
        return json.dumps(told, separators=(",", ":")).encode() + b"\n"


@frozen
class CannotRun:
    """The program cannot run as it is: there is no such module, or an option is wrong."""

    why: str
    for_now: bool = False
    """It may run later: no broker can be reached."""

    def line(self) -> bytes:
        """Return the refusal as a line."""
        return json.dumps({"refused": self.why, "for_now": self.for_now}).encode() + b"\n"


def read_line(line: bytes) -> Report | CannotRun:
    """Return what a line says. Raises ``ValueError`` for anything else: the program has written to a pipe that is not its own."""
    try:
        told: dict[str, Any] = json.loads(line)
        if "refused" in told:
            return CannotRun(str(told["refused"]), bool(told["for_now"]))
        measured = tuple((str(client), tuple(_point(*each) for each in found)) for client, found in told["measured"])
        return Report(bool(told["assigned_once"]), bool(told["alive"]), int(told["rss"]), measured)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:  # the last two: infinity, and [[[...
        raise ValueError(f"a line of a worker that is no report: {line[:100]!r}") from error


def _point(name: str, value: float, labels: list[tuple[str, str]], total: bool) -> Point:
    known = tuple((str(label), str(text)) for label, text in labels)
    return Point(name=str(name), value=float(value), labels=known, total=bool(total))


def report_of(consumers: Iterable[tuple[str, Observed, bool]], rss: int) -> Report:
    """Return a report about consumers, each with its name, and whether it has anything to read.

    No two names are equal: Prometheus takes no two series with the same labels.
    """
    known = tuple(consumers)
    # One that only asks for offsets never has partitions. If there is no other, the program may not have subscribed yet.
    asked = [consumer for _, consumer, reads in known if reads] or [consumer for _, consumer, _ in known]
    return Report(
        assigned_once=bool(asked) and all(consumer.assigned_once for consumer in asked),
        alive=all(consumer.alive for _, consumer, _ in known),
        rss=rss,
        measured=tuple((name, tuple(points(consumer.metrics()))) for name, consumer, _ in known),
    )
