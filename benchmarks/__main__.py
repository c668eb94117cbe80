"""Command line of the benchmarks: chooses shapes and clients, runs each in a process of its own, in rotation, and reports.

Owns the processes it starts and, if no broker is named, a Kafka broker.
"""

import argparse
import contextlib
import datetime
import fnmatch
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from attrs import evolve

from benchmarks import fault_members, java_perf
from benchmarks.data import CHUNK, Topics
from benchmarks.imports import imports
from benchmarks.jobs import LARGE_BATCH, Codec, Job, Protocol, Shape
from benchmarks.members import HEARTBEAT_MS, MEMBERS
from benchmarks.plan import Plan, rotate, traffic
from benchmarks.processing import processing
from benchmarks.rebalance import settle
from benchmarks.report import Group, judge, save, table
from benchmarks.share import share
from benchmarks.spark import SHAPES as SPARK_SHAPES
from benchmarks.spark import VARIANTS, spark
from benchmarks.tables import tables
from benchmarks.watching import watching
from benchmarks.workers import CLIENTS, RAW
from tests.brokers import CURRENT

ITERATING: Final = ("kafka_async.iterate", "aiokafka.iterate")
"""Clients whose read returns only with a record: they cannot end a run without traffic."""

FEW, MANY = 10, 1000
"""Partitions that ``partitions`` compares."""

SHARED: Final = 6
"""Partitions of the group that ``rebalance`` watches."""

SUITE: Final = (
    Shape(),
    Shape(partitions=6),
    Shape(size=1000, records=500_000),
    *(Shape(codec=codec) for codec in get_args(Codec) if codec != "none"),
)
"""The shapes that have targets."""

SUITES: Final = {"throughput": SUITE, "spark": SPARK_SHAPES}

NOTES: Final = (
    "Each client in its own process, in rotation; medians over the rounds, (min-max). Timing starts when the first batch has come.",
    "confluent.tuned is confluent.consume with fetch.queue.backoff.ms=1; the default, 1000, makes fast readers wait.",
    "All others use their defaults: confluent-kafka does not check CRCs, the others do; confluent-kafka has its own threads.",
)

FAULT_NOTES: Final = (
    "One client at a time: three members, each in a process of its own, behind proxies; (848): in KIP-848's groups.",
    "All use the libraries' defaults except: session timeout 10 s, no auto-commit, a commit after every batch.",
    "A record waits from its acknowledgment by Kafka to its delivery.",
)

WORKER_TIMEOUT: Final = 600.0
"""Seconds after which a run counts as failed."""


def say(text: str) -> None:
    """Write a line to the terminal at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def work(client: str, job: Job) -> dict[str, float]:
    """Run one job in a fresh process and return what it measured. Raises ``RuntimeError`` with the end of its error output."""
    command = [sys.executable, "-m", "benchmarks.worker", client, job.to_json()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_TIMEOUT, check=False)  # noqa: S603  # ours
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {WORKER_TIMEOUT:.0f} s") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise RuntimeError(last[0])
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def warm_up(plan: Plan, job: Job) -> None:
    """Run a job once without counting it, so that the broker's code and the page cache are warm for the first client."""
    with contextlib.suppress(RuntimeError):
        work(plan.clients[-1], job)


def throughput(plan: Plan, shapes: Sequence[Shape]) -> Iterator[Group]:
    """Read whole topics, shape by shape."""
    for shape in shapes:
        topic = plan.topics.filled(shape)
        job = Job(
            mode="throughput",
            bootstrap=plan.bootstrap,
            topic=topic,
            partitions=shape.partitions,
            records=shape.records,
            size=shape.size,
            max_records=plan.max_records,
        )
        warm_up(plan, job)
        runs = rotate(plan, plan.clients, lambda client, job=job: work(client, job))  # type: ignore[misc]  # a default binds the job
        yield Group(command="throughput", title=f"throughput: {shape}", shape=shape, runs=runs)


def latency(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Time from send to arrival at 500 records a second."""
    topic = plan.topics.empty("latency", 1)
    job = Job(mode="latency", bootstrap=plan.bootstrap, topic=topic, partitions=1, reset="latest", at_once=1, seconds=plan.seconds)
    with traffic(plan, topic, 1, 500):
        warm_up(plan, job)
        runs = rotate(plan, plan.clients, lambda client: work(client, job))
    yield Group(command="latency", title="latency: 500 records/s of 100 B, 1 partition", shape=Shape(records=0), runs=runs)


def partitions(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """CPU for 100 records a second over few and over many partitions."""

    def measure(client: str) -> dict[str, float]:
        measured: dict[str, float] = {}
        for name, count in (("few", FEW), ("many", MANY)):
            topic = plan.topics.empty("partitions", count)
            job = Job(mode="paced", bootstrap=plan.bootstrap, topic=topic, partitions=count, reset="latest", at_once=1)
            with traffic(plan, topic, count, 100):
                values = work(client, evolve(job, seconds=plan.seconds, warm_up=5.0))
            measured |= {f"cpu_percent_{name}": values["cpu_percent"], "peak_rss_mib": values["peak_rss_mib"]}
        return measured | {"cpu_growth": measured["cpu_percent_many"] / max(measured["cpu_percent_few"], 0.01)}

    runs = rotate(plan, plan.clients, measure)
    title = f"partitions: 100 records/s of 100 B over {FEW} and {MANY:,} partitions"
    yield Group(command="partitions", title=title, shape=Shape(partitions=MANY, records=0), runs=runs)


def memory(plan: Plan, shapes: Sequence[Shape]) -> Iterator[Group]:
    """Peak memory of a fast and of a slow reader of the same records."""
    for shape in shapes:
        topic = plan.topics.filled(shape)
        fast = Job(
            mode="throughput",
            bootstrap=plan.bootstrap,
            topic=topic,
            partitions=shape.partitions,
            records=shape.records,
            size=shape.size,
            max_records=plan.max_records,
        )
        slow = evolve(fast, mode="slow", pause=0.2, seconds=plan.seconds, warm_up=0.0)

        def measure(client: str, fast: Job = fast, slow: Job = slow) -> dict[str, float]:
            return {"reading_mib": work(client, fast)["peak_rss_mib"], "slow_mib": work(client, slow)["peak_rss_mib"]}

        title = f"memory: {shape}; the slow reader sleeps 0.2 s after each read"
        yield Group(command="memory", title=title, shape=shape, runs=rotate(plan, plan.clients, measure))


def idle(plan: Plan, shapes: Sequence[Shape]) -> Iterator[Group]:
    """Cost of waiting for records that never come."""
    clients = [client for client in plan.clients if client not in ITERATING]
    for count in dict.fromkeys(shape.partitions for shape in shapes):
        topic = plan.topics.empty("idle", count)
        job = Job(mode="idle", bootstrap=plan.bootstrap, topic=topic, partitions=count, reset="latest", at_once=1)
        runs = rotate(plan, clients, lambda client, job=job: work(client, evolve(job, seconds=plan.seconds)))  # type: ignore[misc]  # as above
        title = f"idle: {count} partition{'s' if count > 1 else ''} without traffic"
        yield Group(command="idle", title=title, shape=Shape(partitions=count, records=0), runs=runs)


def rebalance(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Time until a first and a second member of a group are steady, and pauses of the first one meanwhile, in both protocols."""
    clients = [client for client in plan.clients if client in MEMBERS]
    topic = plan.topics.empty("rebalance", SHARED)
    for protocol in get_args(Protocol):
        job = Job(mode="member", bootstrap=plan.bootstrap, topic=topic, partitions=SHARED, protocol=protocol)
        with traffic(plan, topic, SHARED, 1200):
            with contextlib.suppress(RuntimeError):
                settle(clients[-1], job)  # so that the broker's code is warm for the first client that counts
            runs = rotate(plan, clients, lambda client, job=job: settle(client, job))  # type: ignore[misc]  # as above
        title = f"rebalance: {protocol} protocol, {SHARED} partitions, 1200 records/s, heartbeats each {HEARTBEAT_MS} ms"
        yield Group(command="rebalance", title=title, shape=Shape(partitions=SHARED, records=0), runs=runs)


def faults(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """What a group of three loses, repeats and waits for when brokers, the network or a member fail; on a cluster of its own."""
    from benchmarks.faults import MEMBERS as COUNT
    from benchmarks.faults import RATE, SCENARIOS, fault_cluster, suffer

    known = [client for client in plan.clients if client in fault_members.MEMBERS]
    clients: dict[str, tuple[str, Protocol]] = {client: (client, "classic") for client in known}
    clients |= {f"{client} (848)": (client, "consumer") for client in known if client in fault_members.BOTH_PROTOCOLS}
    with fault_cluster() as cluster:
        for name in plan.scenarios or SCENARIOS:
            about_it = (SCENARIOS[name].__doc__ or "").rstrip(".")

            def measure(client: str, name: str = name) -> dict[str, float]:
                return suffer(cluster, *clients[client], name)

            runs = rotate(plan, list(clients), measure)
            title = f"faults: {name}; {about_it}; {COUNT} members, {RATE} records/s, session 10 s"
            yield Group(command="faults", title=title, shape=Shape(records=0), runs=runs, scenario=name)


def distance(plan: Plan, _: Sequence[Shape]) -> Iterator[Group]:
    """Read one partition of 1 KB records through round trips of 0, 1 and 20 ms; on a broker of its own."""
    from benchmarks.distance import ROUND_TRIPS_MS, distant_cluster

    shape = Shape(size=1000, records=plan.records)
    with distant_cluster() as (cluster, proxy), contextlib.closing(Topics(cluster.bootstrap_servers)) as topics:
        topic = topics.filled(shape)
        job = Job(mode="throughput", bootstrap=proxy.bootstrap_servers, topic=topic, partitions=1, records=shape.records, size=1000)
        warm_up(plan, job)
        for milliseconds in ROUND_TRIPS_MS:
            proxy.everyone.latency = milliseconds / 2000
            runs = rotate(plan, plan.clients, lambda client: work(client, job))
            name = f"{milliseconds} ms"
            title = f"distance: {name} of round trip; {shape}"
            yield Group(command="distance", title=title, shape=shape, runs=runs, scenario=name)


COMMANDS: Final = {
    "throughput": throughput,
    "latency": latency,
    "partitions": partitions,
    "memory": memory,
    "idle": idle,
    "rebalance": rebalance,
    "faults": faults,
    "distance": distance,
    "processing": processing,
    "share": share,
    "imports": imports,
    "tables": tables,
    "watching": watching,
    "spark": spark,
}

OF_THEIR_OWN: Final = ("faults", "distance", "share", "imports")
"""Commands that start what they need: brokers behind proxies, with settings of their own, or none."""

ROUNDS: Final = {"faults": 1, "share": 3, "processing": 3, "imports": 15, "tables": 3, "watching": 3}
"""Where it is not 5."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-b", "--bootstrap", metavar="HOST:PORT", help="broker to use; without it a Kafka of its own is started")
    common.add_argument("--clients", nargs="+", default=["*"], metavar="NAME", help="clients to run; wildcards: 'aiokafka.*'")
    common.add_argument("--rounds", type=_positive, metavar="N", help="rounds of all clients (default 5; of some commands others)")
    common.add_argument("--seconds", type=_positive, metavar="N", help="length of a timed run (default 10)")
    common.add_argument("--max-records", type=_positive, metavar="N", help="records per read call, if a client takes a limit")
    common.add_argument("--out", type=Path, default=Path("build/benchmarks"), metavar="DIR", help="for the JSON (%(default)s)")
    common.add_argument(
        "--check", action="store_true", help="exit with status 1 if a target is missed or unmeasured, or a client fails"
    )
    common.add_argument("--quick", action="store_true", help="a smoke test: few records, one round, two seconds")
    shapes = argparse.ArgumentParser(add_help=False)
    shapes.add_argument("--size", type=int, nargs="+", default=[100], metavar="BYTES", help="bytes of a value (default 100)")
    shapes.add_argument("--codec", nargs="+", choices=get_args(Codec), default=["none"], help="compression (default none)")
    shapes.add_argument("--partitions", type=_positive, nargs="+", default=[1], metavar="N", help="partitions (default 1)")
    batches = "bytes of a record batch, before compression (default 1,000,000; Kafka's own producer: 16,384)"
    shapes.add_argument("--batch", type=_positive, nargs="+", default=[LARGE_BATCH], metavar="BYTES", help=batches)
    shapes.add_argument("--records", type=_positive, metavar="N", help="records per topic (default 2,000,000)")
    shapes.add_argument("--headers", action="store_true", help="two headers on each record")
    top = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares this package with aiokafka, confluent-kafka and kafka-python on one broker.",
        epilog=f"Clients: {', '.join(CLIENTS)}; with spark: {', '.join(VARIANTS)}.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, run in COMMANDS.items():
        parents = [common, shapes] if name in ("throughput", "memory", "idle", "spark") else [common]
        sub = commands.add_parser(name, parents=parents, help=run.__doc__, description=run.__doc__)
        if name in SUITES:
            sub.add_argument("--suite", action="store_true", help="run every shape that has a target")
        if name in ("faults", "share"):
            sub.add_argument("--scenarios", nargs="+", default=[], metavar="NAME", help="some of the scenarios (default all)")
    return top


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at least 1")
    return value


def shapes_of(options: argparse.Namespace) -> list[Shape]:
    """Return the shapes that the options name, every combination of them."""
    if not hasattr(options, "size"):
        return []
    if getattr(options, "suite", False):
        shapes = list(SUITES[options.command])
    else:
        shapes = [
            Shape(size=size, codec=codec, partitions=count, headers=options.headers, batch=batch)
            for batch in options.batch
            for size in options.size
            for codec in options.codec
            for count in options.partitions
        ]
    records = options.records or (20_000 if options.quick else None)
    if records is not None:
        shapes = [evolve(shape, records=max(CHUNK, records // CHUNK * CHUNK)) for shape in shapes]
    return shapes


def chosen(patterns: Sequence[str], clients: Iterable[str]) -> tuple[str, ...]:
    """Return the ``clients`` that any of ``patterns`` matches. Raises ``SystemExit`` for one that matches none."""
    names = tuple(clients)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise SystemExit(f"no client matches {pattern!r}; there are {', '.join(names)}")
    return tuple(client for client in names if any(fnmatch.fnmatch(client, pattern) for pattern in patterns))


def known(command: str) -> list[str]:
    """Return the clients that a command may be told to leave out."""
    if command == "spark":
        return list(VARIANTS)
    if command == "faults":
        return list(fault_members.MEMBERS)
    clients = [client for client in CLIENTS if client != RAW or command == "distance"]  # it reads the first partition only
    return [*clients, java_perf.NAME] if command == "throughput" else clients


@contextlib.contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    """Give the broker that was named, or one of our own for the length of the block."""
    if bootstrap is not None:
        yield bootstrap
        return
    from tests.brokers import KafkaCluster

    with KafkaCluster(heap_mb=1024, quick_start=False, properties={"file.delete.delay.ms": "1000"}) as cluster:
        yield cluster.bootstrap_servers


def about() -> dict[str, Any]:
    """Return the date, the machine and the versions that the numbers belong to."""
    versions = {}
    peers = ("aiokafka", "confluent-kafka", "kafka-python", "faststream")
    for name in ("kafka-async-consumer", *peers, "msgspec", "opentelemetry-sdk", "pyarrow", "pyspark"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    versions["kafka"] = CURRENT
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs ({model[1] if model else 'unknown'})",
        "versions": versions,
    }


def commit() -> str:
    """Return the commit of this clone; with ``-dirty`` if files differ from it, ``unknown`` if it is not a clone."""
    git = shutil.which("git")
    command = [git or "git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = git and subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed words
    return done.stdout.strip() or "unknown" if done else "unknown"


def main() -> int:
    """Run the command; return the exit status."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwind as for Ctrl-C, so that no worker or broker stays behind
    clients = chosen(options.clients, known(options.command))
    shapes = shapes_of(options)
    groups: list[Group] = []
    written = options.out
    for note in FAULT_NOTES if options.command == "faults" else NOTES:
        say(note)
    own = options.command in OF_THEIR_OWN
    with (
        contextlib.nullcontext("") if own else broker(options.bootstrap) as bootstrap,
        contextlib.closing(Topics(bootstrap)) as topics,
    ):
        plan = Plan(
            bootstrap=bootstrap,
            topics=topics,
            clients=clients,
            rounds=options.rounds or (1 if options.quick else ROUNDS.get(options.command, 5)),
            seconds=options.seconds or (2 if options.quick else 10),
            max_records=options.max_records,
            records=20_000 if options.quick else 300_000,
            scenarios=tuple(getattr(options, "scenarios", ())),
            quick=options.quick,
        )
        for group in COMMANDS[options.command](plan, shapes):
            say("\n" + table(group))
            groups.append(group)
            written = save(groups, about(), options.out, options.command)  # at each step: a run may be long, and may be ended
    say(f"wrote {written}")
    missed = any(not verdict.met for group in groups for verdict in judge(group))
    failed = any(run.error for group in groups for run in group.runs)
    return int(options.check and (missed or failed))


if __name__ == "__main__":
    sys.exit(main())
