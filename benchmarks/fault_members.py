"""Members of a group for the fault benchmark: subscribe, read, commit after every batch in the library's own idiom, report it all.

``python -m benchmarks.fault_members CLIENT JOB`` prints one line of JSON for each batch and each assignment until it is
terminated. Every option is the library's default except the session timeout (``SESSION_MS``) and auto-commit (off). Must never
end because of an error that the library calls retriable: an application would read on.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from benchmarks.jobs import Job

JAVA: Final = "java.verifiable"
JAVA_TOOL: Final = "org.apache.kafka.tools.VerifiableConsumer"
SESSION_MS: Final = 10_000
WAIT_MS: Final = 100
"""Most milliseconds of a read call, so that a member notices that it is to end."""


class Report:
    """The reports of a member. Times are nanoseconds of the clock that all processes share."""

    def __init__(self) -> None:
        self.over = False

    def read(self, places: Iterable[tuple[int, int]]) -> None:
        """Report the records (partition, offset) that were read."""
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in places:
            offsets[partition].append(offset)
        self._say({"read": offsets})

    def assigned(self, *_: Any) -> None:
        """Report that a rebalance assigned partitions to this member; a call-back of any library."""
        self._say({"assigned": 1})

    def failed(self, what: str, error: Exception) -> None:
        """Report that a call raised."""
        self._say({"failed": f"{what}: {error!r}"[:300]})

    def end(self, *_: object) -> None:
        """Have the member end."""
        self.over = True

    def _say(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps({"at": time.monotonic_ns(), **event}) + "\n")
        sys.stdout.flush()


def _shared(job: Job) -> dict[str, Any]:
    """Return the options that all clients have under the same names."""
    return {"auto_offset_reset": job.reset, "metadata_max_age_ms": job.metadata_ms}


def _dotted(job: Job) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in _shared(job).items()}


async def ours(job: Job, report: Report) -> None:
    """This package."""
    from kafka_async import ConsumerRebalanceListener, KafkaConsumer
    from kafka_async.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: object) -> None:
            report.assigned()

    options: dict[str, Any] = {"group_id": job.group, "group_protocol": job.protocol} | _shared(job)
    if job.protocol == "classic":
        options |= {"session_timeout_ms": SESSION_MS}
    consumer: KafkaConsumer[Any, Any] = KafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False, **options)
    consumer.subscribe([job.topic], listener=Listener())
    async with consumer:
        while not report.over:
            await _step(report, lambda: consumer.getmany(timeout_ms=WAIT_MS), consumer.commit, KafkaError)


async def aiokafka(job: Job, report: Report) -> None:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        def on_partitions_assigned(self, assigned: object) -> None:
            report.assigned()

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing: everything was committed."""

    options: dict[str, Any] = {"group_id": job.group, "session_timeout_ms": SESSION_MS} | _shared(job)
    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False, **options)
    consumer.subscribe([job.topic], listener=Listener())
    await consumer.start()
    while not report.over:
        await _step(report, lambda: consumer.getmany(timeout_ms=WAIT_MS), consumer.commit, KafkaError)
    await consumer.stop()


async def _step(report: Report, read: Callable[[], Any], commit: Callable[[], Any], errors: type[Exception]) -> None:
    """Read once, report, commit, in the way that both asyncio libraries share."""
    try:
        batch = await read()
        if batch:
            report.read((record.partition, record.offset) for records in batch.values() for record in records)
            await commit()
    except errors as error:
        report.failed("read or commit", error)
        await asyncio.sleep(0.05)  # an error that comes at once every time must not drown the report


def confluent(job: Job, report: Report) -> None:
    """confluent-kafka."""
    from confluent_kafka import Consumer, KafkaException

    options: dict[str, Any] = {"group.id": job.group, "group.protocol": job.protocol} | _dotted(job)
    options["topic.metadata.refresh.interval.ms"] = (
        job.metadata_ms
    )  # librdkafka's name for it; metadata.max.age.ms drops what is old
    if job.protocol == "classic":
        options |= {"session.timeout.ms": SESSION_MS}
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "enable.auto.commit": False, "log_level": 0, **options})
    consumer.subscribe([job.topic], on_assign=report.assigned)
    while not report.over:
        messages = consumer.consume(500, WAIT_MS / 1000)
        for error in (message.error() for message in messages):
            if error is not None:
                report.failed("read", KafkaException(error))
        good: list[Any] = [message for message in messages if message.error() is None]
        if good:
            report.read((message.partition(), message.offset()) for message in good)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                report.failed("commit", error)
    consumer.close()


def kafka_python(job: Job, report: Report) -> None:
    """kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
        def on_partitions_assigned(self, assigned: object) -> None:
            report.assigned()

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing: everything was committed."""

    options: dict[str, Any] = {"group_id": job.group, "session_timeout_ms": SESSION_MS} | _shared(job)
    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False, **options)
    consumer.subscribe([job.topic], listener=Listener())
    while not report.over:
        try:
            batch = consumer.poll(timeout_ms=WAIT_MS)
            if batch:
                report.read((record.partition, record.offset) for records in batch.values() for record in records)
                consumer.commit()
        except KafkaError as error:
            report.failed("read or commit", error)
    consumer.close()


def java(job: Job, report: Report) -> None:
    """Java's consumer, in the tool that Kafka's own system tests use. It ends when this process's group is told to."""
    from tests.brokers import CURRENT, jars

    with tempfile.NamedTemporaryFile("w", suffix=".properties") as settings:
        settings.writelines(f"{name}={value}\n" for name, value in _dotted(job).items())
        settings.flush()
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{jars(CURRENT)}/*", JAVA_TOOL, "--verbose"]
        command += ["--bootstrap-server", job.bootstrap, "--topic", job.topic, "--group-id", job.group, "--reset-policy", job.reset]
        command += ["--group-protocol", job.protocol, "--command-config", settings.name]
        if job.protocol == "classic":
            command += ["--session-timeout", str(SESSION_MS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tool:  # noqa: S603  # Kafka's
            for line in tool.stdout or ():
                event = json.loads(line)
                match event["name"]:
                    case "record_data":
                        report.read([(event["partition"], event["offset"])])
                    case "partitions_assigned":
                        report.assigned()
                    case "offsets_committed" if not event.get("success", True):
                        report.failed("commit", RuntimeError(event.get("error")))


MEMBERS: Final[dict[str, Callable[[Job, Report], Coroutine[Any, Any, None] | None]]] = {
    "kafka_async.getmany": ours,
    "aiokafka.getmany": aiokafka,
    "confluent.consume": confluent,
    "kafka_python.poll": kafka_python,
    JAVA: java,
}
"""Clients that can be members, by the name that ``--clients`` takes; a blocking one is a plain function."""
BOTH_PROTOCOLS: Final = ("kafka_async.getmany", "confluent.consume", JAVA)
"""Those that speak the consumer protocol too."""


def main() -> None:
    """Be a member until terminated."""
    name, text = sys.argv[1:]
    report = Report()
    signal.signal(signal.SIGTERM, report.end)
    running = MEMBERS[name](Job.from_json(text), report)
    if running is not None:
        asyncio.run(running)


if __name__ == "__main__":
    main()
