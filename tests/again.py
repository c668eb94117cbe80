"""Tests of brokers and Spark that failed are run once more, alone, at the end of ``.ci/run``.

They wait for other programs, and a busy machine breaks one in thousands of them. What holds when run alone is printed by name, so
that it is mended and not forgotten. A fast test waits for nobody: if one fails, the run has failed.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from . import tiers

MOST: Final = 10
"""If more tests fail, it was not the machine."""
_ROOT: Final = Path(__file__).parents[1]
_CACHE: Final = "tests-that-failed"
_FILE: Final = "by-tier.json"


KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit statuses of workers that another process ended: a fault of their own, such as a segmentation fault, has other signals."""


def ending(status: int | None) -> str:
    """Say in words how a process ended that has this exit status, as ``subprocess`` has it."""
    if status is None or status >= 0:
        return f"it ended with the status {status}"
    return f"it was ended by the signal {-status} ({signal.strsignal(-status)})"


class Failures:
    """A plugin that keeps which tests failed, and the tier of each, in pytest's cache."""

    def __init__(self, config: pytest.Config) -> None:
        cache: pytest.Cache | None = getattr(config, "cache", None)  # ``-p no:cacheprovider`` leaves none
        self._file = None if cache is None else cache.mkdir(_CACHE) / _FILE
        self._root = config.rootpath
        self._tiers: dict[str, str] = {}
        self._statuses: dict[str, int | None] = {}
        """How workers ended that did so in the middle of a test."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error is not None:
            self._statuses[node.gateway.id] = node.gateway._io.wait()  # execnet shows the process of a worker nowhere else

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Say how the worker ended. If another process killed it, as a system short of memory does, its test did not fail."""
        from .workers import kind_of  # xdist is not needed to run a test

        status = self._statuses.get(report.node.gateway.id)
        report.longrepr = f"{report.longrepr}: {ending(status)}"
        if status in KILLED and kind_of(str(self._root / crashitem.partition("::")[0])) != tiers.FAST:
            report.keywords[tiers.BROKERS] = 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # A test that ended its worker has no markers. It counts as fast, so it is not run again.
            # Names of folders are keywords too: a fast test of adapters/spark has two tiers among them.
            self._tiers[report.nodeid] = next((tier for tier in tiers.TIERS if tier in report.keywords), tiers.FAST)

    def pytest_sessionfinish(self) -> None:
        if self._file is not None:
            self._file.write_text(json.dumps(self._tiers))


def to_repeat(status: int, failed: Mapping[str, str]) -> list[str]:
    """Return the ids of the tests to run again; none if the failure stands.

    ``status``: pytest's exit code. ``failed``: the tier of each test that failed, by its id.
    """
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MOST or tiers.FAST in failed.values():
        return []
    return list(failed)


def main(status: int, cache: Path = _ROOT / ".pytest_cache") -> int:
    """Repeat what may be repeated after a run that ended with the exit code ``status``; return the exit code of the whole.

    ``cache``: pytest's in that run. Runs that are under way at the same time have one each.
    """
    file = cache / "d" / _CACHE / _FILE
    names = to_repeat(status, json.loads(file.read_text()) if file.is_file() else {})
    if not names:
        return status
    print(f"Run again, alone: {len(names)} tests of brokers or Spark that failed", flush=True)  # noqa: T201  # for who reads the run
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *names]
    again = subprocess.run(command, cwd=_ROOT, check=False).returncode  # noqa: S603  # our tests
    if again == 0:
        print("Failed once, and held when run alone; to be mended first:", *names, sep="\n  ")  # noqa: T201  # for who reads the run
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *map(Path, sys.argv[2:])))
