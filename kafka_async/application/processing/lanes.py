"""Which record is handled next.

A lane holds records that must be handled one after another: those of a partition with the same key, all records of a partition, or
those for which a callable returns the same. Only the first record of a lane is ready; the next one becomes ready when the lane is
released. Ready records wait by partition, and partitions take turns, so that neither a partition nor a lane with many records keeps
others waiting.
Every step costs the same, however many records, lanes and partitions there are.

With ``batch`` the records of a lane are handled together, and with ``linger`` a batch that is not full waits that long for more.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final

from ...values import define, field
from .delays import Delays
from .items import Item, Pack, Part, Record

RECORD_BYTES: Final = 512
"""What a record takes besides its key and its value, roughly."""


@define(eq=False)
class HeldUp:
    """Records that wait for a later attempt, and those behind them in their lanes.

    They take no room from records that can be handled. A lane that has such a backlog is in ``lanes`` until it has caught up:
    what arrives in it meanwhile counts here too, or the others would stop as soon as it goes on.
    """

    records: int = 0
    bytes: int = 0
    """Including ``RECORD_BYTES`` for each record."""
    lanes: set[tuple[int, Hashable]] = field(factory=set)

    @property
    def payload(self) -> int:
        """Bytes of keys and values."""
        return self.bytes - RECORD_BYTES * self.records

    def count(self, items: Iterable[Item]) -> None:
        """These are held up from now on."""
        for item in items:
            if item.part.live and not item.held_up:
                item.held_up = True
                self._change(item, 1)

    def uncount(self, items: Iterable[Item]) -> None:
        """These are not held up, or no longer."""
        for item in items:
            if item.held_up:
                item.held_up = False
                if item.part.live:  # else it was counted off as the partition began to leave
                    self._change(item, -1)

    def _change(self, item: Item, by: int) -> None:
        part, size = item.part, by * (RECORD_BYTES + size_of(item.record))
        self.records += by
        self.bytes += size
        part.held_up += by
        part.held_up_bytes += size

    def leave(self, part: Part) -> None:
        """The partition leaves; what waits of it is forgotten."""
        self.records -= part.held_up
        self.bytes -= part.held_up_bytes
        part.held_up = part.held_up_bytes = 0


def size_of(record: Record) -> int:
    """Return the bytes of a record's key and value."""
    return max(0, record.serialized_key_size) + max(0, record.serialized_value_size)


@define(eq=False)
class Lanes:
    """The records of all partitions that wait to be handled."""

    batch: int = 1
    linger: float = 0.0
    """Seconds for which a batch that is not full waits for more records."""
    delays: Delays | None = None
    """The records that are not due yet, which no lane has so far; ``None``: all are due."""
    due_sooner: Callable[[], None] = field(default=lambda: None, init=False, repr=False)
    """Called when ``due_at`` is earlier than it was: whoever looks then would be late."""
    held_up: HeldUp = field(factory=HeldUp, init=False)
    turns: deque[Part] = field(factory=deque, init=False)
    """Partitions with something ready, in the order of their turns."""
    _lingering: list[tuple[float, int, Item]] = field(factory=list, init=False)
    """A heap: when the wait of a lane's first record ends."""
    _heads: dict[tuple[int, Hashable], Item] = field(factory=dict, init=False)
    """Lanes that wait for more records, by the mapping that they are in and their name."""
    _loose: dict[Item, None] = field(factory=dict, init=False)
    """Records without a lane that wait for more."""
    _count: int = field(default=0, init=False)

    @property
    def some_ready(self) -> bool:
        return bool(self.turns)

    def add_all(self, items: Iterable[Item]) -> None:
        """Put records of one partition that were received at the ends of their lanes."""
        if self.linger:
            for item in items:
                self.add(item)
            return
        held_up = self.held_up.lanes
        for item in items:  # as ``add``, but without calls: most of the time is spent here if handlers take none
            part, lane = item.part, item.lane
            if lane is not None:
                lanes = part.lanes
                if lane in lanes:
                    behind = lanes[lane]
                    if behind is None:
                        behind = lanes[lane] = deque()
                    behind.append(item)
                    if held_up and (id(lanes), lane) in held_up:
                        self.held_up.count((item,))
                    continue
                lanes[lane] = None
            ready = part.ready
            if not ready and not part.paused:
                self.turns.append(part)
            ready.append(item)

    def add(self, item: Item) -> None:
        """Put a record that was received at the end of its lane."""
        lane = item.lane
        if lane is not None:
            lanes = item.part.lanes
            if lane in lanes:
                behind = lanes[lane]
                if behind is None:
                    behind = lanes[lane] = deque()
                behind.append(item)
                if (id(lanes), lane) in self.held_up.lanes:
                    self.held_up.count((item,))
                if self.linger:
                    self._fill(lanes, lane, len(behind) + 1)
                return
            lanes[lane] = None
        if self.linger:
            self._linger(item)
        else:
            self._offer(item)

    def receive(self, part: Part, items: list[Item]) -> None:
        """Put records that were received at the ends of their lanes, or keep them until ``admit`` if they may not be due."""
        if self.delays is None or not self.delays.keep(part, items):
            self.add_all(items)

    def admit(self, wall: float, now: float) -> None:
        """Put records that have become due at the ends of their lanes. ``wall``: milliseconds since the epoch."""
        if self.delays is None:
            return
        for part, items in self.delays.take_due(wall):
            if items[0].arrived < now:
                part.progress.put_off(items[0].number, items[-1].number, now)
                for item in items:
                    item.arrived = item.waits_since = now
            self.held_up.uncount(items)
            self.add_all(items)
        self.held_up.count(self.delays.take_fresh())

    def take(self) -> Any:  # an Item or a Pack; only batches that are tried again are packs
        """Return what is to be handled next; its lane is closed until ``release``. ``None``: nothing is ready."""
        turns = self.turns
        if not turns:
            return None
        part = turns[0]
        ready = part.ready
        unit = ready.popleft()
        if not ready:
            turns.popleft()
        elif len(turns) > 1:
            turns.rotate(-1)
        part.running += 1  # of a pack, the others are counted where packs are taken
        return unit

    def take_pack(self) -> Pack | None:
        """Return the next records that are to be handled together, at most ``batch``, for which it is the same attempt."""
        first = self.take()
        if first is None:
            return None
        if isinstance(first, Pack):
            first.items = [item for item in first.items if item.part.live]
            self._leave_paused(first)
            _count(first.items[1:])
            return first
        items = [first]
        if first.error is not None:
            pass  # it is handled alone
        elif first.lane is None:
            self._gather(items)
        elif behind := first.part.lanes[first.lane]:
            self._take_behind(items, behind)
            _count(items[1:])
            if (id(first.part.lanes), first.lane) in self.held_up.lanes:
                self.held_up.uncount(items[1:])
        return Pack(items, first.attempt)

    def _leave_paused(self, pack: Pack) -> None:
        """Leave behind the records of paused partitions, and those that stand after one of them in their lane."""
        items = pack.items
        paused = [place for place, item in enumerate(items) if item.part.paused]
        if paused:
            left = items[paused[0] :] if items[0].lane is not None else [items[place] for place in paused]
            without = set(left)
            pack.items = [item for item in items if item not in without]
            self.hand_back(left)

    def _take_behind(self, items: list[Item], behind: deque[Item]) -> None:
        """Add the records that follow in the lane, up to one that may not be handled with them."""
        while behind and len(items) < self.batch:
            item = behind[0]
            if item.part.live:
                if item.error is not None or item.part.paused or item.attempt != items[0].attempt:
                    return
                items.append(item)
            behind.popleft()

    def _gather(self, items: list[Item]) -> None:
        """Add ready records that have no lane. Partitions that have none for this attempt keep their turn."""
        passed = []
        while len(items) < self.batch and self.turns:
            following = self.turns[0].ready[0]
            if isinstance(following, Pack) or following.lane is not None or following.error is not None:
                break
            if following.attempt != items[0].attempt:
                passed.append(self.turns.popleft())
                continue
            self.take()
            items.append(following)
        self.turns.extendleft(reversed(passed))

    def release(self, item: Item, now: float) -> None:
        """The record is finished: the next one in its lane is ready."""
        lane = item.lane
        if lane is None:
            return
        lanes = item.part.lanes
        behind, held_up = lanes[lane], self.held_up.lanes
        if behind and held_up:
            self._catch_up(lanes, lane, behind)
        while behind:
            following = behind.popleft()
            if not following.part.live:
                continue
            if self.linger and len(behind) + 1 < self.batch and now < following.arrived + self.linger:
                self._linger(following)
            else:
                self._offer(following)
            return
        if held_up:
            held_up.discard((id(lanes), lane))
        del lanes[lane]

    def _catch_up(self, lanes: dict[Hashable, deque[Item] | None], lane: Hashable, behind: deque[Item]) -> None:
        """A lane that was held up goes on with its next record, if it was; with the last one it has caught up."""
        key = (id(lanes), lane)
        if key in self.held_up.lanes:
            following = next((item for item in behind if item.part.live), None)
            self.held_up.uncount(() if following is None else (following,))
            if following is None or following is behind[-1]:
                self.held_up.lanes.remove(key)

    def hold_up(self, unit: Item | Pack) -> None:
        """A unit that was taken waits for a later attempt, and what is behind it waits with it."""
        first = unit.items[0]
        self.held_up.count(unit.items)
        if first.lane is None:
            return
        key, behind = (id(first.part.lanes), first.lane), first.part.lanes[first.lane]
        if behind and key not in self.held_up.lanes:
            self.held_up.count(behind)
        self.held_up.lanes.add(key)

    def go_on(self, unit: Item | Pack) -> None:
        """A unit waits no more."""
        self.held_up.uncount(unit.items)

    def again(self, unit: Item | Pack) -> None:
        """Handle this once more, as the next of its partition. Its lane was not released."""
        if isinstance(unit, Pack) and unit.items[0].lane is None:
            unit.items.sort(key=_is_paused)  # it waits in the partition of its first record, which may be another one
        part = unit.items[0].part
        if not part.ready and not part.paused:
            self.turns.append(part)
        part.ready.appendleft(unit)

    def drop(self, part: Part) -> None:
        """Forget a partition's waiting records. Those that are being handled keep their lane until ``release``."""
        self.held_up.leave(part)
        if self.delays is not None:
            self.delays.forget(part)
        part.live = False
        if part.ready and not part.paused:
            self.turns.remove(part)
        heads = [unit.items[0] for unit in part.ready]
        heads += [item for item in (*self._heads.values(), *self._loose) if item.part is part]
        packed = [item for unit in part.ready for item in unit.items[1:]]
        part.ready.clear()
        self.hand_back(packed)
        for item in heads:
            self._heads.pop((id(part.lanes), item.lane), None)
            self._loose.pop(item, None)
            self.release(item, item.arrived)

    def pause(self, part: Part, *, paused: bool) -> None:
        """Hand out nothing of this partition, or go on."""
        if part.paused != paused:
            part.paused = paused
            if part.ready and paused:
                self.turns.remove(part)
            elif part.ready:
                self.turns.append(part)

    def move_packs(self, part: Part) -> None:
        """The partition is paused: its packs wait where another one, which is not, goes on with its own records of them."""
        for pack in reversed([unit for unit in part.ready if isinstance(unit, Pack) and unit.items[0].lane is None]):
            live = [item for item in pack.items if item.part.live]
            if not all(map(_is_paused, live)):
                part.ready.remove(pack)
                pack.items = live  # it must not wait in a partition that has left
                self.again(pack)

    def blocked(self, lanes: Mapping[Hashable, deque[Item] | None], parts: Iterable[Part], later: Iterable[Item | Pack]) -> int:
        """Return how many records of partitions that are not paused stand behind some of paused ones, in lanes that these share.

        ``later``: the units that wait for another attempt.
        """
        waiting = chain((unit for part in parts for unit in part.ready), self._heads.values(), later)
        first = {unit.items[0].lane: unit.items for unit in waiting}
        found = 0
        for lane, behind in lanes.items():
            live = [item.part.paused for item in chain(first.get(lane, ()), behind or ()) if item.part.live]
            if True in live:
                found += live[live.index(True) :].count(False)
        return found

    def hand_back(self, items: list[Item]) -> None:
        """Put back in front the records that were taken after the first of their lane, which is still closed."""
        for item in reversed(items):
            if not item.part.live:
                continue
            if item.lane is None:
                self.again(item)
            else:
                behind = item.part.lanes[item.lane]
                if behind is None:
                    behind = item.part.lanes[item.lane] = deque()
                behind.appendleft(item)
                if (id(item.part.lanes), item.lane) in self.held_up.lanes:
                    self.held_up.count((item,))

    def _offer(self, item: Item) -> None:
        ready = item.part.ready
        if not ready and not item.part.paused:
            self.turns.append(item.part)
        ready.append(item)

    # --- waiting for more ------------------------------------------------------------------------------------------------------

    @property
    def due_at(self) -> float | None:
        """When the wait of a batch that is not full ends."""
        return self._lingering[0][0] if self._lingering else None

    def expire(self, now: float) -> None:
        """Make ready the batches that have waited long enough for more."""
        while self._lingering and self._lingering[0][0] <= now:
            item = heappop(self._lingering)[2]
            self._end_wait(item)

    def _linger(self, item: Item) -> None:
        self._count += 1
        entry = (item.arrived + self.linger, self._count, item)
        heappush(self._lingering, entry)
        if self._lingering[0] is entry:
            self.due_sooner()
        if item.lane is not None:
            self._heads[id(item.part.lanes), item.lane] = item
            return
        self._loose[item] = None
        if len(self._loose) >= self.batch:
            for loose in tuple(self._loose):
                self._end_wait(loose)

    def _fill(self, lanes: dict[Hashable, deque[Item] | None], lane: Hashable, count: int) -> None:
        """A lane has ``count`` records: if it waits for more and these are enough, it is ready."""
        head = self._heads.get((id(lanes), lane))
        if head is not None and count >= self.batch:
            self._end_wait(head)

    def _end_wait(self, item: Item) -> None:
        if item.lane is None:
            waited = item in self._loose
            self._loose.pop(item, None)
        else:
            key = (id(item.part.lanes), item.lane)
            waited = self._heads.get(key) is item
            if waited:
                del self._heads[key]
        if waited and item.part.live:
            self._offer(item)


def _is_paused(item: Item) -> bool:
    return item.part.paused


def _count(items: Iterable[Item]) -> None:
    """These records are being handled from now on."""
    for item in items:
        item.part.running += 1
