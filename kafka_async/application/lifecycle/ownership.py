"""Where a consumer may be used: in the process and on the event loop on which it was started; until then anywhere.

Must never refer to the consumer itself.

Between two records an iteration does not check its process, so a fork makes the next step of each iteration in the child look.
"""

import os
from typing import TYPE_CHECKING
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
