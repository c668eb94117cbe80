"""The messages themselves: their comments tell the versions right, their defaults are Kafka's."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any, cast

import attrs
import pytest
from kio.index import load_request_schema, load_response_schema

from kafka_async.testing.server import REQUESTS
from kafka_async.wire import SUPPORTED, Api, Request, Response
from kafka_async.wire.messages import admin, cluster, fetch, group, offsets, produce, share
from kafka_async.wire.shapes import OLD_SHAPES
from tests.wire.kafka_schemas import AHEAD_OF_KIO
from tests.wire.layouts import LAYOUTS

MODULES = (admin, cluster, fetch, group, offsets, produce, share)


def test_every_class_of_ours_is_used() -> None:
    used = {struct.cls for _, struct in LAYOUTS} | set(OLD_SHAPES)
    defined = {
        cls for module in MODULES for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == module.__name__
    }
    assert defined <= used


def comments(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield class, field and comment of every field of a module."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield node.name, field.target.id, lines[field.lineno - 1].partition("  # ")[2]


def presence() -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Return the versions in which a field is there, and those in which its class is."""
    there: dict[str, set[int]] = {}
    fields: dict[tuple[str, str], set[int]] = {}
    for version, struct in LAYOUTS:
        there.setdefault(struct.cls.__name__, set()).add(version)
        for field in struct.fields:
            fields.setdefault((struct.cls.__name__, field.name), set()).add(version)
    return {key: (sorted(versions), sorted(there[key[0]])) for key, versions in fields.items()}


def wanted_marker(present: list[int], possible: list[int]) -> str:
    if present == possible:
        return ""
    return f"v{present[0]}+" if present[-1] == possible[-1] else f"v{present[0]}-{present[-1]}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_comments_name_the_versions_of_each_field(module: ModuleType) -> None:
    known = presence()
    reshaped = {cls.__name__ for cls in OLD_SHAPES}  # their old versions are of another class
    wrong = []
    for cls, field, comment in comments(module):
        found = re.search(r"(?:^|; )(v\d+(?:\+|-\d+))$", comment)
        marker = found.group(1) if found else ""
        if field not in ("api", "response") and cls not in reshaped and marker != wanted_marker(*known[cls, field]):
            wrong.append((cls, field, marker, wanted_marker(*known[cls, field])))
    assert wrong == []


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
