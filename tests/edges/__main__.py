"""``python -m tests.edges``: programs of the matrix, as many as there is time for.

``--kind calls`` (events, ends, cancellations, meanwhile) runs one of the exhaustive lists, ``--seconds 600 --seed 1`` random
programs from that number on, and ``"Program(...)"`` just that one. A failing program is cut down and printed.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count, islice

from attrs import evolve

from . import programs
from .programs import EXHAUSTIVE, Program, cut_down, random_program
from .runner import run


def failures(of: Iterable[Program], *, seconds: float = 3600.0, most: int = 1000) -> Iterator[tuple[Program, list[str]]]:
    """Run programs; yield those that fail, and what was wrong with each, up to ``most``."""
    ends = time.monotonic() + seconds
    found = 0
    for program in of:
        if time.monotonic() > ends or found >= most:
            return
        if wrong := run(program):
            found += 1
            yield program, wrong


def smallest(program: Program, wrong: list[str]) -> tuple[Program, list[str]]:
    """Return the smallest program that fails in the same way, and how."""
    kind = _kind(wrong)
    smaller = cut_down(program, lambda candidate: bool(found := run(candidate)) and _kind(found) == kind)
    return smaller, run(smaller)


def _kind(wrong: list[str]) -> str:
    return "".join(letter for letter in wrong[0] if not letter.isdigit())


def main() -> int:
    """Run what the command line asks for; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.edges")
    parser.add_argument("program", nargs="?")
    parser.add_argument("--kind", choices=[*EXHAUSTIVE, "all", "random"], default="random")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--most", type=int, default=20, help="failures after which it ends")
    parser.add_argument("--schedule", type=int, help="have answers take random times, the same for the same number")
    parser.add_argument("--whole", action="store_true", help="print failing programs as they are")
    arguments = parser.parse_args()
    logging.disable()
    if arguments.program:
        wrong = run(eval(arguments.program, vars(programs)))  # noqa: S307  # a program of one's own, from one's own command line
        print(*wrong or ["all is well"], sep="\n")  # noqa: T201  # a command
        return bool(wrong)
    source: Iterable[Program] = (
        programs.every_program() if arguments.kind == "all" else (random_program(n) for n in count(arguments.seed))
    )
    if arguments.kind in EXHAUSTIVE:
        source = EXHAUSTIVE[arguments.kind]()
    ran = count()
    if arguments.schedule is not None:
        source = (evolve(each, schedule=arguments.schedule) for each in source)
    counted = (each for each in islice(source, arguments.count) if next(ran) >= 0)
    seen: dict[str, int] = {}
    for program, wrong in failures(counted, seconds=arguments.seconds, most=arguments.most if not arguments.whole else 10**9):
        seen[_kind(wrong)] = seen.get(_kind(wrong), 0) + 1
        if seen[_kind(wrong)] <= 3:
            small, why = (program, wrong) if arguments.whole else smallest(program, wrong)
            print(f"{small!r}\n    " + "\n    ".join(why[:3]), flush=True)  # noqa: T201  # a command
    print(f"{next(ran)} programs, {sum(seen.values())} failed", *(f"{n:5}  {kind}" for kind, n in seen.items()), sep="\n")  # noqa: T201  # a command
    return bool(seen)


if __name__ == "__main__":
    sys.exit(main())
