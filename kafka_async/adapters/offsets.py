"""The commands ``kafka-async offsets``: what a group has committed, and moving it.

Decides: where a group that is moved shall read on, and which groups are left alone: those with members. Owns nothing. Must never
commit without ``--execute``, nor below the first or above the last offset of a partition.

Options are those of Java's ``kafka-consumer-groups.sh --reset-offsets`` where it has them.
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from attrs import frozen

from ..application.consumer import KafkaConsumer
from ..config import ConsumerConfig
from ..errors import GroupIdNotFound, IllegalStateError, NoOffsetForPartitionError
from ..model import OffsetAndMetadata, TopicPartition
from .admin import Admin, Group
from .copying import find_partitions
from .groups import AsJson, admin_options, ends_of, json_line, names_of, progress, start
from .requests import Client
from .shell import Brokers, Debug, Settings, natural
from .tables import table

offsets = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show and reset the committed offsets of a group.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Group whose offsets are meant.")]


# --- show ----------------------------------------------------------------------------------------------------------------------


@offsets.command()
def show(
    group: GroupName,
    brokers: Brokers = "localhost:9092",
    topics: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Only this topic; can be repeated.")] = None,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Show the offsets that a group has committed, and its lag."""
    options = admin_options(brokers, settings)

    async def work() -> int:
        async with Client.connect(ConsumerConfig.from_options(options)) as client, KafkaConsumer(**options) as lookups:
            await Admin(client).describe(group)  # a group that does not exist is an error, not a group without offsets
            committed = await Admin(client).committed(group)
            chosen = {each: offset for each, offset in committed.items() if not topics or each.topic in topics}
            rows = progress(chosen, await ends_of(lookups, chosen.keys()))
        if as_json:
            sys.stdout.write("".join(json_line({"group": group, **row.as_json()}) for row in rows))
            return 0
        lines = [
            (*row.partition, row.offset, row.end, row.lag, row.committed.leader_epoch, row.committed.metadata)
            for row in rows
            if row.committed is not None
        ]
        header = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LEADER-EPOCH", "METADATA")
        sys.stdout.write(table(header, lines) if lines else "No committed offsets.\n")
        return 0

    start(work, debug)


# --- reset ---------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Target:
    """Where a group shall read on."""

    kind: str
    """``earliest``, ``latest``, ``offset``, ``shift`` (by ``number`` from what is committed) or ``time`` (milliseconds)."""
    number: int = 0

    @classmethod
    def parse(cls, *, earliest: bool, latest: bool, offset: int | None, moment: str | None, shift: int | None) -> "Target":
        """Return the one target that was given. Raises ``typer.BadParameter`` where there is none, or more than one."""
        given = {
            "--to-earliest": cls(kind="earliest") if earliest else None,
            "--to-latest": cls(kind="latest") if latest else None,
            "--to-offset": cls(kind="offset", number=offset) if offset is not None else None,
            "--to-datetime": cls(kind="time", number=milliseconds(moment)) if moment is not None else None,
            "--shift-by": cls(kind="shift", number=shift) if shift is not None else None,
        }
        targets = {name: target for name, target in given.items() if target is not None}
        if len(targets) != 1:
            found = f"; found {' and '.join(targets)}" if targets else ""
            raise typer.BadParameter(f"expected one of {', '.join(given)}{found}")
        return next(iter(targets.values()))

    async def find(
        self, consumer: KafkaConsumer[Any, Any], current: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the offset that is meant in each partition, wherever that is. Raises ``NoOffsetForPartitionError``."""
        match self.kind:
            case "earliest":
                return await consumer.beginning_offsets(current)
            case "latest":
                return dict(ends)
            case "offset":
                return dict.fromkeys(current, self.number)
            case "time":
                found = await consumer.offsets_for_times(dict.fromkeys(current, self.number))
                return {each: answer.offset if answer is not None else ends[each] for each, answer in found.items()}
            case _:
                return self._shifted(current)

    def _shifted(self, current: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        without = tuple(each for each, offset in current.items() if offset is None)
        if without:
            raise NoOffsetForPartitionError(f"--shift-by: no offset is committed for {names_of(without)}", without)
        return {each: offset + self.number for each, offset in current.items() if offset is not None}


def milliseconds(text: str) -> int:
    """Return an ISO 8601 time (UTC where it does not say) as milliseconds since the epoch. Raises ``typer.BadParameter``."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: expected a time such as 2026-01-31T09:30:00+01:00; UTC where it has no offset"
        ) from None
    since = round((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if since < 0:
        raise typer.BadParameter(f"{text!r}: expected a time after 1970-01-01")
    return since


def topic_choice(text: str) -> tuple[str, tuple[int, ...]]:
    """Return topic and partitions (``()``: all) of ``orders`` or ``orders:0,1``. Raises ``typer.BadParameter``."""
    topic, colon, numbers = text.partition(":")
    try:
        partitions = tuple(dict.fromkeys(natural(number.strip()) for number in numbers.split(","))) if colon else ()
    except ValueError:
        partitions, topic = (), ""
    if not topic:
        raise typer.BadParameter(f"{text!r}: expected a topic, or a topic and partitions as in orders:0,1")
    return topic, partitions


@frozen(kw_only=True)
class Move:
    """One partition's way from where the group is to where it shall be."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str
    """Why ``new`` is not what was asked for; empty where it is."""

    @classmethod
    def within(cls, partition: TopicPartition, current: int | None, wanted: int, begin: int, end: int) -> "Move":
        """Return a move to ``wanted``, or as near to it as the log lets us go."""
        new = min(max(wanted, begin), end)
        note = "" if new == wanted else f"{wanted} is outside of {begin}..{end}"
        return cls(partition=partition, current=current, new=new, note=note)


@frozen(kw_only=True)
class Reset:
    """What ``offsets reset`` was asked to do."""

    group: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    target: Target
    execute: bool
    options: dict[str, Any]

    async def run(self) -> list[Move]:
        """Plan the moves and, with ``execute``, make them. Return them. Raises ``IllegalStateError`` for a group with members."""
        async with Client.connect(ConsumerConfig.from_options(self.options)) as client:
            await self._refuse_members(Admin(client))
            committed = await Admin(client).committed(self.group)
        async with KafkaConsumer(**self.options | {"group_id": self.group, "enable_auto_commit": False}) as consumer:
            partitions: list[TopicPartition] = []
            for topic, numbers in self.topics:
                partitions += await find_partitions(consumer, (topic,), numbers)
            moves = await self._plan(consumer, sorted(set(partitions)), committed)
            if self.execute:
                await _commit(consumer, moves)
        return moves

    async def _refuse_members(self, admin: Admin) -> None:
        try:
            group = await admin.describe(self.group)
        except GroupIdNotFound:
            return  # its first commit makes it: a group can be told where to begin before it does
        if group.members:
            raise IllegalStateError(refusal(group))

    async def _plan(
        self,
        consumer: KafkaConsumer[Any, Any],
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> list[Move]:
        current = {each: committed[each].offset if each in committed else None for each in partitions}
        begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        wanted = await self.target.find(consumer, current, ends)
        return [Move.within(each, current[each], wanted[each], begins[each], ends[each]) for each in partitions]


def refusal(group: Group) -> str:
    """Return why a group with members is left alone: they would go on from where they are and overwrite what we commit."""
    names = [f"{each.client_id or each.member_id} at {each.host.lstrip('/')} ({each.member_id})" for each in group.members]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    members = "member" if len(names) == 1 else "members"
    return f"group {group.group_id!r} is in use by {len(names)} {members}; stop them first: {shown}"


async def _commit(consumer: KafkaConsumer[Any, Any], moves: Iterable[Move]) -> None:
    """Commit for a group that we are not a member of; its coordinator refuses should a member have joined meanwhile."""
    targets = {move.partition: OffsetAndMetadata(move.new) for move in moves}
    consumer.assign(targets)
    consumer.pause(*targets)  # nothing is to be fetched
    await consumer.commit(targets)


@offsets.command()
def reset(
    group: GroupName,
    topics: Annotated[
        list[str], typer.Option("-t", "--topic", metavar="TOPIC[:P,...]", help="Topic, or some of its partitions; can be repeated.")
    ],
    brokers: Brokers = "localhost:9092",
    earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first offset.")] = False,
    latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    moment: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="ISO", help="To the first record at or after a time; UTC if it has no offset."),
    ] = None,
    shift: Annotated[int | None, typer.Option("--shift-by", help="By so many offsets from where it is; back if negative.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit. Without it, only show what would be committed.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Move a group without members to other offsets. Shows what would be done; does it with --execute."""
    target = Target.parse(earliest=earliest, latest=latest, offset=offset, moment=moment, shift=shift)
    choices = tuple(topic_choice(text) for text in topics)
    wanted = Reset(group=group, topics=choices, target=target, execute=execute, options=admin_options(brokers, settings))

    async def work() -> int:
        moves = await wanted.run()
        sys.stdout.write(_moves_json(wanted, moves) if as_json else _moves_table(moves))
        if not execute:
            sys.stderr.write("Dry run: nothing was committed. Add --execute to commit the new offsets.\n")
        return 0

    start(work, debug)


def _moves_table(moves: Iterable[Move]) -> str:
    rows = [(*move.partition, move.current, move.new, move.note) for move in moves]
    return table(("TOPIC", "PARTITION", "CURRENT", "NEW", "NOTE"), rows)


def _moves_json(wanted: Reset, moves: Iterable[Move]) -> str:
    return "".join(
        json_line(
            {
                "group": wanted.group,
                **move.partition._asdict(),
                "current": move.current,
                "new": move.new,
                "note": move.note,
                "committed": wanted.execute,
            }
        )
        for move in moves
    )
