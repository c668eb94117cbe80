"""The walks in the package's README are those that records and calls take."""

import re
from functools import cache

import pytest

from .house import PACKAGE
from .walks import Passed, walks

UNSEEN = {
    "network/transport.py": "the test kit hands bytes over without a socket",
    "records/_decode.pyx": "compiled",
    "application/reading/turns.py": "compiled, in _iteration.pyx",
}
"""Files on a walk in which no code runs here, or none that can be seen."""
TITLES = {
    "A record to `getmany`": "a record to getmany",
    "A commit": "a commit",
    "A record through `process`": "a record through process, and its commit",
    "An assignment": "an assignment",
    "A record of a share group, and its acknowledgement": "a record of a share group, and its acknowledgement",
}
passed = cache(walks)


def told() -> dict[str, Passed]:
    """Return the files of each walk as the README has them."""
    section = (PACKAGE / "README.md").read_text().split("## Five walks")[1].split("\n## ")[0]
    found = {}
    for title, text in re.findall(r"^\*\*(.+?)\*\*.*?^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        room, files = "", set()
        for line in text.splitlines():
            room = line.split()[0] if line[0] != " " else room
            files |= {room + name for name in re.findall(r"[\w/]+\.pyx?", line)}
        found[title] = files
    return found


def test_five_walks_are_told() -> None:
    assert told().keys() == TITLES.keys()


@pytest.mark.parametrize("title", TITLES)
def test_code_runs_in_each_file_of_a_walk(title: str) -> None:
    files = told()[title]
    assert len(files) > 5
    assert files - UNSEEN.keys() - passed()[TITLES[title]] == set()


def test_every_file_of_a_walk_exists() -> None:
    assert not [name for files in told().values() for name in files if not (PACKAGE / name).exists()]


def test_the_walks_get_not_much_longer() -> None:
    """Files in which code runs, with those that only look on. A part that is cut in two may add one to each walk."""
    most = {"a record to getmany": 42, "a commit": 68, "a record through process, and its commit": 88}
    most |= {"an assignment": 84, "a record of a share group, and its acknowledgement": 60}
    assert {title: len(files) for title, files in passed().items() if len(files) > most[title]} == {}
