"""Rebalances of a consumer from which nothing was asked yet: one that was started, and whose program still loads its model.

They are carried out as soon as they are proposed, where the program cannot tell that from a rebalance inside its first read: no
listener is set, nothing was handed out, committed or sought (but all to the committed offsets), and whoever gets a partition next
begins where this member would have begun. A listener that is set after that is told of what was taken when the first read begins,
as if it had been taken there; of what had left it hears nothing. Otherwise the others would wait for that read, for up to
``max_poll_interval_ms``. Nothing is committed here.

Whatever else there is waits for the read: a partition without a committed offset under any other policy than ``earliest``, since
its next owner would begin somewhere else; and partitions that were lost.

It is no read either: ``max_poll_interval_ms`` goes on from the first partition of the member through rebalances, so that a program
that never reads is found out. It begins anew only once the member holds nothing: in the eager protocol, where each rebalance takes
everything for a moment, once such a rebalance has left it nothing.
"""

from typing import TYPE_CHECKING
from weakref import ref

from ...config import ConsumerConfig
from ...errors import LONGEST_REASON, BackgroundLoopError, shown
from ...events import ErrorEvent, RevokePartitions
from ...values import define, field
from ..lifecycle.lifecycle import Lifecycle, Phase
from ..reading.unread import Unread
from .rebalancing import Proposal, Rebalancing

if TYPE_CHECKING:
    from ..lifecycle.ownership import CallGuard
    from ..lifecycle.runtime import Runtime


@define(eq=False)
class Unasked:
    """Takes part in rebalances for a program that has asked for nothing yet. ``CallGuard`` drops it at the first call that counts.

    Everything happens in one step, on the application's event loop: a call comes before or after it.
    """

    config: ConsumerConfig
    lifecycle: Lifecycle
    rebalancing: Rebalancing
    unread: Unread = field(repr=False)

    def attend(self) -> None:
        """Carry out what is proposed, as far as that changes nothing. Called whenever the application would be woken."""
        if self.rebalancing.inbox.is_empty or self.lifecycle.phase is not Phase.RUNNING:  # ``start`` carries out by itself
            return
        try:
            self.rebalancing.carry_out_at_once(self._changes_nothing)
        except Exception as cause:  # no call is under way that could raise it, and the background, or its waker, must not
            self._report(cause)

    def _report(self, cause: Exception) -> None:
        """Have the next call raise what a trace listener has raised, as it raises what fails in the background."""
        error = BackgroundLoopError(f"a rebalance before the first call failed: {shown(cause, LONGEST_REASON)}")
        error.__cause__ = cause
        self.rebalancing.inbox.reported.add(ErrorEvent(error=error, to_all=True))

    def _changes_nothing(self, proposal: Proposal) -> bool:
        """Whether the next owner of each partition that leaves begins where this member would have begun."""
        owned = self.unread.partitions.keys()
        leaving = owned & proposal.partitions if isinstance(proposal, RevokePartitions) else owned - proposal.partitions
        # Whether the next owner takes a partition for a new one is not certain, so both rules have to say the same. That all
        # members have the same ones is taken for granted.
        if self.config.auto_offset_reset == self.config.auto_offset_reset_new_partitions == "earliest":
            return True
        self.unread.receive()
        return all(self.unread.partitions[partition].waits_at_commit for partition in leaving)


def attend_unasked(runtime: "Runtime", guard: "CallGuard") -> None:
    """Have what ``guard`` knows of a consumer without a call take part in rebalances, until there is one.

    The background wakes the application, so it must not hold the parts: over them it would hold a listener, which may refer to the
    consumer. Callers that are threads are not woken like that: a blocking consumer waits for its reads.
    """
    own, signal = ref(guard), runtime.signal

    def attend() -> None:
        guard = own()
        unasked = None if guard is None else guard.unasked
        if unasked is None:
            signal.on_wake = None
        else:
            unasked()

    signal.on_wake = attend
