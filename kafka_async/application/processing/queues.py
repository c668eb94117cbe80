"""What workers take from, and what they tell it: the work itself, or something that stands before it."""

from collections.abc import Collection
from enum import Enum
from typing import Protocol

from .attempts import Unit
from .items import Item, Pack
from .lanes import Lanes


class Fate(Enum):
    """What happens to a record whose handler did not return."""

    DONE = "nothing is to be done about it"
    REFUSED = "it cannot be handled"
    RETURNED = "to be tried again by any member"


class Queue(Protocol):
    """The work of the workers. After each unit that was taken comes ``succeeded``, ``gave_up``, ``retry`` or ``interrupted``."""

    @property
    def lanes(self) -> Lanes: ...
    @property
    def held(self) -> int:
        """Records received and not done."""

    def take(self) -> Item | None:
        """Return the next record to handle."""

    def take_pack(self) -> Pack | None:
        """Return the next records to handle together."""

    def is_open(self, unit: Unit) -> bool:
        """Whether a unit that was taken may still be handled. From any thread."""

    def succeeded(self, item: Item, now: float) -> None: ...
    def pack_succeeded(self, pack: Pack, now: float) -> None: ...
    def gave_up(self, unit: Unit, fate: Fate, now: float) -> None:
        """The unit is over, though its handler has not returned."""

    def split(self, pack: Pack, items: Collection[Item]) -> Pack:
        """Take these records out of a pack that is handled, as a unit of their own."""

    def unhandled(self, pack: Pack, items: Collection[Item], now: float) -> None:
        """These records of a pack that is handled were not: they come again."""

    def retry(self, unit: Unit, due: float, now: float, *, counts: bool = True) -> bool:
        """Handle a failed unit again from ``due`` on. ``counts``: that was an attempt. ``False``: it is no longer ours."""

    def interrupted(self, unit: Unit, now: float) -> None: ...
