"""Groups: which there are, their members, their committed offsets.

What it changes on the cluster is what no consumer can: share groups, the settings of groups, and what is deleted.

Sources: Java's ``KafkaAdminClient``, ``DescribeConsumerGroupsHandler`` (the consumer protocol first, then the classic one),
``ListConsumerGroupOffsetsHandler``, ``CoordinatorStrategy``; KIP-518, 709, 848.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from attrs import frozen

from ...background.by_topic import by_topic
from ...errors import (
    ClusterAuthorizationFailedError,
    GroupIdNotFound,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    MalformedResponseError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from ...model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ...network.network_settings import SOFTWARE_NAME, SOFTWARE_VERSION
from ...wire import ApiVersionsRequest, FindCoordinatorRequest, OffsetFetchRequest
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
from . import batches
from .answers import (
    BY_NAME,
    Group,
    GroupListing,
    ShareOffset,
    certain,
    check,
    classic_group,
    committed_offsets,
    consumer_group,
    listings,
    share_group,
    share_group_offsets,
)
from .batches import SECONDS
from .client import Client

TOPIC, BROKER, GROUP = 2, 4, 32
"""Topics, brokers and groups, as the configuration's resource type."""
LETTERS_TO: Final = "errors.deadletterqueue.topic.name"
WITH_RECORDS: Final = "errors.deadletterqueue.copy.record.enable"
_ALLOWED: Final = "errors.deadletterqueue.group.enable"
_MAKES_TOPICS: Final = "errors.deadletterqueue.auto.create.topics.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_LETTERS_FROM: Final = 2
"""The level of the feature ``share.version`` from which brokers write dead letters."""
_GROUP_CONFIG: Final = 8
"""The source of a setting that is set for the group itself (``ConfigEntry.ConfigSource``)."""


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

    async def find(self, group_id: str) -> GroupListing | None:
        """Ask the coordinator how it lists a group of any kind; ``None`` if the group does not exist."""
        return await self.client.persist(lambda: self._find(group_id))

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Ask the coordinator for all offsets that a group has committed; none for a group that does not exist."""
        return await self.client.persist(lambda: self._committed(group_id))

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with all that it has committed.

        Raises ``NonEmptyGroup`` if it has members, ``GroupIdNotFound`` if it does not exist.
        """
        message = DeleteGroupsRequest(groups_names=(group_id,))

        async def attempt() -> None:
            answer = await self.client.ask(message, (await self._coordinator(group_id)).id)
            for result in answer.results:
                check(result.error_code)

        await self.client.persist(attempt)

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Delete committed offsets. Raises ``GroupSubscribedToTopicError`` if a member reads one of the topics."""
        topics = tuple(
            OffsetDeleteRequestTopic(
                name=name, partitions=tuple(OffsetDeleteRequestPartition(partition_index=each) for each in numbers)
            )
            for name, numbers in by_topic(sorted(partitions)).items()
        )

        async def attempt() -> None:
            answer = await self.client.ask(
                OffsetDeleteRequest(group_id=group_id, topics=topics), (await self._coordinator(group_id)).id
            )
            check(answer.error_code)
            for topic in answer.topics:
                for part in topic.partitions:
                    check(part.error_code, f"{topic.name}-{part.partition_index}")

        await self.client.persist(attempt)

    # --- share groups ----------------------------------------------------------------------------------------------------------

    async def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Ask the coordinator how far a share group is in each partition that it has begun."""
        return await self.client.persist(lambda: self._share_offsets(group_id))

    async def move_share_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Reset a share group without members to these offsets. Locks and acknowledgements after them no longer count.

        Raises ``NonEmptyGroup`` if it has members, and the error of the first partition that was refused.
        """
        by_topic: dict[str, list[PartitionToAlter]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            by_topic.setdefault(topic, []).append(PartitionToAlter(partition_index=partition, start_offset=offset))
        topics = tuple(TopicToAlter(topic_name=name, partitions=tuple(parts)) for name, parts in by_topic.items())
        message = AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

        async def attempt() -> None:
            answer = await self.client.ask(message, (await self._coordinator(group_id)).id)
            check(answer.error_code, answer.error_message)
            for topic in answer.responses:
                for part in topic.partitions:
                    check(part.error_code, f"{topic.topic_name}-{part.partition_index}: {part.error_message}")

        await self.client.persist(attempt)

    async def forget_share_offsets(self, group_id: str, topics: Collection[str]) -> None:
        """Make a share group without members forget topics: it reads them again as ``share.auto.offset.reset`` says."""
        message = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=tuple(TopicToForget(topic_name=name) for name in sorted(topics))
        )

        async def attempt() -> None:
            answer = await self.client.ask(message, (await self._coordinator(group_id)).id)
            check(answer.error_code, answer.error_message)
            for topic in answer.responses:
                check(topic.error_code, f"{topic.topic_name}: {topic.error_message}")

        await self.client.persist(attempt)

    async def configure_group(self, group_id: str, settings: Mapping[str, str | None]) -> None:
        """Change settings of a group, which need not exist yet; ``None``: back to the brokers' default.

        Raises ``InvalidConfigurationError`` for a setting or a value that brokers do not know.
        """
        configs = tuple(
            AlterableConfig(name=name, config_operation=int(value is None), value=value) for name, value in settings.items()
        )
        resource = ConfiguredResource(resource_type=GROUP, resource_name=group_id, configs=configs)

        async def attempt() -> None:
            answer = await self.client.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
            for altered in answer.responses:
                check(altered.error_code, altered.error_message)

        await self.client.persist(attempt)

    async def group_settings(self, group_id: str) -> dict[str, tuple[str | None, bool]]:
        """Return the settings of a group: each value, and whether it was set for the group itself."""
        return await self.client.persist(lambda: self._settings(GROUP, group_id))

    async def dead_letters(self, group_id: str) -> DeadLetterTopic | None:
        """Return where dead letters of a share group go; ``None`` if it has no topic for them, or the brokers write none.

        Brokers take any name and lose the letters without a word if the topic is not fit for them, so what speaks against it is
        looked for: the topic, its settings, its name, the cluster's feature ``share.version``.
        """
        settings = await self.group_settings(group_id)
        name, _ = settings.get(LETTERS_TO, (None, False))
        if not name:
            return None
        with_records, _ = settings.get(WITH_RECORDS, (None, False))
        return DeadLetterTopic(
            name=name,
            with_records=with_records == "true",
            problem=await self.client.persist(lambda: self._problem_of_letters(name)),
        )

    # --- many at once ------------------------------------------------------------------------------------------------------------

    async def list_many(
        self, nodes: Collection[int] | None = None, seconds: float = SECONDS
    ) -> dict[int, list[GroupListing] | KafkaError]:
        """Ask brokers (``None``: all) at once for the groups that they coordinate, each within ``seconds``. See ``batches``."""
        return await batches.list_many(self.client, nodes, seconds)

    async def find_many(self, names: Collection[str], seconds: float = SECONDS) -> dict[str, int | KafkaError]:
        """Ask who coordinates groups; a group that does not exist has a coordinator too."""
        return await batches.find_many(self.client, names, seconds)

    async def describe_many(self, groups: Iterable[GroupListing], seconds: float = SECONDS) -> dict[str, Group | KafkaError]:
        """Ask for the members of groups: a hundred in a request, brokers at once.

        A group whose broker does not answer within ``seconds`` has the error in its place. Groups of Kafka Streams are left out.
        """
        return await batches.describe_many(self.client, groups, seconds)

    async def committed_many(
        self, groups: Iterable[GroupListing], seconds: float = SECONDS
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata | KafkaError] | KafkaError]:
        """Ask in the same way for all that groups have committed. Share groups are left out.

        Brokers before Kafka 3.0 are asked for one group after another, in the order given, as far as the time goes.
        """
        return await batches.committed_many(self.client, groups, seconds)

    async def share_offsets_many(
        self, groups: Iterable[GroupListing], seconds: float = SECONDS
    ) -> dict[str, dict[TopicPartition, ShareOffset | KafkaError] | KafkaError]:
        """Ask in the same way how far share groups are. Groups of other kinds are left out."""
        return await batches.share_offsets_many(self.client, groups, seconds)

    async def offsets_many(
        self,
        wanted: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        seconds: float = SECONDS,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        """Ask each leader once for the offsets of all its partitions: at a timestamp in milliseconds, ``LATEST`` or ``EARLIEST``.

        ``stable``: the end is that of committed transactions. ``None``: no record is that late. Partitions without a leader are
        left out.
        """
        return await batches.offsets_many(self.client, wanted, leaders, seconds, stable=stable)

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
        node_id = self.client.nodes[0]
        if (level := await self._share_version(node_id)) is not None and level < _LETTERS_FROM:
            upgrade = f"kafka-features upgrade --feature share.version={_LETTERS_FROM}"
            return f"the cluster has share.version={level}, which {upgrade!r} changes"
        try:
            broker = await self._settings(BROKER, str(node_id), node_id)
        except ClusterAuthorizationFailedError:  # what is not known speaks against nothing
            broker = {}
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

    async def _share_version(self, node_id: int) -> int | None:
        """Return the level of the feature that share groups need; ``None`` if the broker does not say."""
        message = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        answer = await self.client.ask(message, node_id)
        if answer.finalized_features_epoch < 0:
            return None
        return next((each.max_version_level for each in answer.finalized_features if each.name == "share.version"), 0)

    async def _list_groups_of(self, node_id: int) -> list[GroupListing]:
        return listings(await self.client.ask(ListGroupsRequest(), node_id), node_id)

    async def _find(self, group_id: str) -> GroupListing | None:
        coordinator = await self._coordinator(group_id)
        listed = await self._list_groups_of(coordinator.id)
        return next((listing for listing in listed if listing.group_id == group_id), None)

    async def _coordinator(self, group_id: str) -> Node:
        answer = await self.client.ask(FindCoordinatorRequest(coordinator_keys=(group_id,)))
        for coordinator in answer.coordinators:
            check(coordinator.error_code, coordinator.error_message)
            node = Node(coordinator.node_id, coordinator.host, coordinator.port)
            self.client.learn(node)
            return node
        raise MalformedResponseError(f"a FindCoordinator response leaves the group {group_id!r} out")

    async def _describe(self, group_id: str) -> Group:
        coordinator = await self._coordinator(group_id)
        try:
            return await self._describe_consumer(group_id, coordinator)
        except (GroupIdNotFound, UnsupportedVersionError):  # a classic group, or a broker that has no others
            return await self._describe_classic(group_id, coordinator)

    async def _describe_consumer(self, group_id: str, coordinator: Node) -> Group:
        answer = await self.client.ask(ConsumerGroupDescribeRequest(group_ids=(group_id,)), coordinator.id)
        for group in answer.groups:
            return consumer_group(group, coordinator)
        raise MalformedResponseError(f"a ConsumerGroupDescribe response leaves the group {group_id!r} out")

    async def _describe_classic(self, group_id: str, coordinator: Node) -> Group:
        answer = await self.client.ask(DescribeGroupsRequest(groups=(group_id,)), coordinator.id)
        for group in answer.groups:
            return classic_group(group, coordinator)
        raise MalformedResponseError(f"a DescribeGroups response leaves the group {group_id!r} out")

    async def _describe_share(self, group_id: str) -> Group:
        coordinator = await self._coordinator(group_id)
        answer = await self.client.ask(ShareGroupDescribeRequest(group_ids=(group_id,)), coordinator.id)
        for group in answer.groups:
            return share_group(group, coordinator)
        raise MalformedResponseError(f"a ShareGroupDescribe response leaves the group {group_id!r} out")

    async def _share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        coordinator = await self._coordinator(group_id)
        message = DescribeShareGroupOffsetsRequest(groups=(ShareGroupChoice(group_id=group_id),))
        answer = await self.client.ask(message, coordinator.id)
        found: dict[TopicPartition, ShareOffset] = {}
        for group in answer.groups:
            found |= certain(share_group_offsets(group))
        return found

    async def _committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        coordinator = await self._coordinator(group_id)
        message = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id),))
        answer = await self.client.ask(message, coordinator.id, highest_version=BY_NAME)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for group in answer.groups:
            found |= certain(committed_offsets(group))
        return found
