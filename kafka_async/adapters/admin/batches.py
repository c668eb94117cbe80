"""Questions about many groups and partitions: a hundred groups in a request, brokers at once, each with a deadline of its own.

An answer is a value for each name asked about, or the error in its place: what one broker or one group refuses costs the others
nothing. A call has one request at a time on its way to a broker, so that a large cluster feels a poll as little as a small one.

With B brokers, L of them leaders, and groups of some kinds: ListGroups B, a description and the offsets of 100 groups of a broker
and a kind each one request, ListOffsets L. A broker that lists a group coordinates it, so nobody is asked for coordinators.

Sources: KIP-518 (states in the list), 699 and 709 (many keys and groups in one request), 848, 932, 1226; Java's
``KafkaAdminClient``, which asks for each group by itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import anyio
from attrs import frozen

from ...background.by_topic import by_topic
from ...errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, MalformedResponseError, UnsupportedVersionError, for_code
from ...model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ...wire import FindCoordinatorRequest, ListOffsetsRequest, OffsetFetchRequest, Request
from ...wire.messages import (
    FindCoordinatorResponse,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetFetchRequestGroup,
)
from ...wire.messages.admin import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupChoice,
    ShareGroupDescribeRequest,
)
from ...wire.messages.base import NEWEST
from .answers import (
    BY_NAME,
    Group,
    GroupListing,
    ShareOffset,
    classic_group,
    committed_offsets,
    consumer_group,
    listings,
    share_group,
    share_group_offsets,
)
from .client import Client

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

SECONDS: Final = 5.0
"""How long a broker has for all that it is asked in one call."""
AT_ONCE: Final = 100
"""Groups in one request. A description of 100 groups with a hundred members each is about a megabyte."""
LATEST, EARLIEST = -1, -2
"""The end and the start of a log, in place of a timestamp."""
_OFFSETS: Final = ("", "classic", "consumer", "streams")
"""Kinds of groups that commit offsets; an empty one: the broker is too old to tell."""

Outcomes = dict[K, V | KafkaError]


@frozen(kw_only=True)
class _Batch(Generic[K, V]):
    """One request, and what it is about."""

    message: Request[Any]
    about: tuple[K, ...]
    read: Callable[[Any], Iterable[tuple[K, V | KafkaError]]]
    highest: int = NEWEST
    """Highest version of the request that does."""
    apart: "tuple[_Batch[K, V], ...]" = ()
    """What is asked instead if the broker is too old for this."""


async def list_many(
    client: Client, nodes: Collection[int] | None = None, seconds: float = SECONDS
) -> Outcomes[int, list[GroupListing]]:
    """Ask brokers (``None``: all) for the groups that they coordinate."""
    asked = client.nodes if nodes is None else nodes
    questions: dict[int | None, list[_Batch[int, list[GroupListing]]]] = {
        node: [_Batch(message=ListGroupsRequest(), about=(node,), read=partial(_listed, node))] for node in asked
    }
    return await _ask_all(client, questions, seconds)


def _listed(node: int, answer: ListGroupsResponse) -> list[tuple[int, list[GroupListing] | KafkaError]]:
    return [(node, _or_error(partial(listings, answer, node)))]


async def find_many(client: Client, names: Collection[str], seconds: float = SECONDS) -> Outcomes[str, int]:
    """Ask any broker who coordinates groups; a group that does not exist has a coordinator too."""

    def read(answer: FindCoordinatorResponse) -> Iterator[tuple[str, int | KafkaError]]:
        for found in answer.coordinators:
            if found.error_code:
                yield found.key, for_code(found.error_code, found.error_message)
            else:
                client.learn(Node(found.node_id, found.host, found.port))
                yield found.key, found.node_id

    def question(keys: tuple[str, ...]) -> _Batch[str, int]:
        apart = tuple(question((key,)) for key in keys) if len(keys) > 1 else ()
        return _Batch(message=FindCoordinatorRequest(coordinator_keys=keys), about=keys, read=read, apart=apart)

    return await _ask_all(client, {None: [question(keys) for keys in _hundreds(names)]}, seconds)


def portions(groups: Iterable[GroupListing]) -> list[list[GroupListing]]:
    """Return groups as requests take them, at most a hundred of one kind each, so that all can be asked about some after another.

    The order is that of the first group in each.
    """
    found: list[list[GroupListing]] = []
    last: dict[tuple[int | None, str], list[GroupListing]] = {}
    for group in groups:
        key = (group.coordinator, group.kind)
        if key not in last or len(last[key]) == AT_ONCE:
            last[key] = []
            found.append(last[key])
        last[key].append(group)
    return found


async def describe_many(client: Client, groups: Iterable[GroupListing], seconds: float = SECONDS) -> Outcomes[str, Group]:
    """Ask for the members of groups, each at the broker that listed it. Groups of Kafka Streams are left out.

    A group that has gone since is ``GroupIdNotFound``.
    """
    questions: dict[int | None, list[_Batch[str, Group]]] = {}
    for (node, kind), names in _by_broker(groups).items():
        if kind in _DESCRIBING:
            request, read = _DESCRIBING[kind]
            read_one = partial(read, coordinator=client.node(node))
            questions.setdefault(node, []).extend(
                _Batch(message=request(keys), about=keys, read=partial(_groups, read_one)) for keys in _hundreds(names)
            )
    return await _ask_all(client, questions, seconds)


async def committed_many(
    client: Client, groups: Iterable[GroupListing], seconds: float = SECONDS
) -> Outcomes[str, dict[TopicPartition, OffsetAndMetadata | KafkaError]]:
    """Ask for all offsets that groups have committed, each at the broker that listed it. Share groups are left out.

    Brokers before Kafka 3.0 are asked for one group after another, in the order given, as far as the time goes.
    """
    questions: dict[int | None, list[_Batch[str, dict[TopicPartition, OffsetAndMetadata | KafkaError]]]] = {}
    names: dict[int | None, list[str]] = {}
    for (node, kind), some in _by_broker(groups).items():
        if kind in _OFFSETS:
            names.setdefault(node, []).extend(some)
    for broker, asked in names.items():
        questions[broker] = [_offsets_question(keys) for keys in _hundreds(asked)]
    return await _ask_all(client, questions, seconds)


def _offsets_question(keys: tuple[str, ...]) -> _Batch[str, dict[TopicPartition, OffsetAndMetadata | KafkaError]]:
    return _Batch(
        message=OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=key) for key in keys)),
        about=keys,
        read=partial(_groups, committed_offsets),
        highest=BY_NAME,
        apart=tuple(_offsets_question((key,)) for key in keys) if len(keys) > 1 else (),
    )


async def share_offsets_many(
    client: Client, groups: Iterable[GroupListing], seconds: float = SECONDS
) -> Outcomes[str, dict[TopicPartition, ShareOffset | KafkaError]]:
    """Ask how far share groups are in each partition that they have begun. Groups of other kinds are left out."""
    questions: dict[int | None, list[_Batch[str, dict[TopicPartition, ShareOffset | KafkaError]]]] = {}
    for (node, kind), names in _by_broker(groups).items():
        if kind == "share":
            questions[node] = [
                _Batch(
                    message=DescribeShareGroupOffsetsRequest(groups=tuple(ShareGroupChoice(group_id=key) for key in keys)),
                    about=keys,
                    read=partial(_groups, share_group_offsets),
                )
                for keys in _hundreds(names)
            ]
    return await _ask_all(client, questions, seconds)


async def offsets_many(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    seconds: float = SECONDS,
    *,
    stable: bool = False,
) -> Outcomes[TopicPartition, OffsetAndTimestamp | None]:
    """Ask the leaders of partitions for the first offset at or after a timestamp in milliseconds, or for ``LATEST``, ``EARLIEST``.

    ``stable``: the end is that of committed transactions (KIP-98). ``None``: there is no record that late. Partitions without a
    leader are left out.
    """
    by_leader: dict[int | None, dict[TopicPartition, int]] = {}
    for partition, timestamp in wanted.items():
        if partition in leaders:
            by_leader.setdefault(leaders[partition], {})[partition] = timestamp
    questions = {node: [_times_question(some, stable)] for node, some in by_leader.items()}
    return await _ask_all(client, questions, seconds)


def _times_question(wanted: Mapping[TopicPartition, int], stable: bool) -> _Batch[TopicPartition, OffsetAndTimestamp | None]:
    def read(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, OffsetAndTimestamp | KafkaError | None]]:
        for topic in answer.topics:
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    yield partition, for_code(part.error_code)
                elif part.offset < 0:
                    yield partition, None
                else:
                    yield partition, OffsetAndTimestamp(part.offset, part.timestamp)

    topics = by_topic(
        (partition.topic, ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
        for partition, timestamp in wanted.items()
    )
    message = ListOffsetsRequest(
        isolation_level=int(stable), topics=tuple(ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items())
    )
    return _Batch(message=message, about=tuple(wanted), read=read)


# --- how they are asked --------------------------------------------------------------------------------------------------------


_DESCRIBING: Final[Mapping[str, tuple[Callable[[tuple[str, ...]], Request[Any]], Callable[..., Group]]]] = {
    "consumer": (lambda keys: ConsumerGroupDescribeRequest(group_ids=keys), consumer_group),
    **dict.fromkeys(("classic", ""), (lambda keys: DescribeGroupsRequest(groups=keys), classic_group)),
    "share": (lambda keys: ShareGroupDescribeRequest(group_ids=keys), share_group),
}
"""Kind of a group -> the request that describes such groups, and what reads one of them in the answer."""


async def _ask_all(client: Client, questions: Mapping[int | None, Sequence[_Batch[K, V]]], seconds: float) -> Outcomes[K, V]:
    """Ask each broker its questions one after another, and all brokers at once. Each thing asked about has an outcome."""
    found: Outcomes[K, V] = {}
    async with anyio.create_task_group() as tasks:
        for node, some in questions.items():
            tasks.start_soon(_ask_broker, client, node, some, seconds, found)
    return found


async def _ask_broker(
    client: Client, node: int | None, questions: Sequence[_Batch[K, V]], seconds: float, found: Outcomes[K, V]
) -> None:
    """A broker that has not answered in time, or cannot be reached, is not asked the rest."""
    waiting = list(reversed(questions))
    gone: KafkaError | None = None
    with anyio.move_on_after(seconds):
        while waiting and gone is None:
            question = waiting[-1]
            try:
                answer = await client.ask(question.message, node, highest_version=question.highest)
                found.update(question.read(answer))
            except KafkaError as error:
                if isinstance(error, UnsupportedVersionError) and question.apart:
                    waiting[-1:] = reversed(question.apart)
                    continue
                if isinstance(error, KafkaConnectionError | KafkaTimeoutError):
                    gone = error
                found.update(dict.fromkeys(question.about, error))
            else:
                for left in set(question.about) - found.keys():
                    found[left] = MalformedResponseError(f"a {type(answer).__name__} leaves {left!r} out")
            waiting.pop()
    for question in waiting:
        late = gone or KafkaTimeoutError(f"broker {node} has not answered within {seconds:g} s")
        found.update({each: found.get(each, late) for each in question.about})


def _groups(read: Callable[[Any], T], answer: Any) -> list[tuple[str, T | KafkaError]]:
    """Return what a response says about each group."""
    return [(group.group_id, _or_error(partial(read, group))) for group in answer.groups]


def _or_error(read: Callable[[], T]) -> T | KafkaError:
    try:
        return read()
    except KafkaError as error:
        return error


def _by_broker(groups: Iterable[GroupListing]) -> dict[tuple[int, str], list[str]]:
    """Return names by the broker that listed the group and the kind of the group, in the order given."""
    found: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        if group.coordinator is not None:
            found.setdefault((group.coordinator, group.kind), []).append(group.group_id)
    return found


def _hundreds(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    left = iter(names)
    while some := tuple(islice(left, AT_ONCE)):
        yield some
