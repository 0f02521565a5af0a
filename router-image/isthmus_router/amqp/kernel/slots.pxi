"""Where the router's objects have their attributes, and the values that are told apart by identity."""
# Part of drain.pyx, which imports what is named here.

cdef inline int _count(PyObject *owner, Py_ssize_t offset) except -1:
    put(owner, offset, PyLong_AsLong(<object>get(owner, offset)) + 1)
    return 0


cdef inline void *_cell(PyObject *link) noexcept:
    return pointer(get(get(link, link_histograms), histograms_cell))


cdef PyObject *NONE = <PyObject *>None
cdef object _true = bool(1)
cdef PyObject *TRUE = <PyObject *>_true
cdef object _false = bool(0)
cdef object _incoming = Direction.IN
cdef PyObject *INCOMING = <PyObject *>_incoming
cdef object _single = RouteKind.SINGLE
cdef PyObject *SINGLE = <PyObject *>_single
cdef object _rotate = RouteKind.ROTATE
cdef PyObject *ROTATE = <PyObject *>_rotate
cdef object _balance = RouteKind.BALANCE
cdef PyObject *BALANCE = <PyObject *>_balance
cdef object _link = Link

cdef Py_ssize_t address_balance = offset(Address, "balance")
cdef Py_ssize_t address_priority = offset(Address, "priority")
cdef Py_ssize_t balance_candidate = offset(Balance, "candidate")
cdef Py_ssize_t balance_heeded = offset(Balance, "heeded")
cdef Py_ssize_t balance_least = offset(Balance, "least")
cdef Py_ssize_t balance_turn = offset(Balance, "turn")
cdef Py_ssize_t load_balance = offset(PathLoad, "balance")
cdef Py_ssize_t load_cost = offset(PathLoad, "cost")
cdef Py_ssize_t load_outstanding = offset(PathLoad, "outstanding")
cdef Py_ssize_t load_place = offset(PathLoad, "place")
cdef Py_ssize_t activity_out_of_credit = offset(Activity, "out_of_credit")
cdef Py_ssize_t link_allowance = offset(Link, "allowance")
cdef Py_ssize_t link_answered = offset(Link, "answered")
cdef Py_ssize_t link_accepted = offset(Link, "accepted")
cdef Py_ssize_t allowance_cell = offset(Allowance, "cell")
cdef Py_ssize_t allowance_waiting = offset(Allowance, "waiting")
cdef Py_ssize_t link_address = offset(Link, "address")
cdef Py_ssize_t link_activity = offset(Link, "activity")
cdef Py_ssize_t link_capacity = offset(Link, "capacity")
cdef Py_ssize_t link_connection = offset(Link, "connection")
cdef Py_ssize_t link_credit_batch = offset(Link, "credit_batch")
cdef Py_ssize_t link_credit_recalled = offset(Link, "credit_recalled")
cdef Py_ssize_t link_credit_due = offset(Link, "credit_due")
cdef Py_ssize_t link_deliveries = offset(Link, "deliveries")
cdef Py_ssize_t link_direction = offset(Link, "direction")
cdef Py_ssize_t link_drained = offset(Link, "drained")
cdef Py_ssize_t link_guard = offset(Link, "guard")
cdef Py_ssize_t link_io = offset(Link, "io")
cdef Py_ssize_t link_max_message_size = offset(Link, "max_message_size")
cdef Py_ssize_t link_on_delivery = offset(Link, "on_delivery")
cdef Py_ssize_t link_parked = offset(Link, "parked")
cdef Py_ssize_t link_parked_dropped = offset(Link, "parked_dropped")
cdef Py_ssize_t link_paused = offset(Link, "paused")
cdef Py_ssize_t link_place = offset(Link, "place")
cdef Py_ssize_t link_presettled = offset(Link, "presettled")
cdef Py_ssize_t link_released = offset(Link, "released")
cdef Py_ssize_t link_replenish_on_arrival = offset(Link, "replenish_on_arrival")
cdef Py_ssize_t link_route = offset(Link, "route")
cdef Py_ssize_t link_partner = offset(Link, "partner")
cdef Py_ssize_t link_routed = offset(Link, "routed")
cdef Py_ssize_t link_routes = offset(Link, "routes")
cdef Py_ssize_t link_sends_settled = offset(Link, "sends_settled")
cdef Py_ssize_t link_sends_unsettled = offset(Link, "sends_unsettled")
cdef Py_ssize_t link_session = offset(Link, "session")
cdef Py_ssize_t link_settles_second = offset(Link, "settles_second")
cdef Py_ssize_t link_stream = offset(Link, "stream")
cdef Py_ssize_t link_histograms = offset(Link, "histograms")
cdef Py_ssize_t link_targeted = offset(Link, "targeted")
cdef Py_ssize_t link_unsettled = offset(Link, "unsettled")
cdef Py_ssize_t link_whole_bytes = offset(Link, "whole_bytes")
cdef Py_ssize_t route_address = offset(Route, "address")
cdef Py_ssize_t route_deliveries = offset(Route, "deliveries")
cdef Py_ssize_t route_kind = offset(Route, "kind")
cdef Py_ssize_t route_link = offset(Route, "link")
cdef Py_ssize_t receivers_loads = offset(Receivers, "loads")
cdef Py_ssize_t receivers_sinks = offset(Receivers, "sinks")
cdef Py_ssize_t receivers_whole = offset(Receivers, "whole")
cdef Py_ssize_t route_prefix = offset(Route, "prefix")
cdef Py_ssize_t route_receivers = offset(Route, "receivers")
cdef Py_ssize_t route_valid = offset(Route, "valid")
cdef Py_ssize_t connection_annotates = offset(Connection, "annotates")
cdef Py_ssize_t connection_io = offset(Connection, "io")
cdef Py_ssize_t guard_structure = offset(MessageGuard, "structure")
cdef Py_ssize_t hop_data_links = offset(Hop, "data_links")
cdef Py_ssize_t state_dirty = offset(ConnectionState, "dirty")
cdef Py_ssize_t state_outgoing_share = offset(ConnectionState, "outgoing_share")
cdef Py_ssize_t state_outgoing_shut_in = offset(ConnectionState, "outgoing_shut_in")
cdef Py_ssize_t state_unwritten = offset(ConnectionState, "unwritten")
cdef Py_ssize_t state_write_blocked = offset(ConnectionState, "write_blocked")
cdef Py_ssize_t histograms_cell = offset(Histograms, "cell")
