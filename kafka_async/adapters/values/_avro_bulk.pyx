# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Many Avro records at once, into the buffers of Arrow columns: ``avro_bulk.py`` says what is read so, and makes arrays of it.

Each value is read from its own first byte to its own last one, so none can reach into another. A value that is not plainly a record
of its schema leaves nulls, and its place is reported: whoever asked reads that one as ``avro.py`` does, and says what is wrong with
it. Works without the GIL, on C structures alone.

Source: the Avro 1.12 specification, "Binary Encoding".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    BAD = 1
    NO_MEMORY = 2
    MANY_KEYS = 64  # a map with more is left to the other reader: what is compared here grows with the square

# The same numbers are in avro_bulk.py.
cdef enum Kind:
    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    WHOLE_AS_FLOAT = 4
    WHOLE_AS_DOUBLE = 5
    FLOAT = 6
    DOUBLE = 7
    FLOAT_AS_DOUBLE = 8
    BYTES = 9
    TEXT = 10
    FIXED = 11
    ENUM = 12
    DECIMAL = 13
    FIXED_DECIMAL = 14
    ARRAY = 15
    MAP = 16
    RECORD = 17
    UNION = 18

cdef struct Grown:
    uint8_t* data
    int64_t used
    int64_t capacity

cdef struct Node:
    int kind
    int null_at  # the branch that is null, of a union of null and one type; -1: no union
    bint out  # whether its values are wanted
    int64_t size  # bytes of a fixed type, or symbols of an enum
    uint64_t high  # what a decimal must be below, in two halves
    uint64_t low
    int width  # bytes of a value; 0: they differ
    int count
    Node** children
    int64_t rows
    int64_t nulls
    Grown data
    Grown ends  # of texts and lists, as 32 bits; the first is 0
    Grown valid  # a byte for each row; empty if no row is null

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef class Block:
    """Memory of which Arrow makes a buffer."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.data == NULL:  # Arrow ends the process at an empty buffer that is nowhere
            self.data = <uint8_t*>calloc(1, 1)
            if self.data == NULL:
                raise MemoryError
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef Block block(Grown* grown):
    """Return what has grown; it is empty then."""
    cdef Block found = Block.__new__(Block)
    found.data, found.size = grown.data, grown.used
    grown.data = NULL
    grown.used = grown.capacity = 0
    return found


cdef int reserve(Grown* grown, int64_t more) noexcept nogil:
    cdef int64_t wanted = grown.used + more
    cdef uint8_t* found
    if wanted <= grown.capacity:
        return 0
    wanted = max(wanted, 2 * grown.capacity, 256)
    found = <uint8_t*>realloc(grown.data, wanted)
    if found == NULL:
        return NO_MEMORY
    grown.data = found
    grown.capacity = wanted
    return 0


cdef int append(Grown* grown, const void* source, int64_t size) noexcept nogil:
    if reserve(grown, size):
        return NO_MEMORY
    memcpy(grown.data + grown.used, source, size)
    grown.used += size
    return 0


cdef int append_zeros(Grown* grown, int64_t size) noexcept nogil:
    if reserve(grown, size):
        return NO_MEMORY
    memset(grown.data + grown.used, 0, size)
    grown.used += size
    return 0


cdef inline int append_end(Node* node, int64_t end) noexcept nogil:
    cdef int32_t found = <int32_t>end
    return append(&node.ends, &found, 4)


# --- rows ------------------------------------------------------------------------------------------------------------------------


cdef inline int row(Node* node) noexcept nogil:
    """Count a row that is not null."""
    cdef uint8_t one = 1
    node.rows += 1
    return append(&node.valid, &one, 1) if node.nulls else 0


cdef int null_row(Node* node) noexcept nogil:
    cdef int i
    if not node.out:
        return 0
    if not node.nulls:
        if reserve(&node.valid, node.rows):
            return NO_MEMORY
        memset(node.valid.data, 1, node.rows)
        node.valid.used = node.rows
    node.nulls += 1
    node.rows += 1
    if append_zeros(&node.valid, 1) or append_zeros(&node.data, node.width):
        return NO_MEMORY
    if node.kind == RECORD:
        for i in range(node.count):
            if null_row(node.children[i]):
                return NO_MEMORY
    elif not node.width:
        return append_end(node, node.children[0].rows if node.count else node.data.used)
    return 0


cdef void cut(Node* node, int64_t rows) noexcept nogil:
    """Take back all rows from this one on, whether they are complete or not."""
    cdef int64_t i, end
    if not node.out:
        return
    if node.nulls:
        for i in range(rows, node.valid.used):
            node.nulls -= not node.valid.data[i]
        node.valid.used = min(node.valid.used, rows) if node.nulls else 0
    node.rows = rows
    if node.kind == RECORD:
        for i in range(node.count):
            cut(node.children[i], rows)
    elif node.width:
        node.data.used = rows * node.width
    else:
        node.ends.used = 4 * (rows + 1)
        end = (<int32_t*>node.ends.data)[rows]
        node.data.used = 0 if node.count else end
        for i in range(node.count):
            cut(node.children[i], end)


# --- values ----------------------------------------------------------------------------------------------------------------------


cdef inline int whole(Cursor* cursor, int64_t* found) noexcept nogil:
    """Read a number in zigzag; one of more than 64 bits is bad."""
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if cursor.at == cursor.end:
            return BAD
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            return BAD
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    found[0] = <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
    return 0


cdef inline int taken(Cursor* cursor, int64_t size, const uint8_t** found) noexcept nogil:
    """Read some bytes."""
    if size < 0 or size > cursor.end - cursor.at:
        return BAD
    found[0] = cursor.at
    cursor.at += size
    return 0


cdef int is_utf8(const uint8_t* at, int64_t size) noexcept nogil:
    """Say whether bytes are what ``bytes.decode()`` takes."""
    cdef const uint8_t* end = at + size
    cdef uint64_t eight
    cdef uint8_t byte
    while at < end:
        while end - at >= 8:
            memcpy(&eight, at, 8)
            if eight & <uint64_t>0x8080808080808080ULL:
                break
            at += 8
        if at == end:
            return 1
        byte = at[0]
        if byte < 0x80:
            at += 1
        elif 0xC2 <= byte <= 0xDF:
            if end - at < 2 or at[1] & 0xC0 != 0x80:
                return 0
            at += 2
        elif 0xE0 <= byte <= 0xEF:
            if end - at < 3 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80:
                return 0
            if (byte == 0xE0 and at[1] < 0xA0) or (byte == 0xED and at[1] > 0x9F):
                return 0
            at += 3
        elif 0xF0 <= byte <= 0xF4:
            if end - at < 4 or at[1] & 0xC0 != 0x80 or at[2] & 0xC0 != 0x80 or at[3] & 0xC0 != 0x80:
                return 0
            if (byte == 0xF0 and at[1] < 0x90) or (byte == 0xF4 and at[1] > 0x8F):
                return 0
            at += 4
        else:
            return 0
    return 1


cdef int decimal(Node* node, const uint8_t* source, int64_t size) noexcept nogil:
    """Append a number in 16 bytes, the lowest first, of one that has the highest first. One of too many digits is bad."""
    cdef uint8_t found[16]
    cdef uint64_t low, high
    cdef int64_t i
    if size > 16:
        return BAD
    memset(found, 0xFF if size and source[0] & 0x80 else 0, 16)
    for i in range(size):
        found[i] = source[size - 1 - i]
    memcpy(&low, found, 8)
    memcpy(&high, found + 8, 8)
    if found[15] & 0x80:
        low = ~low + 1
        high = ~high + (low == 0)
    if high > node.high or (high == node.high and low >= node.low):
        return BAD
    return append(&node.data, found, 16)


cdef int read(Node* node, Cursor* cursor) noexcept nogil:
    """Read one value into a node: 0, or why not. What an incomplete one has left is taken back by ``cut``."""
    cdef int64_t branch
    cdef int failed
    if node.null_at >= 0:
        if whole(cursor, &branch) or branch < 0 or branch > 1:
            return BAD
        if branch == node.null_at:
            return null_row(node)
    if node.kind <= DOUBLE or node.kind == FLOAT_AS_DOUBLE:
        failed = number(node, cursor)
    elif node.kind <= FIXED_DECIMAL:
        failed = text(node, cursor)
    else:
        failed = nested(node, cursor)
    return failed or (row(node) if node.out else 0)


cdef inline int number(Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t found
    cdef int32_t small
    cdef const uint8_t* source
    cdef double wide
    cdef float narrow
    if node.kind == NOTHING:
        return 0
    if INT <= node.kind <= WHOLE_AS_DOUBLE:
        if whole(cursor, &found):
            return BAD
        if not node.out:
            return 0
        if node.kind == LONG:
            return append(&node.data, &found, 8)
        if node.kind == INT:
            small = <int32_t>found
            return BAD if small != found else append(&node.data, &small, 4)
        wide = <double>found
        if node.kind == WHOLE_AS_DOUBLE:
            return append(&node.data, &wide, 8)
        narrow = <float>wide  # as Python has it, which knows no other floats than these
        return append(&node.data, &narrow, 4)
    if node.kind == BOOLEAN:
        if taken(cursor, 1, &source) or source[0] > 1:
            return BAD
        return append(&node.data, source, 1) if node.out else 0
    if taken(cursor, 8 if node.kind == DOUBLE else 4, &source):
        return BAD
    if not node.out:
        return 0
    if node.kind == FLOAT_AS_DOUBLE:
        memcpy(&narrow, source, 4)
        wide = narrow
        return append(&node.data, &wide, 8)
    return append(&node.data, source, node.width)


cdef inline int text(Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t size = node.size
    cdef int32_t symbol
    cdef const uint8_t* source
    if node.kind == ENUM:
        if whole(cursor, &size) or size < 0 or size >= node.size:
            return BAD
        symbol = <int32_t>size
        return append(&node.data, &symbol, 4) if node.out else 0
    if node.kind != FIXED and node.kind != FIXED_DECIMAL and whole(cursor, &size):
        return BAD
    if taken(cursor, size, &source) or (node.kind == TEXT and not is_utf8(source, size)):
        return BAD
    if not node.out:
        return 0
    if node.kind == DECIMAL or node.kind == FIXED_DECIMAL:
        return decimal(node, source, size)
    return append(&node.data, source, size) or append_end(node, node.data.used)


cdef int nested(Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t branch
    cdef int i, failed
    if node.kind == RECORD:
        for i in range(node.count):
            failed = read(node.children[i], cursor)
            if failed:
                return failed
        return 0
    if node.kind == UNION:
        if whole(cursor, &branch) or branch < 0 or branch >= node.count:
            return BAD
        return read(node.children[branch], cursor)
    return blocks(node, cursor)


cdef int blocks(Node* node, Cursor* cursor) noexcept nogil:
    """Read the elements of an array, or keys and values of a map."""
    cdef int64_t count, size
    cdef int64_t start = node.children[0].rows
    cdef int i, failed
    while True:
        if whole(cursor, &count):
            return BAD
        if count == 0:
            break
        if count < 0:
            if whole(cursor, &size):
                return BAD
            count = -count
            if count < 0:
                return BAD
        while count:
            for i in range(node.count):
                failed = read(node.children[i], cursor)
                if failed:
                    return failed
            count -= 1
    if not node.out:
        return 0
    if node.kind == MAP and has_key_twice(node.children[0], start):
        return BAD
    return append_end(node, node.children[0].rows)


cdef int has_key_twice(Node* keys, int64_t start) noexcept nogil:
    """Say whether a key appears twice since some row; also if there are too many of them to know."""
    cdef int32_t* ends = <int32_t*>keys.ends.data
    cdef int64_t i, j, size
    if keys.rows - start > MANY_KEYS:
        return 1
    for i in range(start, keys.rows):
        size = ends[i + 1] - ends[i]
        for j in range(start, i):
            if ends[j + 1] - ends[j] == size and memcmp(keys.data.data + ends[i], keys.data.data + ends[j], size) == 0:
                return 1
    return 0


# --- from and to Python ----------------------------------------------------------------------------------------------------------


cdef Node* made(tuple described) except NULL:
    """Return a node, and those within. ``described``: see ``avro_bulk.Described``."""
    kind, null_at, out, width, size, limit, children = described
    cdef Node* node = <Node*>calloc(1, sizeof(Node))
    if node == NULL:
        raise MemoryError
    try:
        node.kind, node.null_at, node.out, node.width, node.size = kind, null_at, out, width, size
        node.high, node.low = limit >> 64, limit & 0xFFFFFFFFFFFFFFFF
        node.children = <Node**>calloc(max(1, len(children)), sizeof(Node*))
        if node.children == NULL:
            raise MemoryError
        for child in children:
            node.children[node.count] = made(child)
            node.count += 1
        if not node.width and append_zeros(&node.ends, 4):
            raise MemoryError
    except BaseException:
        dispose(node)
        raise
    return node


cdef void dispose(Node* node) noexcept:
    cdef int i
    if node == NULL:
        return
    for i in range(node.count):
        dispose(node.children[i])
    free(node.children)
    free(node.data.data)
    free(node.ends.data)
    free(node.valid.data)
    free(node)


cdef object bits(Grown* grown, int64_t rows):
    """Return bytes that are 0 or 1 as bits, the lowest first."""
    cdef Grown found
    cdef int64_t i
    memset(&found, 0, sizeof(found))
    if append_zeros(&found, (rows + 7) >> 3):
        raise MemoryError
    for i in range(rows):
        found.data[i >> 3] |= grown.data[i] << (i & 7)
    return block(&found)


cdef tuple column(Node* node):
    """Return rows, nulls, validity, data, ends and what is within."""
    cdef int i
    valid = bits(&node.valid, node.rows) if node.nulls else None
    data = bits(&node.data, node.rows) if node.kind == BOOLEAN else block(&node.data)
    within = [column(node.children[i]) for i in range(node.count)]
    return node.rows, node.nulls, valid, data, block(&node.ends), within


cdef class Values:
    """The values of a ``pyarrow.BinaryArray``: its buffers, the place of its first value in them, and how many there are."""

    cdef Py_buffer views[3]
    cdef int held
    cdef const uint8_t* data
    cdef const int32_t* ends
    cdef const uint8_t* bitmap
    cdef int64_t start
    cdef int64_t count

    def __cinit__(self, data, offsets, validity, int64_t start, int64_t count):
        self.start, self.count = start, count
        for each in (data, offsets, validity):
            if each is not None:
                PyObject_GetBuffer(each, &self.views[self.held], PyBUF_SIMPLE)
                self.held += 1
        self.data, self.ends = <const uint8_t*>self.views[0].buf, <const int32_t*>self.views[1].buf
        self.bitmap = <const uint8_t*>self.views[2].buf if validity is not None else NULL

    def __dealloc__(self):
        cdef int i
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])

    cdef inline bint is_null(self, int64_t at) noexcept nogil:
        at += self.start
        return self.bitmap != NULL and not (self.bitmap[at >> 3] >> (at & 7)) & 1

    cdef inline const uint8_t* begin(self, int64_t at) noexcept nogil:
        """Return where a value begins, and the one before it ends."""
        return self.data + self.ends[self.start + at]


cdef class Reader:
    """Reads one batch of values."""

    cdef Node* root

    def __cinit__(self, tuple described):
        self.root = made(described)

    def __dealloc__(self):
        dispose(self.root)

    def read(self, Values values, Py_ssize_t frame):
        """Read values, each of which has ``frame`` bytes in front of its record. Return the places of those that are bad. Only once."""
        cdef int failed = 0
        cdef int64_t at
        cdef int i
        cdef Cursor cursor
        cdef Grown bad
        memset(&bad, 0, sizeof(bad))
        try:
            with nogil:
                for at in range(values.count):
                    if values.is_null(at):
                        failed = self.nothing()
                    else:
                        cursor.at, cursor.end = values.begin(at) + frame, values.begin(at + 1)
                        failed = BAD
                        if cursor.at <= cursor.end:
                            failed = nested(self.root, &cursor)
                        if not failed and cursor.at != cursor.end:
                            failed = BAD
                        if failed == BAD:
                            for i in range(self.root.count):
                                cut(self.root.children[i], at)
                            failed = append(&bad, &at, 8) or self.nothing()
                    if failed:
                        break
            if failed:
                raise MemoryError
            return [(<int64_t*>bad.data)[at] for at in range(bad.used // 8)]
        finally:
            free(bad.data)

    cdef int nothing(self) noexcept nogil:
        cdef int i
        for i in range(self.root.count):
            if null_row(self.root.children[i]):
                return NO_MEMORY
        return 0

    def columns(self):
        """Return what each field of the records was read into; once."""
        cdef int i
        return [column(self.root.children[i]) for i in range(self.root.count)]


def frames(Values values):
    """Return a number in eight bytes for each value: that in its frame, -1 if it has none, -2 for null."""
    cdef int64_t at
    cdef int64_t number
    cdef Grown found
    cdef const uint8_t* value
    memset(&found, 0, sizeof(found))
    try:
        if reserve(&found, 8 * values.count):
            raise MemoryError
        for at in range(values.count):
            value = values.begin(at)
            if values.is_null(at):
                number = -2
            elif values.begin(at + 1) - value < 5 or value[0]:
                number = -1
            else:
                number = <uint32_t>value[1] << 24 | <uint32_t>value[2] << 16 | <uint32_t>value[3] << 8 | value[4]
            append(&found, &number, 8)
        return block(&found)
    finally:
        free(found.data)
