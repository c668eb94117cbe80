"""What a benchmark runs on, and the order in which it runs.

Decides: that no client always runs first. Owns the process that writes paced records. Must never let a client that fails end a run.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from benchmarks.data import Topics
from benchmarks.jobs import Job
from benchmarks.report import Run


@frozen(kw_only=True)
class Plan:
    """What to run: the broker, its topics, the clients and how often."""

    bootstrap: str
    topics: Topics
    clients: tuple[str, ...]
    rounds: int
    seconds: float
    max_records: int | None
    records: int = 300_000
    """Of ``distance``."""
    scenarios: tuple[str, ...] = ()
    """Of ``faults`` and ``share``; empty for all."""
    quick: bool = False
    """Whether a tenth of the work will do, since nobody reads the numbers."""


@contextlib.contextmanager
def traffic(plan: Plan, topic: str, partitions: int, per_second: int) -> Iterator[None]:
    """Have a process write paced records while the block runs."""
    job = Job(mode="paced", bootstrap=plan.bootstrap, topic=topic, partitions=partitions, records=per_second)
    command = [sys.executable, "-m", "benchmarks.worker", "producer", job.to_json()]
    with subprocess.Popen(command) as producer:  # noqa: S603  # ours
        try:
            yield
            if producer.poll() is not None:
                raise RuntimeError(f"the producer ended with status {producer.returncode}")
        finally:
            producer.terminate()


def rotate(plan: Plan, clients: Sequence[str], measure: Callable[[str], dict[str, float]]) -> tuple[Run, ...]:
    """Measure every client once a round; each round begins with another one, so that none always runs first."""
    runs: list[Run] = []
    for number in range(plan.rounds):
        first = number % len(clients) if clients else 0
        for client in [*clients[first:], *clients[:first]]:
            try:
                runs.append(Run(client=client, round=number, values=measure(client)))
            except RuntimeError as error:
                runs.append(Run(client=client, round=number, error=str(error)))
    order = {client: place for place, client in enumerate(clients)}
    return tuple(sorted(runs, key=lambda run: (order[run.client], run.round)))
