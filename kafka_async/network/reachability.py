"""Whether any broker can be reached, and since when none can.

A cluster counts as unreachable if every broker that is known was tried in vain since the last answer. A connection that breaks, or
is closed because it is unused, proves nothing; the failed attempt to make another one does.
"""

from collections.abc import Sequence
from copy import copy

from ..config import ConsumerConfig
from ..errors import AuthenticationFailedError, KafkaError, NoBrokersAvailable
from ..values import define, frozen


def unable_to_bootstrap(config: ConsumerConfig, problems: Sequence[KafkaError]) -> KafkaError:
    """Return the error for a caller who does not wait for servers that cannot be reached; ``problems``: the last failures."""
    cause = problems[0] if problems else None
    if isinstance(cause, AuthenticationFailedError):  # the error that a request waiting for a server would get
        error: KafkaError = copy(cause)
        error.__cause__ = cause.__cause__
        return error
    servers = ", ".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    found = "; ".join(dict.fromkeys(map(str, problems))) or "nothing was tried"
    error = NoBrokersAvailable(f"Unable to bootstrap from {servers}: {found}")
    error.__cause__ = cause
    return error


@frozen
class Reachability:
    """Since when no broker can be reached (``None``: one can), and when the last response came; both in absolute seconds."""

    unreachable_since: float | None = None
    last_answer_at: float | None = None


@define(eq=False)
class ReachabilityState:
    """Follows attempts and answers."""

    _failing_since: float | None = None
    """When the first attempt failed after the last answer."""
    unreachable_since: float | None = None
    _last_answer_at: float | None = None

    def answered(self, now: float) -> None:
        """A broker answered a request of the layers above."""
        self._last_answer_at = now
        self._failing_since = None
        self.unreachable_since = None

    def attempt_failed(self, now: float, *, was_last: bool) -> None:
        """A connection ended before it brought a response; ``was_last``: there is no other one."""
        if self._failing_since is None:
            self._failing_since = now
        if was_last:
            self.unreachable_since = self._failing_since

    def value(self) -> Reachability:
        return Reachability(self.unreachable_since, self._last_answer_at)
