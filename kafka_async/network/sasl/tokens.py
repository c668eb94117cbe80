"""Where bearer tokens come from: the provider that an application hands in.

Sources: aiokafka's ``AbstractTokenProvider``, KIP-255, KIP-368.
"""

import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from ...errors import KafkaConnectionError, KafkaError
from ...values import field, frozen
from .oauthbearer import Bearer
from .threads import MOST_CALLS, on_thread

_log = logging.getLogger("kafka_async")

USED_FOR: Final = 0.8
"""Share of a token's life after which it is not handed out any more (Java: ``sasl.login.refresh.window.factor``).

It is less than the share of a session after which a connection authenticates again (85 % and more, ``session.py``). A session ends
with the token that began it, so the second authentication gets the same token only if no new one could be had.
"""
LEAST_LEFT: Final = 10.0
"""Seconds that a token must be valid still to take the place of one that could not be fetched: the broker's clock may differ."""
PATIENCE: Final = 3.0
"""Seconds in which a new token must come if there is one that is still valid. A login has 10 in all."""


class AbstractTokenProvider(ABC):
    """Base of an application's own source of OAUTHBEARER tokens, as in aiokafka: ``sasl_oauth_token_provider=MyProvider()``.

    ``token()`` is awaited for each new connection and each re-authentication, several at once at times; keeping a token until
    shortly before it expires is the provider's business. It must not wait longer than ``socket_connection_setup_timeout_ms``.
    An error that it raises ends that attempt to connect, which is then repeated with backoff; ``AuthenticationFailedError`` says
    that repeating is useless. For a re-authentication it is asked again until the session ends; the connection is used meanwhile.
    """

    @abstractmethod
    async def token(self) -> str:
        """Return a token that is valid now."""

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions to send with the token (KIP-342): names of letters, values of printable ASCII."""
        return {}


def bearers(provider: Any) -> Callable[[], Awaitable[Bearer]]:
    """Return a function that asks ``provider`` for a token: an object with ``token()``, or a callable that returns the token.

    What is ``async`` is awaited; a plain ``token`` runs in a worker thread, because it usually waits for a server. The function
    raises ``KafkaError`` only: what else the provider raises is the cause of a ``KafkaConnectionError``.
    """
    token = getattr(provider, "token", provider)
    extensions = getattr(provider, "extensions", dict)
    # One that never returns keeps its thread, though nobody waits for it, and each attempt to connect is another.
    calls = threading.Semaphore(MOST_CALLS)

    def call() -> Any:
        if not calls.acquire(blocking=False):
            raise KafkaConnectionError(f"sasl_oauth_token_provider: {MOST_CALLS} calls have not returned; no token to connect with")
        try:
            return token()
        finally:
            calls.release()

    async def fetch() -> Bearer:
        try:
            value = token() if inspect.iscoroutinefunction(token) else await on_thread(call)
            value, more = await _result(value), await _result(extensions())
        except KafkaError:
            raise
        except Exception as error:  # the provider is the application's code
            raise KafkaConnectionError(
                f"sasl_oauth_token_provider raised {type(error).__name__}: no token to connect with"
            ) from error
        return Bearer(token=value, extensions=more)

    return fetch


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@frozen(kw_only=True)
class Token:
    """A token as it was fetched."""

    value: str = field(repr=False)
    lifetime: float | None = None
    """Seconds for which it is valid from now; ``None``: unknown, and a login that did not wait for it fetches another one."""


@frozen
class _Fetched:
    """The outcome of the last fetch."""

    outcome: Token | KafkaError
    at: float

    @property
    def lifetime(self) -> float:
        """Seconds; 0 if it brought no token, or one of which that is not known."""
        return 0.0 if isinstance(self.outcome, KafkaError) else self.outcome.lifetime or 0.0

    def is_fresh(self, now: float) -> bool:
        return self.at <= now < self.at + USED_FOR * self.lifetime

    def is_valid(self, now: float) -> bool:
        return self.at <= now < self.at + self.lifetime - LEAST_LEFT

    def value(self) -> str:
        if isinstance(self.outcome, KafkaError):
            raise copy(self.outcome)  # several waiters must not share one exception and its traceback
        return self.outcome.value


class CachingTokenProvider(AbstractTokenProvider):
    """A provider that keeps its token for 80 % of its life, and fetches one at a time.

    If no new one can be had then, the old one is handed out until it expires, with a WARNING in the log; each login tries again.

    A call during a fetch waits and shares its result, good or bad. It may serve several consumers, even on different event loops;
    then each loop fetches by itself. ``clock`` returns seconds since 1970, so that a token is too old after the machine slept.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last: _Fetched | None = None
        self._good: _Fetched | None = None
        """The last fetch that brought a token."""
        self._turn: RunVar[anyio.Lock] = RunVar("kafka_async token")

    @abstractmethod
    async def fetch(self) -> Token:
        """Return a new token. Raises ``KafkaError``."""

    async def token(self) -> str:
        """Return the kept token, or a new one. Raises what ``fetch`` raises if none is valid."""
        seen = self._last
        if seen is not None and seen.is_fresh(self._clock()):
            return seen.value()
        async with self._lock():
            last = self._last
            if last is None or last is seen:  # no other login fetched while we waited
                last = self._last = await self._fetched()
            return last.value()

    async def _fetched(self) -> _Fetched:
        spare = self._good if self._good is not None and self._good.is_valid(self._clock()) else None
        failed: KafkaError | None = None
        with anyio.move_on_after(PATIENCE if spare is not None else None):
            try:
                self._good = found = _Fetched(await self.fetch(), self._clock())
                return found
            except KafkaError as error:
                failed = error
        if spare is not None and spare.is_valid(self._clock()):
            why = f"no answer within {PATIENCE:.0f} s" if failed is None else f"{type(failed).__name__}: {failed}"
            _log.warning("no new token could be had; the last one is used while it is valid (%s)", why)
            return copy(spare)  # another object: those that wait for this turn must not take theirs for a failed one, and try again
        return _Fetched(
            failed or KafkaConnectionError(f"no new token within {PATIENCE:.0f} s, and the last one ends"), self._clock()
        )

    def _lock(self) -> anyio.Lock:
        lock = self._turn.get(None)
        if lock is None:
            lock = anyio.Lock()
            self._turn.set(lock)
        return lock
