"""Secured brokers through Spark, with the options that a job of Spark's own connector has."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificates

from tests.effort import apart

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from .secure import PASSWORD, Secure, acl, login
from .spark import JVM, OURS, rows, source
from .tools import new_topic

pytestmark = pytest.mark.spark

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


@pytest.mark.parametrize("listener", ["TLSLOGIN", *apart("MUTUAL")])
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


def test_stores_that_keytool_wrote_are_read(spark: Any, kafka_secure: Secure, tmp_path: Path) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 20)
    trust, own = keytool_stores(kafka_secure, tmp_path)
    job = options(kafka_secure, "MUTUAL", security_protocol="SSL") | {
        "kafka.ssl.truststore.type": "PKCS12",
        "kafka.ssl.truststore.location": trust,
        "kafka.ssl.truststore.password": "a-password",
        "kafka.ssl.keystore.location": own,
        "kafka.ssl.keystore.password": "a-password",
    }
    ours, theirs = (
        rows(source(spark, kafka_secure.cluster, job | more, kind=kind, subscribe=topic).load())
        for kind, more in ((OURS, {}), (JVM, {"kafka.ssl.keystore.type": "PKCS12"}))
    )
    assert len(ours) == 20
    assert ours == theirs


def keytool_stores(secure: Secure, folder: Path) -> tuple[str, str]:
    """Have Java's tool write a truststore, and a keystore of what the test has in PEM; return their paths."""
    trust, own = str(folder / "trust.p12"), str(folder / "own.p12")
    password = ("-storepass", "a-password")
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", secure.authority, "-keystore", trust, *password)
    pem = Path(secure.file("client.pem")).read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate, *others = load_pem_x509_certificates(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    locked = BestAvailableEncryption(b"a-password")
    (folder / "made.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificate, others, locked))
    made = ("-srckeystore", str(folder / "made.p12"), "-srcstorepass", "a-password", "-destkeystore", own, "-deststorepass")
    keytool("-importkeystore", *made, "a-password")
    return trust, own


def keytool(*arguments: str) -> None:
    subprocess.run([shutil.which("keytool") or "keytool", *arguments], check=True, capture_output=True)  # noqa: S603  # Java's


def test_the_text_of_a_login_may_be_in_a_file(spark: Any, kafka_secure: Secure, tmp_path: Path) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 20)
    (tmp_path / "the-login").write_text(SCRAM)
    spark.sparkContext.addFile(str(tmp_path / "the-login"))
    job = options(kafka_secure, "TLSLOGIN", **LOGIN, sasl_jaas_config="file:the-login")
    assert source(spark, kafka_secure.cluster, job, subscribe=topic).load().count() == 20


def test_a_refused_password_is_an_error_without_it(spark: Any, kafka_secure: Secure) -> None:
    text = SCRAM.replace(PASSWORD, "not-my-password")
    job = options(kafka_secure, "TLSLOGIN", **LOGIN, sasl_jaas_config=text)
    with pytest.raises(Exception, match="the broker refused the credentials") as caught:
        source(spark, kafka_secure.cluster, job, subscribe="t").load().count()
    assert "not-my-password" not in str(caught.value)


@pytest.mark.parametrize("option", ["kafka.isolation.level", "kafka.client.id", "kafka.sasl.mechanism"])
def test_sql_shows_no_file_of_the_executors(spark: Any, kafka_secure: Secure, tmp_path: Path, option: str) -> None:
    (tmp_path / "secret").write_text("told-to-nobody")
    job = options(kafka_secure, "TLSLOGIN", **LOGIN, sasl_jaas_config=SCRAM)
    given = {"subscribe": "t", **job, option: f"file:{tmp_path}/secret"}
    listed = ", ".join(f"'{name}' '{text}'" for name, text in given.items())
    with pytest.raises(Exception, match="only options that hold secrets take references") as caught:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW shown USING {OURS} OPTIONS ({listed})").collect()
    assert "told-to-nobody" not in str(caught.value)


def test_a_topic_without_access_is_named_and_read_once_the_acl_is_given(spark: Any, kafka_secure: Secure) -> None:
    topic = new_topic(kafka_secure.cluster)
    kafka_secure.cluster.produce(topic, 5)
    bob = {f"kafka.{name.replace('_', '.')}": text for name, text in login("bob").items()}
    bob |= {"kafka.bootstrap.servers": kafka_secure.cluster.listener("LOGIN"), "kafka.security.protocol": "SASL_PLAINTEXT"}
    wanted = source(spark, kafka_secure.cluster, bob, subscribe=topic)
    with kafka_secure.only("alice", "TOPIC", topic):
        with pytest.raises(Exception, match=f"TopicAuthorizationFailedError: .*topic '{topic}'"):
            wanted.load().count()
        kafka_secure.allow(acl("bob", "TOPIC", topic, "DESCRIBE"))  # now it is the tasks that are denied
        with pytest.raises(Exception, match=f"TopicAuthorizationFailedError: topics '{topic}': Not authorized"):
            wanted.load().count()
        kafka_secure.allow(acl("bob", "TOPIC", topic, "READ"))
        assert wanted.load().count() == 5
