# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=True
"""``async for``, and turns, in Cython: the fast half of a pair; ``iteration.py`` and ``turns.py`` are the readable half and document
the contract.

Only the way is different: a generator suspends a frame for each record,
while a ``Step`` returns the record at once; and a turn in which records are only decoded stays in C. Rare cases use the same Python
code: a step without a record stands for the coroutine that waits for more, and whatever is unusual in a turn is what
``turns.Supply`` does.
"""

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
    """See ``turns.Turn``. Knows who comes before and after in line."""

    cdef public Py_ssize_t records
    cdef public Py_ssize_t bytes
    cdef public Py_ssize_t held
    cdef public bint counted
    cdef object cursor
    cdef Turn before
    cdef Turn after


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


@cython.final
cdef class _Walk:
    """The partitions that may be read, in the order of their turns, each once: ``Turns.readable``, one after the other."""

    cdef Turns turns
    cdef object only
    cdef Turn at
    cdef Turn last
    cdef list ended
    cdef Turn first
    cdef Turn second
    cdef bint begun
    cdef bint alone  # whether the one that ``next`` returned is the only one

    cdef Turn search(self):
        cdef Turn turn
        while (turn := self.at) is not None:
            # Whoever has had its turn goes to the end of the line, past the one that was last.
            self.at = None if turn is self.last else turn.after
            if is_readable(turn.cursor, self.only):
                return turn
        return None

    cdef int begin(self) except -1:
        self.begun = True
        if self.at is not self.last and self.turns.rounds_left <= 0:
            self.turns.begin_round()
        self.first, self.second = self.search(), self.search()
        self.alone = self.second is None
        # Records that were decoded in a turn belong to it, so it has not ended before they are handed out.
        while not self.alone and self.first is not None and front(self.first.cursor) is None and self.turns.end_turn(self.first):
            self.ended.append(self.first)
            self.first, self.second = self.second, self.search()
        return 0

    cdef Turn next(self):
        """Return the next one in line; ``None``: there are no more."""
        cdef Turn turn
        if not self.begun:
            self.begin()
        turn = self.first
        if turn is not None:
            self.first, self.second = self.second, None
            return turn
        turn = self.search()
        if turn is None and self.ended:
            turn = self.ended.pop(0)
        return turn


cdef class Turns:
    """See ``turns.Turns``."""

    cdef readonly dict line
    cdef Turn head
    cdef Turn tail
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
        self.line = {}
        self.head = self.tail = None
        self.supply = supply
        self.most_held = most_held
        self.held = 0
        self.most = ROUND
        self.longest = 1
        self.longest_before = 1
        self.rounds_left = 0

    cdef void put_last(self, Turn turn):
        turn.before, turn.after = self.tail, None
        if self.tail is None:
            self.head = turn
        else:
            self.tail.after = turn
        self.tail = turn

    cdef void take_out(self, Turn turn):
        if turn.before is None:
            self.head = turn.after
        else:
            turn.before.after = turn.after
        if turn.after is None:
            self.tail = turn.before
        else:
            turn.after.before = turn.before
        turn.before = turn.after = None

    cdef void move_to_end(self, Turn turn):
        if turn is not self.tail:
            self.take_out(turn)
            self.put_last(turn)

    def join(self, cursor):
        """See ``turns.Turns.join``."""
        cdef Turn turn
        cdef Py_ssize_t length
        if cursor not in self.line:
            turn = Turn.__new__(Turn)
            turn.cursor = cursor
            self.line[cursor] = turn
            self.put_last(turn)
            length = len(self.line)
            if length > self.longest:
                self.longest = length
                self.share_out()

    def leave(self, cursor):
        """See ``turns.Turns.leave``."""
        cdef Turn turn = self.line.pop(cursor, None)
        if turn is not None:
            self.take_out(turn)
            self.rounds_left -= turn.counted
            self.held -= turn.held

    def rejoin(self, cursor):
        """See ``turns.Turns.rejoin``."""
        cdef Turn turn = self.line.get(cursor)
        if turn is not None:
            self.move_to_end(turn)
            turn.records = turn.bytes = 0
            self.rounds_left -= turn.counted
            turn.counted = False

    cdef _Walk walk(self, only):
        cdef _Walk walk = _Walk.__new__(_Walk)
        walk.turns = self
        walk.only = only
        walk.at, walk.last = self.head, self.tail
        walk.ended = []
        return walk

    def readable(self, only):
        """See ``turns.Turns.readable``."""
        cdef _Walk walk = self.walk(only)
        cdef Turn turn
        while (turn := walk.next()) is not None:
            yield turn.cursor, walk.alone

    cdef int begin_round(self) except -1:
        cdef Turn turn
        self.rounds_left = 0
        for turn in self.line.values():
            turn.counted = is_readable(turn.cursor, ())
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
        cdef Turn turn = self.line.get(cursor)
        return turn is not None and bool(self.end_turn(turn))

    cdef bint end_turn(self, Turn turn) except -1:
        cdef Py_ssize_t held
        if turn.records < self.most and turn.bytes < TURN_BYTES:
            return False
        self.move_to_end(turn)
        turn.records = turn.bytes = 0
        reader = turn.cursor.reader
        held = 0 if reader is None else reader.decoding.held
        if held or turn.held:
            self.hold(turn, held)
            if self.held > self.most_held and turn.held:
                turn.cursor.reader = None
                self.hold(turn, 0)
        self.rounds_left -= 1
        turn.counted = False
        return True

    cdef void hold(self, Turn turn, Py_ssize_t held):
        self.held += held - turn.held
        turn.held = held

    def take(self, Py_ssize_t max_records, only, dict before, dict batch, of, *, bint plain):
        """See ``turns.Turns.take``."""
        cdef Py_ssize_t left = max_records, wanted
        cdef _Walk walk
        cdef Turn turn
        cdef list records
        while left > 0:
            wanted = left
            walk = self.walk(only)
            while (turn := walk.next()) is not None:
                cursor = turn.cursor
                if PyDict_GetItem(before, cursor) == NULL:
                    if cursor.ahead or cursor.taken_to is None:
                        before[cursor] = self.supply.stand(cursor)
                    else:
                        before[cursor] = (cursor.taken_to, cursor.passed_records)
                if plain and not cursor.ahead:
                    records = self.decode(turn, left, walk.alone)
                    cursor.passed_records += len(records)
                else:
                    records = of(cursor, left, walk.alone)
                if records:
                    partition = cursor.partition
                    known = batch.setdefault(partition, records)
                    if known is not records:
                        batch[partition] = known + records
                    left -= len(records)
                self.settle(turn)
                if left <= 0:
                    return
            if left == wanted:
                return

    cdef list decode(self, Turn turn, Py_ssize_t max_records, bint alone):
        """As ``Supply.decode``: what one read of the data brings, and then more if that is not enough."""
        cdef Py_ssize_t most = max_records, count
        cdef list records
        cursor = turn.cursor
        reader, before = cursor.reader, cursor.taken_to
        decoding = None if reader is None or before is None else reader.decoding
        if decoding is None or decoding.exhausted:
            return self.supply.decode(cursor, max_records, [], alone=alone)
        if not alone:
            most = min(most, self.left_of(turn))
        try:
            records = decoding.read(most)
        except (CorruptRecordException, UnsupportedCodecError) as error:
            self.supply.corrupt(cursor, reader.located(error))
            return []
        count = len(records)
        turn.records += count
        epoch = decoding.epoch
        cursor.taken_to = (decoding.next_offset, epoch if epoch >= 0 else before[1])
        if count == most or (
            count and decoding.exhausted and (not cursor.parcels or (not alone and Turns.is_long(turn, cursor.data)))
        ):
            return records
        return self.supply.decode(cursor, max_records, records, alone=alone)

    cdef int settle(self, Turn turn) except -1:
        """As ``Supply.settle_turn`` while there is more of what is being read."""
        cursor = turn.cursor
        reader = cursor.reader
        if reader is None or cursor.data is None or cursor.ahead or reader.decoding.exhausted:
            self.supply.settle_turn(cursor)
        else:
            self.end_turn(turn)
        return 0

    def portions(self, Py_ssize_t max_records, only, dict before, *, bint decode, bint alone):
        """See ``turns.Turns.portions``."""
        cdef Py_ssize_t left = max_records
        cdef _Walk walk = self.walk(only)
        cdef list found = []
        cdef Portion portion
        cdef Turn turn
        while (turn := walk.next()) is not None:
            cursor = turn.cursor
            piece = front(cursor)
            if piece is None and decode and (cursor.data is not None or cursor.parcels):
                self.put_ahead(turn, min(left, READY), before, walk.alone)
                piece = front(cursor)
            if piece is None:
                self.settle(turn)
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

    cdef int put_ahead(self, Turn turn, Py_ssize_t max_records, dict before, bint alone) except -1:
        """As ``Supply.put_ahead`` if the next records follow those before them in what is being read."""
        cdef Portion portion
        cdef list records
        cursor = turn.cursor
        reader, start = cursor.reader, cursor.taken_to
        if reader is None or start is None or cursor.ahead or reader.decoding.exhausted:
            self.supply.put_ahead(cursor, max_records, before, alone=alone, ready=True)
            return 0
        before[cursor] = (start, cursor.passed_records)
        records = self.decode(turn, max_records, alone)
        if records:
            portion = Portion.__new__(Portion)
            portion.records = portion.raw = records
            portion.start, portion.end = start, cursor.taken_to
            ahead = cursor.ahead
            if ahead:  # a failure that was found after these records, and put into the line first
                ahead.insert(0, portion)
            else:
                ahead.append(portion)
        before.pop(cursor, None)
        return 0
