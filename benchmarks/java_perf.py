"""Java's consumer, measured by the tool that Kafka ships for this (``kafka-consumer-perf-test.sh``), with the tool's own defaults.

It runs its consumer in a group. Its rate leaves out the time until partitions were assigned, and begins a little earlier than the
other clients' clocks, which start when the first batch has come. CPU is not taken: half of it would be the start of the JVM.
"""

import subprocess
from typing import Final

from benchmarks.jobs import Job
from tests.brokers import CURRENT, jars

NAME: Final = "java.perf"
TOOL: Final = "org.apache.kafka.tools.ConsumerPerformance"
FIELDS: Final = ("start", "end", "mb", "mb_s", "records", "records_s", "rebalance_ms", "fetch_ms", "fetch_mb_s", "fetch_records_s")
"""Of the tool's line."""
MIB: Final = 1024 * 1024 / 1e6
"""The tool's megabyte in ours."""


def perf(job: Job) -> dict[str, float]:
    """Read the job's records with Java's tool. Raises ``RuntimeError`` if it read fewer."""
    tool = ["java", "-Xmx512m", "-cp", f"{jars(CURRENT)}/*", TOOL, "--bootstrap-server", job.bootstrap, "--topic", job.topic]
    command = [*tool, "--num-records", str(job.records), "--timeout", "30000", "--hide-header"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # Kafka's own program
    said = [line for line in done.stdout.splitlines() if line.count(",") == len(FIELDS) - 1]
    if done.returncode or not said:
        raise RuntimeError(f"Java's tool ended with {done.returncode}: {done.stderr[-300:]}")
    values = dict(zip(FIELDS, map(str.strip, said[-1].split(",")), strict=True))
    if int(values["records"]) < job.records:
        raise RuntimeError(f"Java's tool read {values['records']} records of {job.records}")
    return {"records_per_s": float(values["fetch_records_s"]), "mb_per_s": float(values["fetch_mb_s"]) * MIB}
