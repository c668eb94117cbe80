"""The tables and pictures of the pages are made from the numbers that are kept beside them, and from the tables in the code."""

import json
import re
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import lanes, page, svg
from benchmarks.__main__ import known

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
MADE = page.outputs()
PICTURES = [path for path in MADE if path.suffix == ".svg"]


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_and_pictures_show_the_numbers_that_are_kept(path: Path) -> None:
    assert path.read_text() == MADE[path], "python -m benchmarks.page"


def test_what_process_did_in_the_picture_is_what_it_does() -> None:
    assert json.loads(page.RUN.read_text()) == lanes.recorded(), "python -m benchmarks.page"


def test_the_picture_of_process_shows_what_it_is_about() -> None:
    drawn = lanes.timeline(json.loads(page.RUN.read_text()))
    for lane in {each.lane for each in drawn.stretches}:
        own = [each for each in drawn.stretches if each.lane == lane]
        assert all(before.end <= after.begin for before, after in pairwise(own)), "one at a time"
    ended = {int(each.label): each.end for each in drawn.stretches if each.good}
    for at, offset in drawn.commits:
        assert all(ended[done] <= at for done in range(offset)), "committed and not done"
    assert drawn.commits[-1][1] == drawn.end
    assert not all(each.good for each in drawn.stretches)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_texts_of_a_picture_are_within_it_and_do_not_overlap(path: Path) -> None:
    picture = ElementTree.fromstring(MADE[path])  # noqa: S314 - our own
    places = []
    for text in picture.iter(f"{SVG}text"):
        words, x, y = text.text or "", float(text.attrib["x"]), float(text.attrib["y"])
        width = svg.LETTER * len(words)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[text.attrib["text-anchor"]]
        places.append((left, y - 11, left + width, y + 2, words))
    for left, top, right, bottom, words in places:
        assert left >= 0, words
        assert right <= svg.WIDTH, words
        assert 0 <= top < bottom <= float(picture.attrib["height"]), words
        over = [other[4] for other in places if other[0] < right and left < other[2] and other[1] < bottom and top < other[3]]
        assert over == [words]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_every_color_has_a_dark_counterpart(path: Path) -> None:
    light, _, dark = MADE[path].partition("prefers-color-scheme: dark")
    colored = set(re.findall(r"\.(\w+) \{[^}]*(?:fill|stroke): #", light))
    assert colored == set(re.findall(r"\.(\w+) \{[^}]*(?:fill|stroke): #", dark))


ABOUT = {"date": "2026-11-25T10:00:00+00:00", "commit": "abc", "machine": "2 CPUs"}


def written(folder: Path, name: str, *, scenario: str = "", **about: str) -> Path:
    runs = [{"client": "ours", "round": number, "values": {"p50_ms": number + 0.123456}, "error": None} for number in (0, 1)]
    runs.append({"client": "peer", "round": 0, "values": {}, "error": "died"})
    kind = {"command": "latency", "title": f"latency {scenario}", "scenario": scenario, "shape": {"size": 100}}
    group = {**kind, "runs": runs, "verdicts": []}
    path = folder / name
    path.write_text(json.dumps({"about": ABOUT | about, "groups": [group]}))
    return path


def test_the_numbers_of_one_run_are_put_together(tmp_path: Path) -> None:
    later = written(tmp_path, "b.json", scenario="other", date="2026-11-25T11:00:00+00:00")
    kept = page.gather([written(tmp_path, "a.json"), later])

    assert kept["about"] == {"commit": "abc", "machine": "2 CPUs", "from": ABOUT["date"], "to": "2026-11-25T11:00:00+00:00"}
    assert kept["groups"][0]["series"] == {"ours": {"p50_ms": [0.1235, 1.123]}}
    assert kept["groups"][0]["failed"] == {"peer": "died"}
    assert json.loads(page.dump(kept)) == kept
    found = page.Figures(**kept)
    assert found.values("latency", "p50_ms", "ours", "other", size=100) == [0.1235, 1.123]
    assert found.values("latency", "p50_ms", "ours", size=1000) == []


def around(series: dict[str, dict[str, list[float]]]) -> page.Figures:
    """Return numbers of what stands around a handler, and of handlers of 0 ms beside other clients."""
    group = {"command": "processing", "shape": {}}
    others = {**group, "title": "processing: handlers of 0 ms", "scenario": "0 ms", "series": {"plain": {"cpu_us": [9.0]}}}
    own = {**group, "title": "processing: around handlers of 0 ms", "scenario": "around"}
    return page.Figures(about={}, groups=[others, {**own, "series": series}])


def test_what_stands_around_a_handler_is_compared_with_nothing_in_the_same_round() -> None:
    plain = {"handlers_per_s": [500_000.0, 250_000.0, 400_000.0], "cpu_us": [2.0, 4.0, 2.5]}
    rate = {"handlers_per_s": [300_000.0, 200_000.0, 100_000.0], "cpu_us": [3.0, 4.4, 5.0]}

    *_, first, last = page.around(around({"plain": plain, "kafka_async.rate": rate})).splitlines()

    assert first == "| nothing | 400,000 | 2.5 | 1.00 |"
    assert last == "| `rate`, never reached | 200,000 | 4.4 | 1.50 |"


def test_nothing_is_said_of_what_stands_around_a_handler_until_it_is_measured() -> None:
    assert page.around(around({})) == ""


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({"commit": "def"}, "expected"),
        ({"machine": "64 CPUs"}, "expected"),
        ({}, "more than once"),
    ],
)
def test_numbers_of_another_run_are_refused(tmp_path: Path, about: dict[str, str], complaint: str) -> None:
    files = [written(tmp_path, "a.json"), written(tmp_path, "b.json", **about)]
    with pytest.raises(ValueError, match=complaint):
        page.gather(files)


def test_numbers_of_changed_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="check out"):
        page.gather([written(tmp_path, "a.json", commit="abc-dirty")])


def test_the_kept_numbers_are_of_one_commit_and_each_row_that_is_shown_has_ours() -> None:
    figures = page.Figures(**json.loads(page.KEPT.read_text()))
    assert re.fullmatch(r"[0-9a-f]{12}", figures.about["commit"])
    assert f"`{figures.about['commit']}`" in (ROOT / "benchmarks" / "README.md").read_text()


def states() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".docs" / "states.py"))


def test_the_page_of_states_is_printed_from_the_tables() -> None:
    made = states()
    assert made["PAGE"].read_text() == made["page"](), "python .docs/states.py"


def test_every_table_of_states_is_on_the_page() -> None:
    package = ROOT / "kafka_async"
    tables = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"^TRANSITIONS\b.* = StateTable\($", path.read_text(), re.MULTILINE) and "testing" not in path.parts
    }
    assert tables == {path for path, _ in states()["MACHINES"]}


def test_what_reads_one_partition_only_is_compared_where_there_is_one() -> None:
    assert "raw.fetch" in known("distance")
    assert "raw.fetch" not in [*known("throughput"), *known("latency")]
