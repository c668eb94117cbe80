"""How a consumer begins: launch the loop, learn about the cluster, wait for the first assignment.

A start that fails is taken back, so that the next one begins afresh.
"""

from math import inf
from typing import TYPE_CHECKING, Final

from ...background.loop.loop import BackgroundLoop
from ...config import ConsumerConfig
from ...errors import ConsumerStoppedError
from ...events import AssignFromUser, PausePartitions, TakeSnapshot
from ...network import TransportFactory
from ...trace import Notice
from ...values import define, evolve, field
from ..background_calls import BackgroundCalls
from ..group.subscribed import Subscribed
from ..reading.reader import Reader
from ..reading.unread import Unread
from .lifecycle import Lifecycle
from .observing import Observer
from .parting import Parting

if TYPE_CHECKING:
    from .runtime import Runtime

LOG_AFTER: Final = 3.0
"""Seconds that a start waits for an assignment before it logs what it waits for."""


@define(eq=False)
class Starting:
    """Starts one consumer, again if need be."""

    config: ConsumerConfig
    lifecycle: Lifecycle
    runtime: "Runtime" = field(repr=False)
    calls: BackgroundCalls = field(repr=False)
    reader: Reader = field(repr=False)
    parting: Parting = field(repr=False)
    subscribed: Subscribed
    observer: Observer = field(repr=False)
    transport_factory: TransportFactory | None = field(repr=False)
    _launched: bool = field(default=False, init=False)

    async def start(self, timeout_ms: float | None) -> None:
        """See ``KafkaConsumer.start``."""
        self.lifecycle.check_new()
        self._launch()
        if not self.lifecycle.start():
            await self.calls.end_unseen()
            raise ConsumerStoppedError("the consumer was stopped while it started")
        try:
            deadline = self.calls.deadline(timeout_ms)
            topics = self.subscribed.topics | {partition.topic for partition in self.reader.unread.partitions}
            await self.calls.find_topics(topics, deadline)
            await self._find_assignment(deadline if timeout_ms is not None else None)
            self.lifecycle.started()  # raises if a call-back's task, or any other, has called ``stop`` in the last step
            self.runtime.wake_application()  # a rebalance may have been proposed in the last step, too, and nobody may read soon
        except BaseException:
            await self.parting.undo()
            raise

    def _launch(self) -> None:
        unread = self.reader.unread
        loop = BackgroundLoop(
            config=self.config,
            handler=self.lifecycle.boundary,
            buffer=unread.buffer,
            trace=self.observer,
            transport_factory=self.transport_factory,
            metrics_source=self.observer.telemetry(),
            on_end=self.runtime.wake_application,
        )
        if self._launched:
            self._repeat_wishes(unread)
        self._launched = True
        self.runtime.launch(loop)
        self.reader.handout.set_clock(self.runtime.clock, monotonic=self.runtime.has_system_clock)
        task_context = self.runtime.task_context
        if task_context is not None:
            self.reader.handout.set_callers(self.reader.auto_commit.holdings.current, *task_context.running_tasks())
        self.observer.started()

    def _repeat_wishes(self, unread: Unread) -> None:
        """Send again what the loop of a start that failed was sent: subscription, assignment, positions, pauses."""
        inbox, outbox = self.calls.inbox, self.calls.outbox
        self.reader.gate.rebalancing.assigned_once = False
        joins = self.subscribed.is_subscription and self.config.group_id is not None
        number = inbox.subscribe(leaves=True, joins=joins)
        if self.subscribed.event is not None:
            unread.assign(())
            outbox.add(evolve(self.subscribed.event, subscription=number))
            return
        for cursor in unread.partitions.values():
            unread.move(cursor, cursor.standing)
        outbox.add(AssignFromUser(stamps=unread.stamps(unread.partitions), subscription=number))
        for cursor in unread.partitions.values():
            unread.refetch(cursor)
        outbox.add(PausePartitions(partitions=frozenset(tp for tp, cursor in unread.partitions.items() if cursor.paused)))

    async def _find_assignment(self, deadline: float | None) -> None:
        """Wait for the first assignment of a subscription; up to a request timeout if the caller sets no limit."""
        if not self.subscribed.is_subscription:
            return
        clock, signal, rebalancing = self.runtime.clock, self.runtime.signal, self.reader.gate.rebalancing
        until = clock() + self.config.request_timeout_ms / 1000 if deadline is None else deadline
        log_at = clock() + LOG_AFTER
        while self.subscribed.is_subscription and not rebalancing.assigned_once and clock() < until:
            ticket = signal.ticket()
            await self.reader.gate.pass_through()
            if rebalancing.assigned_once:
                break
            if clock() >= log_at:
                log_at = inf
                text = "still no assignment: the group waits for members that have not rejoined or given partitions up yet"
                self.observer(Notice(now=clock(), text=text, subject="group"))
            await signal.wait(ticket, min(until, log_at) - clock())
        if self.subscribed.is_subscription and not rebalancing.assigned_once:  # a call-back may have unsubscribed
            text = "started without an assignment; reads go on waiting for one"
            self.observer(Notice(now=clock(), text=text, subject="group"))
        # The background then knows that the assignment is taken over, and ``state`` shows it.
        await self.calls.find(lambda call: TakeSnapshot(call=call))
