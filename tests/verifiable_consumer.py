"""A consumer for system tests: ``python -m tests.verifiable_consumer``, one process per member, one JSON event per line.

Decides: what happens in which order between a read, its events and its commit. Owns: standard output; everything else goes to
standard error. Must never report as consumed what was not handed out, or as committed what the group did not confirm.

Command line and events are those of ``org.apache.kafka.tools.VerifiableConsumer``, so that Kafka's own system tests can drive it
(kafkatest, ``VerifiableClientApp``). SIGTERM and SIGINT close cleanly: what was read is committed, then the member leaves.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import define, field, fields_dict

from kafka_async import ConsumerConfig, ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, TopicPartition
from kafka_async.errors import FencedInstanceIdError, KafkaError

Batch = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes | None, bytes | None]]]

_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_HOUR_MS: Final = 3_600_000


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="verifiable-consumer", description="Consume a topic and report every step as JSON.")
    parser.add_argument("--bootstrap-server", "--broker-list", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--group-protocol", choices=("classic", "consumer"), default="classic", type=str.lower)
    parser.add_argument("--group-remote-assignor")
    parser.add_argument("--group-instance-id")
    parser.add_argument("--max-messages", type=int, default=-1, help="end after so many; -1: never")
    parser.add_argument("--session-timeout", type=int, default=30_000, metavar="MS", help="classic protocol only")
    parser.add_argument("--verbose", action="store_true", help="report every record")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", choices=("earliest", "latest", "none"), default="earliest")
    parser.add_argument("--assignment-strategy", default="org.apache.kafka.clients.consumer.RangeAssignor")
    parser.add_argument("--command-config", "--consumer.config", type=Path, metavar="FILE", help="a Java properties file")
    return parser


def _properties(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the options in a properties file, as the type that each option has."""
    known = fields_dict(ConsumerConfig)
    for line in path.read_text().splitlines():
        key, separator, text = line.partition("=")
        if not separator or line.lstrip().startswith(("#", "!")):
            continue
        name, text = key.strip().replace(".", "_"), text.strip()
        kind = known[name].type if name in known else str
        yield name, int(text) if kind is int else text == "true" if kind is bool else text


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": arguments.bootstrap_server,
        "group_id": arguments.group_id,
        "group_protocol": arguments.group_protocol,
        "group_instance_id": arguments.group_instance_id,
        "enable_auto_commit": arguments.enable_autocommit,
        "auto_offset_reset": arguments.reset_policy,
    }
    if arguments.group_protocol == "classic":
        names = [name.strip().rpartition(".")[2] for name in arguments.assignment_strategy.split(",")]
        options["partition_assignment_strategy"] = tuple(_ASSIGNORS[name] for name in names)
        options["session_timeout_ms"] = arguments.session_timeout
        options["heartbeat_interval_ms"] = min(3_000, arguments.session_timeout // 3)
    elif arguments.group_remote_assignor is not None:
        options["group_remote_assignor"] = arguments.group_remote_assignor
    if arguments.command_config is not None:
        options |= dict(_properties(arguments.command_config))
    return options


def _event(name: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **fields}) + "\n")
    sys.stdout.flush()


def _named(partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [partition._asdict() for partition in sorted(partitions)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


class _Listener(ConsumerRebalanceListener):
    """Reports rebalances. Partitions that were lost are reported as revoked, as Java's default is."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        _event("partitions_assigned", partitions=_named(assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        _event("partitions_revoked", partitions=_named(revoked))


@define(eq=False)
class VerifiableConsumer:
    """Reads, reports, commits, until it is stopped or has read enough."""

    consumer: KafkaConsumer[bytes | None, bytes | None]
    topic: str
    left: int
    """Messages still to be read; negative: no limit."""
    commits: bool
    verbose: bool
    _waiting: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _stopping: bool = field(default=False, init=False)

    def stop(self) -> None:
        """Read no more. A commit that is under way is finished."""
        self._stopping = True
        self._waiting.cancel()

    async def run(self) -> None:
        """Consume; raises what a read raised and another try cannot cure."""
        _event("startup_complete")
        self.consumer.subscribe([self.topic], listener=_Listener())
        try:
            with self._waiting:
                await self.consumer.start()
            while not self._stopping and self.left != 0:
                await self._step()
        finally:
            await self.consumer.stop()
            _event("shutdown_complete")

    async def _step(self) -> None:
        batch: Batch = {}
        limit = min(self.left, 500) if self.left > 0 else None
        with anyio.CancelScope() as self._waiting:
            try:
                batch = await self.consumer.getmany(timeout_ms=_HOUR_MS, max_records=limit)
            except KafkaError as error:
                if not error.retriable:
                    raise
                sys.stderr.write(f"read again after {error!r}\n")
        if batch:
            self._report(batch)
            if self.commits:
                await self._commit({partition: records[-1].offset + 1 for partition, records in batch.items()})

    def _report(self, batch: Batch) -> None:
        count = sum(map(len, batch.values()))
        if self.verbose:
            for record in (record for records in batch.values() for record in records):
                place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
                _event("record_data", key=_text(record.key), value=_text(record.value), **place)
        summaries = [
            {**partition._asdict(), "count": len(records), "minOffset": records[0].offset, "maxOffset": records[-1].offset}
            for partition, records in batch.items()
        ]
        _event("records_consumed", count=count, partitions=summaries)
        if self.left > 0:
            self.left -= count

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        named = [{**partition._asdict(), "offset": offset} for partition, offset in offsets.items()]
        try:
            await self.consumer.commit(offsets)
        except FencedInstanceIdError:
            raise
        except KafkaError as error:
            _event("offsets_committed", offsets=named, success=False, error=str(error))
        else:
            _event("offsets_committed", offsets=named, success=True)


async def _main(arguments: argparse.Namespace) -> int:
    member = VerifiableConsumer(
        consumer=KafkaConsumer(**_options(arguments)),
        topic=arguments.topic,
        left=arguments.max_messages,
        commits=not arguments.enable_autocommit,
        verbose=arguments.verbose,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, member.stop)
    try:
        await member.run()
    except Exception:  # the process ends with it, and its harness reads why
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s", datefmt="%H:%M:%S")
    sys.exit(asyncio.run(_main(_parser().parse_args())))
