"""Which worker of pytest-xdist takes which file of tests, and what becomes of the tests of a worker that dies."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parents[2])!r})


def pytest_xdist_make_scheduler(config, log):
    from tests.workers import ByKind

    return ByKind(config, log)
"""
DIES = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(3))
def test_dies(number):
    with Path("ran").open("a") as ran:
        ran.write(f"{{__name__}} {{number}} ")
    if number == {where}:
        os._exit(3)
"""


@pytest.mark.brokers  # it waits for other programs
@pytest.mark.parametrize("workers", [1, 3])
def test_what_a_worker_that_dies_leaves_is_run_once_by_others(tmp_path: Path, workers: int) -> None:
    """Also what kills the next worker, and a single last test."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, where in (("a", 1), ("b", 1), ("c", 2), ("d", None)):
        (tmp_path / f"test_{name}.py").write_text(DIES.format(where=where))
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    options = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder", str(tmp_path)]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=40)  # noqa: S603  # our own command
    assert "3 failed, 9 passed" in done.stdout, done.stdout + done.stderr
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(zip(ran[::2], ran[1::2], strict=True)) == [
        (f"test_{name}", str(number)) for name in "abcd" for number in range(3)
    ]
