"""What `buffers.py` does, with the buffers of the engine's deliveries."""
# Part of drain.pyx, which imports what is named here.

cdef Py_ssize_t buffer_place = BUFFER_PLACE * sizeof(void *)
cdef Py_ssize_t start_place = START_PLACE
cdef size_t retained_bytes = RETAINED_BYTES
cdef Py_ssize_t written_at_once = WRITTEN_AT_ONCE
cdef Py_ssize_t most_retained = MOST_RETAINED
cdef size_t largest_spare = LARGEST_SPARE
cdef size_t shrinking = SHRINKING
cdef dict all_retained = {}
cdef Py_ssize_t most_spares = MOST_SPARES
cdef void **spares = <void **>calloc(most_spares, sizeof(void *))
cdef Py_ssize_t count_of_spares = 0
if spares == NULL:
    raise MemoryError


cdef inline void *buffer_of(void *pn) noexcept:
    return (<void **>(<char *>pn + buffer_place))[0]


cdef inline bint is_large(void *pn) noexcept:
    return pn_buffer_capacity(buffer_of(pn)) > retained_bytes


cdef inline void set_buffer(void *pn, void *buffer) noexcept:
    (<void **>(<char *>pn + buffer_place))[0] = buffer


cdef void give_back(void *pn) noexcept:
    """As `release`."""
    global count_of_spares
    cdef void *before = buffer_of(pn)
    cdef void *empty
    if is_large(pn) and pn_buffer_size(before) == 0:
        empty = pn_buffer(0)
        if empty != NULL:
            set_buffer(pn, empty)
            if count_of_spares < most_spares and pn_buffer_capacity(before) <= largest_spare:
                spares[count_of_spares] = before
                count_of_spares += 1
            else:
                pn_buffer_free(before)


cdef inline void equip_with_spare(void *pn, size_t size) noexcept:
    """As `equip`."""
    global count_of_spares
    cdef void *before = buffer_of(pn)
    cdef size_t held = pn_buffer_size(before)
    if held:
        straighten(before)
        if held + size > pn_buffer_capacity(before):
            enlarge(pn, held, size)
    elif size > retained_bytes and count_of_spares > 0 and pn_buffer_capacity(before) <= retained_bytes:
        count_of_spares -= 1
        set_buffer(pn, spares[count_of_spares])
        pn_buffer_free(before)


cdef void straighten(void *buffer) noexcept:
    """As `_straighten`."""
    cdef uint32_t *start = <uint32_t *>buffer + start_place
    cdef size_t held = pn_buffer_size(buffer)
    cdef char *memory
    if 0 < start[0] <= pn_buffer_capacity(buffer) - held:
        memory = (<char **>buffer)[0]
        memmove(memory, memory + start[0], held)
        start[0] = 0


cdef void enlarge(void *pn, size_t held, size_t size) noexcept:
    """As `_enlarge`."""
    cdef void *before = buffer_of(pn)
    cdef void *larger
    if (<uint32_t *>before + start_place)[0]:
        return
    larger = pn_buffer(max(held + size, 2 * pn_buffer_capacity(before)))
    if larger != NULL and pn_buffer_append(larger, (<char **>before)[0], held) == 0:
        set_buffer(pn, larger)
        pn_buffer_free(before)
    elif larger != NULL:
        pn_buffer_free(larger)


cdef void reduce(void *pn) noexcept:
    """As `_reduce`."""
    cdef void *before = buffer_of(pn)
    cdef size_t most = pn_buffer_capacity(before)
    cdef size_t held = pn_buffer_size(before)
    cdef size_t start = (<uint32_t *>before + start_place)[0]
    cdef size_t first = min(held, most - start)
    cdef char *memory = (<char **>before)[0]
    cdef void *smaller
    if held == 0:
        give_back(pn)
    if held == 0 or held * shrinking > most or most <= retained_bytes:
        return
    smaller = pn_buffer(held)
    if smaller == NULL:
        return
    pn_buffer_append(smaller, memory + start, first)
    pn_buffer_append(smaller, memory, held - first)
    set_buffer(pn, smaller)
    pn_buffer_free(before)


cdef int retain_large(PyObject *connection, void *pn) except -1:
    """As `retain`, if the buffer is large."""
    cdef object number
    if pn_buffer_capacity(buffer_of(pn)) > largest_spare:
        reduce(pn)
        return 0
    number = PyLong_FromVoidPtr(pn)
    if number not in all_retained:
        all_retained[number] = <object>connection
        if len(all_retained) > most_retained:
            number = next(iter(all_retained))
            del all_retained[number]
            reduce(<void *><uintptr_t>number)
    return 0


cdef int give_back_written(PyObject *out, void *pn) except -1:
    PyDict_SetItem(
        <object>get(get(get(out, link_connection), connection_io), state_unwritten), PyLong_FromVoidPtr(pn), None
    )
    return 0


cdef int give_back_sent(list branches, Py_ssize_t link_place, Py_ssize_t pn_place) except -1:
    """As `release_written` for each receiver of a stream."""
    cdef PyObject *branch
    cdef void *pn
    for one in branches:
        branch = <PyObject *>one
        pn = pointer(get(branch, pn_place))
        if is_large(pn):
            give_back_written(get(branch, link_place), pn)
    return 0


cdef inline int end_read(PyObject *link, void *at, void *pn) except -1:
    """As `advance` for an IN link."""
    pn_link_advance(at)
    return retain_large(get(get(link, link_connection), connection_io), pn) if is_large(pn) else 0


cdef inline int end_sent(PyObject *out, void *at, void *pn) except -1:
    """As `advance` for an OUT link."""
    pn_link_advance(at)
    return give_back_written(out, pn) if is_large(pn) else 0


def equip(pn, Py_ssize_t size):
    """As `buffers.equip`."""
    equip_with_spare(pointer(<PyObject *>pn), size)


def release(pn):
    """As `buffers.release`."""
    give_back(pointer(<PyObject *>pn))


def retain(connection, pn):
    """As `buffers.retain`."""
    if is_large(pointer(<PyObject *>pn)):
        retain_large(<PyObject *>connection, pointer(<PyObject *>pn))


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
        end_read(<PyObject *>link, at, pn)
    else:
        end_sent(<PyObject *>link, at, pn)


def forget(connection):
    """As `buffers.forget`."""
    for number in [number for number, owner in all_retained.items() if owner is connection]:
        del all_retained[number]


def written(dict deliveries not None):
    """As `buffers.written`."""
    cdef Py_ssize_t count = max(written_at_once, PyDict_Size(deliveries) // 2)
    cdef void *pn
    for number in list(islice(deliveries, count)):
        pn = <void *><uintptr_t>number
        PyDict_DelItem(deliveries, number)
        if pn_buffer_size(buffer_of(pn)):
            straighten(buffer_of(pn))
            PyDict_SetItem(deliveries, number, None)
        else:
            give_back(pn)
