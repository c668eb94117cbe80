"""What a share consumer is made of."""

import gc
import weakref

import pytest

from kafka_async import ShareConsumer
from kafka_async.application.share.parts import assemble_share

OPTIONS = {"bootstrap_servers": "nowhere:1", "group_id": "workers"}


@pytest.mark.slow
def test_a_share_consumer_works_with_the_parts_that_it_is_given_and_is_not_kept_alive_by_them() -> None:
    parts = assemble_share(OPTIONS)
    consumer = ShareConsumer[bytes, bytes]("jobs", parts=parts)
    assert consumer.subscription() == {"jobs"}
    assert parts.custody.wants("jobs")
    assert parts.life.subscribed is not None
    assert parts.measure(0.0).keys() == consumer.metrics().keys()
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None


def test_a_share_consumer_without_a_client_id_is_named_for_its_group() -> None:
    assert assemble_share(OPTIONS).config.client_id.startswith("share-consumer-workers-")


def test_options_are_checked_before_anything_is_made() -> None:
    with pytest.raises(ValueError, match="isolation_level"):
        assemble_share({**OPTIONS, "isolation_level": "read_committed"})
