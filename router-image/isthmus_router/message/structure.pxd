# cython: language_level=3
"""The types with which `structure.py` is compiled; all that it does is there."""


cdef class Structure:
    cdef Py_ssize_t _left
    cdef bytes _start
    cdef Py_ssize_t _bytes
    cdef Py_ssize_t _sections
    cdef Py_ssize_t _last
    cdef Py_ssize_t _code
    cdef Py_ssize_t _count
    cdef Py_ssize_t _end
    cdef Py_ssize_t _element
    cdef Py_ssize_t _depth
    cdef list _outer

    cpdef check(self, const unsigned char[::1] data, Py_ssize_t size)
    cpdef bint passes(self, Py_ssize_t size)
    cpdef check_end(self)
    cdef _close(self, Py_ssize_t position)
    cdef Py_ssize_t _next(
        self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t base
    ) except -2
    cdef Py_ssize_t _section(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) except -2
    cdef Py_ssize_t _compound(
        self, Py_ssize_t code, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t base
    ) except -2


cdef Py_ssize_t _width(Py_ssize_t kind) noexcept
cdef Py_ssize_t _number(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
