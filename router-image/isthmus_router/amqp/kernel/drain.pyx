# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The forwarding kernel's common case, compiled: whole messages along a valid route, accepted outcomes, credit.

`Drain` deals with delivery events at the head of the engine's collector as `Forwarder.incoming` and
`Settlement.updated` do, with their objects, and leaves to them whatever is not the common case, before it has
changed anything. So there is one state, and the router does the same with and without this module
(`tests/unit/amqp/test_kernels.py`).

It calls the engine that the process has loaded already, by its symbols, and reads the slots of `Link`, `Route` and
others in place. What it takes for granted about both is checked when the module is loaded; ImportError if it is not
so.
"""

from libc.stdint cimport uint64_t, uintptr_t
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLong, PyLong_FromVoidPtr
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

import cproton_ffi
from cproton_ffi import ffi

from isthmus_router.core.model import Connection, Direction, Hop, Link
from isthmus_router.core.routes import Route, RouteKind
from isthmus_router.message.sections import DEFAULT_PRIORITY

cdef extern from "dlfcn.h" nogil:
    int RTLD_NOW
    void *dlopen(const char *, int)
    void *dlsym(void *, const char *)

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)

ctypedef struct Bytes:  # pn_bytes_t
    size_t size
    const char *start

ctypedef void *(*to_pointer)(void *) noexcept
ctypedef bint (*to_bool)(void *) noexcept
ctypedef int (*to_int)(void *) noexcept
ctypedef size_t (*to_size)(void *) noexcept
ctypedef uint64_t (*to_state)(void *) noexcept
ctypedef void (*to_nothing)(void *) noexcept
ctypedef void (*with_state)(void *, uint64_t) noexcept
ctypedef ssize_t (*with_room)(void *, char *, size_t) noexcept
ctypedef ssize_t (*with_bytes)(void *, const char *, size_t) noexcept
ctypedef void *(*with_tag)(void *, Bytes) noexcept

# The engine

cdef void *_library = dlopen(cproton_ffi.__file__.encode(), RTLD_NOW)


cdef void *_symbol(name) except NULL:
    cdef void *found = dlsym(_library, name.encode()) if _library != NULL else NULL
    if found == NULL:
        raise ImportError(f"the engine has no {name}")
    return found


cdef to_pointer pn_collector_peek = <to_pointer>_symbol("pn_collector_peek")
cdef to_bool pn_collector_pop = <to_bool>_symbol("pn_collector_pop")
cdef to_pointer pn_event_delivery = <to_pointer>_symbol("pn_event_delivery")
cdef to_pointer pn_delivery_link = <to_pointer>_symbol("pn_delivery_link")
cdef to_bool pn_delivery_partial = <to_bool>_symbol("pn_delivery_partial")
cdef to_size pn_delivery_pending = <to_size>_symbol("pn_delivery_pending")
cdef to_state pn_delivery_remote_state = <to_state>_symbol("pn_delivery_remote_state")
cdef to_bool pn_delivery_settled = <to_bool>_symbol("pn_delivery_settled")
cdef to_nothing pn_delivery_settle = <to_nothing>_symbol("pn_delivery_settle")
cdef with_state pn_delivery_update = <with_state>_symbol("pn_delivery_update")
cdef to_bool pn_link_advance = <to_bool>_symbol("pn_link_advance")
cdef to_int pn_link_credit = <to_int>_symbol("pn_link_credit")
cdef to_pointer pn_link_current = <to_pointer>_symbol("pn_link_current")
cdef with_room pn_link_recv = <with_room>_symbol("pn_link_recv")
cdef with_bytes pn_link_send = <with_bytes>_symbol("pn_link_send")
cdef with_tag pn_delivery = <with_tag>_symbol("pn_delivery")
cdef to_size pn_session_outgoing_bytes = <to_size>_symbol("pn_session_outgoing_bytes")

cdef object _delivery_type = ffi.typeof("pn_delivery_t *")
cdef object _link_type = ffi.typeof("pn_link_t *")
cdef object _cast = ffi.cast

cdef uint64_t ACCEPTED = int(cproton_ffi.lib.PN_ACCEPTED)


cdef inline void *_pointer(PyObject *cdata) noexcept:
    """What a pointer of cffi's points to: the field behind its object header and its type."""
    return (<void **>(<char *>cdata + sizeof(PyObject) + sizeof(void *)))[0]


cdef _check_pointer():
    probe = ffi.cast("void *", 0x1234567)
    if <uintptr_t>_pointer(<PyObject *>probe) != 0x1234567:
        raise ImportError("the pointers of cffi are laid out in another way than expected")


_check_pointer()


def key(pn):
    """What the kernel knows a delivery by: its address; None for none."""
    if pn is None:
        return None
    return PyLong_FromVoidPtr(_pointer(<PyObject *>pn))


def handle(address):
    """The delivery that has such a key."""
    return _cast(_delivery_type, address)


# Slots of the router's objects

cdef Py_ssize_t _offset(kind, name) except -1:
    descriptor = getattr(kind, name)
    if type(descriptor).__name__ != "member_descriptor":
        raise ImportError(f"{kind.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject *><PyObject *>descriptor).d_member.offset


cdef inline PyObject *_get(PyObject *owner, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>owner + offset))[0]


cdef inline void _set(PyObject *owner, Py_ssize_t offset, object value):
    cdef PyObject **at = <PyObject **>(<char *>owner + offset)
    cdef PyObject *before = at[0]
    Py_INCREF(value)
    at[0] = <PyObject *>value
    Py_XDECREF(before)


cdef inline int _count(PyObject *owner, Py_ssize_t offset) except -1:
    _set(owner, offset, PyLong_AsLong(<object>_get(owner, offset)) + 1)
    return 0


cdef PyObject *NONE = <PyObject *>None
cdef object _true = bool(1)
cdef PyObject *TRUE = <PyObject *>_true
cdef object _incoming = Direction.IN
cdef PyObject *INCOMING = <PyObject *>_incoming
cdef object _single = RouteKind.SINGLE
cdef PyObject *SINGLE = <PyObject *>_single
cdef object _rotate = RouteKind.ROTATE
cdef PyObject *ROTATE = <PyObject *>_rotate
cdef object _balance = RouteKind.BALANCE
cdef PyObject *BALANCE = <PyObject *>_balance
cdef object _link = Link

cdef Py_ssize_t link_accepted = _offset(Link, "accepted")
cdef Py_ssize_t link_connection = _offset(Link, "connection")
cdef Py_ssize_t link_credit_batch = _offset(Link, "credit_batch")
cdef Py_ssize_t link_credit_due = _offset(Link, "credit_due")
cdef Py_ssize_t link_deliveries = _offset(Link, "deliveries")
cdef Py_ssize_t link_direction = _offset(Link, "direction")
cdef Py_ssize_t link_io = _offset(Link, "io")
cdef Py_ssize_t link_on_delivery = _offset(Link, "on_delivery")
cdef Py_ssize_t link_parked = _offset(Link, "parked")
cdef Py_ssize_t link_paused = _offset(Link, "paused")
cdef Py_ssize_t link_presettled = _offset(Link, "presettled")
cdef Py_ssize_t link_replenish_on_arrival = _offset(Link, "replenish_on_arrival")
cdef Py_ssize_t link_route = _offset(Link, "route")
cdef Py_ssize_t link_routes = _offset(Link, "routes")
cdef Py_ssize_t link_sends_settled = _offset(Link, "sends_settled")
cdef Py_ssize_t link_sends_unsettled = _offset(Link, "sends_unsettled")
cdef Py_ssize_t link_session = _offset(Link, "session")
cdef Py_ssize_t link_settles_second = _offset(Link, "settles_second")
cdef Py_ssize_t link_stream = _offset(Link, "stream")
cdef Py_ssize_t link_targeted = _offset(Link, "targeted")
cdef Py_ssize_t link_unsettled = _offset(Link, "unsettled")
cdef Py_ssize_t link_whole_bytes = _offset(Link, "whole_bytes")
cdef Py_ssize_t route_address = _offset(Route, "address")
cdef Py_ssize_t route_deliveries = _offset(Route, "deliveries")
cdef Py_ssize_t route_kind = _offset(Route, "kind")
cdef Py_ssize_t route_link = _offset(Route, "link")
cdef Py_ssize_t route_prefix = _offset(Route, "prefix")
cdef Py_ssize_t route_sinks = _offset(Route, "sinks")
cdef Py_ssize_t route_valid = _offset(Route, "valid")
cdef Py_ssize_t connection_annotates = _offset(Connection, "annotates")
cdef Py_ssize_t connection_io = _offset(Connection, "io")
cdef Py_ssize_t hop_data_links = _offset(Hop, "data_links")
cdef object _zero = 0

cdef int default_priority = DEFAULT_PRIORITY

cdef enum:
    _EMPTY = 0
    _TO_DO = 1
    _DONE = 2
    _GO_ON = 3


cdef class Drain:
    """The compiled part of one `Forwarder`."""

    EMPTY = _EMPTY
    """There are no more events."""
    TO_DO = _TO_DO
    """The event at the head is for Python."""
    DONE = _DONE
    """Python has dealt with the event at the head."""

    cdef object forwarder
    cdef object settlement
    cdef object dirty
    cdef char *buffer
    cdef uint64_t *tag_number
    cdef object delivery
    cdef Py_ssize_t delivery_key
    cdef Py_ssize_t delivery_link
    cdef Py_ssize_t delivery_load
    cdef Py_ssize_t delivery_lost_state
    cdef Py_ssize_t delivery_second
    cdef ssize_t large_bytes
    cdef size_t session_outgoing_high

    def __init__(self, forwarder, delivery, *, large_bytes, session_outgoing_high):
        """`delivery` is the class of what is remembered of a delivery; limits are in bytes."""
        self.forwarder = forwarder
        self.delivery = delivery
        self.delivery_key = _offset(delivery, "key")
        self.delivery_link = _offset(delivery, "link")
        self.delivery_load = _offset(delivery, "load")
        self.delivery_lost_state = _offset(delivery, "lost_state")
        self.delivery_second = _offset(delivery, "second")
        self.settlement = forwarder.settlement
        self.dirty = forwarder.dirty
        self.buffer = <char *>_pointer(<PyObject *>forwarder.buffer)
        self.tag_number = <uint64_t *>_pointer(<PyObject *>forwarder.tag_bytes)
        self.large_bytes = large_bytes
        self.session_outgoing_high = session_outgoing_high

    def drain(self, collector, dict links not None):
        """Deal with events at the head of `collector`, as far as they are the common case: EMPTY, TO_DO or DONE.

        `links` has those of the connection by their engine's pointer. The event of TO_DO and DONE is still there.
        """
        cdef void *events = _pointer(<PyObject *>collector)
        cdef void *event
        cdef void *pn
        cdef void *at
        cdef void *last = NULL
        cdef PyObject *link = NULL
        cdef long second = self.settlement.second
        cdef int state
        while True:
            event = pn_collector_peek(events)
            if event == NULL:
                return _EMPTY
            pn = pn_event_delivery(event)
            if pn == NULL:
                return _TO_DO
            at = pn_delivery_link(pn)
            if at != last:
                link = PyDict_GetItem(links, _cast(_link_type, <uintptr_t>at))
                last = at
            if link != NULL:
                if _get(link, link_direction) == INCOMING:
                    state = self.incoming(link, pn, second)
                else:
                    state = self.updated(link, pn, second)
                if state != _GO_ON:
                    return state
            pn_collector_pop(events)

    cdef int incoming(self, PyObject *link, void *pn, long second) except -1:
        """As `Forwarder.incoming`."""
        cdef unsigned char *data = <unsigned char *>self.buffer
        cdef void *at = _pointer(_get(link, link_io))
        cdef PyObject *route
        cdef PyObject *out
        cdef PyObject *kind
        cdef object sink, load, found, section, record, number
        cdef Py_ssize_t skip = 0
        cdef ssize_t size, whole
        cdef bint settled
        if _get(link, link_stream) != NONE or _get(link, link_paused) == TRUE:
            return _TO_DO
        if pn_link_current(at) != pn or pn_delivery_partial(pn) or pn_delivery_remote_state(pn):
            return _TO_DO
        whole = PyLong_AsLong(<object>_get(link, link_whole_bytes))
        size = pn_link_recv(at, self.buffer, whole)
        if size <= 0:
            return _TO_DO
        if size == whole:
            return self.received(link, pn, size)
        if _get(link, link_targeted) == TRUE and data[1] != 0x80:
            route = _get(link, link_route)
        elif _get(link, link_on_delivery) != NONE:
            return self.received(link, pn, size)
        else:
            skip = 12 + data[11] if data[10] == 0xC0 else 15 + (data[13] << 8) + data[14]
            if skip > size:
                return self.received(link, pn, size)
            section = PyBytes_FromStringAndSize(self.buffer, skip)
            route = PyDict_GetItem(<object>_get(link, link_routes), section)
            if route == NULL:
                return self.received(link, pn, size)
        if route == NONE or _get(route, route_valid) != TRUE:
            return self.received(link, pn, size)
        load = found = None
        out = _get(route, route_link)
        if out == NONE:
            kind = _get(route, route_kind)
            if kind == SINGLE:
                sink = <object>PyList_GET_ITEM(<object>_get(route, route_sinks), 0)
            elif kind == ROTATE or kind == BALANCE:
                sink, load = (<object>route).choose()
            else:
                return self.received(link, pn, size)
            found = self.link_to(sink, route, skip, size)
            out = <PyObject *>found
        settled = pn_delivery_settled(pn)
        pn_link_advance(at)
        _count(link, link_deliveries)
        _count(route, route_deliveries)
        if out == NONE:
            self.settlement.release(<object>link, _cast(_delivery_type, <uintptr_t>pn), settled)
            return _GO_ON
        record = None
        if settled:
            _count(link, link_presettled)
            pn_delivery_settle(pn)
        else:
            number = PyLong_FromVoidPtr(pn)
            record = PyType_GenericAlloc(<PyTypeObject *>self.delivery, 0)
            _set(<PyObject *>record, self.delivery_link, <object>link)
            _set(<PyObject *>record, self.delivery_key, number)
            _set(<PyObject *>record, self.delivery_load, load)
            _set(<PyObject *>record, self.delivery_second, second)
            _set(<PyObject *>record, self.delivery_lost_state, _zero)
            PyDict_SetItem(<object>_get(link, link_unsettled), number, record)
            if load is not None:
                load.outstanding += 1
        if settled or _get(link, link_replenish_on_arrival) == TRUE:
            self.replenish(link)
        self.send(out, route, size, skip, record, link)
        return _GO_ON

    cdef int received(self, PyObject *link, void *pn, ssize_t size) except -1:
        """Not the common case: the message is in the buffer, and nothing has been done about it yet."""
        self.forwarder.received(<object>link, _cast(_delivery_type, <uintptr_t>pn), size)
        return _DONE

    cdef object link_to(self, sink, PyObject *route, Py_ssize_t skip, Py_ssize_t size):
        """As `Forwarder.out_link`."""
        cdef unsigned char *data = <unsigned char *>self.buffer
        cdef PyObject *links
        cdef PyObject *address = _get(route, route_address)
        cdef int priority
        if type(sink) is _link:
            return sink
        if (address != NONE and (<object>address).priority is not None) or not (
            data[skip + 1] == 0x53
            and (
                data[skip + 2] != 0x70
                or data[skip + 3] == 0x45
                or (data[skip + 3] == 0xC0 and data[skip + 5] < 2)
            )
        ):
            return self.forwarder.out_link(sink, <object>route, skip, size)
        links = _get(<PyObject *>sink, hop_data_links)
        found = <object>PyList_GET_ITEM(<object>links, default_priority)
        return found if found is not None else sink.link_for(default_priority)

    cdef int send(
        self, PyObject *out, PyObject *route, Py_ssize_t size, Py_ssize_t skip, object record, PyObject *origin
    ) except -1:
        """As `Forwarder.send_message`."""
        cdef void *at = _pointer(_get(out, link_io))
        cdef PyObject *connection = _get(out, link_connection)
        cdef object driver = <object>_get(connection, connection_io)
        cdef object prefix
        cdef Bytes tag
        cdef void *pn
        if (
            _get(out, link_stream) != NONE
            or <object>_get(out, link_parked)
            or pn_link_credit(at) <= 0
            or _get(out, link_sends_settled) == TRUE
            or (record is None and _get(out, link_sends_unsettled) == TRUE)
            or (
                (size > self.large_bytes or driver.write_blocked)
                and pn_session_outgoing_bytes(_pointer(_get(out, link_session))) > self.session_outgoing_high
            )
        ):
            self.forwarder.send_message(<object>out, <object>route, size, skip, record, <object>origin)
            return 0
        self.tag_number[0] += 1
        tag.size = sizeof(uint64_t)
        tag.start = <const char *>self.tag_number
        pn = pn_delivery(at, tag)
        if _get(connection, connection_annotates) == TRUE:
            prefix = <object>_get(route, route_prefix)
            pn_link_send(at, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        pn_link_send(at, self.buffer + skip, size - skip)
        _count(out, link_deliveries)
        if record is None:
            _count(out, link_presettled)
            pn_delivery_settle(pn)
        else:
            pn_link_advance(at)
            PyDict_SetItem(<object>_get(out, link_unsettled), PyLong_FromVoidPtr(pn), record)
        return self.touch(driver)

    cdef int updated(self, PyObject *link, void *pn, long second) except -1:
        """As `Settlement.updated` for an OUT link."""
        cdef object unsettled = <object>_get(link, link_unsettled)
        cdef object number = PyLong_FromVoidPtr(pn)
        cdef PyObject *known = PyDict_GetItem(unsettled, number)
        cdef object record, load, origin
        cdef bint late
        cdef PyObject *sender
        if known == NULL:
            return _GO_ON
        if pn_delivery_remote_state(pn) != ACCEPTED or type(<object>known) is not self.delivery:
            return _TO_DO
        sender = _get(known, self.delivery_link)
        if not pn_delivery_settled(pn) or (sender != NONE and _get(sender, link_settles_second) == TRUE):
            return _TO_DO
        record = <object>known
        PyDict_DelItem(unsettled, number)
        _count(link, link_accepted)
        pn_delivery_settle(pn)
        late = PyLong_AsLong(<object>_get(known, self.delivery_second)) != second
        if late:
            self.settlement.count_late(<object>link, record)
        self.touch(<object>_get(_get(link, link_connection), connection_io))
        if _get(known, self.delivery_load) != NONE:
            load = <object>_get(known, self.delivery_load)
            load.outstanding -= 1
        if sender == NONE:
            return _GO_ON
        origin = <object>sender
        number = <object>_get(known, self.delivery_key)
        pn = <void *><uintptr_t>number
        PyDict_DelItem(<object>_get(sender, link_unsettled), number)
        if late:
            self.settlement.count_late(origin, record)
        _count(sender, link_accepted)
        pn_delivery_update(pn, ACCEPTED)
        pn_delivery_settle(pn)
        if _get(sender, link_replenish_on_arrival) != TRUE:
            self.replenish(sender)
        self.touch(<object>_get(_get(sender, link_connection), connection_io))
        return _GO_ON

    cdef int replenish(self, PyObject *link) except -1:
        """As `Settlement.replenish`, which is called when a batch is due."""
        cdef long due = PyLong_AsLong(<object>_get(link, link_credit_due)) + 1
        cdef object batch = <object>_get(link, link_credit_batch)
        if due < batch:
            _set(link, link_credit_due, due)
        else:
            self.settlement.replenish(<object>link)
        return 0

    cdef int touch(self, driver) except -1:
        """As `Settlement.touch`, by the connection's driver."""
        if not driver.dirty:
            driver.dirty = True
            self.dirty.append(driver)
        return 0
