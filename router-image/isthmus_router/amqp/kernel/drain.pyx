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

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc
from libc.string cimport memcmp, memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_Append, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLong, PyLong_FromVoidPtr
from cpython.object cimport PyObject, PyTypeObject
from isthmus_router.amqp.kernel.engine cimport (
    Bytes, appending, check_pointer, get, of_size, offset, pointer, put, symbol, to_bool, to_int, to_nothing,
    to_pointer, to_size, to_state, to_tag, with_bytes, with_credit, with_room, with_state, with_tag,
)
from isthmus_router.amqp.kernel.histograms cimport BUCKETS, add_latency, add_message, bucket_of
from isthmus_router.amqp.kernel.user_id cimport names_no_user
from isthmus_router.message.structure cimport Structure

import time
from collections import deque
from itertools import islice

import cproton_ffi
from cproton_ffi import ffi

from isthmus_router.core.balance import MOST_LOOKS, NOBODY, RELUCTANT, Balance
from isthmus_router.amqp.activity import Activity
from isthmus_router.amqp.kernel.allowance import Allowance
from isthmus_router.amqp.kernel.buffers import (
    BUFFER_PLACE, LARGEST_SPARE, MOST_RETAINED, MOST_SPARES, RETAINED_BYTES, SHRINKING, START_PLACE, WRITTEN_AT_ONCE,
)
from isthmus_router.amqp.kernel.outgoing import (
    DELIVERY_BYTES, OUTGOING_BYTES, OUTGOING_DELIVERIES, QUEUED_HIGH, SESSION_OUTGOING_HIGH,
)
from isthmus_router.amqp.kernel.state import ConnectionState
from isthmus_router.amqp.kernel.histograms import LATE_US, Histograms
from isthmus_router.core.address import Address
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop, PathLoad
from isthmus_router.core.terms import Direction
from isthmus_router.core.receivers import Receivers, RouteKind
from isthmus_router.core.routes import Route
from isthmus_router.flows import sketch
from isthmus_router.message.sections import DEFAULT_PRIORITY, MAX_PRIORITY

cdef extern from "Python.h":
    Py_ssize_t Py_SIZE(PyObject *)
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)

include "engine_calls.pxi"

cdef object _delivery_type = ffi.typeof("pn_delivery_t *")
cdef object _link_type = ffi.typeof("pn_link_t *")
cdef object _cast = ffi.cast

cdef uint64_t ACCEPTED = int(cproton_ffi.lib.PN_ACCEPTED)
cdef uint64_t RELEASED = int(cproton_ffi.lib.PN_RELEASED)
cdef int LINK_FLOW = int(cproton_ffi.lib.PN_LINK_FLOW)
cdef int TRANSPORT = int(cproton_ffi.lib.PN_TRANSPORT)

cdef long late_us = LATE_US

check_pointer()
if sketch.BUCKETS != BUCKETS:
    raise ImportError("the buckets of sketches are other ones than expected")


def key(pn):
    """What the kernel knows a delivery by: its address; None for none."""
    if pn is None:
        return None
    return PyLong_FromVoidPtr(pointer(<PyObject *>pn))


def handle(address):
    """The delivery that has such a key."""
    return _cast(_delivery_type, address)


def no_user_in(bytes message not None):
    """`names_no_user`, for tests."""
    return bool(names_no_user(<const unsigned char *>PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message)))


include "slots.pxi"
include "buffers.pxi"

cdef object _zero = 0

cdef int default_priority = DEFAULT_PRIORITY
cdef int most_priority = MAX_PRIORITY
cdef long reluctant = RELUCTANT
cdef long nobody = NOBODY
cdef Py_ssize_t most_looks = MOST_LOOKS
cdef size_t outgoing_bytes = OUTGOING_BYTES
cdef size_t outgoing_deliveries = OUTGOING_DELIVERIES
cdef size_t delivery_bytes = DELIVERY_BYTES
cdef size_t queued_high = QUEUED_HIGH
cdef size_t session_outgoing_high = SESSION_OUTGOING_HIGH

cdef object _two = deque((1, 2))
if Py_SIZE(<PyObject *>_two) != 2:
    raise ImportError("a deque does not have its length where it is expected")

cdef enum:
    JOINED_BYTES = 2048

cdef enum:
    _EMPTY = 0
    _TO_DO = 1
    _DONE = 2
    _GO_ON = 3
    _LATER = 4

cdef enum:
    UNTIMED = 8  # events that are dealt with before the clock is read again


cdef inline double monotonic() noexcept nogil:
    """Seconds by the clock of Python's `time.monotonic`."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


if not abs(monotonic() - time.monotonic()) < 60:
    raise ImportError("the interpreter's monotonic clock is another one than expected")


include "balance.pxi"


cdef int more_than_ours(PyObject *out, object unsettled) except -1:
    """As `Detached.unknown`, for an OUT link that is not in the middle of a delivery."""
    if pn_link_unsettled(pointer(get(out, link_io))) > PyDict_Size(unsettled):
        return _TO_DO
    return _GO_ON


cdef inline bint is_within_share(PyObject *out, size_t size, size_t high) except -1:
    """As `outgoing.has_room`, as far as it does not ask `Outgoing`."""
    cdef uint32_t *counts = <uint32_t *>pointer(get(out, link_session))
    cdef size_t waiting = counts[outgoing_bytes]
    cdef size_t deliveries = counts[outgoing_deliveries]
    cdef PyObject *driver = get(get(out, link_connection), connection_io)
    return (
        waiting <= high
        and deliveries <= queued_high
        and (
            deliveries < <size_t>PyLong_AsLong(<object>get(driver, state_outgoing_shut_in))
            or deliveries < <uint32_t>pn_session_remote_incoming_window(counts)
        )
        and waiting + deliveries * delivery_bytes + size
        <= <size_t>PyLong_AsLong(<object>get(driver, state_outgoing_share))
    )


cdef inline bint is_room(PyObject *out, size_t size, size_t high) except -1:
    """As `outgoing.has_room`."""
    return is_within_share(out, size, high) or (
        (<object>get(get(out, link_connection), connection_io)).outgoing.admits(<object>out, size, high)
    )


def count_message(histograms, Py_ssize_t size):
    """As `Histograms.count_message`."""
    add_message(pointer(get(<PyObject *>histograms, histograms_cell)), size, bucket_of(size))


def has_room(out, size_t size, size_t high=SESSION_OUTGOING_HIGH):
    """As `outgoing.has_room`."""
    return is_room(<PyObject *>out, size, high)


def is_shut_session(session):
    """As `outgoing.is_shut_session`."""
    return <uint32_t>pn_session_remote_incoming_window(pointer(<PyObject *>session)) == 0


cdef class Drain:
    """The compiled part of one `Forwarder`."""

    EMPTY = _EMPTY
    """There are no more events."""
    TO_DO = _TO_DO
    """The event at the head is for Python."""
    DONE = _DONE
    """Python has dealt with the event at the head."""
    LATER = _LATER
    """The connection's slice is over, and events are left."""

    cdef object forwarder
    cdef object slice_end
    cdef object settlement
    cdef PyObject *arrived
    cdef long took
    cdef uint32_t took_bucket
    cdef list dirty
    cdef char *buffer
    cdef uint64_t *tag_number
    cdef bytes section
    cdef object delivery
    cdef Py_ssize_t delivery_arrived
    cdef Py_ssize_t delivery_key
    cdef Py_ssize_t delivery_link
    cdef Py_ssize_t delivery_load
    cdef Py_ssize_t delivery_lost_state
    cdef object routed
    cdef object passed
    cdef Py_ssize_t passed_arrived
    cdef Py_ssize_t passed_incoming
    cdef Py_ssize_t passed_outgoing
    cdef Py_ssize_t passed_settled
    cdef Py_ssize_t passed_size
    cdef Py_ssize_t branch_claimed
    cdef Py_ssize_t branch_link
    cdef Py_ssize_t branch_pn
    cdef object stream
    cdef Py_ssize_t stream_branches
    cdef Py_ssize_t stream_link
    cdef Py_ssize_t stream_pn
    cdef Py_ssize_t stream_size
    cdef Py_ssize_t stream_up_to_date
    cdef ssize_t chunk_bytes
    cdef size_t most_tag_bytes
    cdef Py_ssize_t most_unsettled
    cdef size_t stream_outgoing_high

    def __init__(
        self, forwarder, slice_end, delivery, stream, branch, passed,
        *, most_tag_bytes, most_unsettled, chunk_bytes, stream_outgoing_high,
    ):
        """`slice_end` is that of the driver; `delivery` is the class of what is remembered of a delivery, `stream` of
        one under way, `branch` of one of its receivers, `passed` of one on a routed link; limits in bytes,
        `chunk_bytes` no more than the forwarder's buffer has."""
        self.forwarder = forwarder
        self.slice_end = slice_end
        self.section = b""
        self.delivery = delivery
        self.delivery_arrived = offset(delivery, "arrived")
        self.delivery_key = offset(delivery, "key")
        self.delivery_link = offset(delivery, "link")
        self.delivery_load = offset(delivery, "load")
        self.delivery_lost_state = offset(delivery, "lost_state")
        self.routed = forwarder.routed
        self.passed = passed
        self.passed_arrived = offset(passed, "arrived")
        self.passed_incoming = offset(passed, "incoming")
        self.passed_outgoing = offset(passed, "outgoing")
        self.passed_settled = offset(passed, "settled")
        self.passed_size = offset(passed, "size")
        self.branch_claimed = offset(branch, "claimed")
        self.branch_link = offset(branch, "link")
        self.branch_pn = offset(branch, "pn")
        self.stream = stream
        self.stream_branches = offset(stream, "branches")
        self.stream_link = offset(stream, "link")
        self.stream_pn = offset(stream, "pn")
        self.stream_size = offset(stream, "size")
        self.stream_up_to_date = offset(stream, "up_to_date")
        self.settlement = forwarder.settlement
        self.dirty = forwarder.dirty
        self.buffer = <char *>pointer(<PyObject *>forwarder.buffer)
        self.tag_number = <uint64_t *>pointer(<PyObject *>forwarder.tag_bytes)
        self.chunk_bytes = chunk_bytes
        self.most_tag_bytes = most_tag_bytes
        self.most_unsettled = most_unsettled
        self.stream_outgoing_high = stream_outgoing_high

    def drain(self, collector, dict links not None, double end=0):
        """Deal with events at the head of `collector`, as far as they are the common case: EMPTY, TO_DO, DONE or LATER.

        `links` has those of the connection by their engine's pointer. `end` of the connection's slice, by the monotonic
        clock; without it, a slice begins. The event of TO_DO and DONE is still there.
        """
        cdef void *events = pointer(<PyObject *>collector)
        cdef void *event
        cdef void *pn
        cdef void *at
        cdef void *last = NULL
        cdef PyObject *link = NULL
        cdef object now = self.settlement.now
        cdef int state, kind
        cdef int untimed = UNTIMED
        cdef double time_now
        self.arrived = NULL
        while True:
            event = pn_collector_peek(events)
            if event == NULL:
                return _EMPTY
            if untimed == 0:
                untimed = UNTIMED
                time_now = monotonic()
                if end == 0:
                    end = self.slice_end(time_now)
                if time_now >= end:
                    return _LATER
            untimed -= 1
            pn = pn_event_delivery(event)
            if pn == NULL:
                kind = pn_event_type(event)
                if kind != TRANSPORT and (kind != LINK_FLOW or not self.flow(links, pn_event_link(event))):
                    return _TO_DO
                pn_collector_pop(events)
                continue
            at = pn_delivery_link(pn)
            if at != last:
                link = PyDict_GetItem(links, _cast(_link_type, <uintptr_t>at))
                last = at
            if link == NULL:
                return _TO_DO
            if get(link, link_routed) == TRUE:
                state = (
                    pass_on(self, link, pn, now)
                    if get(link, link_direction) == INCOMING
                    else settled_by_receiver(self, link, pn, now)
                )
            elif get(link, link_direction) == INCOMING:
                state = self.incoming(link, pn, now)
            else:
                state = self.updated(link, pn, now)
            if state != _GO_ON:
                return state
            pn_collector_pop(events)

    cdef bint flow(self, dict links, void *at) except -1:
        """As `events._link_flow`, for an OUT link that still has credit, if nothing waits to be sent that could be, or
        only more of a stream."""
        cdef PyObject *link = PyDict_GetItem(links, _cast(_link_type, <uintptr_t>at))
        cdef PyObject *activity
        cdef PyObject *stream
        cdef int credit
        if link == NULL:
            return True
        if get(link, link_routed) == TRUE:
            credit = give_credit(link)
            if credit == 2:
                self.touch(<object>get(get(get(link, link_partner), link_connection), connection_io))
            return credit != 0
        activity = get(link, link_activity)
        stream = get(link, link_stream)
        if (
            get(link, link_direction) == INCOMING
            or pn_link_credit(at) <= 0
            or pn_link_get_drain(at)
            or get(link, link_drained) == TRUE
            or (activity != NONE and get(activity, activity_out_of_credit) != NONE)
        ):
            return False
        if stream == NONE:
            return not <object>get(link, link_parked)
        return get(stream, self.stream_up_to_date) == TRUE or self.stream_goes_on(stream)

    cdef int incoming(self, PyObject *link, void *pn, object now) except -1:
        """As `Forwarder.incoming`."""
        cdef unsigned char *data = <unsigned char *>self.buffer
        cdef void *at = pointer(get(link, link_io))
        cdef PyObject *route
        cdef PyObject *receivers
        cdef PyObject *out
        cdef PyObject *kind
        cdef object sink, load, found, section, record, number
        cdef Py_ssize_t skip = 0
        cdef Py_ssize_t place
        cdef ssize_t size, whole
        cdef bint settled
        cdef uint32_t bucket
        if get(link, link_paused) == TRUE or pn_delivery_tag(pn).size > self.most_tag_bytes:
            return _TO_DO
        if get(link, link_stream) != NONE:
            return self.pump(link, get(link, link_stream), pn)
        if get(link, link_histograms) == NONE:
            return _TO_DO
        if pn_link_current(at) != pn or pn_delivery_partial(pn) or pn_delivery_remote_state(pn):
            return _TO_DO
        if pn_link_credit(at) <= 0:  # the sender has sent without
            return _TO_DO
        whole = PyLong_AsLong(<object>get(link, link_whole_bytes))
        size = pn_link_recv(at, self.buffer, whole)
        if size <= 0:
            return _TO_DO
        if size == whole:
            return self.received(link, pn, size)
        if get(link, link_targeted) == TRUE and data[1] != 0x80:
            route = get(link, link_route)
        elif get(link, link_guard) != NONE and get(link, link_address) != NONE and names_no_user(data, size):
            route = get(link, link_route)
        elif get(link, link_on_delivery) != NONE:
            return self.received(link, pn, size)
        else:
            skip = 12 + data[11] if data[10] == 0xC0 else 15 + (data[13] << 8) + data[14]
            if skip > size:
                return self.received(link, pn, size)
            # Mostly that of the message before, whose hash is known.
            if PyBytes_GET_SIZE(self.section) != skip or memcmp(PyBytes_AS_STRING(self.section), data, skip):
                self.section = PyBytes_FromStringAndSize(self.buffer, skip)
            section = self.section
            route = PyDict_GetItem(<object>get(link, link_routes), section)
            if route == NULL:
                return self.received(link, pn, size)
        if route == NONE or get(route, route_valid) != TRUE:
            return self.received(link, pn, size)
        load = found = None
        out = get(route, route_link)
        if out == NONE:
            kind = get(route, route_kind)
            if kind == SINGLE:
                sink = <object>PyList_GET_ITEM(<object>get(get(route, route_receivers), receivers_sinks), 0)
            elif kind == BALANCE:
                receivers = get(route, route_receivers)
                place = least_loaded(get(get(route, route_address), address_balance), receivers)
                sink = <object>PyList_GET_ITEM(<object>get(receivers, receivers_sinks), place)
                load = <object>PyList_GET_ITEM(<object>get(receivers, receivers_loads), place)
                if load is not None:
                    (<object>get(route, route_address)).transit_closed += 1
            elif kind == ROTATE:
                sink, load = (<object>route).choose()
            else:
                return self.received(link, pn, size)
            found = self.link_to(sink, route, skip, size)
            out = <PyObject *>found
        else:
            found = <object>out  # the route may end
        settled = pn_delivery_settled(pn)
        end_read(link, at, pn)
        _count(link, link_deliveries)
        bucket = bucket_of(size - skip)
        add_message(_cell(link), size - skip, bucket)
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
            put(<PyObject *>record, self.delivery_link, <object>link)
            put(<PyObject *>record, self.delivery_key, number)
            put(<PyObject *>record, self.delivery_load, load)
            put(<PyObject *>record, self.delivery_arrived, now)
            put(<PyObject *>record, self.delivery_lost_state, _zero)
            PyDict_SetItem(<object>get(link, link_unsettled), number, record)
            if load is not None:
                _count(<PyObject *>load, load_outstanding)
        if settled or get(link, link_replenish_on_arrival) == TRUE:
            self.replenish(link)
        self.send(out, route, size, skip, bucket, record, link)
        return _GO_ON

    def go_on(self, stream):
        """As `Streams.pump`, if the stream waits afterwards as well; False if there is something left to do."""
        return self.stream_goes_on(<PyObject *>stream)

    cdef bint stream_goes_on(self, PyObject *stream) except -1:
        if type(<object>stream) is not self.stream:
            return False
        return self.pump(get(stream, self.stream_link), stream, pointer(get(stream, self.stream_pn))) == _GO_ON

    cdef int pump(self, PyObject *link, PyObject *stream, void *pn) except -1:
        """As `Streams.pump`, as long as every receiver has begun and the stream waits afterwards as well."""
        cdef list branches = <list>get(stream, self.stream_branches)
        cdef Py_ssize_t count = PyList_GET_SIZE(branches)
        cdef Py_ssize_t index
        cdef PyObject *branch
        cdef PyObject *out
        cdef void *at = pointer(get(link, link_io))
        cdef ssize_t size, limit
        cdef ssize_t total = PyLong_AsLong(<object>get(stream, self.stream_size))
        cdef ssize_t most = PyLong_AsLong(<object>get(link, link_max_message_size))
        cdef PyObject *guard = get(link, link_guard)
        cdef PyObject *structure = NONE if guard == NONE else get(guard, guard_structure)
        cdef bint has_sent = False
        if pointer(get(stream, self.stream_pn)) != pn or pn_delivery_aborted(pn) or count == 0:
            return _TO_DO
        for index in range(count):
            branch = <PyObject *>PyList_GET_ITEM(branches, index)
            if get(branch, self.branch_pn) == NONE:
                if count > 1 or get(branch, self.branch_claimed) == TRUE:
                    return _TO_DO
                put(stream, self.stream_up_to_date, _false)  # it is not its turn on the link
                return self.wait(link, pn)
            limit = PyLong_AsLong(<object>get(get(branch, self.branch_link), link_max_message_size))
            if limit and (limit < most or most == 0):
                most = limit
        while True:
            for index in range(count):
                out = get(<PyObject *>PyList_GET_ITEM(branches, index), self.branch_link)
                size = min(<ssize_t>pn_delivery_pending(pn), self.chunk_bytes)
                if not is_room(out, size, self.stream_outgoing_high):
                    (<object>get(get(out, link_connection), connection_io)).stalled.add(<object>out)
                    if has_sent:
                        give_back_sent(branches, self.branch_link, self.branch_pn)
                    put(stream, self.stream_up_to_date, _false)
                    return _GO_ON
            size = min(<ssize_t>pn_delivery_pending(pn), self.chunk_bytes)
            if size <= 0:
                break
            has_sent = True
            total += size
            if most and total > most:
                return _TO_DO
            if structure != NONE and not (<Structure>structure).passes(size):
                return _TO_DO
            put(stream, self.stream_size, total)
            pn_link_recv(at, self.buffer, size)
            for index in range(count):
                branch = <PyObject *>PyList_GET_ITEM(branches, index)
                out = get(branch, self.branch_link)
                equip_with_spare(pointer(get(branch, self.branch_pn)), size)
                pn_link_send(pointer(get(out, link_io)), self.buffer, size)
                self.touch(<object>get(get(out, link_connection), connection_io))
            self.touch(<object>get(get(link, link_connection), connection_io))
        if not pn_delivery_partial(pn):
            return _TO_DO
        give_back_sent(branches, self.branch_link, self.branch_pn)
        put(stream, self.stream_up_to_date, _true)
        return self.wait(link, pn)

    cdef int wait(self, PyObject *link, void *pn) except -1:
        """A stream waits until more arrives, or it can go on."""
        if is_large(pn):
            retain_large(get(get(link, link_connection), connection_io), pn)
        return _GO_ON

    cdef int received(self, PyObject *link, void *pn, ssize_t size) except -1:
        """Not the common case: the message is in the buffer, and nothing has been done about it yet."""
        self.forwarder.received(<object>link, _cast(_delivery_type, <uintptr_t>pn), size)
        return _DONE

    cdef object link_to(self, sink, PyObject *route, Py_ssize_t skip, Py_ssize_t size):
        """As `Forwarder.out_link`."""
        cdef unsigned char *data = <unsigned char *>self.buffer
        cdef PyObject *links
        cdef PyObject *address = get(route, route_address)
        cdef unsigned char *header = data + skip
        cdef int priority = default_priority
        if type(sink) is _link:
            return sink
        if (address != NONE and get(address, address_priority) != NONE) or header[1] != 0x53:
            return self.forwarder.out_link(sink, <object>route, skip, size)
        if header[2] == 0x70 and header[3] != 0x45 and not (header[3] == 0xC0 and header[5] < 2):
            # A whole list of less than 256 bytes: whether it is durable, in one byte, and a priority.
            if not (
                header[3] == 0xC0
                and size > skip + 8
                and size >= skip + 5 + header[4]
                and 0x40 <= header[6] <= 0x42
                and header[7] == 0x50
            ):
                return self.forwarder.out_link(sink, <object>route, skip, size)
            priority = min(header[8], most_priority)
        links = get(<PyObject *>sink, hop_data_links)
        found = <object>PyList_GET_ITEM(<object>links, priority)
        return found if found is not None else sink.link_for(priority)

    cdef int send(
        self,
        PyObject *out,
        PyObject *route,
        Py_ssize_t size,
        Py_ssize_t skip,
        uint32_t bucket,
        object record,
        PyObject *origin,
    ) except -1:
        """As `Forwarder.send_message`."""
        cdef void *at = pointer(get(out, link_io))
        cdef PyObject *connection = get(out, link_connection)
        cdef object driver = <object>get(connection, connection_io)
        cdef object prefix
        cdef Py_ssize_t length
        cdef char[JOINED_BYTES] joined
        cdef Bytes tag
        cdef void *pn
        if (
            get(out, link_stream) != NONE
            or get(out, link_histograms) == NONE
            or <object>get(out, link_parked)
            or pn_link_credit(at) <= 0
            or get(out, link_sends_settled) == TRUE
            or (record is None and get(out, link_sends_unsettled) == TRUE)
            or not is_within_share(out, size, session_outgoing_high)
        ):
            self.forwarder.send_message(<object>out, <object>route, size, skip, record, <object>origin)
            return 0
        self.tag_number[0] += 1
        tag.size = sizeof(uint64_t)
        tag.start = <const char *>self.tag_number
        pn = pn_delivery(at, tag)
        equip_with_spare(pn, size)
        if get(connection, connection_annotates) == TRUE:
            prefix = <object>get(route, route_prefix)
            length = PyBytes_GET_SIZE(prefix)
            if length + size - skip <= JOINED_BYTES:
                memcpy(joined, PyBytes_AS_STRING(prefix), length)
                memcpy(joined + length, self.buffer + skip, size - skip)
                pn_link_send(at, joined, length + size - skip)
            else:
                pn_link_send(at, PyBytes_AS_STRING(prefix), length)
                pn_link_send(at, self.buffer + skip, size - skip)
        else:
            pn_link_send(at, self.buffer + skip, size - skip)
        _count(out, link_deliveries)
        add_message(_cell(out), size - skip, bucket)
        if record is None:
            _count(out, link_presettled)
            pn_delivery_settle(pn)
        else:
            end_sent(out, at, pn)
            PyDict_SetItem(<object>get(out, link_unsettled), PyLong_FromVoidPtr(pn), record)
        return self.touch(driver)

    cdef int updated(self, PyObject *link, void *pn, object now) except -1:
        """As `Settlement.updated` for an OUT link."""
        cdef object unsettled = <object>get(link, link_unsettled)
        cdef object number = PyLong_FromVoidPtr(pn)
        cdef PyObject *known = PyDict_GetItem(unsettled, number)
        cdef object record, load, origin
        cdef long took
        cdef uint32_t bucket
        cdef PyObject *sender
        cdef PyObject *address
        cdef PyObject *balance
        if known == NULL:
            if get(link, link_stream) != NONE:
                return _TO_DO
            return more_than_ours(link, unsettled)
        if pn_delivery_remote_state(pn) != ACCEPTED or type(<object>known) is not self.delivery:
            return _TO_DO
        sender = get(known, self.delivery_link)
        if not pn_delivery_settled(pn) or get(link, link_histograms) == NONE:
            return _TO_DO
        if sender != NONE and (get(sender, link_settles_second) == TRUE or get(sender, link_histograms) == NONE):
            return _TO_DO
        record = <object>known
        PyDict_DelItem(unsettled, number)
        _count(link, link_accepted)
        pn_delivery_settle(pn)
        # Mostly that of the delivery before, which arrived in the same turn.
        if get(known, self.delivery_arrived) != self.arrived:
            self.arrived = get(known, self.delivery_arrived)
            self.took = PyLong_AsLong(now) - PyLong_AsLong(<object>self.arrived)
            self.took_bucket = bucket_of(self.took)
        took = self.took
        bucket = self.took_bucket
        add_latency(_cell(link), bucket)
        if took > late_us:
            self.settlement.count_late(<object>link, took)
        self.touch(<object>get(get(link, link_connection), connection_io))
        if get(known, self.delivery_load) != NONE:
            load = <object>get(known, self.delivery_load)
            put(<PyObject *>load, load_outstanding, PyLong_AsLong(<object>get(<PyObject *>load, load_outstanding)) - 1)
            balance = get(<PyObject *>load, load_balance)
            if PyLong_AsLong(<object>get(balance, balance_heeded)):
                (<object>balance).eased(load)
        address = get(link, link_address)
        if address != NONE:
            balance = get(address, address_balance)
            if load_of(link) < PyLong_AsLong(<object>get(balance, balance_heeded)):
                (<object>balance).eased(<object>link)
        if sender == NONE:
            return _GO_ON
        origin = <object>sender
        number = <object>get(known, self.delivery_key)
        pn = <void *><uintptr_t>number
        PyDict_DelItem(<object>get(sender, link_unsettled), number)
        add_latency(_cell(sender), bucket)
        if took > late_us:
            self.settlement.count_late(origin, took)
        _count(sender, link_accepted)
        pn_delivery_update(pn, ACCEPTED)
        pn_delivery_settle(pn)
        if get(sender, link_replenish_on_arrival) != TRUE:
            self.replenish(sender)
        self.touch(<object>get(get(sender, link_connection), connection_io))
        return _GO_ON

    cdef int replenish(self, PyObject *link) except -1:
        """As `Settlement.replenish`, which is called when a batch is due."""
        cdef long due = PyLong_AsLong(<object>get(link, link_credit_due)) + 1
        cdef object batch = <object>get(link, link_credit_batch)
        if due < batch:
            put(link, link_credit_due, due)
        else:
            self.settlement.replenish(<object>link)
        return 0

    cdef int touch(self, driver) except -1:
        """As `Settlement.touch`, by the connection's driver."""
        if get(<PyObject *>driver, state_dirty) != TRUE:
            put(<PyObject *>driver, state_dirty, _true)
            PyList_Append(self.dirty, driver)
        return 0


include "routed.pxi"
