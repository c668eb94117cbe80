"""Where a consumer may be used: in the process and on the event loop on which it was started, until then anywhere; and who reads
from it alone.

Between two records an iteration does not check its process, so a fork makes the next step of each iteration in the child look.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from ...errors import IllegalStateError
from ...values import define, field
from .lifecycle import Lifecycle, Phase

if TYPE_CHECKING:
    from .runtime import Runtime


_forks = 0


def forks() -> int:
    """Return how many forks lie between the process that imported the package and this one."""
    return _forks


@define(eq=False)
class Ownership:
    """The place of one consumer."""

    runtime: "Runtime" = field(repr=False)
    lifecycle: Lifecycle
    _forks: int = field(factory=forks, init=False)

    def __attrs_post_init__(self) -> None:
        _places.add(self)

    def check_process(self) -> None:
        """Raise ``IllegalStateError`` in a child that was forked since the start: sockets and threads are the parent's."""
        if forks() == self._forks:
            return
        if self.lifecycle.phase is not Phase.NEW:
            raise IllegalStateError("the consumer was started before this process was forked; make one in the child")
        self._forks = forks()  # nothing was open: it is the child's own from here on

    def check(self) -> None:
        """Raise ``IllegalStateError`` if the consumer cannot be used here: in a forked child, on another event loop."""
        self.check_process()
        task_context = self.runtime.task_context
        if task_context is not None and self.lifecycle.phase not in (Phase.NEW, Phase.CLOSED):
            task_context.check()

    def check_to_stop(self) -> None:
        """As ``check``; if the consumer's event loop is closed, the consumer is ended without leaving the group."""
        try:
            self.check()
        except IllegalStateError:
            if self.runtime.task_context is not None and self.runtime.task_context.is_gone:
                self.runtime.abandon()
                self.lifecycle.abandon()
            raise

    def was_forgotten(self) -> bool:
        """Whether a consumer that is thrown away now was never stopped; then its loop is ended."""
        if self.lifecycle.phase in (Phase.NEW, Phase.CLOSED) or forks() != self._forks:
            return False
        self.runtime.abandon()
        return True


_places: "WeakSet[Ownership]" = WeakSet()


def _forked() -> None:
    global _forks
    _forks += 1
    for place in tuple(_places):
        place.lifecycle.boundary.attend()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# --- who reads ----------------------------------------------------------------------------------------------------------------


class Occupant(Protocol):
    """Reads from a consumer alone: ``process``."""

    @property
    def over(self) -> bool:
        """The consumer was given back, and may be read from."""

    @property
    def failed(self) -> bool:
        """Nothing more will be read, because of an error. What was read may still be drained."""

    @property
    def failed_for_good(self) -> bool:
        """It has failed, and nothing goes on."""

    @property
    def stalled(self) -> bool:
        """Something takes longer than it should."""

    async def finish(self, seconds: float) -> None:
        """End well within ``seconds``: the consumer is being stopped."""

    def metrics(self) -> dict[str, dict[str, float]]: ...


@define(eq=False)
class CallGuard:
    """Looks at each call of one consumer."""

    ownership: Ownership
    lifecycle: Lifecycle
    occupant: Occupant | None = field(default=None, init=False)
    """What reads alone, or did and has failed."""
    unasked: Callable[[], None] | None = field(default=None, init=False)
    """Takes part in rebalances until the first call that asks for something; ``None`` from then on, and for callers that block."""

    def ask(self) -> None:
        """A call asks for records, or for anything of positions, commits or the assignment. These do not count: a look at what is
        known, a question about topics, and one for the committed offsets, or a seek of all to them, since reading begins there
        anyway.
        """
        self.unasked = None

    def check_open(self) -> None:
        """Raise once the consumer is closed, or if it cannot be used here."""
        self.ownership.check()
        self.lifecycle.check_open()

    def check_running(self) -> None:
        """Raise unless the background can answer."""
        self.ownership.check()
        self.lifecycle.check_running()

    def check_readable(self) -> None:
        """Raise unless the caller may read records."""
        self.unasked = None  # what ``ask`` does, without a call in each read
        self.ownership.check()
        self.lifecycle.check_readable()
        if self.occupant is not None:
            if not self.occupant.over:
                raise IllegalStateError("process() is reading from this consumer; nothing else can read meanwhile")
            self.occupant = None  # it failed, and the application goes on by itself

    @property
    def reads_alone(self) -> Occupant | None:
        """What reads alone now, or is about to end."""
        return None if self.occupant is None or self.occupant.over else self.occupant

    def to_finish(self) -> Occupant | None:
        """Return what has to end before the consumer stops."""
        return self.reads_alone if self.lifecycle.phase is Phase.RUNNING else None

    @property
    def has_failed(self) -> bool:
        """What read alone has failed, and nothing else reads."""
        return self.occupant is not None and self.occupant.failed

    @property
    def failed_for_good(self) -> bool:
        """It has failed, and does not even drain any more."""
        return self.occupant is not None and self.occupant.failed_for_good

    @property
    def stalled(self) -> bool:
        return self.occupant is not None and self.occupant.stalled

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of what reads alone, if anything does."""
        occupant = self.occupant
        return {} if occupant is None else occupant.metrics()
