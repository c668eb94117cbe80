"""What a plain consumer imports: nothing that only others need."""

import subprocess
import sys

import pytest

NOT_NEEDED = (
    "kafka_async.adapters",
    "kafka_async.application.arrow",
    "kafka_async.application.processing.processing",
    "kafka_async.background.group",
    "kafka_async.background.telemetry",
    "kafka_async.config.jaas",
    "kafka_async.config.reference",
    "kafka_async.network.sasl",
    "kafka_async.testing",
    "kafka_async.wire.messages.admin",
    "kafka_async.wire.messages.coordinator",
    "kafka_async.wire.messages.describing",
    "kafka_async.wire.messages.group",
    "kafka_async.wire.messages.login",
    "kafka_async.wire.messages.produce",
    "kafka_async.wire.messages.telemetry",
    "kafka_async.wire.shapes",
)
"""Parts for groups, logins, telemetry, columns, tools and tests."""
OTHERS = (
    "anyio.streams.tls",
    "argparse",
    "csv",
    "difflib",
    "email",
    "httpx",
    "hypothesis",
    "importlib.metadata",
    "kio",
    "opentelemetry",
    "pandas",
    "pyarrow",
    "tempfile",
    "trio",
    "zipfile",
)
"""Other people's modules that take long, and are wanted by few."""


@pytest.mark.brokers
def test_a_plain_consumer_imports_nothing_that_only_others_need() -> None:
    code = "import sys;from kafka_async import KafkaConsumer; KafkaConsumer('t'); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # ours
    unwanted = NOT_NEEDED + OTHERS
    found = {name for name in said.stdout.split() if any(name == each or name.startswith(each + ".") for each in unwanted)}
    assert not found
