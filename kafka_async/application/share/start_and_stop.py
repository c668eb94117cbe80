"""How a share consumer starts and stops.

A stop never takes longer than it was given, and a start that fails is undone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ...background.boundary import Exchange, FetchBuffer
from ...background.loop.loop import BackgroundLoop
from ...background.share.assembly import assembly
from ...background.share.orders import Close, Flush, Order
from ...background.share.share_settings import ShareSettings
from ...config import ConsumerConfig
from ...errors import ConsumerStoppedError, KafkaError
from ...events import Call, ShareEvent, SubscribeTopics
from ...model import ConsumerState, TopicPartition
from ...network import TransportFactory
from ...trace import Fault, Listener, Notice
from ...values import define, evolve, field
from ..arguments import seconds
from ..background_calls import GRACE, BackgroundCalls
from ..lifecycle.lifecycle import Happening, Lifecycle, Phase
from ..lifecycle.ownership import CallGuard
from ..lifecycle.runtime import Runtime
from ..reading.in_vain import InVain
from .custody import Custody

if TYPE_CHECKING:  # imported only if metrics are pushed
    from ...background.cluster.metrics_source import MetricsSource

T = TypeVar("T")

_LEAVING: Final = 1.0
"""Seconds for which a start that failed tries to leave the group."""


@define(eq=False)
class StartAndStop:
    """Starts and stops one share consumer."""

    config: ConsumerConfig
    settings: ShareSettings
    lifecycle: Lifecycle
    runtime: Runtime = field(repr=False)
    calls: BackgroundCalls[ShareEvent] = field(repr=False)
    exchange: Exchange = field(repr=False)
    trace: Listener = field(repr=False)
    transport_factory: TransportFactory = field(repr=False)
    custody: Custody = field(repr=False)
    in_vain: InVain
    metrics_source: "MetricsSource | None" = field(default=None, repr=False)
    """What measures for telemetry; ``None`` if that is off."""
    subscribed: SubscribeTopics | None = None
    """The last subscription, for the loop of another start after one that failed."""
    _launched: bool = field(default=False, init=False)
    _untold: dict[TopicPartition, KafkaError | None] = field(factory=dict, init=False)
    """The results that came for a flush that was cancelled at that moment."""

    # --- start -----------------------------------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None) -> None:
        """See ``ShareConsumer.start``."""
        self.lifecycle.check_new()
        self._launch()
        if not self.lifecycle.start():
            await self.calls.end_unseen()
            raise ConsumerStoppedError("the consumer was stopped while it started")
        try:
            deadline = self.calls.deadline(timeout_ms)
            await self.calls.find_topics(self.subscribed.topics if self.subscribed is not None else frozenset(), deadline)
            await self._find_assignment(min(deadline, self.runtime.clock() + self.config.request_timeout_ms / 1000))
            self.lifecycle.started()  # raises if another task has called ``stop`` meanwhile
        except BaseException:
            await self._undo()
            raise

    def _launch(self) -> None:
        loop = BackgroundLoop(
            config=self.config,
            handler=self.exchange.handler,
            buffer=FetchBuffer(self.config.fetch_buffer_bytes, self.runtime.wake_application, self.runtime.wake_background),
            trace=self.trace,
            transport_factory=self.transport_factory,
            metrics_source=self.metrics_source,
            on_end=self.runtime.wake_application,
            assemble=assembly(self.exchange, self.settings),
        )
        if self._launched and self.subscribed is not None:
            self.calls.outbox.add(evolve(self.subscribed, subscription=self.calls.inbox.subscribe(leaves=True)))
        self._launched = True
        self.runtime.launch(loop)

    async def _undo(self) -> None:
        """Undo a start that failed, so that there may be another one."""
        if not self.begin(Happening.UNDO):
            if not self.runtime.blocks:  # a thread that stops waits until this one has left
                await self.wait_for_end(self.config.request_timeout_ms / 1000)
            return
        try:
            await self.finish(_LEAVING, Happening.UNDONE)
        finally:
            if self.lifecycle.phase is Phase.CLOSED:  # ``stop`` was called meanwhile
                self.custody.close()

    async def _find_assignment(self, until: float) -> None:
        if self.subscribed is None:
            return
        clock, signal, inbox = self.runtime.clock, self.runtime.signal, self.calls.inbox
        while clock() < until:
            ticket = signal.ticket()
            self.lifecycle.check_readable()
            inbox.sort()
            inbox.reported.raise_any()
            if inbox.group_state is ConsumerState.STEADY:
                return
            await signal.wait(ticket, until - clock())
        text = "started without an assignment; reads go on waiting for one"
        self.trace(Notice(now=clock(), text=text, subject="group"))

    # --- stop ------------------------------------------------------------------------------------------------------------------

    def allowed(self, timeout_ms: float | None) -> float:
        """Return for how long a stop may take, in seconds."""
        return seconds(self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    async def stop(self, guard: CallGuard, timeout_ms: float | None) -> None:
        """End what reads alone, and then stop for good. A second call waits for the first."""
        guard.ownership.check_to_stop()
        allowed = self.allowed(timeout_ms)
        if (occupant := guard.to_finish()) is not None:
            began = self.runtime.clock()
            with self.runtime.shield():
                await occupant.finish(allowed / 2)
            allowed = max(0.0, allowed - (self.runtime.clock() - began))
        try:
            if self.begin():
                await self.settle_and_finish(allowed)
            else:
                await self.wait_for_end(allowed)
        finally:
            if self.lifecycle.phase is Phase.CLOSED:
                self.custody.close()

    async def settle_and_finish(self, allowed: float) -> None:
        """As ``finish``; other tasks that work on a record get a third of the time to end."""
        if self.runtime.task_context is None:  # it was never started
            await self.finish(allowed)
            return
        began = self.runtime.clock()
        try:
            with self.runtime.shield():
                await self.custody.held.wait(allowed / 3)
        finally:  # a shield does not hold off ``Task.cancel``
            await self.finish(max(0.0, allowed - (self.runtime.clock() - began)))

    async def wait_for_end(self, allowed: float) -> None:
        """Wait for the stop that is under way, for ``allowed`` seconds at most."""
        clock, signal = self.runtime.clock, self.runtime.signal
        deadline = clock() + allowed if self.lifecycle.is_parting else 0.0
        while self.lifecycle.is_parting and (left := deadline - clock()) > 0:
            ticket = signal.ticket()
            if self.lifecycle.is_parting:  # of a blocking consumer, another thread may have ended it just now
                await signal.wait(ticket, left)

    def begin(self, why: Happening = Happening.PART) -> bool:
        """Have every read end. ``False``: a stop is under way already, or over; or a start is being undone, which ends as one."""
        if not self.lifecycle.part(why):
            return False
        self.runtime.wake_application()
        return True

    async def finish(self, allowed: float, ends: Happening = Happening.PARTED) -> None:
        """Settle acknowledgements, close the sessions, leave the group, end the loop; within ``allowed`` seconds."""
        try:
            if self.runtime.task_context is not None:  # it was started
                with self.runtime.shield():
                    await self._part(self.runtime.clock() + allowed, allowed)
        finally:
            self.lifecycle.move(ends)
            self.runtime.wake_application()
            if self.lifecycle.phase is Phase.NEW:
                self.runtime.reset()

    async def _part(self, deadline: float, allowed: float) -> None:
        try:
            if self.lifecycle.runs():
                await self.ask(lambda call: Close(call=call), deadline - allowed / 4, grace=0.0)
        except KafkaError as error:
            text = "not every record was acknowledged before the end; the brokers release the others when the connections close"
            self.trace(Fault(now=self.runtime.clock(), text=text, error=error))
        finally:  # a shield does not hold off ``Task.cancel``, and the loop must end all the same
            try:
                await self.calls.end_loop(deadline)
            finally:
                self.in_vain.over(needed=False)

    # --- questions -------------------------------------------------------------------------------------------------------------

    async def ask(self, order: Callable[[Call[T]], Order], deadline: float, *, grace: float = GRACE) -> T:
        """Queue an order that has an answer, and return it. Raises ``KafkaTimeoutError`` past the deadline."""
        call: Call[T] = Call(deadline, self.runtime.wake_application)
        self.exchange.order(order(call), urgent=True)
        return await self.calls.answer(call, grace=grace)

    async def flush(self, deadline: float) -> dict[TopicPartition, KafkaError | None]:
        """Send every acknowledgement now; return the results since the last flush that returned."""
        call: Call[dict[TopicPartition, KafkaError | None]] = Call(deadline, self.runtime.wake_application)
        self.exchange.order(Flush(call=call), urgent=True)
        try:
            await self.calls.answer(call)
        finally:
            # Cancelled at the moment of the answer, it has taken the results from those of the next flush.
            if (found := call.answer()) is not None:
                self._untold = {each: self._untold.get(each) or found.get(each) for each in {**self._untold, **found}}
        told, self._untold = self._untold, {}
        return told
