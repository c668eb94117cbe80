"""A member's identity in its group in the classic protocol, and for how long it is surely a member."""

from collections.abc import Callable

from ....config import ConsumerConfig
from ....values import define, evolve, field
from ...loop.request_manager import NEVER, RequestState, backoff_of
from ..heartbeat import next_heartbeat
from ..membership import Identity
from .assignment import NO_GENERATION


@define(eq=False)
class MemberSession:
    """Identity, heartbeats and session of one member."""

    config: ConsumerConfig
    random: Callable[[], float] = field(repr=False)
    identity: Identity = field(init=False)
    beat: RequestState = field(init=False)
    """The heartbeats of this identity."""
    _confirmed_at: float = field(default=0.0, init=False)
    """When the last request was sent whose answer proves that the coordinator counts us as a member."""
    _beat_at: float = field(default=0.0, init=False)
    """When the next heartbeat is due."""
    _synced_at: float = field(default=-NEVER, init=False)
    """When a cooperative generation began, of which the next one may follow at once."""

    def __attrs_post_init__(self) -> None:
        self.become(Identity(instance_id=self.config.group_instance_id))

    def become(self, identity: Identity) -> None:
        """Take another identity: answers to requests of the old one do not count any more."""
        self.identity = identity
        self.beat = RequestState(backoff_of(self.config, self.random))

    def forget(self, *, keep_id: bool = False) -> None:
        """Be a member of no generation, or of no group at all."""
        member_id = self.identity.member_id if keep_id else ""
        self.become(evolve(self.identity, member_id=member_id, generation=NO_GENERATION))

    def confirm(self, sent_at: float) -> None:
        """A request that was sent at ``sent_at`` was answered as a member's."""
        self._confirmed_at = max(self._confirmed_at, sent_at)

    def begin(self, now: float, *, cooperative: bool) -> None:
        """A generation begins. In a cooperative one the members that give something up join again at once, and the others have to
        follow (KIP-429), so the first heartbeats come sooner."""
        self._synced_at = now if cooperative else -NEVER
        self._beat_at = self._next(now)

    # --- heartbeats ------------------------------------------------------------------------------------------------------------

    def may_beat(self, now: float) -> bool:
        return now >= self._beat_at and self.beat.may_send(now)

    @property
    def wake_at(self) -> float:
        """When ``may_beat`` becomes true by the passing of time alone."""
        return NEVER if self.beat.in_flight else max(self._beat_at, self.beat.wake_at())

    def beat_sent(self, now: float) -> RequestState:
        """Return what the answer belongs to."""
        self.beat.sent()
        self._beat_at = self._next(now)
        return self.beat

    def beat_failed(self, now: float) -> None:
        """The heartbeat is due again when its backoff has passed."""
        self.beat.failed(now)
        self._beat_at = now

    def _next(self, now: float) -> float:
        return next_heartbeat(now, self.config.heartbeat_interval_ms / 1000, self._synced_at)

    # --- the session -----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The session timeout after the last request that was answered well; infinity without a generation.

        Counted from when that request was sent, because the coordinator counts from when it arrived: an answer that lay in the
        socket while this process was stopped says nothing about the time since.
        """
        if self.identity.generation == NO_GENERATION:
            return NEVER
        return self._confirmed_at + self.config.session_timeout_ms / 1000
