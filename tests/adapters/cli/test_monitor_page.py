"""The page of the monitor in a real browser: it is live, comes back, loads nothing from elsewhere, and keeps the focus."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from kafka_async.adapters.cli.commands import app
from kafka_async.sync import KafkaConsumer
from kafka_async.testing import Cluster, ThreadedCluster

from .test_monitor import PATIENCE, monitor

CHROMIUM: Final = shutil.which("chromium")
pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: Debian's package chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs what drives it: pip install playwright"),
]


@contextmanager
def browser() -> Iterator[Any]:
    """Give a page of a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # in containers all are root
        page = chromium.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(PATIENCE * 1000)
        try:
            yield page
        finally:
            chromium.close()


def begin(cluster: ThreadedCluster, group: str, count: int) -> None:
    """Have a group read and commit so many records, and go."""
    options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": group, "auto_offset_reset": "earliest"}
    with KafkaConsumer("orders", **options) as consumer:
        while count:
            count -= sum(map(len, consumer.getmany(timeout_ms=3000, max_records=count).values()))
        consumer.commit()


def wait_for(page: Any, text: str) -> None:
    """Wait until the page says of its connection what begins with this text. The page's policy lets nobody evaluate code in it."""
    page.locator("#connection", has_text=re.compile(f"^{text}")).wait_for()


def test_the_page_in_a_browser() -> None:
    def write(cluster: Cluster) -> None:
        cluster.topic("orders", 3)
        cluster.produce_many("orders", ["x"] * 300)

    asked: list[str] = []
    said: list[str] = []
    with ThreadedCluster(Cluster(3)) as cluster, browser() as page:
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        cluster.call(write).result()
        begin(cluster, "billing", 30)
        with monitor(cluster.bootstrap) as running:
            port, base = running.port, f"http://127.0.0.1:{running.port}/"
            running.wait_for("/ready", lambda status, _: status == 200)
            assert page.goto(base).ok
            wait_for(page, "Live")
            assert page.text_content('tr[data-key="billing"] [data-cell="status"]') == "x STOP"

            # A row appears where it belongs, and what has the focus keeps it.
            page.focus('tr[data-key="billing"] a')
            begin(cluster, "fresh", 10)
            page.wait_for_selector('tr[data-key="fresh"]')
            assert page.evaluate("document.activeElement.textContent") == "billing"
            assert page.text_content("#summary") == "2 groups: 2 STOP"
            page.click('th[data-column="group"] button')
            assert page.eval_on_selector_all("#rows tbody tr", "rows => rows.map(row => row.dataset.key)") == ["fresh", "billing"]
            assert page.get_attribute('th[data-column="group"]', "aria-sort") == "descending"

        # The server goes, and comes back. What has gone meanwhile is not on the page any more.
        wait_for(page, "Not connected since")
        deleted = CliRunner().invoke(app, ["groups", "delete", "fresh", "-b", cluster.bootstrap, "--execute"])
        assert deleted.exit_code == 0, deleted.output
        with monitor(cluster.bootstrap, "--port", str(port)):
            wait_for(page, "Live")
            assert page.text_content("#summary") == "1 group: 1 STOP"
            assert page.eval_on_selector_all("#rows tbody tr", "rows => rows.map(row => row.dataset.key)") == ["billing"]
            assert page.goto(f"{base}groups/billing").ok
            wait_for(page, "Live")
            assert page.text_content('[data-fact="lag"]') == "270"
    assert [address for address in asked if not address.startswith(base)] == []
    assert [text for text in said if "ERR_CONNECTION_REFUSED" not in text] == [], "but for what a browser says without a server"
