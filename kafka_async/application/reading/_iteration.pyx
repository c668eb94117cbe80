# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=True
"""``async for`` in Cython: the fast half of a pair; ``iteration.py`` is the readable half and documents the contract.

Decides, owns and must never do what is written there. Only the way is different: a generator suspends a frame for each record,
while a ``Step`` returns the record at once. If there is none, it stands for the coroutine that waits for more, so rare cases use the
same Python code.
"""

from threading import get_ident

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
