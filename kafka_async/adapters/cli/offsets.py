"""The commands ``kafka-async offsets``: what a group has committed, and moving it.

Groups with members are left alone: these would go on from where they are, and overwrite what is committed here.

Options are those of Java's ``kafka-consumer-groups.sh --reset-offsets`` where it has them.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any
from uuid import UUID

import typer
from attrs import evolve, frozen

from ...application.consumer import KafkaConsumer
from ...config import ConsumerConfig, parse_duration
from ...config.spelling import did_you_mean
from ...errors import GroupIdNotFound, IllegalStateError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError
from ...model import OffsetAndMetadata, TopicPartition
from ..admin import Admin, Client
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .copying import find_partitions, moment
from .done_maps import Committed, maps_of, read_maps
from .formats import json_row
from .groups import GroupProgress, ends_of, existing, names_of, progress, refusal, share_progress, share_table
from .shell import AsJson, Debug, Output, encoded, in_words, natural, new_app, run, start
from .tables import table

app = new_app("Show and move the committed offsets of a group.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Group whose offsets to use.")]


# --- show ----------------------------------------------------------------------------------------------------------------------


@app.command()
def show(
    group: GroupName,
    brokers: Brokers = None,
    config: CommandConfig = None,
    topics: Annotated[
        list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic; can be repeated.")
    ] = None,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Show what a group has committed, and its lag."""
    options = admin_options(brokers, config, settings)

    async def work() -> str | bytes:
        async with (
            Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client,
            KafkaConsumer(**options) as lookups,
        ):
            found = await existing(Admin(client), group)  # a group that does not exist is an error, not a group without offsets
            if found.kind == "share":
                shared = share_progress(await Admin(client).share_offsets(group))
                return _share_offsets(group, [row for row in shared if not topics or row.partition.topic in topics], as_json)
            committed = await Admin(client).committed(group)
            chosen = {each: offset for each, offset in committed.items() if not topics or each.topic in topics}
            rows = progress(chosen, await ends_of(client, chosen.keys()), kept=await read_maps(lookups, chosen))
        if as_json:
            return b"".join(json_row({"group": group, **row.as_json()}) for row in rows)
        lines = [
            (*row.partition, row.offset, row.end, row.lag, row.committed.leader_epoch, row.committed.metadata, row.note)
            for row in rows
            if row.committed is not None
        ]
        header = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LEADER-EPOCH", "METADATA", "NOTE")
        return table(header, lines) if lines else f"No committed offsets{_hint(topics or (), committed) or '.'}\n"

    start(work, debug)


def _share_offsets(group: str, rows: Collection[GroupProgress], as_json: bool) -> str | bytes:
    if as_json:
        return b"".join(json_row({"group": group, **row.as_json()}) for row in rows)
    return share_table(rows)


# --- reset ---------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Target:
    """Where a group is to read on."""

    kind: str
    """``earliest``, ``latest``, ``offset``, ``shift`` (by ``number`` from what is committed) or ``time`` (milliseconds)."""
    number: int = 0

    @classmethod
    def parse(
        cls, *, earliest: bool, latest: bool, offset: int | None, moment: str | None, ago: str | None, shift: int | None, now: int
    ) -> "Target":
        """Return the one target that was given. Raises ``typer.BadParameter`` if there is none, or more than one.

        ``now``: milliseconds since the epoch, from which ``ago`` reaches back.
        """
        given = {
            "--to-earliest": cls(kind="earliest") if earliest else None,
            "--to-latest": cls(kind="latest") if latest else None,
            "--to-offset": cls(kind="offset", number=offset) if offset is not None else None,
            "--to-datetime": cls(kind="time", number=milliseconds(moment)) if moment is not None else None,
            "--by-duration": cls(kind="time", number=before(now, ago)) if ago is not None else None,
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
        """Return the target offset in each partition, even outside the log. Raises ``NoOffsetForPartitionError``."""
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
    """Return an ISO 8601 time (UTC without a time zone) as milliseconds since the epoch. Raises ``typer.BadParameter``."""
    try:
        if text.isdecimal():
            raise ValueError(text)  # milliseconds and seconds look alike
        return moment(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r}: expected a time after 1970-01-01, such as 2026-01-31T09:30:00+01:00; UTC if it names no time zone"
        ) from None


def before(now: int, duration: str) -> int:
    """Return the time that lies an ISO 8601 duration before ``now``, in milliseconds. Raises ``typer.BadParameter``."""
    found = parse_duration(duration)
    if found is None:
        short = re.fullmatch(r"-?(\d+)\s*([smhd])", duration.strip().lower())  # as ``scan`` and ``export`` take it
        hint = f"; did you mean '{'P' if short[2] == 'd' else 'PT'}{short[1]}{short[2].upper()}'?" if short else ""
        raise typer.BadParameter(f"{duration!r}: expected a duration as PnDTnHnMnS, such as P7D or PT1H30M{hint}")
    return max(0, now - round(found.total_seconds() * 1000))


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
    """The current and the new offset of one partition."""

    partition: TopicPartition
    current: int | None
    new: int
    note: str
    """Why ``new`` is not the offset that was wanted, and what is handled again because of it; empty if neither."""
    metadata: str = ""
    """What the commit carries with it."""
    topic_id: UUID | None = None
    """Which topic was looked at: one that was made anew of the same name is not moved."""

    @classmethod
    def within(
        cls, partition: TopicPartition, current: int | None, wanted: int, begin: int, end: int, kept: Committed | None = None
    ) -> "Move":
        """Return a move to ``wanted``, or as near to it as the log allows. It drops what is ``kept`` of what was done."""
        new = min(max(wanted, begin), end)
        outside = "" if new == wanted else f"{wanted} is outside of {begin}..{end}"
        again = kept.lost_by(new) if kept is not None else ""
        return cls(partition=partition, current=current, new=new, note="; ".join(filter(None, (outside, again))))


@frozen(kw_only=True)
class MovesMade:
    """What became of moves."""

    moves: Collection[Move]
    """Those that were made, or, in a dry run, would be."""
    former: Collection[TopicPartition] = ()
    """What was not moved, since its topic was deleted and created again before the commit."""
    unchecked: str = ""
    """Why it is not known whether there are ``former`` ones; empty if it is."""


@frozen(kw_only=True)
class Reset:
    """What ``offsets reset`` was asked to do."""

    group: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    target: Target
    execute: bool
    create: bool
    """A group that does not exist may be made, by its first commit."""
    options: dict[str, Any]

    async def run(self) -> MovesMade:
        """Plan the moves and, with ``execute``, make them.

        Raises ``GroupIdNotFound``, and ``IllegalStateError`` if the group has members or is not a group of consumers.
        """
        async with Client.connect(ConsumerConfig.from_options(self.options), fail_fast=True) as client:
            admin = Admin(client)
            if await kind_of_idle(admin, self.group, create=self.create) == "share":
                return MovesMade(moves=await self._move_share_group(admin))
            committed = await admin.committed(self.group)
        async with KafkaConsumer(**self.options | {"group_id": self.group, "enable_auto_commit": False}) as consumer:
            ids = await self._partitions(consumer)
            planned = await self._plan(consumer, sorted(ids), committed, maps_of(committed, ids))
            moves = [evolve(move, topic_id=ids[move.partition]) for move in planned]
            return await commit_for(consumer, moves) if self.execute else MovesMade(moves=moves)

    async def _partitions(self, consumer: KafkaConsumer[Any, Any]) -> dict[TopicPartition, UUID | None]:
        """Return what is to be moved, with the ids of topics."""
        found: dict[TopicPartition, UUID | None] = {}
        for topic, numbers in self.topics:
            found |= await find_partitions(consumer, (topic,), numbers)
        return found

    async def _move_share_group(self, admin: Admin) -> list[Move]:
        """As for other groups, but the coordinator moves it: a share group has no commits."""
        found = await admin.share_offsets(self.group)
        starts = {each: OffsetAndMetadata(offset.start) for each, offset in found.items() if offset.start is not None}
        async with KafkaConsumer(**self.options) as consumer:
            moves = await self._plan(consumer, sorted(await self._partitions(consumer)), starts)
        if self.execute:
            await admin.move_share_group(self.group, {move.partition: move.new for move in moves})
        return moves

    async def _plan(
        self,
        consumer: KafkaConsumer[Any, Any],
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        kept: Mapping[TopicPartition, Committed] = MappingProxyType({}),
    ) -> list[Move]:
        current = {each: committed[each].offset if each in committed else None for each in partitions}
        begins, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        wanted = await self.target.find(consumer, current, ends)
        return [Move.within(each, current[each], wanted[each], begins[each], ends[each], kept.get(each)) for each in partitions]


async def kind_of_idle(admin: Admin, name: str, *, create: bool = False) -> str:
    """Return the kind of a group that may be moved; an empty string for one that does not exist, with ``create``.

    Raises ``GroupIdNotFound``, and ``IllegalStateError`` if the group has members or is not a group of consumers.
    """
    try:
        group = await (admin.describe(name) if create else existing(admin, name))
    except GroupIdNotFound as error:
        if create:
            return ""
        text = str(error.args[0])
        raise GroupIdNotFound(f"{text}{'' if text.endswith('?') else ';'} --create creates it") from error
    if group.protocol not in ("", "consumer", "share"):
        raise IllegalStateError(f"group {name!r} is a group of {group.protocol!r}, not of consumers")
    if group.members:
        raise IllegalStateError(refusal(group))
    return group.kind


async def commit_for(consumer: KafkaConsumer[Any, Any], moves: Collection[Move]) -> MovesMade:
    """Commit for a group that we are not a member of; its coordinator refuses if a member has joined meanwhile.

    Offsets of a topic that was deleted and created again since are dropped by the commit, which does not tell. So it is looked at
    again. It raises only what the commit raises: once that is done, whoever asked for it must learn what was.
    """
    targets = {move.partition: OffsetAndMetadata(move.new, move.metadata, topic_id=move.topic_id) for move in moves}
    consumer.assign(targets)
    consumer.pause(*targets)  # nothing is to be fetched
    await consumer.commit(targets)
    try:
        topics = (await consumer.describe_topics(*{each.topic for each in targets})).topics
    except KafkaError as error:
        return MovesMade(moves=moves, unchecked=in_words(error))
    now = {name: topic.topic_id for name, topic in topics.items()}
    # Without an id on either side, as while brokers before 2.8 are replaced, nothing is known.
    known = [move for move in moves if None not in (move.topic_id, now.get(move.partition.topic))]
    former = [move for move in known if now[move.partition.topic] != move.topic_id]
    return MovesMade(moves=[move for move in moves if move not in former], former=[move.partition for move in former])


@app.command()
def reset(
    group: GroupName,
    topics: Annotated[
        list[str], typer.Option("-t", "--topic", metavar="TOPIC[:P,...]", help="Topic, or some of its partitions; can be repeated.")
    ],
    brokers: Brokers = None,
    config: CommandConfig = None,
    earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first offset.")] = False,
    latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    offset: Annotated[int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="To this offset.")] = None,
    moment: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="ISO", help="To the first record at or after a time; UTC if it names no time zone."),
    ] = None,
    ago: Annotated[
        str | None,
        typer.Option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of the last days or hours: P1D, PT2H."),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="By this many offsets from the current one; backwards if negative."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit. Without it, only show what would be committed.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the group if it does not exist.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Move a group without members to other offsets.

    It shows what would be done, and does it with --execute.
    """
    target = Target.parse(
        earliest=earliest, latest=latest, offset=offset, moment=moment, ago=ago, shift=shift, now=round(time.time() * 1000)
    )
    choices = tuple(topic_choice(text) for text in topics)
    options = admin_options(brokers, config, settings)
    wanted = Reset(group=group, topics=choices, target=target, execute=execute, create=create, options=options)
    output = Output(debug=debug)

    async def work() -> str | bytes:
        outcome = await wanted.run()
        return await _told(outcome, summary(wanted, outcome.moves), output, group=group, committed=execute, as_json=as_json)

    run(work(), output)


@app.command()
def skip(
    group: GroupName,
    place: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="The record to pass.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit. Without it, only show what would be committed.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Make a group without members pass one record.

    The rest stays as it is, what process(keep_done=True) has done after that record included. It shows what would be done, and does
    it with --execute.
    """
    partition, offset = record_place(place)
    options = admin_options(brokers, config, settings)
    output = Output(debug=debug)

    async def work() -> str | bytes:
        outcome = await _skip(group, partition, offset, options, execute)
        said = (
            f"Group {group!r} passes offset {offset} of {partition.topic}:{partition.partition}."
            if execute
            else "Dry run: nothing was committed. Add --execute to commit the new offset."
        )
        return await _told(outcome, said, output, group=group, committed=execute, as_json=as_json)

    run(work(), output)


def record_place(text: str) -> tuple[TopicPartition, int]:
    """Return partition and offset of ``orders:0:17``. Raises ``typer.BadParameter``."""
    topic, _, rest = text.partition(":")
    number, _, offset = rest.partition(":")
    try:
        if topic:
            return TopicPartition(topic, natural(number)), natural(offset)
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r}: expected TOPIC:PARTITION:OFFSET, as in orders:0:17")


async def _skip(group: str, partition: TopicPartition, offset: int, options: dict[str, Any], execute: bool) -> MovesMade:
    """Plan to pass one offset and, with ``execute``, do it."""
    async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
        admin = Admin(client)
        if await kind_of_idle(admin, group) == "share":
            raise IllegalStateError(f"group {group!r} is a share group: its members reject a record that is to be passed")
        committed = (await admin.committed(group)).get(partition)
    if committed is None:
        raise NoOffsetForPartitionError(f"no offset is committed for {names_of([partition])}", (partition,))
    async with KafkaConsumer(**options | {"group_id": group, "enable_auto_commit": False}) as consumer:
        ids = await find_partitions(consumer, (partition.topic,), (partition.partition,))
        end = (await consumer.end_offsets([partition]))[partition]
        if offset >= end:
            raise OffsetOutOfRangeError(f"offset {offset} is beyond the end: {names_of([partition])} ends at {end}")
        kept = Committed.read(committed, ids[partition])
        new = kept.skip(partition, offset)
        left = Committed.read(new, kept.topic_id)
        move = Move(
            partition=partition,
            current=committed.offset,
            new=new.offset,
            note=left.note,
            metadata=new.metadata,
            topic_id=new.topic_id,
        )
        return await commit_for(consumer, [move]) if execute else MovesMade(moves=[move])


@app.command()
def delete(
    group: GroupName,
    topics: Annotated[
        list[str], typer.Option("-t", "--topic", metavar="TOPIC[:P,...]", help="Topic, or some of its partitions; can be repeated.")
    ],
    brokers: Brokers = None,
    config: CommandConfig = None,
    execute: Annotated[bool, typer.Option("--execute", help="Delete. Without it, only show what would be deleted.")] = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Delete committed offsets of topics that the group no longer reads.

    It shows what would be done, and does it with --execute. 'forget' does it for share groups.
    """
    choices = tuple(topic_choice(text) for text in topics)
    options = admin_options(brokers, config, settings)

    async def work() -> str:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            admin = Admin(client)
            if (await existing(admin, group)).kind == "share":
                raise IllegalStateError(f"group {group!r} is a share group; 'offsets forget' makes it forget topics")
            committed = await admin.committed(group)
            chosen = [each for each in committed if _is_chosen(each, choices)]
            if not chosen:
                hint = _hint((topic for topic, _ in choices), committed)
                raise NoOffsetForPartitionError(f"group {group!r} has committed nothing of {', '.join(topics)}{hint}", ())
            if execute:
                await admin.delete_offsets(group, chosen)
        what = f"the offsets of {names_of(chosen)} for group {group!r}"
        return f"Deleted {what}.\n" if execute else f"Dry run: nothing was deleted. --execute deletes {what}.\n"

    start(work, debug)


def _hint(topics: Iterable[str], partitions: Iterable[TopicPartition]) -> str:
    """Return what the first of the topics that is mistyped may have meant; an empty text if none is like one of these."""
    known = {each.topic for each in partitions}
    return next((hint for topic in topics if topic not in known and (hint := did_you_mean(topic, known))), "")


def _is_chosen(partition: TopicPartition, choices: Iterable[tuple[str, tuple[int, ...]]]) -> bool:
    return any(partition.topic == topic and (not numbers or partition.partition in numbers) for topic, numbers in choices)


@app.command()
def forget(
    group: GroupName,
    topics: Annotated[list[str], typer.Option("-t", "--topic", metavar="TOPIC", help="Topic to forget; can be repeated.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without it, only show what would be forgotten.")] = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Make a share group without members forget topics.

    It reads them again as its share.auto.offset.reset says. It shows what would be done, and does it with --execute.
    """
    options = admin_options(brokers, config, settings)

    async def work() -> str:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            admin = Admin(client)
            found = await existing(admin, group)
            if found.kind != "share":
                raise IllegalStateError(f"group {group!r} is not a share group; 'offsets reset' moves a group of consumers")
            if found.members:
                raise IllegalStateError(refusal(found))
            begun = await admin.share_offsets(group)
            chosen = [each for each in begun if each.topic in topics]
            if missing := [topic for topic in topics if topic not in {each.topic for each in chosen}]:
                what = f"{', '.join(dict.fromkeys(missing))}{_hint(missing, begun)}"
                raise NoOffsetForPartitionError(f"group {group!r} has begun nothing of {what}", ())
            if execute:
                await admin.forget_share_offsets(group, dict.fromkeys(topics))
        if execute:
            return f"Group {group!r} has forgotten {names_of(chosen)}.\n"
        return f"Dry run: nothing was forgotten. --execute makes group {group!r} forget {names_of(chosen)}.\n"

    start(work, debug)


def summary(wanted: Reset, moves: Collection[Move]) -> str:
    """Return what was committed, in a sentence."""
    if not wanted.execute:
        return "Dry run: nothing was committed. Add --execute to commit the new offsets."
    moved = sum(move.new != move.current for move in moves)
    partitions = "1 partition" if len(moves) == 1 else f"{len(moves)} partitions"
    return f"Committed the offsets of {partitions} for group {wanted.group!r}; {moved or 'none'} of them changed."


async def _told(outcome: MovesMade, said: str, output: Output, *, group: str, committed: bool, as_json: bool) -> str | bytes:
    """Return the moves as they are written; ``said`` is what they come to, for people.

    Raises ``IllegalStateError`` for topics that were not moved, once the other moves are written.
    """
    if outcome.moves:
        output.notify(said)
    if outcome.unchecked:
        output.notify(
            "The offsets are committed, but it is not known whether a topic was created again meanwhile: " + outcome.unchecked
        )
    shown = _moves_json(group, outcome.moves, committed) if as_json else _moves_table(outcome.moves)
    if not outcome.former:
        return shown
    if outcome.moves:
        await output.show(shown if isinstance(shown, bytes) else encoded(shown))
    raise IllegalStateError(
        f"{names_of(outcome.former)}: deleted and created again meanwhile; the group has no new offset there, or, before Kafka "
        "4.1, one that was meant for the former topic"
    )


def _moves_table(moves: Iterable[Move]) -> str:
    rows = [(*move.partition, move.current, move.new, move.note) for move in moves]
    return table(("TOPIC", "PARTITION", "CURRENT", "NEW", "NOTE"), rows)


def _moves_json(group: str, moves: Iterable[Move], committed: bool) -> bytes:
    return b"".join(
        json_row(
            {
                "group": group,
                **move.partition._asdict(),
                "current": move.current,
                "new": move.new,
                "note": move.note,
                "committed": committed,
            }
        )
        for move in moves
    )
