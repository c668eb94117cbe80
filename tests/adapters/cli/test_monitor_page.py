"""The page of the monitor in a real browser: it is live, comes back, loads nothing from elsewhere, and keeps the focus."""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("typer")

from kafka_async.sync import KafkaConsumer
from kafka_async.testing import Cluster, ThreadedCluster

from .test_monitor import PATIENCE, monitor

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(importlib.util.find_spec("PyQt6") is None, reason="needs a Chromium: pip install PyQt6-WebEngine"),
]


class Browser:
    """A browser without a window."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def do(self, **wanted: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def wait_for(self, code: str) -> None:
        until = time.monotonic() + PATIENCE
        while not self.do(run=code):
            assert time.monotonic() < until, (code, self.do(run="document.body.innerText"))

    def text(self, place: str) -> Any:
        return self.do(run=f"(document.querySelector({json.dumps(place)}) || {{}}).textContent")


@contextmanager
def browser() -> Iterator[Browser]:
    command = [sys.executable, "-m", "tests.adapters.web.browser"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603  # ours
        try:
            yield Browser(process)
        finally:
            process.kill()


def begin(cluster: ThreadedCluster, group: str, count: int) -> None:
    """Have a group read and commit so many records, and go."""
    options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    with KafkaConsumer("orders", **options) as consumer:
        while count:
            count -= sum(map(len, consumer.getmany(timeout_ms=3000, max_records=count).values()))
        consumer.commit()


LIVE = "document.getElementById('connection').textContent.startsWith('Live')"


def test_the_page_in_a_browser() -> None:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 3)
        cluster.produce_many("orders", ["x"] * 300)

    with ThreadedCluster(Cluster(3)) as cluster, browser() as page:
        cluster.call(write).result()
        begin(cluster, "billing", 30)
        with monitor(cluster.bootstrap) as running:
            port, base = running.port, f"http://127.0.0.1:{running.port}/"
            running.wait_for("/ready", lambda status, _: status == 200)
            assert page.do(load=base) is True
            page.wait_for(LIVE)
            assert page.text('tr[data-key="billing"] [data-cell="status"]') == "x STOP"

            # A row appears where it belongs, and what has the focus keeps it.
            page.do(run="document.querySelector('tr[data-key=\"billing\"] a').focus()")
            begin(cluster, "fresh", 10)
            page.wait_for("!!document.querySelector('tr[data-key=\"fresh\"]')")
            assert page.do(run="document.activeElement.textContent") == "billing"
            assert page.text("#summary") == "2 groups: 2 STOP"
            page.do(run="document.querySelector('th[data-column=\"group\"] button').click()")
            rows = "[...document.querySelectorAll('#rows tbody tr')].map(row => row.dataset.key).join(' ')"
            assert page.do(run=rows) == "fresh billing"
            assert page.do(run="document.querySelector('th[data-column=\"group\"]').getAttribute('aria-sort')") == "descending"

        # The server goes, and comes back.
        page.wait_for("document.getElementById('connection').textContent.startsWith('Not connected since')")
        with monitor(cluster.bootstrap, "--port", str(port)):
            page.wait_for(LIVE)
            assert page.do(load=f"{base}groups/billing") is True
            page.wait_for(LIVE)
            assert page.text('[data-fact="lag"]') == "270"
            report = page.do(report=True)
    assert [address for address in report["asked"] if not address.startswith(base)] == []
    assert report["console"] == []
