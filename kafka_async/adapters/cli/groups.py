"""The commands ``kafka-async groups``: which groups there are, their members, their lag."""

import contextlib
import random
from collections.abc import Awaitable, Collection, Iterable, Mapping
from functools import partial
from itertools import starmap
from math import inf
from types import MappingProxyType
from typing import Annotated, Any, Final, Self, TypeAlias

import anyio
import typer
from attrs import define, evolve, frozen

from ...application.consumer import KafkaConsumer
from ...config import ConsumerConfig
from ...config.spelling import did_you_mean
from ...errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
)
from ...model import IsolationLevel, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ...trace import counted, first_of, partition_names
from ..admin import LATEST, LETTERS_TO, Admin, Client, DeadLetterTopic, DescribedMember, Group, GroupListing, ShareOffset, batches
from ..monitor.survey import layout_of
from .consumer_options import Brokers, CommandConfig, Settings, admin_options
from .done_maps import Committed, read_maps
from .formats import json_row
from .launch import FAILED, to_stderr
from .shell import AsJson, Debug, Output, encoded, in_words, new_app, run, start
from .tables import AtLeast, printable, table

app = new_app("List, describe and configure groups.")

Letters: TypeAlias = DeadLetterTopic | KafkaError | None
"""Where dead letters of a share group go; ``None``: there are none. The error: why that is not known."""
STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
    "Unknown",
)
"""Those that brokers tell, of groups of all kinds."""
_FOR_A_HINT: Final = 2.0
"""Seconds that brokers have to tell what a hint is made of: they may not answer, and the answer needs no hint."""
_NO_SHARE_OFFSETS: Final = (
    "No offsets: nothing was read yet. A share group begins at the end of a topic, unless share.auto.offset.reset=earliest was "
    "set for it before (kafka-async groups configure).\n"
)


@frozen(kw_only=True)
class GroupProgress:
    """How far a group is in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    """The offset that comes next in the log; ``None`` if the partition is gone or has no leader."""
    member: DescribedMember | None = None
    """The member that has the partition."""
    reported: int | None = None
    """The lag as the coordinator of a share group reports it (KIP-1226)."""
    kept: Committed | None = None
    """What ``process`` has kept of what is done after the committed offset."""

    @property
    def lag(self) -> int | None:
        """Records that the group has not committed yet; ``None`` if that is not known."""
        if self.committed is None or self.end is None:
            return self.reported
        return max(0, self.end - self.committed.offset)

    @property
    def offset(self) -> int | None:
        """The committed offset."""
        return self.committed.offset if self.committed is not None else None

    def as_json(self) -> dict[str, Any]:
        """Return the values under their names, for JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "committed": self.offset,
            "end": self.end,
            "lag": self.lag,
            "leader_epoch": self.committed.leader_epoch if self.committed is not None else None,
            "metadata": self.committed.metadata if self.committed is not None else None,
            "done": self.kept.done_from(self.kept.offset) if self.kept is not None else 0,
        }

    @property
    def note(self) -> str:
        """What is to be said about the partition; mostly nothing."""
        return self.kept.note if self.kept is not None else ""


def progress(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    members: Iterable[DescribedMember] = (),
    kept: Mapping[TopicPartition, Committed] = MappingProxyType({}),
) -> list[GroupProgress]:
    """Return one value for each partition that is committed or assigned, in order."""
    owners = {partition: member for member in members for partition in member.partitions}
    return [
        GroupProgress(
            partition=each, committed=committed.get(each), end=ends.get(each), member=owners.get(each), kept=kept.get(each)
        )
        for each in sorted(committed.keys() | owners.keys())
    ]


def share_progress(offsets: Mapping[TopicPartition, ShareOffset]) -> list[GroupProgress]:
    """Return one value for each partition that a share group has begun, in order; its acknowledged records count as committed."""
    return [
        GroupProgress(
            partition=each,
            committed=OffsetAndMetadata(found.start) if found.start is not None else None,
            end=None,
            reported=found.lag,
        )
        for each, found in sorted(offsets.items())
    ]


# --- list ----------------------------------------------------------------------------------------------------------------------


@app.command("list")
def list_groups(
    brokers: Brokers = None,
    config: CommandConfig = None,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state, such as Stable or Empty; can be repeated."),
    ] = None,
    with_lag: Annotated[bool, typer.Option("--lag", help="Add the lag of each group, and the total.")] = False,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """List the groups of the cluster."""
    options = admin_options(brokers, config, settings)
    wanted = {_state(text) for text in states or ()}

    async def work() -> str | bytes:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            found = await Admin(client).list_groups()
            shown = [group for group in found if not wanted or group.state.lower() in wanted]
            lags = await _lags(Admin(client), shown) if with_lag else None
        if as_json:
            return b"".join(_listing_json(group, lags) for group in shown)
        return _listing_table(shown, lags)

    start(work, debug)


def _state(text: str) -> str:
    """Return a state in lower case. Raises ``typer.BadParameter`` for one that no group can have."""
    if (lower := text.lower()) not in map(str.lower, STATES):
        raise typer.BadParameter(f"--state {text!r}: expected one of {', '.join(STATES)}{did_you_mean(text, STATES)}")
    return lower


@frozen
class KnownLag:
    """The lag of a group, or of all: the sum of what is known, and whether that is all of it.

    By default that of a group that reads nothing, such as the workers of Kafka Connect.
    """

    records: int | None = None
    """``None`` if nothing is known: no partition was begun, none has a leader, or the group reads nothing."""
    complete: bool = True

    @classmethod
    def of(cls, lags: Collection[int | None]) -> Self:
        known = [lag for lag in lags if lag is not None]
        return cls(sum(known) if known else None, 0 < len(known) == len(lags))

    @classmethod
    def total(cls, lags: Collection["KnownLag"]) -> Self:
        known = [lag.records for lag in lags if lag.records is not None]
        return cls(sum(known) if known else None, all(lag.complete for lag in lags))

    @property
    def cell(self) -> int | None:
        """What a table shows."""
        return self.records if self.complete or self.records is None else AtLeast(self.records)


async def _lags(admin: Admin, shown: Collection[GroupListing]) -> dict[str, KnownLag]:
    """Return the lag of each group."""
    lags = dict.fromkeys((group.group_id for group in shown), KnownLag())
    patience, left = _Patience.of(admin.client), list(shown)
    shares: dict[str, Any] = {}
    found: dict[str, Any] = {}
    while True:
        shares |= await batches.share_offsets_many(admin.client, left, patience.left)
        found |= await batches.committed_many(admin.client, left, patience.left)
        refused = _refused(shares | found)
        left = [group for group in shown if group.group_id in refused and refused[group.group_id].retriable]
        if not await patience.goes_on(refused.values()):
            break
        left = await _found_anew(admin.client, left, patience.left)
    reading = {group.group_id for group in shown if group.reads}
    committed = {name: told for name, outcome in found.items() if (told := _told(outcome)) or name in reading}
    ends = await ends_of(admin.client, {partition for each in committed.values() for partition in each})
    lags |= {name: KnownLag.of([row.lag for row in share_progress(_told(outcome))]) for name, outcome in shares.items()}
    lags |= {name: KnownLag.of([row.lag for row in progress(each, ends)]) for name, each in committed.items()}
    for name, error in refused.items():
        to_stderr(f"{printable(f'kafka-async: the lag of group {name!r} is not known: {in_words(error)}')}\n")
        lags[name] = evolve(lags[name], complete=False)
    return lags


async def _found_anew(client: Client, groups: Collection[GroupListing], seconds: float) -> list[GroupListing]:
    """Return groups with the coordinators that they have by now. Those of which nobody says who that is stay as they are."""
    found = await batches.find_many(client, [group.group_id for group in groups], min(batches.SECONDS, seconds))
    now = {name: node for name, node in found.items() if isinstance(node, int)}
    return [evolve(group, coordinator=now.get(group.group_id, group.coordinator)) for group in groups]


async def ends_of(client: Client, partitions: Collection[TopicPartition], which: int = LATEST) -> dict[TopicPartition, int]:
    """Look up the ends of those partitions that exist, have a leader and may be described. Say on stderr which leaders do not tell.

    One leader that does not answer costs the partitions of the others nothing. What may pass is asked for again. ``which``: with
    ``EARLIEST`` it is the beginnings.
    """
    ends: dict[TopicPartition, int] = {}
    patience, stable = _Patience.of(client), client.config.isolation_level is IsolationLevel.READ_COMMITTED
    while True:
        left = set(partitions) - ends.keys()
        names = {partition.topic for partition in left}
        leaders = layout_of(await client.persist(partial(client.layout, names))).leaders if names else {}
        asked = dict.fromkeys(left & leaders.keys(), which)
        found = await batches.offsets_many(client, asked, leaders, patience.left, stable=stable)
        ends |= {partition: each.offset for partition, each in found.items() if isinstance(each, OffsetAndTimestamp)}
        errors = {partition: each for partition, each in found.items() if isinstance(each, KafkaError)}
        if not await patience.goes_on(errors.values()):
            break
    silent = {leaders[partition]: error for partition, error in errors.items()}
    where = "end" if which == LATEST else "begin"
    for node, why in sorted(silent.items()):
        to_stderr(f"{printable(f'kafka-async: broker {node} does not tell where its logs {where}: {in_words(why)}')}\n")
    return ends


@define(eq=False)
class _Patience:
    """How long, and how often, what may pass is asked for again."""

    client: Client
    until: float
    failures: int = 0

    @classmethod
    def of(cls, client: Client, most: float = inf) -> Self:
        """Return that of ``default_api_timeout_ms``, from now on, but of ``most`` seconds at most."""
        return cls(client, client.clock() + min(most, client.config.default_api_timeout_ms / 1000))

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.until - self.client.clock())

    async def goes_on(self, errors: Iterable[KafkaError]) -> bool:
        """Return after a pause whether to ask once more: one of the errors may pass, and there is time."""
        return any(error.retriable for error in errors) and await self.lasts()

    async def lasts(self) -> bool:
        """Return after a pause whether there is time to ask once more."""
        pause = self.client.backoff.delay(self.failures, random.random())  # noqa: S311  # jitter is no secret
        if self.left <= pause:
            return False
        self.failures += 1
        await anyio.sleep(pause)
        return True


def _refused(found: Mapping[str, Any]) -> dict[str, KafkaError]:
    """Return an error of each group that has one, or has a partition with one; the one that may pass, if there are several."""
    refused: dict[str, KafkaError] = {}
    for name, outcome in found.items():
        each = [outcome] if isinstance(outcome, KafkaError) else outcome.values()
        errors = [error for error in each if isinstance(error, KafkaError)]
        if errors:
            refused[name] = max(errors, key=lambda error: error.retriable)
    return refused


def _told(outcome: Mapping[TopicPartition, Any] | KafkaError) -> dict[TopicPartition, Any]:
    """Return what was told of the partitions of a group."""
    told = {} if isinstance(outcome, KafkaError) else outcome
    return {partition: each for partition, each in told.items() if not isinstance(each, KafkaError)}


def _listing_json(group: GroupListing, lags: Mapping[str, KnownLag] | None) -> bytes:
    row: dict[str, Any] = {"group": group.group_id, "type": group.kind, "protocol": group.protocol, "state": group.state}
    if lags is not None:
        lag = lags[group.group_id]
        row |= {"lag": lag.records, "lag_is_complete": lag.complete}
    return json_row(row)


def _listing_table(shown: Collection[GroupListing], lags: Mapping[str, KnownLag] | None) -> str:
    rows = [(group.group_id, group.kind, group.protocol, group.state) for group in shown]
    if lags is None:
        return table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)
    total = ("TOTAL", None, None, None, KnownLag.total(lags.values()).cell)
    return table(("GROUP", "TYPE", "PROTOCOL", "STATE", "LAG"), [*((*row, lags[row[0]].cell) for row in rows), total])


async def existing(admin: Admin, name: str) -> Group:
    """Describe a group. Raises ``GroupIdNotFound``, with a name that is like it, for one that does not exist."""
    try:
        return await admin.describe(name)
    except GroupIdNotFound as error:
        raise GroupIdNotFound(await no_such_group(admin, name)) from error


async def no_such_group(admin: Admin, name: str) -> str:
    """Return what to say of a group that does not exist."""
    listed = await batches.list_many(admin.client, seconds=_FOR_A_HINT)
    told = [listing.group_id for each in listed.values() if not isinstance(each, KafkaError) for listing in each]
    return f"group {name!r} does not exist{did_you_mean(name, told)}"


async def no_group_of_consumers(options: Mapping[str, Any], error: KafkaError) -> KafkaError:
    """Return an error that says what kind of group it is if it is not a group of consumers, or else ``error``."""
    group = options["group_id"]
    try:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            listing = await Admin(client).find(group)
    except KafkaError:
        return error
    kind = listing.kind if listing is not None else ""
    if kind in ("", "classic", "consumer"):
        return error
    hint = "; 'kafka-async share consume' reads as a member of it" if kind == "share" else ""
    return IllegalStateError(f"group {group!r} is a {kind} group, not a group of consumers{hint}")


# --- describe ------------------------------------------------------------------------------------------------------------------


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Groups to describe.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Show the members of groups, and their lag by partition."""
    options = admin_options(brokers, config, settings)
    output = Output(debug=debug)

    async def work() -> int:
        found: list[tuple[Group, list[GroupProgress], Letters]] = []
        async with (
            Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client,
            KafkaConsumer(**options) as lookups,
        ):
            groups, refused = await _described(Admin(client), dict.fromkeys(names))
            committed = {name: await Admin(client).committed(name) for name, group in groups.items() if group.kind != "share"}
            concerned = {name: offsets.keys() | groups[name].owned for name, offsets in committed.items()}
            # Of all at once: a silent leader is waited for once.
            ends = await ends_of(client, frozenset().union(*concerned.values()))
            for name, group in groups.items():
                if name in committed:
                    told = {partition: end for partition, end in ends.items() if partition in concerned[name]}
                    kept = await read_maps(lookups, committed[name])
                    found.append((group, progress(committed[name], told, group.members, kept), None))
                else:
                    rows = share_progress(await Admin(client).share_offsets(name))
                    what = f"where dead letters of group {name!r} go"
                    found.append((group, rows, await _letters_in_time(what, Admin(client).dead_letters(name))))
        for error in refused:
            output.notify(f"kafka-async: {in_words(error)}")
        await output.show(
            b"".join(starmap(description_json, found)) if as_json else encoded("\n".join(starmap(description, found)))
        )
        return FAILED if refused else 0

    run(work(), output)


async def _described(admin: Admin, names: Iterable[str]) -> tuple[dict[str, Group], list[KafkaError]]:
    """Describe groups. Return also what is wrong with those that do not exist, or may not be described: they cost no other."""
    groups: dict[str, Group] = {}
    refused: list[KafkaError] = []
    for name in names:
        try:
            groups[name] = await existing(admin, name)
        except (GroupIdNotFound, GroupAuthorizationFailedError) as error:
            refused.append(error)
    return groups, refused


async def _letters_in_time(what: str, asked: Awaitable[DeadLetterTopic | None]) -> Letters:
    """Return the answer about dead letters, or why there is none, which is said on stderr: the other answers do not need it.

    The settings of a group need an ACL of their own, DESCRIBE_CONFIGS, which its members do not have.
    """
    try:
        with anyio.fail_after(batches.SECONDS):
            return await asked
    except KafkaError as error:
        unknown = error
    except TimeoutError:
        unknown = KafkaTimeoutError(f"no broker has answered within {batches.SECONDS:g} s")
    denied = isinstance(unknown, GroupAuthorizationFailedError)
    why = "the group's settings may not be read (ACL DESCRIBE_CONFIGS)" if denied else in_words(unknown)
    to_stderr(f"{printable(f'kafka-async: {what} is not known: {why}')}\n")
    return unknown


def share_table(rows: Collection[GroupProgress]) -> str:
    """Return where a share group is in each partition, or why there is nothing to show."""
    settled = [(*each.partition, each.offset, each.lag) for each in rows]
    return table(("TOPIC", "PARTITION", "START", "LAG"), settled) if settled else _NO_SHARE_OFFSETS


def description(group: Group, rows: Collection[GroupProgress], letters: Letters = None) -> str:
    """Return the group as a line about it, a table of its members and a table of its partitions."""
    parts = [f"Group {printable(group.group_id)}: {group.state}, {group.kind} protocol"]
    parts += [f"assignor {printable(group.assignor)}"] if group.assignor else []
    parts += [f"epoch {group.epoch}"] if group.epoch is not None else []
    text = f"{', '.join(parts)}, coordinator {group.coordinator}\n\n"
    epoch = group.epoch is not None
    if group.members:
        text += table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", *(["EPOCH"] if epoch else []), "PARTITIONS"),
            [
                (
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.host,
                    *([each.epoch] if epoch else []),
                    names_of(each.partitions),
                )
                for each in group.members
            ],
        )
    else:
        text += "No members.\n"
    if group.kind == "share":  # many members have a partition
        return f"{text}\nDead letters: {_letters_text(letters)}\n\n{share_table(rows)}"
    noted = any(each.note for each in rows)
    lines = [
        (
            *each.partition,
            each.offset,
            each.end,
            each.lag,
            each.member.member_id if each.member is not None else None,
            *([each.note] if noted else []),
        )
        for each in rows
    ]
    header = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", *(["NOTE"] if noted else []))
    return text + "\n" + (table(header, lines) if lines else "No committed offsets.\n")


def _letters_text(letters: Letters) -> str:
    if isinstance(letters, KafkaError):
        return "not known"
    if letters is None:
        return "none; errors.deadletterqueue.topic.name names no topic"
    what = "with the records" if letters.with_records else "only where the records were"
    trouble = f"; NONE ARE WRITTEN: {letters.problem}" if letters.problem is not None else ""
    return printable(f"to {letters.name}, {what}{trouble}")


def description_json(group: Group, rows: Iterable[GroupProgress], letters: Letters = None) -> bytes:
    """Return the same as a line of JSON."""
    node = group.coordinator
    return json_row(
        {
            "group": group.group_id,
            "type": group.kind,
            "state": group.state,
            "assignor": group.assignor,
            "epoch": group.epoch,
            "coordinator": {"id": node.id, "host": node.host, "port": node.port},
            "dead_letters": {"topic": letters.name, "with_records": letters.with_records, "problem": letters.problem}
            if isinstance(letters, DeadLetterTopic)
            else None,
            "members": [
                {
                    "member_id": each.member_id,
                    "instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "host": each.host,
                    "epoch": each.epoch,
                    "partitions": [partition._asdict() for partition in each.partitions],
                }
                for each in group.members
            ],
            "partitions": [
                {**each.as_json(), "member_id": each.member.member_id if each.member is not None else None} for each in rows
            ],
        }
    )


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ``orders:0,1,2 payments:0``, the way ``offsets reset --topic`` takes them."""
    return partition_names(partitions, ":")


# --- delete ---------------------------------------------------------------------------------------------------------------------


@app.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="Group to delete.")],
    brokers: Brokers = None,
    config: CommandConfig = None,
    execute: Annotated[bool, typer.Option("--execute", help="Delete it. Without it, only show what would be deleted.")] = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Delete a group without members, with all that it has committed.

    It shows what would be done, and does it with --execute.
    """
    options = admin_options(brokers, config, settings)

    async def work() -> str:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            admin = Admin(client)
            group = await existing(admin, name)
            share = group.kind == "share"
            offsets = len(await (admin.share_offsets(name) if share else admin.committed(name)))
            if group.members:
                raise IllegalStateError(refusal(group))
            if execute:
                await admin.delete_group(name)
        what = f"group {name!r} ({group.kind}, {counted(offsets, 'committed offset')})"
        return f"Deleted {what}.\n" if execute else f"Dry run: nothing was deleted. --execute deletes {what}.\n"

    start(work, debug)


def refusal(group: Group) -> str:
    """Return why a group with members is left alone: they would go on from where they are and overwrite what we commit."""
    names = [f"{each.client_id or each.member_id} at {each.host.lstrip('/')} ({each.member_id})" for each in group.members]
    members = "member" if len(names) == 1 else "members"
    return f"group {group.group_id!r} is in use by {len(names)} {members}; stop them first: {first_of(names, 5)}"


# --- configure -----------------------------------------------------------------------------------------------------------------


@app.command()
def configure(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="Group to configure; it need not exist yet.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="SETTING=VALUE", help="Settings to change; SETTING= goes back to the brokers' default."),
    ] = None,
    brokers: Brokers = None,
    config: CommandConfig = None,
    as_json: AsJson = False,
    settings: Settings = None,
    debug: Debug = False,
) -> None:
    """Change and show a group's own settings.

    For example: kafka-async groups configure workers share.auto.offset.reset=earliest

    With SETTING=VALUE it shows these settings as they are then, without any all that the brokers know.

    For share groups: share.auto.offset.reset, share.isolation.level,
    share.record.lock.duration.ms, share.delivery.count.limit, share.partition.max.record.locks, share.renew.acknowledge.enable,
    share.session.timeout.ms, share.heartbeat.interval.ms; for groups of consumers: consumer.session.timeout.ms,
    consumer.heartbeat.interval.ms.

    From Kafka 4.4 on the brokers write dead letters of a share group: errors.deadletterqueue.topic.name names their topic, and
    errors.deadletterqueue.copy.record.enable=true has them copy the record. If the topic is not fit for them, it says so.
    """
    options = admin_options(brokers, config, settings)
    wanted: dict[str, str | None] = {}
    for text in changes or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r}: expected SETTING=VALUE")
        wanted[key.strip()] = value.strip() or None

    async def work() -> str | bytes:
        async with Client.connect(ConsumerConfig.from_options(options), fail_fast=True) as client:
            admin = Admin(client)
            if wanted:
                await _configure(admin, name, wanted)
            found = await _settings_with(admin, name, wanted)
            set_now = found | {key: (value, value is not None) for key, value in wanted.items()}
            letters: Letters = None
            if (topic := wanted.get(LETTERS_TO)) is not None:
                letters = await _letters_in_time(f"whether letters can be written to {topic}", admin.letters_by(set_now))
        if isinstance(letters, DeadLetterTopic) and letters.problem is not None:
            to_stderr(f"{printable(f'kafka-async: no dead letters are written to {letters.name}: {letters.problem}')}\n")
        found = {key: found[key] for key in sorted(found.keys() & wanted.keys() if wanted else found)}
        if as_json:
            rows = [{"group": name, "setting": key, "value": value, "own": own} for key, (value, own) in found.items()]
            return b"".join(map(json_row, rows))
        lines = [(key, value, "group" if own else "default") for key, (value, own) in found.items()]
        return table(("SETTING", "VALUE", "FROM"), lines)

    start(work, debug)


async def _configure(admin: Admin, name: str, wanted: Mapping[str, str | None]) -> None:
    """Change settings. An error about one that there is not says what it may have meant."""
    try:
        await admin.configure_group(name, wanted)
    except InvalidConfigurationError as error:
        known: Collection[str] = ()
        with contextlib.suppress(KafkaError, TimeoutError), anyio.fail_after(_FOR_A_HINT):
            known = await admin.group_settings(name)
        hint = next((hint for key in wanted if known and key not in known and (hint := did_you_mean(key, known))), "")
        raise InvalidConfigurationError(f"{in_words(error).rstrip('.')}{hint}") from error


async def _settings_with(admin: Admin, name: str, wanted: Mapping[str, str | None]) -> dict[str, tuple[str | None, bool]]:
    """Return the settings of a group once those that were changed are told, or else say on stderr which are not.

    The controller answers for the change. Who is asked then is any broker, and each takes it over a moment later.
    """
    patience = _Patience.of(admin.client, batches.SECONDS)
    while True:
        found = await admin.group_settings(name)
        late = [key for key, value in wanted.items() if not _is_told(value, *found.get(key, (None, False)))]
        if not late or not await patience.lasts():
            break
    if late:
        text = f"kafka-async: the change was made, but the broker that was asked does not tell it yet: {', '.join(late)}"
        to_stderr(f"{printable(text)}\n")
    return found


def _is_told(wanted: str | None, value: str | None, own: bool) -> bool:
    """Return whether a setting is as it was wanted. Brokers tell TRUE as true."""
    return not own if wanted is None else own and value is not None and value.lower() == wanted.lower()
