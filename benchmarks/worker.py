"""The program of a worker process: ``python -m benchmarks.worker CLIENT JOB`` prints what it measured as one line of JSON.

``CLIENT`` ``producer`` writes paced records until it is terminated.
"""

import asyncio
import json
import sys

from benchmarks import java_perf
from benchmarks.data import produce_paced
from benchmarks.jobs import Job
from benchmarks.sinks import sink_for
from benchmarks.workers import CLIENTS


def main() -> None:
    """Run one job."""
    name, text = sys.argv[1:]
    job = Job.from_json(text)
    if name == "producer":
        produce_paced(job)
        return
    if name == java_perf.NAME:
        sys.stdout.write(json.dumps(java_perf.perf(job)) + "\n")
        return
    sink = sink_for(job)
    running = CLIENTS[name](job, sink)
    if running is not None:
        asyncio.run(running)
    sys.stdout.write(json.dumps(sink.results()) + "\n")


if __name__ == "__main__":
    main()
