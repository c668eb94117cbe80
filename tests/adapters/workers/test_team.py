"""What is done about workers, and when: with a clock of the test."""

from collections.abc import Iterator
from math import inf

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.adapters.workers.reports import CannotRun, Report
from kafka_async.adapters.workers.team import Deed, Policy, Stage, Team, WorkerSlot

ASSIGNED = Report(assigned_once=True)
POLICY = Policy(stop_timeout=10, silent_after=60, first_delay=1, longest_delay=30, calm_after=60)


@define
class Scene:
    """A team, and what was done to its processes."""

    team: Team
    now: float = 0.0
    done: list[str] = field(factory=list)

    @classmethod
    def of(cls, workers: int = 2, policy: Policy = POLICY) -> "Scene":
        scene = cls(Team.of(workers, policy))
        scene.step()
        return scene

    def step(self, seconds: float = 0.0) -> list[str]:
        """Let time pass, and return what is done at its end."""
        self.now += seconds
        done: list[str] = []
        for deed, slot in self.team.due(self.now):
            done.append(f"{deed.value} {slot.number}")
            if deed is Deed.START:
                self.team.started(slot, self.now)
        self.done += done
        return done

    def report(self, *numbers: int, report: Report = ASSIGNED) -> None:
        for number in numbers:
            self.team.reported(self.slot(number), report, self.now)

    def exit(self, number: int, code: int = 1, refused: str | None = None) -> list[str]:
        self.team.exited(self.slot(number), code, self.now, jitter=0.0, refused=None if refused is None else CannotRun(refused))
        return self.step()

    def slot(self, number: int) -> WorkerSlot:
        return self.team.slots[number - 1]

    @property
    def wait(self) -> float:
        return self.team.next_at(self.now) - self.now

    def news(self) -> str:
        text = "\n".join(self.team.news)
        self.team.news.clear()
        return text


def test_all_begin_at_once() -> None:
    assert Scene.of(3).done == ["start 1", "start 2", "start 3"]


def test_one_that_fails_comes_back_later_each_time() -> None:
    scene = Scene.of()
    delays = []
    for _ in range(7):
        scene.report(1)
        assert scene.exit(1) == []
        delays.append(scene.wait if scene.wait < 60 else inf)
        assert scene.step(delays[-1]) == ["start 1"]
        scene.report(2)
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    assert "worker 1 failed with exit code 1 after 0 s; it starts again in 1.0 s" in scene.news()


def test_one_that_ran_for_long_comes_back_soon() -> None:
    scene = Scene.of(1)
    for _ in range(3):
        scene.report(1)
        scene.exit(1)
        scene.step(scene.wait)
    scene.report(1)
    scene.step(59)
    scene.report(1)
    scene.step(59)
    scene.exit(1)
    assert scene.wait == 1


def test_one_whose_program_returns_is_done() -> None:
    scene = Scene.of()
    assert scene.exit(1, code=0) == []
    assert not scene.team.is_over
    scene.exit(2, code=0)
    assert scene.team.is_over
    assert scene.team.exit_code == 0
    assert scene.wait == inf


def test_a_program_that_cannot_run_ends_all() -> None:
    scene = Scene.of()
    assert scene.exit(1, code=2, refused="no module named 'main'") == ["TERM 2"]
    assert not scene.team.is_over
    scene.exit(2, code=-15)
    assert scene.team.is_over
    assert scene.team.exit_code == 2
    assert scene.news() == "the program cannot run: no module named 'main'"


def test_a_program_that_cannot_be_imported_for_a_moment_ends_none_that_work() -> None:
    scene = Scene.of(4)
    scene.report(1, 2, 3)
    scene.exit(4, code=-9)
    assert scene.step(scene.wait) == ["start 4"]
    assert scene.exit(4, code=2, refused="no module named 'billing.rates'") == []
    assert scene.step(scene.wait) == ["start 4"]
    assert scene.team.exit_code == 0


def test_a_wrong_option_after_hours_is_a_failure_like_others() -> None:
    scene = Scene.of()
    scene.report(1, 2)
    assert scene.exit(1, code=2, refused="bootstrap_servers: expected host:port") == []
    assert scene.wait == 1


def test_one_that_ends_at_once_three_times_ends_all_unless_one_was_ever_assigned_partitions() -> None:
    scene = Scene.of()
    scene.exit(1)
    scene.exit(2)
    assert scene.step(1) == ["start 1", "start 2"], "one failure of each is none of the program"
    scene.exit(1)
    assert scene.step(2) == ["start 1"]
    assert scene.exit(1, code=-11) == ["TERM 2"]
    assert scene.team.exit_code == 128 + 11
    assert "3 times in a row" in scene.news()

    scene = Scene.of()
    scene.report(2)
    for _ in range(5):
        scene.exit(1)
        scene.report(2)
        assert scene.step(30) == ["start 1"]


def test_a_broker_that_cannot_be_reached_is_waited_for() -> None:
    scene = Scene.of()
    for _ in range(10):
        for number in (1, 2):
            scene.team.exited(scene.slot(number), 75, scene.now, jitter=0.0, refused=CannotRun("NoBrokersAvailable", for_now=True))
        assert scene.wait in (1, 2, 4, 8, 16, 30)
        assert scene.step(scene.wait) == ["start 1", "start 2"]
    assert "worker 1 has ended after 0 s (NoBrokersAvailable); it starts again in 30.0 s" in scene.news()


def test_one_that_lost_its_brokers_after_it_ran_for_long_comes_back_soon() -> None:
    scene = Scene.of(1)
    refused = CannotRun("NoBrokersAvailable", for_now=True)
    for _ in range(4):
        scene.report(1)
        scene.team.exited(scene.slot(1), 75, scene.now, jitter=0.0, refused=refused)
        scene.step(scene.wait)
    scene.report(1)
    scene.step(59)
    scene.report(1)
    scene.step(59)
    scene.team.exited(scene.slot(1), 75, scene.now, jitter=0.0, refused=refused)
    assert scene.wait == 1


def test_failures_between_which_one_ran_are_not_in_a_row() -> None:
    scene = Scene.of(1)
    for _ in range(5):
        scene.exit(1)
        assert scene.step(30) == ["start 1"]
        scene.step(10)
        scene.exit(1)
        assert scene.step(30) == ["start 1"]


def test_a_stop_asks_all_at_once_and_kills_those_that_are_late() -> None:
    scene = Scene.of(3)
    scene.report(1, 2)
    scene.team.stop(scene.now, 143)
    assert scene.step() == ["TERM 1", "TERM 2", "TERM 3"]
    assert scene.step(1) == [], "a second TERM would end it at once"
    scene.report(1)  # still at work
    assert scene.exit(2, code=143) == []
    assert scene.wait == 9
    assert scene.step(9) == ["KILL 1", "KILL 3"]
    assert scene.step() == []
    scene.exit(1, code=-9)
    scene.exit(3, code=-9)
    assert scene.team.is_over
    assert scene.team.exit_code == 143


def test_a_second_stop_kills() -> None:
    scene = Scene.of()
    assert scene.team.stop(scene.now, 130)
    scene.step(1)
    assert scene.team.stop(scene.now, 130)
    assert scene.step() == ["KILL 1", "KILL 2"]


def test_a_stop_that_comes_twice_at_once_is_one() -> None:
    scene = Scene.of(1)
    assert scene.team.stop(scene.now, 143)
    assert not scene.team.stop(scene.now, 143), "timeout(1) signals the process, and then its group"
    assert scene.step(0.9) == ["TERM 1"]
    assert not scene.team.stop(scene.now, 130)
    assert scene.step() == []
    assert not scene.team.is_killing


def test_a_stop_while_one_waits_to_come_back() -> None:
    scene = Scene.of(1)
    scene.exit(1)
    scene.team.stop(scene.now, 143)
    assert scene.step() == []
    assert scene.team.is_over


def test_one_that_is_silent_is_replaced_and_killed_if_it_does_not_end() -> None:
    scene = Scene.of()
    scene.report(1, 2)
    scene.step(30)
    scene.report(2)
    assert scene.step(30) == ["TERM 1"]
    assert "worker 1: it was silent for 60 s" in scene.news()
    scene.report(2)
    assert scene.step(10) == ["KILL 1"]
    assert scene.exit(1, code=-9) == ["start 1"]


def test_one_whose_consumer_cannot_recover_is_replaced() -> None:
    scene = Scene.of(1)
    scene.report(1)
    for _ in range(59):
        assert scene.step(1) == []
        scene.report(1, report=Report(assigned_once=True, alive=False))
    assert scene.step(1) == ["TERM 1"]
    assert "its consumer cannot recover" in scene.news()


def test_an_import_may_take_longer_than_a_silence() -> None:
    scene = Scene.of(1)
    assert scene.step(500) == []
    assert scene.step(100) == ["TERM 1"]


def test_a_renewal_goes_on_once_the_new_one_was_assigned_partitions() -> None:
    scene = Scene.of(3)
    scene.report(1, 2, 3)
    scene.team.renew()
    scene.team.renew()  # again, while it is under way: nothing twice
    assert scene.step() == ["TERM 1"]
    assert scene.exit(1, code=143) == ["start 1"], "at once: it was asked to end"
    scene.report(1, report=Report())
    assert scene.step(5) == []
    scene.report(1)
    assert scene.step() == ["TERM 2"]
    scene.exit(2, code=143)
    scene.report(2)
    assert scene.step() == ["TERM 3"]
    scene.exit(3, code=143)
    scene.report(3)
    assert scene.step() == []


def test_a_renewal_waits_for_one_that_fails() -> None:
    scene = Scene.of(2)
    scene.report(1, 2)
    scene.team.renew()
    scene.step()
    scene.exit(1, code=143)
    assert scene.exit(1, code=1) == [], "the new program does not work: the other one is left as it is"
    scene.step(1)
    scene.report(1)
    assert scene.step() == ["TERM 2"]


def test_another_renewal_begins_with_the_one_that_never_gets_partitions() -> None:
    scene = Scene.of(3)
    scene.report(1, 2, 3)
    scene.team.renew()
    assert scene.step() == ["TERM 1"]
    scene.exit(1, code=143)
    for _ in range(4):
        scene.report(1, report=Report())  # it runs, and waits for something
        scene.report(2, 3)
        assert scene.step(20) == [], "the others are left as they are"
    assert scene.news() == (
        "worker 1 has run for 60 s without partitions: the others are not replaced before it has some; SIGHUP replaces it once more"
    )

    scene.team.renew()
    assert scene.step() == ["TERM 1"]
    assert scene.exit(1, code=143) == ["start 1"]
    for number in (2, 3):
        scene.report(1, 2, 3)
        assert scene.step() == [f"TERM {number}"]
        scene.exit(number, code=143)
    scene.report(1, 2, 3)
    assert scene.step() == []
    assert scene.news() == ""


def test_another_renewal_while_the_first_one_ends_asks_nobody_twice() -> None:
    scene = Scene.of(2)
    scene.report(1, 2)
    scene.team.renew()
    assert scene.step() == ["TERM 1"]
    scene.team.renew()
    assert scene.step() == []
    assert scene.exit(1, code=143) == ["start 1"]
    scene.team.renew()
    assert scene.step() == ["TERM 1"], "it may have imported the files of before"
    scene.exit(1, code=143)
    scene.report(1)
    assert scene.step() == ["TERM 2"]


def test_one_with_too_much_memory_is_replaced_though_it_never_gets_partitions() -> None:
    scene = Scene.of(2, Policy(max_rss=100 << 20))
    scene.report(1, 2)
    scene.team.renew()
    scene.step()
    scene.exit(1, code=143)
    scene.report(1, report=Report(rss=200 << 20))
    assert scene.step() == ["TERM 1"]


def test_a_renewal_goes_on_after_one_that_is_done() -> None:
    scene = Scene.of(2)
    scene.report(1, 2)
    scene.team.renew()
    scene.step()
    scene.exit(1, code=143)
    assert scene.exit(1, code=0) == ["TERM 2"]


def test_those_with_too_much_memory_are_replaced_one_after_the_other() -> None:
    scene = Scene.of(2, Policy(max_rss=100 << 20))
    fat = Report(assigned_once=True, rss=200 << 20)
    for _ in range(2):
        scene.report(1, 2, report=fat)
    assert scene.step() == ["TERM 1"]
    scene.report(1, report=fat)  # while it ends
    assert scene.news().count("more than 100") == 2
    scene.exit(1, code=143)
    scene.report(1)
    assert scene.step() == ["TERM 2"]


def test_changed_files_replace_all_at_once_and_bring_back_what_could_not_run() -> None:
    scene = Scene.of(2, Policy(waits_for_changes=True))
    scene.report(2)
    scene.exit(1, code=2, refused="SyntaxError")
    assert scene.step(1000) == ["TERM 2"], "silent"
    assert "it starts again when a file has changed" in scene.news()
    scene.exit(2, code=143)
    scene.team.reload(scene.now)
    assert scene.step() == ["start 1", "TERM 2"]
    scene.exit(2, code=-15)
    scene.exit(1, code=0)
    scene.exit(2, code=0)
    assert not scene.team.is_over
    scene.team.reload(scene.now)
    assert scene.step() == ["start 1", "start 2"]


def test_changed_files_while_all_end_start_nothing() -> None:
    scene = Scene.of(1, Policy(waits_for_changes=True))
    scene.team.stop(scene.now, 143)
    scene.step()
    scene.team.reload(scene.now)
    scene.exit(1, code=143)
    assert scene.team.is_over


def histories() -> st.SearchStrategy[list[tuple[str, int, float]]]:
    happenings = ["exit 0", "exit 1", "refused", "assigned", "fat", "ill", "renew", "reload", "nothing"]
    return st.lists(st.tuples(st.sampled_from(happenings), st.integers(1, 3), st.sampled_from([0.0, 0.5, 4.0, 61.0])), max_size=60)


def _happen(scene: Scene, what: str, number: int) -> None:
    slot = scene.slot(number)
    match what:
        case "renew":
            scene.team.renew()
        case "reload":
            scene.team.reload(scene.now)
        case "assigned" | "fat" | "ill" if slot.has_process:
            scene.report(number, report=Report(assigned_once=True, alive=what != "ill", rss=(what == "fat") << 40))
        case "exit 0" | "exit 1" | "refused" if slot.has_process:
            scene.exit(number, int(what != "exit 0"), "bad" if what == "refused" else None)


def _asked(scene: Scene) -> Iterator[WorkerSlot]:
    return (slot for slot in scene.team.slots if slot.state is Stage.ENDING)


@pytest.mark.slow
@given(histories(), st.booleans())
def test_whatever_happens_no_process_is_asked_twice_and_a_stop_ends_all(
    history: list[tuple[str, int, float]], reloads: bool
) -> None:
    scene = Scene.of(3, Policy(stop_timeout=10, max_rss=1 << 30, waits_for_changes=reloads))
    asked = {slot.number: slot.starts for slot in _asked(scene)}
    for what, number, seconds in history:
        _happen(scene, what, number)
        for done in scene.step(seconds):
            deed, _, text = done.partition(" ")
            slot = scene.slot(int(text))
            if deed == "TERM":
                assert asked.get(slot.number) != slot.starts, "a second TERM ends a process at once"
                asked[slot.number] = slot.starts
        assert scene.step() == [], "nothing is due twice"
        assert scene.team.next_at(scene.now) >= scene.now
    scene.team.stop(scene.now, 143)
    scene.step()
    assert all(slot.state in (Stage.ENDING, Stage.DONE) for slot in scene.team.slots)
    scene.step(10)
    for slot in tuple(_asked(scene)):
        scene.exit(slot.number, -9)
    assert scene.team.is_over
