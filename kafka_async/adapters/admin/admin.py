"""Groups: which there are, their members, their committed offsets.

What it changes on the cluster is what no consumer can: share groups, the settings of groups, and what is deleted.

Sources: Java's ``KafkaAdminClient``, ``DescribeConsumerGroupsHandler`` (the consumer protocol first, then the classic one),
``ListConsumerGroupOffsetsHandler``, ``CoordinatorStrategy``; KIP-518, 709, 848.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import anyio
from attrs import frozen

from ...background.by_topic import by_topic
from ...errors import (
    ClusterAuthorizationFailedError,
    GroupIdNotFound,
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedResponseError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from ...model import Node, OffsetAndMetadata, TopicPartition
from ...network.network_settings import SOFTWARE_NAME, SOFTWARE_VERSION
from ...trace import partition_names
from ...wire import ApiVersionsRequest, FindCoordinatorRequest, OffsetFetchRequest, Request, Response
from ...wire.messages import DescribeConfigsRequest, DescribeConfigsResource, OffsetFetchRequestGroup
from ...wire.messages.admin import (
    AlterableConfig,
    AlterShareGroupOffsetsRequest,
    ConfiguredResource,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    PartitionToAlter,
    ShareGroupChoice,
    ShareGroupDescribeRequest,
    TopicToAlter,
    TopicToForget,
)
from ...wire.messages.base import NEWEST
from .answers import (
    BY_NAME,
    Group,
    GroupListing,
    ShareOffset,
    certain,
    check,
    check_parts,
    classic_group,
    committed_offsets,
    consumer_group,
    listings,
    share_group,
    share_group_offsets,
)
from .client import Client

P = ParamSpec("P")
R = TypeVar("R", bound=Response)
T = TypeVar("T")
TOPIC, BROKER, GROUP = 2, 4, 32
"""Topics, brokers and groups, as the configuration's resource type."""
LETTERS_TO: Final = "errors.deadletterqueue.topic.name"
WITH_RECORDS: Final = "errors.deadletterqueue.copy.record.enable"
_ALLOWED: Final = "errors.deadletterqueue.group.enable"
_MAKES_TOPICS: Final = "errors.deadletterqueue.auto.create.topics.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_LETTERS_FROM: Final = 2
"""The level of the feature ``share.version`` from which brokers write dead letters."""
_MOMENT: Final = 2.0
"""Seconds that one of several brokers has, any of which will do."""
_GROUP_CONFIG: Final = 8
"""The source of a setting that is set for the group itself (``ConfigEntry.ConfigSource``)."""


def persistent(
    attempt: Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """Repeat a method after failures that may pass; see ``Client.persist``."""

    @wraps(attempt)
    async def persists(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.client.persist(lambda: attempt(self, *args, **kwargs))

    return persists


@frozen(kw_only=True)
class DeadLetterTopic:
    """Where the brokers write about records that a share group has given up (KIP-1191)."""

    name: str
    with_records: bool
    """Keys and values of the records are copied. Headers of theirs never are."""
    problem: str | None
    """Why no dead letter is written, although the topic is set; ``None`` if nothing speaks against it."""


@frozen
class Admin:
    """Asks brokers about groups."""

    client: Client

    # --- questions -------------------------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[GroupListing]:
        """Ask every broker for the groups it coordinates. Return them by name. Raises if a broker does not answer."""
        found: list[GroupListing] = []
        for node_id in self.client.nodes:
            found += await self.client.persist(partial(self._list_groups_of, node_id))
        return sorted(found, key=lambda group: group.group_id)

    async def describe(self, group_id: str) -> Group:
        """Ask the coordinator for the members of a group.

        Raises ``GroupIdNotFound`` if the group does not exist, ``IllegalStateError`` if it is not a group of consumers, such as a
        group of Kafka Streams. A share group is described too; its offsets are in ``share_offsets``.
        """
        try:
            return await self.client.persist(lambda: self._describe(group_id))
        except GroupIdNotFound:
            listing = await self.find(group_id)
            if listing is None or listing.kind in ("", "classic", "consumer"):
                raise
            if listing.kind == "share":
                return await self.client.persist(lambda: self._describe_share(group_id))
            raise IllegalStateError(f"group {group_id!r} is a {listing.kind} group, not a group of consumers") from None

    @persistent
    async def find(self, group_id: str) -> GroupListing | None:
        """Ask the coordinator how it lists a group of any kind; ``None`` if the group does not exist."""
        listed = await self._list_groups_of((await self._coordinator(group_id)).id)
        return next((listing for listing in listed if listing.group_id == group_id), None)

    @persistent
    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Ask the coordinator for all offsets that a group has committed; none for a group that does not exist."""
        message = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id),))
        answer = await self._ask_coordinator(group_id, message, highest_version=BY_NAME)
        return {each: offset for group in answer.groups for each, offset in certain(committed_offsets(group)).items()}

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with all that it has committed.

        Raises ``NonEmptyGroup`` if it has members, ``GroupIdNotFound`` if it does not exist.
        """
        lost = False

        async def attempt() -> None:
            nonlocal lost
            coordinator = await self._coordinator(group_id)
            try:
                answer = await self.client.ask(DeleteGroupsRequest(groups_names=(group_id,)), coordinator.id)
            except (KafkaConnectionError, KafkaTimeoutError):
                lost = True
                raise
            for result in answer.results:
                if not (lost and result.error_code == GroupIdNotFound.errno):  # a request whose answer was lost has deleted it
                    check(result.error_code)

        await self.client.persist(attempt)

    @persistent
    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Delete committed offsets.

        Raises ``GroupSubscribedToTopicError`` if a member reads one of the topics. Offsets of the others are deleted all the same;
        the text says which.
        """
        topics = tuple(
            OffsetDeleteRequestTopic(
                name=name, partitions=tuple(OffsetDeleteRequestPartition(partition_index=each) for each in numbers)
            )
            for name, numbers in by_topic(sorted(partitions)).items()
        )
        answer = await self._ask_coordinator(group_id, OffsetDeleteRequest(group_id=group_id, topics=topics))
        check(answer.error_code)
        outcomes: dict[TopicPartition, tuple[int, str | None]] = {
            TopicPartition(topic.name, part.partition_index): (part.error_code, None)
            for topic in answer.topics
            for part in topic.partitions
        }
        check_parts(outcomes, partition_names, "deleted")

    # --- share groups ----------------------------------------------------------------------------------------------------------

    @persistent
    async def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Ask the coordinator how far a share group is in each partition that it has begun."""
        message = DescribeShareGroupOffsetsRequest(groups=(ShareGroupChoice(group_id=group_id),))
        answer = await self._ask_coordinator(group_id, message)
        return {each: offset for group in answer.groups for each, offset in certain(share_group_offsets(group)).items()}

    @persistent
    async def move_share_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Reset a share group without members to these offsets. Locks and acknowledgements after them no longer count.

        Raises ``NonEmptyGroup`` if it has members, and the error of the first partition that was refused. Others are moved all the
        same; the text says which.
        """
        moved = by_topic(
            (partition.topic, PartitionToAlter(partition_index=partition.partition, start_offset=offset))
            for partition, offset in sorted(offsets.items())
        )
        topics = tuple(TopicToAlter(topic_name=name, partitions=parts) for name, parts in moved.items())
        answer = await self._ask_coordinator(group_id, AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))
        check(answer.error_code, answer.error_message)
        outcomes = {
            TopicPartition(topic.topic_name, part.partition_index): (part.error_code, part.error_message)
            for topic in answer.responses
            for part in topic.partitions
        }
        check_parts(outcomes, partition_names, "moved")

    @persistent
    async def forget_share_offsets(self, group_id: str, topics: Collection[str]) -> None:
        """Make a share group without members forget topics: it reads them again as ``share.auto.offset.reset`` says.

        Raises the error of the first topic that was refused. Others are forgotten all the same; the text says which.
        """
        forgotten = tuple(TopicToForget(topic_name=name) for name in sorted(topics))
        answer = await self._ask_coordinator(group_id, DeleteShareGroupOffsetsRequest(group_id=group_id, topics=forgotten))
        check(answer.error_code, answer.error_message)
        outcomes = {topic.topic_name: (topic.error_code, topic.error_message) for topic in answer.responses}
        check_parts(outcomes, ", ".join, "forgotten")

    @persistent
    async def configure_group(self, group_id: str, settings: Mapping[str, str | None]) -> None:
        """Change settings of a group, which need not exist yet; ``None``: back to the brokers' default.

        Raises ``InvalidConfigurationError`` for a setting or a value that brokers do not know.
        """
        configs = tuple(
            AlterableConfig(name=name, config_operation=int(value is None), value=value) for name, value in settings.items()
        )
        resource = ConfiguredResource(resource_type=GROUP, resource_name=group_id, configs=configs)

        answer = await self.client.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
        for altered in answer.responses:
            check(altered.error_code, altered.error_message)

    @persistent
    async def group_settings(self, group_id: str) -> dict[str, tuple[str | None, bool]]:
        """Return the settings of a group: each value, and whether it was set for the group itself."""
        return await self._settings(GROUP, group_id)

    async def dead_letters(self, group_id: str) -> DeadLetterTopic | None:
        """Return where dead letters of a share group go; ``None`` if it has no topic for them, or the brokers write none.

        Brokers take any name and lose the letters without a word if the topic is not fit for them, so what speaks against it is
        looked for: the topic, its settings, its name, the cluster's feature ``share.version``.
        """
        return await self.letters_by(await self.group_settings(group_id))

    async def letters_by(self, settings: Mapping[str, tuple[str | None, bool]]) -> DeadLetterTopic | None:
        """Return where dead letters of a share group with these settings go; see ``dead_letters``."""
        name, _ = settings.get(LETTERS_TO, (None, False))
        if not name:
            return None
        with_records, _ = settings.get(WITH_RECORDS, (None, False))
        return DeadLetterTopic(
            name=name,
            with_records=with_records == "true",
            problem=await self.client.persist(lambda: self._problem_of_letters(name)),
        )

    # --- one attempt at each ---------------------------------------------------------------------------------------------------

    async def _settings(self, kind: int, name: str, node_id: int | None = None) -> dict[str, tuple[str | None, bool]]:
        message = DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=kind, resource_name=name),))
        answer = await self.client.ask(message, node_id)
        found: dict[str, tuple[str | None, bool]] = {}
        for result in answer.results:
            check(result.error_code, result.error_message)
            found |= {config.name: (config.value, config.config_source == _GROUP_CONFIG) for config in result.configs}
        return found

    async def _problem_of_letters(self, name: str) -> str | None:
        if (level := await self._share_version()) is not None and level < _LETTERS_FROM:
            upgrade = f"kafka-features upgrade --feature share.version={_LETTERS_FROM}"
            return f"the cluster has share.version={level}, which {upgrade!r} changes"
        broker = await self._settings_of_a_broker()
        prefix, _ = broker.get(_PREFIX, (None, False))
        if prefix and not name.startswith(prefix):
            return f"the name does not begin with {prefix!r}, which the brokers' {_PREFIX} demands"
        try:
            topic = await self._settings(TOPIC, name)
        except TopicAuthorizationFailedError:
            return None
        except UnknownTopicOrPartitionError:
            makes, _ = broker.get(_MAKES_TOPICS, ("true", False))
            return None if makes == "true" else "the topic does not exist"
        except InvalidTopicError:
            return "it is not a name that a topic can have"
        allowed, _ = topic.get(_ALLOWED, ("true", False))
        return None if allowed == "true" else f"the topic does not have {_ALLOWED}=true"

    async def _settings_of_a_broker(self) -> dict[str, tuple[str | None, bool]]:
        """Return the settings of the first broker that tells its own; none if none does: what is not known speaks against nothing.

        Only the broker itself knows them, and the first may be hanging.
        """
        for node_id in self.client.nodes:
            with anyio.move_on_after(_MOMENT):
                try:
                    return await self._settings(BROKER, str(node_id), node_id)
                except ClusterAuthorizationFailedError:  # the others say the same
                    break
                except KafkaError as error:
                    if not error.retriable:
                        raise
        return {}

    async def _share_version(self) -> int | None:
        """Return the level of the feature that share groups need; ``None`` if the broker does not say."""
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        answer = await self.client.ask(message)
        if answer.finalized_features_epoch < 0:
            return None
        return next((each.max_version_level for each in answer.finalized_features if each.name == "share.version"), 0)

    async def _list_groups_of(self, node_id: int) -> list[GroupListing]:
        return listings(await self.client.ask(ListGroupsRequest(), node_id), node_id)

    async def _coordinator(self, group_id: str) -> Node:
        answer = await self.client.ask(FindCoordinatorRequest(coordinator_keys=(group_id,)))
        coordinator = _first(answer.coordinators, "FindCoordinator", group_id)
        check(coordinator.error_code, coordinator.error_message)
        node = Node(coordinator.node_id, coordinator.host, coordinator.port)
        self.client.learn(node)
        return node

    async def _ask_coordinator(self, group_id: str, message: Request[R], *, highest_version: int = NEWEST) -> R:
        return await self.client.ask(message, (await self._coordinator(group_id)).id, highest_version=highest_version)

    async def _describe(self, group_id: str) -> Group:
        coordinator = await self._coordinator(group_id)
        try:
            answer = await self.client.ask(ConsumerGroupDescribeRequest(group_ids=(group_id,)), coordinator.id)
            return consumer_group(_first(answer.groups, "ConsumerGroupDescribe", group_id), coordinator)
        except (GroupIdNotFound, UnsupportedVersionError):  # a classic group, or a broker that has no others
            described = await self.client.ask(DescribeGroupsRequest(groups=(group_id,)), coordinator.id)
            return classic_group(_first(described.groups, "DescribeGroups", group_id), coordinator)

    async def _describe_share(self, group_id: str) -> Group:
        coordinator = await self._coordinator(group_id)
        answer = await self.client.ask(ShareGroupDescribeRequest(group_ids=(group_id,)), coordinator.id)
        return share_group(_first(answer.groups, "ShareGroupDescribe", group_id), coordinator)


def _first(named: Iterable[T], api: str, group_id: str) -> T:
    for each in named:
        return each
    raise MalformedResponseError(f"a {api} response leaves the group {group_id!r} out")
