"""``RealCluster`` and the plugin on brokers that want TLS and a login."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_async import KafkaConsumer
from kafka_async.errors import AuthenticationFailedError
from kafka_async.testing import RealCluster

from .secure import Secure, login

pytestmark = pytest.mark.brokers


DOORS: dict[str, dict[str, Any]] = {
    "TLS": {"security_protocol": "SSL"},
    "LOGIN": {"security_protocol": "SASL_PLAINTEXT", **login(mechanism="SCRAM-SHA-256")},
    "TLSLOGIN": {"security_protocol": "SASL_SSL", **login(mechanism="PLAIN")},
}


@pytest.mark.parametrize("door", DOORS)
async def test_a_cluster_is_filled_and_read_by_every_door(kafka_secure: Secure, door: str) -> None:
    options = dict(DOORS[door])
    if options["security_protocol"].endswith("SSL"):
        options["ssl_cafile"] = kafka_secure.authority
    topic = f"kit-{door.lower()}"
    with RealCluster(kafka_secure.cluster.listener(door), config=options) as cluster:
        (tp,) = cluster.topic(topic, retention_ms=60_000)
        cluster.produce(topic, value="v")
        async with KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **cluster.options()) as consumer:
            assert (await consumer.getone()).value == b"v"
            await consumer.commit()
        assert cluster.committed(topic)[tp].offset == 1


def test_a_wrong_password_is_said_and_not_shown(kafka_secure: Secure) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", **login(mechanism="SCRAM-SHA-256", password="wrong-horse")}
    with RealCluster(kafka_secure.cluster.listener("LOGIN"), config=options) as cluster:
        assert "wrong-horse" not in repr(cluster)
        with pytest.raises(AuthenticationFailedError) as told:
            cluster.topic("never")
    assert "wrong-horse" not in str(told.value)


def test_the_plugin_takes_options_and_a_file(kafka_secure: Secure, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from kafka_async import KafkaConsumer\n"
        "def test_it(kafka_cluster, kafka_options, virtual_time):\n"
        "    async def first():\n"
        "        async with KafkaConsumer('kit-plugin', auto_offset_reset='earliest', **kafka_options) as consumer:\n"
        "            return (await consumer.getone()).value\n"
        "    kafka_cluster.topic('kit-plugin')\n"
        "    kafka_cluster.produce('kit-plugin', value='v')\n"
        "    assert virtual_time(first()) == b'v'\n"
    )
    user = login(mechanism="SCRAM-SHA-256")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={kafka_secure.authority}\n"
        f'sasl.jaas.config={module} required username="{user["sasl_plain_username"]}" password="{user["sasl_plain_password"]}";\n'
    )
    options = ["--kafka-bootstrap", kafka_secure.cluster.listener("TLSLOGIN"), "--kafka-config", "client.properties"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:asyncio", *options]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTEST_ADDOPTS": ""}
        return subprocess.run(  # noqa: S603 - our own
            [*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    found = run("--kafka-option", "sasl.mechanism=SCRAM-SHA-256")
    assert "1 passed" in found.stdout, found.stdout + found.stderr
    refused = run("--kafka-option", "sasl.mechanics=SCRAM-SHA-256")
    assert "sasl.mechanics" in refused.stdout + refused.stderr
    assert "passed" not in refused.stdout
