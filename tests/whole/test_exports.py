"""The public names: what the package exports is explained, in the code and on the page of how it is built."""

import ast
import importlib
import inspect
import re
from math import inf
from pathlib import Path
from typing import Any, get_args

import pytest

import kafka_async
from kafka_async import errors, trace
from kafka_async.lazy import public_name
from kafka_async.sync import KafkaConsumer as BlockingConsumer
from kafka_async.sync import ShareConsumer as BlockingShareConsumer

ROOT = Path(__file__).parents[2]
BUILT = (ROOT / "kafka_async" / "README.md").read_text()


@pytest.mark.parametrize("name", [name for name in kafka_async.__all__ if not name.startswith("_")])
def test_every_public_name_has_a_docstring_and_is_in_the_list_of_them(name: str) -> None:
    assert inspect.getdoc(getattr(kafka_async, name))
    assert name in listed("kafka_async")


def listed(module: str) -> set[str]:
    """Return the names in the list that programs import from a module."""
    of: dict[str, set[str]] = {}
    where = ""
    for said, names in re.findall(r"^\| (`[\w.]+`)? ?\| (.*?) \|", BUILT.partition("## Public names")[2], re.MULTILINE):
        where = said.strip("`") or where
        of.setdefault(where, set()).update(re.findall(r"`(\w+)`", names))
    return of[module]


@pytest.mark.parametrize("module", ["adapters.tables", "spark", "sync", "testing"])
def test_every_name_that_a_module_gives_out_is_in_the_list(module: str) -> None:
    if module == "spark":
        pytest.importorskip("pyspark")
    assert set(importlib.import_module(f"kafka_async.{module}").__all__) <= listed(f"kafka_async.{module}")


def _public_methods(cls: type) -> set[str]:
    return {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


_METHODS = _public_methods(kafka_async.KafkaConsumer)


@pytest.mark.parametrize("name", sorted(_METHODS))
def test_every_public_method_says_what_it_does(name: str) -> None:
    assert inspect.getdoc(getattr(kafka_async.KafkaConsumer, name))


PUBLIC = [value for name in kafka_async.__all__ if inspect.isclass(value := getattr(kafka_async, name))]


@pytest.mark.parametrize(
    "cls", [*PUBLIC, BlockingConsumer, BlockingShareConsumer], ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
def test_every_public_class_says_what_each_of_its_methods_does(cls: type) -> None:
    assert [name for name in _public_methods(cls) if not inspect.getdoc(vars(cls)[name])] == []


def test_every_trace_event_says_when_it_comes() -> None:
    assert [event.__name__ for event in get_args(trace.TraceEvent) if not vars(event)["__doc__"]] == []


BOTH = [(kafka_async.KafkaConsumer, BlockingConsumer), (kafka_async.ShareConsumer, BlockingShareConsumer)]
OF_THE_FACADE = {"runtime"}
"""Parameters that exist so that the blocking facade can be made."""
ITS_OWN = ("consumer_timeout_ms", inspect.Parameter.KEYWORD_ONLY, inf)
"""What only iteration with a blocking consumer has, so that it is not in the configuration that both take."""


def _surface(cls: type) -> dict[str, list[tuple[str, object, object]] | str]:
    """Return what users can call, with names, kinds and defaults of the parameters."""
    surface: dict[str, list[tuple[str, object, object]] | str] = {}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            surface[name] = "property"
            continue
        parameters = inspect.signature(getattr(cls, name)).parameters.values()
        surface[name] = [(each.name, each.kind, each.default) for each in parameters if each.name not in OF_THE_FACADE]
    return surface


@pytest.mark.parametrize(("cls", "blocking"), BOTH, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_blocking_consumers_have_the_methods_of_the_others_with_the_same_arguments(cls: type, blocking: type) -> None:
    expected = _surface(cls)
    if isinstance(of_config := expected.get("from_config"), list):
        of_config.append(ITS_OWN)
    assert _surface(blocking) == expected


def test_a_blocking_consumer_is_made_of_checked_options() -> None:
    consumer = BlockingConsumer.from_config(kafka_async.ConsumerConfig.of(bootstrap_servers="nowhere:1"), "orders")
    assert consumer.subscription() == {"orders"}


@pytest.mark.parametrize("cls", [kafka_async.KafkaConsumer, BlockingConsumer])
@pytest.mark.parametrize("given", [{"sasl_plain_password": "hunter2"}, None])
def test_from_config_says_what_it_takes(cls: Any, given: Any) -> None:
    with pytest.raises(TypeError, match=f"^config is of type {type(given).__name__}: expected a ConsumerConfig, such as "):
        cls.from_config(given, "orders")


def test_every_error_class_stands_in_the_tree_or_has_a_code() -> None:
    tree = errors.__doc__ or ""
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    for cls in classes:
        assert cls.__name__ in tree or cls in errors.BY_CODE.values(), f"{cls.__name__} is not drawn in the tree"


def test_what_is_stored_of_a_class_is_the_name_by_which_programs_import_it() -> None:
    """Dead letters name the exception. Modules that programs do not import from may be moved."""
    classes = [found for name in kafka_async.__all__ if inspect.isclass(found := getattr(kafka_async, name))]
    classes += [found for _, found in inspect.getmembers(errors, inspect.isclass) if found.__module__ == errors.__name__]
    for cls in classes:
        module, _, name = public_name(cls).rpartition(".")
        assert module in ("kafka_async", "kafka_async.errors")
        assert getattr(importlib.import_module(module), name) is cls
    assert public_name(kafka_async.Reject) == "kafka_async.Reject"
    assert public_name(OSError) == "builtins.OSError"
    assert public_name(ast.NodeVisitor) == "ast.NodeVisitor"
