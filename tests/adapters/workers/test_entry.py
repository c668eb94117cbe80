"""How a worker finds its program, and speaks to its parent."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_async import ConsumerConfig, KafkaConsumer, ShareConsumer, sync
from kafka_async.adapters.workers.entry import ParentProcess, RefusedProgram, find, memory, reason
from kafka_async.adapters.workers.reports import CannotRun, Report, read_line
from kafka_async.application.arguments import partition_set
from kafka_async.errors import (
    AuthenticationFailedError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    ProcessingError,
)

PROGRAM = """
import functools

async def main(): return 1
async def given(times=1): return times
async def wanting(times): return times
def plain(): return 1
class Service:
    async def run(self): return 2
service = Service()
class Called:
    async def __call__(self): return 3
called = Called()
number = 1
partial = functools.partial(given, 4)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of this name can be imported."""
    name = "program_of_a_test"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    (tmp_path / f"{name}_broken.py").write_text("import nothing_of_that_name")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for each in (name, f"{name}_broken"):
        sys.modules.pop(each, None)


@pytest.mark.parametrize(("path", "expected"), [("main", 1), ("given", 1), ("service.run", 2), ("called", 3), ("partial", 4)])
async def test_a_program(program: str, path: str, expected: int) -> None:
    assert await find(f"{program}:{path}")() == expected


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("{}", "expected module:function, got"),
        ("{}:", "expected module:function, got"),
        (":main", "expected module:function, got"),
        ("{}_nowhere:main", "cannot be imported: ModuleNotFoundError: No module named"),
        ("{}.deeper:main", "cannot be imported: ModuleNotFoundError: No module named"),
        ("{}_broken:main", "cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("{}:nothing", "has no nothing"),
        ("{}:service.walk", "has no service.walk"),
        ("{}:plain", "expected an 'async def' function without arguments, got function"),
        ("{}:number", "expected an 'async def' function without arguments, got int"),
        ("{}:wanting", r"expected a function without arguments, got wanting\(times\)"),
    ],
)
def test_what_is_no_program_is_refused_by_name(program: str, target: str, why: str) -> None:
    with pytest.raises(RefusedProgram, match=why):
        find(target.format(program))


def test_only_a_program_that_fails_has_a_traceback(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedProgram):
        find(f"{program}_nowhere:main")
    assert capsys.readouterr().err == ""
    with pytest.raises(RefusedProgram):
        find(f"{program}_broken:main")
    assert "import nothing_of_that_name" in capsys.readouterr().err


def test_a_parent_that_does_not_read_holds_up_nothing() -> None:
    life, open_end = os.pipe()
    reading, writing = os.pipe()
    parent = ParentProcess.of(life, writing, 60)
    try:
        assert not os.get_inheritable(life)
        assert not os.get_inheritable(writing)
        for number in range(3000):
            parent.send(Report(rss=number))
        received = b""
        while b'"rss":5000' not in received:
            received += os.read(reading, 65536)
            parent.send(Report(rss=5000))
        numbers = [line.rss for line in map(read_line, received.splitlines()) if isinstance(line, Report)]
        assert numbers == sorted(numbers), "whole lines, in order; the newest in place of those for which there was no room"
        assert len(numbers) < 3000
        parent.begin(lambda: None)
        assert not parent.gone.is_set()
    finally:
        os.close(reading)
        os.close(writing)
        os.close(life)
        os.close(open_end)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KafkaConfigurationError("acks: unknown"), CannotRun("acks: unknown")),
        (ExceptionGroup("", [ExceptionGroup("", [KafkaConfigurationError("acks: unknown")])]), CannotRun("acks: unknown")),
        (NoBrokersAvailable("none of a:1"), CannotRun("NoBrokersAvailable: none of a:1", for_now=True)),
        (ExceptionGroup("", [KafkaTimeoutError("late")]), CannotRun("KafkaTimeoutError: late", for_now=True)),
        (ExceptionGroup("", [KafkaTimeoutError("late"), ValueError("a fault")]), None),
        (AuthenticationFailedError("wrong password"), None),
        (ProcessingError("a record"), None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_a_program_raises_says_whether_it_can_run(error: Exception, expected: CannotRun | None) -> None:
    assert reason(error) == expected


@pytest.mark.parametrize(
    ("make", "options", "why"),
    [
        (KafkaConsumer, {"grop_id": "x"}, "unknown option 'grop_id'; did you mean 'group_id'?"),
        (KafkaConsumer, {"bootstrap_servers": "a:b:c"}, "bootstrap_servers: 'a:b:c' is not an address"),
        (KafkaConsumer, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl_mechanism='PLAIN' needs"),
        (KafkaConsumer, {"interceptors": [1]}, "interceptors="),
        (ShareConsumer, {"group_id": "g", "strict_max_records": 1}, "strict_max_records=1: expected True or False"),
        (sync.KafkaConsumer, {"grop_id": "x"}, "unknown option 'grop_id'"),
        (sync.ShareConsumer, {}, "group_id=None: a share consumer needs the name of its group"),
        (ConsumerConfig.from_env, {"prefix": ""}, "prefix='': expected text such as 'KAFKA_'"),
    ],
)
def test_a_wrong_option_is_a_reason_not_to_run(make: Callable[..., object], options: dict[str, Any], why: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make(**options)
    for error in (caught.value, ExceptionGroup("", [caught.value])):
        found = reason(error)
        assert found is not None
        assert found.why.startswith(why)
        assert not found.for_now


NO_PARTITIONS: Any = 3


@pytest.mark.parametrize("fault", [lambda: int("x"), lambda: json.loads("x"), lambda: partition_set(NO_PARTITIONS)])
def test_other_errors_of_these_types_are_faults_of_the_program(fault: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        fault()
    assert reason(caught.value) is None


def test_memory_is_that_of_this_process() -> None:
    assert 10 << 20 < memory() < 100 << 30
