"""What a consumer promises, as a pure class that is notified of what happens and keeps what must not have happened.

Decides: whether a hand-out, a commit or a call-back was right. Owns: the position of every partition as the application may know
it. Must never look at a consumer or a clock: ``runner.py`` notifies it of everything in the order in which it happened.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final

from attrs import Factory, define, field

from kafka_async import TopicPartition

ANOTHER_LIFE: Final = -1000
"""A generation after which nobody can know what has stayed."""


@define(eq=False)
class Cursor:
    """Where an assigned partition stands."""

    starts: frozenset[int]
    """The offsets at which reading may begin, as long as there is no position."""
    position: int | None = None
    """The offset that comes next."""
    done: int | None = None
    """What auto-commit may cover: the position when the last read call began."""
    most: int = 0
    """The highest offset that a commit may cover."""
    least: float = 0
    """The lowest offset that a commit may have."""
    back: float = inf
    """The lowest offset that the application sought to: a commit that was under way then may arrive later."""
    asked: set[int] = Factory(set)
    """Offsets that the application itself committed, anywhere."""
    owed: int | None = None
    """What auto-commit must commit: the position after a hand-out, unless the application has since sought or committed itself."""
    shared: bool = False
    """Two tasks were reading at the last hand-out: the one that gives it up does not commit what the other one holds."""
    ready: bool = True
    """``on_partitions_assigned`` has returned."""
    paused: bool = False
    halted: bool = False
    """Stopped at a corrupt batch, until a seek."""
    gone: bool = False
    """It belongs to another member, and the consumer has had the time to notice."""
    lost: bool = False
    """The same, and the consumer was not asked to give it up."""
    former: bool = False
    """Its topic was deleted and created again, and records of the former one that were fetched may still come."""
    unsure: bool = False
    """A corrupt batch was raised, of the former topic or of the new one."""
    doubtful: bool = False
    """The application sought, perhaps before the consumer knew of the new topic: then that is read from its beginning."""
    old: dict[int, frozenset[int]] = Factory(dict)
    """The offsets that may come next of each former topic."""

    @property
    def due(self) -> frozenset[int]:
        """The offsets that may come next."""
        return self.starts if self.position is None else frozenset({self.position})


@define(eq=False)
class Left:
    """What a revoked partition would come back with if nobody else had it meanwhile."""

    position: int | None
    starts: frozenset[int]
    paused: bool
    generation: int
    asked: set[int] = Factory(set)
    """Offsets of it that the application itself committed, perhaps still under way."""
    halted: bool = False
    shared: bool = False
    most: int = 0
    owed: int | None = None
    back: float = inf
    former: bool = False
    gone: bool = False
    """It belonged to another member by then, so what was handed out of it may not have been committed."""


@define(eq=False)
class Model:
    """Is notified of what happens; ``breaches`` is empty as long as all is well."""

    eager: bool = False
    """A rebalance revokes everything and may give it back."""
    cursors: dict[TopicPartition, Cursor] = Factory(dict)
    poison: set[tuple[TopicPartition, int]] = Factory(set)
    corrupt: dict[TopicPartition, list[tuple[int, int]]] = Factory(dict)
    """First and last offset of corrupt batches."""
    breaches: list[str] = Factory(list)
    stopped: bool = False
    topic: int = 0
    """How often the topic was deleted and created again."""
    two_read: bool = False
    """Another task reads besides the program's own."""
    moving: bool = False
    """A read is under way while positions move, so call-backs may see again what is put back."""
    parting: dict[TopicPartition, Cursor] = Factory(dict)
    """What ``unsubscribe`` gave up, until the listener is called."""
    _left: dict[TopicPartition, Left] = field(factory=dict, init=False)
    _calling: list[str] = field(factory=list, init=False)
    _sightings: dict[tuple[str, TopicPartition, int], int] = field(factory=dict, init=False)

    def breach(self, text: str) -> None:
        self.breaches.append(text)

    # --- reading ---------------------------------------------------------------------------------------------------------------

    def read_entered(self) -> None:
        """A read call begins, or the next step of an iteration: what was handed out before is done."""
        for cursor in self.cursors.values():
            if cursor.position is not None and cursor.ready:
                cursor.done = cursor.position
                cursor.most = max(cursor.most, cursor.position)

    def handed_out(self, partition: TopicPartition, offsets: Iterable[int], *, raw: bool = False, topic: int | None = None) -> None:
        """Records came; ``raw``: without deserializers, ``topic``: of which topic of the name, if not of the last one."""
        cursor = self._readable(partition, "a record")
        for offset in offsets:
            if topic is not None and topic != self.topic:
                self._pass_former(partition, cursor, offset, topic)
                continue
            if not raw and (partition, offset) in self.poison:
                self.breach(f"{_name(partition)}: the poison record at {offset} was handed out")
            if self.corrupt_at(partition, offset) is not None:
                self.breach(f"{_name(partition)}: the record at {offset} of a corrupt batch was handed out")
            self._pass(partition, cursor, offset)

    def poison_raised(self, partition: TopicPartition, offset: int, *, topic: int | None = None) -> None:
        """A read raised ``DeserializationError`` about this record."""
        cursor = self._readable(partition, "a poison record")
        if topic is not None and topic != self.topic:
            self._pass_former(partition, cursor, offset, topic)
            return
        if (partition, offset) not in self.poison:
            self.breach(f"{_name(partition)}: the record at {offset} was called poison and is not")
        self._pass(partition, cursor, offset)

    def flaky_raised(self, partition: TopicPartition, offset: int) -> None:
        """A read raised a retriable error of a deserializer: nothing has moved."""
        cursor = self._readable(partition, "a record that may be tried again")
        if cursor is not None and cursor.position is not None and offset < cursor.position:
            self.breach(f"{_name(partition)}: {offset} is to be tried again, behind the position {cursor.position}")
        self.see_again(partition)

    def corrupt_raised(self, partition: TopicPartition, offset: int | None) -> None:
        """A read raised ``CorruptRecordException``: its partition stands still."""
        cursor = self.cursors.get(partition)
        if cursor is None:
            self.breach(f"{_name(partition)}: a corrupt batch was raised of a partition that is not assigned")
            return
        if cursor.former:
            cursor.unsure = True  # of the former topic, which stops nothing, or of the new one
            return
        batch = self.corrupt_at(partition, offset) if offset is not None else None
        if batch is None:
            self.breach(f"{_name(partition)}: {offset} was called corrupt and is not")
        elif not any(batch[0] <= due <= batch[1] for due in cursor.due):
            self.breach(f"{_name(partition)}: the corrupt batch {batch} was raised, due was {sorted(cursor.due)}")
        cursor.halted = True

    def corrupt_at(self, partition: TopicPartition, offset: int) -> tuple[int, int] | None:
        """Return the corrupt batch that holds ``offset``."""
        return next((batch for batch in self.corrupt.get(partition, ()) if batch[0] <= offset <= batch[1]), None)

    def _readable(self, partition: TopicPartition, what: str) -> Cursor | None:
        cursor = self.cursors.get(partition)
        if self.stopped:
            self.breach(f"{_name(partition)}: {what} came after the consumer was stopped")
        reason = "it is not assigned"
        if cursor is not None:
            states = ("gone", "it belongs to another member"), ("paused", "it is paused"), ("halted", "a corrupt batch stops it")
            reason = next((text for flag, text in states if getattr(cursor, flag)), "")
            reason = reason or ("" if cursor.ready else "on_partitions_assigned has not returned")
        if reason:
            self.breach(f"{_name(partition)}: {what} came although {reason}")
        return cursor

    def _pass(self, partition: TopicPartition, cursor: Cursor | None, offset: int) -> None:
        if cursor is None:
            return
        if offset not in cursor.due:
            self.breach(f"{_name(partition)}: {offset} came where {' or '.join(map(str, sorted(cursor.due)))} was due")
        cursor.former = cursor.doubtful = False
        cursor.position, cursor.shared = offset + 1, cursor.shared or self.two_read
        cursor.owed = None if cursor.shared else offset + 1

    def _pass_former(self, partition: TopicPartition, cursor: Cursor | None, offset: int, topic: int) -> None:
        """A record of a topic that was deleted came: it was fetched before that."""
        if cursor is None:
            return
        due = cursor.old.get(topic, frozenset())
        if not cursor.former or offset not in due:
            self.breach(f"{_name(partition)}: {offset} of a former topic came, of which {sorted(due)} was due")
        later = {each: places for each, places in cursor.old.items() if each > topic}
        cursor.old = {topic: frozenset({offset + 1}), **later}
        cursor.starts = frozenset({offset + 1, 0})

    # --- looking ---------------------------------------------------------------------------------------------------------------

    def position_seen(self, partition: TopicPartition, position: int, where: str) -> None:
        """A call said where the next record comes from."""
        cursor = self.cursors.get(partition)
        if cursor is None:
            return
        if position not in cursor.due:
            self.breach(f"{_name(partition)}: {where} says {position}, expected {sorted(cursor.due)}")
        if not cursor.former and not cursor.doubtful:
            cursor.position = position

    def saw(self, who: str, partition: TopicPartition, offset: int) -> None:
        """A deserializer or an interceptor saw a record."""
        key = who, partition, offset
        cursor = self.cursors.get(partition)
        if cursor is not None and cursor.former:
            return  # a record of the former topic, or of the new one
        self._sightings[key] = self._sightings.get(key, 0) + 1
        if self._sightings[key] > 1 and not self.moving:
            self.breach(f"{_name(partition)}: the {who} saw the record at {offset} again")

    def see_again(self, *partitions: TopicPartition) -> None:
        """Call-backs may see once more what was not handed out yet of these partitions (none given: of any)."""
        for key in list(self._sightings):
            _, partition, offset = key
            cursor = self.cursors.get(partition)
            due = cursor is None or cursor.position is None or offset >= cursor.position
            if due and (not partitions or partition in partitions):
                del self._sightings[key]

    # --- moving ----------------------------------------------------------------------------------------------------------------

    def sought_after_a_wait(self, partition: TopicPartition, offset: int) -> None:
        """The same, once the offset was found: the partition may be on its way out by then, and come back with that position."""
        left = self._left.get(partition)
        if partition in self.cursors:
            self.sought(partition, offset)
        elif left is not None:
            left.starts = (left.starts if left.position is None else frozenset({left.position})) | {offset}
            left.position, left.owed, left.back = None, None, min(left.back, offset)

    def sought(self, partition: TopicPartition, offset: int) -> None:
        """The application reads on from ``offset``."""
        cursor = self.cursors[partition]
        cursor.position, cursor.halted, cursor.owed, cursor.shared = offset, False, None, False
        cursor.unsure, cursor.doubtful = False, cursor.doubtful or cursor.former
        # Nothing that was fetched before comes now, and a place in the former topic is the beginning of the new one.
        if cursor.doubtful:
            cursor.position, cursor.former, cursor.starts = None, False, frozenset({offset, 0})
        cursor.most = max(cursor.most, offset)
        cursor.back = min(cursor.back, offset)
        cursor.least = min(cursor.least, offset)
        self.see_again()

    def paused(self, partition: TopicPartition, paused: bool) -> None:
        if partition in self.cursors:  # not if the call-back that gives it up has returned, and the next read carries on from there
            self.cursors[partition].paused = paused
        self.see_again()

    # --- committing ------------------------------------------------------------------------------------------------------------

    def all_done(self) -> None:
        """All records handed out are done: a clean stop, an unsubscribe, a commit of everything."""
        for cursor in self.cursors.values():
            if cursor.position is not None:
                cursor.done = cursor.position
                cursor.most = max(cursor.most, cursor.position)

    def another_task_done(self) -> None:
        """The records that it was handed may be committed."""
        for cursor in self.cursors.values():
            if cursor.position is not None:
                cursor.most = max(cursor.most, cursor.position)

    def another_task_acts(self) -> None:
        """A task that gives partitions up, or seeks in them, does not commit what the reader holds."""
        for cursor in self.cursors.values():
            cursor.owed = None

    def another_task_ended(self, *, known: bool) -> None:
        """A task that read besides the program's own has ended well: the records that it was last handed may be committed from
        now on, and must be if it is ``known`` how it ended.
        """
        self.two_read = False
        self.another_task_done()
        for cursor in self.cursors.values():
            if cursor.shared and known:
                cursor.shared, cursor.owed = False, cursor.position

    def commit_called(self, offsets: Mapping[TopicPartition, int] | None = None) -> dict[TopicPartition, int]:
        """The application commits ``offsets``, or everything; return what must have been committed when the call returns."""
        known = {tp: cursor.position for tp, cursor in self.cursors.items() if cursor.position is not None}
        wanted = known if offsets is None else offsets
        former = {
            tp
            for tp, cursor in self.cursors.items()
            if cursor.former or cursor.doubtful or (cursor.position is None and len(cursor.starts) > 1)
        }
        for known_cursor in self.cursors.values() if offsets is None else ():
            known_cursor.asked |= known_cursor.due
        for partition, offset in wanted.items():
            cursor = self.cursors.get(partition)
            if cursor is not None:
                cursor.asked.add(offset)
                cursor.owed, cursor.shared = None, False
                cursor.most = max(cursor.most, offset)
        return {tp: offset for tp, offset in wanted.items() if tp not in former}

    def commit_arrived(self, partition: TopicPartition, offset: int) -> None:
        """The coordinator has stored an offset of ours."""
        cursors = [found for found in (self.cursors.get(partition), self.parting.get(partition)) if found is not None]
        complaints = [self._complaint(cursor, offset) for cursor in cursors]
        if cursors and all(complaints):
            self.breach(f"{_name(partition)}: {complaints[0]}")
        for cursor in cursors:
            cursor.least = min(offset, cursor.back)
            if cursor.position is None:
                cursor.starts |= {offset}  # of a commit that was under way when the partition was assigned
        left = self._left.get(partition)
        if not cursors and left is not None and left.position is not None and offset not in left.asked:
            # A commit from before the application sought back may still be under way, followed by that of where it sought to.
            most = left.position if left.back == inf else max(left.position, left.most)
            if offset > most:
                self.breach(f"{_name(partition)}: {offset} was committed after it was given up at {left.position}")

    def commit_refused(self, partition: TopicPartition, start: int) -> None:
        """The coordinator has refused an offset of ours. A partition given up with it may begin at ``start``, its commit."""
        cursor = self.cursors.get(partition)
        if cursor is not None and cursor.position is None:
            cursor.starts |= {start}
            cursor.least = min(cursor.least, start)

    @staticmethod
    def _complaint(cursor: Cursor, offset: int) -> str:
        if offset in cursor.asked:
            return ""
        if offset > cursor.most:
            return f"{offset} was committed where only what is before {cursor.most} was done"
        return f"{offset} was committed after {cursor.least}" if offset < cursor.least else ""

    # --- rebalances ------------------------------------------------------------------------------------------------------------

    def call_back_begins(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        """``revoked``, ``assigned`` or ``lost`` was called."""
        if self._calling:
            self.breach(f"{kind} was called while {self._calling[-1]} was at work")
        self._calling.append(kind)
        if kind == "assigned" and (have := set(partitions) & self.cursors.keys()):
            self.breach(f"assigned again: {_names(have)}")
        if kind == "assigned" and self.parting:
            self.breach(f"assigned before revoked was called for what unsubscribe gave up: {_names(self.parting)}")
            self.parting.clear()
        if kind != "assigned" and (strange := set(partitions) - self.cursors.keys() - self.parting.keys()):
            self.breach(f"{kind} without being assigned: {_names(strange)}")
        for partition in partitions:
            if partition in self.cursors and partition not in self.parting:
                self.cursors[partition].ready = False
                if kind == "lost":
                    self.cursors[partition].owed = None  # what was handed out of it cannot be committed any more
                if kind == "revoked" and self.cursors[partition].lost:
                    self.breach(f"{_name(partition)}: revoked was called where lost should have been")

    def call_back_ends(self, kind: str, *, well: bool = True) -> None:
        """The call-back returned; not ``well``: it was cancelled, which only a stop may do, once its time is over."""
        if kind in self._calling:
            self._calling.remove(kind)
        if not well and not self.stopped:
            self.breach(f"the call-back {kind} was cancelled with the call that it ran in")

    def assigned(self, starts: Mapping[TopicPartition, int], generation: int = 0) -> set[TopicPartition]:
        """Partitions are ours; each is read from its offset in ``starts``, or from where it was left if no other member had it.

        None of their records may come before ``ready``. Return those that may be paused or not, since nobody can know whether they
        stayed.
        """
        unsure = set()
        for partition, committed in starts.items():
            left = self._left.pop(partition, None)
            possible, paused, halted, shared, former = frozenset({committed}), False, False, False, False
            if left is not None:
                kept, shared = left.starts if left.position is None else frozenset({left.position}), left.shared
                if self.eager and generation <= left.generation + 1:
                    possible, paused, halted, former = kept, left.paused, left.halted, left.former
                else:
                    possible |= kept
                    unsure.add(partition)
            self.cursors[partition] = Cursor(
                possible,
                most=max(possible),
                least=min(committed, *possible),
                ready=False,
                paused=paused,
                halted=halted,
                shared=shared,
                former=former,
                old=dict.fromkeys(range(self.topic), possible) if former else {},
            )
            self.see_again(partition)
        return unsure

    def ready(self, partitions: Iterable[TopicPartition]) -> None:
        """``on_partitions_assigned`` has returned."""
        for partition in partitions:
            if partition in self.cursors:
                self.cursors[partition].ready = True
                self.see_again(partition)

    def revoked(self, partitions: Iterable[TopicPartition], *, lost: bool = False, generation: int = 0) -> None:
        """Partitions are not ours any more."""
        for partition in partitions:
            if self.parting.pop(partition, None) is not None:
                continue
            cursor = self.cursors.pop(partition, None)
            if cursor is not None and not lost:
                self._left[partition] = left = Left(cursor.position, cursor.starts, cursor.paused, generation, cursor.asked)
                left.halted, left.shared, left.former = cursor.halted, cursor.shared, cursor.former
            self.see_again(partition)

    def unsubscribed(self) -> None:
        """The application gave everything up; the listener is called once there is a call for it to run in."""
        self.all_done()
        for partition, cursor in self.cursors.items():
            self.parting.setdefault(partition, cursor)
            self._left[partition] = Left(cursor.position, cursor.starts, False, ANOTHER_LIFE, cursor.asked)
            self._left[partition].most, self._left[partition].owed, self._left[partition].back = (
                cursor.most,
                cursor.owed,
                cursor.back,
            )
            self._left[partition].gone = cursor.gone
        self.cursors.clear()
        self.see_again()

    def assigned_by_user(self, starts: Mapping[TopicPartition, int], *, owed: bool = False) -> None:
        """The application reads exactly these partitions; those that it read before go on.

        ``owed``: what was handed out of partitions that it gave up was committed before their new positions are asked for.
        """
        self.all_done()
        for partition, cursor in self.cursors.items():
            if partition not in starts:
                self._left[partition] = left = Left(cursor.position, cursor.starts, False, ANOTHER_LIFE, cursor.asked)
                left.most, left.owed, left.back = cursor.most, cursor.owed, cursor.back
                if (before := self.parting.get(partition)) is not None:  # the place that was sought meanwhile may be committed
                    before.least, before.back = min(before.least, cursor.back), min(before.back, cursor.back)
        self.cursors = {tp: self.cursors.get(tp) or self._fresh(tp, start, owed=owed) for tp, start in starts.items()}

    def others_committed(self, partition: TopicPartition, offset: int) -> None:
        """Somebody else committed for a partition that the consumer takes for its own; it may begin there."""
        cursor = self.cursors.get(partition)
        if cursor is not None and cursor.position is None:
            cursor.starts |= {offset}
            cursor.most = max(cursor.most, offset)

    def _fresh(self, partition: TopicPartition, start: int, *, owed: bool) -> Cursor:
        left = self._left.pop(partition, None)
        kept = start if left is None or left.position is None else left.position
        most = start if left is None else max(start, left.most)
        self.see_again(partition)
        begins = left.owed if owed and left is not None and left.owed is not None else start
        ahead = {offset for offset in (left.asked if left is not None else ()) if offset > begins}  # auto-commit goes back to none
        ahead |= {start} if left is not None and left.gone else set()
        # A commit from before the application sought back may still be under way, followed by that of the offset it sought to.
        back = inf if left is None else left.back
        return Cursor(frozenset({begins, *ahead}), most=max(kept, most), least=min(kept, start), back=back)

    def made_anew(self, partitions: Iterable[TopicPartition]) -> None:
        """The topic was deleted and created again: what was fetched of the former one may come, then all of the new one."""
        for partition in partitions:
            for cursor in (self.cursors.get(partition), self.parting.get(partition)):
                if cursor is not None:
                    between = {**cursor.old, self.topic: frozenset({0})}  # nothing of the topic in between has come yet
                    cursor.starts = cursor.due | {0}
                    cursor.old = between if cursor.former else {self.topic: cursor.due}
                    cursor.position, cursor.done, cursor.owed, cursor.most, cursor.least = None, None, None, 0, 0
                    cursor.former, cursor.halted = True, False
                    cursor.asked = set()
            left = self._left.get(partition)
            if left is not None:
                left.starts = (left.starts if left.position is None else frozenset({left.position})) | {0}
                left.position, left.owed, left.most, left.asked, left.former, left.halted = None, None, 0, set(), True, False
        self.topic += 1
        self.see_again()

    def begun_anew(self) -> None:
        """A new consumer takes the place of one that has stopped."""
        if self.parting:
            self.breach(f"revoked was never called for what unsubscribe gave up: {_names(self.parting)}")
        self.cursors.clear()
        self.parting.clear()
        self._left.clear()
        self._sightings.clear()
        self.stopped = False

    def taken(self, partitions: Iterable[TopicPartition]) -> None:
        """Another member owns these, or owned them for a moment: they come back with what is committed."""
        for partition in partitions:
            self._left.pop(partition, None)

    def gone(self, partitions: Iterable[TopicPartition], *, lost: bool = False) -> None:
        """These belong to others, and the consumer has had the time to notice: the next thing is the call-back.

        ``lost``: they were taken from it without its consent, and it knows that.
        """
        for partition in partitions:
            if partition in self.cursors:
                self.cursors[partition].gone = True
                self.cursors[partition].lost |= lost


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(map(_name, partitions)))
