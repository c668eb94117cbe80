"""A configuration, and what it refuses without showing it."""

from typing import Any

import pytest

from kafka_async.config import ConsumerConfig

SECRET = "hunter2-is-not-shown"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
LOGIN: dict[str, Any] = {"sasl_plain_username": "user", "sasl_plain_password": SECRET}


def config(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.from_options(options)


def refusal(**options: Any) -> str:
    """Return why options are refused."""
    with pytest.raises(ValueError, match=r"(ssl|sasl)_") as caught:
        config(**options)
    assert SECRET not in f"{caught.value!r} {caught.value}"
    return str(caught.value)


PACKAGE = "org.apache.kafka.common.security"
JAVAS = rf"""
# As Java's console consumer takes it.
bootstrap.servers = a:1, \
                    b:2
group.id=billing
group.protocol=CLASSIC
enable.auto.commit=FALSE
max.poll.records= 20
isolation.level=read_committed
partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,\
  org.apache.kafka.clients.consumer.CooperativeStickyAssignor
key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
interceptor.classes=
metric.reporters=com.example.Reporter
security.protocol=sasl_ssl
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={PACKAGE}.scram.ScramLoginModule required \
  username="alice" \
  password="{SECRET}";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
ssl.endpoint.identification.algorithm=
"""
"""A file of options as programs in Java have it."""
