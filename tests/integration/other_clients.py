"""Other clients as scenarios use them: what they write, read and ask for, and what they say of it, in words that can be compared.

An outcome is what a client reports for a call: its own name of the error, or ``None``. It is compared between two clusters and
never between two clients.
"""

import asyncio
import contextlib
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import pytest

from .groups import java_tools

_REASON: Final = "in the extras bench and test"
aiokafka: Any = pytest.importorskip("aiokafka", reason=_REASON)
aiokafka_admin: Any = pytest.importorskip("aiokafka.admin", reason=_REASON)
confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason=_REASON)
confluent_admin: Any = pytest.importorskip("confluent_kafka.admin", reason=_REASON)
kafka: Any = pytest.importorskip("kafka", reason=_REASON)  # which warns when it is imported
kafka_admin: Any = pytest.importorskip("kafka.admin", reason=_REASON)

SECONDS: Final = 90
"""For one call, and for records to come."""
Outcome = str | None


class OtherClient(ABC):
    """One client on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def write(self, topic: str, values: Sequence[str], *, acks: int = -1, timestamp: int | None = None) -> list[Outcome]:
        """Write records one by one; return the outcomes."""

    @abstractmethod
    def transact(self, topic: str, name: str, value: str, *, commit: bool) -> None:
        """Write a record in a transaction, and end it."""

    @abstractmethod
    def read(self, topic: str, group: str, count: int, *, committed: bool = False) -> list[str]:
        """Read as a member of a group from where it stands, or from the beginning, until ``count`` records came; commit them."""

    @abstractmethod
    def create(self, topic: str, **config: str) -> Outcome:
        """Create a topic."""

    @abstractmethod
    def grow(self, topic: str, count: int) -> Outcome:
        """Give a topic more partitions."""

    @abstractmethod
    def groups(self) -> list[str]:
        """List the groups."""

    def delete_group(self, group: str) -> Outcome:
        """Delete a group."""
        raise NotImplementedError

    def forget(self, group: str, topic: str) -> Outcome:
        """Delete the offset of partition 0."""
        raise NotImplementedError

    def latest(self, topic: str) -> tuple[int, int]:
        """Return offset and timestamp of the record with the latest timestamp in partition 0."""
        raise NotImplementedError

    def member(self, group: str) -> tuple[str, str]:
        """Return client id and host of the only member of a group."""
        raise NotImplementedError


def outcome(call: Callable[[], Any]) -> Outcome:
    """Return the name of the error that a call raises."""
    try:
        call()
    except (aiokafka.errors.KafkaError, kafka.errors.KafkaError) as error:
        return type(error).__name__
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].name())
    return None


class Aiokafka(OtherClient):
    """aiokafka."""

    def write(self, topic: str, values: Sequence[str], *, acks: int = -1, timestamp: int | None = None) -> list[Outcome]:
        async def main() -> list[Outcome]:
            found: list[Outcome] = []
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all" if acks < 0 else acks) as producer:
                for value in values:
                    try:
                        await producer.send_and_wait(topic, value.encode(), timestamp_ms=timestamp, partition=0)
                        found.append(None)
                    except aiokafka.errors.KafkaError as error:
                        found.append(type(error).__name__)
            return found

        return asyncio.run(main())

    def transact(self, topic: str, name: str, value: str, *, commit: bool) -> None:
        async def main() -> None:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name) as producer:
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value.encode(), partition=0)
                await (producer.commit_transaction() if commit else producer.abort_transaction())

        asyncio.run(main())

    def read(self, topic: str, group: str, count: int, *, committed: bool = False) -> list[str]:
        async def main() -> list[str]:
            found: list[str] = []
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=self.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            async with consumer:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SECONDS):
                        while len(found) < count:
                            batch = await consumer.getmany(timeout_ms=200)
                            found += [record.value.decode() for records in batch.values() for record in records]
                await consumer.commit()
            return found

        return asyncio.run(main())

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def create(self, topic: str, **config: str) -> Outcome:
        async def main() -> int:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            async with self._admin() as admin:
                answer = await admin.create_topics([aiokafka_admin.NewTopic(topic, 1, 1, topic_configs=settings)])
            return int(answer.topic_errors[0][1])

        return str(asyncio.run(main()))

    def grow(self, topic: str, count: int) -> Outcome:
        async def main() -> None:
            async with self._admin() as admin:
                await admin.create_partitions({topic: aiokafka_admin.NewPartitions(count)})

        return outcome(lambda: asyncio.run(main()))

    def groups(self) -> list[str]:
        async def main() -> list[str]:
            async with self._admin() as admin:
                return [name for name, _ in await admin.list_consumer_groups()]

        return asyncio.run(main())


class Confluent(OtherClient):
    """confluent-kafka, and with it librdkafka."""

    def _producer(self, **options: Any) -> Any:
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0, **options})

    def write(self, topic: str, values: Sequence[str], *, acks: int = -1, timestamp: int | None = None) -> list[Outcome]:
        found: list[Outcome] = []
        producer = self._producer(acks=acks)
        at = {} if timestamp is None else {"timestamp": timestamp}

        def told(error: Any, message: Any) -> None:
            found.append(None if error is None else error.name())

        for value in values:
            producer.produce(topic, value.encode(), partition=0, on_delivery=told, **at)
            producer.flush(SECONDS)
        return found

    def transact(self, topic: str, name: str, value: str, *, commit: bool) -> None:
        producer = self._producer(**{"transactional.id": name})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(topic, value.encode(), partition=0)
        producer.flush(SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)

    def read(self, topic: str, group: str, count: int, *, committed: bool = False) -> list[str]:
        options = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
        consumer = confluent_kafka.Consumer(options)
        consumer.subscribe([topic])
        found: list[str] = []
        end = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    @cached_property
    def _admin(self) -> Any:
        return confluent_admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, **config: str) -> Outcome:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        (made,) = self._admin.create_topics([confluent_admin.NewTopic(topic, 1, 1, config=settings)]).values()
        return outcome(lambda: made.result(SECONDS))

    def grow(self, topic: str, count: int) -> Outcome:
        (grown,) = self._admin.create_partitions([confluent_admin.NewPartitions(topic, count)]).values()
        return outcome(lambda: grown.result(SECONDS))

    def groups(self) -> list[str]:
        return [group.group_id for group in self._admin.list_consumer_groups().result(SECONDS).valid]

    def delete_group(self, group: str) -> Outcome:
        (gone,) = self._admin.delete_consumer_groups([group]).values()
        return outcome(lambda: gone.result(SECONDS))

    def latest(self, topic: str) -> tuple[int, int]:
        place = confluent_kafka.TopicPartition(topic, 0)
        (listed,) = self._admin.list_offsets({place: confluent_admin.OffsetSpec.max_timestamp()}).values()
        found = listed.result(SECONDS)
        return found.offset, found.timestamp

    def member(self, group: str) -> tuple[str, str]:
        (described,) = self._admin.describe_consumer_groups([group]).values()
        (member,) = described.result(SECONDS).members
        return member.client_id, member.host


class KafkaPython(OtherClient):
    """kafka-python."""

    def write(self, topic: str, values: Sequence[str], *, acks: int = -1, timestamp: int | None = None) -> list[Outcome]:
        options: dict[str, Any] = {"acks": "all" if acks < 0 else acks, "enable_idempotence": acks < 0}
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, **options)
        sends = [producer.send(topic, value.encode(), timestamp_ms=timestamp, partition=0) for value in values]
        producer.flush(SECONDS)
        found = [outcome(lambda: sent.get(SECONDS)) for sent in sends]  # noqa: B023  # called at once
        producer.close()
        return found

    def transact(self, topic: str, name: str, value: str, *, commit: bool) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value.encode(), partition=0).get(SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.close()

    def read(self, topic: str, group: str, count: int, *, committed: bool = False) -> list[str]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        found: list[str] = []
        end = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < end:
            found += [record.value.decode() for records in consumer.poll(500).values() for record in records]
        consumer.commit()
        consumer.close()
        return found

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    def create(self, topic: str, **config: str) -> Outcome:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        with self._admin() as admin:
            return outcome(lambda: admin.create_topics([kafka_admin.NewTopic(topic, 1, 1, topic_configs=settings)]))

    def grow(self, topic: str, count: int) -> Outcome:
        with self._admin() as admin:
            return outcome(lambda: admin.create_partitions({topic: kafka_admin.NewPartitions(count)}))

    def groups(self) -> list[str]:
        with self._admin() as admin:
            return [group["group_id"] for group in admin.list_groups()]

    def delete_group(self, group: str) -> Outcome:
        with self._admin() as admin:
            told: list[Any] = []
            failed = outcome(lambda: told.append(admin.delete_groups([group])))
            return failed or repr(told[0])

    def forget(self, group: str, topic: str) -> Outcome:
        with self._admin() as admin:
            told: list[Any] = []
            place = kafka.TopicPartition(topic, 0)
            failed = outcome(lambda: told.append(admin.delete_group_offsets(group, [place])))
            return failed or repr(told[0])

    def member(self, group: str) -> tuple[str, str]:
        with self._admin() as admin:
            (found,) = admin.describe_groups([group]).values()
            (member,) = found["members"]
            return member["client_id"], member["client_host"]


class Java(OtherClient):
    """Kafka's own tools. An outcome is the name of the exception that they print."""

    def _run(self, tool: str, *arguments: str, given: str = "", errors: bool = False) -> str:
        command = [*java_tools(), f"org.apache.kafka.tools.{tool}", "--bootstrap-server", self.bootstrap, *arguments]
        done = subprocess.run(  # noqa: S603  # Kafka's own tools
            command, input=given, capture_output=True, text=True, timeout=90, check=False
        )
        return done.stderr + done.stdout if errors else done.stdout

    def _outcome(self, tool: str, *arguments: str, given: str = "") -> Outcome:
        words = self._run(tool, *arguments, given=given, errors=True).replace(":", " ").replace(",", " ").split()
        return next((word.rsplit(".", 1)[-1] for word in words if word.endswith("Exception")), None)

    def write(self, topic: str, values: Sequence[str], *, acks: int = -1, timestamp: int | None = None) -> list[Outcome]:
        arguments = ["--topic", topic, "--request-required-acks", str(acks), "--sync"]
        return [self._outcome("ConsoleProducer", *arguments, given="".join(f"{value}\n" for value in values))]

    def transact(self, topic: str, name: str, value: str, *, commit: bool) -> None:
        raise NotImplementedError

    def read(self, topic: str, group: str, count: int, *, committed: bool = False) -> list[str]:
        arguments = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)]
        isolation = "read_committed" if committed else "read_uncommitted"
        arguments += ["--timeout-ms", str(SECONDS * 1000), "--isolation-level", isolation]
        arguments += ["--formatter-property", "print.partition=true"]  # logs go to standard output too
        lines = self._run("consumer.ConsoleConsumer", *arguments).splitlines()
        return [line.split("\t", 1)[1] for line in lines if line.startswith("Partition:")]

    def create(self, topic: str, **config: str) -> Outcome:
        settings = [f"--config={name.replace('_', '.')}={value}" for name, value in config.items()]
        return self._outcome("TopicCommand", "--create", "--topic", topic, *settings)

    def grow(self, topic: str, count: int) -> Outcome:
        return self._outcome("TopicCommand", "--alter", "--topic", topic, "--partitions", str(count))

    def groups(self) -> list[str]:
        return [line.strip() for line in self._run("consumer.group.ConsumerGroupCommand", "--list").splitlines()]

    def delete_group(self, group: str) -> Outcome:
        return self._outcome("consumer.group.ConsumerGroupCommand", "--delete", "--group", group)

    def forget(self, group: str, topic: str) -> Outcome:
        arguments = ("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
        lines = self._run("consumer.group.ConsumerGroupCommand", *arguments).splitlines()
        kept = ("Success", "Error", "TOPIC", "Request")
        return " ".join(word for line in lines for word in line.split() if word.startswith(kept))

    def latest(self, topic: str) -> tuple[int, int]:
        words = self._run("GetOffsetShell", "--topic", topic, "--time", "-3").strip().split(":")
        return int(words[-1]), -1


CLIENTS: Final[dict[str, type[OtherClient]]] = {
    "aiokafka": Aiokafka,
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "java": Java,
}
