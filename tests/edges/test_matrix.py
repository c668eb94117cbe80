"""The matrix of edges: every way of reading, every call between two records, every event between two records."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from attrs import evolve

from tests.effort import apart

from .__main__ import failures, smallest
from .programs import EXHAUSTIVE, Program, random_program

RANDOM = 1200
"""How many random programs a full run has."""
SCHEDULES = (1, *apart(2))
"""Seeds of schedules; an eighth of the exhaustive lists runs with each of them too."""
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 7)), *apart(*range(7, 16))]
"""The programs are divided among sixteen tests. The first is fast, and nine run each time: neighbors differ in one step only."""
RANDOM_PARTS = [*range(3), *apart(*range(3, 8))]
"""Half of the random programs run each time; ``python -m tests.edges`` runs as many others as there is time for."""
SHOWN = 5
"""Failing programs that are cut down and shown."""


def numbered(seeds: Iterable[int]) -> Iterator[Program]:
    """Return random programs, on asyncio: trio runs tasks in a random order, so a finding there would come and go."""
    return (evolve(random_program(seed), backend="asyncio") for seed in seeds)


def check(programs: Iterator[Program]) -> None:
    """Run programs; fail with the smallest ones that show what is wrong."""
    found = [smallest(program, wrong) for program, wrong in failures(programs, most=SHOWN)]
    shown = [f'python -m tests.edges "{program!r}"\n    ' + "\n    ".join(wrong[:3]) for program, wrong in found]
    assert not found, "\n" + "\n".join(shown)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", sorted(EXHAUSTIVE))
def test_every_combination_holds(kind: str, part: int) -> None:
    check(islice(EXHAUSTIVE[kind](), part, None, len(PARTS)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize("kind", sorted(EXHAUSTIVE))
def test_combinations_hold_whatever_times_answers_take(kind: str, seed: int) -> None:
    programs = (evolve(program, schedule=seed) for program in islice(EXHAUSTIVE[kind](), seed, None, 8))
    check(programs)


@pytest.mark.slow
@pytest.mark.parametrize("part", RANDOM_PARTS)
def test_random_programs_hold(part: int) -> None:
    check(numbered(range(part, RANDOM, len(RANDOM_PARTS))))


@pytest.mark.brokers
def test_random_programs_hold_on_the_other_decoder() -> None:
    """The other half of the pair, in a process of its own, since the half to use is chosen once, at import."""
    pure = "" if os.environ.get("KAFKA_ASYNC_PURE") == "1" else "1"
    program = (
        "import logging; logging.disable(); from tests.edges.test_matrix import check, numbered; "
        "check(numbered(range(50_000, 50_150)))"
    )
    command = [sys.executable, "-c", program]
    root = Path(__file__).parents[2]
    done = subprocess.run(  # noqa: S603  # our own command
        command, cwd=root, env=os.environ | {"KAFKA_ASYNC_PURE": pure}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_prints_as_what_makes_it() -> None:
    from . import programs

    for program in (*islice(programs.every_program(), 0, None, 97), *map(random_program, range(50))):
        assert eval(repr(program), vars(programs)) == program  # noqa: S307  # that is what is tested
