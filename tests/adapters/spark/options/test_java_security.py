"""Options of security that only Java's client has: what becomes of them, and what to use in place of the others."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_async import ConsumerConfig
from kafka_async.adapters.spark.options.secrets import VARIABLE, resolve
from kafka_async.adapters.spark.options.source_options import consumer_options
from kafka_async.errors import KafkaConfigurationError
from kafka_async.network.tls import tls_context

from ..support import options

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="alice" password="hunter2";'
OAUTH = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
PEM = "-----BEGIN CERTIFICATE-----"


def kafka(given: dict[str, str]) -> dict[str, str]:
    """Return the consumer's options for those of a job, without what every job has."""
    parsed = options(**{f"kafka__{name.replace('.', '__')}": text for name, text in given.items()}).kafka
    return {name: text for name, text in parsed.items() if name != "bootstrap_servers"}


def config(given: dict[str, str]) -> ConsumerConfig:
    """Return what a consumer would be made with."""
    return ConsumerConfig.from_options(consumer_options(resolve(kafka(given))))


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(KafkaConfigurationError) as caught:
        consumer_options(resolve(kafka(given)))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


# --- sasl.jaas.config ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
@pytest.mark.parametrize("shade", ["", "kafkashaded."])
def test_a_login_with_a_password_is_name_and_password(module: str, shade: str) -> None:
    text = f'{shade}{PACKAGE}.{module} required username="alice" password="hunter2" serviceName="kafka";'
    assert kafka({"sasl.jaas.config": text}) == {"sasl_plain_username": "alice", "sasl_plain_password": "hunter2"}


def test_the_password_in_a_text_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"sasl.jaas.config": PLAIN.replace("hunter2", "env:BROKER_PASSWORD")}
    monkeypatch.setenv("BROKER_PASSWORD", "hunter2")
    monkeypatch.setenv(VARIABLE, "env:BROKER_")
    assert kafka(given)["sasl_plain_password"] == "env:BROKER_PASSWORD"
    made = config(given | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    assert made.sasl_plain_password == "hunter2"


def test_the_text_may_be_a_reference_that_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"file:{tmp_path}/")
    given = {"sasl.jaas.config": f"file:{tmp_path}/jaas", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    assert kafka(given)["sasl_jaas_config"] == f"file:{tmp_path}/jaas"
    (tmp_path / "jaas").write_text(f"{PLAIN}\n")
    made = config(given)
    assert (made.sasl_plain_username, made.sasl_plain_password) == ("alice", "hunter2")
    (tmp_path / "jaas").write_text("hunter2")
    assert "kafka.sasl.jaas.config: character 8: expected a control flag" in refusal(given)


def test_the_password_shows_nowhere() -> None:
    parsed = options(kafka__sasl__jaas__config=PLAIN)
    assert "hunter2" not in f"{parsed!r} {parsed}"


def test_what_is_said_twice_must_be_the_same() -> None:
    given = {"sasl.jaas.config": PLAIN, "sasl.plain.username": "alice"}
    assert kafka(given)["sasl_plain_password"] == "hunter2"
    text = refusal(given | {"sasl.plain.password": "hunter22"})
    assert text == "kafka.sasl.jaas.config and kafka.sasl.plain.password contradict each other; leave one of them out"


def test_what_a_text_leaves_out_may_stand_beside_it() -> None:
    bare = f"{PACKAGE}.scram.ScramLoginModule required;"
    assert "ScramLoginModule has no username; expected username=" in refusal({"sasl.jaas.config": bare})
    both = {"sasl.jaas.config": bare, "sasl.plain.username": "alice", "sasl.plain.password": "hunter2"}
    assert kafka(both)["sasl_plain_username"] == "alice"


def test_client_credentials_go_to_the_token_endpoint() -> None:
    text = f'{OAUTH} clientId="me" clientSecret="hunter2" scope="kafka" extension_logicalCluster="lkc-1,2";'
    made = config({
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": text,
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
        "sasl.login.callback.handler.class": f"{PACKAGE}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.oauthbearer.DefaultJwtRetriever",
        "sasl.oauthbearer.sub.claim.name": "sub",
    })  # fmt: skip
    assert made.sasl_oauthbearer_client_credentials_client_id == "me"
    assert made.sasl_oauthbearer_client_credentials_client_secret == "hunter2"
    assert (made.sasl_oauthbearer_scope, made.sasl_oauthbearer_extensions) == ("kafka", {"logicalCluster": "lkc-1,2"})


def test_extensions_are_json() -> None:
    assert "kafka.sasl.oauthbearer.extensions: expected JSON" in refusal({"sasl.oauthbearer.extensions": "hunter2"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'com.sun.security.auth.module.Krb5LoginModule required keyTab="hunter2";',
            "com.sun.security.auth.module.Krb5LoginModule is not supported; use kafka.sasl.kerberos.principal and",
        ),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "kafka_async.MskTokenProvider makes those of Amazon MSK"),
        ("com.example.MyLoginModule required k=hunter2;", "com.example.MyLoginModule is not supported; expected PlainLoginModule"),
        (f'{OAUTH} unsecuredLoginStringClaim_sub="hunter2";', "tokens without a signature (unsecuredLogin...) are not made"),
        (f'{OAUTH} ssl.truststore.location="hunter2";', "use kafka.sasl.oauthbearer.ssl.cafile"),
        (f"{PLAIN[:-1]} tokenauth=true;", "delegation tokens (tokenauth) need ScramLoginModule"),
        (PLAIN[:-1], "the semicolon at its end is missing"),
    ],
)
def test_a_text_that_means_nothing_here_is_named_with_what_does(text: str, problem: str) -> None:
    assert problem in refusal({"sasl.jaas.config": text})


def test_a_delegation_token_logs_in_by_scram() -> None:
    text = f'{PACKAGE}.scram.ScramLoginModule required username="token" password="hunter2" tokenauth="true";'
    made = config({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": text})
    assert (made.sasl_plain_username, made.sasl_plain_password, made.sasl_scram_tokenauth) == ("token", "hunter2", True)


# --- Amazon MSK ------------------------------------------------------------------------------------------------------------------

IAM = "software.amazon.msk.auth.iam"
BROKERS = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
OF_MSK = {
    "bootstrap.servers": f"{BROKERS}, {BROKERS.replace('b-1', 'b-2')}",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
}


@pytest.mark.parametrize("host", [BROKERS, "boot-x.c1.kafka-serverless.eu-west-1.amazonaws.com:9098"])
@pytest.mark.parametrize(
    "login", ["", "awsProfileName=work", 'awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName=s awsDebugCreds=true']
)
def test_the_mechanism_of_amazon_msk_is_a_token_of_its_region(host: str, login: str) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    given = OF_MSK | {"bootstrap.servers": host, "sasl.jaas.config": f"{IAM}.IAMLoginModule required {login};"}
    parsed = options(**{f"kafka__{name.replace('.', '__')}": text for name, text in given.items()})
    assert all(isinstance(text, str) for text in parsed.kafka.values()), "it travels"
    made = ConsumerConfig.from_options(consumer_options(resolve(parsed.kafka)))
    assert made.sasl_mechanism == "OAUTHBEARER"
    assert repr(made.sasl_oauth_token_provider) == "MskTokenProvider('eu-west-1')"


def test_amazon_msk_needs_no_login_text() -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    given = {
        f"kafka__{name.replace('.', '__')}": text for name, text in OF_MSK.items() if "jaas" not in name and "class" not in name
    }
    assert "sasl_oauth_token_provider" in consumer_options(options(**given).kafka)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"bootstrap.servers": "evil.example.org:9098"}, "expected brokers of one region in kafka.bootstrap.servers, such as b-1"),
        ({"bootstrap.servers": f"{BROKERS},evil.example.org:9098"}, "expected brokers of one region"),
        ({"bootstrap.servers": f"{BROKERS},{BROKERS.replace('eu', 'us')}"}, "expected brokers of one region"),
        ({"bootstrap.servers": BROKERS.replace(":", ".example.org:")}, "expected brokers of one region"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "kafka.sasl.mechanism=AWS_MSK_IAM needs kafka.security.protocol=SASL_SSL"),
        ({"sasl.jaas.config": PLAIN}, "kafka.sasl.mechanism=AWS_MSK_IAM needs IAMLoginModule"),
        (
            {"sasl.jaas.config": f"{IAM}.IAMLoginModule required awsRoleSecretAccessKey=hunter2;"},
            "awsRoleSecretAccessKey of IAMLoginModule is not supported",
        ),
        (
            {"sasl.jaas.config": f"{IAM}.IAMLoginModule required awsProfileName=a awsRoleArn=b;"},
            "expected one of awsProfileName and awsRoleArn",
        ),
        ({"sasl.client.callback.handler.class": "com.example.Mine"}, "kafka.sasl.client.callback.handler.class is not supported"),
    ],
)
def test_tokens_of_amazon_msk_go_to_amazon_over_tls_only(more: dict[str, str], problem: str) -> None:
    given = {f"kafka__{name.replace('.', '__')}": text for name, text in (OF_MSK | more).items()}
    with pytest.raises(KafkaConfigurationError) as caught:
        consumer_options(resolve(options(**given).kafka))
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


# --- TLS -------------------------------------------------------------------------------------------------------------------------


def test_stores_in_pem_are_files() -> None:
    given = {
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "/etc/me.pem",
        "ssl.keystore.type": "pem",
        "ssl.key.password": "hunter2",
    }
    assert kafka(given) == {"ssl_cafile": "/etc/ca.pem", "ssl_certfile": "/etc/me.pem", "ssl_password": "hunter2"}


def test_stores_in_pem_may_be_texts() -> None:
    names = "ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"
    given = {**dict.fromkeys(names, PEM), "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    assert kafka(given) == {name.replace(".", "_"): PEM for name in names}


@pytest.mark.parametrize("store", ["ssl.keystore", "ssl.truststore"])
@pytest.mark.parametrize("extra", ["with the extra", "without it"])
def test_what_is_wrong_with_a_store_is_named(store: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if extra == "without it":
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    given = {f"{store}.location": str(tmp_path / "jks"), f"{store}.password": "hunter2"}
    for kind in {}, {f"{store}.type": "JKS"}, {f"{store}.type": "PKCS12"}:
        assert f"kafka.{store}.location: it is a store of type JKS, which only Java reads; convert it" in refusal(given | kind)
    away = given | {f"{store}.location": str(tmp_path / "away")}
    assert f"kafka.{store}.location: the file cannot be read: No such file" in refusal(away)
    assert f"kafka.{store}.type='BKS': expected PKCS12, JKS or PEM" in refusal(given | {f"{store}.type": "BKS"})
    assert f"kafka.{store}.location is missing" in refusal({f"{store}.type": "PKCS12"})
    assert "PEM has no password of a store; a key's is kafka.ssl.key.password" in refusal(given | {f"{store}.type": "PEM"})


def test_stores_of_type_pkcs12_are_read_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust, own = stores(tmp_path)
    monkeypatch.setenv("STORE_PASSWORD", "hunter2")
    monkeypatch.setenv(VARIABLE, "env:STORE_")
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": trust,  # no type: Java takes it for JKS, and reads PKCS12 then too
        "ssl.truststore.password": "env:STORE_PASSWORD",
        "ssl.keystore.location": own,
        "ssl.keystore.type": "pkcs12",
        "ssl.keystore.password": "env:STORE_PASSWORD",
        "ssl.key.password": "hunter2",
    }
    assert "hunter2" not in str({name: text for name, text in kafka(given).items() if name != "ssl_key_password"})
    made = config(given)
    texts = made.ssl_truststore_certificates, made.ssl_keystore_certificate_chain, made.ssl_keystore_key
    assert [str(text).count("BEGIN CERTIFICATE") for text in texts] == [1, 2, 0]
    assert "BEGIN PRIVATE KEY" in str(made.ssl_keystore_key)
    assert tls_context(made) is not None

    assert "the store cannot be opened: the password is wrong" in refusal(given | {"ssl.keystore.password": "hunter"})
    assert "it needs kafka.ssl.truststore.password" in refusal({"ssl.truststore.location": trust})
    assert "the store has no private key" in refusal(given | {"ssl.keystore.location": trust})


def stores(folder: Path) -> tuple[str, str]:
    """Write a truststore and a keystore as Java's keytool does, with the password "hunter2"; return their paths."""
    pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12", reason="pip install '.[pkcs12]'")
    trustme = pytest.importorskip("trustme", reason="trustme is not installed: pip install '.[test]'")
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    authority = trustme.CA()
    issued = authority.issue_cert("client@example.org")
    root, certificate = (load_pem_x509_certificate(pem.bytes()) for pem in (authority.cert_pem, issued.cert_chain_pems[0]))
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = BestAvailableEncryption(b"hunter2")
    (folder / "trust.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"ca", None, None, [root], locked))
    (folder / "own.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificate, [root], locked))
    return str(folder / "trust.p12"), str(folder / "own.p12")


def test_host_names_are_checked_as_java_checks_them() -> None:
    name, tls = "ssl.endpoint.identification.algorithm", {"security.protocol": "SSL"}
    assert config(tls | {name: "HTTPS"}).ssl_check_hostname
    assert not config(tls | {name: ""}).ssl_check_hostname
    assert config({name: ""}).security_protocol == "PLAINTEXT"
    assert "expected https, or an empty value to skip the check of host names" in refusal(tls | {name: "ldaps"})
    assert "contradict each other" in refusal(tls | {name: "", "ssl.check.hostname": "true"})


def test_one_option_turns_tls_and_sasl_off() -> None:
    off = {
        "ssl.truststore.location": "/nowhere/trust.jks",
        "ssl.keystore.location": "/nowhere/key.p12",
        "ssl.engine.factory.class": "com.example.Tls",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "com.example.MyLoginModule required k=hunter2;",
    }
    given = {f"kafka__{name.replace('.', '__')}": text for name, text in off.items()}
    parsed = options(**given, kafka__security__protocol="PLAINTEXT")
    assert parsed.kafka.keys() == {"bootstrap_servers", "security_protocol"}
    assert parsed.unused == tuple(sorted(f"kafka.{name}" for name in off))
    with pytest.raises(KafkaConfigurationError):
        options(**given)


def test_what_is_done_anyway_stops_no_job() -> None:
    harmless = {
        "ssl.protocol": "TLSv1.3",
        "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
        "sasl.login.refresh.buffer.seconds": "300",
        "sasl.login.refresh.window.factor": "0.8",
        "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
        "ssl.trustmanager.algorithm": "PKIX",
        "security.providers": "",
    }
    assert kafka(harmless) == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ssl.protocol": "TLSv1.1"}, "kafka.ssl.protocol='TLSv1.1': only TLS 1.2 and 1.3 are supported"),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.1"}, "only TLS 1.2 and 1.3 are supported"),
        ({"security.providers": "com.example.P"}, "Java security providers are not loaded; Python uses OpenSSL"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "use kafka.ssl.ciphers, in OpenSSL's notation"),
        ({"sasl.client.callback.handler.class": "x"}, "use kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauth.token.provider"),
        ({"sasl.login.callback.handler.class": "com.example.H"}, "kafka.sasl.oauth.token.provider=module:callable"),
        ({"sasl.oauthbearer.jwt.retriever.class": "FileJwtRetriever"}, "kafka.sasl.oauth.token.provider=module:callable"),
        ({"config.providers": "file"}, "use env:NAME, file:/path"),
        ({"ssl.engine.factory.class": "x"}, "use kafka.ssl.truststore.*"),
        ({"sasl.jass.config": "hunter2"}, "did you mean 'kafka.sasl.jaas.config'?"),
    ],
)
def test_the_rest_of_java_is_refused_with_what_to_use(given: dict[str, Any], problem: str) -> None:
    assert problem in refusal(given)
