"""Rules for Prometheus, evaluated on scrapes: the part of PromQL that our alerts use, and nothing that it does not know.

A metric or a label that no scrape has is an error here, where Prometheus would return nothing and the alert would never fire. Where
``promtool`` is on the PATH, it evaluates the same rules on the same scrapes.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from attrs import define, field, frozen
from prometheus_client.parser import text_string_to_metric_families

EVERY: Final = 15
"""Seconds between two scrapes, as Prometheus has it in its examples."""
Labels = frozenset[tuple[str, str]]
Vector = Mapping[Labels, float]

_AGGREGATED: Final = re.compile(
    r"(?P<how>max|sum) by \((?P<by>[a-z_, ]+)\) \((?P<inner>[^()]+(?:\([^()]+\))?)\) (?P<op>>|==) (?P<than>\d+)"
)
_COUNTED: Final = re.compile(r"(?P<how>increase|rate)\((?P<name>\w+)\[(?P<minutes>\d+)m\]\)")


@frozen
class Rule:
    """An alert of a file of rules."""

    name: str
    expr: str
    seconds: int
    """For how long it must hold."""

    @classmethod
    def all_of(cls, path: Path) -> "list[Rule]":
        """Return the alerts of a file."""
        groups: list[dict[str, Any]] = yaml.safe_load(path.read_text())["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return [cls(rule["alert"], rule["expr"], _seconds(rule.get("for", "0m"))) for rule in rules]


def _seconds(text: str) -> int:
    return int(text.removesuffix("m")) * 60


@define
class Scrapes:
    """What a program showed, every 15 seconds."""

    count: int = 0
    series: dict[str, dict[Labels, list[float | None]]] = field(factory=dict)
    """By name: an expression is about one metric, and there are hundreds."""

    def add(self, text: str) -> None:
        """Add what a scrape returned."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                known = self.series.setdefault(sample.name, {})
                known.setdefault(frozenset(sample.labels.items()), [None] * self.count).append(sample.value)
        self.count += 1
        for each in self.series.values():
            for values in each.values():
                if len(values) < self.count:
                    values.append(None)

    def firing(self, rules: Iterable[Rule]) -> set[str]:
        """Return the alerts that fired at some time."""
        return {rule.name for rule in rules if self._fires(rule)}

    def _fires(self, rule: Rule) -> bool:
        since: dict[Labels, int] = {}
        for scrape in range(self.count):
            true = evaluate(rule.expr, self, scrape)
            since = {labels: since.get(labels, scrape) for labels in true}
            if any((scrape - begin) * EVERY >= rule.seconds for begin in since.values()):
                return True
        return False

    def as_input(self) -> list[dict[str, str]]:
        """Return the series as promtool takes them."""
        return [
            {
                "series": f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels))}}}",
                "values": " ".join("_" if value is None else f"{value:f}" for value in values),
            }
            for name, each in self.series.items()
            if name.startswith("org_apache_kafka_")
            for labels, values in each.items()
        ]

    def of(self, name: str) -> dict[Labels, list[float | None]]:
        """Return the series of a metric. Raises ``KeyError`` if there are none."""
        if name not in self.series:
            raise KeyError(f"no scrape has the metric {name}")
        return self.series[name]


def evaluate(expr: str, scrapes: Scrapes, at: int) -> Vector:
    """Return what an expression gives at a scrape. Raises ``KeyError`` for an unknown metric or label, else ``ValueError``."""
    parts = [_compared(part, scrapes, at) for part in expr.split(" and ")]
    return {labels: value for labels, value in parts[0].items() if all(labels in part for part in parts[1:])}


def _compared(text: str, scrapes: Scrapes, at: int) -> Vector:
    match = _AGGREGATED.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not of the kind that is evaluated here: {text}")
    by = [label.strip() for label in match["by"].split(",")]
    groups: dict[Labels, list[float]] = {}
    for labels, value in _inner(match["inner"], scrapes, at).items():
        known = dict(labels)
        if missing := [label for label in by if label not in known]:
            raise KeyError(f"{match['inner']} has no label {missing[0]}")
        groups.setdefault(frozenset((label, known[label]) for label in by), []).append(value)
    than = float(match["than"])
    results = {labels: max(values) if match["how"] == "max" else sum(values) for labels, values in groups.items()}
    return {labels: value for labels, value in results.items() if (value > than if match["op"] == ">" else value == than)}


def _inner(text: str, scrapes: Scrapes, at: int) -> Vector:
    if re.fullmatch(r"\w+", text):
        return {labels: value for labels, values in scrapes.of(text).items() if (value := values[at]) is not None}
    match = _COUNTED.fullmatch(text)
    if match is None:
        raise ValueError(f"not of the kind that is evaluated here: {text}")
    window = int(match["minutes"]) * 60
    found: dict[Labels, float] = {}
    for labels, values in scrapes.of(match["name"]).items():
        seen = [value for value in values[max(0, at + 1 - window // EVERY) : at + 1] if value is not None]
        if len(seen) >= 2:
            found[labels] = (seen[-1] - seen[0]) / (window if match["how"] == "rate" else 1)
    return found


def firing_in_promtool(promtool: str, rules: Path, scrapes: Scrapes, directory: Path) -> set[str]:
    """Return the alerts that fired at some time as Prometheus itself evaluates them."""
    minutes = scrapes.count * EVERY // 60 + 1
    # Each expectation, that none has fired, fails where one has, and promtool says so.
    wanted = [
        {
            "expr": f'count(count_over_time(ALERTS{{alertname="{rule.name}",alertstate="firing"}}[{minutes}m])) > 0',
            "eval_time": f"{minutes}m",
            "exp_samples": [],
        }
        for rule in Rule.all_of(rules)
    ]
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": f"{EVERY}s",
        "tests": [{"interval": f"{EVERY}s", "input_series": scrapes.as_input(), "promql_expr_test": wanted}],
    }
    path = directory / "test.yaml"
    path.write_text(yaml.safe_dump(test))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    said = done.stdout + done.stderr
    assert re.search(r"^  (SUCCESS|FAILED:)", said, re.MULTILINE), said
    return set(re.findall(r'alertname=\\?"(\w+)', said))
