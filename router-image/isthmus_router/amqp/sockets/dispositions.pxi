# As `dispositions.py`.

cdef size_t MOST_COPIED_BYTES = dispositions.MOST_COPIED_BYTES
cdef size_t SHORT_BYTES = dispositions.SHORT_BYTES

cdef enum:
    DISPOSITION = 0x15
    NULL_VALUE = 0x40
    NO_NUMBER = 255

cdef uint64_t ALL = <uint64_t>1 << 32


cdef inline uint64_t _number(const unsigned char *data, size_t size) noexcept nogil:
    """Read `size` bytes, the most significant one first."""
    cdef uint64_t value = 0
    cdef size_t index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef inline unsigned char _number_bytes(unsigned char code) noexcept nogil:
    """How many bytes follow the code of a uint."""
    if code == NULL_VALUE or code == 0x43:
        return 0
    if code == 0x52:
        return 1
    if code == 0x70:
        return 4
    return NO_NUMBER


cdef bint _copies_too_much(const unsigned char *data, size_t size, size_t deliveries) noexcept nogil:
    """As `dispositions.copies_too_much`."""
    cdef size_t frame, head
    while size > SHORT_BYTES:
        frame = _number(data, 4)
        if frame < 8 or frame > size:
            return False
        head = 4 * <size_t>data[4]
        if (
            frame > head + SHORT_BYTES
            and (frame - head) * deliveries > MOST_COPIED_BYTES
            and (frame - head) * min(<uint64_t>deliveries, _named(data + head)) > MOST_COPIED_BYTES
        ):
            return True
        data += frame
        size -= frame
    return False


cdef uint64_t _named(const unsigned char *body) noexcept nogil:
    """As `dispositions._named`, of a body with more than `SHORT_BYTES`."""
    cdef uint64_t code, first
    cdef unsigned char size
    if body[0] != 0:
        return 0
    if body[1] == 0x53:
        code = body[2]
        body += 3
    elif body[1] == 0x80:
        code = _number(body + 2, 8)
        body += 10
    else:
        return 0
    if code != DISPOSITION:
        return 0
    if body[0] == 0xC0:
        body += 3
    elif body[0] == 0xD0:
        body += 9
    else:
        return ALL
    if body[0] == NULL_VALUE or body[0] == 0x41 or body[0] == 0x42:
        body += 1
    elif body[0] == 0x56:
        body += 2
    else:
        return ALL
    size = _number_bytes(body[0])
    if size == NO_NUMBER:
        return ALL
    first = _number(body + 1, size)
    body += 1 + size
    if body[0] == NULL_VALUE:
        return 1
    size = _number_bytes(body[0])
    if size == NO_NUMBER:
        return ALL
    return (_number(body + 1, size) - first & ALL - 1) + 1
