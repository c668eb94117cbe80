"""``python -m tests.edges.real``: programs of the matrix against a real broker, several at once, for as many seconds as are given.

Decides: which programs a real broker can run, and what replaces a coordinator that the test controls: another member that comes and
goes. What only such a coordinator knows (who owns what at this moment) is not checked here.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Final

from attrs import define, evolve, field
from confluent_kafka import Producer

from kafka_async import TopicPartition
from tests.brokers import CURRENT, KafkaCluster
from tests.integration.groups import Group, new_group
from tests.integration.tools import make, new_topic

from . import programs
from .model import Model
from .programs import PARTITIONS, During, Event, Program, Step, random_program
from .runner import Runner
from .world import World

EVENTS: Final = frozenset(
    {
        "nothing",
        "due",
        "pass",
        "produce",
        "new_poison",
        "rebalance",
        "taken",
        "taken_one",
        "given_back",
        "taken_and_given_back",
    }
)
"""Events that a test can cause at a real broker without harm to the other programs."""
BACKGROUNDS: Final = ("task", "thread")
_ASSIGNORS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"partition_assignment_strategy": ("range",)},
    "cooperative": {"partition_assignment_strategy": ("cooperative-sticky",)},
}


def real_program(seed: int) -> Program:
    """Return the random program of a number, without steps that a real broker cannot be made to take."""
    program = random_program(seed)
    steps = tuple(step for step in program.steps if _is_real(step))
    return evolve(program, steps=steps, corrupt=None, commit_takes=0.0, plain=False, backend="asyncio")


def _is_real(step: Step) -> bool:
    match step:
        case Event(name=name):
            return name in EVENTS
        case During(step=other):
            return _is_real(other)
        case _:
            return True


@define(eq=False)
class RealWorld(World):
    """One topic and one group of a real broker."""

    real: KafkaCluster = field(kw_only=True)
    background: str = field(kw_only=True)
    producer: Producer = field(init=False)
    group: Group = field(init=False)
    _ends: dict[TopicPartition, int] = field(factory=dict, init=False)
    _outsider: Any = field(default=None, init=False)
    _committed: dict[TopicPartition, int | None] = field(factory=dict, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _others: "asyncio.Task[None] | None" = field(default=None, init=False)
    _leave: asyncio.Event = field(factory=asyncio.Event, init=False)
    _disturbed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.wait, self.enough, self.drain, self.interval, self.pace = 0.4, 120.0, 60.0, 0.5, 0.15

    async def __aenter__(self) -> "RealWorld":
        self.topic = await asyncio.to_thread(new_topic, self.real, PARTITIONS)
        self.group = await asyncio.to_thread(new_group, self.real, "consumer" if self.program.protocol == "consumer" else "classic")
        self.producer = Producer({"bootstrap.servers": self.real.bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self.model = Model()
        self.partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        self._ends = dict.fromkeys(self.partitions, 0)
        await asyncio.to_thread(self.fill)
        self._outsider = self.group.outsider()
        await self._outsider.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._give_back()
        await self._outsider.stop()

    def options(self) -> dict[str, Any]:
        grouped = self.group.options() | _ASSIGNORS.get(self.program.protocol, {})
        if self.program.manual:
            grouped = {"group_id": self.group.name}
        return {
            "bootstrap_servers": self.real.bootstrap_servers,
            "background": self.background,
            "fetch_max_wait_ms": 100,
            **self.common_options(),
            **grouped,
        }

    def end(self, partition: TopicPartition) -> int:
        return self._ends[partition]

    def append(self, partition: TopicPartition, values: list[bytes]) -> None:
        for value in values:
            self.producer.produce(self.topic, value, partition=partition.partition)
        assert self.producer.flush(30) == 0
        self._ends[partition] += len(values)

    def committed(self, partition: TopicPartition) -> int | None:
        return self._committed.get(partition)

    async def refresh(self) -> None:
        async with self._lock:
            found = await self._outsider.committed_offsets(*self.partitions)
            for partition, known in found.items():
                if known is not None and known.offset != self._committed.get(partition):
                    self._committed[partition] = known.offset
                    self.arrived.append((partition, known.offset))
                    self.model.commit_arrived(partition, known.offset)

    def connections_left(self) -> bool:
        return False  # the broker is not asked

    # --- the group -------------------------------------------------------------------------------------------------------------

    async def rebalance(self) -> None:
        self._disturbed = True
        if self.consumer is not None:
            self.consumer.enforce_rebalance()

    async def take(self, *partitions: TopicPartition) -> None:
        """Another member comes, or goes; the group decides what it gets."""
        self._disturbed = True
        if not partitions:
            await self._give_back()
        elif self._others is None:
            self._leave.clear()
            self._others = asyncio.create_task(self._be_another())

    async def _be_another(self) -> None:
        options = self.group.options() | _ASSIGNORS.get(self.program.protocol, {})
        other = make(self.real, self.topic, enable_auto_commit=False, **options)
        try:
            await other.start()
            while not self._leave.is_set():
                await other.getmany(timeout_ms=100)
        finally:
            await other.stop()

    async def _give_back(self) -> None:
        others, self._others = self._others, None
        self._leave.set()
        if others is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(others), 20)

    def unsettled(self) -> bool:
        return self.troubled or self._disturbed

    def is_settled_with(self, partitions: Collection[TopicPartition]) -> bool:
        return False

    @property
    def said(self) -> set[TopicPartition]:
        return set()

    @property
    def others_own(self) -> set[TopicPartition]:
        return set()

    @property
    def has_taken(self) -> bool:
        return self._others is not None

    @property
    def is_to_give_up(self) -> bool:
        return self._others is not None and len(self.model.cursors) == PARTITIONS

    @property
    def generation(self) -> int:
        return 0 if self.consumer is None else self.consumer.group_metadata().generation_id


async def run_on(cluster: KafkaCluster, program: Program, background: str) -> list[str]:
    """Run a program on a topic and a group of its own; return what was wrong."""
    async with RealWorld(program, real=cluster, background=background) as world:
        return await Runner(program, world).run()


async def failures_on(
    cluster: KafkaCluster, of: Iterator[tuple[Program, str]], *, at_once: int, seconds: float
) -> tuple[int, list[tuple[Program, str, list[str]]]]:
    """Run programs, ``at_once`` at a time, and begin none after ``seconds``; return how many there were, and what failed."""
    ends, ran = time.monotonic() + seconds, 0
    found: list[tuple[Program, str, list[str]]] = []

    async def work() -> None:
        nonlocal ran
        for program, background in of:
            if time.monotonic() > ends:
                return
            ran += 1
            if wrong := await run_on(cluster, program, background):
                found.append((program, background, wrong))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    return ran, found


def sample(first: int) -> Iterator[tuple[Program, str]]:
    """Return programs from a number on, with the background in turn as a task and in a thread."""
    for seed in count(first):
        yield real_program(seed), BACKGROUNDS[seed % len(BACKGROUNDS)]


def shown(found: list[tuple[Program, str, list[str]]]) -> str:
    """Return failures as text: the command that runs each again, and what was wrong."""
    return "\n".join(
        f'python -m tests.edges.real --{how} "{program!r}"\n    ' + "\n    ".join(wrong[:3]) for program, how, wrong in found
    )


def main() -> int:
    """Run what the command line asks for; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.edges.real")
    parser.add_argument("program", nargs="?")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--thread", action="store_true", help="of the one program: background='thread'")
    parser.add_argument("--task", action="store_true", help="the same as a task")
    parser.add_argument("--times", type=int, default=1, help="of the one program")
    arguments = parser.parse_args()
    logging.disable()
    with KafkaCluster(CURRENT) as cluster:
        chosen = sample(arguments.seed)
        if arguments.program:
            program = eval(arguments.program, vars(programs))  # noqa: S307  # a program of one's own, from one's own command line
            chosen = iter([(program, "thread" if arguments.thread else "task")] * arguments.times)
        ran, found = asyncio.run(failures_on(cluster, chosen, at_once=arguments.at_once, seconds=arguments.seconds))
    print(f"{shown(found)}\n{ran} programs, {len(found)} failed")  # noqa: T201  # a command
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
