"""``kafka_async.background.by_topic``: partitions as requests name them."""

from kafka_async.background.by_topic import by_topic
from kafka_async.model import TopicPartition


def test_topics_and_partitions_keep_their_order() -> None:
    partitions = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assert by_topic(partitions) == {"b": (2, 1), "a": (0,)}
    assert list(by_topic(partitions)) == ["b", "a"]
    assert by_topic([]) == {}
