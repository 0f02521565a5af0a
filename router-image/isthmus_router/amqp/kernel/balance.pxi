"""`core.balance`, compiled: which consumer or path has the least to do."""
# Part of drain.pyx, which imports what is named here.

cdef inline long load_of(PyObject *link) except -1:
    """As `Link.load`."""
    return (
        PyDict_Size(<object>get(link, link_unsettled))
        + Py_SIZE(get(link, link_parked))
        - PyLong_AsLong(<object>get(link, link_parked_dropped))
    )


cdef inline long burden(PyObject *sink, PyObject *load) except -1:
    """As `Link.burden`, or that of the path."""
    cdef long value
    if load != NONE:
        return PyLong_AsLong(<object>get(load, load_outstanding)) + PyLong_AsLong(<object>get(load, load_cost))
    value = load_of(sink)
    if value >= PyLong_AsLong(<object>get(sink, link_capacity)):
        return value + 2 * reluctant
    return value + reluctant if Py_SIZE(get(sink, link_parked)) or get(sink, link_drained) == TRUE else value


cdef Py_ssize_t least_loaded(PyObject *balance, PyObject *receivers) except -1:
    """As `Balance.choose`."""
    cdef list sinks = <list>get(receivers, receivers_sinks)
    cdef list loads = <list>get(receivers, receivers_loads)
    cdef Py_ssize_t count = PyList_GET_SIZE(sinks)
    cdef long least = PyLong_AsLong(<object>get(balance, balance_least))
    cdef PyObject *candidate = get(balance, balance_candidate)
    cdef PyObject *sink
    cdef PyObject *load
    cdef Py_ssize_t at, best, step, looks
    cdef bint whole
    cdef long value
    cdef long best_value = nobody
    cdef long second = nobody
    if candidate != NONE:
        at = PyLong_AsLong(<object>get(candidate, link_place if type(<object>candidate) is _link else load_place))
        if at < count:
            sink = <PyObject *>PyList_GET_ITEM(sinks, at)
            load = <PyObject *>PyList_GET_ITEM(loads, at)
            if (sink == candidate or load == candidate) and burden(sink, load) < least:
                return at
    at = best = PyLong_AsLong(<object>get(balance, balance_turn)) % count
    whole = get(receivers, receivers_whole) == TRUE
    looks = most_looks if whole and count > most_looks else count
    for step in range(looks):
        sink = <PyObject *>PyList_GET_ITEM(sinks, at)
        load = <PyObject *>PyList_GET_ITEM(loads, at)
        value = burden(sink, load)
        if value < best_value:
            second = best_value
            best_value = value
            best = at
            if value <= least and step < count - 1:
                break
        elif value < second:
            second = value
        at += 1
        if at == count:
            at = 0
    else:
        if looks < count:
            best = (<object>balance).least_of_all(<object>receivers)
        elif whole:
            load = <PyObject *>PyList_GET_ITEM(loads, best)
            (<object>balance).remember(<object>load if load != NONE else <object>PyList_GET_ITEM(sinks, best), second)
    put(balance, balance_turn, best + 1 if best + 1 < count else 0)
    return best
