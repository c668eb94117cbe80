"""Where reading ends: at offsets that were looked up when it began, for as long as the logs have them."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final
from uuid import UUID

import anyio
from attrs import define, field

from ...application.consumer import KafkaConsumer
from ...errors import KafkaTimeoutError
from ...model import TopicPartition
from ..ranges.offsets import LOOKS, SECOND_LOOK, below

_QUIET: Final = 5.0
"""Seconds without progress after which ends are looked up again."""

Look = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]


@define(eq=False)
class Ends:
    """The ends of partitions that a consumer reads."""

    consumer: KafkaConsumer[Any, Any]
    look: Look
    """Asks where they end now."""
    offsets: dict[TopicPartition, int] = field(factory=dict)
    ids: dict[TopicPartition, UUID | None] = field(factory=dict)
    """Ids of the topics that these are offsets of; ``None``: not known yet."""
    _standing: dict[TopicPartition, int] = field(factory=dict, init=False)
    _since: float = field(factory=anyio.current_time, init=False)
    """When a position changed last."""

    async def find(self, partitions: Collection[TopicPartition]) -> None:
        """Look up where partitions end now."""
        at = self.consumer.next_offsets()
        self.ids |= {each: at[each].topic_id if each in at else None for each in partitions}
        self.offsets |= await self.look(partitions)

    async def gone(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Return for which of these partitions the end is no longer one, and what happened to them."""
        at = {each: offset for each, offset in self.consumer.next_offsets().items() if each in partitions and each in self.offsets}
        anew = set()
        for each, offset in at.items():
            known = self.ids.get(each)
            if known is None:
                self.ids[each] = offset.topic_id
            elif offset.topic_id not in (None, known):
                anew.add(each)
        now, standing = anyio.current_time(), {each: offset.offset for each, offset in at.items()}
        lower: dict[TopicPartition, int] = {}
        if standing != self._standing:
            self._standing, self._since = standing, now
        elif now - self._since >= _QUIET:
            with contextlib.suppress(KafkaTimeoutError):  # nobody knows
                lower = await self._lower(standing.keys() - anew)
            self._since = anyio.current_time()
        return dict.fromkeys(anew, "the topic was deleted and created again") | {
            each: f"the log ends at {end} by now, not at {self.offsets[each]}" for each, end in lower.items()
        }

    async def _lower(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of logs that are shorter than they were."""
        ends: Mapping[TopicPartition, int] = {}
        lower: Collection[TopicPartition] = ()
        for look in range(LOOKS):
            if look:
                await anyio.sleep(SECOND_LOOK)
                await self.consumer.describe_topics(*{each.topic for each in lower})  # leads to the leader of now
            ends = await self.look(partitions) if partitions else {}
            if not (lower := below(ends, self.offsets)):
                break
        return {each: ends[each] for each in lower}
