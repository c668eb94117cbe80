"""What is read again and again is not paid for with page faults again and again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from kafka_async.records.freed_memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def read():
    return [bytes(1000) for _ in range(2000)]  # as many values of 1 KB as a read may return

if sys.argv[1] == "keep":
    keep_freed_memory()
read()
before = faults()
for _ in range(50):
    read()
print(faults() - before)
"""


def page_faults(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env={}).stdout)  # noqa: S603 - our own program


@pytest.mark.brokers
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide by themselves what they keep")
def test_records_take_the_memory_of_those_before_them() -> None:
    kept, given_back = page_faults("keep"), page_faults("as it is")
    assert kept < 1000 < 10_000 < given_back, "if it is not given back by itself, nothing needs to be done any more"
