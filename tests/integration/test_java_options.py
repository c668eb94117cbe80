"""The options that Java's clients have, compared with what is known of them here: Kafka's own classes print the lists."""

import re
import shutil
import subprocess

import pytest

from kafka_async.config.consumer_config import NAMES
from kafka_async.config.java import MEANINGLESS, PRODUCERS, Dialect
from kafka_async.config.java import NAMES as TRANSLATED
from tests.brokers import CURRENT, jars

pytestmark = pytest.mark.brokers


def _printed(client: str) -> set[str]:
    """Return the names of the options that a class of Kafka's documents, with underscores."""
    java = shutil.which("java") or "java"
    command = [java, "-cp", f"{jars(CURRENT)}/*", f"org.apache.kafka.clients.{client}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  # fixed words
    return {name.replace(".", "_") for name in re.findall(r'<h4><a id="([a-z0-9.]+)"', done.stdout)}


@pytest.fixture(scope="module")
def consumers(real_brokers: None) -> set[str]:
    return _printed("consumer.ConsumerConfig")


def test_each_option_of_javas_consumer_is_taken_translated_or_refused_by_name(consumers: set[str]) -> None:
    assert len(consumers) > 100
    assert consumers - NAMES - TRANSLATED - MEANINGLESS - Dialect().refused.keys() == {"interceptor_classes"}, "see sources.py"


def test_the_options_that_only_producers_have_are_those_of_javas(consumers: set[str]) -> None:
    undocumented = {"buffer_memory_allocation_strategy"}
    assert _printed("producer.ProducerConfig") - consumers == PRODUCERS - undocumented
