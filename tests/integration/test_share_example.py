"""The example of a job queue on a real broker: workers are killed, every job is done."""

import re
import subprocess
import sys
from uuid import uuid4

import pytest

from tests.brokers import KafkaCluster
from tests.effort import apart
from tests.whole.test_examples import ROOT

pytestmark = pytest.mark.brokers


@pytest.mark.parametrize("way", ["process", *apart("getmany")])
def test_every_job_is_done_though_workers_are_killed(kafka_share: KafkaCluster, way: str) -> None:
    topic = kafka_share.create_topic(f"queue-{uuid4().hex[:8]}", 2)
    kafka_share.produce(topic, 600, partitions=2)
    words = [kafka_share.bootstrap_servers, topic, *(["getmany"] if way == "getmany" else [])]
    command = [sys.executable, "-m", "examples.job_queue", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)  # noqa: S603 - our own
    found = re.search(r"(\S+) of 600 jobs done by 3 workers, (\d+) killed", done.stdout)
    assert done.returncode == 0, done.stderr
    assert found is not None, done.stdout
    assert int(found[2]) >= 1
    # What a worker had done and could not say any more before it was killed was accepted all the same.
    assert int(found[1].replace(",", "")) >= 600 - 10 * 3 * int(found[2])
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)  # noqa: S603 - our own
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        f"group 'job-queue' has done every job of topic {topic!r}; to have them done again: kafka-async offsets reset job-queue "
        f"-t {topic} --to-earliest --execute -b {kafka_share.bootstrap_servers}\n"
    )
