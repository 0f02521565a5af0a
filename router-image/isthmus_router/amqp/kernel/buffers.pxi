"""What `buffers.py` does, with the buffers of the engine's deliveries."""
# Part of drain.pyx, which imports what is named here.

cdef Py_ssize_t buffer_place = BUFFER_PLACE * sizeof(void *)
cdef size_t retained_bytes = RETAINED_BYTES
cdef Py_ssize_t written_at_once = WRITTEN_AT_ONCE


cdef inline void *buffer_of(void *pn) noexcept:
    return (<void **>(<char *>pn + buffer_place))[0]


cdef inline bint is_large(void *pn) noexcept:
    return pn_buffer_capacity(buffer_of(pn)) > retained_bytes


cdef void give_back(void *pn) noexcept:
    cdef void *before = buffer_of(pn)
    cdef void *empty
    if is_large(pn) and pn_buffer_size(before) == 0:
        empty = pn_buffer(0)
        if empty != NULL:
            (<void **>(<char *>pn + buffer_place))[0] = empty
            pn_buffer_free(before)


cdef int give_back_written(PyObject *out, void *pn) except -1:
    PyList_Append(<object>get(get(get(out, link_connection), connection_io), state_unwritten), PyLong_FromVoidPtr(pn))
    return 0


cdef inline int end_read(void *at, void *pn) noexcept:
    """As `advance` for an IN link."""
    pn_link_advance(at)
    if is_large(pn):
        give_back(pn)
    return 0


cdef inline int end_sent(PyObject *out, void *at, void *pn) except -1:
    """As `advance` for an OUT link."""
    pn_link_advance(at)
    return give_back_written(out, pn) if is_large(pn) else 0


def release(pn):
    """As `buffers.release`."""
    give_back(pointer(<PyObject *>pn))


def release_written(out, pn):
    """As `buffers.release_written`."""
    if is_large(pointer(<PyObject *>pn)):
        give_back_written(<PyObject *>out, pointer(<PyObject *>pn))


def advance(link):
    """As `buffers.advance`."""
    cdef void *at = pointer(get(<PyObject *>link, link_io))
    cdef void *pn = pn_link_current(at)
    if pn == NULL:
        return
    if get(<PyObject *>link, link_direction) == INCOMING:
        end_read(at, pn)
    else:
        end_sent(<PyObject *>link, at, pn)


def written(list deliveries not None):
    """As `buffers.written`."""
    cdef Py_ssize_t count = max(written_at_once, PyList_GET_SIZE(deliveries) // 2)
    cdef list left = deliveries[count:]
    cdef void *pn
    for number in deliveries[:count]:
        pn = <void *><uintptr_t>number
        if pn_buffer_size(buffer_of(pn)):
            PyList_Append(left, number)
        else:
            give_back(pn)
    return left
