"""What is under which path: pages for people, numbers for programs, and no number where none is known."""

import json
import re
from html.parser import HTMLParser
from http import HTTPStatus
from math import inf
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kafka_async.adapters.monitor import Age, BrokerView, Certainty, MemberView, Snapshot, Status
from kafka_async.adapters.web.messages import RefusedRequest, Reply, WebRequest
from kafka_async.adapters.web.site import LastSeen, Site

from .views import group, part, snapshot

STOPPED = group("billing", part("orders", 7, status=Status.STOP, lag=90, age=Age(40.0), owner=None), status=Status.STOP, members=())
DOTTED = group('a.b/c"d', part("jobs", 0, lag=10), part("jobs", 1, lag=None, committed=None), status=Status.WARN)
FINE = group("audit", part("log", 0))
UNKNOWN = group("lost", part("log", 0, lag=None, age=None, status=Status.UNKNOWN), status=Status.UNKNOWN)
ALL = snapshot(STOPPED, DOTTED, UNKNOWN, FINE)
SITE = Site(5.0)


def ask(path: str, seen: Snapshot | None = ALL, age: float = 0.0, site: Site = SITE, **query: str) -> Reply:
    return site.answer(WebRequest("GET", path, query, {}), LastSeen(snapshot=seen, age=age))


def refusal(path: str, seen: Snapshot | None = ALL, age: float = 0.0, **query: str) -> HTTPStatus:
    with pytest.raises(RefusedRequest) as refused:
        ask(path, seen, age, SITE, **query)
    return refused.value.status


def told(path: str, *arguments: Any, **query: Any) -> Any:
    return json.loads(ask(path, *arguments, **query).body)


# --- programs ------------------------------------------------------------------------------------------------------------------


def test_groups_are_json_the_worst_first() -> None:
    assert [row["group"] for row in told("/api/v1/groups")["groups"]] == ["billing", 'a.b/c"d', "lost", "audit"]
    assert [row["group"] for row in told("/api/v1/groups", status="warn")["groups"]] == ['a.b/c"d']
    limited = told("/api/v1/groups", limit="1")
    assert (len(limited["groups"]), limited["total"], limited["poll"]) == (1, 4, 2)
    assert refusal("/api/v1/groups", status="bad") is HTTPStatus.BAD_REQUEST
    assert refusal("/api/v1/groups", limit="-1") is HTTPStatus.BAD_REQUEST


def test_one_group_is_json_with_its_partitions_and_grows_older() -> None:
    row = told('/api/v1/groups/a.b/c"d', ALL, 7.5)

    assert (row["lag"], row["lag_complete"], row["age_seconds"]) == (10, False, 7.5)
    assert [each["lag"] for each in row["partitions"]] == [10, None]


@pytest.mark.parametrize("path", ["/api/v1/groups/typo", "/groups/typo", "/keda/groups/typo", "/typo", "/groups/", "/page.html"])
def test_what_is_not_there_is_404(path: str) -> None:
    assert refusal(path) is HTTPStatus.NOT_FOUND


def test_the_cluster_is_json() -> None:
    row = told("/api/v1/cluster", ALL, 1.25)
    assert (row["cluster_id"], len(row["brokers"]), row["under_replicated"]) == ("prod", 3, ["jobs-1"])
    assert row["groups"] == {"STOP": 1, "WARN": 1, "UNKNOWN": 1, "OK": 1}
    assert row["age_seconds"] == 1.25


def test_what_will_never_be_caught_up_with_is_valid_json() -> None:
    slow = group("slow", part("t", 0, lag=5, in_rate=2.0, out_rate=1.0), status=Status.WARN)
    assert slow.clear_in == inf
    row = told("/api/v1/groups/slow", snapshot(slow))
    assert (row["clear_in"], row["clears"]) == (None, False)


@pytest.mark.parametrize("path", ["/api/v1/groups", "/api/v1/groups/billing", "/api/v1/cluster", "/keda/groups/billing"])
def test_before_the_first_poll_programs_get_no_numbers(path: str) -> None:
    assert refusal(path, None) is HTTPStatus.SERVICE_UNAVAILABLE


def test_alive_at_once_and_ready_after_the_first_poll() -> None:
    assert ask("/alive", None).status is HTTPStatus.OK
    assert ask("/ready", None).status is HTTPStatus.SERVICE_UNAVAILABLE
    assert ask("/ready").status is HTTPStatus.OK


# --- KEDA ----------------------------------------------------------------------------------------------------------------------


def test_the_lag_of_a_group_for_a_scaler() -> None:
    assert told("/keda/groups/billing", ALL, 1.0) == {
        "group": "billing",
        "type": "consumer",
        "status": "STOP",
        "lag": 90,
        "lag_complete": True,
        "lag_seconds": 40.0,
        "members": 0,
        "age_seconds": 1.0,
        "partitions": 1,
        "lagging_partitions": 1,
    }


def test_more_members_than_partitions_are_asked_for_by_a_share_group_alone() -> None:
    share = evolve(STOPPED, kind="share", name="workers")
    assert told("/keda/groups/billing", target="10")["scaled"] == 10
    assert told("/keda/groups/billing", target="100")["scaled"] == 90
    assert told("/keda/groups/workers", snapshot(share), target="10")["scaled"] == 90
    assert refusal("/keda/groups/billing", target="1e9") is HTTPStatus.BAD_REQUEST


def test_a_lag_of_nothing_is_a_number_if_it_is_known() -> None:
    assert told("/keda/groups/audit")["lag"] == 0


@pytest.mark.parametrize(
    ("seen", "age"),
    [
        (UNKNOWN, 0.0),
        (FINE, 15.1),  # three polls of five seconds are missing
        (evolve(FINE, lag=None), 0.0),
        (evolve(FINE, complete=False), 0.0),  # nothing of what is known, and something is not known
        (evolve(FINE, taken_at=None), 0.0),
    ],
)
def test_a_lag_that_is_not_known_or_too_old_is_no_number(seen: Any, age: float) -> None:
    assert refusal(f"/keda/groups/{seen.name}", snapshot(seen), age) is HTTPStatus.SERVICE_UNAVAILABLE


def test_part_of_the_lag_is_a_number_that_says_so() -> None:
    assert told('/keda/groups/a.b/c"d')["lag_complete"] is False


# --- Prometheus ----------------------------------------------------------------------------------------------------------------


def series(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples] for family in text_string_to_metric_families(text)
    }


def test_metrics_have_the_names_that_dashboards_know_and_no_series_for_what_is_unknown() -> None:
    found = series(ask("/metrics", ALL, 2.0).body.decode())

    assert found["kafka_async_group_lag"] == [({"group": "billing"}, 90), ({"group": 'a.b/c"d'}, 10), ({"group": "audit"}, 0)]
    assert ({"group": "billing"}, 40.0) in found["kafka_async_group_lag_seconds"]
    assert ({"group": "billing"}, 0) in found["kafka_async_group_members"]
    states = [labels["status"] for labels, value in found["kafka_async_group_status"] if labels["group"] == "billing" and value]
    assert states == ["STOP"]
    assert len(found["kafka_async_group_status"]) == 4 * len(Status)
    assert found["kafka_async_group_rebalances"][0] == ({"group": "billing"}, 0)
    assert ({"group": "audit"}, 2.0) in found["kafka_async_group_poll_age_seconds"]
    assert found["kafka_async_cluster_brokers"] == [({}, 3)]
    assert found["kafka_async_cluster_offline_partitions"] == [({}, 0)]
    assert found["kafka_async_cluster_under_replicated_partitions"] == [({}, 1)]
    assert {"kafka_async_monitor_poll_seconds", "kafka_async_monitor_poll_errors"} <= found.keys()
    assert "kafka_async_partition_lag" not in found


def test_a_lag_of_nothing_is_no_series_while_a_partition_is_not_known() -> None:
    """The alert on a partition that was behind ended the moment it went offline."""
    offline = part("jobs", 1, lag=None, end=None, age=None, status=Status.UNKNOWN)
    behind, done = part("jobs", 0, lag=5, age=Age(9.0)), part("jobs", 0, lag=0)
    seen = snapshot(group("some", behind, offline), group("none", done, offline), group("all", done))

    found = series(ask("/metrics", seen).body.decode())

    assert found["kafka_async_group_lag"] == [({"group": "some"}, 5), ({"group": "all"}, 0)]
    assert found["kafka_async_group_lag_seconds"] == [({"group": "some"}, 9), ({"group": "all"}, 0)]
    assert found["kafka_async_group_lag_complete"] == [({"group": "some"}, 0), ({"group": "none"}, 0), ({"group": "all"}, 1)]
    row = told("/api/v1/groups/some", seen)
    assert (row["lag_seconds"], row["lag_seconds_over"]) == (None, 9.0), "it may be older"


def test_how_far_behind_is_not_known_while_it_is_not_of_a_partition_with_lag() -> None:
    early = group("early", part("jobs", 0, lag=0), part("jobs", 1, lag=400_000, age=None))
    assert early.age is None


def test_metrics_of_partitions_only_if_they_are_wanted() -> None:
    found = series(ask("/metrics", site=Site(5.0, partitions=True)).body.decode())
    assert ({"group": "billing", "topic": "orders", "partition": "7"}, 90) in found["kafka_async_partition_lag"]
    assert len(found["kafka_async_partition_lag"]) == 3


def test_before_the_first_poll_there_are_no_metrics() -> None:
    assert ask("/metrics", None).body == b""


@pytest.mark.slow
@given(st.text(min_size=1))
def test_any_name_is_a_label(name: str) -> None:
    name = "".join(char for char in name if char != "\r")  # which the parser takes for the end of a line
    found = series(ask("/metrics", snapshot(group(name or "x", part("t", 0)))).body.decode())
    assert found["kafka_async_group_lag"] == [({"group": name or "x"}, 0)]


# --- pages ---------------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Reads a page, and complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.items: list[str] = []
        """Of a list."""
        self.texts: dict[str, str] = {}
        """Under the ids of the elements."""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "polyline"):
            self._open.append(tag)
        if tag == "li":
            self.items.append("")
        if (name := dict(attrs).get("id")) is not None:
            self.texts[name] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open[-1:] == ["li"]:
            self.items[-1] += data
        elif self._open and (name := self._last_with_id()) is not None:
            self.texts[name] += data

    def _last_with_id(self) -> str | None:
        """Return the id of the element that was opened last, if it is open and has one."""
        tag, attributes = self.found[-1]
        return attributes.get("id") if tag == self._open[-1] else None

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def page(path: str, seen: Snapshot | None = ALL) -> Page:
    reply = ask(path, seen)
    assert reply.kind == "text/html; charset=utf-8"
    return Page(reply.body.decode())


def test_the_page_has_all_values_without_javascript() -> None:
    found = page("/")

    assert [row["data-key"] for row in found.all("tr") if "data-key" in row] == ["billing", 'a.b/c"d', "lost", "audit"]
    for text in ("x STOP", "40 s", "orders-7", ">=10", "4 groups", "Cluster prod, 3 brokers", "1 under-replicated"):
        assert text in found.text
    assert {"http-equiv": "refresh", "content": "10"} in found.all("meta")
    assert {link["href"] for link in found.all("a")} >= {"/groups/billing", "/groups/a.b%2Fc%22d"}


def test_the_page_is_told_to_those_who_do_not_see_it() -> None:
    found = page("/")

    assert len(found.all("caption")) == len(found.all("main")) == len(found.all("h1")) == 1
    assert all(head.get("scope") in ("col", "row") for head in found.all("th"))
    sorts = [head["aria-sort"] for head in found.all("th") if "aria-sort" in head]
    assert sorts.count("descending") == 1
    assert len(sorts) == len(found.all("button"))
    assert [each["aria-live"] for each in found.all("p") if "aria-live" in each] == ["polite"]
    for drawing in found.all("svg"):
        assert drawing["role"] == "img"
        assert re.match(r"lag (grew|went|stayed) ", drawing["aria-label"] or "")
    assert found.all("html")[0]["lang"] == "en"


def test_a_page_loads_nothing_from_elsewhere_and_has_no_scripts_or_styles_in_it() -> None:
    for path in ("/", "/groups/billing"):
        found = page(path)
        for tag, attributes in found.found:
            for name in ("href", "src"):
                assert (attributes.get(name) or "/").startswith("/")
            assert not [name for name in attributes if name == "style" or name.startswith("on")]
            assert tag not in ("style", "iframe", "img")
        assert [each.get("src") for each in found.all("script")] == ["/page.js"]
    for name in ("page.js", "page.css", "icon.svg"):
        assert ask(f"/{name}").body
    assert b"://" not in ask("/page.css").body


def test_the_page_of_a_group() -> None:
    found = page("/groups/billing")

    assert found.all("body")[0]["data-group"] == "billing"
    for text in ("Partitions of billing", "orders-7", "Rebalances in the last hour", "There are none."):
        assert text in found.text
    assert "worker@10.0.0.1: log-0" in page("/groups/audit").text


def test_the_page_before_the_first_poll() -> None:
    assert "has not ended yet" in page("/", None).text


@pytest.mark.slow
def test_many_groups_are_the_worst_and_a_number() -> None:
    many = snapshot(*(group(f"g{number}", part("t", 0)) for number in range(10_000)))
    found = page("/", many)
    assert len([row for row in found.all("tr") if "data-key" in row]) == 200
    assert "9,800 others: 9,800 OK" in found.text


def test_a_broker_that_does_not_answer_is_told() -> None:
    late = BrokerView(node_id=2, address="b2:9092", rack=None, leads=0, age_seconds=9.0, note="<no answer>")
    cluster = evolve(ALL.cluster, brokers=(late,), leaderless=(STOPPED.partitions[0].partition,))
    text = page("/", evolve(ALL, cluster=cluster)).text
    assert "broker 2 does not answer: <no answer>" in text
    assert "1 partition without a leader" in text


TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "link",
        "noscript",
        "script",
        "body",
        "main",
        "footer",
        "h1",
        "h2",
        "p",
        "a",
        "span",
        "ul",
        "li",
    ),
    *("dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "button", "svg", "polyline"),
}
EVIL = "<script>alert(1)</script>\"'&\x00\x1b"


@pytest.mark.slow
@given(st.text(min_size=1) | st.just(EVIL), st.text() | st.just(EVIL), st.text(min_size=1) | st.just(EVIL))
def test_names_of_strangers_stay_text(name: str, owner: str, topic: str) -> None:
    bad = group(name, part(topic, 0, owner=owner, note=owner, lag=1), notes=(owner,), state=owner)
    for path in ("/", f"/groups/{name}"):
        found = page(path, snapshot(bad))
        assert len(found.all("script")) == 1
        assert {tag for tag, _ in found.found} <= TAGS


# --- events --------------------------------------------------------------------------------------------------------------------


def event(before: Snapshot | None, now: Snapshot, **query: str) -> dict[str, Any]:
    return SITE.event(WebRequest("GET", "/events", query, {}), before, now)


def test_a_page_is_told_everything_first_and_then_what_changed() -> None:
    first = event(None, ALL)
    assert [row["key"] for row in first["rows"]] == ["billing", 'a.b/c"d', "lost", "audit"]
    assert first["all"], "a row that the page has, and this does not name, is of a group that has gone meanwhile"
    assert (event(ALL, ALL)["rows"], event(ALL, ALL)["all"]) == ([], False)
    now = snapshot(evolve(STOPPED, status=Status.OK), DOTTED, UNKNOWN, number=3)
    told = event(ALL, now)
    assert [(row["key"], row["status"]) for row in told["rows"]] == [("billing", "OK")]
    assert told["gone"] == ["audit"]
    assert told["texts"]["summary"] == "3 groups: 1 WARN, 1 UNKNOWN, 1 OK"
    assert told["rows"][0]["cells"]["lag"] == "90"


DOWN = BrokerView(node_id=2, address="b2:9092", rack=None, leads=0, age_seconds=9.0, note="<no answer>")


@pytest.mark.parametrize(
    "now",
    [
        ALL,
        snapshot(),
        snapshot(*(group(f"g{number}", part("t", 0)) for number in range(10_000))),
        evolve(ALL, cluster=evolve(ALL.cluster, brokers=(DOWN,), leaderless=(STOPPED.partitions[0].partition,))),
    ],
    ids=["as it was", "no groups", "many groups", "a broker down"],
)
def test_a_page_that_is_open_says_what_one_says_that_is_loaded(now: Snapshot) -> None:
    loaded = page("/", now).texts
    texts = event(ALL, now)["texts"]
    assert texts == {name: text for name, text in loaded.items() if name in ("cluster", "summary", "others")}
    assert len(texts) == 3
    found = now.find("audit")
    if found is not None:
        assert event(ALL, now, group="audit")["texts"] == {"cluster": page("/groups/audit", now).texts["cluster"]}


@pytest.mark.parametrize(
    ("members", "texts"),
    [
        ((), ["There are none."]),
        (None, ["It is not known which there are."]),
        ((MemberView(member_id="m", owner="a@b", partitions=()),), ["a@b: no partitions"]),
        (FINE.members, ["worker@10.0.0.1: log-0"]),
    ],
)
def test_members_that_come_and_go_are_told(members: Any, texts: list[str]) -> None:
    now = snapshot(evolve(FINE, members=members))
    assert event(ALL, now, group="audit")["members"] == page("/groups/audit", now).items == texts


def test_the_page_of_a_group_is_told_about_its_partitions() -> None:
    told = event(ALL, ALL, group="billing")
    assert ([row["key"] for row in told["rows"]], told["all"]) == (["orders-7"], True)
    assert told["facts"]["status"] == "x STOP"


def test_the_page_of_a_group_that_is_gone_says_so_and_keeps_no_number() -> None:
    names = {attributes["data-fact"] for attributes in page("/groups/billing").all("dd") if "data-fact" in attributes}
    told = event(ALL, snapshot(FINE), group="billing")
    assert (told["rows"], told["all"], told["members"]) == ([], True, ["There are none."])
    assert told["trend"] == {"points": "", "label": "no trend yet"}
    assert told["facts"] == dict.fromkeys(names, "-") | {"status": "gone", "notes": "the group is gone"}


def test_an_age_is_told_with_how_it_is_known() -> None:
    over = group("far", part("t", 0, lag=5, age=Age(720.0, Certainty.OVER)))
    row = told("/api/v1/groups/far", snapshot(over))
    assert (row["lag_seconds"], row["lag_seconds_over"]) == (None, 720.0)
    assert "> 12 min" in page("/", snapshot(over)).text
