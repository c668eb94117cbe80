"""The messages themselves: each API has its two, each class is used, and defaults are Kafka's as a second reader has them."""

import dataclasses
import inspect
from datetime import timedelta
from typing import Any, cast

import attrs
import pytest
from kio.index import load_request_schema, load_response_schema

from kafka_async.testing.server import REQUESTS
from kafka_async.wire import SUPPORTED, Api, Request, Response, Struct, messages
from kafka_async.wire.messages import base
from kafka_async.wire.shapes import OLD_SHAPES
from tests.wire.generate import MODULES
from tests.wire.layouts import LAYOUTS
from tests.wire.strategies import AHEAD_OF_KIO


def test_every_class_of_ours_is_used() -> None:
    used = {struct.cls for _, struct in LAYOUTS} | set(OLD_SHAPES)
    defined = {
        cls
        for module in MODULES
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and issubclass(cls, Struct) and module is not base
    }
    assert len(defined) > 150
    assert defined <= used


def test_every_api_has_one_request_and_its_response() -> None:
    assert set(REQUESTS) == set(Api) == set(SUPPORTED)
    for api, request in REQUESTS.items():
        assert issubclass(request, Request)
        assert issubclass(request.response, Response)
        assert request.response.__name__ == request.__name__.removesuffix("Request") + "Response"
        assert request.__name__.removesuffix("Request").lower() == api.name.replace("_", "").lower()


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_defaults_are_those_of_kafka(api: Api) -> None:
    version = max(number for number in range(SUPPORTED[api].highest + 1) if (api, number) not in AHEAD_OF_KIO)
    pairs = ((REQUESTS[api], load_request_schema), (REQUESTS[api].response, load_response_schema))
    for cls, load in pairs:
        ours = {field.name.removesuffix("_ms"): field.default for field in attrs.fields(cast(Any, cls))}
        for field in dataclasses.fields(load(api, version)):
            if field.default is dataclasses.MISSING or field.name not in ours or dataclasses.is_dataclass(field.default):
                continue
            default = getattr(field.default, "value", field.default)
            wanted = round(default.total_seconds() * 1000) if isinstance(default, timedelta) else default
            assert ours[field.name] == wanted, (cls.__name__, field.name)


def test_a_message_is_found_by_its_name_alone() -> None:
    named = [
        name
        for module in MODULES
        if module.__name__.startswith(messages.__name__) and not module.__name__.endswith((".admin", ".produce", ".base"))
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
    ]
    assert len(named) > 90
    assert all(getattr(messages, name).__name__ == name for name in named)
