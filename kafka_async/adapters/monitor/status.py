"""What is said of a partition or a group in one word, and which word is worse."""

from collections.abc import Iterable
from enum import StrEnum


class Status(StrEnum):
    """How a group, or a partition of it, is doing. The first seven are Burrow's and its relatives; the order is that of trouble."""

    OK = "OK"
    UNKNOWN = "UNKNOWN"
    """A broker does not answer, refuses, or cannot say."""
    WARN = "WARN"
    """It commits, and yet the lag does not get smaller."""
    ERR = "ERR"
    """Something else that needs a person: records were deleted before they were read, a rebalance does not end."""
    REWIND = "REWIND"
    """A committed offset went back, and has not got to where it was."""
    STALL = "STALL"
    """There are members, and records, and nothing is committed."""
    UNREADABLE = "UNREADABLE"
    """The committed offset is of no record: the topic was deleted and created again, or its log was cut off."""
    STOP = "STOP"
    """There are records, and nobody reads them."""

    @property
    def severity(self) -> int:
        """How bad it is; a larger number is worse."""
        return _ORDER[self]

    @property
    def exit_code(self) -> int:
        """0 OK, 1 warning, 2 critical, 3 unknown: the codes of Nagios and of all that speak its language."""
        return _EXIT.get(self, 2)

    @property
    def mark(self) -> str:
        """A sign in ASCII, so that the status is told without colours."""
        return _MARKS.get(self, "x")


_ORDER = {status: place for place, status in enumerate(Status)}
_EXIT = {Status.OK: 0, Status.WARN: 1, Status.UNKNOWN: 3}
_MARKS = {Status.OK: ".", Status.WARN: "!", Status.UNKNOWN: "?"}


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of them; ``OK`` if there are none."""
    return max(statuses, key=lambda status: status.severity, default=Status.OK)
