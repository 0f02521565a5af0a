# cython: language_level=3
"""The types with which `structure.py` is compiled; all that it does is there."""

cimport cython


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

    @cython.locals(at=Py_ssize_t, behind=Py_ssize_t, passed=Py_ssize_t)
    cpdef check(self, const unsigned char[::1] data, Py_ssize_t size)
    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t check_first(self, const unsigned char[::1] data, Py_ssize_t most) except -2
    cpdef bint passes(self, Py_ssize_t size)
    cpdef check_end(self)
    cdef _close(self, Py_ssize_t position)
    @cython.locals(code=Py_ssize_t, kind=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _next(
        self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t base
    ) except -2
    @cython.locals(code=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t _section(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) except -2
    @cython.locals(
        width=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t, element=Py_ssize_t, kind=Py_ssize_t
    )
    cdef Py_ssize_t _compound(
        self, Py_ssize_t code, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t base
    ) except -2


@cython.locals(start=Py_ssize_t, length=Py_ssize_t, behind=Py_ssize_t)
cpdef list elements_without(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count, bytes prefix
)
@cython.locals(values=Py_ssize_t, code=Py_ssize_t, kind=Py_ssize_t)
cdef Py_ssize_t _behind(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -2
@cython.locals(place=Py_ssize_t)
cdef bint _begins_with(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned char *prefix, Py_ssize_t length
) noexcept
cdef Py_ssize_t _width(Py_ssize_t kind) noexcept
@cython.locals(number=Py_ssize_t, place=Py_ssize_t)
cdef Py_ssize_t _number(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
