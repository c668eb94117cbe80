"""The types as a user sees them: a program of one's own, checked strictly against the package as it is installed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import fields_dict

import kafka_async
from kafka_async.config import ConsumerConfig

PROGRAM = """
import asyncio
import json
from typing import assert_type

import kafka_async.sync
from kafka_async import ConsumerRecord, KafkaConsumer, OffsetAndMetadata, TopicPartition


def decode(data: bytes) -> dict[str, int]:
    return dict(json.loads(data))


async def main() -> None:
    consumer: KafkaConsumer[str, dict[str, int]] = KafkaConsumer("orders", value_deserializer=decode)
    async with consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord[str, dict[str, int]])
            assert_type(record.value["n"], int)
        assert_type(await consumer.getone(), ConsumerRecord[str, dict[str, int]])
        batch = await consumer.getmany(timeout_ms=1000)
        assert_type(batch, dict[TopicPartition, list[ConsumerRecord[str, dict[str, int]]]])
        assert_type(consumer.next_offsets(), dict[TopicPartition, OffsetAndMetadata])


with kafka_async.sync.KafkaConsumer[bytes, str]("orders") as blocking:
    for one in blocking:
        assert_type((one.key, one.value), tuple[bytes, str])

untyped = KafkaConsumer("orders", bootstrap_servers="localhost:9092")
asyncio.run(main())
"""


def check(tmp_path: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run ``mypy --strict`` over a program as its author would, with nothing of this repository but the package."""
    package = Path(kafka_async.__file__).parent
    assert (package / "py.typed").exists()
    site = tmp_path / "site"
    site.mkdir()
    (site / "kafka_async").symlink_to(package)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", "cache", "program.py"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours


@pytest.mark.brokers
def test_a_program_of_a_user_passes_mypy_strict(tmp_path: Path) -> None:
    done = check(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


VALUES = {
    "bootstrap_servers": '["a:9092", "b:9092"]',
    "partition_assignment_strategy": '["range", Mine]',
    "auto_offset_reset": '"by_duration:P1D"',
    "isolation_level": '"read_committed"',
    "key_deserializer": "bytes.decode",
    "value_deserializer": "Registry()",
    "interceptors": "[object()]",
    "ssl_context": "ssl.create_default_context()",
    "ssl_cafile": 'Path("ca.pem")',
    "sasl_oauth_token_provider": "MskTokenProvider('eu-west-1')",
    "sasl_oauthbearer_extensions": '{"logicalCluster": "lkc-1"}',
    "trace": "print",
}
"""What a program gives for options that take more than a word or a number."""
WORDS = {
    "group_protocol": "consumer",
    "client_dns_lookup": "use_all_dns_ips",
    "metadata_recovery_strategy": "none",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "background": "thread",
}


def value(name: str) -> str:
    """Return an expression for an option."""
    kind: Any = fields_dict(ConsumerConfig)[name].type
    return VALUES.get(name) or repr(WORDS.get(name, {int: 1, bool: True}.get(kind, "text")))


NAMES = sorted(fields_dict(ConsumerConfig).keys() - {"given"})


@pytest.mark.brokers
def test_a_program_may_give_each_option(tmp_path: Path) -> None:
    lines = "\n".join(f"KafkaConsumer('t', {name}={value(name)})" for name in NAMES)
    program = f"""
import ssl
from pathlib import Path

from kafka_async import ConsumerConfig, KafkaConsumer, MskTokenProvider


class Mine: ...


class Registry:
    async def deserialize(self, topic: str, headers: object, data: bytes) -> str:
        return ""


{lines}
ConsumerConfig.of(group_id="g", max_poll_records=None)
"""
    done = check(tmp_path, program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.brokers
def test_mypy_refuses_an_option_that_does_not_exist_and_a_value_of_another_type(tmp_path: Path) -> None:
    program = """import kafka_async.sync; from kafka_async import KafkaConsumer
KafkaConsumer("t", bootstrap_server="x")
KafkaConsumer("t", group_id=3)
KafkaConsumer("t", nonsense=True)
KafkaConsumer("t", session_timeout_ms="45000")
KafkaConsumer("t", security_protocol="TLS")
KafkaConsumer("t", enable_auto_commit=None)
kafka_async.sync.KafkaConsumer("t", heartbeat_intervall_ms=1)
"""
    done = check(tmp_path, program)
    for line, text in enumerate(
        (
            "bootstrap_server",
            "group_id",
            "nonsense",
            "session_timeout_ms",
            "security_protocol",
            "enable_auto_commit",
            "heartbeat_intervall_ms",
        ),
        2,
    ):
        assert any(error.startswith(f"program.py:{line}: error") and text in error for error in done.stdout.splitlines()), (
            done.stdout
        )
    assert 'did you mean "bootstrap_servers"?' in done.stdout


@pytest.mark.parametrize(
    "line", ["KafkaConsumer(boot", 'KafkaConsumer("orders", boot', 'consumer = KafkaConsumer("orders", group_id="g", boot']
)
def test_an_editor_completes_the_name_of_an_option(line: str) -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed: pip install '.[test]'")
    found = completions(jedi, line)
    assert found == ["bootstrap_servers="]


def test_an_editor_completes_every_option() -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed: pip install '.[test]'")
    assert {f"{name}=" for name in NAMES} <= set(completions(jedi, "KafkaConsumer("))


def completions(jedi: Any, line: str) -> list[str]:
    """Return what an editor offers at the end of a line."""
    root = Path(kafka_async.__file__).parent.parent
    source = f"from kafka_async import KafkaConsumer\n\n{line}"
    script = jedi.Script(
        source,
        path=root / "program.py",
        project=jedi.Project(root, sys_path=[str(root), *sys.path]),
        environment=jedi.InterpreterEnvironment(),  # this interpreter: jedi's default starts a process
    )
    # pytest's own importer has no source to show for the package, whose plugin it loads.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", [each for each in sys.meta_path if not type(each).__module__.startswith("_pytest")])
        return [found.name for found in script.complete(3, len(line))]
