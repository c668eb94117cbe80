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


def test_a_job_moves_over_by_the_name_of_its_format(spark: Any, kafka_secure: Secure, tmp_path: Path) -> None:
    cluster = kafka_secure.cluster
    topic = new_topic(cluster)
    cluster.produce(topic, 20)
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
    mutual = {"security_protocol": "SSL", "ssl_keystore_type": "PEM", "ssl_keystore_location": kafka_secure.file("client.pem")}
    jobs = options(kafka_secure, "TLSLOGIN", **login, sasl_jaas_config=SCRAM), options(kafka_secure, "MUTUAL", **mutual)
    for job in jobs:
        ours, theirs = (rows(source(spark, cluster, job, kind=kind, subscribe=topic).load()) for kind in (OURS, JVM))
        assert len(ours) == 20
        assert ours == theirs

    (tmp_path / "jaas").write_text(SCRAM)
    kept = options(kafka_secure, "TLSLOGIN", **login, sasl_jaas_config=f"file:{tmp_path}/jaas")
    assert source(spark, cluster, kept, subscribe=topic).load().count() == 20


def test_a_refused_password_is_an_error_without_it(spark: Any, kafka_secure: Secure) -> None:
    text = SCRAM.replace(PASSWORD, "not-my-password")
    job = options(kafka_secure, "TLSLOGIN", security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=text)
    with pytest.raises(Exception, match="the broker refused the credentials") as caught:
        source(spark, kafka_secure.cluster, job, subscribe="t").load().count()
    assert "not-my-password" not in str(caught.value)
