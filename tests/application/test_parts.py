"""What a consumer is made of: put together once, known to whoever needs it, and to nobody the consumer."""

import gc
import weakref

import pytest

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_async.application.parts import assemble
from kafka_async.application.reading.cursor import PauseReason
from kafka_async.errors import IllegalStateError

TP = TopicPartition("t", 0)


def config(**options: object) -> ConsumerConfig:
    return ConsumerConfig.from_options({"bootstrap_servers": "nowhere:1", **options})


def test_a_consumer_works_with_the_parts_that_it_is_given() -> None:
    parts = assemble(config())
    consumer = KafkaConsumer[bytes, bytes](parts=parts)
    consumer.assign([TP])
    parts.assigned.seek(TP, OffsetAndMetadata(7))
    consumer.pause(TP)
    assert consumer.next_offsets()[TP].offset == 7
    assert parts.assigned.paused() == {TP}
    assert parts.assigned.take_sought([TP]) == {TP: OffsetAndMetadata(7)}
    assert parts.assigned.take_sought([TP]) == {}


@pytest.mark.slow
def test_parts_do_not_keep_a_consumer_alive() -> None:
    parts = assemble(config())
    consumer = weakref.ref(KafkaConsumer[bytes, bytes]("t", parts=parts))
    gc.collect()
    assert consumer() is None
    assert parts.subscribed.topics == {"t"}


@pytest.mark.slow
def test_what_the_background_holds_does_not_keep_a_consumer_alive_to_which_its_listener_refers() -> None:
    class Listener(ConsumerRebalanceListener):
        def __init__(self, of: KafkaConsumer[bytes, bytes]) -> None:
            self.consumer = of

    parts = assemble(config())
    observer, runtime, consumer = parts.observer, parts.runtime, KafkaConsumer[bytes, bytes](parts=parts)
    consumer.subscribe(["t"], listener=Listener(consumer))
    alive = weakref.ref(consumer)
    del parts, consumer
    gc.collect()
    assert alive() is None
    assert observer.cursors() == {}
    runtime.wake_application()
    assert runtime.signal.on_wake is None


def test_a_consumer_without_a_client_id_is_named_for_its_group_and_numbered() -> None:
    first, second = (assemble(config(group_id="billing")).config.client_id for _ in range(2))
    assert first.rpartition("-")[0] == second.rpartition("-")[0] == "consumer-billing"
    assert int(second.rpartition("-")[2]) == int(first.rpartition("-")[2]) + 1
    assert assemble(config(client_id="mine")).config.client_id == "mine"


def test_a_bad_file_of_certificates_is_refused_before_anything_runs() -> None:
    with pytest.raises((ValueError, OSError), match=r"nowhere\.pem"):
        assemble(config(security_protocol="SSL", ssl_cafile="nowhere.pem"))


def test_what_is_not_assigned_has_no_position_and_cannot_be_paused() -> None:
    assigned = assemble(config()).assigned
    assert assigned.next_offset(TP) is None
    with pytest.raises(IllegalStateError, match="no partitions"):
        assigned.chosen(())
    with pytest.raises(IllegalStateError, match="t-0"):
        assigned.pause([TP], paused=True)


def test_a_pause_is_reported_to_whoever_wants_to_know() -> None:
    parts, told = assemble(config()), list[tuple[PauseReason, bool]]()
    KafkaConsumer[bytes, bytes](parts=parts).assign([TP])
    parts.unread.on_pause = lambda why: told.append((why, TP in parts.assigned.paused()))
    parts.assigned.pause([TP], paused=True)
    parts.assigned.pause([TP], paused=False)
    assert told == [(PauseReason.USER, True), (PauseReason.USER, False)]


def test_the_program_sees_and_ends_its_own_pauses_only() -> None:
    parts = assemble(config())
    consumer = KafkaConsumer[bytes, bytes](parts=parts)
    consumer.assign([TP])
    parts.unread.pause([TP], paused=True, why=PauseReason.DELAY)
    assert consumer.paused() == set()
    consumer.pause(TP)
    assert consumer.paused() == {TP}
    consumer.resume(TP)
    assert consumer.paused() == set()
    assert not parts.unread.partitions[TP].is_readable
