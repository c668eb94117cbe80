"""The page on the log shows lines that the code writes, and every outage in it has a beginning and an end.

The lines are of a real run (``python -m tests.faults.operators_log``). A text that changes makes the page out of date.
"""

import ast
import json
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafka_async.trace import Fault, LoggingListener

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "kafka_async" / "LOGGING.md").read_text()
LINE = re.compile(
    r"^\d\d:\d\d:\d\d (?P<level>[A-Z]+) +kafka_async(\.\w+)? \[(?P<who>web-\w+), group \w+\] (?P<text>.*)$", re.MULTILINE
)
LEAST = 12
"""Letters of a text that are fixed, below which it would match anything."""


@cache
def texts() -> list[re.Pattern[str]]:
    """Return the texts of the package that may be on the page, with anything in place of what is filled in."""
    found = []
    for path in sorted((ROOT / "kafka_async").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = [node.value]
            else:
                continue
            if parts[:1] == [None]:
                continue  # what is put into other texts
            if any(str(part) not in PAGE for part in parts if part is not None):
                continue  # ten thousand others, whose patterns take seconds
            if sum(char.isalpha() for part in parts if part is not None for char in str(part)) >= LEAST:
                found.append("".join(".*" if part is None else re.escape(str(part)) for part in parts))
    return [re.compile(text + r"( \(.*\))?(: [\w.-]+-[\d,]+)*") for text in dict.fromkeys(found)]


WRITTEN = [match["text"] for match in LINE.finditer(PAGE)]


def test_the_page_has_lines_of_both_consumers() -> None:
    assert {match["who"] for match in LINE.finditer(PAGE)} == {"web-billing", "web-audit"}
    assert len(WRITTEN) > 40


@pytest.mark.parametrize("text", sorted(set(WRITTEN)), ids=lambda text: text[:60])
def test_a_line_of_the_page_is_one_that_the_code_writes(text: str) -> None:
    assert any(known.fullmatch(text) for known in texts()), text


def test_the_end_of_an_outage_has_its_length() -> None:
    ends = [text for text in WRITTEN if text.startswith("recovered: ")]

    assert len(ends) > 5
    assert all(re.fullmatch(r"recovered: .*, after \d+\.\d s and \d+ failures?(: .*)?", text) for text in ends)


def test_every_logger_of_the_package_is_in_the_table() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "kafka_async").rglob("*.py"))
    used = set(re.findall(r'getLogger\("(kafka_async[.\w]*)"\)', sources)) - {"kafka_async.librdkafka"}  # has no handler
    assert used <= set(re.findall(r"^\| `(kafka_async[.\w]*)` \| ", PAGE, re.MULTILINE))


def test_the_formatter_of_the_page_writes_a_line_as_json_with_every_field_of_the_table() -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class JsonFormatter" in block]
    names: dict[str, Any] = {}
    exec(compile(program.partition("\n\nhandler = ")[0], "LOGGING.md", "exec"), names)  # noqa: S102 - our own page
    assert list(names["FIELDS"]) == re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## Structured fields")[2], re.MULTILINE)
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    logger, handler = logging.getLogger("kafka_async.group"), Kept()
    handler.setFormatter(names["JsonFormatter"]())
    logger.addHandler(handler)
    try:
        listener = LoggingListener(client_id="web-1", group_id="billing")
        listener(Fault(now=0.0, text="lost", error=OSError("gone"), subject="group", outage="the coordinator"))
    finally:
        logger.removeHandler(handler)
    (line,) = map(json.loads, lines)
    assert line.items() >= {"level": "WARNING", "logger": "kafka_async.group", "client_id": "web-1", "group_id": "billing"}.items()
    assert line["outage"] == "the coordinator"
    assert line["error"] == "OSError"
    assert "lost" in line["message"]
