"""The public names: what the package exports is what the README and the docstrings explain."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import kafka_async
from kafka_async import errors, trace
from kafka_async.application.ranges import RangeCalls
from kafka_async.sync import KafkaConsumer as BlockingConsumer

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize("name", [name for name in kafka_async.__all__ if not name.startswith("_")])
def test_every_public_name_has_a_docstring_and_is_in_the_readme(name: str) -> None:
    assert inspect.getdoc(getattr(kafka_async, name))
    assert name in README


def _public_methods(cls: type) -> set[str]:
    return {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


_METHODS = _public_methods(kafka_async.KafkaConsumer) | _public_methods(RangeCalls)


@pytest.mark.parametrize("name", sorted(_METHODS))
def test_every_public_method_says_what_it_does(name: str) -> None:
    assert inspect.getdoc(getattr(kafka_async.KafkaConsumer, name))


PUBLIC = [value for name in kafka_async.__all__ if inspect.isclass(value := getattr(kafka_async, name))]


@pytest.mark.parametrize("cls", [*PUBLIC, BlockingConsumer], ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_public_class_says_what_each_of_its_methods_does(cls: type) -> None:
    assert [name for name in _public_methods(cls) if not inspect.getdoc(vars(cls)[name])] == []


def test_every_trace_event_says_when_it_comes() -> None:
    assert [event.__name__ for event in get_args(trace.TraceEvent) if not vars(event)["__doc__"]] == []


def test_the_blocking_consumer_has_every_method_of_the_other_one() -> None:
    assert _public_methods(BlockingConsumer) == _METHODS


def test_every_error_class_stands_in_the_tree_or_has_a_code() -> None:
    tree = errors.__doc__ or ""
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    for cls in classes:
        assert cls.__name__ in tree or cls in errors.BY_CODE.values(), f"{cls.__name__} is not drawn in the tree"


def test_every_file_that_the_readme_names_exists() -> None:
    root = Path(__file__).parent.parent
    rows = [line for line in README.splitlines() if line.startswith("| ")]
    named = {path for row in rows for path in re.findall(r"`([\w./]+\.py)`", row)}
    places = [root / "kafka_async", root / "kafka_async" / "background", root / "kafka_async" / "records", root / "tests", root]
    assert named
    assert not [path for path in sorted(named) if not any((place / path).exists() for place in places)]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = next(line for line in README.splitlines() if line.startswith("python3 -m venv") and "pytest" in line)
    assert command in (Path(__file__).parent.parent / ".ci" / "run").read_text()
