"""The only member of a group: what it reads and commits for the group, nobody else changes meanwhile.

The sequence that it prevents: two commands read the same commit, do the same work, and each commits its own part of it.

A second one that joins sees the first, and leaves. The first gets its partitions back before it commits again.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define

from ...application.callbacks import ConsumerRebalanceListener
from ...application.consumer import KafkaConsumer
from ...errors import IllegalStateError
from ...model import OffsetAndMetadata, TopicPartition
from ..admin import Admin

PATIENCE: Final = 60.0
"""Seconds for another one to leave."""
_WAIT: Final = 200
"""Milliseconds between two looks."""
_LONG: Final = 2**31 - 1
"""Milliseconds between two commits: what is done in between takes as long as it takes."""


@define(eq=False)
class SoleMember:
    """It owns all partitions of a topic, and reads none."""

    group: str
    partitions: frozenset[TopicPartition]
    consumer: KafkaConsumer[Any, Any]

    @classmethod
    @asynccontextmanager
    async def of(cls, admin: Admin, group: str, topic: str, options: Mapping[str, Any]) -> "AsyncIterator[SoleMember]":
        """Be the member until the block is left. Raises ``IllegalStateError`` if the group has another."""
        own: dict[str, Any] = {**options, "group_id": group, "enable_auto_commit": False, "max_poll_interval_ms": _LONG}
        consumer = KafkaConsumer[Any, Any](**own)
        consumer.subscribe([topic], listener=_Pausing(consumer))
        async with consumer:
            topics = (await consumer.describe_topics(topic)).topics
            partitions = frozenset(TopicPartition(topic, each.partition) for each in topics[topic].partitions)
            member = cls(group, partitions, consumer)
            if len((await admin.describe(group)).members) > 1 or not member.owns_all:
                raise IllegalStateError(f"group {group!r} has another member: the same command is running elsewhere")
            yield member

    @property
    def owns_all(self) -> bool:
        """Whether no other member has any of the partitions. The topic may have grown since."""
        return self.partitions <= self.consumer.assignment()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit for the group. Raises ``IllegalStateError`` if another member stays, and the errors of a commit."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self.consumer.getmany(timeout_ms=0)
                while not self.owns_all:
                    await self.consumer.getmany(timeout_ms=_WAIT)
        except TimeoutError:
            raise IllegalStateError(f"group {self.group!r} has got another member, which stays") from None
        await self.consumer.commit(dict(offsets))


@define(eq=False)
class _Pausing(ConsumerRebalanceListener):
    """Has nothing fetched."""

    consumer: KafkaConsumer[Any, Any]

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.consumer.pause(*assigned)
