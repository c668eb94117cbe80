"""Names that are imported when they are first used: all are there, and what is not used is not imported."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

import kafka_async
from kafka_async.adapters import values
from kafka_async.lazy import on_first_use
from kafka_async.wire import messages

PACKAGES = ("kafka_async", "kafka_async.network", "kafka_async.network.sasl")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_every_name_that_it_gives_out(name: str) -> None:
    package = import_module(name)
    assert [each for each in package.__all__ if not hasattr(package, each)] == []


def test_a_module_of_the_package_is_there_without_an_import() -> None:
    assert kafka_async.errors.KafkaError.__module__ == "kafka_async.errors"


@pytest.mark.brokers
@pytest.mark.parametrize("name", ["adapters", "errors", "spark", "sync", "testing"])
def test_what_programs_import_from_is_there_without_an_import_and_costs_nothing_until_then(name: str) -> None:
    if name == "spark":
        pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    module = f"kafka_async.{name}"
    assert module not in _imported_by("import kafka_async", module)
    assert module in _imported_by(f"import kafka_async; {module}.__name__", module)


@pytest.mark.brokers
def test_shells_complete_names_that_nobody_has_used_yet() -> None:
    found = _printed("import kafka_async; print(*dir(kafka_async))")
    assert {*kafka_async.__all__, "__getattr__", "adapters", "errors", "spark", "sync", "testing"} <= found


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'kafka_async' has no attribute 'KafkaProducer'"):
        on_first_use("kafka_async", {".model": "Node"})("KafkaProducer")


@pytest.mark.brokers
def test_a_message_is_given_out_from_where_it_is_defined_and_nothing_else_is_imported_for_it() -> None:
    found = _imported_by("from kafka_async.wire import FetchRequest; from kafka_async.wire.messages import MetadataRequest")
    assert "kafka_async.wire.messages.fetch" in found
    assert not found & {"kafka_async.wire.messages.group", "kafka_async.wire.messages.offsets"}


@pytest.mark.parametrize("name", ["DeleteAclsRequest", "fetch_request"])
def test_a_message_that_there_is_not_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'kafka_async.wire.messages' has no attribute '{name}'"):
        getattr(messages, name)


def _imported_by(statement: str, package: str = "kafka_async") -> set[str]:
    """Return the modules of a package, ours if none is named, that a fresh interpreter has after a statement."""
    return _printed(f"{statement}; import sys; print(*(name for name in sys.modules if name.startswith({package!r})))")


def _printed(code: str) -> set[str]:
    """Return the words that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own words
    return set(done.stdout.split())


@pytest.mark.brokers
def test_a_consumer_without_a_group_imports_nothing_that_only_groups_and_sasl_need() -> None:
    found = _imported_by("from kafka_async.sync import KafkaConsumer; KafkaConsumer(enable_metrics_push=False)")
    assert "kafka_async.background.fetch.fetch_manager" in found
    others = (
        "background.group",
        "background.cluster.telemetry",
        "network.sasl",
        "wire.messages.group",
        "wire.messages.offsets",
        "wire.shapes",
    )
    assert not found & {f"kafka_async.{name}" for name in others}


@pytest.mark.brokers
def test_a_consumer_imports_nothing_of_what_people_read_about_its_options() -> None:
    found = _imported_by("from kafka_async import KafkaConsumer; KafkaConsumer(group_id='g', enable_metrics_push=False)")
    readable = ("options", "reference", "sources", "texts", "properties", "java", "jaas")
    assert not found & {f"kafka_async.config.{name}" for name in readable}


@pytest.mark.brokers
def test_values_become_columns_without_spark_and_without_pandas() -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed: pip install '.[avro]'")
    pytest.importorskip("ptars", reason="ptars is not installed: pip install '.[protobuf]'")
    modules = [module.name for module in iter_modules(values.__path__)]
    assert {"formats", "protobuf", "registry"} <= {*modules}
    code = f"from kafka_async.adapters.values import {', '.join(modules)}"
    others = ("pyspark", "pandas", "kafka_async.adapters.spark", "kafka_async.spark")
    assert {name for package in others for name in _imported_by(code, package)} == set()


@pytest.mark.brokers
def test_spark_has_its_objects_made_without_a_consumer() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    found = _imported_by("import kafka_async.adapters.spark.source")
    assert not {
        name for name in found if name.startswith(("kafka_async.application", "kafka_async.background", "kafka_async.wire"))
    }
