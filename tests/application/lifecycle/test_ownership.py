"""Which calls may be made, and who reads alone meanwhile."""

import pytest
from attrs import define

from kafka_async import ConsumerConfig
from kafka_async.application.lifecycle.lifecycle import Happening
from kafka_async.application.parts import assemble
from kafka_async.errors import ConsumerStoppedError, IllegalStateError


@define
class Reads:
    """Reads alone."""

    over: bool = False
    failed: bool = False
    failed_for_good: bool = False
    stalled: bool = False
    given: float = 0.0

    async def finish(self, seconds: float) -> None:
        self.given = seconds

    def metrics(self) -> dict[str, dict[str, float]]:
        return {"processing": {"records-running": 1.0}}


def test_nothing_else_reads_while_something_reads_alone_and_once_it_failed_the_next_read_takes_over() -> None:
    guard = assemble(ConsumerConfig.from_options({"bootstrap_servers": "nowhere:1"})).guard
    with pytest.raises(IllegalStateError, match="not started"):
        guard.check_readable()
    guard.lifecycle.move(Happening.START)
    guard.lifecycle.move(Happening.STARTED)
    guard.check_readable()
    guard.occupant = reads = Reads()
    with pytest.raises(IllegalStateError, match="process"):
        guard.check_readable()
    assert (guard.reads_alone, guard.to_finish(), guard.has_failed, guard.stalled) == (reads, reads, False, False)
    assert guard.metrics() == reads.metrics()
    reads.failed = True
    assert (guard.has_failed, guard.failed_for_good) == (True, False)
    reads.failed_for_good = reads.over = True
    assert (guard.reads_alone, guard.to_finish(), guard.has_failed, guard.failed_for_good) == (None, None, True, True)
    guard.check_readable()
    assert guard.occupant is None
    assert not guard.has_failed
    assert not guard.failed_for_good
    assert guard.metrics() == {}


def test_what_reads_alone_is_ended_by_the_first_stop_only() -> None:
    guard = assemble(ConsumerConfig.from_options({"bootstrap_servers": "nowhere:1"})).guard
    guard.occupant = Reads()
    assert guard.to_finish() is None  # nothing has begun
    guard.lifecycle.move(Happening.START)
    guard.lifecycle.move(Happening.STARTED)
    assert guard.to_finish() is guard.occupant
    guard.lifecycle.move(Happening.PART)
    assert guard.to_finish() is None
    guard.lifecycle.move(Happening.PARTED)
    with pytest.raises(ConsumerStoppedError):
        guard.check_open()
