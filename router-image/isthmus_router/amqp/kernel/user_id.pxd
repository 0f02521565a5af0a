# cython: language_level=3
"""Whether a message surely names no user: what `message.sections.find_user_id` finds nothing in, encoded as usual.

Source: AMQP 1.0 part 3, 3.2 (sections), part 1, 1.2 (the subcategory of a constructor gives the width).
"""


cdef inline Py_ssize_t behind(const unsigned char *data, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Where the primitive value at `at` ends; -1 if it is described, unknown or not whole."""
    cdef int subcategory
    cdef Py_ssize_t end
    if at >= size:
        return -1
    subcategory = data[at] >> 4
    if subcategory == 0x4:
        end = at + 1
    elif subcategory == 0x5:
        end = at + 2
    elif subcategory == 0x6:
        end = at + 3
    elif subcategory == 0x7:
        end = at + 5
    elif subcategory == 0x8:
        end = at + 9
    elif subcategory == 0x9:
        end = at + 17
    elif subcategory in (0xA, 0xC, 0xE):
        if at + 2 > size:
            return -1
        end = at + 2 + data[at + 1]
    elif subcategory in (0xB, 0xD, 0xF):
        if at + 5 > size:
            return -1
        end = at + 5 + _number(data, at + 1)
    else:
        return -1
    return end if end <= size else -1


cdef inline Py_ssize_t _number(const unsigned char *data, Py_ssize_t at) noexcept:
    return (
        (<Py_ssize_t>data[at] << 24) + (<Py_ssize_t>data[at + 1] << 16) + (<Py_ssize_t>data[at + 2] << 8) + data[at + 3]
    )


cdef inline bint names_no_user(const unsigned char *data, Py_ssize_t size) noexcept:
    """Of a whole message without router annotations: its sections are in order, and no `user-id` is among them."""
    cdef Py_ssize_t at = 0, start, element
    cdef int code, last = 0
    while at < size:
        if at + 4 > size or data[at] != 0 or data[at + 1] != 0x53:
            return False
        code = data[at + 2]
        if code < 0x70 or code > 0x78 or code < last or (code == last and code != 0x75 and code != 0x76):
            return False
        last = code
        start = at + 3
        at = behind(data, start, size)
        if at < 0:
            return False
        if code == 0x73 and data[start] != 0x45:
            if data[start] == 0xC0 and start + 3 <= at:
                element = start + 3 if data[start + 2] > 1 else -1
            elif data[start] == 0xD0 and start + 9 <= at:
                element = start + 9 if _number(data, start + 5) > 1 else -1
            else:
                return False
            if element >= 0:
                element = behind(data, element, at)
                if element < 0 or element >= at or data[element] != 0x40:
                    return False
    return True
