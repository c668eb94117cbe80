"""Turns runs into what a person or a program reads: tables with medians, spreads and ratios, verdicts, JSON.

A ratio of two clients is taken within each round and then the median over the rounds, so that a slow moment of the machine, which
hits a whole round, does not count for or against one of them.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import asdict, field, frozen

from benchmarks.jobs import Shape
from benchmarks.targets import TARGETS, Target


@frozen(kw_only=True)
class Run:
    """One process: its client, its round, and what it measured or why it failed."""

    client: str
    round: int
    values: dict[str, float] = field(factory=dict)
    error: str | None = None


@frozen(kw_only=True)
class Group:
    """Runs that may be compared with each other: one command, one shape of records, one ``scenario`` of faults."""

    command: str
    title: str
    shape: Shape
    runs: tuple[Run, ...]
    scenario: str = ""

    def clients(self) -> list[str]:
        """Return the clients with at least one good run, in the order they were asked for."""
        return list(dict.fromkeys(run.client for run in self.runs if run.error is None))

    def series(self, client: str, metric: str) -> dict[int, float]:
        """Return the values of one client by round."""
        return {run.round: run.values[metric] for run in self.runs if run.client == client and metric in run.values}


@frozen
class Metric:
    """A column: key of the value, heading, number format, and whether more is better."""

    key: str
    heading: str
    form: str
    more_is_better: bool = False


_SPARK: Final = (Metric("rows_per_s", "rows/s", ",.0f", True), Metric("seconds", "s", ".2f"), Metric("cpu_s", "CPU s", ".2f"))

METRICS: Final[dict[str, tuple[Metric, ...]]] = {
    "throughput": (
        Metric("records_per_s", "records/s", ",.0f", True),
        Metric("mb_per_s", "MB/s", ",.1f", True),
        Metric("cpu_us_per_record", "CPU us/record", ".3f"),
        Metric("with_startup_per_s", "records/s with start-up", ",.0f", True),
        Metric("peak_rss_mib", "peak RSS MiB", ".0f"),
    ),
    "latency": (
        Metric("p50_ms", "p50 ms", ".2f"),
        Metric("p99_ms", "p99 ms", ".2f"),
        Metric("max_ms", "max ms", ".1f"),
        Metric("cpu_percent", "CPU %", ".1f"),
    ),
    "partitions": (
        Metric("cpu_percent_few", "CPU % at 10", ".1f"),
        Metric("cpu_percent_many", "CPU % at 1,000", ".1f"),
        Metric("cpu_growth", "growth", ".2f"),
        Metric("peak_rss_mib", "peak RSS MiB", ".0f"),
    ),
    "memory": (
        Metric("reading_mib", "peak RSS MiB reading", ".0f"),
        Metric("slow_mib", "peak RSS MiB, slow reader", ".0f"),
    ),
    "idle": (
        Metric("cpu_percent", "CPU %", ".2f"),
        Metric("switches_per_s", "voluntary switches/s", ".1f"),
        Metric("wake_ups_per_s", "loop wake-ups/s", ".1f"),
    ),
    "rebalance": (
        Metric("first_ms", "first member ms", ".0f"),
        Metric("second_ms", "second member ms", ".0f"),
        Metric("kept_gap_ms", "longest gap kept ms", ".0f"),
        Metric("calm_gap_ms", "the same in calm ms", ".0f"),
        Metric("moved_gap_ms", "longest gap moved ms", ".0f"),
    ),
    "faults": (
        Metric("stall_s", "longest wait s", ".2f"),
        Metric("p99_s", "p99 s", ".2f"),
        Metric("lost", "lost", ".0f"),
        Metric("duplicates", "repeated", ".0f"),
        Metric("rebalances", "rebalances", ".0f"),
        Metric("errors", "errors raised", ".0f"),
        Metric("deaths", "deaths", ".0f"),
    ),
    "distance": (
        Metric("records_per_s", "records/s", ",.0f", True),
        Metric("mb_per_s", "MB/s", ",.1f", True),
        Metric("cpu_us_per_record", "CPU us/record", ".3f"),
        Metric("peak_rss_mib", "peak RSS MiB", ".0f"),
    ),
    "processing": (Metric("handlers_per_s", "handlers/s", ",.0f", True), Metric("cpu_us", "CPU us each", ".1f")),
    "share": (Metric("jobs_per_s", "jobs/s", ",.0f", True),),
    "share latency": (Metric("p50_ms", "p50 ms", ".2f"), Metric("p99_ms", "p99 ms", ".2f")),
    "imports": (Metric("cpu_s", "CPU s", ".3f"),),
    "tables": (
        Metric("records_per_s", "records/s", ",.0f", True),
        Metric("seconds", "s", ".2f"),
        Metric("cpu_s", "CPU s", ".2f"),
        Metric("cpu_us_per_record", "CPU us/record", ".3f"),
        Metric("peak_rss_mib", "peak RSS MiB", ".0f"),
    ),
    "watching": (Metric("seconds", "s", ".2f"), Metric("cpu_s", "CPU s", ".2f")),
    "spark batch": _SPARK,
    "spark json": _SPARK,
    "spark json, 1 % bad": _SPARK,
    "spark json, loose": _SPARK,
    "spark take": _SPARK,
    "spark short": _SPARK,
    "spark stream": _SPARK,
    "spark latency": (
        Metric("batch_ms", "micro-batch ms", ".0f"),
        Metric("add_ms", "addBatch ms", ".0f"),
        Metric("latest_ms", "latestOffset ms", ".0f"),
    ),
}


@frozen(kw_only=True)
class Verdict:
    """The result of a target in a group. A target that could not be measured is missed: ``measured`` is ``None`` then."""

    text: str
    measured: float | None
    met: bool

    def __str__(self) -> str:
        word = "UNMEASURED" if self.measured is None else "met" if self.met else "MISSED"
        return f"{word:10} {self.text}"


def paired(group: Group, metric: Metric, client: str, peers: Sequence[str]) -> float | None:
    """Return the median over rounds of ``client`` divided by the best of ``peers``; ``None`` if no round has both."""
    best = max if metric.more_is_better else min
    others = [group.series(peer, metric.key) for peer in peers]
    ratios = []
    for number, value in group.series(client, metric.key).items():
        rivals = [series[number] for series in others if series.get(number)]
        if rivals:
            ratios.append(value / best(rivals))
    return statistics.median(ratios) if ratios else None


def judge(group: Group) -> list[Verdict]:
    """Return the verdict of every target that applies to the group."""
    return [_verdict(group, target) for target in TARGETS if _applies(target, group)]


def _applies(target: Target, group: Group) -> bool:
    if target.command != group.command or not target.applies(group.shape):
        return False
    return not target.scenarios or group.scenario in target.scenarios


def _verdict(group: Group, target: Target) -> Verdict:
    metric = next(metric for metric in METRICS[group.command] if metric.key == target.metric)
    peers = [peer for peer in target.peers if group.series(peer, metric.key)]
    if target.peers:
        measured = paired(group, metric, target.client, peers)
    else:
        series = group.series(target.client, metric.key)
        measured = statistics.median(series.values()) if series else None
    limit = f"wanted {'at least' if metric.more_is_better else 'at most'} {target.limit:.2f}"
    of = f" times {'the best of ' if len(target.peers) > 1 else ''}{', '.join(peers or target.peers)}" if target.peers else ""
    text = f"{target.client} {metric.heading}: {'-' if measured is None else f'{measured:.2f}'}, {limit}{of}"
    met = measured is not None and (measured >= target.limit if metric.more_is_better else measured <= target.limit)
    return Verdict(text=text, measured=measured, met=met)


def table(group: Group) -> str:
    """Return a group as text: a line per client, then ratios of ours to each peer, then verdicts and failures."""
    metrics = METRICS[group.command]
    rows = [["client", *(metric.heading for metric in metrics)]]
    rows += [[client, *(_cell(group.series(client, metric.key), metric) for metric in metrics)] for client in group.clients()]
    lines = [group.title, *_aligned(rows), *_ratio_lines(group)]
    lines += map(str, judge(group))
    lines += [
        f"FAILED     {client}: {error}" for client, error in dict.fromkeys((r.client, r.error) for r in group.runs if r.error)
    ]
    return "\n".join(lines)


def _cell(series: dict[int, float], metric: Metric) -> str:
    if not series:
        return "-"
    values = list(series.values())
    middle = format(statistics.median(values), metric.form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), metric.form)}-{format(max(values), metric.form)})"


def _ratio_lines(group: Group) -> list[str]:
    metrics = METRICS[group.command]
    ours = [client for client in group.clients() if client.startswith("kafka_async.")]
    peers = [client for client in group.clients() if client not in ours]
    if not ours or not peers or group.command == "faults":  # a ratio of zeros means nothing
        return []
    rows = [["ratio, paired by round", *(metric.heading for metric in metrics)]]
    for mine in ours:
        for peer in peers:
            ratios = [paired(group, metric, mine, [peer]) for metric in metrics]
            rows.append([f"{mine} : {peer}", *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def save(groups: Sequence[Group], about: dict[str, Any], directory: Path, command: str) -> Path:
    """Write ``COMMAND.json`` to ``directory``; return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{command}.json"
    content = [asdict(group) | {"verdicts": [asdict(verdict) for verdict in judge(group)]} for group in groups]
    path.write_text(json.dumps({"about": about, "groups": content}, indent=1) + "\n")
    return path
