"""What each metric means: every metric has a description, and the page has the same."""

import re
from pathlib import Path

import kafka_async
from kafka_async import TopicPartition
from kafka_async.application.lifecycle.descriptions import DESCRIPTIONS, descriptions
from kafka_async.application.lifecycle.metrics import FETCHES, NODES, Metrics
from kafka_async.application.processing.statistics import NOTHING, PROCESSING
from kafka_async.application.share.custody import Counts
from kafka_async.application.share.metrics import ShareMetrics
from kafka_async.trace import RequestSent

ORDERS = TopicPartition("topic", 0)
PAGE = (Path(kafka_async.__file__).parent / "application" / "METRICS.md").read_text()


def test_each_metric_is_described_and_nothing_else() -> None:
    metrics, share = Metrics(), ShareMetrics()
    for requests in (metrics.requests, share.requests):
        requests(RequestSent(now=0.0, node="host:9092 (id 0)", api="Fetch", version=0, correlation_id=0, size=0))
    groups = metrics.snapshot(0.0, lags={ORDERS: 0}, consumed={ORDERS: 0}, stopped=0, bytes_consumed=0, polled_at=0.0)
    shared = share.snapshot(0.0, Counts(), None, 0)
    assert shared.pop("consumer-metrics").keys() < groups["consumer-metrics"].keys()
    found = groups | shared | {PROCESSING: NOTHING.metrics()}

    assert {group: sorted(texts) for group, texts in DESCRIPTIONS.items()} == {
        group: sorted(names) for group, names in found.items()
    }


def test_a_description_stands_alone_on_one_line_and_has_its_unit() -> None:
    for name, text in descriptions().items():
        assert len(text) > 8
        assert text.isprintable()
        assert not text.startswith(("the same", "those", "the largest of them"))
        if ".latency." in name or ".time." in name:
            assert "milliseconds" in text, name
        if ".size." in name or ".byte." in name:
            assert "bytes" in text, name
        if name.endswith(".rate"):
            assert "per second" in text, name


def test_the_page_of_metrics_has_the_same_words() -> None:
    rows: dict[str, list[tuple[str, str]]] = {}
    for section in PAGE.split("\n## ")[1:]:
        rows[section.splitlines()[0]] = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", section, re.MULTILINE)
    described: dict[str, list[tuple[str, str]]] = {}
    for group, texts in DESCRIPTIONS.items():
        of_group = group.partition(".")[0]
        if of_group != NODES:  # as for the client
            described.setdefault(of_group, []).extend(texts.items())

    for group, pairs in rows.items():
        for name, said in pairs:
            words = re.sub(r" \(not Java's\)$|; exported as .*$|`", "", said)
            assert (name, words) in described[group], f"{group}, {name}"
    assert {name for name, _ in rows[FETCHES]} == {name for name, _ in described[FETCHES]}
