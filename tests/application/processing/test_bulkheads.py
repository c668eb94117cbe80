"""Limits of single routes, over random histories: never exceeded, nothing forgotten, nothing left waiting for nobody."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_async import Router
from kafka_async.application.processing.bulkheads import Bulkheads
from kafka_async.application.processing.items import Item
from tests.effort import examples

from .support import BY_KEY, OTHER, TP, record, work

KEYS = [b"a1", b"a2", b"b1", b"b2", b"b3", b"c1"]
LIMITS = {b"a": 1, b"b": 2, b"c": None}


class Histories(RuleBasedStateMachine):
    """Records of two partitions; the first letter of a key names the route."""

    def __init__(self) -> None:
        super().__init__()
        router = Router()
        for name, limit in LIMITS.items():
            router.on(header=("route", name), concurrency=limit)(_nothing)
        self.routes = dict(zip(LIMITS, router.routes, strict=True))
        self.work = work(BY_KEY)
        self.queue = Bulkheads(self.work, self.limited)
        self.running: list[Item] = []
        self.expected: Counter[Any] = Counter()
        """Records that have to be handled."""
        self.offsets = {TP: 0, OTHER: 0}
        self.now = 0.0
        for partition in self.offsets:
            self.work.assign(partition)

    def limited(self, taken: Any) -> Any:
        route = self.routes[taken.key[:1]]
        return route if route.concurrency is not None else None

    def name(self, item: Item) -> Any:
        return item.part, item.record.offset

    @rule(
        partition=st.sampled_from([TP, OTHER]),
        keys=st.lists(st.sampled_from([b"a1", b"a2", b"b1", b"b2", b"b3", b"c1"]), min_size=1),
    )
    def receive(self, partition: Any, keys: list[bytes]) -> None:
        for key in keys:
            offset = self.offsets[partition]
            self.offsets[partition] += 1
            self.work.receive(partition, [record(offset, key, partition)], self.now)
            self.expected[self.work.parts[partition], offset] += 1

    @rule(most=st.integers(1, 5))
    def take(self, most: int) -> None:
        for _ in range(most):
            if (item := self.queue.take()) is None:
                break
            self.running.append(item)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), how=st.sampled_from(["succeeded", "retry", "later", "interrupted"]))
    def end(self, data: st.DataObject, how: str) -> None:
        item = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if how == "succeeded":
            del self.expected[self.name(item)]
            self.queue.succeeded(item, self.now)
        elif how == "interrupted":
            self.queue.interrupted(item, self.now)
        else:
            self.queue.retry(item, self.now + (1 if how == "later" else 0), self.now)

    @rule(paused=st.sets(st.sampled_from([TP, OTHER])))
    def pause(self, paused: set[Any]) -> None:
        self.work.suspend(paused)

    @rule(partition=st.sampled_from([TP, OTHER]))
    def leave_and_come_back(self, partition: Any) -> None:
        part = self.work.parts[partition]
        self.work.forget([partition])
        for each in [each for each in self.expected if each[0] is part]:
            del self.expected[each]
        self.work.assign(partition)
        self.work.suspend(self.paused)

    @property
    def paused(self) -> set[Any]:
        return {tp for tp, part in self.work.parts.items() if part.paused}

    @rule()
    def time_passes(self) -> None:
        self.now += 2
        self.work.expire(self.now)

    @invariant()
    def limits_hold(self) -> None:
        counts = Counter(item.record.key[:1] for item in self.running)
        assert all(limit is None or counts[name] <= limit for name, limit in LIMITS.items())
        lanes = Counter((id(item.part), item.lane) for item in self.running)
        assert all(count == 1 for count in lanes.values())

    def teardown(self) -> None:
        """All that is expected comes, whatever happened before."""
        self.work.suspend(())
        for _ in range(1000):
            self.time_passes()
            while (item := self.queue.take()) is not None:
                self.running.append(item)
                self.limits_hold()
            if not self.running:
                break
            for item in self.running:
                if not item.part.gone:
                    del self.expected[self.name(item)]
                self.queue.succeeded(item, self.now)
            self.running.clear()
        assert not self.expected
        assert self.work.held == 0
        assert not self.work.aside


def test_what_leaves_with_its_partition_is_not_kept_for_a_route() -> None:
    some = Histories()
    some.work.receive(TP, [record(offset, b"a%d" % offset) for offset in range(100)], 0.0)
    assert some.queue.take() is not None
    assert some.queue.take() is None
    assert some.work.aside
    some.work.forget([TP])
    assert not some.work.aside


def _nothing(_: object) -> None:
    raise AssertionError


TestHistories = Histories.TestCase
TestHistories.settings = settings(examples(0.6), stateful_step_count=40)
