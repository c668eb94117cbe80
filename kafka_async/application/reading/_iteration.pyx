# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=True
"""``async for``, and turns, in Cython: the fast half of a pair; ``iteration.py`` and ``turns.py`` are the readable half and document
the contract.

Decides, owns and must never do what is written there. Only the way is different: a generator suspends a frame for each record,
while a ``Step`` returns the record at once; and a turn in which records are only decoded stays in C. Rare cases use the same Python
code: a step without a record stands for the coroutine that waits for more, and whatever is unusual in a turn is what
``turns.Supply`` does.
"""

from collections import OrderedDict
from threading import get_ident

from ...errors import CorruptRecordException, UnsupportedCodecError

cimport cython
from cpython.object cimport PyObject

cdef extern from *:
    """
    /* With am_send an awaitable hands its result over without an exception. Cython has no word for that slot. */
    static void set_am_send(PyObject *type, void *send) {
        ((PyTypeObject *)type)->tp_as_async->am_send = (sendfunc)send;
    }
    """
    void set_am_send(object, void*)

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PyObject* PyDict_GetItem(object, object)
    PySendResult PyIter_Send(PyObject*, PyObject*, PyObject**) noexcept
    unsigned long PyThread_get_thread_ident() noexcept
    void Incref "Py_INCREF"(PyObject*)
    void Decref "Py_DECREF"(PyObject*)
    Py_ssize_t Refcount "Py_REFCNT"(PyObject*) noexcept


cdef extern from *:
    """
    #include <time.h>
    /* Coarse: 4 ns instead of 20, and no more than a tick (4 ms) behind. Linux has it; elsewhere the given clock is asked. */
    static double coarse_monotonic(void) {
    #ifdef CLOCK_MONOTONIC_COARSE
        struct timespec now;
        if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0)
            return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    #endif
        return -1.0;
    }
    """
    double coarse_monotonic() noexcept


cdef class Portion:
    """See ``iteration.Portion``."""

    cdef public list records
    cdef public list raw
    cdef public Py_ssize_t place
    cdef public object start
    cdef public object end
    cdef public object beginning

    def __init__(self, list records, list raw, start, end):
        self.records = records
        self.raw = raw
        self.place = 0
        self.start = start
        self.end = end
        self.beginning = None

    def discard(self):
        """See ``iteration.Portion.discard``."""
        self.records = []
        self.place = 0


cdef class Hand:
    """See ``iteration.Hand``."""

    cdef public object holder
    cdef public object last
    cdef public object beginning
    cdef public dict ranges
    cdef object __weakref__

    def __init__(self, holder):
        self.holder = holder
        self.last = None
        self.beginning = None
        self.ranges = {}


cdef class HandOut:
    """See ``iteration.HandOut``."""

    cdef public Portion portion
    cdef public Hand hand
    cdef list following
    cdef Py_ssize_t at
    cdef object current
    cdef dict running
    cdef object loop
    cdef long long attention
    cdef long long seen
    cdef double look_at
    cdef unsigned long thread
    cdef bint system_clock
    cdef object clock

    def __init__(self, clock=None):
        self.portion = Portion([], [], (0, None), (0, None))
        self.hand = Hand(None)
        self.following = []
        self.at = 0
        self.current = get_ident
        self.running = None
        self.loop = None
        self.attention = 0
        self.seen = 0
        self.look_at = float("-inf")
        self.thread = 0
        self.system_clock = False
        self.clock = clock

    def set_clock(self, clock, *, monotonic):
        """See ``iteration.HandOut.set_clock``."""
        self.clock = clock
        self.system_clock = monotonic and coarse_monotonic() >= 0.0

    def set_callers(self, current, running=None, loop=None):
        """See ``iteration.HandOut.set_callers``."""
        self.current = current
        self.running = running
        self.loop = loop

    cdef object find_caller(self):
        cdef PyObject* task
        if self.running is not None:
            task = PyDict_GetItem(self.running, self.loop)
            if task != NULL:
                return <object>task
        return self.current()

    def caller(self):
        """See ``iteration.HandOut.caller``."""
        return self.find_caller()

    def attend(self):
        """See ``iteration.HandOut.attend``."""
        self.attention += 1

    def looked(self):
        """See ``iteration.HandOut.looked``."""
        return self.attention

    def load(self, list portions, Hand hand, long long looked, double look_at):
        """See ``iteration.HandOut.load``."""
        if not portions:
            raise IndexError("no portions to hand out")
        self.portion = portions[0]
        self.following = portions
        self.at = 1
        self.hand = hand
        self.seen = looked
        self.look_at = look_at
        self.thread = PyThread_get_thread_ident()

    cdef bint is_calm(self) except -1:
        if self.attention != self.seen or self.clock is None or self.thread != PyThread_get_thread_ident():
            return False
        if self.system_clock:
            return coarse_monotonic() < self.look_at
        return self.clock() < self.look_at

    @property
    def calm(self):
        """See ``iteration.HandOut.calm``."""
        return bool(self.is_calm())

    cdef bint go_on(self) except -1:
        cdef Portion portion = self.portion
        while portion.place >= len(portion.records):
            if self.at >= len(self.following):
                return False
            portion = self.following[self.at]
            self.portion = portion
            self.at += 1
        return True

    @property
    def has_more(self):
        """See ``iteration.HandOut.has_more``."""
        return bool(self.go_on())

    @property
    def left(self):
        """See ``iteration.HandOut.left``."""
        cdef Portion portion = self.portion
        cdef Py_ssize_t found = len(portion.records) - portion.place
        for portion in self.following[self.at :]:
            found += len(portion.records) - portion.place
        return found


cdef class RecordIterator:
    """See ``iteration.RecordIterator``."""

    cdef HandOut handout
    cdef object refill
    cdef Step used
    cdef object __weakref__

    def __init__(self, HandOut handout, refill):
        self.handout = handout
        self.refill = refill

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Step step = self.used
        if step is None:
            step = Step.__new__(Step)
        else:
            self.used = None
        step.iterator = self
        step.caller = self.handout.find_caller()
        return step

    async def aclose(self):
        """See ``iteration.RecordIterator.aclose``."""


@cython.final
@cython.freelist(8)
cdef class Step:
    """Awaitable: one step of an iteration. It may be awaited once."""

    cdef RecordIterator iterator
    cdef object caller
    cdef object coroutine

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        """Go on, as a coroutine does: return what to wait for, or raise ``StopIteration`` with the record."""
        cdef PyObject* result = NULL
        cdef PySendResult outcome = step_send(self, value, &result)
        answer = <object>result
        Decref(result)
        if outcome == PYGEN_RETURN:
            raise StopIteration(answer)
        return answer

    def throw(self, *error):
        """Raise ``error`` where the step waits."""
        return self.waiting().throw(*error)

    def close(self):
        """End the step; what it waited for is not lost."""
        if self.coroutine is not None:
            self.coroutine.close()

    cdef object waiting(self):
        if self.coroutine is None:
            self.coroutine = self.iterator.refill(self.caller)
        return self.coroutine


cdef PySendResult step_send(Step step, object value, PyObject** result) except PYGEN_ERROR:
    cdef HandOut handout = step.iterator.handout
    cdef Portion portion
    cdef Hand hand = handout.hand
    if step.coroutine is None and hand.holder is step.caller and handout.is_calm() and handout.go_on():
        portion = handout.portion
        record = portion.records[portion.place]
        portion.place += 1
        hand.last = record
        hand.beginning = portion.beginning
        if Refcount(<PyObject*>step) == 1:  # nobody has it but the await that ends now: it serves the next step
            step.iterator.used = step
            step.iterator = None
        result[0] = <PyObject*>record
        Incref(result[0])
        return PYGEN_RETURN
    coroutine = step.waiting()
    return PyIter_Send(<PyObject*>coroutine, <PyObject*>value, result)


set_am_send(Step, <void*>step_send)


# Turns.

cdef enum:
    ROUND = 8000  # as in turns.py
    READY = 1000
    TURN_BYTES = 1024 * 1024

cdef object OURS  # PartitionCustody.OURS: cursor.py imports this module


cdef class Turn:
    """See ``turns.Turn``."""

    cdef public Py_ssize_t records
    cdef public Py_ssize_t bytes
    cdef public Py_ssize_t held
    cdef public bint counted


cdef bint is_readable(cursor, only) except -1:
    return cursor.custody is OURS and not cursor.paused and (not only or cursor.partition in only)


cdef object front(cursor):
    """As ``Cursor.front``, without a call for the usual pieces."""
    cdef Portion portion
    ahead = cursor.ahead
    while ahead:
        piece = ahead[0]
        if type(piece) is not Portion:
            return piece
        portion = <Portion>piece
        if portion.place < len(portion.records):
            return piece
        ahead.popleft()
        cursor.passed_records += portion.place
    return None


cdef object end_of(decoding, before):
    """Return the position past what was decoded; ``before``: the position before it."""
    epoch = decoding.epoch
    return decoding.next_offset, epoch if epoch >= 0 else before[1]


@cython.final
cdef class _Walk:
    """The partitions that may be read, in the order of their turns, each once: ``Turns.readable``, one after the other."""

    cdef Turns turns
    cdef object only
    cdef list order
    cdef Py_ssize_t at
    cdef list ended
    cdef object first
    cdef object second
    cdef bint begun
    cdef bint alone  # whether the one that ``next`` returned is the only one

    cdef object search(self):
        while self.at < len(self.order):
            cursor = self.order[self.at]
            self.at += 1
            if is_readable(cursor, self.only):
                return cursor
        return None

    cdef int begin(self) except -1:
        self.begun = True
        if len(self.order) > 1 and self.turns.rounds_left <= 0:
            self.turns.begin_round()
        self.first, self.second = self.search(), self.search()
        self.alone = self.second is None
        # Records that were decoded in a turn belong to it, so it has not ended before they are handed out.
        while not self.alone and self.first is not None and front(self.first) is None and self.turns.end_turn(self.first):
            self.ended.append(self.first)
            self.first, self.second = self.second, self.search()
        return 0

    cdef object next(self):
        """Return the next partition; ``None``: there are no more."""
        if not self.begun:
            self.begin()
        cursor = self.first
        if cursor is not None:
            self.first, self.second = self.second, None
            return cursor
        cursor = self.search()
        if cursor is None and self.ended:
            self.order, self.at, self.ended = self.ended, 0, []
            cursor = self.search()
        return cursor


cdef class Turns:
    """See ``turns.Turns``."""

    cdef public object line
    cdef object supply
    cdef Py_ssize_t most_held
    cdef Py_ssize_t held
    cdef Py_ssize_t most
    cdef Py_ssize_t longest
    cdef Py_ssize_t longest_before
    cdef Py_ssize_t rounds_left

    def __init__(self, supply, Py_ssize_t most_held):
        global OURS
        from .cursor import PartitionCustody

        OURS = PartitionCustody.OURS
        self.line = OrderedDict()
        self.supply = supply
        self.most_held = most_held
        self.held = 0
        self.most = ROUND
        self.longest = 1
        self.longest_before = 1
        self.rounds_left = 0

    def join(self, cursor):
        """See ``turns.Turns.join``."""
        cdef Py_ssize_t length
        if cursor not in self.line:
            self.line[cursor] = Turn()
            length = len(self.line)
            if length > self.longest:
                self.longest = length
                self.share_out()

    def leave(self, cursor):
        """See ``turns.Turns.leave``."""
        cdef Turn turn = self.line.pop(cursor, None)
        if turn is not None:
            self.rounds_left -= turn.counted
            self.held -= turn.held

    def rejoin(self, cursor):
        """See ``turns.Turns.rejoin``."""
        cdef Turn turn = self.line.get(cursor)
        if turn is not None:
            self.line.move_to_end(cursor)
            turn.records = turn.bytes = 0
            self.rounds_left -= turn.counted
            turn.counted = False

    cdef _Walk walk(self, only):
        cdef _Walk walk = _Walk.__new__(_Walk)
        walk.turns = self
        walk.only = only
        walk.order = list(self.line)
        walk.ended = []
        return walk

    def readable(self, only):
        """See ``turns.Turns.readable``."""
        cdef _Walk walk = self.walk(only)
        while (cursor := walk.next()) is not None:
            yield cursor, walk.alone

    cdef int begin_round(self) except -1:
        cdef Turn turn
        self.rounds_left = 0
        for cursor, turn in self.line.items():
            turn.counted = is_readable(cursor, ())
            self.rounds_left += turn.counted
        self.longest_before, self.longest = self.longest, len(self.line)
        self.share_out()
        return 0

    cdef void share_out(self):
        self.most = max(1, ROUND // max(self.longest, self.longest_before))

    cdef Py_ssize_t left_of(self, Turn turn):
        return max(1, self.most - turn.records)

    def left(self, Turn turn):
        """See ``turns.Turns.left``."""
        return self.left_of(turn)

    @staticmethod
    def is_long(Turn turn, read):
        """See ``turns.Turns.is_long``."""
        return turn.bytes + (0 if read is None else read.size) >= TURN_BYTES

    def end_if_over(self, cursor):
        """See ``turns.Turns.end_if_over``."""
        return bool(self.end_turn(cursor))

    cdef bint end_turn(self, cursor) except -1:
        cdef PyObject* found = PyDict_GetItem(self.line, cursor)
        cdef Turn turn
        cdef Py_ssize_t held
        if found == NULL:
            return False
        turn = <Turn>found
        if turn.records < self.most and turn.bytes < TURN_BYTES:
            return False
        self.line.move_to_end(cursor)
        turn.records = turn.bytes = 0
        reader = cursor.reader
        held = 0 if reader is None else reader.decoding.held
        if held or turn.held:
            self.hold(turn, held)
            if self.held > self.most_held and turn.held:
                cursor.reader = None
                self.hold(turn, 0)
        self.rounds_left -= 1
        turn.counted = False
        return True

    cdef void hold(self, Turn turn, Py_ssize_t held):
        self.held += held - turn.held
        turn.held = held

    def take(self, Py_ssize_t max_records, only, dict before, dict batch, of=None):
        """See ``turns.Turns.take``."""
        cdef Py_ssize_t left = max_records, wanted
        cdef _Walk walk
        cdef list records
        while left > 0:
            wanted = left
            walk = self.walk(only)
            while (cursor := walk.next()) is not None:
                if of is None and not cursor.ahead and cursor.taken_to is not None:
                    if PyDict_GetItem(before, cursor) == NULL:
                        before[cursor] = (cursor.taken_to, cursor.passed_records)
                    records = self.decoded(cursor, left, walk.alone)
                else:
                    if PyDict_GetItem(before, cursor) == NULL:
                        before[cursor] = self.supply.stand(cursor)
                    if of is None:
                        records = self.supply.decode(cursor, left, [], alone=walk.alone)
                    else:
                        records = of(cursor, left, walk.alone)
                if records:
                    partition = cursor.partition
                    known = batch.get(partition)
                    batch[partition] = records if known is None else known + records
                    left -= len(records)
                self.settle(cursor)
                if left <= 0:
                    return
            if left == wanted:
                return

    cdef list decoded(self, cursor, Py_ssize_t max_records, bint alone):
        """As ``Supply.decode`` if nothing is ahead: what one read of the data brings, and only then more."""
        cdef PyObject* found = PyDict_GetItem(self.line, cursor)
        cdef Py_ssize_t most = max_records, count
        cdef Turn turn
        cdef list records
        reader = cursor.reader
        decoding = None if reader is None else reader.decoding
        if found == NULL or decoding is None or decoding.exhausted:
            return self.supply.decode(cursor, max_records, [], alone=alone)
        turn = <Turn>found
        if not alone:
            most = min(most, self.left_of(turn))
        try:
            records = decoding.read(most)
        except (CorruptRecordException, UnsupportedCodecError) as error:
            self.supply.corrupt(cursor, reader.located(error))
            return []
        count = len(records)
        turn.records += count
        cursor.taken_to = end_of(decoding, cursor.taken_to)
        cursor.passed_records += count
        if count == most or (
            count and decoding.exhausted and (not cursor.parcels or (not alone and Turns.is_long(turn, cursor.data)))
        ):
            return records
        return self.supply.decode(cursor, max_records, records, alone=alone)

    cdef int settle(self, cursor) except -1:
        """As ``Supply.settle_turn`` while there is more of what is being read."""
        reader = cursor.reader
        if reader is None or cursor.data is None or cursor.ahead or reader.decoding.exhausted:
            self.supply.settle_turn(cursor)
        else:
            self.end_turn(cursor)
        return 0

    def portions(self, Py_ssize_t max_records, only, dict before, *, bint decode, bint alone):
        """See ``turns.Turns.portions``."""
        cdef Py_ssize_t left = max_records
        cdef _Walk walk = self.walk(only)
        cdef list found = []
        cdef Portion portion
        while (cursor := walk.next()) is not None:
            piece = front(cursor)
            if piece is None and decode and (cursor.data is not None or cursor.parcels):
                self.put_ahead(cursor, min(left, READY), before, walk.alone)
                piece = front(cursor)
            if piece is None:
                self.settle(cursor)
            elif (reader := cursor.reader) is not None and reader.decoding.exhausted:
                self.supply.settle_turn(cursor)
            if type(piece) is Portion:
                portion = <Portion>piece
                portion.beginning = cursor.beginning
                found.append(portion)
                left -= len(portion.records) - portion.place
                if alone or left <= 0:
                    break
        return found

    cdef int put_ahead(self, cursor, Py_ssize_t max_records, dict before, bint alone) except -1:
        """As ``Supply.put_ahead`` if the next records follow those before them in what is being read."""
        cdef Portion portion
        cdef list records
        cdef PyObject* found = PyDict_GetItem(self.line, cursor)
        cdef Turn turn
        reader, start = cursor.reader, cursor.taken_to
        decoding = None if reader is None else reader.decoding
        if found == NULL or decoding is None or start is None or decoding.exhausted or cursor.ahead:
            self.supply.put_ahead(cursor, max_records, before, alone=alone, ready=True)
            return 0
        turn = <Turn>found
        if not alone:
            max_records = min(max_records, self.left_of(turn))
        before[cursor] = (start, cursor.passed_records)
        try:
            records = decoding.read(max_records)
        except (CorruptRecordException, UnsupportedCodecError) as error:
            self.supply.corrupt(cursor, reader.located(error))
            before.pop(cursor, None)
            return 0
        turn.records += len(records)
        cursor.taken_to = end_of(decoding, start)
        if records:
            portion = Portion.__new__(Portion)
            portion.records = portion.raw = records
            portion.start, portion.end = start, cursor.taken_to
            cursor.ahead.append(portion)
        before.pop(cursor, None)
        if not records:  # what was left are records that are not handed out
            self.supply.put_ahead(cursor, max_records, before, alone=alone, ready=True)
        return 0
