# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""``async for`` in Cython: the fast half of a pair; ``iteration.py`` is the readable half and documents the contract.

Decides, owns and must never do what is written there. What is different is only how: a generator suspends a frame for each record,
while a ``Step`` answers the interpreter's first question with the record. Where there is none it stands for the coroutine that
waits for more, so whatever is rare is the same Python code.
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
    void Incref "Py_INCREF"(PyObject*)
    void Decref "Py_DECREF"(PyObject*)


cdef class HandOut:
    """See ``iteration.HandOut``."""

    cdef list records
    cdef Py_ssize_t place

    def __cinit__(self):
        self.records = []
        self.place = 0

    def load(self, list records):
        """See ``iteration.HandOut.load``."""
        self.records = records
        self.place = 0

    @property
    def left(self):
        """See ``iteration.HandOut.left``."""
        return len(self.records) - self.place

    @property
    def last(self):
        """See ``iteration.HandOut.last``."""
        return self.records[self.place - 1] if self.place else None

    def __iter__(self):
        while self.place < len(self.records):
            yield self.take()

    def take(self):
        """See ``iteration.HandOut.take``."""
        self.place += 1
        return self.records[self.place - 1]

    def drain(self):
        """See ``iteration.HandOut.drain``."""
        rest = self.records[self.place :]
        self.records = []
        self.place = 0
        return rest


cdef class RecordIterator:
    """See ``iteration.RecordIterator``."""

    cdef HandOut handout
    cdef object refill

    def __cinit__(self, HandOut handout, refill):
        self.handout = handout
        self.refill = refill

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
    cdef HandOut handout = step.iterator.handout
    if step.coroutine is None and handout.place < len(handout.records):
        result[0] = <PyObject*>handout.records[handout.place]
        Incref(result[0])
        handout.place += 1
        return PYGEN_RETURN
    coroutine = step.waiting()
    return PyIter_Send(<PyObject*>coroutine, <PyObject*>value, result)


set_am_send(Step, <void*>step_send)
