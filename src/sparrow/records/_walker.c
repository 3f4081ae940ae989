/* One pass over the records of a batch that checks every byte of them against the format.
 *
 * This is the compiled twin of walker.py, which documents the rules. Both return equal tuples for all
 * input (tests/records/test_walker.py). Nothing is allocated per record, and no byte outside of
 * [start, end) is read. Only the limited API of Python 3.11 is used, so that one build serves every
 * later version.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define VERSION 2

/* As in walker.py. */
enum fault {
    NONE = 0,
    NUMBER,
    LENGTH,
    ATTRIBUTES,
    TIMESTAMP,
    OFFSET,
    KEY,
    VALUE,
    HEADER_COUNT,
    HEADER_NAME,
    HEADER_TEXT,
    HEADER_VALUE,
    RECORD_REST,
    BATCH_REST,
};

#define NO_TIMESTAMP (-1)
#define MIN_RECORD_LENGTH 6
#define MAX_LISTED 100

/* The numbers of the first few records that the caller has to be told of. */
struct listed {
    int count;
    Py_ssize_t numbers[MAX_LISTED];
};

struct walk {
    const uint8_t *position;
    const uint8_t *end; /* of the records */
    const uint8_t *fault_at;
    Py_ssize_t index; /* of the record that is read */
    int64_t base_timestamp;
    int64_t earliest;
    int64_t latest;
    int64_t max_timestamp;
    int has_timestamp;
    int needs_keys;
    struct listed untimely;
    struct listed keyless;
};

static void
list_number(struct listed *listed, Py_ssize_t number)
{
    if (listed->count < MAX_LISTED) {
        listed->numbers[listed->count++] = number;
    }
}

/* Read a zigzag number of at most `bits` bits (32 or 64) and return 1, or return 0. */
static int
read_number(const uint8_t **position, const uint8_t *end, int bits, int64_t *number)
{
    const uint8_t *at = *position;
    uint64_t folded = 0;
    int shift = 0;
    for (;;) {
        if (at == end) {
            return 0;
        }
        uint64_t byte = *at++;
        uint64_t low = byte & 0x7F;
        /* The last byte that a number may have is cut: 4 bits of 32, 1 bit of 64. */
        if (shift + 7 > bits && low >> (bits - shift) != 0) {
            return 0;
        }
        folded |= low << shift;
        if (byte < 0x80) {
            break;
        }
        shift += 7;
        if (shift >= bits) {
            return 0;
        }
    }
    *position = at;
    *number = (int64_t)(folded >> 1) ^ -(int64_t)(folded & 1);
    return 1;
}

/* The same; numbers of one byte, which nearly all are, are read in place. */
static inline int
read_short(const uint8_t **position, const uint8_t *end, int bits, int64_t *number)
{
    const uint8_t *at = *position;
    if (at < end && *at < 0x80) {
        *number = (int64_t)(*at >> 1) ^ -(int64_t)(*at & 1);
        *position = at + 1;
        return 1;
    }
    return read_number(position, end, bits, number);
}

/* Return 1 if [at, end) is UTF-8 as Python decodes it: shortest form, no surrogates, nothing above
 * U+10FFFF.
 */
static int
is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80) {
            continue;
        }
        int rest;
        uint8_t low = 0x80, high = 0xBF; /* of the second byte */
        if (first >= 0xC2 && first <= 0xDF) {
            rest = 1;
        } else if (first >= 0xE0 && first <= 0xEF) {
            rest = 2;
            if (first == 0xE0) {
                low = 0xA0;
            } else if (first == 0xED) {
                high = 0x9F;
            }
        } else if (first >= 0xF0 && first <= 0xF4) {
            rest = 3;
            if (first == 0xF0) {
                low = 0x90;
            } else if (first == 0xF4) {
                high = 0x8F;
            }
        } else {
            return 0;
        }
        if (end - at < rest || *at < low || *at > high) {
            return 0;
        }
        for (at++; --rest > 0; at++) {
            if (*at < 0x80 || *at > 0xBF) {
                return 0;
            }
        }
    }
    return 1;
}

#define FAIL(kind, where)        \
    do {                         \
        walk->fault_at = (where); \
        return (kind);           \
    } while (0)

#define READ(bits, number)                              \
    do {                                                \
        field = at;                                     \
        if (!read_short(&at, end, (bits), &(number))) { \
            FAIL(NUMBER, field);                        \
        }                                               \
    } while (0)

/* Read a length that may be -1 for null, and pass over as many bytes. */
#define PASS(kind, length)                           \
    do {                                             \
        READ(32, length);                            \
        if ((length) < -1 || (length) > end - at) {  \
            FAIL(kind, field);                       \
        }                                            \
        if ((length) > 0) {                          \
            at += (length);                          \
        }                                            \
    } while (0)

static enum fault
walk_headers(struct walk *walk, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *field;
    int64_t count, length;
    READ(32, count);
    /* A header takes two bytes at least: a count that lies is found before the headers are read. */
    if (count < 0 || count > (end - at) / 2) {
        FAIL(HEADER_COUNT, field);
    }
    for (; count > 0; count--) {
        PASS(HEADER_NAME, length);
        if (length < 0) {
            FAIL(HEADER_NAME, field);
        }
        if (!is_utf8(at - length, at)) {
            FAIL(HEADER_TEXT, field);
        }
        PASS(HEADER_VALUE, length);
    }
    if (at != end) {
        FAIL(RECORD_REST, at);
    }
    return NONE;
}

static enum fault
walk_record(struct walk *walk)
{
    const uint8_t *at = walk->position, *end = walk->end, *field;
    int64_t length, delta, timestamp;
    READ(32, length);
    if (length < MIN_RECORD_LENGTH || length > end - at) {
        FAIL(LENGTH, field);
    }
    end = at + length;
    if (*at != 0) {
        FAIL(ATTRIBUTES, at);
    }
    at++;
    READ(64, delta);
    if (__builtin_add_overflow(walk->base_timestamp, delta, &timestamp)) {
        FAIL(TIMESTAMP, field);
    }
    READ(32, delta);
    if (delta != walk->index) {
        FAIL(OFFSET, field);
    }
    PASS(KEY, length);
    if (length < 0 && walk->needs_keys) {
        list_number(&walk->keyless, walk->index);
    }
    PASS(VALUE, length);
    if (end - at == 1 && *at == 0) {
        at++;
    } else {
        enum fault fault = walk_headers(walk, at, end);
        if (fault != NONE) {
            return fault;
        }
    }
    if (timestamp != NO_TIMESTAMP) {
        if (timestamp < walk->earliest || timestamp > walk->latest) {
            list_number(&walk->untimely, walk->index);
        }
        if (timestamp > walk->max_timestamp || !walk->has_timestamp) {
            walk->max_timestamp = timestamp;
            walk->has_timestamp = 1;
        }
    }
    walk->position = end;
    return NONE;
}

static enum fault
walk_all(struct walk *walk, Py_ssize_t count)
{
    for (walk->index = 0; walk->index < count; walk->index++) {
        enum fault fault = walk_record(walk);
        if (fault != NONE) {
            return fault;
        }
    }
    if (walk->position != walk->end) {
        FAIL(BATCH_REST, walk->position);
    }
    return NONE;
}

static PyObject *
tuple_of(const struct listed *listed)
{
    PyObject *tuple = PyTuple_New(listed->count);
    for (int i = 0; tuple != NULL && i < listed->count; i++) {
        PyObject *number = PyLong_FromSsize_t(listed->numbers[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static PyObject *
walked(const struct walk *walk, enum fault fault, Py_ssize_t position)
{
    static const struct listed nothing = {0};
    PyObject *untimely = tuple_of(fault ? &nothing : &walk->untimely);
    PyObject *keyless = tuple_of(fault ? &nothing : &walk->keyless);
    if (untimely == NULL || keyless == NULL) {
        Py_XDECREF(untimely);
        Py_XDECREF(keyless);
        return NULL;
    }
    long long latest = fault ? NO_TIMESTAMP : (long long)walk->max_timestamp;
    return Py_BuildValue("(innLNN)", (int)fault, walk->index, position, latest, untimely, keyless);
}

static PyObject *
walker_walk(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 9) {
        PyErr_SetString(PyExc_TypeError, "walk() takes 9 arguments");
        return NULL;
    }
    struct walk walk = {.max_timestamp = NO_TIMESTAMP};
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    Py_ssize_t count = PyLong_AsSsize_t(args[3]);
    walk.base_timestamp = PyLong_AsLongLong(args[4]);
    walk.earliest = PyLong_AsLongLong(args[5]);
    walk.latest = PyLong_AsLongLong(args[6]);
    walk.needs_keys = PyObject_IsTrue(args[7]);
    int releases_gil = PyObject_IsTrue(args[8]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    if (start < 0 || start > end || end > buffer.len) {
        PyErr_Format(PyExc_ValueError, "records at [%zd, %zd) of %zd bytes", start, end, buffer.len);
        PyBuffer_Release(&buffer);
        return NULL;
    }
    const uint8_t *data = buffer.buf;
    walk.position = data + start;
    walk.end = walk.fault_at = data + end;
    enum fault fault;
    if (releases_gil) {
        Py_BEGIN_ALLOW_THREADS
        fault = walk_all(&walk, count);
        Py_END_ALLOW_THREADS
    } else {
        fault = walk_all(&walk, count);
    }
    Py_ssize_t position = walk.fault_at - data;
    PyBuffer_Release(&buffer);
    return walked(&walk, fault, position);
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walker_walk, METH_FASTCALL,
     "walk(data, start, end, record_count, base_timestamp, earliest, latest, needs_keys,"
     " release_gil, /)\n--\n\nAs sparrow.records.walker.walk."},
    {NULL, NULL, 0, NULL},
};

static int
set_version(PyObject *module)
{
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, set_version},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_walker", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__walker(void)
{
    return PyModuleDef_Init(&definition);
}
