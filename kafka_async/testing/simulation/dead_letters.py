"""Dead letters of share groups (KIP-1191): what a broker writes about a record that a group has given up.

As in Kafka, the record is given up in any case: a topic that does not exist, is not allowed for this or refuses the letter loses
it without a word to any client.

Source: the behaviour of ``ShareGroupDLQStateManager`` in Kafka 4.4.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ...model import TopicPartition
from ..batches import BatchSpec, RecordSpec, read_records
from .kafka_settings import is_true
from .log import PartitionLog

if TYPE_CHECKING:
    from .cluster import FakeCluster

REJECTED: Final = "Offset rejected by client."
TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
PREFIX: Final = "dlq."
"""How the topic's name begins: the brokers' default (``errors.deadletterqueue.topic.name.prefix``)."""
TOPIC_NAME: Final = "errors.deadletterqueue.topic.name"
COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
ALLOWED: Final = "errors.deadletterqueue.group.enable"


@frozen
class GivenUp:
    """A record that was given up."""

    offset: int
    deliveries: int
    why: str


def write(cluster: "FakeCluster", group: str, source: TopicPartition, given_up: Iterable[GivenUp]) -> None:
    """Write a letter for each record, if the group has a topic for them."""
    settings = cluster.groups.settings_of(group)
    name = settings[TOPIC_NAME]
    topic = cluster.topics.get(name) if name.startswith(PREFIX) else None
    if topic is None or not topic.settings.allows(ALLOWED):
        return
    target = TopicPartition(name, source.partition % len(topic.partitions))
    copies = is_true(settings[COPY_RECORD])
    for each in given_up:
        found = _record(cluster.log(source), each.offset) if copies else None
        record = RecordSpec(
            key=found.key if found is not None else None,
            value=found.value if found is not None else None,
            headers=(
                (b"__dlq.errors.topic", source.topic.encode()),
                (b"__dlq.errors.partition", b"%d" % source.partition),
                (b"__dlq.errors.offset", b"%d" % each.offset),
                (b"__dlq.errors.group", group.encode()),
                (b"__dlq.errors.delivery.count", b"%d" % each.deliveries),
                (b"__dlq.errors.message", each.why.encode()),
            ),
        )
        part = cluster.partition(target)
        spec = BatchSpec(records=(record,), base_offset=part.log.end, leader_epoch=part.epoch, base_timestamp=cluster.clock.date())
        cluster.producers.take(target, spec.encode(), stamped=False)
    cluster.changed()


def _record(log: PartitionLog, offset: int) -> RecordSpec | None:
    """Return a record, without the headers that it had; ``None`` if it is in the log no longer."""
    batch = next(log.between(offset, offset + 1), None)
    if batch is None or offset < log.start:
        return None
    return next((record for record in read_records(batch.data) if batch.base_offset + record.delta == offset), None)
