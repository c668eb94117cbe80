"""What a plain consumer imports: nothing that only others need."""

import subprocess
import sys

import pytest

NOT_NEEDED = (
    "kafka_async.adapters",
    "kafka_async.application.reading.arrow",
    "kafka_async.application.processing.processing",
    "kafka_async.background.group",
    "kafka_async.background.cluster.telemetry",
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
    "datetime",
    "difflib",
    "email",
    "httpx",
    "hypothesis",
    "importlib.metadata",
    "kio",
    "opentelemetry",
    "pandas",
    "pathlib",
    "pyarrow",
    "tempfile",
    "trio",
    "urllib",
    "zipfile",
)
"""Other people's modules that take long, and are wanted by few."""
LATER = (
    "anyio",
    "asyncio",
    "kafka_async.application.lifecycle.runtime",
    "kafka_async.application.lifecycle.starting",
    "kafka_async.background.loop.loop",
    "kafka_async.network",
    "kafka_async.wire",
)
"""What talks to brokers, and what runs that: imported with the first consumer that is made."""


def _among(names: tuple[str, ...], statement: str) -> set[str]:
    """Return the modules of these names, and within them, that a fresh interpreter has after a statement."""
    # Without the start-up of site-packages: that of an editable installation imports what it needs.
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}; {statement}; print(*sys.modules)"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # ours
    return {name for name in said.stdout.split() if any(name == each or name.startswith(each + ".") for each in names)}


@pytest.mark.brokers
def test_a_plain_consumer_imports_nothing_that_only_others_need() -> None:
    assert not _among(NOT_NEEDED + OTHERS, "from kafka_async import KafkaConsumer; KafkaConsumer('t')")


@pytest.mark.brokers
def test_a_program_that_names_the_class_imports_nothing_that_talks_to_brokers() -> None:
    assert not _among(LATER, "from kafka_async import KafkaConsumer")


@pytest.mark.brokers
def test_a_consumer_that_is_made_has_imported_what_its_start_needs_without_a_group() -> None:
    assert {"asyncio", "kafka_async.background.loop.loop", "kafka_async.wire"} <= _among(
        LATER, "from kafka_async import KafkaConsumer; KafkaConsumer('t')"
    )


PROGRAM = """
import asyncio
from kafka_async import KafkaConsumer
from kafka_async.testing import Cluster

async def main():
    cluster = Cluster()
    cluster.topic("t")
    async with KafkaConsumer("t", group_id="g", group_protocol="{protocol}", **cluster.options()):
        pass

asyncio.run(main())
"""


@pytest.mark.brokers
@pytest.mark.parametrize(("protocol", "other"), [("auto", "classic"), ("classic", "consumer")])
def test_a_member_imports_the_protocol_that_its_group_speaks_and_not_the_other(protocol: str, other: str) -> None:
    assert not _among((f"kafka_async.background.group.{other}",), f"exec({PROGRAM.format(protocol=protocol)!r})")


ARROW = """
import asyncio
from kafka_async import KafkaConsumer
from kafka_async.testing import Cluster

async def main():
    cluster = Cluster()
    cluster.topic("t")
    async with KafkaConsumer("t", **cluster.options()) as consumer:
        await consumer.getarrow()

asyncio.run(main())
"""


SCAN = """
from kafka_async import scan
from kafka_async.testing import Cluster, ThreadedCluster

cluster = Cluster()
cluster.topic("t")
cluster.produce_many("t", ['{"id": 1}', "bad"] * 5, partition=0)
with ThreadedCluster(cluster) as served:
    table = scan("t", bootstrap_servers=served.bootstrap)
    assert table.to_arrow().num_rows == table.count() == 10
    table = scan("t", values="json", schema="id BIGINT, at TIMESTAMP, n DECIMAL(5,2)", bootstrap_servers=served.bootstrap)
    assert table.to_arrow().num_rows == 10
    assert scan("t", values="json", schema="infer", bootstrap_servers=served.bootstrap).head(3).num_rows == 3
"""


@pytest.mark.brokers
def test_a_scan_imports_neither_spark_nor_pandas_nor_what_its_user_did_not_ask_for() -> None:
    assert not _among(("duckdb", "kafka_async.adapters.spark", "pandas", "polars", "pyspark", "rich"), f"exec({SCAN!r})")


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("extra", "module", "package", "program"),
    [
        ("arrow", "pyarrow", "pyarrow", ARROW),
        ("arrow", "pyarrow", "pyarrow", "from kafka_async import scan"),
        ("otel", "opentelemetry", "opentelemetry-api", "import kafka_async.adapters.otel"),
        ("spark", "pyspark", "pyspark", "from kafka_async.spark import register; register(None)"),
    ],
    ids=["arrow", "scan", "otel", "spark"],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(extra: str, module: str, package: str, program: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; exec({program!r})"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603  # ours

    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert done.stderr.endswith(f" {package}, which the extra {extra!r} brings: pip install '/path/to/clone[{extra}]'\n")


@pytest.mark.brokers
def test_metrics_for_operators_are_imported_once_a_cluster_wants_them() -> None:
    reads = (
        "from kafka_async.sync import KafkaConsumer; from kafka_async.testing import Cluster, ThreadedCluster;"
        "cluster = Cluster(); cluster.topic('t'); served = ThreadedCluster(cluster); served.__enter__();"
        "consumer = KafkaConsumer('t', bootstrap_servers=served.bootstrap); consumer.start(); consumer.stop();"
        "served.__exit__(None, None, None)"
    )
    assert _among(("kafka_async.background.cluster.telemetry",), reads), "telemetry is on"
    assert not _among(("google.protobuf",), reads)
