"""Programs as data: what a consumer is like, and the steps that an application and the world take.

Decides: which programs there are. Owns nothing. A program prints as the Python that makes it, so that a failing one can be run
again: ``python -m tests.edges "Program(...)"``.
"""

from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any, Final, TypeAlias

from attrs import evolve, fields, frozen

PROTOCOLS: Final = ("classic", "cooperative", "consumer", "manual")
"""Classic with an eager assignor, classic with a cooperative one, KIP-848, and ``assign`` with a group for its offsets."""
WAYS: Final = ("getone", "getmany", "iterate", "getarrow")
PARTITIONS: Final = 2

LOOKS: Final = (
    "position",
    "committed",
    "committed_offsets",
    "statistics",
    "metrics",
    "current_lag",
    "next_offsets",
    "highwater",
    "last_stable_offset",
    "paused",
    "subscription",
    "assignment",
    "state",
    "partitions_for_topic",
    "group_metadata",
    "end_offsets",
    "beginning_offsets",
    "offsets_for_times",
    "topics",
)
"""Calls that only look."""
COMMITS: Final = ("commit", "commit_offsets")
MOVES: Final = (
    "pause",
    "resume",
    "pause_and_resume",
    "seek",
    "seek_to_beginning",
    "seek_to_end",
    "seek_to_committed",
    "seek_to_timestamp",
)
SUBSCRIPTIONS: Final = ("subscribe_again", "resubscribe", "reassign", "enforce_rebalance")
CALLS: Final = LOOKS + COMMITS + MOVES + SUBSCRIPTIONS
GROUP_EVENTS: Final = ("rebalance", "taken", "taken_one", "given_back", "taken_and_given_back", "expelled")
EVENTS: Final = (
    "nothing",
    "due",
    "blocked",
    "blocked_for_long",
    "idle_for_long",
    "outage",
    "half_open",
    "produce",
    "new_poison",
    "refused",
    "unreadable",
    "made_anew",
    "pass",
)
READING_EVENTS: Final = ("two_read", "parked", "busy")
"""Events in which the application reads in a way of its own. They are not for the time of another read."""
ENDS: Final = ("stop", "stop_twice", "stop_elsewhere", "stop_while_reading", "error", "cancelled", "unsubscribe_and_stop")


class _Plain:
    """Prints as the call that makes it, without default values."""

    __slots__ = ()

    def __repr__(self) -> str:
        values = [(each.name, getattr(self, each.name), each.default) for each in fields(type(self))]  # type: ignore[arg-type]  # the children are attrs classes
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value, default in values if value != default)})"


@frozen(repr=False)
class Read(_Plain):
    """``count`` records in this way: one call for ``getmany`` and ``getarrow``, one step each for the others."""

    way: str = "getone"
    count: int = 1
    only: int | None = None
    """Of this partition alone."""


@frozen(repr=False)
class Call(_Plain):
    """A public call that does not read."""

    name: str
    partition: int = 0
    offset: int = 0


@frozen(repr=False)
class Event(_Plain):
    """Something that happens; ``wait``: seconds until the next step, in which the background may notice."""

    name: str
    partition: int = 0
    wait: float = 0.0


@frozen(repr=False)
class During(_Plain):
    """Another step is taken ``after`` seconds of a read that is under way."""

    read: Read
    step: "Call | Event | Read"
    after: float = 0.0


@frozen(repr=False)
class Cut(_Plain):
    """The read is cancelled when it suspends for the ``place``-th time, if it does."""

    read: Read
    place: int = 1


@frozen(repr=False)
class Timed(_Plain):
    """The read is cancelled after ``seconds``, each of ``times`` times."""

    read: Read
    seconds: float = 0.01
    times: int = 1


@frozen(repr=False)
class End(_Plain):
    """The consumer ends, in one of the ways of ``ENDS``; a new one of the same group does what follows."""

    how: str = "stop"


Step: TypeAlias = Read | Call | Event | During | Cut | Timed | End


@frozen(repr=False)
class Program(_Plain):
    """A consumer, its world, and what happens."""

    steps: tuple[Step, ...] = ()
    protocol: str = "classic"
    auto_commit: bool = True
    call_backs: bool = True
    """With a deserializer and an interceptor."""
    records: int = 12
    """Records that each partition holds at first."""
    per_batch: int = 5
    poison: tuple[int, ...] = ()
    """Offsets of partition 0 that no deserializer accepts."""
    flaky: tuple[int, ...] = ()
    """Offsets of partition 0 that a deserializer refuses twice with an error that may be tried again."""
    corrupt: int | None = None
    """An offset of partition 0 whose batch is corrupt."""
    slow: float = 0.0
    """Seconds that a deserializer takes for a record; 0: it is a plain function."""
    listener: float = 0.0
    """Seconds that a call-back of the rebalance listener takes; 0: it is a plain method."""
    commit_takes: float = 0.0
    """Seconds until the coordinator has stored offsets."""
    small: bool = False
    """The buffer is full with a batch, so partitions give way to those that are asked for."""
    plain: bool = False
    """The methods of the rebalance listener are plain ones."""
    backend: str = "asyncio"
    schedule: int | None = None
    """The seed of the times that answers take; ``None``: all take the same time."""

    @property
    def manual(self) -> bool:
        return self.protocol == "manual"


# --- exhaustive -----------------------------------------------------------------------------------------------------------------


def _event(name: str) -> Event:
    return Event(name, wait=4.0 if name in GROUP_EVENTS else 0.0)


def _read(way: str, count: int) -> Read:
    return Read(way, count)


def every_call_between_records() -> Iterator[Program]:
    """Each way of reading x each call x each way of reading on, past a poison record that the first batch has already reached."""
    for first, call, then in product(WAYS, CALLS, WAYS):
        steps = (
            _read(first, 2),
            Call(call, 0, 1),
            _read(then, 2),
            Call(call, 0, 3),
            _read(first, 4),
            Call(call, 1, 2),
            _read(then, 9),
        )
        yield Program(steps, protocol=PROTOCOLS[_mix(first, call, then) % 4], poison=(4, 6), auto_commit=_mix(call, then) % 2 == 0)


def every_event_between_records() -> Iterator[Program]:
    """Each protocol x each event x each way of reading before and after, with a call after the event."""
    for protocol, event, first, then in product(PROTOCOLS, EVENTS + GROUP_EVENTS + READING_EVENTS, WAYS, WAYS):
        if protocol == "manual" and event in GROUP_EVENTS:
            continue
        seed = _mix(protocol, event, first, then)
        call = CALLS[seed % len(CALLS)]
        steps = (_read(first, 3), _event(event), _read(then, 2), Call(call, seed % 2, seed % 7), _read(then, 3))
        yield Program(
            steps,
            protocol=protocol,
            auto_commit=seed % 3 > 0,
            call_backs=seed % 5 > 0 and event != "busy",
            poison=(5,) if seed % 5 > 2 and event != "busy" else (),
            small=event == "parked",
            plain=seed % 2 == 0,
        )


def every_end() -> Iterator[Program]:
    """Each protocol x each end x each way of reading before it, with or without a commit between, and a new consumer after it."""
    for protocol, how, way, committed in product(PROTOCOLS, ENDS, WAYS, (None, *COMMITS)):
        between = () if committed is None else (Call(committed, 0, 2),)
        steps = (_read(way, 3), *between, _read(way, 2), End(how), _read(way, 3))
        yield Program(steps, protocol=protocol, commit_takes=0.2 if _mix(how, way) % 2 else 0.0)


def every_cancellation() -> Iterator[Program]:
    """Each way of reading, cancelled at each of its first suspensions, on records, in call-backs and in rebalances."""
    for protocol, way, place, slow in product(PROTOCOLS, WAYS, range(1, 6), (0.0, 0.01)):
        event = "pass" if protocol == "manual" else GROUP_EVENTS[_mix(protocol, way, str(place)) % len(GROUP_EVENTS)]
        steps = (Cut(_read(way, 3), place), _read(way, 2), _event(event), Cut(_read(way, 2), place), _read(way, 2))
        yield Program(steps, protocol=protocol, slow=slow, poison=(3,) if slow else (), listener=0.0)


def every_meanwhile() -> Iterator[Program]:
    """Each call, and each read, while a read with a slow deserializer is at work."""
    others: list[Call | Event | Read] = [Call(name, 0, 1) for name in CALLS]
    others += [Read(way, 2) for way in WAYS]
    for way, other, after in product(WAYS, others, (0.0, 0.015, 0.035)):
        seed = _mix(way, repr(other), str(after))
        steps = (
            _read(way, 1),
            During(_read(way, 4), other, after),
            _read(way, 2),
            During(_read(way, 3), other, after),
            _read(way, 3),
        )
        yield Program(steps, protocol=PROTOCOLS[seed % 4], slow=0.01, poison=(3,) if seed % 2 else ())


def every_program() -> Iterator[Program]:
    """All of the above."""
    for kind in EXHAUSTIVE.values():
        yield from kind()


EXHAUSTIVE: Final[dict[str, Callable[[], Iterator[Program]]]] = {
    "calls": every_call_between_records,
    "events": every_event_between_records,
    "ends": every_end,
    "cancellations": every_cancellation,
    "meanwhile": every_meanwhile,
}


def _mix(*words: str) -> int:
    """Return a number that is the same in every run."""
    value = 7
    for letter in "".join(words):
        value = (value * 31 + ord(letter)) % 1_000_003
    return value


# --- random ---------------------------------------------------------------------------------------------------------------------


def random_program(seed: int) -> Program:
    """Return the program of a number: up to 14 steps of any kind. Programs of odd numbers have a schedule, too."""
    chance = Random(seed)  # noqa: S311  # not a secret
    protocol = chance.choice(PROTOCOLS)
    call_backs = chance.random() < 0.75
    program = Program(
        protocol=protocol,
        auto_commit=chance.random() < 0.7,
        call_backs=call_backs,
        records=chance.choice((6, 12, 30)),
        per_batch=chance.choice((1, 3, 5, 10)),
        poison=tuple(sorted(chance.sample(range(12), chance.choice((0, 0, 1, 2))))) if call_backs else (),
        flaky=(chance.randrange(10),) if call_backs and chance.random() < 0.2 else (),
        corrupt=chance.randrange(12) if chance.random() < 0.15 else None,
        slow=chance.choice((0.0, 0.0, 0.01)) if call_backs else 0.0,
        listener=chance.choice((0.0, 0.0, 0.05, 1.0)),
        commit_takes=chance.choice((0.0, 0.0, 0.05, 0.5)),
        plain=chance.random() < 0.25,
        backend=chance.choice(("asyncio", "asyncio", "trio")),
        schedule=seed if seed % 2 else None,
    )
    steps: list[Step] = [_random_read(chance)]
    steps += [_random_step(chance, program) for _ in range(chance.randint(2, 13))]
    return evolve(program, steps=tuple(steps))


def _random_read(chance: Random) -> Read:
    way = chance.choice((*WAYS, "iterate"))
    return Read(way, chance.choice((1, 1, 2, 3, 7)), chance.choice((None, None, None, 0, 1)))


def _random_step(chance: Random, program: Program) -> Step:
    kind = chance.choices(("read", "call", "event", "during", "cut", "timed", "end"), (30, 30, 18, 9, 6, 4, 3))[0]
    read = _random_read(chance)
    makers: dict[str, Callable[[], Any]] = {
        "read": lambda: read,
        "call": lambda: _random_call(chance),
        "event": lambda: _random_event(chance, program),
        "during": lambda: During(read, _random_other(chance, program), chance.choice((0.0, 0.005, 0.02, 0.3))),
        "cut": lambda: Cut(read, chance.randint(1, 8)),
        "timed": lambda: Timed(read, chance.choice((0.001, 0.012, 0.03, 0.2)), chance.randint(1, 4)),
        "end": lambda: End(chance.choice(ENDS)),
    }
    step: Step = makers[kind]()
    return step


def _random_call(chance: Random) -> Call:
    kind = chance.choices((LOOKS, COMMITS, MOVES, SUBSCRIPTIONS), (4, 3, 4, 1))[0]
    return Call(chance.choice(kind), chance.randrange(PARTITIONS), chance.randrange(8))


def _random_event(chance: Random, program: Program) -> Event:
    names = EVENTS if program.manual else EVENTS + GROUP_EVENTS + GROUP_EVENTS
    return Event(chance.choice(names), chance.randrange(PARTITIONS), chance.choice((0.0, 0.0, 0.1, 4.0)))


def _random_other(chance: Random, program: Program) -> Call | Event | Read:
    others: tuple[Callable[[], Call | Event | Read], ...] = (
        lambda: _random_call(chance),
        lambda: _random_call(chance),
        lambda: _random_event(chance, program),
        lambda: _random_read(chance),
    )
    return chance.choice(others)()


# --- cutting down ---------------------------------------------------------------------------------------------------------------


def cut_down(program: Program, fails: Callable[[Program], bool], tries: int = 150) -> Program:
    """Return the smallest program found in ``tries`` that still fails: fewer steps, then a plainer consumer."""
    smaller, tried = True, 0
    while smaller:
        smaller = False
        for candidate in _smaller(program):
            tried += 1
            if tried > tries:
                return program
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    steps = program.steps
    for size in (4, 2, 1):
        for index in range(0, len(steps) - size + 1):
            yield evolve(program, steps=steps[:index] + steps[index + size :])
    for index, step in enumerate(steps):
        for plainer in _plainer(step):
            yield evolve(program, steps=(*steps[:index], plainer, *steps[index + 1 :]))
    plain = Program()
    for each in fields(Program):
        if each.name not in ("steps", "protocol") and getattr(program, each.name) != getattr(plain, each.name):
            yield evolve(program, **{each.name: getattr(plain, each.name)})


def _plainer(step: Step) -> Iterator[Step]:
    match step:
        case Read(count=count) if count > 1:
            yield evolve(step, count=1)
            yield evolve(step, count=count - 1)
        case Read(only=only) if only is not None:
            yield evolve(step, only=None)
        case During(read=read, step=other):
            yield read
            yield other
            for count in range(1, read.count):
                yield evolve(step, read=evolve(read, count=count))
        case Cut(read=read):
            yield read
        case Timed(read=read, times=times):
            yield read
            if times > 1:
                yield evolve(step, times=times - 1)
        case Call() | Event() if step.partition:
            yield evolve(step, partition=0)
        case _:
            return
