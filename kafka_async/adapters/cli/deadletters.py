"""The commands ``kafka-async deadletters``: what is in a topic of dead letters, and the way back for those that were mended.

What came to the topic after the command began stays: a record that fails at once would go round for ever.

What has gone back stands in the group's commit: the first letter that is left, and a map of those after it that are done, as
``process(keep_done=True)`` writes it. So a choice of letters can go back now, and others later.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import UUID

import typer
from attrs import define, evolve, field, frozen

from ...application.consumer import KafkaConsumer
from ...config import ConsumerConfig
from ...config.spelling import did_you_mean
from ...errors import DataLossError, IllegalStateError, KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from ...model import OffsetAndMetadata, TopicPartition
from ...trace import counted as counted_things
from ..admin import Admin, Client
from ..letters import DeadLetter, counted, headers_back, redrives
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .copying import find_partitions
from .done_maps import Committed, commit_around
from .ends import Ends
from .formats import Record, json_row
from .launch import FAILED
from .offsets import kind_of_idle, milliseconds, record_place
from .producers import Outgoing, Write, open_producer, require_producer
from .shell import AsJson, Debug, Output, encoded, in_words, new_app, run
from .sole_member import SoleMember
from .tables import Cell, table

app = new_app("Show dead letters, and write them back to their topics.")

BATCH: Final = 500
"""Records that are written before it is committed that they are."""
_WAIT: Final = 200
"""Milliseconds of a read that may find nothing."""
_AHEAD: Final = 3_600_000
"""Milliseconds by which a record may be dated ahead of the broker that takes it (``message.timestamp.after.max.ms``)."""

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic that DeadLetters has written to.")]
Letters = Annotated[
    list[str] | None,
    typer.Option("--letter", metavar="PARTITION:OFFSET", help="Only this letter, by its place in TOPIC; can be repeated."),
]
Sources = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="TOPIC", help="Only letters whose records came from this topic; can be repeated."),
]
Exceptions = Annotated[
    list[str] | None,
    typer.Option(
        "--exception", metavar="NAME", help="Only letters with this exception, with or without its module; can be repeated."
    ),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Only letters whose reason contains this text.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="ISO", help="Only letters written at this time or later; UTC if it names no time zone."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="ISO", help="Only letters written before this time.")]
Remembering = Annotated[
    str | None,
    typer.Option("-G", "--group", metavar="GROUP", help="The group that remembers what has gone back. Default: redrive.TOPIC."),
]


# --- choosing ------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class LetterChoice:
    """Which letters are meant."""

    letters: frozenset[tuple[int, int]]
    """Partition and offset; none: all."""
    sources: frozenset[str]
    exceptions: frozenset[str]
    reason: str | None
    since: int | None
    until: int | None
    """Milliseconds."""

    @classmethod
    def parse(
        cls,
        letters: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        exceptions: Sequence[str] | None = None,
        reason: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> "LetterChoice":
        """Return what the options of a command mean. Raises ``typer.BadParameter``."""
        return cls(
            letters=frozenset(map(_place, letters or ())),
            sources=frozenset(sources or ()),
            exceptions=frozenset(exceptions or ()),
            reason=reason,
            since=None if since is None else milliseconds(since),
            until=None if until is None else milliseconds(until),
        )

    def __contains__(self, letter: DeadLetter) -> bool:
        """Whether a letter is meant."""
        return (
            (not self.letters or (letter.partition, letter.offset) in self.letters)
            and (not self.sources or letter.source.topic in self.sources)
            and (not self.exceptions or bool(_names(letter) & self.exceptions))
            and (self.reason is None or self.reason in letter.reason)
            and (self.since is None or letter.written_at >= self.since)
            and (self.until is None or letter.written_at < self.until)
        )

    def mistyped(self, letters: Collection[DeadLetter]) -> Iterator[str]:
        """Yield a sentence about each thing that was asked for and that no letter has, whether it has gone back or not.

        Where there are no letters at all, nothing is mistyped but the place of one.
        """
        places = {(letter.partition, letter.offset) for letter in letters}
        for partition, offset in sorted(self.letters - places):
            yield f"There is no letter at {partition}:{offset}."
        if not letters:
            return
        if self.reason is not None and not any(self.reason in letter.reason for letter in letters):
            yield f"No letter has a reason with {self.reason!r} in it."
        exceptions = {name for letter in letters for name in _names(letter)}
        for name in sorted(self.exceptions - exceptions):
            yield f"No letter has the exception {name!r}{did_you_mean(name, exceptions) or '.'}"
        sources = {letter.source.topic for letter in letters}
        for name in sorted(self.sources - sources):
            yield f"No letter came from topic {name!r}{did_you_mean(name, sources) or '.'}"


def _names(letter: DeadLetter) -> set[str]:
    """Return the names of a letter's exception: with its module, and without."""
    return set() if letter.exception is None else {letter.exception, letter.exception.rpartition(".")[2]}


def _place(text: str) -> tuple[int, int]:
    try:
        partition, offset = record_place(f"letters:{text}")
    except typer.BadParameter:
        raise typer.BadParameter(f"{text!r}: expected PARTITION:OFFSET, as in 0:17") from None
    return partition.partition, offset


# --- what there is -------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class LetterEntry:
    """A record of a topic of dead letters."""

    partition: int
    offset: int
    letter: DeadLetter | None
    """``None``: it is none."""
    gone_back: bool = False


@frozen(kw_only=True)
class Letterbox:
    """What a topic held when it was read."""

    ends: Mapping[TopicPartition, int]
    entries: tuple[LetterEntry, ...]
    """By partition and offset."""
    topic_id: Any

    def after(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> "Letterbox":
        """Return the same with what these commits say has gone back."""
        known = {each.partition: Committed.read(offset, self.topic_id) for each, offset in committed.items() if each in self.ends}
        entries = [
            evolve(entry, gone_back=(kept := known.get(entry.partition)) is not None and kept.holds(entry.offset))
            for entry in self.entries
        ]
        return evolve(self, entries=tuple(entries))

    @property
    def letters(self) -> list[DeadLetter]:
        """The letters, also those that have gone back."""
        return [entry.letter for entry in self.entries if entry.letter is not None]

    def strangers(self) -> int:
        """Return how many records are not dead letters."""
        return sum(entry.letter is None for entry in self.entries)

    @property
    def left_over(self) -> int:
        """Return how many letters have not gone back."""
        return sum(entry.letter is not None and not entry.gone_back for entry in self.entries)

    def left(self, choice: LetterChoice) -> list[DeadLetter]:
        """Return the letters of a choice that have not gone back."""
        return [each.letter for each in self.entries if each.letter is not None and not each.gone_back and each.letter in choice]

    def commits(self, done: Collection[tuple[int, int]]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to commit once these letters, by partition and offset, have gone back too. Strangers have nowhere to go."""
        found = {}
        for partition, end in self.ends.items():
            entries = [entry for entry in self.entries if entry.partition == partition.partition]
            records = [
                (each.offset, each.gone_back or each.letter is None or (each.partition, each.offset) in done) for each in entries
            ]
            found[partition] = commit_around(records, end, self.topic_id)
        return found

    def has_room(self, done: Collection[tuple[int, int]]) -> bool:
        """Whether a commit can hold which letters have gone back once these have."""
        kept = self.after(self.commits(done)).entries
        return all(
            now.gone_back
            for before, now in zip(self.entries, kept, strict=True)
            if before.gone_back or (before.partition, before.offset) in done
        )

    def room_for(self, done: Collection[tuple[int, int]], more: Sequence[tuple[int, int]]) -> int:
        """Return how many of ``more``, from the first on, a commit has room for once ``done`` have gone back.

        Whichever of them fail: every second one takes the most room.
        """
        count = len(more)
        while count and not self.has_room({*done, *self._scattered(done, set(more[:count]))}):
            count //= 2
        return count

    def _scattered(self, done: Collection[tuple[int, int]], more: Collection[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Return those of ``more`` whose way back would take the most room: none of them is next to one that is done."""
        places = [(entry.partition, entry.offset) for entry in self.entries]
        past = [entry.gone_back or entry.letter is None or place in done for entry, place in zip(self.entries, places, strict=True)]
        for index, place in enumerate(places):
            first = not index or places[index - 1][0] != place[0]  # what is done from the front on takes no room
            last = index + 1 == len(places) or places[index + 1][0] != place[0]
            alone = not first and not past[index - 1] and (last or not past[index + 1])
            if place in more and alone and not past[index]:
                past[index] = True
                yield place


@define(eq=False)
class LetterReader:
    """Reads a topic of dead letters, up to where it ends now."""

    consumer: KafkaConsumer[Any, Any]
    topic: str
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    _topic_id: UUID | None = field(default=None, init=False)
    """Which topic was looked at: another one of the name has other letters at these offsets."""

    async def look(self) -> Letterbox:
        """Read everything. Raises ``UnknownTopicOrPartitionError``, and ``DataLossError`` as ``records`` does."""
        partitions = await find_partitions(self.consumer, (self.topic,))
        self._topic_id = next(iter(partitions.values()), None)
        ends = await self.consumer.end_offsets(partitions)
        entries = [
            LetterEntry(partition=record.partition, offset=record.offset, letter=DeadLetter.read(record))
            async for record in self.records(ends)
        ]
        entries.sort(key=lambda entry: (entry.partition, entry.offset))
        return Letterbox(ends=ends, entries=tuple(entries), topic_id=self._topic_id).after(self.committed)

    async def records(self, ends: Mapping[TopicPartition, int]) -> Any:
        """Yield the records before ``ends``, in order within each partition.

        Raises ``DataLossError`` if the topic does not have them any more.
        """
        watched = Ends(self.consumer, self.consumer.end_offsets, dict(ends), dict.fromkeys(ends, self._topic_id))
        self.consumer.assign(ends)
        self.consumer.resume(*ends)  # those that an earlier reading came to the end of
        await self.consumer.seek_to_beginning()
        left = set(ends)
        while left:
            for partition in [each for each in left if await self.consumer.position(each) >= ends[each]]:
                left.discard(partition)
                self.consumer.pause(partition)
            if left:
                batches = await self.consumer.getmany(timeout_ms=_WAIT, max_records=BATCH)
                for partition, what in (await watched.gone(left)).items():
                    raise DataLossError(f"{partition} was read in part: {what}")
                for partition, batch in batches.items():
                    for record in batch:
                        if record.offset < ends[partition]:
                            yield record


# --- show ----------------------------------------------------------------------------------------------------------------------


@app.command()
def show(
    topic: TopicName,
    brokers: Brokers = None,
    config: CommandConfig = None,
    letters: Letters = None,
    sources: Sources = None,
    exceptions: Exceptions = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    group: Remembering = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Show letters that have gone back, too.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Show the dead letters that are left.

    For each where its record came from, and why it failed.
    """
    choice = LetterChoice.parse(letters, sources, exceptions, reason, since, until)
    options = _options(brokers, config, settings)
    output = Output(debug=debug)

    async def work() -> int:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            committed = await Admin(client).committed(group or _group(topic))
        async with KafkaConsumer[Any, Any](**options) as consumer:
            box = await LetterReader(consumer, topic, committed).look()
        shown = [
            (each.letter, each.gone_back)
            for each in box.entries
            if each.letter is not None and each.letter in choice and (everything or not each.gone_back)
        ]
        mistyped = list(choice.mistyped(box.letters))
        for sentence in mistyped:
            output.notify(f"% {sentence}")
        output.notify(_counted([letter for letter, _ in shown], box, everything))
        if shown:
            await output.show(b"".join(json_row(_as_json(*each)) for each in shown) if as_json else encoded(_as_table(shown)))
        return FAILED if mistyped else 0

    run(work(), output)


def _options(brokers: str | None, file: Any, settings: list[str] | None) -> dict[str, Any]:
    """Return the options of a consumer that reads letters: not those of transactions that were aborted.

    A file may be for other programs too. The sequence with their ``auto.offset.reset=latest`` that costs letters: the oldest are
    deleted while they are read, the position goes to the end, and the commit to it passes those between, which nobody has read.
    """
    own = {"isolation_level": "read_committed", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    return admin_options(brokers, file, settings) | own


def _group(topic: str) -> str:
    return f"redrive.{topic}"


def _counted(shown: Sequence[DeadLetter], box: Letterbox, everything: bool) -> str:
    by_name = Counter(letter.exception or "of brokers" for letter in shown)
    parts = ", ".join(f"{count} {name}" for name, count in by_name.most_common())
    gone = sum(entry.gone_back for entry in box.entries if entry.letter is not None)
    notes = [
        f"{_letters(len(shown))}{f': {parts}' if parts else ''}",
        f"{gone} more have gone back (--all shows them)" if gone and not everything else "",
        f"{counted_things(box.strangers(), 'record', 'are')} not dead letters" if box.strangers() else "",
    ]
    return "% " + "; ".join(filter(None, notes))


def _letters(count: int) -> str:
    return "1 letter" if count == 1 else f"{count or 'no'} letters"


def _as_table(shown: Iterable[tuple[DeadLetter, bool]]) -> str:
    rows: list[tuple[Cell, ...]] = [
        (
            letter.partition,
            letter.offset,
            _time(letter.written_at),
            _origin(letter),
            letter.attempts,
            letter.exception,
            letter.reason,
            _note(letter, gone),
        )
        for letter, gone in shown
    ]
    return table(("PARTITION", "OFFSET", "WRITTEN", "FROM", "ATTEMPTS", "EXCEPTION", "REASON", "NOTE"), rows)


def _origin(letter: DeadLetter) -> str:
    return f"{letter.source.topic}:{letter.source.partition}:{letter.source_offset}"


def _note(letter: DeadLetter, gone: bool) -> str:
    notes = [
        "has gone back" if gone else "",
        f"went back {letter.redrives} times before" if letter.redrives > 1 else "went back once before" if letter.redrives else "",
        f"without its value of {letter.left_out} bytes" if letter.left_out is not None else "",
    ]
    return ", ".join(filter(None, notes))


def _time(milliseconds_since: int) -> str:
    return datetime.fromtimestamp(milliseconds_since / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _as_json(letter: DeadLetter, gone: bool) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "written": letter.written_at,
        "from": {"topic": letter.source.topic, "partition": letter.source.partition, "offset": letter.source_offset},
        "timestamp": letter.timestamp,
        "group": letter.group,
        "attempts": letter.attempts,
        "exception": letter.exception,
        "reason": letter.reason,
        "value_left_out": letter.left_out,
        "redrives": letter.redrives,
        "gone_back": gone,
    }


# --- redrive -------------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Redrive:
    """What ``deadletters redrive`` was asked to do."""

    topic: str
    choice: LetterChoice
    group: str
    to: str | None
    """A topic for all of them; ``None``: each goes to its own."""
    count: int | None
    most_redrives: int
    keep_timestamps: bool
    library: str | None
    """What writes; ``None``: a dry run."""
    options: dict[str, Any]
    output: Output

    async def run(self) -> "RedriveOutcome":
        """Plan what goes back and, if it is to be done, do it."""
        async with (
            Client.connect(ConsumerConfig.from_options(self.options), fail_fast=True) as client,
            KafkaConsumer[Any, Any](**self.options) as consumer,
        ):
            admin = Admin(client)
            if await kind_of_idle(admin, self.group, create=True) == "share":
                raise IllegalStateError(
                    f"group {self.group!r} is a share group: a group of consumers is to remember what has gone back"
                )
            await find_partitions(consumer, (self.topic,))  # there is nobody to be before the topic is there
            if self.library is None:
                return RedriveOutcome(plan=(await self._planned(admin, consumer))[1])
            async with SoleMember.of(admin, self.group, self.topic, self.options) as memory:
                reader, plan = await self._planned(admin, consumer)
                if not plan.going:
                    return RedriveOutcome(plan=plan)
                async with (
                    KafkaConsumer[Any, Any](**self.options) as originals,
                    open_producer(self.library, self.options) as write,
                ):
                    seconds = ConsumerConfig.from_options(self.options).default_api_timeout_ms / 1000
                    way = WayBack(self, plan, reader, write, Originals(originals, seconds), memory)
                    await way.go()
        return RedriveOutcome(plan=plan, done=frozenset(way.done), failures=tuple(way.failures))

    async def _planned(self, admin: Admin, consumer: KafkaConsumer[Any, Any]) -> "tuple[LetterReader, RedrivePlan]":
        reader = LetterReader(consumer, self.topic, await admin.committed(self.group))
        return reader, self.plan(await reader.look(), await self._destinations(consumer))

    def plan(self, box: Letterbox, topics: Mapping[str, int]) -> "RedrivePlan":
        """Choose the letters. ``topics``: those of the cluster, and how many partitions each has.

        Raises ``UnknownTopicOrPartitionError`` for a destination that does not exist, ``IllegalStateError`` for a choice that
        cannot be remembered.
        """
        left = box.left(self.choice)
        tired = [letter for letter in left if letter.redrives >= self.most_redrives]
        going = [letter for letter in left if letter.redrives < self.most_redrives][: self.count]
        for name in {self.to or letter.source.topic for letter in going} - topics.keys():
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist{did_you_mean(name, topics)}; --to names another")
        chosen = {(letter.partition, letter.offset): letter for letter in going}
        if not box.has_room(chosen):
            raise IllegalStateError(
                f"group {self.group!r} cannot remember so many letters with others between them: redrive less or all of them"
            )
        others = box.left_over - len(left)
        return RedrivePlan(box=box, going=chosen, tired=len(tired), others=others, topics=topics)

    async def _destinations(self, consumer: KafkaConsumer[Any, Any]) -> dict[str, int]:
        cluster = await consumer.describe_topics()
        return {name: len(topic.partitions) for name, topic in cluster.topics.items()}


@frozen(kw_only=True)
class RedrivePlan:
    """Which letters go back."""

    box: Letterbox
    going: Mapping[tuple[int, int], DeadLetter]
    """By partition and offset."""
    tired: int
    """Letters that stay, since they have gone back too often."""
    others: int
    """Letters that could go back and were not chosen."""
    topics: Mapping[str, int]


@frozen(kw_only=True)
class RedriveOutcome:
    """What was done."""

    plan: RedrivePlan
    done: frozenset[tuple[int, int]] = frozenset()
    failures: tuple[str, ...] = ()


@define(eq=False)
class WayBack:
    """Writes the letters of a plan back, and remembers which are written."""

    wanted: Redrive
    plan: RedrivePlan
    reader: LetterReader
    write: Write
    originals: "Originals"
    memory: SoleMember
    """Commits for the group; the others are reading."""
    failures: list[str] = field(factory=list, init=False)
    """Which letters are not written, and why."""
    done: set[tuple[int, int]] = field(factory=set, init=False)

    async def go(self) -> None:
        """Write all that can be written, and commit.

        Stops if the producer takes nothing of a batch, and if the group could not remember what comes next: those that fail stay
        between those that are done, and what is not remembered would go back in each run.
        """
        ends = {each: end for each, end in self.plan.box.ends.items() if any(part == each.partition for part, _ in self.plan.going)}
        batch: list[Record] = []
        left = set(self.plan.going)
        async for record in self.reader.records(ends):
            if (record.partition, record.offset) not in left:
                continue
            batch.append(record)
            left.discard((record.partition, record.offset))
            if len(batch) >= BATCH or not left:
                if not await self._write(batch):
                    return
                batch = []
        if left and await self._write(batch):
            self.failures += [f"{partition}:{offset}: the letter itself is gone by now" for partition, offset in sorted(left)]

    async def _write(self, batch: Sequence[Record]) -> bool:
        """Write letters, commit, and return whether to go on: the producer has taken any, and the group can remember all.

        A producer that was given none has refused nothing.
        """
        ready: list[tuple[Record, Outgoing]] = []
        for record in batch:
            letter = self.plan.going[record.partition, record.offset]
            try:
                original = await self.originals.find(letter, record) if letter.incomplete else None
            except KafkaError as why:
                self._failed(record, f"the record at {_origin(letter)} cannot be read: {in_words(why)}")
                continue
            if letter.incomplete and original is None and not _has_copy(letter, record):
                self._failed(record, f"the record, of which the letter has not everything, is no longer at {_origin(letter)}")
            elif original is not None and redrives(original.headers) >= self.wanted.most_redrives:
                self._failed(record, f"it went back {redrives(original.headers)} times already (--max-redrives)")
            else:
                ready.append((record, self._outgoing(record, letter, original)))
        before = len(self.done)
        left = ready
        while left:
            count = self.plan.box.room_for(self.done, [(record.partition, record.offset) for record, _ in left])
            if not count:
                self._failed(left[0][0], f"group {self.wanted.group!r} cannot remember it with so many others between")
                return False
            await self._send(left[:count])
            left = left[count:]
        return not ready or len(self.done) > before

    async def _send(self, ready: Sequence[tuple[Record, Outgoing]]) -> None:
        results = await self.write([outgoing for _, outgoing in ready])
        for (record, _), error in zip(ready, results, strict=True):
            if error is None:
                self.done.add((record.partition, record.offset))
            else:
                self._failed(record, in_words(error))
        await self.memory.commit(self.plan.box.commits(self.done))

    def _failed(self, record: Record, why: str) -> None:
        self.failures.append(f"{record.partition}:{record.offset}: {why}")

    def _outgoing(self, record: Record, letter: DeadLetter, original: Record | None) -> Outgoing:
        topic = self.wanted.to or letter.source.topic
        # A record without a key has no other way to its partition; one with a key may be of a producer that partitions otherwise.
        stays = topic == letter.source.topic and letter.source.partition < self.plan.topics[topic]
        timestamp = letter.timestamp if original is None else original.timestamp
        return Outgoing(
            topic=topic,
            partition=letter.source.partition if stays else None,
            key=record.key if original is None else original.key,
            value=record.value if original is None else original.value,
            headers=counted([*original.headers] if original is not None else []) if letter.by_broker else headers_back(record),
            timestamp=timestamp if self.wanted.keep_timestamps and timestamp is not None and timestamp >= 0 else None,
        )


@define(eq=False)
class Originals:
    """Finds the records of letters that have not everything, where they were first."""

    consumer: KafkaConsumer[Any, Any]
    seconds: float
    """How long a read may take."""
    _partitions: dict[str, int] = field(factory=dict, init=False)
    """How many partitions each topic has; 0: it does not exist."""
    _silent: dict[TopicPartition, KafkaTimeoutError] = field(factory=dict, init=False)
    """Partitions that were waited for in vain. They are not waited for again for each of their letters."""

    async def find(self, letter: DeadLetter, record: Record) -> Record | None:
        """Return what a letter, which is ``record``, is about; ``None`` if it is not there any more.

        Raises ``KafkaError`` if that cannot be told.
        """
        if letter.source in self._silent:
            raise self._silent[letter.source]
        try:
            found = await self._at(letter.source, letter.source_offset)
        except KafkaTimeoutError as error:
            self._silent[letter.source] = error
            raise
        return found if found is not None and _is_original(found, letter, record) else None

    async def _at(self, source: TopicPartition, offset: int) -> Record | None:
        if source.partition >= await self._count(source.topic):
            return None
        begin = (await self.consumer.beginning_offsets([source]))[source]
        end = (await self.consumer.end_offsets([source]))[source]
        if not begin <= offset < end:
            return None
        self.consumer.assign([source])
        self.consumer.seek(source, offset)
        try:
            async with asyncio.timeout(self.seconds):
                while await self.consumer.position(source) <= offset:
                    for record in (await self.consumer.getmany(timeout_ms=_WAIT, max_records=1)).get(source, ()):
                        return record if record.offset == offset else None
        except TimeoutError:
            raise KafkaTimeoutError(f"nothing of {source} came within {self.seconds:g} s") from None
        return None  # compacted, and what comes after it are no records

    async def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            found = (await self.consumer.describe_topics(topic)).topics.get(topic)
            self._partitions[topic] = len(found.partitions) if found is not None else 0
        return self._partitions[topic]


def _is_original(found: Record, letter: DeadLetter, record: Record) -> bool:
    """Whether a record is the one of a letter: the topic may have been deleted since, and created again."""
    if letter.left_out is not None:
        return (found.key, found.timestamp, found.serialized_value_size) == (record.key, letter.timestamp, letter.left_out)
    if _has_copy(letter, record):
        return bool((found.key, found.value) == (record.key, record.value))
    return found.timestamp <= letter.written_at + _AHEAD


def _has_copy(letter: DeadLetter, record: Record) -> bool:
    return letter.by_broker and (record.key is not None or record.value is not None)


@app.command()
def redrive(
    topic: TopicName,
    brokers: Brokers = None,
    config: CommandConfig = None,
    letters: Letters = None,
    sources: Sources = None,
    exceptions: Exceptions = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    count: Annotated[int | None, typer.Option("-c", "--count", metavar="N", min=1, help="At most this many letters.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Write them here. Default: each to its own topic.")
    ] = None,
    most_redrives: Annotated[
        int,
        typer.Option("--max-redrives", metavar="N", min=1, help="Leave letters whose records have gone back so often already."),
    ] = 3,
    keep_timestamps: Annotated[
        bool, typer.Option("--keep-timestamps", help="Keep the time of the first record. Default: the time of writing.")
    ] = False,
    group: Remembering = None,
    execute: Annotated[bool, typer.Option("--execute", help="Write. Without it, only show what would be written.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Write dead letters back to their topics.

    Each goes once. Key, value and headers are those of the first record, in its partition; the header dead-letter-redrives
    counts. It shows what would be done, and does it with --execute, with aiokafka's or confluent-kafka's producer. What has
    gone back is remembered by a group; if it ends halfway, a few may go back again.
    """
    output = Output(debug=debug)
    wanted = Redrive(
        topic=topic,
        choice=LetterChoice.parse(letters, sources, exceptions, reason, since, until),
        group=group or _group(topic),
        to=to,
        count=count,
        most_redrives=most_redrives,
        keep_timestamps=keep_timestamps,
        library=require_producer() if execute else None,
        options=_options(brokers, config, settings),
        output=output,
    )

    async def work() -> str | bytes | int:
        outcome = await wanted.run()
        for failure in outcome.failures:
            output.notify(f"% Not written: {failure}")
        output.notify(summary(wanted, outcome))
        rows = _by_destination(wanted, outcome)
        if rows:
            await output.show(b"".join(map(json_row, rows)) if as_json else encoded(_destinations_table(rows)))
        unwritten = wanted.library is not None and len(outcome.done) < len(outcome.plan.going)
        return FAILED if unwritten or any(wanted.choice.mistyped(outcome.plan.box.letters)) else 0

    run(work(), output)


def summary(wanted: Redrive, outcome: RedriveOutcome) -> str:
    """Return what was done, in a sentence or two."""
    planned, done = len(outcome.plan.going), len(outcome.done)
    if not planned:
        said = "There is nothing to write back."
        if others := outcome.plan.others:
            said = f"The options choose no letter; {_letters(others)} could go back."
    elif wanted.library is None:
        said = f"Dry run: nothing was written. --execute writes {_letters(planned)} back."
    elif done < planned:
        said = f"Wrote {_letters(done)} back; {_letters(planned - done)} not."
    else:
        said = f"Wrote {_letters(done)} back."
    if outcome.plan.tired:
        said += f" {_letters(outcome.plan.tired)} went back {wanted.most_redrives} times already and stay (--max-redrives)."
    return " ".join((said, *wanted.choice.mistyped(outcome.plan.box.letters)))


def _by_destination(wanted: Redrive, outcome: RedriveOutcome) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], list[int]] = {}
    for place, letter in outcome.plan.going.items():
        row = counts.setdefault((wanted.to or letter.source.topic, letter.exception or ""), [0, 0])
        row[0] += 1
        row[1] += place in outcome.done
    return [
        {"topic": wanted.topic, "to": to, "exception": exception or None, "letters": letters, "written": written}
        for (to, exception), (letters, written) in sorted(counts.items())
    ]


def _destinations_table(rows: Iterable[Mapping[str, Any]]) -> str:
    return table(
        ("TO", "EXCEPTION", "LETTERS", "WRITTEN"), [(row["to"], row["exception"], row["letters"], row["written"]) for row in rows]
    )
