"""Secured brokers through Spark, with the options that a job of Spark's own connector has."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kafka-async[spark]'")

from .secure import PASSWORD, Secure
from .spark import JVM, OURS, rows, source
from .tools import new_topic

pytestmark = pytest.mark.integration

SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{PASSWORD}";'
LOGIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}


def options(secure: Secure, listener: str, **more: str) -> dict[str, str]:
    """Return the options of a job that reads from a listener with TLS, as Java's client has them."""
    return {
        "kafka.bootstrap.servers": secure.cluster.listener(listener),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": secure.authority,
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        **{f"kafka.{name.replace('_', '.')}": text for name, text in more.items()},
    }


@pytest.mark.parametrize("listener", ["TLSLOGIN", "MUTUAL"])
def test_a_job_moves_over_by_the_name_of_its_format(spark: Any, kafka_secure: Secure, listener: str) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 20)
    pem = kafka_secure.file("client.pem")
    doors = {
        "TLSLOGIN": LOGIN | {"sasl_jaas_config": SCRAM},
        "MUTUAL": {
            "security_protocol": "SSL",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": pem,
        },
    }
    job = options(kafka_secure, listener, **doors[listener])
    ours, theirs = (rows(source(spark, kafka_secure.cluster, job, kind=kind, subscribe=topic).load()) for kind in (OURS, JVM))
    assert len(ours) == 20
    assert ours == theirs


def test_the_text_of_a_login_may_be_in_a_file(spark: Any, kafka_secure: Secure, tmp_path: Path) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 20)
    (tmp_path / "jaas").write_text(SCRAM)
    job = options(kafka_secure, "TLSLOGIN", **LOGIN, sasl_jaas_config=f"file:{tmp_path}/jaas")
    assert source(spark, kafka_secure.cluster, job, subscribe=topic).load().count() == 20


def test_a_refused_password_is_an_error_without_it(spark: Any, kafka_secure: Secure) -> None:
    text = SCRAM.replace(PASSWORD, "not-my-password")
    job = options(kafka_secure, "TLSLOGIN", **LOGIN, sasl_jaas_config=text)
    with pytest.raises(Exception, match="the broker refused the credentials") as caught:
        source(spark, kafka_secure.cluster, job, subscribe="t").load().count()
    assert "not-my-password" not in str(caught.value)
