"""The part of the soak that is small enough for every run; ``python -m tests.faults.soak`` does an hour's work and counts bytes."""

from functools import partial

import pytest
from hypothesis.internal.entropy import deterministic_PRNG

from tests.effort import apart
from tests.virtual import run_virtual

from .soak import PROTOCOLS, Measure, soak_in_memory

ROUNDS = 40
SEEDS = (0, 1)
"""Each decides the trouble, and the times that answers take."""


class _Kept:
    """Something that a program forgot to let go."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEEDS[0], *apart(*SEEDS[1:])])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_grows_with_trouble(protocol: str | None, seed: int) -> None:
    with deterministic_PRNG(seed):
        grown, done = run_virtual(partial(soak_in_memory, protocol, ROUNDS, seed))
    assert not grown
    assert {"cancelled", "cut", "errors", "hang", "move", "refuse", "stop"} <= done.keys()


@pytest.mark.slow
def test_growth_is_seen() -> None:
    before = Measure.take(3)
    kept = [_Kept() for _ in range(200)]
    growth = Measure.take(4).growth_since(before)
    assert growth == {f"{__name__}._Kept": len(kept), "connections": 1}
