"""``kafka_async.background.group.consumer.group_settings``."""

from typing import Any

import pytest
from attrs import define, field

from kafka_async.background.group.consumer.group_settings import GROUP, REFRESH, SESSION_TIMEOUT, GroupSettings
from kafka_async.background.loop.request_manager import NEVER, Poll
from kafka_async.config import ConsumerConfig
from kafka_async.errors import (
    GroupAuthorizationFailedError,
    InvalidRequestError,
    KafkaConnectionError,
    KafkaError,
    MalformedResponseError,
    UnsupportedVersionError,
)
from kafka_async.network import UnsentRequest
from kafka_async.trace import Notice, TraceEvent
from kafka_async.wire import DescribeConfigsRequest, DescribeConfigsResponse
from kafka_async.wire.messages import DescribeConfigsResourceResult, DescribeConfigsResult

KEY = "consumer.session.timeout.ms"


def answer(value: str | None = "10000", *, name: str = KEY, error_code: int = 0) -> DescribeConfigsResponse:
    settings = (DescribeConfigsResourceResult(name=name, value=value),)
    result = DescribeConfigsResult(error_code=error_code, resource_type=GROUP, resource_name="g", configs=settings)
    return DescribeConfigsResponse(results=(result,))


@define(eq=False)
class World:
    """The settings of group ``g``; ``random`` is 0.5, which is no jitter."""

    seen: list[TraceEvent] = field(factory=list)
    settings: GroupSettings = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = ConsumerConfig.from_options({"group_id": "g"})
        self.settings = GroupSettings(config=config, random=lambda: 0.5, trace=self.seen.append)

    def ask(self, now: float) -> UnsentRequest:
        (request,) = self.settings.poll(now).requests
        assert self.settings.poll(now) == Poll(wake_at=NEVER), "one question at a time, and nobody is woken meanwhile"
        return request

    def answer(self, outcome: object, now: float = 0.0) -> None:
        self.ask(now).on_done(outcome, now)

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.seen if isinstance(event, Notice)]


def test_the_brokers_are_asked_for_the_one_setting() -> None:
    world = World()
    request = world.ask(0.0)
    message: Any = request.message
    assert isinstance(message, DescribeConfigsRequest)
    assert (request.node_id, request.expires_at) == (None, 30.0)
    assert [(asked.resource_type, asked.resource_name, asked.configuration_keys) for asked in message.resources] == [
        (32, "g", (KEY,))
    ]


def test_what_they_say_is_taken_over_and_asked_again_when_it_is_old() -> None:
    world = World()
    assert world.settings.session_timeout == SESSION_TIMEOUT
    world.answer(answer("10000"), 1.0)
    assert world.settings.session_timeout == 10.0
    assert world.notices == ["group 'g': the session timeout is 10 s"]
    assert world.settings.poll(1.0) == Poll(wake_at=1.0 + REFRESH)
    world.answer(answer("60000"), 1.0 + REFRESH)
    assert world.settings.session_timeout == 60.0


def test_the_same_answer_again_is_no_news() -> None:
    world = World()
    world.answer(answer("45000"))
    assert world.notices == []


@pytest.mark.parametrize(
    "outcome",
    [
        UnsupportedVersionError("not offered"),
        answer(error_code=GroupAuthorizationFailedError.errno),
        answer(error_code=InvalidRequestError.errno),
    ],
    ids=["unsupported", "denied", "unknown type of resource"],
)
def test_brokers_that_refuse_are_not_asked_again(outcome: object) -> None:
    world = World()
    world.answer(outcome)
    assert world.settings.session_timeout == SESSION_TIMEOUT
    assert world.settings.poll(1e9) == Poll(wake_at=NEVER)
    (notice,) = world.notices
    assert notice.startswith("group 'g': the session timeout cannot be read from the brokers (")
    assert notice.endswith("); assuming 45 s")


@pytest.mark.parametrize("error", [KafkaConnectionError("cut"), KafkaConnectionError("cut again")])
def test_a_question_that_does_not_arrive_is_asked_again_after_a_backoff(error: KafkaError) -> None:
    world = World()
    world.answer(error, 1.0)
    assert world.settings.poll(1.0) == Poll(wake_at=1.1)
    world.answer(answer(), 1.1)
    assert world.settings.session_timeout == 10.0


@pytest.mark.parametrize(
    "outcome",
    [
        answer(None),
        answer(""),
        answer("0"),
        answer("-5"),
        answer("10 s"),
        answer("9" * 5000),
        answer("\N{ARABIC-INDIC DIGIT THREE}"),
        answer(name="other"),
        DescribeConfigsResponse(),
        DescribeConfigsResponse(results=answer().results * 2),
        MalformedResponseError("no message"),
        "nonsense",
    ],
)
def test_an_answer_that_makes_no_sense_leaves_the_default_session_timeout(outcome: object) -> None:
    world = World()
    world.answer(outcome)
    assert world.settings.session_timeout == SESSION_TIMEOUT
    assert world.settings.poll(0.0).requests == ()
    assert world.settings.poll(0.0).wake_at > 0.0
