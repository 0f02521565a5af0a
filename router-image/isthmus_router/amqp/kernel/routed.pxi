"""What passes on routed links, as `routed.RoutedLinks` does it, for whole messages, plain outcomes and more credit."""
# Part of drain.pyx, which imports what is named here.

cdef bint watched(PyObject *link) noexcept:
    """Whether it is noted that the link has no credit, which then ends."""
    cdef PyObject *activity = get(link, link_activity)
    return activity != NONE and get(activity, activity_out_of_credit) != NONE


cdef int give_credit(PyObject *out) except -1:
    """As `RoutedLinks.flow` for more credit from a receiver: 1, or 2 if its sender has to be told; else 0, for Python."""
    cdef PyObject *link = get(out, link_partner)
    cdef void *to
    cdef void *at
    cdef int wanted, more
    if get(out, link_direction) == INCOMING or link == NONE or get(link, link_answered) != TRUE:
        return 0
    to = pointer(get(out, link_io))
    at = pointer(get(link, link_io))
    wanted = pn_link_credit(to)
    more = wanted - pn_link_credit(at)
    if (
        wanted <= 0
        or more < 0
        or get(link, link_paused) == TRUE
        or pn_link_get_drain(to)
        or pn_link_get_drain(at)
        or get(link, link_drained) == TRUE
        or PyLong_AsLong(<object>get(link, link_credit_recalled))
        or watched(out)
        or watched(link)
    ):
        return 0
    if more == 0:
        return 1
    pn_link_flow(at, more)
    return 2


cdef int pass_on(Drain self, PyObject *link, void *pn, object now) except -1:
    """As `RoutedLinks.event` for a delivery on an IN link."""
    cdef PyObject *out = get(link, link_partner)
    cdef int64_t *unsettled
    cdef void *at
    cdef void *to
    cdef void *sent
    cdef Bytes tag
    cdef ssize_t size, whole
    cdef uint32_t bucket
    cdef object record, number
    if (
        out == NONE
        or get(link, link_answered) != TRUE
        or get(link, link_stream) != NONE
        or get(link, link_histograms) == NONE
        or get(out, link_histograms) == NONE
    ):
        return _TO_DO
    at = pointer(get(link, link_io))
    to = pointer(get(out, link_io))
    unsettled = <int64_t *>pointer(get(get(link, link_allowance), allowance_cell))
    if (
        pn_link_current(at) != pn
        or pn_delivery_partial(pn)
        or pn_delivery_aborted(pn)
        or pn_delivery_remote_state(pn)
        or pn_link_queued(at) > pn_link_credit(at)
        or pn_link_credit(to) <= 0
        or not is_within_share(
            out, min(<size_t>pn_delivery_pending(pn), <size_t>self.chunk_bytes), self.stream_outgoing_high
        )
        or PyDict_Size(<object>get(link, link_unsettled)) >= self.most_unsettled
        or unsettled[0] >= unsettled[1]
    ):
        return _TO_DO
    tag = pn_delivery_tag(pn)
    if tag.size > self.most_tag_bytes:
        return _TO_DO
    whole = PyLong_AsLong(<object>get(link, link_whole_bytes))
    size = pn_link_recv(at, self.buffer, whole)
    if size <= 0:
        return _TO_DO
    if size == whole or (
        get(link, link_guard) != NONE and not names_no_user(<unsigned char *>self.buffer, size)
    ):
        self.routed.received(<object>link, _cast(_delivery_type, <uintptr_t>pn), size)
        return _DONE
    sent = pn_delivery(to, tag)
    equip_with_spare(sent, size)
    pn_link_send(to, self.buffer, size)
    _count(link, link_deliveries)
    _count(out, link_deliveries)
    bucket = bucket_of(size)
    add_message(_cell(link), size, bucket)
    add_message(_cell(out), size, bucket)
    end_sent(out, to, sent)
    end_read(link, at, pn)
    if pn_delivery_settled(pn):
        _count(link, link_presettled)
        _count(out, link_presettled)
        pn_delivery_settle(sent)
        pn_delivery_settle(pn)
    else:
        unsettled[0] += 1
        record = PyType_GenericAlloc(<PyTypeObject *>self.passed, 0)
        put(<PyObject *>record, self.passed_arrived, now)
        put(<PyObject *>record, self.passed_settled, _false)
        put(<PyObject *>record, self.passed_size, _zero)
        number = PyLong_FromVoidPtr(pn)
        put(<PyObject *>record, self.passed_incoming, number)
        PyDict_SetItem(<object>get(link, link_unsettled), number, record)
        number = PyLong_FromVoidPtr(sent)
        put(<PyObject *>record, self.passed_outgoing, number)
        PyDict_SetItem(<object>get(out, link_unsettled), number, record)
    self.touch(<object>get(get(out, link_connection), connection_io))
    self.touch(<object>get(get(link, link_connection), connection_io))
    return _GO_ON


cdef int settled_by_receiver(Drain self, PyObject *out, void *pn, object now) except -1:
    """As `RoutedLinks.event` for a delivery on an OUT link."""
    cdef PyObject *link = get(out, link_partner)
    cdef object unsettled = <object>get(out, link_unsettled)
    cdef object number = PyLong_FromVoidPtr(pn)
    cdef PyObject *known = PyDict_GetItem(unsettled, number)
    cdef uint64_t state
    cdef PyObject *allowance
    cdef object record
    cdef void *came
    if known == NULL:
        return _TO_DO if link == NONE else more_than_ours(out, unsettled)
    state = pn_delivery_remote_state(pn)
    if (
        link == NONE
        or (state != ACCEPTED and state != RELEASED)
        or not pn_delivery_settled(pn)
        or get(link, link_stream) == known
        or get(link, link_histograms) == NONE
        or get(out, link_histograms) == NONE
    ):
        return _TO_DO
    allowance = get(link, link_allowance)
    if PyDict_Size(<object>get(allowance, allowance_waiting)):
        return _TO_DO
    (<int64_t *>pointer(get(allowance, allowance_cell)))[0] -= 1
    record = <object>known
    PyDict_DelItem(unsettled, number)
    number = <object>get(known, self.passed_incoming)
    came = <void *><uintptr_t>number
    PyDict_DelItem(<object>get(link, link_unsettled), number)
    if state == ACCEPTED:
        _count(link, link_accepted)
        _count(out, link_accepted)
    else:
        _count(link, link_released)
        _count(out, link_released)
    if get(known, self.passed_arrived) != self.arrived:
        self.arrived = get(known, self.passed_arrived)
        self.took = PyLong_AsLong(now) - PyLong_AsLong(<object>self.arrived)
        self.took_bucket = bucket_of(self.took)
    add_latency(_cell(link), self.took_bucket)
    add_latency(_cell(out), self.took_bucket)
    if self.took > late_us:
        self.settlement.count_late(<object>link, self.took)
        self.settlement.count_late(<object>out, self.took)
    pn_delivery_update(came, state)
    pn_delivery_settle(came)
    pn_delivery_settle(pn)
    self.touch(<object>get(get(link, link_connection), connection_io))
    self.touch(<object>get(get(out, link_connection), connection_io))
    return _GO_ON
