"""The data source as Spark makes it."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kafka-async[spark]'")

from pyspark.sql.types import BinaryType, StructField, StructType

from kafka_async.adapters.spark.source import KafkaDataSource

VALUE = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize("key", ["hunter2", "env:KEY"])
def test_a_stream_warns_of_a_secret_that_its_plan_shows(caplog: pytest.LogCaptureFixture, key: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.ssl.keystore.key": key}
    KafkaDataSource(given).streamReader(VALUE)
    warned = [record.getMessage() for record in caplog.records if "kafka.ssl.keystore.key is a secret" in record.getMessage()]
    assert len(warned) == (key == "hunter2")
    assert "hunter2" not in caplog.text
