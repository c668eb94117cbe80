import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import kafka_async.records

from .implementations import needs_compiled

SHOW = "import kafka_async.records as r; print(r.IMPLEMENTATION, r.RecordReader.decoder.__module__, r.measure.__module__)"


def chosen(pure: str | None) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_ASYNC_PURE"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if pure is not None:
        environment["KAFKA_ASYNC_PURE"] = pure
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603 - our own interpreter


@pytest.mark.brokers
def test_pure_python_can_be_demanded() -> None:
    assert chosen("1") == ["python", "kafka_async.records.decode", "kafka_async.records.decode"]


@pytest.mark.brokers
@needs_compiled
@pytest.mark.parametrize("pure", [None, "0"])
def test_the_compiled_decoder_is_used_if_there_is_one(pure: str | None) -> None:
    assert chosen(pure) == ["cython", "kafka_async.records._decode", "kafka_async.records._decode"]


TWICE = """
import logging, sys

class NotBuilt:
    def find_spec(self, name, path=None, target=None):
        if name == "kafka_async.records._decode":
            raise ImportError("No module named '_decode'")

sys.meta_path.insert(0, NotBuilt())
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
from kafka_async import KafkaConsumer
KafkaConsumer("t")
KafkaConsumer("t")
"""


@pytest.mark.brokers
@pytest.mark.parametrize(("pure", "warnings"), [(None, 1), ("1", 0)], ids=["not-built", "asked-for"])
def test_a_missing_compiled_decoder_is_one_warning_with_the_remedy(pure: str | None, warnings: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA_ASYNC_PURE"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)} | ({} if pure is None else {"KAFKA_ASYNC_PURE": pure})
    done = subprocess.run([sys.executable, "-c", TWICE], env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter
    lines = done.stderr.splitlines()

    assert len(lines) == warnings
    for line in lines:
        assert line.startswith("WARNING kafka_async reading costs about ten times the CPU, because the compiled decoder cannot be")
        assert "No module named '_decode'" in line
        assert "a C compiler, or from a wheel" in line
        assert "KAFKA_ASYNC_PURE=1" in line
        assert line.endswith(f"({Path(kafka_async.records.__file__).parent})"), "a worker may have another copy of the package"


@pytest.mark.brokers
@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python was built with the GIL")
def test_importing_the_package_does_not_turn_the_gil_on() -> None:
    show = "import sys, kafka_async, kafka_async.records, kafka_async.application.reading.iteration; print(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter
    assert done.stdout == "False\n"
