# cython: language_level=3
"""Whether a message surely names no user: what `message.sections.find_user_id` finds nothing in, encoded as usual.

Source: AMQP 1.0 part 3, 3.2 (sections), part 1, 1.2 (the subcategory of a constructor gives the width).
"""


cdef enum:
    _MOST_DEPTH = 8


cdef inline Py_ssize_t behind(const unsigned char *data, Py_ssize_t at, Py_ssize_t size, int depth) noexcept:
    """Where the primitive value at `at` ends; -1 if it is not whole or an unusual one.

    Lists and maps end where their sizes say, and with the last of their elements (`message.structure`).
    """
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
    elif subcategory == 0xA:
        if at + 2 > size:
            return -1
        end = at + 2 + data[at + 1]
    elif subcategory == 0xB:
        if at + 5 > size:
            return -1
        end = at + 5 + _number(data, at + 1)
    elif data[at] == 0xC0 or data[at] == 0xC1:
        if at + 3 > size:
            return -1
        end = at + 2 + data[at + 1]
        return end if _elements_end(data, at + 3, data[at + 2], end, size, data[at], depth) else -1
    elif data[at] == 0xD0 or data[at] == 0xD1:
        if at + 9 > size:
            return -1
        end = at + 5 + _number(data, at + 1)
        return end if _elements_end(data, at + 9, _number(data, at + 5), end, size, data[at], depth) else -1
    else:
        return -1
    return end if end <= size else -1


cdef inline bint _elements_end(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t count, Py_ssize_t end, Py_ssize_t size, int code, int depth
) noexcept:
    """Whether so many elements, the first of which is at `at`, end at `end`."""
    if end > size or depth >= _MOST_DEPTH or ((code & 1) and (count & 1)):
        return False
    while count > 0 and at >= 0:
        at = behind(data, at, end, depth + 1)
        count -= 1
    return at == end


cdef inline Py_ssize_t _number(const unsigned char *data, Py_ssize_t at) noexcept:
    return (
        (<Py_ssize_t>data[at] << 24) + (<Py_ssize_t>data[at + 1] << 16) + (<Py_ssize_t>data[at + 2] << 8) + data[at + 3]
    )


cdef inline bint _fits(int code, int constructor) noexcept:
    """Whether the value of a section has a type that this section may have."""
    if code == 0x70 or code == 0x73 or code == 0x76:
        return constructor == 0x45 or constructor == 0xC0 or constructor == 0xD0
    if code == 0x75:
        return constructor == 0xA0 or constructor == 0xB0
    return code == 0x77 or constructor == 0xC1 or constructor == 0xD1


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
        if not _fits(code, data[start]):
            return False
        at = behind(data, start, size, 0)
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
                element = behind(data, element, at, 0)
                if element < 0 or element >= at or data[element] != 0x40:
                    return False
    return True
