# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True, freethreading_compatible=True
"""The decoder in Cython: the fast half of a pair; ``decode.py`` is the readable half and documents the contract.

Only the way is different: records are parsed in place by C code into one struct (``Parsed``) and built into the final object, or
into Arrow buffers, from it. Rare cases (codecs, format 0 and 1,
transactions, the words of an error) use the same Python code that ``decode.py`` calls.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ..errors import CorruptRecordException, UnsupportedCodecError
from ..model import ConsumerRecord
from .checksum import crc32c
from .codecs import decompress
from .header import HEADER_COST, Flaw, Span, too_many_headers
from .legacy import read_rows

cdef extern from *:
    """
    static PyObject *empty_tuple_of(PyObject *cls, Py_ssize_t size) {
        PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)cls, size);
        if (made == NULL)
            return NULL;
    #if PY_VERSION_HEX >= 0x030E0000
        made->ob_hash = -1;  /* from 3.14 on a tuple remembers its hash */
    #endif
        memset(made->ob_item, 0, size * sizeof(PyObject *));
        return (PyObject *)made;
    }
    """
    # Unlike tp_alloc, this does not tell the cycle collector, which would visit every record again and again; and a record of
    # bytes, text and numbers cannot be part of a cycle.
    PyObject* empty_tuple_of(PyObject*, Py_ssize_t) noexcept

cdef extern from "Python.h":
    # Declared as C has them, without Cython's checks: whoever calls them tests for NULL, and leaves the error that is set alone.
    PyObject* Bytes "PyBytes_FromStringAndSize"(const char*, Py_ssize_t) noexcept
    PyObject* Long "PyLong_FromLongLong"(long long) noexcept
    PyObject* Utf8 "PyUnicode_DecodeUTF8"(const char*, Py_ssize_t, const char*) noexcept
    PyObject* NewTuple "PyTuple_New"(Py_ssize_t) noexcept
    int Append "PyList_Append"(PyObject*, PyObject*) noexcept
    void Set "PyTuple_SET_ITEM"(PyObject*, Py_ssize_t, PyObject*)
    void Incref "Py_INCREF"(PyObject*)
    void Decref "Py_DECREF"(PyObject*)

# In the order of Flaw; 0 is "nothing wrong". CUT is no flaw either: the data ends inside the batch.
cdef enum:
    GOOD, LENGTH, MAGIC, OFFSETS, CRC, COUNT_HIGH, COUNT_LOW, VARINT, RECORD_LENGTH, RECORD_CUT, OFFSET_DELTA, TIMESTAMP, SIZE, \
    HEADER_COUNT, HEADER_KEY, MARKER, CUT, TOO_MANY_HEADERS

cdef enum:
    UP_TO_LENGTH = 12
    UP_TO_MAGIC = 17
    CRC_FROM = 21
    V2_SIZE = 61
    SMALLEST_V0 = 14
    SMALLEST_V1 = 22
    SMALLEST_V2 = 49
    SMALLEST_RECORD = 7
    CODEC_MASK = 0x07
    APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL_BATCH = 0x20
    FIELDS = 12
    INLINE = 12
    VIEW = 16

cdef tuple FLAWS = tuple(Flaw)
cdef object RECORD = ConsumerRecord
cdef const char* ESCAPE = b"surrogateescape"


cdef struct Header:
    Py_ssize_t start, end
    int magic, attributes
    int32_t epoch, delta, count
    uint32_t crc
    int64_t base, last, base_timestamp, max_timestamp, producer


cdef struct Parsed:
    int64_t timestamp, offset
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end
    Py_ssize_t key_size, value_size, header_count
    Py_ssize_t room  # headers that the batch may still have


cdef struct Mark:
    # Where a call began.
    int64_t next_offset
    int32_t epoch
    Py_ssize_t place


cdef object corrupt(int flaw):
    return CorruptRecordException(FLAWS[flaw - 1].value)


cdef uint32_t checksum(const char* data, Py_ssize_t size) except? 0:
    # A view of the bytes alone, not a slice of another view: half of the cost for a batch of one record. It does not leave here.
    return crc32c(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))


cdef inline uint32_t big32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline int64_t big64(const uint8_t* p) noexcept nogil:
    return <int64_t>(<uint64_t>big32(p) << 32 | big32(p + 4))


cdef int read_header(const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Header* h) noexcept nogil:
    cdef Py_ssize_t left = size - start
    cdef const uint8_t* p = data + start
    cdef int32_t length
    if left < UP_TO_LENGTH:
        return CUT
    length = <int32_t>big32(p + 8)
    if length < SMALLEST_V0:
        return LENGTH
    if left < UP_TO_MAGIC:
        return CUT
    h.magic = p[16]
    if h.magic > 2:
        return MAGIC
    if (h.magic == 2 and length < SMALLEST_V2) or (h.magic == 1 and length < SMALLEST_V1):
        return LENGTH
    if length > left - UP_TO_LENGTH:
        return CUT
    h.start = start
    h.end = start + UP_TO_LENGTH + length
    h.base = big64(p)
    if h.magic < 2:
        h.last, h.epoch, h.attributes, h.producer, h.count = h.base, -1, 0, -1, 1
        return GOOD if 0 <= h.base < INT64_MAX else OFFSETS
    h.epoch = <int32_t>big32(p + 12)
    h.crc = big32(p + 17)
    h.attributes = p[21] << 8 | p[22]
    h.delta = <int32_t>big32(p + 23)
    h.base_timestamp = big64(p + 27)
    h.max_timestamp = big64(p + 35)
    h.producer = big64(p + 43)
    h.count = <int32_t>big32(p + 57)
    if h.base < 0 or h.delta < 0 or h.base > INT64_MAX - 1 - h.delta:
        return OFFSETS
    h.last = h.base + h.delta
    return GOOD


cdef inline int varint(const uint8_t** place, const uint8_t* end, int bits, int64_t* out) noexcept nogil:
    cdef const uint8_t* p = place[0]
    cdef uint64_t byte, value
    cdef int shift = 7
    if p >= end:
        return RECORD_CUT
    byte = p[0]
    p += 1
    value = byte & 0x7F
    while byte >= 0x80:
        if shift >= bits:
            return VARINT
        if p >= end:
            return RECORD_CUT
        byte = p[0]
        p += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if bits == 32:
        value &= <uint64_t>0xFFFFFFFF
    place[0] = p
    out[0] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
    return GOOD


cdef inline int sized(const uint8_t** place, const uint8_t* end, const uint8_t** data, Py_ssize_t* size) noexcept nogil:
    cdef int64_t n
    cdef int flaw = varint(place, end, 32, &n)
    if flaw:
        return flaw
    if n < -1:
        return SIZE
    if n > end - place[0]:
        return RECORD_CUT
    data[0] = place[0]
    size[0] = n
    if n > 0:
        place[0] += n
    return GOOD


cdef int check_headers(const uint8_t** place, const uint8_t* end, Parsed* r) noexcept nogil:
    cdef int64_t count, i
    cdef const uint8_t* ignored
    cdef Py_ssize_t size
    cdef int flaw = varint(place, end, 32, &count)
    if flaw:
        return flaw
    r.header_count = count
    r.headers = place[0]
    r.end = end
    if not count:
        return GOOD
    if count < 0 or count * 2 > end - place[0]:
        return HEADER_COUNT
    if count > r.room:
        return TOO_MANY_HEADERS
    for i in range(count):
        flaw = sized(place, end, &ignored, &size)
        if flaw:
            return flaw
        if size < 0:
            return HEADER_KEY
        flaw = sized(place, end, &ignored, &size)
        if flaw:
            return flaw
    return GOOD


cdef inline int parse_fields(const uint8_t* p, const uint8_t* end, int64_t* time_delta, int64_t* delta, Parsed* r) noexcept nogil:
    cdef int flaw
    p += 1  # attributes, of which none is defined
    flaw = varint(&p, end, 64, time_delta)
    if not flaw:
        flaw = varint(&p, end, 32, delta)
    if not flaw:
        flaw = sized(&p, end, &r.key, &r.key_size)
    if not flaw:
        flaw = sized(&p, end, &r.value, &r.value_size)
    if not flaw:
        flaw = check_headers(&p, end, r)
    if not flaw and p != end:
        flaw = RECORD_LENGTH
    return flaw


def measure(data, int64_t fetch_offset):
    """See ``decode.measure``."""
    cdef Py_buffer view
    cdef Header h
    cdef Py_ssize_t place = 0
    cdef int64_t next_offset = fetch_offset
    cdef int32_t epoch = -1
    cdef int outcome
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    while True:
        outcome = read_header(<const uint8_t*>view.buf, view.len, place, &h)
        if outcome != GOOD:
            break
        place = h.end
        if h.last >= next_offset:
            next_offset = h.last + 1
            epoch = h.epoch
    PyBuffer_Release(&view)
    return Span(next_offset, epoch if epoch >= 0 else None, place, outcome != CUT)


cdef struct Binary:
    # One column of byte strings. The arrays belong to the ColumnBuilder, which outlives this; ``data`` is longer than ``used``
    # while records are appended. ``offset_array`` is NULL if nobody asked for the column.
    PyObject* offset_array
    PyObject* data_array
    PyObject* bitmap_array
    int32_t* offsets
    uint8_t* data
    uint8_t* bitmap
    Py_ssize_t rows, nulls, used, capacity


cdef int load(Binary* b, buffers) except -1:
    b.offset_array = NULL
    b.used = 0
    if buffers is None:
        return 0
    # Borrowed: the attributes of the builder keep them alive.
    offsets, data, bitmap = buffers.offsets, buffers.data, buffers.bitmap
    b.offset_array, b.data_array, b.bitmap_array = <PyObject*>offsets, <PyObject*>data, <PyObject*>bitmap
    b.rows, b.nulls = buffers.length, buffers.nulls
    b.used = b.capacity = len(data)
    b.data = <uint8_t*>PyByteArray_AS_STRING(data)
    return 0


cdef int reserve(Binary* b, Py_ssize_t rows) except -1:
    if b.offset_array != NULL:
        PyByteArray_Resize(<object>b.offset_array, (b.rows + rows + 1) * 4)
        PyByteArray_Resize(<object>b.bitmap_array, (b.rows + rows + 7) >> 3)
        b.offsets = <int32_t*>PyByteArray_AS_STRING(<object>b.offset_array)
        b.bitmap = <uint8_t*>PyByteArray_AS_STRING(<object>b.bitmap_array)
    return 0


cdef int flush(Binary* b, buffers) except -1:
    if b.offset_array != NULL:
        reserve(b, 0)
        PyByteArray_Resize(<object>b.data_array, b.used)
        buffers.length, buffers.nulls = b.rows, b.nulls
    return 0


cdef inline bint may_hold(Binary* b, Py_ssize_t size, Py_ssize_t limit) noexcept:
    return b.offset_array == NULL or size <= 0 or b.used + size <= limit


cdef inline int have(Binary* b, Py_ssize_t size) except -1:
    if b.offset_array != NULL and size > b.capacity - b.used:
        b.capacity = b.used + size + (b.used >> 1) + 1024
        PyByteArray_Resize(<object>b.data_array, b.capacity)
        b.data = <uint8_t*>PyByteArray_AS_STRING(<object>b.data_array)
    return 0


cdef inline void put(Binary* b, const uint8_t* data, Py_ssize_t size) noexcept:
    cdef uint8_t* bits = b.bitmap + (b.rows >> 3)
    if not b.rows & 7:
        bits[0] = 0
    if size < 0:
        b.nulls += 1
    else:
        bits[0] |= <uint8_t>(1 << (b.rows & 7))
        memcpy(b.data + b.used, data, size)
        b.used += size
    b.rows += 1
    b.offsets[b.rows] = <int32_t>b.used


cdef struct Views:
    # One column of views. Declared as ``Binary`` is; ``view_array`` is NULL if nobody asked for the column.
    PyObject* buffers
    PyObject* view_array
    PyObject* bitmap_array
    uint8_t* views
    uint8_t* bitmap
    Py_ssize_t rows, nulls, reach
    int32_t source  # index of what is being read, -1: not referred to yet
    int32_t index, place  # what the next long entry refers to


cdef int load_views(Views* v, buffers) except -1:
    v.view_array = NULL
    if buffers is None:
        return 0
    # Borrowed: the attributes of the builder keep them alive.
    views, bitmap = buffers.views, buffers.bitmap
    v.buffers, v.view_array, v.bitmap_array = <PyObject*>buffers, <PyObject*>views, <PyObject*>bitmap
    v.rows, v.nulls, v.reach = buffers.length, buffers.nulls, buffers.reach
    v.source = -1
    return 0


cdef int reserve_views(Views* v, Py_ssize_t rows) except -1:
    if v.view_array != NULL:
        PyByteArray_Resize(<object>v.view_array, (v.rows + rows) * VIEW)
        PyByteArray_Resize(<object>v.bitmap_array, (v.rows + rows + 7) >> 3)
        v.views = <uint8_t*>PyByteArray_AS_STRING(<object>v.view_array)
        v.bitmap = <uint8_t*>PyByteArray_AS_STRING(<object>v.bitmap_array)
    return 0


cdef int flush_views(Views* v) except -1:
    if v.view_array != NULL:
        reserve_views(v, 0)
        (<object>v.buffers).length, (<object>v.buffers).nulls = v.rows, v.nulls
    return 0


cdef inline bint copies(Views* v, const uint8_t* data, Py_ssize_t size, const uint8_t* origin) noexcept:
    return v.view_array != NULL and size > INLINE and data - origin > v.reach


cdef inline bint may_keep(Views* v, const uint8_t* data, Py_ssize_t size, const uint8_t* origin, Py_ssize_t limit) except -1:
    return not copies(v, data, size, origin) or <Py_ssize_t>(<object>v.buffers).copied_bytes + size <= limit


cdef inline int point(Views* v, const uint8_t* data, Py_ssize_t size, object source, const uint8_t* origin) except -1:
    """Settle what the view of a long entry refers to."""
    if v.view_array == NULL or size <= INLINE:
        return 0
    if copies(v, data, size, origin):
        v.index, v.place = (<object>v.buffers).keep((<const char*>data)[:size], v.rows)
        return 0
    if v.source < 0:
        v.source = (<object>v.buffers).refer(source, v.rows)
    v.index, v.place = v.source, <int32_t>(data - origin)
    return 0


cdef inline void put_view(Views* v, const uint8_t* data, Py_ssize_t size) noexcept:
    cdef uint8_t* bits = v.bitmap + (v.rows >> 3)
    cdef uint8_t* view = v.views + v.rows * VIEW
    cdef int32_t length = <int32_t>max(size, 0)
    if not v.rows & 7:
        bits[0] = 0
    if size < 0:
        v.nulls += 1
    else:
        bits[0] |= <uint8_t>(1 << (v.rows & 7))
    memcpy(view, &length, 4)
    if length > INLINE:
        memcpy(view + 4, data, 4)
        memcpy(view + 8, &v.index, 4)
        memcpy(view + 12, &v.place, 4)
    else:
        memset(view + 4, 0, INLINE)
        memcpy(view + 4, data, length)
    v.rows += 1


cdef class Writer:
    """Appends parsed records to the buffers of a ColumnBuilder; whatever was appended counts there only after ``flush``."""

    cdef object builder
    cdef Py_ssize_t appended, limit, rows, room
    cdef bint wants_headers
    cdef object offset_array, timestamp_array, type_array, header_array
    cdef int64_t* offsets
    cdef int64_t* timestamps
    cdef int8_t* types
    cdef int32_t* header_offsets
    cdef Binary keys, values, header_keys, header_values
    cdef Views key_views, value_views
    # What views refer to: what the records of the batch lie in.
    cdef object source
    cdef const uint8_t* origin

    def __cinit__(self, builder):
        self.builder = builder
        self.appended = 0
        self.limit = builder.max_column_bytes
        self.offset_array = builder.offsets
        self.timestamp_array = builder.timestamps
        self.type_array = builder.timestamp_types
        self.wants_headers = builder.headers is not None
        self.header_array = builder.headers.offsets if self.wants_headers else None
        self.load()

    cdef int load(self) except -1:
        self.rows = self.builder.rows
        self.room = 0
        load(&self.keys, self.builder.keys)
        load(&self.values, self.builder.values)
        load_views(&self.key_views, self.builder.key_views)
        load_views(&self.value_views, self.builder.value_views)
        load(&self.header_keys, self.builder.headers.keys if self.wants_headers else None)
        load(&self.header_values, self.builder.headers.values if self.wants_headers else None)
        return 0

    cdef int make_room(self, Py_ssize_t rows, Py_ssize_t most) except -1:
        """Have room for ``rows`` more. Where there is none, make as much as was used so far: small batches then do not each ask."""
        if rows > self.room:
            self.room = min(max(rows, self.appended), most)
            self.reserve(self.room)
        return 0

    cdef int reserve(self, Py_ssize_t rows) except -1:
        if self.offset_array is not None:
            PyByteArray_Resize(self.offset_array, (self.rows + rows) * 8)
            self.offsets = <int64_t*>PyByteArray_AS_STRING(self.offset_array)
        if self.timestamp_array is not None:
            PyByteArray_Resize(self.timestamp_array, (self.rows + rows) * 8)
            self.timestamps = <int64_t*>PyByteArray_AS_STRING(self.timestamp_array)
        if self.type_array is not None:
            PyByteArray_Resize(self.type_array, self.rows + rows)
            self.types = <int8_t*>PyByteArray_AS_STRING(self.type_array)
        if self.wants_headers:
            PyByteArray_Resize(self.header_array, (self.rows + rows + 1) * 4)
            self.header_offsets = <int32_t*>PyByteArray_AS_STRING(self.header_array)
        reserve(&self.keys, rows)
        reserve(&self.values, rows)
        reserve_views(&self.key_views, rows)
        reserve_views(&self.value_views, rows)
        return 0

    cdef int flush(self) except -1:
        self.reserve(0)
        self.room = 0
        flush(&self.keys, self.builder.keys)
        flush(&self.values, self.builder.values)
        flush_views(&self.key_views)
        flush_views(&self.value_views)
        if self.wants_headers:
            flush(&self.header_keys, self.builder.headers.keys)
            flush(&self.header_values, self.builder.headers.values)
        self.builder.rows = self.rows
        return 0

    cdef int read_from(self, object source, const uint8_t* origin) except -1:
        """What is appended from now on lies in ``source``, which begins at ``origin``."""
        if source is not self.source:
            self.source, self.origin = source, origin
            self.key_views.source = self.value_views.source = -1
        return 0

    cdef bint fits(self, Parsed* r) except -1:
        """Say whether the buffers may hold the record, and if so have the memory for it: ``put`` can then not fail half-way."""
        if not self.have_room(r):
            return False
        point(&self.key_views, r.key, r.key_size, self.source, self.origin)
        point(&self.value_views, r.value, r.value_size, self.source, self.origin)
        return True

    cdef bint have_room(self, Parsed* r) except -1:
        cdef const uint8_t* p = r.headers
        cdef const uint8_t* data = NULL
        cdef Py_ssize_t size = 0, i, key_bytes = 0, value_bytes = 0
        cdef Py_ssize_t limit = self.limit if self.rows else INT32_MAX  # the first row always fits
        if not may_hold(&self.keys, r.key_size, limit) or not may_hold(&self.values, r.value_size, limit):
            return False
        if not may_keep(&self.key_views, r.key, r.key_size, self.origin, limit):
            return False
        if not may_keep(&self.value_views, r.value, r.value_size, self.origin, limit):
            return False
        have(&self.keys, r.key_size)
        have(&self.values, r.value_size)
        if not self.wants_headers or not r.header_count:
            return True
        for i in range(r.header_count):
            sized(&p, r.end, &data, &size)
            key_bytes += size
            sized(&p, r.end, &data, &size)
            value_bytes += max(size, 0)
        if not may_hold(&self.header_keys, key_bytes, limit) or not may_hold(&self.header_values, value_bytes, limit):
            return False
        have(&self.header_keys, key_bytes)
        have(&self.header_values, value_bytes)
        reserve(&self.header_keys, r.header_count)
        reserve(&self.header_values, r.header_count)
        return True

    cdef void put(self, Parsed* r, int8_t kind) noexcept:
        if self.offset_array is not None:
            self.offsets[self.rows] = r.offset
        if self.timestamp_array is not None:
            self.timestamps[self.rows] = r.timestamp
        if self.type_array is not None:
            self.types[self.rows] = kind
        if self.keys.offset_array != NULL:
            put(&self.keys, r.key, r.key_size)
        if self.values.offset_array != NULL:
            put(&self.values, r.value, r.value_size)
        if self.key_views.view_array != NULL:
            put_view(&self.key_views, r.key, r.key_size)
        if self.value_views.view_array != NULL:
            put_view(&self.value_views, r.value, r.value_size)
        self.rows += 1
        self.room -= 1
        self.appended += 1
        if self.wants_headers:
            self.put_headers(r)
            self.header_offsets[self.rows] = <int32_t>self.header_keys.rows

    cdef void put_headers(self, Parsed* r) noexcept:
        cdef const uint8_t* p = r.headers
        cdef const uint8_t* data = NULL
        cdef Py_ssize_t size = 0, i
        for i in range(r.header_count):
            sized(&p, r.end, &data, &size)
            put(&self.header_keys, data, size)
            sized(&p, r.end, &data, &size)
            put(&self.header_values, data, size)


cdef class Decoder:
    """See ``decode.Decoder``."""

    cdef readonly str topic
    cdef readonly object partition
    cdef readonly int64_t next_offset
    cdef readonly int32_t epoch
    cdef readonly bint exhausted
    cdef object aborted
    cdef bint check_crcs
    cdef object limit
    # The data and, while a compressed batch is read, what it became.
    cdef object view
    cdef Py_buffer data
    cdef Py_buffer body
    cdef Py_ssize_t place
    # Which of the two the records of the batch lie in.
    cdef object source
    cdef const uint8_t* origin
    # The batch that is being read: where its next record is, what is left of it, or the rows of a message of format 0 or 1.
    cdef Header header
    cdef const uint8_t* next_record
    cdef const uint8_t* body_end
    cdef int64_t left
    cdef int64_t previous
    cdef Py_ssize_t room
    cdef list rows
    # A field of many records that is often the same object.
    cdef int64_t timestamp
    cdef object timestamp_object
    cdef object epoch_object
    cdef object type_object

    def __cinit__(self, str topic, partition, data, int64_t fetch_offset, aborted, bint check_crcs, limit):
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        self.epoch = -1
        self.exhausted = False
        self.aborted = aborted
        self.check_crcs = check_crcs
        self.limit = limit
        self.place = 0
        self.left = 0
        self.rows = None
        self.timestamp = 0
        self.timestamp_object = 0
        self.view = memoryview(data)
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.body)
        PyBuffer_Release(&self.data)

    @property
    def held(self):
        """See ``decode.Decoder.held``."""
        return self.body.len if self.left and self.source is not None and self.source is not self.view else 0

    def read(self, Py_ssize_t max_records):
        """See ``decode.Decoder.read``."""
        cdef list records = []
        cdef Mark mark = self.mark()
        aborted = None if self.aborted is None else self.aborted.copy()
        try:
            while len(records) < max_records and (self.left or self.open_batch()):
                if self.rows is not None:
                    self.take_rows(records, max_records)
                else:
                    self.take_records(records, max_records)
            if max_records > 0 and not self.left:
                self.next_with_records()
        except (CorruptRecordException, UnsupportedCodecError, MemoryError):
            self.drop_batch()
            if not records:
                raise
        except:
            self.go_back(&mark, aborted)
            raise
        return records

    def read_columns(self, Py_ssize_t max_records, into):
        """See ``decode.Decoder.read_columns``."""
        cdef Writer writer = Writer(into)
        cdef bint room = True
        cdef Mark mark = self.mark()
        cdef Py_ssize_t before = into.rows
        aborted = None if self.aborted is None else self.aborted.copy()
        try:
            while room and writer.appended < max_records and (self.left or self.open_batch()):
                if self.rows is not None:
                    room = self.append_rows(writer, max_records)
                else:
                    room = self.append_records(writer, max_records)
            if room and max_records > 0 and not self.left:
                self.next_with_records()
        except (CorruptRecordException, UnsupportedCodecError, MemoryError):
            self.drop_batch()
            if not writer.appended:
                writer.flush()
                raise
        except:
            writer.flush()
            into.truncate(before)
            self.go_back(&mark, aborted)
            raise
        writer.flush()
        into.end_run(self.topic, self.partition, writer.appended)
        return writer.appended

    cdef Mark mark(self) noexcept:
        return Mark(self.next_offset, self.epoch, self.place)

    cdef int go_back(self, Mark* mark, aborted) except -1:
        """Stand where the call began. Nothing can have failed after the data were released, at their end."""
        self.drop_batch()
        self.next_offset, self.epoch, self.place = mark.next_offset, mark.epoch, mark.place
        self.aborted = aborted
        return 0

    # The walk over batches.

    cdef bint open_batch(self) except -1:
        """Make the next batch that has records the current one; false if there is none."""
        if not self.next_with_records():
            return False
        cdef Header* h = &self.header
        if h.magic < 2:
            rows = read_rows(self.data_bytes(), h.start, h.end, self.check_crcs, self.limit)
            self.rows = rows
            self.left = len(rows)
            return True
        self.check_crc(h)
        self.open_body(h)
        self.epoch_object = h.epoch if h.epoch >= 0 else None
        self.type_object = 1 if h.attributes & APPEND_TIME else 0
        self.left = h.count
        return True

    cdef bytes data_bytes(self):
        obj = self.view.obj
        if isinstance(obj, bytes) and len(obj) == self.data.len:
            return obj
        return bytes(self.view)

    cdef bint next_with_records(self) except -1:
        """Pass batches that have nothing to hand out; leave the header of the first that may have in ``self.header``."""
        cdef int outcome
        cdef Header* h = &self.header
        while True:
            outcome = read_header(<const uint8_t*>self.data.buf, self.data.len, self.place, h)
            if outcome == CUT:
                self.exhausted = True
                self.release()
                return False
            if outcome:
                raise corrupt(outcome)
            if not self.has_nothing(h):
                return True
            self.pass_batch(h)

    cdef bint has_nothing(self, Header* h) except -1:
        cdef bint below = h.last < self.next_offset
        if h.attributes & CONTROL_BATCH:
            self.meet_marker(h, below)
            return True
        if below:
            return True
        if h.count == 0 or self.is_aborted(h):
            self.check_crc(h)
            return True
        return False

    cdef bint is_aborted(self, Header* h) except -1:
        if self.aborted is None or h.producer < 0:
            return False
        return self.aborted.covers(h.producer, h.last) and (h.attributes & TRANSACTIONAL) != 0

    cdef int meet_marker(self, Header* h, bint below) except -1:
        if not below:
            self.check_crc(h)
        if self.is_aborted(h) and (below or (h.count and self.is_abort_marker(h))):
            self.aborted.end(h.producer)
        return 0

    cdef bint is_abort_marker(self, Header* h) except -1:
        cdef Parsed r
        self.open_body(h)
        self.left = h.count
        self.next_parsed(&r)
        self.left = 0
        if r.key_size < 4:
            raise corrupt(MARKER)
        return r.key[2] == 0 and r.key[3] == 0

    cdef int pass_batch(self, Header* h) except -1:
        self.drop_batch()
        self.place = h.end
        if h.last >= self.next_offset:
            self.next_offset = h.last + 1
            self.epoch = h.epoch
        return 0

    cdef int drop_batch(self) except -1:
        self.left = 0
        self.rows = None
        self.source = None
        PyBuffer_Release(&self.body)  # which does nothing if there is none
        return 0

    cdef int release(self) except -1:
        self.place = 0
        self.data.len = 0
        self.view = None
        PyBuffer_Release(&self.data)
        return 0

    cdef int check_crc(self, Header* h) except -1:
        if self.check_crcs and checksum(<const char*>self.data.buf + h.start + CRC_FROM, h.end - h.start - CRC_FROM) != h.crc:
            raise corrupt(CRC)
        return 0

    cdef int open_body(self, Header* h) except -1:
        """Point at the records, decompressed if they are compressed, if the count in the header can be true of them."""
        cdef Py_ssize_t size
        cdef int codec = h.attributes & CODEC_MASK
        self.drop_batch()
        if codec:
            source = decompress(codec, self.view[h.start + V2_SIZE : h.end], self.limit)
            PyObject_GetBuffer(source, &self.body, PyBUF_SIMPLE)
            self.source, self.origin = source, <const uint8_t*>self.body.buf
            self.next_record = self.origin
            size = self.body.len
        else:
            self.source, self.origin = self.view, <const uint8_t*>self.data.buf
            self.next_record = <const uint8_t*>self.data.buf + h.start + V2_SIZE
            size = h.end - h.start - V2_SIZE
        self.body_end = self.next_record + size
        self.previous = -1
        self.room = self.limit // HEADER_COST
        if h.count < 0 or h.count - 1 > h.delta or <int64_t>h.count * SMALLEST_RECORD > size:
            raise corrupt(COUNT_HIGH)
        return 0

    # The walk over records.

    cdef inline int parse(self, Parsed* r) noexcept nogil:
        """Parse the next record and move past it. What is returned is a flaw, or 0."""
        cdef const uint8_t* p = self.next_record
        cdef const uint8_t* end
        cdef int64_t length, time_delta, delta, base
        cdef int flaw = varint(&p, self.body_end, 32, &length)
        if flaw:
            return flaw
        if length < 0 or length > self.body_end - p:
            return RECORD_LENGTH
        end = p + length
        r.room = self.room
        flaw = parse_fields(p, end, &time_delta, &delta, r)
        if flaw:
            return flaw
        if delta <= self.previous or delta > self.header.delta:
            return OFFSET_DELTA
        self.previous = delta
        r.offset = self.header.base + delta
        base = self.header.base_timestamp
        if self.header.attributes & APPEND_TIME:
            r.timestamp = self.header.max_timestamp
        elif (time_delta > 0 and base > INT64_MAX - time_delta) or (time_delta < 0 and base < INT64_MIN - time_delta):
            return TIMESTAMP
        else:
            r.timestamp = base + time_delta
        self.next_record = end
        self.room -= r.header_count
        return GOOD

    cdef inline int next_parsed(self, Parsed* r) except -1:
        """Parse the next record; raise if that is impossible, or if it is the last and bytes are left over."""
        cdef int flaw = self.parse(r)
        if not flaw and self.left == 1 and self.next_record != self.body_end:
            flaw = COUNT_LOW
        if flaw == TOO_MANY_HEADERS:
            raise too_many_headers(self.limit)
        if flaw:
            raise corrupt(flaw)
        return 0

    cdef int take_records(self, list records, Py_ssize_t max_records) except -1:
        cdef Parsed r
        cdef PyObject* record
        cdef int outcome
        while self.left and len(records) < max_records:
            self.next_parsed(&r)
            if r.offset >= self.next_offset:
                record = self.build(&r)
                outcome = Append(<PyObject*>records, record)
                Decref(record)
                if outcome < 0:
                    return -1
                self.next_offset = r.offset + 1
                self.epoch = self.header.epoch
            self.left -= 1
        if not self.left:
            self.pass_batch(&self.header)
        return 0

    cdef PyObject* build(self, Parsed* r) except NULL:
        """Return a new ConsumerRecord, made as the tuple that it is."""
        cdef PyObject* record
        if r.timestamp != self.timestamp:
            self.timestamp_object = r.timestamp
            self.timestamp = r.timestamp
        record = empty_tuple_of(<PyObject*>RECORD, FIELDS)
        if record == NULL:
            return NULL
        share(record, 0, self.topic)
        share(record, 1, self.partition)
        share(record, 3, self.timestamp_object)
        share(record, 4, self.type_object)
        share(record, 8, None)
        share(record, 11, self.epoch_object)
        if (
            give(record, 2, Long(r.offset))
            or give_bytes(record, 5, r.key, r.key_size)
            or give_bytes(record, 6, r.value, r.value_size)
            or give(record, 7, headers_of(r))
            or give(record, 9, Long(r.key_size))
            or give(record, 10, Long(r.value_size))
        ):
            Decref(record)
            return NULL
        return record

    cdef int take_rows(self, list records, Py_ssize_t max_records) except -1:
        while self.left and len(records) < max_records:
            offset, timestamp, kind, key, value, headers, checksum, epoch = self.rows[len(self.rows) - self.left]
            if offset >= self.next_offset:
                key_size = -1 if key is None else len(key)
                value_size = -1 if value is None else len(value)
                records.append(
                    RECORD(
                        self.topic, self.partition, offset, timestamp, kind, key, value, headers, checksum,
                        key_size, value_size, epoch,
                    )
                )
                self.next_offset = offset + 1
                self.epoch = -1
            self.left -= 1
        if not self.left:
            self.pass_batch(&self.header)
        return 0

    cdef bint append_rows(self, Writer writer, Py_ssize_t max_records) except -1:
        """Append rows of format 0 or 1; false if there is no room for the next."""
        writer.flush()
        try:
            while self.left and writer.appended < max_records:
                row = self.rows[len(self.rows) - self.left]
                if row[0] >= self.next_offset:
                    if not writer.builder.fits(row):
                        return False
                    rows = writer.builder.rows
                    try:
                        writer.builder.append(row)
                    except:
                        writer.builder.truncate(rows)
                        raise
                    writer.appended += 1
                    self.next_offset = row[0] + 1
                    self.epoch = -1
                self.left -= 1
        finally:
            writer.load()
        if not self.left:
            self.pass_batch(&self.header)
        return True

    cdef bint append_records(self, Writer writer, Py_ssize_t max_records) except -1:
        """Append records of a batch; false if there is no room for the next."""
        cdef Parsed r
        cdef const uint8_t* place
        cdef int64_t previous
        cdef Py_ssize_t room
        writer.read_from(self.source, self.origin)
        writer.make_room(min(self.left, max_records - writer.appended), max_records - writer.appended)
        cdef int8_t kind = 1 if self.header.attributes & APPEND_TIME else 0
        while self.left and writer.appended < max_records:
            place, previous, room = self.next_record, self.previous, self.room
            self.next_parsed(&r)
            if r.offset >= self.next_offset:
                if not writer.fits(&r):
                    self.next_record, self.previous, self.room = place, previous, room
                    return False
                writer.put(&r, kind)
                self.next_offset = r.offset + 1
                self.epoch = self.header.epoch
            self.left -= 1
        if not self.left:
            self.pass_batch(&self.header)
        return True


cdef inline void share(PyObject* parent, Py_ssize_t index, object value) noexcept:
    Incref(<PyObject*>value)
    Set(parent, index, <PyObject*>value)


cdef inline int give(PyObject* parent, Py_ssize_t index, PyObject* value) noexcept:
    """Store a new object, which then belongs to the tuple; -1 if it could not be made."""
    Set(parent, index, value)
    return -1 if value == NULL else 0


cdef inline int give_bytes(PyObject* parent, Py_ssize_t index, const uint8_t* data, Py_ssize_t size) noexcept:
    if size < 0:
        share(parent, index, None)
        return 0
    return give(parent, index, Bytes(<const char*>data, size))


cdef PyObject* headers_of(Parsed* r) noexcept:
    """Return the headers, whose bytes ``check_headers`` has approved, as a new tuple of pairs; NULL if memory is short."""
    cdef PyObject* headers = NewTuple(r.header_count)
    cdef PyObject* pair
    cdef const uint8_t* p = r.headers
    cdef const uint8_t* data = NULL
    cdef Py_ssize_t size = 0, i
    if headers == NULL:
        return NULL
    for i in range(r.header_count):
        pair = NewTuple(2)
        if give(headers, i, pair):
            Decref(headers)
            return NULL
        sized(&p, r.end, &data, &size)
        if give(pair, 0, Utf8(<const char*>data, size, ESCAPE)):
            Decref(headers)
            return NULL
        sized(&p, r.end, &data, &size)
        if give_bytes(pair, 1, data, size):
            Decref(headers)
            return NULL
    return headers
