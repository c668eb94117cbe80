"""Calls to the background that wait for its answer.

A call that gives up withdraws its event, so that the background drops the work instead of doing it late (promise 7).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar

from ..config import ConsumerConfig
from ..errors import BackgroundLoopError, ConsumerStoppedError, KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from ..events import ApplicationEvent, BackgroundSnapshot, Call, ClusterDescription, ShareEvent, Stop, TakeSnapshot, TopicMetadata
from ..values import define, field
from .arguments import seconds
from .inbox import Inbox
from .lifecycle.lifecycle import Lifecycle, Phase
from .outbox import Outbox

if TYPE_CHECKING:
    from .lifecycle.runtime import Runtime

T = TypeVar("T")
E = TypeVar("E", default=ApplicationEvent)

GRACE: Final = 0.5
"""Seconds that a caller waits past a call's deadline for the background to report why it was missed."""
_TRY_AGAIN: Final = 0.1
"""Seconds between two requests about a topic that does not exist yet."""
_NEWLY_MADE: Final = 1.0
"""Seconds in which a new topic may still be unknown to a broker."""
NOTHING_YET: Final = BackgroundSnapshot(
    cluster_id=None,
    brokers=(),
    connections=0,
    requests_in_flight=0,
    wake_ups=0,
    partitions={},
    unreachable_since=None,
    last_answer_at=None,
)
"""The snapshot before there is a background."""


@define(eq=False)
class BackgroundCalls(Generic[E]):
    """Sends events that have an answer."""

    config: ConsumerConfig
    runtime: "Runtime" = field(repr=False)
    lifecycle: Lifecycle
    inbox: Inbox = field(repr=False)
    outbox: "Outbox[E | ShareEvent]" = field(repr=False)
    """What both kinds of consumers ask can always be asked."""

    async def ask(self, event: Callable[[Call[T]], E | ShareEvent], timeout_ms: float | None = None) -> T:
        """Send the event and wait for its answer.

        Raises what the background reports meanwhile, except errors that concern reads only.
        """
        self.lifecycle.check_running()
        return await self.wait(event, self.deadline(timeout_ms), report=self._report_lasting)

    async def find(self, event: Callable[[Call[T]], E | ShareEvent], timeout_ms: float | None = None) -> T:
        """Send a request that reading depends on, and wait: an error that stops reading ends it too."""
        self.lifecycle.check_running()
        return await self.wait(event, self.deadline(timeout_ms), report=self._report_any)

    def deadline(self, timeout_ms: float | None = None) -> float:
        """Return when a call that begins now ends: seconds of the loop's clock."""
        return self.runtime.clock() + seconds(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    async def wait(
        self,
        event: Callable[[Call[T]], E | ShareEvent],
        deadline: float,
        *,
        report: Callable[[], None] | None = None,
        grace: float = GRACE,
    ) -> T:
        """Send the event and return its answer, as ``answer`` does."""
        call: Call[T] = Call(deadline, self.runtime.wake_application)
        self.outbox.add(event(call))
        return await self.answer(call, report=report, grace=grace)

    async def answer(
        self,
        call: Call[T],
        *,
        report: Callable[[], None] | None = None,
        grace: float = GRACE,
        keep: Callable[[], bool] = lambda: False,
    ) -> T:
        """Return the answer to an event that was sent.

        Raises ``KafkaTimeoutError`` past the call's deadline, and what ``report`` raises. ``keep``: asked if the wait ends without
        an answer; if it returns true, the caller has the call followed elsewhere, and the event is not withdrawn.
        """
        runtime = self.runtime
        try:
            while True:
                ticket = runtime.signal.ticket()
                if call.done:
                    return call.result()
                if report is not None or self.lifecycle.boundary.ended is not None:
                    self.lifecycle.check_running()  # the event may have been queued after the loop ended
                if report is not None:
                    report()
                remaining = call.deadline + grace - runtime.clock()
                if remaining <= 0:
                    raise KafkaTimeoutError("the call was not answered before its deadline")
                await runtime.signal.wait(ticket, remaining)
        finally:
            if call.done or not keep():
                call.withdraw()

    async def describe(self, topics: frozenset[str] | None) -> ClusterDescription:
        """Ask the cluster about topics (``None``: all), and remember them."""
        found: ClusterDescription = await self.ask(lambda call: TopicMetadata(call=call, topics=topics))
        self.inbox.looked_up.update(found.topics)
        return found

    async def missing(self, topics: frozenset[str]) -> list[str]:
        """Return which topics do not exist, also after a moment: brokers learn of new ones one by one. None is created."""
        until = self.runtime.clock() + _NEWLY_MADE
        while True:
            known = (await self.describe(topics)).topics
            missing = sorted(name for name in topics if name not in known or not known[name].partitions)
            if not missing or self.runtime.clock() >= until:
                return missing
            await self.runtime.signal.wait(self.runtime.signal.ticket(), _TRY_AGAIN)

    async def check_topics(self, topics: frozenset[str], use: str) -> None:
        """Raise ``UnknownTopicOrPartitionError`` if one does not exist. ``use``: what the topics are for."""
        if missing := await self.missing(topics):
            raise UnknownTopicOrPartitionError(f"topics that {use} do not exist; create them first: {', '.join(missing)}")

    async def find_topics(self, topics: frozenset[str], deadline: float) -> None:
        """Wait for the cluster, and until each of ``topics`` exists; the broker may create it.

        Raises ``UnknownTopicOrPartitionError`` if one does not exist ``request_timeout_ms`` after the cluster first said so.
        """
        clock, signal = self.runtime.clock, self.runtime.signal
        missing_until = inf
        while True:
            self.lifecycle.check_readable()
            cluster: ClusterDescription = await self.wait(
                lambda call: TopicMetadata(call=call, topics=topics, create=True, fail_fast=True),
                max(deadline, clock()),
                report=self._report_to_start,
            )
            self.inbox.looked_up.update(cluster.topics)
            missing = sorted(name for name in topics if name not in cluster.topics or not cluster.topics[name].partitions)
            if not missing:
                return
            missing_until = min(missing_until, clock() + self.config.request_timeout_ms / 1000, deadline)
            if clock() + 2 * _TRY_AGAIN >= missing_until:
                raise UnknownTopicOrPartitionError(f"topics that do not exist: {', '.join(missing)}{await self._like(missing)}")
            await signal.wait(signal.ticket(), _TRY_AGAIN)

    async def _like(self, missing: Sequence[str]) -> str:
        """Return the end of an error: a topic that may be meant; the empty text if there is none, or nobody tells at once."""
        try:
            event = lambda call: TopicMetadata(call=call, topics=None)  # noqa: E731
            found: ClusterDescription = await self.wait(event, self.runtime.clock() + GRACE, grace=0.0)
        except KafkaError:
            return ""
        from ..config.spelling import did_you_mean_one  # needed for this error only

        return did_you_mean_one(missing, found.topics)

    async def end_loop(self, deadline: float) -> None:
        """Stop the loop and wait until it has ended, whatever happens."""
        boundary = self.lifecycle.boundary
        try:
            if self.lifecycle.runs():  # its task may have been cancelled during a call-back
                await self.wait(lambda call: Stop(call=call), deadline)  # the loop ends in time by itself
        except (KafkaTimeoutError, ConsumerStoppedError, BackgroundLoopError):
            pass  # it was asked to stop, and ends below whatever it answered
        finally:
            if boundary.ended is None:
                self.runtime.abort()
        await self.runtime.join(max(0.0, deadline - self.runtime.clock()) + GRACE)

    async def end_unseen(self) -> None:
        """End a loop that was launched while another thread stopped the consumer, and perhaps found no loop to end.

        That thread is not waited for: it waits until this one has left.
        """
        await self.end_loop(self.runtime.clock() + self.config.request_timeout_ms / 1000)

    def _report_lasting(self) -> None:
        self.inbox.sort()
        self.inbox.reported.raise_lasting()

    def _report_any(self) -> None:
        self.inbox.sort()
        self.inbox.reported.raise_any()

    def _report_to_start(self) -> None:
        self.lifecycle.check_readable()  # another task or thread may have called ``stop``, and wait for this one
        self._report_any()

    def snapshot(self) -> BackgroundSnapshot:
        """Return the background's half of the statistics; waits for its thread if it has one."""
        if self.lifecycle.look() is Phase.NEW:
            return NOTHING_YET
        if self.lifecycle.boundary.ended is not None:
            return self.runtime.snapshot()
        try:
            return self.runtime.ask_now(self.runtime.snapshot, lambda call: self.outbox.add_now(TakeSnapshot(call=call)))
        except (ConsumerStoppedError, BackgroundLoopError):
            if self.lifecycle.boundary.ended is None:
                raise
            return self.runtime.snapshot()  # it has ended meanwhile, and changes no more
