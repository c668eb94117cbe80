"""Commands as programs."""

import os
import subprocess
import sys
from collections.abc import Sequence


def unread(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command whose standard output is a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "kafka_async", *arguments]
    try:
        return subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=100, check=False)  # noqa: S603 - ours
    finally:
        os.close(writing)
