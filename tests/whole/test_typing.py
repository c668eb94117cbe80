"""The types as a user sees them: a program of one's own, checked strictly against the package as it is installed."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any

import pytest
from attrs import fields_dict

import kafka_async
from kafka_async.application.processing.process_settings import DEFAULTS
from kafka_async.config import ConsumerConfig

PROGRAM = """
import asyncio
import json
from collections.abc import Sequence
from typing import Any, assert_type

import kafka_async.sync
from kafka_async import ConsumerConfig, ConsumerOptions, ConsumerRecord, KafkaConsumer, OffsetAndMetadata, ProcessingContext
from kafka_async import Router, ShareConsumer, ShareRecord, TopicPartition

Order = dict[str, int]


def decode(data: bytes) -> Order:
    return dict(json.loads(data))


def decode_by_topic(topic: str, headers: object, data: bytes) -> Order:
    return decode(data)


async def decode_later(data: bytes) -> Order:
    return decode(data)


class Decoder:
    def deserialize(self, data: bytes) -> Order:
        return decode(data)


class DecoderByTopic:
    def deserialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: bytes) -> Order:
        return decode(data)


class Callee:
    def __call__(self, data: bytes) -> Order:
        return decode(data)


async def bill(record: ConsumerRecord[Any, Order], context: ProcessingContext) -> None: ...


async def bill_all(records: list[ConsumerRecord[Any, Order]]) -> None: ...


async def bill_unless_deleted(record: ConsumerRecord[bytes | None, Order | None]) -> None: ...


async def bill_all_unless_deleted(records: Sequence[ConsumerRecord[Any, Order | None]]) -> None: ...


async def bill_any(record: ConsumerRecord) -> None: ...


def work_unless_deleted(job: ShareRecord[Any, Order | None]) -> None: ...


class Refund: ...


router = Router()


@router.on(topic="refunds", value=Refund)
async def refund(value: Refund) -> None: ...


@router.on(topic="refunds-or-deleted", value=Refund | None)
async def refund_unless_deleted(value: Refund | None) -> None: ...


def work(job: ShareRecord[Any, Order]) -> None: ...


async def main() -> None:
    consumer: KafkaConsumer[str, Order] = KafkaConsumer("orders", value_deserializer=decode)
    async with consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord[str, Order])
            assert_type(record.value["n"], int)
        assert_type(await consumer.getone(), ConsumerRecord[str, Order])
        batch = await consumer.getmany(timeout_ms=1000)
        assert_type(batch, dict[TopicPartition, list[ConsumerRecord[str, Order]]])
        assert_type(consumer.next_offsets(), dict[TopicPartition, OffsetAndMetadata])

    found = KafkaConsumer("orders", value_deserializer=decode, group_id="billing")
    assert_type(found, KafkaConsumer[Any, Order])
    await found.process(bill)
    await found.process(bill_all, batch=10)
    await found.process(bill_unless_deleted)
    await found.process(bill_all_unless_deleted, batch=10)
    await found.process(bill_any)
    await KafkaConsumer("refunds").process(router)
    await refund(Refund())  # as a test of the handler calls it
    await refund_unless_deleted(Refund())
    both = KafkaConsumer("orders", key_deserializer=bytes.decode, value_deserializer=decode)
    assert_type(both, KafkaConsumer[str, Order])
    assert_type(KafkaConsumer("orders", value_deserializer=decode_by_topic), KafkaConsumer[Any, Order])
    assert_type(KafkaConsumer("orders", value_deserializer=Decoder()), KafkaConsumer[Any, Order])
    assert_type(KafkaConsumer("orders", value_deserializer=DecoderByTopic()), KafkaConsumer[Any, Order])
    assert_type(KafkaConsumer("orders", value_deserializer=Callee()), KafkaConsumer[Any, Order])
    by_topic = KafkaConsumer("orders", value_deserializer=lambda topic, headers, data: decode(data))
    assert_type(by_topic, KafkaConsumer[Any, Order])
    assert_type(KafkaConsumer("orders", key_deserializer=Decoder(), value_deserializer=bytes.decode), KafkaConsumer[Order, str])
    later: KafkaConsumer[bytes, Order | None] = KafkaConsumer("orders", value_deserializer=decode_later)
    await later.process(bill_unless_deleted)
    assert_type(KafkaConsumer("orders", value_deserializer=json.loads), KafkaConsumer[Any, Any])
    config = ConsumerConfig.from_env(value_deserializer=decode)
    assert_type(KafkaConsumer.from_config(config, "orders"), KafkaConsumer[Any, Any])
    assert_type(KafkaConsumer[bytes, Order].from_config(config, "orders"), KafkaConsumer[bytes, Order])
    options: ConsumerOptions = {"bootstrap_servers": "localhost:9092", "group_id": "billing"}
    more: ConsumerOptions[Any, Order] = {**options, "group_id": "audit", "value_deserializer": decode}
    assert_type(KafkaConsumer("orders", **more), KafkaConsumer[Any, Order])
    jobs = ShareConsumer("jobs", group_id="workers", value_deserializer=decode)
    assert_type(jobs, ShareConsumer[Any, Order])
    assert_type(ShareConsumer("jobs", group_id="workers", value_deserializer=Decoder()), ShareConsumer[Any, Order])
    await jobs.process(work)
    await jobs.process(work_unless_deleted)

    with_tombstones: KafkaConsumer[bytes | None, Order | None] = KafkaConsumer("orders", value_deserializer=decode)
    assert_type((await with_tombstones.getone()).value, Order | None)
    await with_tombstones.process(bill_unless_deleted)
    await with_tombstones.process(bill_any)


with kafka_async.sync.KafkaConsumer[bytes, str]("orders") as blocking:
    for one in blocking:
        assert_type((one.key, one.value), tuple[bytes, str])

typed = kafka_async.sync.KafkaConsumer("orders", value_deserializer=decode)
assert_type(typed, kafka_async.sync.KafkaConsumer[Any, Order])
typed_by_topic = kafka_async.sync.KafkaConsumer("orders", value_deserializer=DecoderByTopic())
assert_type(typed_by_topic, kafka_async.sync.KafkaConsumer[Any, Order])
blocking_jobs = kafka_async.sync.ShareConsumer("jobs", group_id="workers", value_deserializer=decode_by_topic)
assert_type(blocking_jobs, kafka_async.sync.ShareConsumer[Any, Order])
untyped = KafkaConsumer("orders", bootstrap_servers="localhost:9092")
asyncio.run(main())
"""
LATER = """
from typing import Any, assert_type

from kafka_async import KafkaConsumer


async def decode(data: bytes) -> int:
    return 0


async def decode_by_topic(topic: str, headers: object, data: bytes) -> int:
    return 0


class Decoder:
    async def deserialize(self, data: bytes) -> int:
        return 0


class DecoderByTopic:
    async def deserialize(self, topic: str, headers: object, data: bytes) -> int:
        return 0


assert_type(KafkaConsumer("orders", value_deserializer=decode), KafkaConsumer[Any, FOUND])
assert_type(KafkaConsumer("orders", value_deserializer=decode_by_topic), KafkaConsumer[Any, FOUND])
assert_type(KafkaConsumer("orders", value_deserializer=Decoder()), KafkaConsumer[Any, FOUND])
assert_type(KafkaConsumer("orders", value_deserializer=DecoderByTopic()), KafkaConsumer[Any, FOUND])
"""
"""Where type checkers differ: mypy finds ``Any``, pyright the type."""
WRONG = """
import json

from kafka_async import ConsumerRecord, KafkaConsumer


def decode(data: bytes) -> dict[str, int]:
    return dict(json.loads(data))


async def handle(record: ConsumerRecord[bytes, str]) -> None: ...


async def main() -> None:
    consumer = KafkaConsumer("orders", value_deserializer=decode)
    await consumer.process(handle)
    (await consumer.getone()).value.upper()
    KafkaConsumer("orders", value_deserializer=decode, groupid="billing")
    other: KafkaConsumer[bytes, str] = KafkaConsumer("orders", value_deserializer=decode)
    with_tombstones: KafkaConsumer[bytes | None, dict[str, int] | None] = KafkaConsumer("orders", value_deserializer=decode)
    (await with_tombstones.getone()).value["n"]
    await KafkaConsumer("orders", value_deserializer=lambda topic, headers, data: 3).process(handle)
    await KafkaConsumer("orders", value_deserializer=Decoder()).process(handle)
    KafkaConsumer[bytes, str]("orders", value_deserializer=decode_later)
    KafkaConsumer[bytes, str]("orders", value_deserializer=Decoder())


async def decode_later(data: bytes) -> int:
    return 0


class Decoder:
    def deserialize(self, topic: str, headers: object, data: bytes) -> int:
        return 0
"""


REFUSED = """
from typing import Any

from kafka_async import ConsumerRecord, KafkaConsumer


class Order: ...


def decode(data: bytes) -> Order:
    return Order()


async def of_a_value(order: Order) -> None: ...


async def of_no_tombstones(record: ConsumerRecord[Any, Order]) -> None: ...


async def of_a_list(records: list[ConsumerRecord[Any, Order | None]]) -> None: ...


async def main() -> None:
    consumer = KafkaConsumer("orders", value_deserializer=decode)
    with_tombstones: KafkaConsumer[bytes | None, Order | None] = KafkaConsumer("orders", value_deserializer=decode)
    await consumer.process(of_a_value)
    await with_tombstones.process(of_no_tombstones)
    await consumer.process(of_a_list, batch=10)
"""
"""Handlers that the page about types lists."""
PACKAGE = Path(kafka_async.__file__).parent
ROOT = PACKAGE.parent
MISSING = """
import asyncio
import contextlib
import logging
import os
from typing import Any

from kafka_async.errors import CommitFailedError

log = logging.getLogger(__name__)


class Order: ...


def decode(data: bytes) -> Order:
    return Order()
"""
"""What the programs of the documents take for granted."""
ASYNC = """
from kafka_async import ConsumerOptions, ConsumerRecord, KafkaConsumer


class DatabaseError(Exception): ...


async def store(batch: object) -> None: ...
async def work(job: object) -> None: ...
"""
BLOCKING = """
def store(*batch: object) -> None: ...
def handle(record: object) -> None: ...
def serve() -> None: ...
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with nothing of this repository but the package, which the first of these tests has mypy read for all."""
    package = Path(kafka_async.__file__).parent
    assert (package / "py.typed").exists()
    site = tmp_path_factory.mktemp("site")
    (site / "kafka_async").symlink_to(package)
    return site


def check(installed: Path, tmp_path: Path, program: str, *others: str) -> "subprocess.CompletedProcess[str]":
    """Run ``mypy --strict`` over programs as their authors would, with nothing of this repository but the package."""
    names = [f"{tmp_path}/program{number or ''}.py" for number in range(len(others) + 1)]
    for name, text in zip(names, (program, *others), strict=True):
        Path(name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(installed / "cache"), *names]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  # ours


@pytest.mark.brokers
def test_a_program_of_a_user_passes_mypy_strict(installed: Path, tmp_path: Path) -> None:
    done = check(installed, tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.brokers
def test_what_programs_import_from_has_types_without_an_import_of_its_own(installed: Path, tmp_path: Path) -> None:
    used = ("adapters.__name__", "errors.KafkaError", "spark.register", "sync.KafkaConsumer", "testing.Cluster")
    program = "\n".join(["import kafka_async", *(f"print(kafka_async.{name})" for name in used)])
    done = check(installed, tmp_path, program + "\nprint(kafka_async.background)\n")
    assert [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line] == ["7"], done.stdout + done.stderr


@pytest.mark.brokers
def test_the_page_about_types_is_right_that_mypy_does_not_know_what_an_async_deserializer_returns(
    installed: Path, tmp_path: Path
) -> None:
    done = check(installed, tmp_path, LATER.replace("FOUND", "Any"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in mypy, what an `async def` returns" in (PACKAGE / "config" / "README.md").read_text()


@pytest.mark.brokers
def test_mypy_refuses_what_does_not_fit_the_type_of_the_values(installed: Path, tmp_path: Path) -> None:
    done = check(installed, tmp_path, WRONG)
    wrong = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [int(line.split(":")[1]) for line in wrong] == [16, 17, 18, 19, 21, 22, 23, 24, 25], done.stdout


@pytest.mark.brokers
def test_the_page_about_types_has_the_words_with_which_mypy_refuses_a_handler(installed: Path, tmp_path: Path) -> None:
    done = check(installed, tmp_path, REFUSED)
    page = " ".join((PACKAGE / "config" / "README.md").read_text().split())
    said = 'Argument 1 to "process" of "KafkaConsumer" has incompatible type'
    assert said in page
    assert [int(line.split(":")[1]) for line in done.stdout.splitlines() if said in line] == [26, 27, 28], done.stdout


def programs(document: Path) -> list[str]:
    """Return the programs of a document. What awaits outside of a function gets one."""
    found = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    return [_whole(block) for block in found]


def _whole(block: str) -> str:
    awaits = any(isinstance(node, ast.AsyncWith | ast.AsyncFor | ast.Await) for node in _outside_of_functions(_parsed(block)))
    return f"async def main() -> None:\n{indent(block, '    ')}" if awaits else block


def _parsed(block: str) -> ast.AST:
    tree = compile(block, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    assert isinstance(tree, ast.AST)
    return tree


def _outside_of_functions(node: ast.AST) -> list[ast.AST]:
    inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [*inner, *(deeper for child in inner for deeper in _outside_of_functions(child))]


@pytest.mark.brokers
@pytest.mark.parametrize(("name", "given"), [("README.md", ASYNC), ("kafka_async/SYNC.md", BLOCKING)])
def test_the_programs_of_a_document_pass_mypy_strict(installed: Path, tmp_path: Path, name: str, given: str) -> None:
    for module in ("fastapi", "polars"):
        pytest.importorskip(module, reason="a recipe uses it: pip install '.[test]'")
    first, *others = [f"{MISSING}{given}\n{program}" for program in programs(ROOT / name)]
    assert others
    done = check(installed, tmp_path, first, *others)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.brokers
def test_the_programs_of_the_page_about_types_pass_mypy_strict(installed: Path, tmp_path: Path) -> None:
    one, other = (text for text in programs(PACKAGE / "config" / "README.md") if "Order" in text or "ConsumerOptions" in text)
    done = check(installed, tmp_path, f"{MISSING}{ASYNC}\n{one}", f"{MISSING}{ASYNC}\n{other}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.brokers
@pytest.mark.parametrize(
    ("program", "errors"),
    [(PROGRAM, 0), (LATER.replace("FOUND", "int"), 0), (WRONG, 9), (REFUSED, 3)],
    ids=["right", "later", "wrong", "refused handlers"],
)
def test_pyright_sees_what_mypy_sees(installed: Path, tmp_path: Path, program: str, errors: int) -> None:
    pyright = shutil.which("pyright") or shutil.which("basedpyright", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if pyright is None:
        pytest.skip("pyright is not installed: npm install --global pyright, or pip install basedpyright")
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(installed)], "typeCheckingMode": "standard"}))
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  # fixed words
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert len([each for each in found if each["severity"] == "error"]) == errors, done.stdout


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
    "sasl_oauthbearer_grant_type": "client_credentials",
    "sasl_oauthbearer_assertion_algorithm": "ES256",
    "sasl_mechanism": "SCRAM-SHA-512",
    "background": "thread",
}


def value(name: str) -> str:
    """Return an expression for an option."""
    kind: Any = fields_dict(ConsumerConfig)[name].type
    return VALUES.get(name) or repr(WORDS.get(name, {int: 1, bool: True}.get(kind, "text")))


NAMES = sorted(fields_dict(ConsumerConfig).keys() - {"given"})


@pytest.mark.brokers
def test_a_program_may_give_each_option(installed: Path, tmp_path: Path) -> None:
    lines = "\n".join(f"KafkaConsumer('t', {name}={value(name)})" for name in NAMES)
    program = f"""
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_async import ConsumerConfig, KafkaConsumer, MskTokenProvider


class Mine: ...


class Registry:
    async def deserialize(self, topic: str, headers: object, data: bytes) -> str:
        return ""


{lines}
ConsumerConfig.of(group_id="g", max_poll_records=None)
"""
    done = check(installed, tmp_path, program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.brokers
def test_mypy_refuses_an_option_that_does_not_exist_and_a_value_of_another_type(installed: Path, tmp_path: Path) -> None:
    program = """import kafka_async.sync; from kafka_async import KafkaConsumer
KafkaConsumer("t", bootstrap_server="x")
KafkaConsumer("t", group_id=3)
KafkaConsumer("t", nonsense=True)
KafkaConsumer("t", session_timeout_ms="45000")
KafkaConsumer("t", security_protocol="TLS")
KafkaConsumer("t", enable_auto_commit=None)
kafka_async.sync.KafkaConsumer("t", heartbeat_intervall_ms=1)
KafkaConsumer("t").processing(print, concurency=3)
kafka_async.sync.KafkaConsumer("t").processing(print, order="keys")
kafka_async.ShareConsumer("t", group_id="g").processing(print, keep_done=True)
KafkaConsumer("t").processing(print, concurrency=3, order=lambda record: record.key, keep_done=False)
"""
    done = check(installed, tmp_path, program)
    for line, text in enumerate(
        (
            "bootstrap_server",
            "group_id",
            "nonsense",
            "session_timeout_ms",
            "security_protocol",
            "enable_auto_commit",
            "heartbeat_intervall_ms",
            "concurency",
            "order",
            "keep_done",
        ),
        2,
    ):
        assert any(error.startswith(f"program.py:{line}: error") and text in error for error in done.stdout.splitlines()), (
            done.stdout
        )
    assert 'did you mean "bootstrap_servers"?' in done.stdout
    assert "program.py:12:" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "KafkaConsumer(bootstrap_s",
        'KafkaConsumer("orders", bootstrap_s',
        'consumer = KafkaConsumer("orders", group_id="g", bootstrap_s',
    ],
)
def test_an_editor_completes_the_name_of_an_option(line: str) -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed: pip install '.[test]'")
    found = completions(jedi, line)
    assert found == ["bootstrap_servers="]


@pytest.mark.slow
def test_an_editor_completes_the_options_of_process() -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed: pip install '.[test]'")
    assert {f"{name}=" for name in DEFAULTS} <= set(completions(jedi, 'KafkaConsumer("t").process(print, '))


@pytest.mark.slow
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
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as cache:
        patch.setattr(jedi.settings, "cache_directory", cache)  # its own is shared with other runs, which write to it meanwhile
        # pytest's own importer has no source to show for the package, whose plugin it loads.
        patch.setattr(sys, "meta_path", [each for each in sys.meta_path if not type(each).__module__.startswith("_pytest")])
        return [found.name for found in script.complete(3, len(line))]
