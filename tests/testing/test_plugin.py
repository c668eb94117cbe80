"""The pytest plugin, in pytest runs of its own: what it registers, which plugins it works with, and what is left behind."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.brokers

BODY = """
async def reads(cluster):
    cluster.topic("t")
    cluster.produce("t", value="v")
    async with KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **cluster.options()) as consumer:
        assert (await consumer.getone()).value == b"v"
        await cluster.assigned("g")
        await consumer.commit()
    assert cluster.committed("g")[("t", 0)].offset == 1
"""
FUNCTION_LOOP = """
async def test_one(kafka_cluster): await reads(kafka_cluster)
async def test_two(kafka_cluster): await reads(kafka_cluster)
"""
SESSION_LOOP = """
pytestmark = pytest.mark.asyncio(loop_scope="session")
async def test_one(kafka_cluster): await reads(kafka_cluster)
async def test_two(kafka_cluster): await reads(kafka_cluster)
"""
ANYIO = """
@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request): return request.param
@pytest.mark.anyio
async def test_one(kafka_cluster): await reads(kafka_cluster)
"""
PLAIN = """
def test_one(kafka_cluster): asyncio.run(reads(kafka_cluster))
def test_two(kafka_cluster, virtual_time): virtual_time(reads(kafka_cluster))
"""
SCOPE = ["-o", "asyncio_default_fixture_loop_scope=function"]
HEAD = "import asyncio, pytest\nfrom kafka_async import KafkaConsumer\n" + BODY


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(HEAD + code)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", *options]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)  # noqa: S603 - our own


@pytest.mark.parametrize(
    ("code", "options", "passed"),
    [
        (FUNCTION_LOOP, ["-p", "no:anyio", "-o", "asyncio_mode=auto", *SCOPE], 2),
        (SESSION_LOOP, ["-p", "no:anyio", *SCOPE], 2),
        (ANYIO, ["-p", "no:asyncio"], 2),
        (PLAIN, ["-p", "no:anyio", "-p", "no:asyncio"], 2),
    ],
    ids=["function loop", "session loop", "anyio", "asyncio.run"],
)
def test_the_plugin_serves_every_way_to_run_async_tests(code: str, options: list[str], passed: int, tmp_path: Path) -> None:
    found = run(tmp_path, code, *options)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{passed} passed" in found.stdout


def test_it_registers_and_does_nothing_else(tmp_path: Path) -> None:
    (plugin,) = importlib.metadata.entry_points(group="pytest11", name="kafka-async")
    assert plugin.value == "kafka_async.testing.plugin"
    found = run(tmp_path, "", "-p", "no:asyncio")
    assert "no tests ran" in found.stdout
    script = "import sys; import kafka_async.testing.plugin; print('kafka_async.wire' in sys.modules, 'anyio' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert ran.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--kafka-bootstrap", ""], "--kafka-bootstrap '': bootstrap_servers='': expected at least one 'host:port'"),
        (
            ["--kafka-bootstrap", "here:0"],
            "--kafka-bootstrap 'here:0': bootstrap_servers: 'here:0' is not an address; expected 'host:port' "
            "with a port from 1 to 65535",
        ),
        (
            ["--kafka-bootstrap", "127.0.0.1:1"],
            "--kafka-bootstrap '127.0.0.1:1': no broker answers at 127.0.0.1:1: ConnectionRefusedError(111, 'Connection refused')",
        ),
        (
            ["--kafka-bootstrap", "127.0.0.1:1", "--kafka-option", "retries"],
            "--kafka-bootstrap '127.0.0.1:1': --kafka-option retries: expected KEY=VALUE",
        ),
    ],
    ids=["empty", "no address", "nobody", "option"],
)
def test_brokers_that_cannot_be_used_are_one_sentence(options: list[str], sentence: str, tmp_path: Path) -> None:
    found = run(tmp_path, "def test_one(kafka_options): pass", "-p", "no:anyio", "-p", "no:asyncio", *options)
    assert found.returncode == 1
    assert sentence in found.stdout.splitlines()
    for noise in ("Traceback", "plugin.py", "another exception", "direct cause"):
        assert noise not in found.stdout


@pytest.mark.parametrize(
    ("lines", "option", "sentence"),
    [
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "security.protocol=PLAINTEXT", "no broker answers at 127.0.0.1:1"),
        ("security.protocol=SSL", "ssl.cafile=/nowhere/ca.pem", "ssl_cafile='/nowhere/ca.pem': "),
        ("ssl.cafile=/nowhere/ca.pem", "security.protocol=SSL", "ssl_cafile='/nowhere/ca.pem': "),
    ],
    ids=["off", "on in the file", "on"],
)
def test_a_file_and_the_command_line_turn_tls_on_and_off_together(lines: str, option: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(lines)
    options = ["--kafka-bootstrap", "127.0.0.1:1", "--kafka-config", str(tmp_path / "client.properties"), "--kafka-option", option]
    plugins = ["-p", "no:anyio", "-p", "no:asyncio", "-W", "ignore::UserWarning"]
    found = run(tmp_path, "def test_one(kafka_options): pass", *plugins, *options)
    assert found.returncode == 1
    assert sentence in found.stdout


def test_hypothesis_is_not_needed() -> None:
    script = (
        "import sys\nfor name in ('hypothesis', 'trio', 'pytest'): sys.modules[name] = None\n"
        "import kafka_async.testing as t\nt.Cluster(); t.RealCluster; t.virtual_loop().close(); print('well')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert ran.stdout == "well\n"


def test_a_hundred_clusters_take_seconds(tmp_path: Path) -> None:
    """Measured: 25 ms of CPU time each on a busy machine, including the consumer's start, commit and stop."""
    code = """
import time, threading
BEGAN = time.process_time()
@pytest.mark.parametrize("number", range(100))
def test_one(number, kafka_cluster, virtual_time):
    virtual_time(reads(kafka_cluster))
    assert threading.active_count() == 1
def test_time():
    assert time.process_time() - BEGAN < 6
"""
    found = run(tmp_path, code, "-p", "no:anyio", "-p", "no:asyncio")
    assert found.returncode == 0, found.stdout[-3000:]
    assert "101 passed" in found.stdout


VIRTUAL = """
@pytest.mark.virtual_time
async def test_an_hour(kafka_cluster):
    await reads(kafka_cluster)
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() >= 3600

async def test_real_time(kafka_cluster):
    await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() > 1
"""
LOOPS = """
from kafka_async.testing import virtual_loop
def pytest_asyncio_loop_factories(config, item): return {"virtual": virtual_loop}
"""
FIXTURE = """
@pytest.fixture
async def waited():
    await asyncio.sleep(3600)
    return asyncio.get_running_loop()

async def test_one(waited):
    assert asyncio.get_running_loop() is waited
    await asyncio.sleep(3600)
"""
PLAIN_VIRTUAL = VIRTUAL[: VIRTUAL.index("async def test_real_time")]
ANYIO_VIRTUAL = """
from kafka_async.testing import virtual_loop
@pytest.fixture
def anyio_backend(): return "asyncio", {"loop_factory": virtual_loop}
@pytest.mark.anyio
async def test_one(kafka_cluster):
    await reads(kafka_cluster)
    await asyncio.sleep(3600)
"""
SHARED = """
seen = []
@pytest.mark.parametrize("number", range(3))
def test_one(number, kafka_module_cluster, kafka_session_cluster, kafka_name, virtual_time):
    async def writes_and_reads(cluster, topic):
        cluster.topic(topic)
        cluster.produce(topic, value=str(number))
        async with KafkaConsumer(topic, group_id="g", auto_offset_reset="earliest", **cluster.options()) as consumer:
            assert (await consumer.getone()).value == str(number).encode()
            await asyncio.sleep(1000)
    assert kafka_module_cluster is not kafka_session_cluster
    for cluster in (kafka_module_cluster, kafka_session_cluster):
        virtual_time(writes_and_reads(cluster, kafka_name("t")))
        seen.append(id(cluster))
    assert len(set(seen)) == 2
    assert len(kafka_module_cluster.simulated.topics) == number + 1
"""


DECORATED = """
import functools
from hypothesis import given, settings, strategies
from unittest.mock import patch
HOST = "real"

def charged(test):
    @functools.wraps(test)
    async def charge(*args, **kwargs): return await test(*args, **kwargs, extra=1)
    return charge

async def an_hour():
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() >= 3600

@pytest.mark.virtual_time
@patch(f"{__name__}.HOST", "fake")
async def test_value(kafka_cluster):
    await an_hour()
    assert HOST == "fake"

@pytest.mark.virtual_time
@patch(f"{__name__}.HOST")
async def test_mock(host, kafka_cluster, more=2):
    await an_hour()
    assert HOST is host and more == 2

class TestMethods:
    @pytest.mark.virtual_time
    async def test_plain(self, kafka_cluster): await an_hour()

    @pytest.mark.virtual_time
    @patch(f"{__name__}.HOST")
    async def test_mock(self, host, kafka_cluster):
        await an_hour()
        assert HOST is host

    @pytest.mark.virtual_time
    @pytest.mark.parametrize("number", [1])
    @charged
    async def test_wrapped(self, kafka_cluster, number, extra=0):
        await an_hour()
        assert number == extra == 1

@pytest.mark.virtual_time
@settings(max_examples=3, database=None, deadline=None)
@given(hours=strategies.integers(1, 10))
async def test_hours(hours, kafka_session_cluster):
    await asyncio.sleep(hours * 3600)
    assert asyncio.get_running_loop().time() >= 3600
"""
BARE = ["-p", "no:anyio", "-p", "no:asyncio"]
AUTO = ["-p", "no:anyio", "-o", "asyncio_mode=auto", *SCOPE]


@pytest.mark.parametrize("options", [BARE, AUTO, ["-p", "no:anyio", *SCOPE]], ids=["no plugin", "pytest-asyncio", "strict"])
def test_what_decorates_a_test_is_there_under_virtual_time(options: list[str], tmp_path: Path) -> None:
    """It was stripped: what the test replaced was there after all, and mocks and methods ended in ``KeyError``."""
    found = run(tmp_path, DECORATED, *options)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "6 passed" in found.stdout


NEVER = """
@pytest.mark.virtual_time(limit=300)
async def test_marked(kafka_cluster, kafka_options):
    kafka_cluster.topic("t")
    kafka_cluster.produce("t", value="v")
    async with KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **kafka_options) as consumer:
        await consumer.getone()
        await consumer.getone()

@pytest.mark.virtual_time(limit=300)
def test_with_the_fixture(virtual_time): virtual_time(asyncio.sleep(301))

@pytest.mark.virtual_time
async def test_too_long_for_all(): await asyncio.sleep(3601)

@pytest.mark.virtual_time
async def test_just_in_time(): await asyncio.sleep(3600)

@pytest.mark.virtual_time(limit=None)
async def test_on_purpose(): await asyncio.sleep(100 * 86_400)

def test_goes_on(virtual_time):
    async def goes_on():
        while True:
            try: await asyncio.sleep(1000)
            except asyncio.CancelledError: pass
    virtual_time(goes_on())
"""


def test_what_waits_for_ever_under_virtual_time_fails_with_what_its_consumers_know(tmp_path: Path) -> None:
    found = run(tmp_path, NEVER, *BARE, "-rf", "--strict-markers", "-o", "kafka_virtual_time_limit=3600")
    assert "2 passed" in found.stdout, found.stdout + found.stderr
    assert "4 failed" in found.stdout
    failed = [line.split(" - ")[0].rsplit("::", 1)[1] for line in found.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == ["test_marked", "test_with_the_fixture", "test_too_long_for_all", "test_goes_on"]
    assert "not over after 300 s of virtual time" in found.stdout
    assert "t-0: PartitionStatistics(position=1, high_watermark=1" in found.stdout
    assert "records_consumed 1" in found.stdout


LIMITS = """
@pytest.mark.virtual_time(50)
async def test_without_a_name(): await asyncio.sleep(60)

@pytest.mark.virtual_time(0)
async def test_nothing(): pass

@pytest.mark.virtual_time(limits=50)
async def test_misspelt(): pass

@pytest.mark.virtual_time
async def test_for_ever(): await asyncio.sleep(100 * 86_400)
"""


def test_a_limit_of_virtual_time_that_means_nothing_is_refused(tmp_path: Path) -> None:
    found = run(tmp_path, LIMITS, *BARE, "-o", "kafka_virtual_time_limit=none")
    assert "3 failed" in found.stdout, found.stdout + found.stderr
    assert "1 passed" in found.stdout
    assert "not over after 50 s of virtual time" in found.stdout
    for given in ("0", "limits=50"):
        assert f"@pytest.mark.virtual_time({given}): expected limit=, a number of seconds above 0 or None" in found.stdout
    for wrong in ("0", "-1", "a day", "nan"):
        found = run(tmp_path, LIMITS, *BARE, "-o", f"kafka_virtual_time_limit={wrong}")
        assert found.returncode == pytest.ExitCode.USAGE_ERROR
        assert f"kafka_virtual_time_limit = {wrong}: expected a number of seconds above 0, or none" in found.stderr


ON_BROKERS = """
from unittest.mock import patch
HOST = "real"

@pytest.mark.virtual_time
@patch(f"{__name__}.HOST", "fake")
async def test_it():
    await asyncio.sleep(0)
    assert HOST == "fake" and type(asyncio.get_running_loop()).__module__.startswith("asyncio")
"""
WITH_ITS_LOOP = """
@pytest.fixture
async def loop(): return asyncio.get_running_loop()

@pytest.mark.virtual_time
async def test_its_loop(loop): assert asyncio.get_running_loop() is loop
"""


@pytest.mark.parametrize(
    ("code", "options", "passed"),
    [(ON_BROKERS, BARE, 1), (ON_BROKERS, ["-p", "no:anyio", *SCOPE], 1), (ON_BROKERS + WITH_ITS_LOOP, AUTO, 2)],
    ids=["no plugin", "strict", "pytest-asyncio"],
)
def test_a_marked_test_runs_in_real_time_on_brokers(code: str, options: list[str], passed: int, tmp_path: Path) -> None:
    """Without a plugin that took it, it failed: pytest itself knows no async tests. A test without fixtures needs no broker."""
    found = run(tmp_path, code, "--kafka-bootstrap", "127.0.0.1:1", *options)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{passed} passed" in found.stdout


@pytest.mark.parametrize(
    ("code", "options", "passed"),
    [
        (VIRTUAL, ["-p", "no:anyio", "-o", "asyncio_mode=auto", *SCOPE], 2),
        (FIXTURE, ["-p", "no:anyio", "-o", "asyncio_mode=auto", *SCOPE], 1),
        (PLAIN_VIRTUAL, ["-p", "no:anyio", "-p", "no:asyncio", "--strict-markers"], 1),
        (ANYIO_VIRTUAL, ["-p", "no:asyncio"], 1),
        (SHARED, ["-p", "no:anyio", "-p", "no:asyncio"], 3),
    ],
    ids=["pytest-asyncio", "async fixtures", "no plugin", "anyio", "shared clusters"],
)
def test_async_tests_run_under_virtual_time_and_share_clusters(code: str, options: list[str], passed: int, tmp_path: Path) -> None:
    if code is FIXTURE:
        (tmp_path / "conftest.py").write_text(LOOPS)
    found = run(tmp_path, code, *options)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{passed} passed" in found.stdout
