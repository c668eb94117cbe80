"""Which failures of a run are tried once more."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..again import MOST, main, to_repeat

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("status", "failed", "expected"),
    [
        (1, {"a": "brokers", "b": "spark"}, ["a", "b"]),
        (1, {"a": "brokers", "b": "fast"}, []),  # the fast one has failed for good
        (1, {}, []),
        (1, {f"{number}": "brokers" for number in range(MOST + 1)}, []),  # that many is not the machine
        (2, {"a": "brokers"}, []),  # interrupted, or not collected
        (3, {"a": "brokers"}, []),
    ],
)
def test_only_a_few_tests_that_wait_for_other_programs_are_repeated(
    status: int, failed: Mapping[str, str], expected: list[str]
) -> None:
    assert to_repeat(status, failed) == expected


@pytest.mark.parametrize("failed", [None, {}, {"tests/whole/test_tiers.py::test": "fast"}])
def test_what_is_not_repeated_has_failed(failed: Mapping[str, str] | None, tmp_path: Path) -> None:
    if failed is not None:
        file = tmp_path / "d" / "tests-that-failed" / "by-tier.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(failed))

    assert main(1, tmp_path) == 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.brokers)])
def test_a_run_keeps_which_tests_failed(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makeconftest(
        "import pytest\nfrom tests.again import Failures\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Failures(config))\n"
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    brokers\n    fast\n")
    part = pytester.mkpydir("spark") / "test_part.py"
    part.write_text("import pytest\n@pytest.mark.fast\ndef test_part(): assert False\n")
    pytester.makepyfile(
        "import pytest\n"
        "def test_fast(): assert False\n"
        "def test_good(): pass\n"
        "@pytest.mark.brokers\n"
        "def test_broker(): assert False\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError\n"
        "@pytest.mark.brokers\n"
        "def test_setup(broken): pass\n"
    )

    result = pytester.runpytest_inprocess("-p", "no:kafka-async", *workers)

    assert result.ret == 1
    kept = json.loads((pytester.path / ".pytest_cache" / "d" / "tests-that-failed" / "by-tier.json").read_text())
    assert {name.partition("::")[2]: tier for name, tier in kept.items()} == {
        "test_fast": "fast",
        "test_part": "fast",
        "test_broker": "brokers",
        "test_setup": "brokers",
    }


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("number", "waits", "expected"),
    [("SIGKILL", True, "brokers"), ("SIGSEGV", True, "fast"), ("SIGKILL", False, "fast")],
    ids=["killed", "crashed", "a fast test"],
)
def test_a_test_whose_worker_another_process_killed_is_repeated(
    pytester: pytest.Pytester, number: str, waits: bool, expected: str
) -> None:
    pytester.makeconftest(
        "from tests.again import Failures\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Failures(config))\n"
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    brokers\n")
    mark = "@pytest.mark.brokers\n" if waits else ""
    pytester.makepyfile(f"import os, pytest, signal\n{mark}def test_one(): os.kill(os.getpid(), signal.{number})\n")

    result = pytester.runpytest_inprocess("-p", "no:kafka-async", "-p", "no:faulthandler", "-n", "1")

    result.stdout.fnmatch_lines([f"*crashed while running*it was ended by the signal {int(getattr(signal, number))} *"])
    kept = json.loads((pytester.path / ".pytest_cache" / "d" / "tests-that-failed" / "by-tier.json").read_text())
    assert list(kept.values()) == [expected]
