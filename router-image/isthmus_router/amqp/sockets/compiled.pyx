# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The poller, compiled: reads and writes without the interpreter, on several threads where there is enough to do.

It calls the engine that the process has loaded already, by its symbols. A connection is in one thread's hands at a
time, and in no other's while events are dealt with: the engine asks for no more.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec
from cpython.dict cimport PyDict_Size
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.set cimport PySet_GET_SIZE
from isthmus_router.amqp.kernel.engine cimport (
    check_pointer, get, offset, pointer, put, symbol, to_bytes, to_count, to_int, to_nothing, to_pointer, with_bytes,
    with_count, with_int,
)

import os

from isthmus_router.amqp.kernel.handles import written
from isthmus_router.amqp.kernel.state import ConnectionState
from isthmus_router.amqp.sockets import charges, dispositions, layers, limits, outcome, pieces

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)

cdef extern from "<sys/epoll.h>" nogil:
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    uint32_t EPOLLIN
    uint32_t EPOLLOUT
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int eventfd(unsigned int, int)

cdef extern from "<unistd.h>" nogil:
    int close_file "close"(int)

cdef extern from "pool.h" nogil:
    ctypedef struct pool_t:
        int threads
    ctypedef void (*pool_task)(void *, size_t, int)
    pool_t *pool_new(int)
    void pool_run(pool_t *, pool_task, void *, size_t, int)
    void pool_free(pool_t *)

cdef to_pointer pn_collector_peek = <to_pointer>symbol("pn_collector_peek")
cdef with_int pn_link_head = <with_int>symbol("pn_link_head")
cdef with_int pn_link_next = <with_int>symbol("pn_link_next")
cdef to_int pn_link_unsettled = <to_int>symbol("pn_link_unsettled")
cdef to_nothing pn_transport_close_tail = <to_nothing>symbol("pn_transport_close_tail")
cdef to_count pn_transport_capacity = <to_count>symbol("pn_transport_capacity")
cdef to_count pn_transport_pending = <to_count>symbol("pn_transport_pending")
cdef with_bytes pn_transport_push = <with_bytes>symbol("pn_transport_push")
cdef to_bytes pn_transport_head = <to_bytes>symbol("pn_transport_head")
cdef with_count pn_transport_pop = <with_count>symbol("pn_transport_pop")

check_pointer()

cdef Py_ssize_t state_after_write = offset(ConnectionState, "after_write")
cdef Py_ssize_t state_closed = offset(ConnectionState, "closed")
cdef Py_ssize_t state_collector = offset(ConnectionState, "collector")
cdef Py_ssize_t state_costly = offset(ConnectionState, "costly")
cdef Py_ssize_t state_dirty = offset(ConnectionState, "dirty")
cdef Py_ssize_t state_fd = offset(ConnectionState, "fd")
cdef Py_ssize_t state_fresh_sessions = offset(ConnectionState, "fresh_sessions")
cdef Py_ssize_t state_links = offset(ConnectionState, "links")
cdef Py_ssize_t state_stalled = offset(ConnectionState, "stalled")
cdef Py_ssize_t state_stirred = offset(ConnectionState, "stirred")
cdef Py_ssize_t state_unwritten = offset(ConnectionState, "unwritten")
cdef Py_ssize_t state_transport = offset(ConnectionState, "transport")
cdef Py_ssize_t state_unfinished = offset(ConnectionState, "unfinished")
cdef Py_ssize_t state_writable = offset(ConnectionState, "writable")
cdef Py_ssize_t state_write_blocked = offset(ConnectionState, "write_blocked")

cdef enum:
    READ_BYTES = 64 * 1024
    AT_ONCE = 1024
    MOST_HELD = 64  # of those at once, where as many sockets have something
    PN_EOS = -1
    WORTH_A_THREAD = 16 * 1024  # bytes per connection; for less, waking a thread takes longer than the work

cdef size_t MOST_EVENTS = pieces.MOST_EVENTS
cdef size_t MOST_EVENTS_OF_ROUTERS = pieces.MOST_EVENTS_OF_ROUTERS
cdef size_t FEW_EVENTS = pieces.FEW_EVENTS
cdef size_t GATED_PIECE = pieces.GATED_PIECE
cdef size_t LEAST_PIECE = pieces.LEAST_PIECE
cdef size_t FRAME_BYTES = pieces.FRAME_BYTES
cdef size_t LINK_BYTES = pieces.LINK_BYTES
cdef size_t MOST_SHARES = pieces.MOST_SHARES
cdef size_t LEAST_READ_BYTES = pieces.LEAST_READ_BYTES
cdef size_t MOST_WALKED = pieces.MOST_WALKED
cdef size_t NEXT_EVENT = pieces.NEXT_EVENT
cdef size_t PLACE = layers.PLACE
cdef int COUNT = layers.COUNT
cdef size_t NO_BYTES = layers.NO_BYTES
if pieces.READ_BYTES != READ_BYTES:
    raise ImportError("the poller's buffers have another size than expected")

cdef object _true = True
cdef object _false = False
cdef PyObject *TRUE = <PyObject *>_true

cdef object _zero = 0
cdef PyObject *ZERO = <PyObject *>_zero

cdef int MOST_OPENING = limits.MOST_OPENING
cdef int TOGETHER = limits.TOGETHER
cdef double PART_OF_USUAL = limits.PART_OF_USUAL
cdef double COSTLY_SECONDS = charges.COSTLY_SECONDS
cdef Py_ssize_t MOST_CLIENTS = charges.MOST_CLIENTS
cdef int WATCHED_ROUNDS = charges.WATCHED_ROUNDS
cdef object COSTLY_TURNS = charges.COSTLY_TURNS

cdef int WRITTEN = outcome.WRITTEN
cdef int BLOCKED = outcome.BLOCKED
cdef int ENDED = outcome.ENDED
cdef int UNREAD = outcome.UNREAD
cdef int REFUSED = outcome.REFUSED

include "dispositions.pxi"

ctypedef ssize_t (*process)(void *, unsigned int, const char *, size_t) noexcept nogil

cdef struct Layer:  # pn_io_layer_t
    process process_input
    void *process_output
    void *handle_error
    void *process_tick
    void *buffered_output

cdef struct Gate:
    Layer layer  # first: the engine has its address
    size_t allowed
    size_t deliveries
    bint decrypts
    bint held
    bint refused

cdef Layer *AMQP = <Layer *>symbol("amqp_layer")
cdef Layer *PASSED = <Layer *>symbol("pni_passthru_layer")
cdef Layer *DECODING = <Layer *>symbol("sasl_encrypt_layer")

cdef struct Socket:
    int fd
    void *transport
    PyObject *connection  # in `Poller.connections` as well
    bint shared
    uint64_t latest  # round in which it was read, or added, while it was not shared
    size_t limit  # bytes that are read in a turn
    void *pn
    void *collector
    bint between_routers
    size_t known  # deliveries when they were counted
    size_t links  # likewise
    size_t bytes  # read and written since
    bint held_up  # not all has been written
    size_t largest  # most deliveries that were counted at a time
    size_t uncounted  # bytes read and written since
    bint heavy  # has made many events in its last turn
    Gate *gate  # once it is needed
    int gate_place
    uint32_t watched
    uint32_t events
    ssize_t outcome
    size_t moved
    bint ended  # the engine reads no more
    double spent  # seconds, for reading it
    uint64_t due  # round since which it waits, or 0
    uint64_t rank  # in the order of a round

cdef struct Job:
    Socket *sockets  # by descriptor
    int *descriptors
    char *buffers  # READ_BYTES for each thread
    size_t heavy  # sockets, roughly when threads read at the same time


cdef size_t _piece(Socket *sock, size_t heavy) noexcept nogil:
    """As `Intake.piece`."""
    cdef size_t most = MOST_EVENTS_OF_ROUTERS if sock.between_routers else MOST_EVENTS
    cdef size_t deliveries = _deliveries(sock)
    most //= min(1 + heavy, MOST_SHARES)
    if deliveries * READ_BYTES > most * FRAME_BYTES and sock.bytes >= LINK_BYTES * (8 + sock.links):
        deliveries = _count(sock, deliveries)
    return max(LEAST_PIECE, min(<size_t>READ_BYTES, most * FRAME_BYTES // max(<size_t>1, deliveries)))


cdef inline size_t _deliveries(Socket *sock) noexcept nogil:
    """As `Intake.deliveries`."""
    return sock.known + sock.bytes // FRAME_BYTES


cdef size_t _count(Socket *sock, size_t expected) noexcept nogil:
    """As `Intake._count`."""
    cdef size_t deliveries = _found(sock)
    sock.known = max(deliveries, expected) if sock.held_up else deliveries
    sock.bytes = 0
    return sock.known


cdef size_t _found(Socket *sock) noexcept nogil:
    """As `Intake._found`; the number of links is in `sock`."""
    cdef size_t deliveries = 0
    cdef void *link = pn_link_head(sock.pn, 0)
    sock.links = 0
    while link != NULL:
        deliveries += pn_link_unsettled(link)
        sock.links += 1
        link = pn_link_next(link, 0)
    return deliveries


cdef inline void _passed(Socket *sock, size_t size) noexcept nogil:
    """As `Intake.passed`."""
    sock.bytes += size
    sock.uncounted += size
    if sock.uncounted >= max(<size_t>READ_BYTES, LINK_BYTES * (8 + sock.links)):
        sock.largest = max(sock.largest, _found(sock))
        sock.uncounted = 0


cdef inline size_t _most_read(Socket *sock) noexcept nogil:
    """As `Intake.most_read`."""
    cdef size_t most = sock.largest + max(<size_t>READ_BYTES, LINK_BYTES * (8 + sock.links)) // FRAME_BYTES
    return max(LEAST_READ_BYTES, min(<size_t>READ_BYTES, MOST_WALKED * FRAME_BYTES // most))


cdef inline Layer **_layers(void *transport) noexcept nogil:
    return <Layer **>transport + PLACE


cdef ssize_t _pass(void *transport, unsigned int place, const char *data, size_t size) noexcept nogil:
    """As `layers.admit`."""
    cdef Gate *gate = <Gate *>_layers(transport)[place]
    cdef size_t frame = 0
    cdef ssize_t taken
    if size > gate.allowed:
        if gate.allowed == 0:
            gate.held = True
            return 0
        if size >= 4:
            frame = _number(<const unsigned char *>data, 4)
        size = min(size, max(gate.allowed, frame))
    if _copies_too_much(<const unsigned char *>data, size, gate.deliveries):
        gate.refused = True
        return PN_EOS
    taken = AMQP.process_input(transport, place, data, size)
    if taken > 0:
        gate.allowed -= min(gate.allowed, <size_t>taken)
    return taken


cdef bint _install_gate(Socket *sock) noexcept nogil:
    """As `Poller._install_gate`."""
    cdef Layer **found = _layers(sock.transport)
    cdef int place, below
    for place in range(COUNT):
        if found[place] != AMQP:
            continue
        sock.gate = <Gate *>calloc(1, sizeof(Gate))
        if sock.gate == NULL:
            return False
        sock.gate_place = place
        for below in range(place):
            if found[below] != PASSED:
                sock.gate.decrypts = True
        sock.gate.layer = AMQP[0]
        sock.gate.layer.process_input = _pass
        found[place] = &sock.gate.layer
        return True
    return not (sock.held_up and pn_link_head(sock.pn, 0) != NULL)


cdef size_t _resume(Socket *sock) noexcept nogil:
    """As `Gate.resume`."""
    cdef Layer **found = _layers(sock.transport)
    cdef size_t before = sock.gate.allowed
    cdef int below = sock.gate_place - 1
    cdef ssize_t result
    sock.gate.held = False
    if pn_transport_capacity(sock.transport) < 0:
        return 1
    if found[below] == DECODING:
        result = DECODING.process_input(sock.transport, below, NULL, 0)
    else:
        result = found[0].process_input(sock.transport, 0, NULL, NO_BYTES)
    if result < 0:
        pn_transport_close_tail(sock.transport)
    return max(<size_t>1, before - sock.gate.allowed)


cdef void _remove_gate(Socket *sock) noexcept nogil:
    """As `Gate.remove`."""
    if sock.gate != NULL:
        if _layers(sock.transport)[sock.gate_place] == &sock.gate.layer:
            _layers(sock.transport)[sock.gate_place] = AMQP
        free(sock.gate)
        sock.gate = NULL


cdef void _read(void *context, size_t item, int thread) noexcept nogil:
    """As `Poller._read_pieces`."""
    cdef Job *job = <Job *>context
    cdef Socket *sock = &job.sockets[job.descriptors[item]]
    cdef char *buffer = job.buffers + <size_t>thread * READ_BYTES
    cdef void **event = NULL
    cdef void **following
    cdef size_t piece, room
    cdef size_t events = 0
    cdef size_t limit = min(sock.limit, _most_read(sock))
    cdef ssize_t size, count, taken
    sock.outcome = -EAGAIN
    sock.moved = 0
    sock.ended = False
    if not sock.events & ~EPOLLOUT:
        return
    while sock.moved < limit:
        piece = min(_piece(sock, job.heavy), limit)
        if piece < GATED_PIECE and sock.gate == NULL and not _install_gate(sock):
            sock.outcome = UNREAD
            return
        room = min(piece, limit - sock.moved)
        if sock.gate != NULL:
            sock.gate.deliveries = _deliveries(sock)
            sock.gate.allowed = NO_BYTES
            if sock.gate.decrypts:
                sock.gate.allowed = room
                room = min(GATED_PIECE, limit - sock.moved)
        if sock.gate != NULL and sock.gate.held:
            size = room
            sock.moved += _resume(sock)
        else:
            size = recv(sock.fd, buffer, room, 0)
            if size < 0:
                if errno == EINTR:
                    continue
                if sock.moved == 0:
                    sock.outcome = -errno
                return
            taken = 0
            count = 1
            while taken < size and count > 0:
                # The transport takes what fits into its input buffer, then works it off. If it takes nothing more, the
                # rest is read all the same: what is unread would reset the connection.
                count = pn_transport_push(sock.transport, buffer + taken, size - taken)
                taken += count
            sock.moved += size
            _passed(sock, size)
        sock.outcome = sock.moved
        if sock.gate != NULL and sock.gate.refused:
            sock.gate.refused = False
            sock.outcome = REFUSED
            return
        sock.ended = pn_transport_capacity(sock.transport) < 0
        # Those of the pieces before have been counted.
        following = <void **>pn_collector_peek(sock.collector) if event == NULL else <void **>event[NEXT_EVENT]
        while following != NULL and events <= FEW_EVENTS:
            events += 1
            event = following
            following = <void **>event[NEXT_EVENT]
        if events > FEW_EVENTS:
            sock.heavy = True
            job.heavy += 1
            return
        if size < <ssize_t>room and not (sock.gate != NULL and sock.gate.held):
            return


cdef inline double _clock(clockid_t kind) noexcept nogil:
    cdef timespec now
    clock_gettime(kind, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef void _read_timed(void *context, size_t item, int thread) noexcept nogil:
    cdef Job *job = <Job *>context
    cdef double begun = _clock(CLOCK_MONOTONIC)
    _read(context, item, thread)
    job.sockets[job.descriptors[item]].spent = _clock(CLOCK_MONOTONIC) - begun


cdef void _write(void *context, size_t item, int thread) noexcept nogil:
    cdef Job *job = <Job *>context
    cdef Socket *sock = &job.sockets[job.descriptors[item]]
    cdef ssize_t pending, sent
    sock.moved = 0
    sock.held_up = True
    while True:
        pending = pn_transport_pending(sock.transport)
        if pending <= 0:
            sock.outcome = WRITTEN if pending == 0 else ENDED
            sock.held_up = pending != 0
            return
        sent = send(sock.fd, pn_transport_head(sock.transport), pending, MSG_NOSIGNAL)
        if sent < 0:
            if errno == EINTR:
                continue
            sock.outcome = BLOCKED if errno == EAGAIN else -errno
            return
        pn_transport_pop(sock.transport, sent)
        sock.moved += sent
        _passed(sock, sent)
        if sent < pending:
            sock.outcome = BLOCKED
            return


cdef class Poller:
    cdef readonly int threads
    cdef int epoll
    cdef pool_t *pool
    cdef Job job
    cdef int capacity  # of `job.sockets` and `job.descriptors`
    cdef dict connections  # by descriptor
    cdef object drain
    cdef object empty
    cdef list dirty
    cdef dict held  # descriptors of connections with frames that have not passed their gate
    cdef int ready  # readable; watched while one of them may be read
    cdef bint woken
    cdef uint64_t round
    cdef size_t heavy  # sockets
    cdef dict clients  # whose the open connections are, by descriptor
    cdef dict latest  # this and the next one as in `charges.Rota`
    cdef uint64_t number
    cdef bint left  # in the last round not all were read
    cdef int watched  # rounds in which CPU time is measured yet; this and the next two as in `charges.Charges`
    cdef double used
    cdef double short
    cdef size_t read_lately  # bytes per connection
    cdef size_t written_lately

    def __cinit__(self, forwarder, int threads):
        self.drain = None if forwarder.compiled is None else forwarder.compiled.drain
        self.empty = None if forwarder.compiled is None else forwarder.compiled.EMPTY
        self.dirty = forwarder.dirty
        self.epoll = -1
        self.ready = -1
        self.held = {}
        self.clients = {}
        self.latest = {}
        self.capacity = 0
        self.connections = {}
        self.threads = max(1, min(threads, len(os.sched_getaffinity(0))))
        self.job.buffers = <char *>malloc(<size_t>self.threads * READ_BYTES)
        self.pool = pool_new(self.threads - 1)
        if self.job.buffers == NULL or self.pool == NULL:
            raise MemoryError
        self.threads = self.pool.threads + 1
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        self.ready = eventfd(1, EFD_CLOEXEC)
        if self.epoll < 0 or self.ready < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        self.close()
        free(self.job.buffers)
        free(self.job.sockets)
        free(self.job.descriptors)

    def fileno(self):
        return self.epoll

    def close(self):
        if self.pool != NULL:
            with nogil:
                pool_free(self.pool)
            self.pool = NULL
        if self.epoll >= 0:
            close_file(self.epoll)
            self.epoll = -1
        if self.ready >= 0:
            close_file(self.ready)
            self.ready = -1

    def add(self, connection):
        cdef int fd = connection.fd
        cdef Socket *sock
        if fd >= self.capacity:
            self._grow(fd + 1)
        sock = &self.job.sockets[fd]
        memset(sock, 0, sizeof(Socket))
        sock.fd = fd
        sock.limit = READ_BYTES
        sock.latest = self.round
        sock.transport = pointer(get(<PyObject *>connection, state_transport))
        sock.connection = <PyObject *>connection
        sock.pn = pointer(<PyObject *>connection.pn)
        sock.collector = pointer(get(<PyObject *>connection, state_collector))
        sock.between_routers = connection.settings.role.is_between_routers
        self.connections[fd] = connection
        self.watch(connection, reading=True, writing=False)

    cdef int _grow(self, int needed) except -1:
        cdef int capacity = max(64, self.capacity)
        cdef void *grown
        while capacity < needed:
            capacity *= 2
        grown = realloc(self.job.sockets, capacity * sizeof(Socket))
        if grown == NULL:
            raise MemoryError
        self.job.sockets = <Socket *>grown
        grown = realloc(self.job.descriptors, capacity * sizeof(int))
        if grown == NULL:
            raise MemoryError
        self.job.descriptors = <int *>grown
        self.capacity = capacity
        return 0

    cdef int _control(self, int operation, int fd, uint32_t events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.fd = fd
        if epoll_ctl(self.epoll, operation, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    def share(self, connection):
        if connection.fd in self.connections:
            self.job.sockets[<int>connection.fd].shared = True
            self.clients[connection.fd] = charges.client_of(connection)

    def limit(self, connection, size_t size):
        if connection.fd in self.connections:
            self.job.sockets[<int>connection.fd].limit = min(size, <size_t>READ_BYTES)

    def watch(self, connection, *, bint reading, bint writing):
        cdef int fd = connection.fd
        cdef uint32_t watched = self.job.sockets[fd].watched
        cdef uint32_t wanted = (EPOLLIN if reading else 0) | (EPOLLOUT if writing else 0)
        self.job.sockets[fd].watched = wanted
        # One that is not watched for anything would still be told to have hung up.
        if wanted:
            self._control(EPOLL_CTL_MOD if watched else EPOLL_CTL_ADD, fd, wanted)
        elif watched:
            self._control(EPOLL_CTL_DEL, fd, 0)
        if self.held:
            self._wake()

    cdef int _wake(self) except -1:
        """As `Poller._wake`."""
        cdef bint wanted = False
        for fd in self.held:
            if self.job.sockets[<int>fd].watched & EPOLLIN:
                wanted = True
        if wanted != self.woken:
            self.woken = wanted
            self._control(EPOLL_CTL_ADD if wanted else EPOLL_CTL_DEL, self.ready, EPOLLIN)
        return 0

    def remove(self, connection):
        if self.connections.get(connection.fd) is connection:
            self.watch(connection, reading=False, writing=False)
            self.held.pop(connection.fd, None)
            _remove_gate(&self.job.sockets[<int>connection.fd])
            self._at_ease(&self.job.sockets[<int>connection.fd])
            del self.connections[connection.fd]
            self.clients.pop(connection.fd, None)

    cdef int _due(self, epoll_event *ready) except -1:
        """Collect the descriptors of those with something to read, or that may be written again; how many there are."""
        cdef int count, index
        cdef int found = 0
        cdef int room = AT_ONCE
        cdef Socket *sock
        if self.woken:
            room -= min(<int>len(self.held), MOST_HELD)
            for fd in self.held:
                self.job.sockets[<int>fd].events = 0
        count = epoll_wait(self.epoll, ready, room, 0)
        for index in range(count):
            if ready[index].data.fd != self.ready:
                self.job.sockets[ready[index].data.fd].events = ready[index].events
                self.job.descriptors[found] = ready[index].data.fd
                found += 1
        if self.woken:
            for fd in self.held:
                sock = &self.job.sockets[<int>fd]
                if sock.watched & EPOLLIN:
                    if sock.events == 0:
                        if found == AT_ONCE:
                            break
                        self.job.descriptors[found] = sock.fd
                        found += 1
                    sock.events |= EPOLLIN
        return found

    cdef int _choose(self, int count):
        """Leave those out of the first `count` descriptors whose handshakes have to wait; how many are left."""
        cdef Socket *sock
        cdef int index, least, chosen
        cdef int kept = 0
        cdef int opening = 0
        cdef int waiting[AT_ONCE]
        self.round += 1
        for index in range(count):
            if self.job.sockets[self.job.descriptors[index]].shared:
                self.job.descriptors[kept] = self.job.descriptors[index]
                kept += 1
            else:
                waiting[opening] = self.job.descriptors[index]
                opening += 1
        for chosen in range(min(opening, MOST_OPENING)):
            least = chosen
            if opening > MOST_OPENING:
                for index in range(chosen + 1, opening):
                    if self.job.sockets[waiting[index]].latest < self.job.sockets[waiting[least]].latest:
                        least = index
            sock = &self.job.sockets[waiting[least]]
            waiting[least] = waiting[chosen]
            self.job.descriptors[kept] = sock.fd
            kept += 1
        return kept

    cdef void _at_ease(self, Socket *sock) noexcept:
        """What had come of the last turn has been dealt with."""
        if sock.heavy:
            sock.heavy = False
            self.heavy -= 1

    def read(self, double seconds=-1):
        cdef epoll_event ready[AT_ONCE]
        cdef int order[AT_ONCE]
        cdef int count, index, usual
        cdef int done = 0
        cdef bint left
        cdef double begun
        cdef Socket *sock
        cdef list connections = []
        count = self._due(ready)
        if count == 0:
            return 0
        count = self._choose(count)
        if count == 1:  # nothing else can come in between
            sock = &self.job.sockets[self.job.descriptors[0]]
            sock.latest = self.round
            self._read_some(_read, self.job.descriptors, 1)
            self._has_read(<object>sock.connection, sock.outcome, sock.ended, sock.events)
            return 1
        begun = _clock(CLOCK_MONOTONIC)
        self._begin_round()
        usual = self._sort(order, count)
        for index in range(count):
            connections.append(<object>self.job.sockets[order[index]].connection)
        done = self._serve(connections, order, 0, usual, begun, seconds * PART_OF_USUAL)
        left = done < usual
        done += self._serve(connections, order, usual, count, begun, seconds)
        self.left = left or done < count
        return done

    cdef int _sort(self, int *order, int count) except -1:
        """Put the first `count` descriptors into the order in which they have their turns; how many of them are usual
        ones, which come before the costly ones."""
        cdef int index, fd
        cdef int usual = 0
        cdef int found = 0
        cdef int costly[AT_ONCE]
        cdef Socket *sock
        for index in range(count):
            fd = self.job.descriptors[index]
            sock = &self.job.sockets[fd]
            if sock.due == 0:
                sock.due = self.round
            if sock.shared and get(sock.connection, state_costly) == ZERO:
                order[usual] = fd
                usual += 1
            else:
                costly[found] = fd
                found += 1
        for index in range(found):
            order[usual + index] = costly[index]
        if self.left:
            self._take_turns(order, usual)
            self._take_turns(order + usual, found)
        else:
            self.latest.clear()
        return usual

    cdef int _take_turns(self, int *order, int count) except -1:
        """Of each client, the connections come in the order in which they wait. Clients come as in `Rota.sort`."""
        cdef int index, fd
        cdef dict taken = {}
        for index in range(count):
            self.job.sockets[order[index]].rank = self.job.sockets[order[index]].due
        self._sort_by_rank(order, count)
        for index in range(count):
            fd = order[index]
            client = self.clients.get(fd)
            number = taken.get(client, 0)
            taken[client] = number + 1
            self.job.sockets[fd].rank = <uint64_t>number << 48 | <uint64_t>self.latest.get(client, 0)
        self._sort_by_rank(order, count)
        return 0

    cdef int _had_turn(self, int fd) except -1:
        """As `Rota.had_turn`."""
        self.number += 1
        self.latest[self.clients.get(fd)] = self.number
        if len(self.latest) > MOST_CLIENTS:
            self.latest.clear()
        return 0

    cdef void _sort_by_rank(self, int *order, int count) noexcept:
        """By merging, as much is in order already."""
        cdef int spare[AT_ONCE]
        cdef int width = 1
        cdef int begin, middle, end, left, right, place
        while width < count:
            begin = 0
            while begin + width < count:
                middle = begin + width
                end = min(middle + width, count)
                if self.job.sockets[order[middle]].rank < self.job.sockets[order[middle - 1]].rank:
                    left, right = begin, middle
                    for place in range(begin, end):
                        if right == end or (
                            left < middle
                            and self.job.sockets[order[left]].rank <= self.job.sockets[order[right]].rank
                        ):
                            spare[place] = order[left]
                            left += 1
                        else:
                            spare[place] = order[right]
                            right += 1
                    for place in range(begin, end):
                        order[place] = spare[place]
                begin = end
            width *= 2

    cdef int _serve(
        self, list connections, int *order, int first, int end, double begun, double seconds
    ) except -1:
        """As `Poller._serve`."""
        cdef int index, count, at
        cdef int served = 0
        cdef int fds[AT_ONCE]
        cdef Socket *sock
        cdef double now, before
        cdef list found
        cdef int together = self.threads * TOGETHER if self.threads > 1 else 1
        at = first
        while at < end:
            count = 0
            for index in range(at, min(at + together, end)):
                # One of those before may have ended it, or have changed what is wanted of it.
                if self.connections.get(order[index]) is connections[index]:
                    sock = &self.job.sockets[order[index]]
                    if not sock.watched & EPOLLIN:
                        sock.events &= ~EPOLLIN if sock.watched else 0
                    sock.due = 0
                    sock.latest = self.round
                    if self.left:
                        self._had_turn(sock.fd)
                    fds[count] = order[index]
                    count += 1
            served += min(at + together, end) - at
            at += together
            if count:
                self._read_some(_read_timed, fds, count)
                found = []
                for index in range(count):
                    sock = &self.job.sockets[fds[index]]
                    self.short += sock.spent
                    found.append((<object>sock.connection, sock.outcome, sock.ended, sock.events, sock.spent))
                before = _clock(CLOCK_MONOTONIC)
                for connection, result, ended, events, spent in found:
                    self._has_read(connection, result, ended, events)
                    now = _clock(CLOCK_MONOTONIC)
                    self._charge(connection, now - before, spent)
                    before = now
            if 0 <= seconds <= _clock(CLOCK_MONOTONIC) - begun:
                break
        return served

    cdef void _begin_round(self) noexcept:
        """As `Charges.begin_round`."""
        if self.watched:
            self.watched -= 1
            self.used = _clock(CLOCK_THREAD_CPUTIME_ID)
            self.short = 0

    cdef int _charge(self, connection, double elapsed, double before) except -1:
        """As `Charges.charge`."""
        cdef double used, spent
        cdef bint long = False
        cdef PyObject *costly
        if elapsed + before < COSTLY_SECONDS:
            self.short += elapsed
        else:
            used = _clock(CLOCK_THREAD_CPUTIME_ID)
            spent = used - self.used - self.short + before
            long = self.watched > 0 and spent >= COSTLY_SECONDS
            self.watched, self.used, self.short = WATCHED_ROUNDS, used, 0
        costly = get(<PyObject *>connection, state_costly)
        if long:
            put(<PyObject *>connection, state_costly, COSTLY_TURNS)
        elif costly != ZERO:
            put(<PyObject *>connection, state_costly, <object>costly - 1)
        return 0

    cdef int _read_some(self, pool_task task, int *order, int count) except -1:
        """Give the engine what has arrived for the first `count` connections of an order."""
        cdef int index
        cdef Socket *sock
        for index in range(count):
            self.job.descriptors[index] = order[index]
            sock = &self.job.sockets[order[index]]
            if sock.events & ~EPOLLOUT:
                self._at_ease(sock)
        self.job.heavy = self.heavy
        self.read_lately = self._run(task, count, self.read_lately)
        for index in range(count):
            sock = &self.job.sockets[self.job.descriptors[index]]
            self.heavy += sock.heavy
            if sock.gate != NULL and (sock.gate.held or self.held):
                self.held.pop(sock.fd, None)
                if sock.gate.held:
                    self.held[sock.fd] = None  # the last one to have its turn again
        if self.held or self.woken:
            self._wake()
        return 0

    cdef int _has_read(self, connection, ssize_t outcome, bint ended, uint32_t events) except -1:
        """As `AmqpConnection.has_read`, which is called when more is to be done than to forward."""
        cdef PyObject *state = <PyObject *>connection
        if outcome <= 0 or ended or self.drain is None or get(state, state_closed) == TRUE:
            connection.has_read(outcome)
        else:
            found = self._deal_with_events(connection)
            if found != self.empty:
                connection.has_read(outcome, found)
            else:
                self._touch(connection)
        if events & EPOLLOUT:
            put(state, state_writable, _true)
            self._touch(connection)
        return 0

    cdef object _deal_with_events(self, connection):
        """As far as the kernel does; what it has left to do, or None."""
        cdef PyObject *state = <PyObject *>connection
        try:
            return self.drain(<object>get(state, state_collector), <object>get(state, state_links))
        except Exception as error:
            connection.failed(error)
            return None

    cdef int _touch(self, connection) except -1:
        if get(<PyObject *>connection, state_dirty) != TRUE:
            put(<PyObject *>connection, state_dirty, _true)
            PyList_Append(self.dirty, connection)
        return 0

    def write(self, list connections not None):
        cdef int count = 0
        cdef int fd
        cdef PyObject *state
        cdef ssize_t result
        cdef list asked = []
        cdef list results
        for connection in connections:
            state = <PyObject *>connection
            put(state, state_dirty, _false)
            if get(state, state_closed) == TRUE:
                continue
            if get(state, state_write_blocked) == TRUE and get(state, state_writable) != TRUE:
                continue
            put(state, state_writable, _false)
            put(state, state_stirred, _true)
            if PyList_GET_SIZE(<object>get(state, state_fresh_sessions)):
                connection.before_write()
            # Descriptors of different open connections: there are no more of them than the table has room for.
            self.job.descriptors[count] = <object>get(state, state_fd)
            count += 1
            asked.append(connection)
        if count == 0:
            return
        self.written_lately = self._run(_write, count, self.written_lately)
        # Taken before anything is done about them, which may change them.
        results = []
        for connection in asked:
            fd = <object>get(<PyObject *>connection, state_fd)
            results.append(self.job.sockets[fd].outcome)
        for connection, outcome in zip(asked, results):
            state = <PyObject *>connection
            result = outcome
            found = None
            if PyDict_Size(<object>get(state, state_unwritten)) and get(state, state_closed) != TRUE:
                written(<object>get(state, state_unwritten))
            if (
                result == WRITTEN
                and self.drain is not None
                and get(state, state_closed) != TRUE
                and get(state, state_write_blocked) != TRUE
                and get(state, state_after_write) != TRUE
                and get(state, state_unfinished) != TRUE
                and PySet_GET_SIZE(<object>get(state, state_stalled)) == 0
            ):
                found = self._deal_with_events(connection)
                if found == self.empty:
                    continue
            connection.written(result, found)

    cdef size_t _run(self, pool_task task, size_t count, size_t lately):
        """Do it for each of the first `count` descriptors; bytes moved per connection."""
        cdef size_t index, moved = 0
        cdef size_t shared = 0
        cdef int fd
        cdef int helpers = 0
        if count > 1 and self.threads > 1 and lately >= WORTH_A_THREAD:
            # Those that may be anybody's first, the others are for this thread.
            for index in range(count):
                fd = self.job.descriptors[index]
                if self.job.sockets[fd].shared:
                    self.job.descriptors[index] = self.job.descriptors[shared]
                    self.job.descriptors[shared] = fd
                    shared += 1
            helpers = min(<int>shared, self.threads) - 1
        with nogil:
            if helpers > 0:
                pool_run(self.pool, task, &self.job, shared, helpers)
            else:
                shared = 0
            for index in range(shared, count):
                task(&self.job, index, 0)
            for index in range(count):
                moved += self.job.sockets[self.job.descriptors[index]].moved
        return moved // count
