"""The pages of ``top``: what they show in which size, and what keys do."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rich")

from rich.cells import cell_len

from kafka_async.adapters.cli.screens import ORDERS, Action, Screens, Shown
from kafka_async.adapters.monitor import Age, BrokerView, Certainty, ClusterOverview, Snapshot, Status
from kafka_async.model import TopicPartition
from tests.adapters.web.views import OWNER, group, part, snapshot

STOPPED = group(
    "billing",
    part("orders", 7, status=Status.STOP, lag=412_003, age=Age(720.0, Certainty.OVER), in_rate=1210.0, out_rate=0.0, owner=None),
    status=Status.STOP,
    members=(),
    state="Empty",
    notes=("no members",),
)
SLOW = group(
    "mailer",
    part("jobs", 0, status=Status.WARN, lag=9120, age=Age(41.0), in_rate=310.0, out_rate=295.0),
    status=Status.WARN,
    kind="share",
    notes=("the lag does not get smaller",),
)
FINE = group("audit", part("log", 1, lag=3, age=Age(0.4), in_rate=80.0, out_rate=80.0))
THREE = snapshot(STOPPED, SLOW, FINE)


def shown(screens: Screens, found: Snapshot = THREE, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in screens.lines(found, width, height)]


def test_one_of_a_thing_is_singular() -> None:
    alone = evolve(THREE.cluster, brokers=THREE.cluster.brokers[:1], leaderless=(TopicPartition("jobs", 1),))
    lines = shown(Screens(), snapshot(STOPPED, cluster=alone), width=100)

    assert lines[0] == " kafka-async top   prod, 1 broker, 1 partition without a leader   1 group: 1 STOP"


def test_the_overview_on_eighty_columns() -> None:
    lines = shown(Screens())

    assert len(lines) == 24
    assert lines[0] == " kafka-async top   prod, 3 brokers   3 groups: 1 STOP  1 WARN"
    assert lines[1].split() == ["STATUS", "GROUP", "MEMBERS", "LAG", "BEHIND", "IN/s", "OUT/s", "CLEAR", "IN"]
    assert lines[2].split() == [">x", "STOP", "billing", "0", "412,003", ">", "12", "min", "1,210", "0", "never"]
    assert "mailer (s)" in lines[3]
    assert "41 s" in lines[3]
    assert lines[4].startswith(" . OK")
    assert "q quit" in lines[-1]


def test_a_wider_terminal_has_the_worst_partition_too() -> None:
    assert shown(Screens(), width=100)[2].endswith("orders-7")


@pytest.mark.parametrize(("width", "height"), [(20, 5), (1, 1), (300, 100), (80, 24), (40, 2)])
@pytest.mark.parametrize("where", list(Shown))
def test_every_page_fits_every_terminal(where: Shown, width: int, height: int) -> None:
    screens = Screens()
    shown(screens)  # which selects the first
    screens.shown = where
    lines = shown(screens, width=width, height=height)

    assert len(lines) == height
    assert all(len(line) <= width for line in lines)


def test_numbers_stay_in_their_columns_beside_names_that_are_twice_as_wide() -> None:
    """Cut at the terminal's edge, a number looks like another one."""
    wide = group("注文" * 20, part("orders", 0, lag=412_003, in_rate=1210.0, out_rate=0.0, age=Age(720.0, Certainty.OVER)))
    title, first, second = shown(Screens(), snapshot(wide, STOPPED), width=80)[1:4]
    lag = cell_len(title[: title.index("LAG") + 3])

    assert "注文" in first
    for line in (first, second):
        assert cell_len(line[: line.index("412,003") + 7]) == lag
        assert line.endswith("never")


def test_the_same_group_stays_selected_while_groups_move() -> None:
    screens = Screens()
    shown(screens)
    screens.press("down")
    assert shown(screens)[3].startswith(">! WARN")
    lines = shown(screens, snapshot(SLOW, STOPPED, FINE))
    assert lines[2].startswith(">! WARN")
    assert shown(screens, snapshot(STOPPED, FINE))[2].startswith(">x")  # it is gone: the row at its place


def test_enter_shows_a_group_with_its_partitions_and_members_and_escape_goes_back() -> None:
    screens = Screens()
    shown(screens)
    screens.press("down")
    screens.press("enter")
    text = "\n".join(shown(screens))

    assert "mailer: WARN, Stable, share group" in text
    assert "the lag does not get smaller" in text
    assert "jobs-0" in text
    assert OWNER in text
    assert "▁▄▇" in text or "█" in text
    screens.press("escape")
    assert screens.shown is Shown.OVERVIEW


def test_a_group_that_goes_while_it_is_looked_at_is_told() -> None:
    screens = Screens()
    shown(screens)
    screens.press("enter")
    assert "group 'billing' is gone" in "\n".join(shown(screens, snapshot(FINE)))


def test_the_cluster_and_the_help() -> None:
    screens = Screens()
    screens.press("c")
    text = "\n".join(shown(screens))
    assert "b2:9092" in text
    assert "1 partition under-replicated" in text
    screens.press("h")
    assert "another row" in "\n".join(shown(screens))


def test_what_is_typed_after_a_slash_filters() -> None:
    screens = Screens()
    for key in ("/", "a", "u", "x", "backspace"):
        screens.press(key)
    lines = shown(screens)
    assert lines[-1] == " /au_"
    assert [line for line in lines if "billing" in line or "mailer" in line] == []
    for key in ("q", "enter"):
        assert screens.press(key) is None  # a letter of the filter, not the end
    assert "no groups with 'auq' in their name" in "\n".join(shown(screens))
    screens.press("escape")
    assert "billing" in "\n".join(shown(screens))


def test_s_goes_through_the_orders() -> None:
    screens = Screens()
    found = []
    for _ in ORDERS:
        found.append((screens.order, [group.name for group in screens.ordered(THREE)]))
        screens.press("s")

    assert dict(found)["name"] == ["audit", "billing", "mailer"]
    assert dict(found)["out"] == ["mailer", "audit", "billing"]
    assert screens.order == "trouble"


def test_q_ends_r_resets_and_p_pauses() -> None:
    screens = Screens()
    assert screens.press("q") is Action.QUIT
    assert screens.press("r") is Action.RESET
    screens.press("p")
    assert shown(screens)[0].endswith("PAUSED")


def test_what_there_is_no_room_for_is_counted_by_status() -> None:
    many = snapshot(STOPPED, *(group(f"g{number:05}") for number in range(10_000)))
    screens = Screens()
    lines = shown(screens, many)
    assert lines[-2].strip() == "9981 others: OK"
    screens.press("end")
    assert any(line.split()[:3] == [">.", "OK", "g09999"] for line in shown(screens, many))


def test_names_of_strangers_send_no_control_codes() -> None:
    evil = group("\x1b[2J\x1b]0;x\x07", part("t\n\x1b", 0, note="\x1b[31m", lag=1), notes=("\x1b[5m",), state="\x1b")
    screens = Screens()
    for keys in ((), ("enter",), ("escape", "c")):
        for key in keys:
            screens.press(key)
        assert all(line.isprintable() for line in shown(screens, snapshot(evil)))


def test_a_broker_that_does_not_answer_is_in_the_first_line() -> None:
    late = BrokerView(node_id=2, address="b2:9092", rack=None, leads=1, age_seconds=18.0, note="no answer")
    cluster = ClusterOverview(cluster_id="prod", controller=0, brokers=(late,), leaderless=(), under_replicated=())
    assert "(2: 18 s old)" in shown(Screens(), snapshot(FINE, cluster=cluster))[0]


def test_a_broker_that_was_not_asked_is_no_broker_that_does_not_answer() -> None:
    idle = BrokerView(node_id=2, address="b2:9092", rack=None, leads=1, age_seconds=18.0, asked=False)
    seen = snapshot(FINE, cluster=evolve(THREE.cluster, brokers=(idle,)))
    screens = Screens()
    assert "18 s old" not in shown(screens, seen)[0]
    screens.press("c")
    assert any("not asked" in line for line in shown(screens, seen))


names = st.text(min_size=1, max_size=260)
keys = st.sampled_from(["up", "down", "enter", "escape", "s", "/", "p", "c", "h", "pagedown", "end", "home", "a", "backspace", "j"])


@pytest.mark.slow
@given(st.lists(st.tuples(names, st.sampled_from(Status)), max_size=30, unique_by=lambda pair: pair[0]), st.lists(keys), st.data())
def test_whatever_is_pressed_there_is_a_page(found: list[tuple[str, Status]], pressed: list[str], data: st.DataObject) -> None:
    groups = snapshot(*(group(name, part(name, 0, lag=5), status=status) for name, status in found))
    screens = Screens()
    for key in pressed:
        screens.press(key)
        width, height = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 40))
        lines = shown(screens, groups, width, height)
        assert len(lines) == height
        assert all(cell_len(line) <= width and line.isprintable() for line in lines)
