import os
import subprocess
import sys

import pytest

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
