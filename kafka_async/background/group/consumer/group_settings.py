"""The brokers' settings for a group of the consumer protocol: its session timeout.

They are asked for with DescribeConfigs, of any broker, and hold nothing up: without a response the broker's default is assumed.

In the consumer protocol the session timeout is the group's ``consumer.session.timeout.ms``, or else the brokers'
``group.consumer.session.timeout.ms``, and no heartbeat response contains it. Java's client does not know it, and hands records
out after the member's session has expired. Brokers describe groups since 4.0, to clients with DESCRIBE_CONFIGS on the group. A
broker that refuses is not asked again: it may write each refusal into a log that is watched. By default no broker allows a
session shorter than ``SESSION_TIMEOUT`` (``group.consumer.min.session.timeout.ms``), so that is the right assumption without a
response.
"""

from collections.abc import Callable
from typing import Final

from ....config import ConsumerConfig
from ....errors import KafkaError, KafkaProtocolError, MalformedResponseError, for_code
from ....network import UnsentRequest
from ....trace import Listener, Notice
from ....values import define, field
from ....wire import DescribeConfigsRequest, DescribeConfigsResponse
from ....wire.messages import DescribeConfigsResource
from ...loop.request_manager import NEVER, Poll, RequestState, backoff_of

SESSION_TIMEOUT: Final = 45.0
"""Seconds: the default of ``group.consumer.session.timeout.ms``."""

REFRESH: Final = 300.0
"""Seconds after which the brokers are asked again; metadata grows as old by default."""

GROUP: Final = 32
"""Kafka's number for this type of resource (``ConfigResource.Type.GROUP``)."""

_KEY: Final = "consumer.session.timeout.ms"


@define(eq=False)
class GroupSettings:
    """The session timeout of the group ``config.group_id``. Poll it while there is a session."""

    config: ConsumerConfig
    random: Callable[[], float] = field(repr=False)
    trace: Listener = field(repr=False)
    session_timeout: float = field(default=SESSION_TIMEOUT, init=False)
    """Seconds."""
    _request: RequestState = field(init=False)
    _due_at: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._request = RequestState(backoff_of(self.config, self.random))

    def poll(self, now: float) -> Poll:
        """Ask, and from time to time again: settings can be changed while the group lives."""
        if self._due_at > now or not self._request.may_send(now):
            return Poll(wake_at=max(self._due_at, self._request.wake_at()))
        self._request.sent()
        group = DescribeConfigsResource(resource_type=GROUP, resource_name=self.config.group_id or "", configuration_keys=(_KEY,))
        expires_at = now + self.config.request_timeout_ms / 1000
        message = DescribeConfigsRequest(resources=(group,))
        return Poll((UnsentRequest(message=message, on_done=self._answered, expires_at=expires_at),))

    def _answered(self, outcome: object, now: float) -> None:
        if isinstance(outcome, KafkaError) and outcome.retriable and not isinstance(outcome, KafkaProtocolError):
            self._request.failed(now)
            return
        self._request.succeeded()
        self._due_at = now + REFRESH
        try:
            self._learn(_session_timeout(outcome), now)
        except KafkaError as error:
            if not error.retriable:
                self._due_at = NEVER
                text = f"group {self.config.group_id!r}: the session timeout cannot be read from the brokers ({error})"
                self.trace(Notice(now=now, text=f"{text}; assuming {self.session_timeout:g} s", subject="group"))

    def _learn(self, seconds: float, now: float) -> None:
        if seconds != self.session_timeout:
            self.session_timeout = seconds
            text = f"group {self.config.group_id!r}: the session timeout is {seconds:g} s"
            self.trace(Notice(now=now, text=text, subject="group"))


def _session_timeout(outcome: object) -> float:
    """Return what an answer says, in seconds. Raises the ``KafkaError`` that it is or carries."""
    if isinstance(outcome, KafkaError):
        raise outcome
    if not isinstance(outcome, DescribeConfigsResponse) or len(outcome.results) != 1:
        raise MalformedResponseError("a broker was asked for the settings of one group and answered with something else")
    (result,) = outcome.results
    if result.error_code:
        raise for_code(result.error_code, result.error_message)
    text = next((setting.value for setting in result.configs if setting.name == _KEY), None)
    if text is None or not text.isascii() or not text.isdigit() or not 0 < len(text) < 16 or not int(text):
        raise MalformedResponseError(f"{_KEY} of a group is {text!r:.50}; expected milliseconds, above 0")
    return int(text) / 1000
