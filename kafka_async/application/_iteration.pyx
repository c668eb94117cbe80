# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, freethreading_compatible=True
"""``async for`` in Cython: the fast half of a pair; ``iteration.py`` is the readable half and documents the contract.

Decides, owns and must never do what is written there. Only the way is different: a generator suspends a frame for each record,
while a ``Step`` returns the record at once. If there is none, it stands for the coroutine that waits for more, so rare cases use the
same Python code.
"""

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
    PySendResult PyIter_Send(PyObject*, PyObject*, PyObject**) noexcept
    unsigned long PyThread_get_thread_ident() noexcept
    void Incref "Py_INCREF"(PyObject*)
    void Decref "Py_DECREF"(PyObject*)


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

    def __init__(self, list records, list raw, start, end):
        self.records = records
        self.raw = raw
        self.place = 0
        self.start = start
        self.end = end

    def discard(self):
        """See ``iteration.Portion.discard``."""
        self.records = []
        self.place = 0


cdef class HandOut:
    """See ``iteration.HandOut``."""

    cdef public Portion portion
    cdef public object last
    cdef public object holder
    cdef long long attention
    cdef long long seen
    cdef double look_at
    cdef unsigned long thread
    cdef bint system_clock
    cdef object clock

    def __init__(self, clock=None):
        self.portion = Portion([], [], (0, None), (0, None))
        self.last = None
        self.holder = None
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

    def attend(self):
        """See ``iteration.HandOut.attend``."""
        self.attention += 1

    def looked(self):
        """See ``iteration.HandOut.looked``."""
        return self.attention

    def load(self, Portion portion, long long looked, double look_at):
        """See ``iteration.HandOut.load``."""
        self.portion = portion
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

    @property
    def left(self):
        """See ``iteration.HandOut.left``."""
        return len(self.portion.records) - self.portion.place


cdef class RecordIterator:
    """See ``iteration.RecordIterator``."""

    cdef HandOut handout
    cdef object refill
    cdef public object holder
    cdef public object last
    cdef object __weakref__

    def __init__(self, HandOut handout, refill, holder=None):
        self.handout = handout
        self.refill = refill
        self.holder = holder
        self.last = None

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Step step = Step.__new__(Step)
        step.iterator = self
        return step

    async def aclose(self):
        """See ``iteration.RecordIterator.aclose``."""


@cython.final
@cython.freelist(8)
cdef class Step:
    """Awaitable: one step of an iteration. It may be awaited once."""

    cdef RecordIterator iterator
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
            self.coroutine = self.iterator.refill()
        return self.coroutine


cdef PySendResult step_send(Step step, object value, PyObject** result) except PYGEN_ERROR:
    cdef RecordIterator iterator = step.iterator
    cdef HandOut handout = iterator.handout
    cdef Portion portion = handout.portion
    cdef PySendResult outcome
    if step.coroutine is None and portion.place < len(portion.records) and handout.is_calm():
        record = portion.records[portion.place]
        portion.place += 1
        handout.holder = iterator.holder
        handout.last = record
        iterator.last = record
        result[0] = <PyObject*>record
        Incref(result[0])
        return PYGEN_RETURN
    coroutine = step.waiting()
    outcome = PyIter_Send(<PyObject*>coroutine, <PyObject*>value, result)
    if outcome == PYGEN_RETURN:
        iterator.last = <object>result[0]
        iterator.holder = handout.holder
    return outcome


set_am_send(Step, <void*>step_send)
