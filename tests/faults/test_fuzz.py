"""The part of the fuzzing that is small enough for every run: fixed cases of each target, and every capture as it is.

``python -m tests.faults.fuzz`` runs a million others.
"""

from random import Random

import pytest

from kafka_async.errors import MalformedResponseError
from kafka_async.testing.server import encode_response
from kafka_async.wire import SUPPORTED, Api, decode_response

from .capture import Capture, load
from .fuzz import TARGETS, campaign, known
from .handlers import converse
from .made import made

CASES = {
    "responses": 1500,
    "handlers": 150,
    "records": 600,
    "stream": 600,
    "group_data": 300,
    "scram": 200,
    "sasl": 400,
    "oidc": 15,
    "admin": 15,
    "consumer": 15,
}
CONSUMERS = {
    *(Api.FETCH, Api.LIST_OFFSETS, Api.METADATA, Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.FIND_COORDINATOR),
    *(Api.JOIN_GROUP, Api.HEARTBEAT, Api.SYNC_GROUP, Api.OFFSET_FOR_LEADER_EPOCH, Api.CONSUMER_GROUP_HEARTBEAT),
    *(Api.LEAVE_GROUP, Api.DESCRIBE_CONFIGS, Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY),
}
"""What the background of a consumer asks for until it stops; a member that is refused leaves. Connections ask for versions, and log
in by themselves.
"""


def _name(capture: Capture) -> str:
    return f"{capture.asked.api.name.lower()} {capture.asked.version}"


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_first_mutated_cases_of_each_target_fail_nowhere(target: str) -> None:
    outcomes, failed = campaign(target, 0, CASES[target], show=False)
    assert not failed, f"python -m tests.faults.fuzz --target {target} --cases 1 --first {failed[0]}"
    assert sum(outcomes.values()) == CASES[target]


@pytest.mark.slow
def test_every_answer_is_among_those_that_are_spoiled() -> None:
    assert {each.request.api for each in known()} == set(SUPPORTED)
    assert set[Api]().union(*(converse(Random(number)).asked for number in range(30))) == CONSUMERS  # noqa: S311  # not a secret


@pytest.mark.parametrize("capture", load(), ids=_name)
def test_what_a_real_broker_says_is_read_and_written_alike(capture: Capture) -> None:
    asked = capture.asked
    assert asked.request is not None
    response = decode_response(asked.request, asked.version, capture.response)
    assert decode_response(asked.request, asked.version, encode_response(response, asked.api, asked.version, 0)[4:]) == response


@pytest.mark.parametrize("capture", [*load()[::4], *made()], ids=_name)
def test_every_beginning_of_an_answer_is_refused(capture: Capture) -> None:
    asked = capture.asked
    assert asked.request is not None
    for size in range(len(capture.response)):
        with pytest.raises(MalformedResponseError):
            decode_response(asked.request, asked.version, capture.response[:size])
