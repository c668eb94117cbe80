"""The commands ``kafka-async topics``: which topics there are, where their partitions are and what is in them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from attrs import frozen

from ...application.consumer import KafkaConsumer
from ...config import ConsumerConfig
from ...config.spelling import did_you_mean
from ...events import PartitionDescription, TopicDescription
from ...model import TopicPartition
from ..admin import EARLIEST, Client
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .formats import json_row
from .groups import ends_of
from .launch import FAILED
from .shell import AsJson, Debug, Output, encoded, new_app, run, start
from .tables import Cell, table

app = new_app("List and describe topics.")


# --- list ----------------------------------------------------------------------------------------------------------------------


@app.command("list")
def list_topics(
    brokers: Brokers = None,
    config: CommandConfig = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics, such as __consumer_offsets.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """List the topics of the cluster."""
    options = admin_options(brokers, config, settings)

    async def work() -> str | bytes:
        async with KafkaConsumer[Any, Any](**options) as consumer:
            cluster = await consumer.describe_topics()
        shown = sorted((topic for topic in cluster.topics.values() if internal or not topic.internal), key=lambda topic: topic.name)
        if as_json:
            return b"".join(json_row(_listing(topic)) for topic in shown)
        return table(("TOPIC", "PARTITIONS", "REPLICAS"), [tuple(_listing(topic).values())[:3] for topic in shown])

    start(work, debug)


def _listing(topic: TopicDescription) -> dict[str, Cell]:
    replicas = max((len(part.replicas) for part in topic.partitions), default=0)
    return {"topic": topic.name, "partitions": len(topic.partitions), "replicas": replicas, "internal": topic.internal}


# --- describe ------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Row:
    """One partition of a topic."""

    topic: str
    described: PartitionDescription
    begin: int | None
    """The first offset; ``None`` if the partition has no leader, or the leader does not tell."""
    end: int | None
    """The offset that comes next; ``None`` as for ``begin``."""

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names, for JSON."""
        return {
            "topic": self.topic,
            "partition": self.described.partition,
            "leader": self.described.leader,
            "replicas": list(self.described.replicas),
            "isr": list(self.described.isr),
            "begin": self.begin,
            "end": self.end,
        }

    def as_cells(self) -> tuple[Cell, ...]:
        """Return the values for a table."""
        part = self.described
        return (self.topic, part.partition, part.leader, _ids(part.replicas), _ids(part.isr), self.begin, self.end)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to describe.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Show the partitions of topics.

    For each its leader, its replicas, its first offset and its end.
    """
    options = admin_options(brokers, config, settings)
    output = Output(debug=debug)

    async def work() -> int:
        async with (
            Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client,
            KafkaConsumer[Any, Any](**options) as consumer,
        ):
            found = (await consumer.describe_topics(*names)).topics
            rows = await describe_all(client, {name: found[name] for name in names if name in found})
            absent = [name for name in dict.fromkeys(names) if name not in found]
            known = await consumer.topics() if absent else ()
        header = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "BEGIN", "END")
        for name in absent:
            output.notify(f"kafka-async: topic {name!r} does not exist{did_you_mean(name, known)}")
        if rows:
            text = (
                b"".join(json_row(row.as_json()) for row in rows) if as_json else encoded(table(header, [*map(Row.as_cells, rows)]))
            )
            await output.show(text)
        return FAILED if absent else 0

    run(work(), output)


async def describe_all(client: Client, found: Mapping[str, TopicDescription]) -> list[Row]:
    """Return the partitions of topics. Says on stderr which leaders do not tell their offsets."""
    led = [TopicPartition(name, part.partition) for name in found for part in found[name].partitions if part.leader is not None]
    ends = await ends_of(client, led)
    begins = await ends_of(client, ends.keys(), EARLIEST)  # a leader that does not answer is waited for once
    return [
        Row(
            topic=name,
            described=part,
            begin=begins.get(TopicPartition(name, part.partition)),
            end=ends.get(TopicPartition(name, part.partition)),
        )
        for name in found
        for part in sorted(found[name].partitions, key=lambda part: part.partition)
    ]
