# cython: language_level=3
"""What the compiled modules share: the engine's functions by their symbols, and the slots of the router's objects."""

from libc.stdint cimport uint64_t, uintptr_t
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

cdef extern from "dlfcn.h" nogil:
    int RTLD_NOW
    void *dlopen(const char *, int)
    void *dlsym(void *, const char *)

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

ctypedef struct Bytes:  # pn_bytes_t
    size_t size
    const char *start

ctypedef void *(*to_pointer)(void *) noexcept nogil
ctypedef void *(*of_size)(size_t) noexcept nogil
ctypedef void *(*with_int)(void *, int) noexcept nogil
ctypedef bint (*to_bool)(void *) noexcept nogil
ctypedef int (*to_int)(void *) noexcept nogil
ctypedef size_t (*to_size)(void *) noexcept nogil
ctypedef ssize_t (*to_count)(void *) noexcept nogil
ctypedef uint64_t (*to_state)(void *) noexcept nogil
ctypedef const char *(*to_bytes)(void *) noexcept nogil
ctypedef void (*to_nothing)(void *) noexcept nogil
ctypedef void (*with_count)(void *, size_t) noexcept nogil
ctypedef void (*with_state)(void *, uint64_t) noexcept nogil
ctypedef ssize_t (*with_room)(void *, char *, size_t) noexcept nogil
ctypedef int (*appending)(void *, const char *, size_t) noexcept nogil
ctypedef ssize_t (*with_bytes)(void *, const char *, size_t) noexcept nogil
ctypedef void *(*with_tag)(void *, Bytes) noexcept nogil
ctypedef Bytes (*to_tag)(void *) noexcept nogil
ctypedef void (*with_credit)(void *, int) noexcept nogil


cdef inline void *symbol(name) except NULL:
    """A function of the engine that this process has loaded."""
    import cproton_ffi
    cdef void *library = dlopen(cproton_ffi.__file__.encode(), RTLD_NOW)
    cdef void *found = dlsym(library, name.encode()) if library != NULL else NULL
    if found == NULL:
        raise ImportError(f"the engine has no {name}")
    return found


cdef inline void *pointer(PyObject *cdata) noexcept:
    """What a pointer of cffi's points to: the field behind its object header and its type (`check_pointer`)."""
    return (<void **>(<char *>cdata + sizeof(PyObject) + sizeof(void *)))[0]


cdef inline int check_pointer() except -1:
    from cproton_ffi import ffi
    probe = ffi.cast("void *", 0x1234567)
    if <uintptr_t>pointer(<PyObject *>probe) != 0x1234567:
        raise ImportError("the pointers of cffi are laid out in another way than expected")
    return 0


cdef inline Py_ssize_t offset(kind, name) except -1:
    """Where the objects of a class have a slot."""
    descriptor = getattr(kind, name)
    if type(descriptor).__name__ != "member_descriptor":
        raise ImportError(f"{kind.__name__}.{name} is not a slot")
    return (<PyMemberDescrObject *><PyObject *>descriptor).d_member.offset


cdef inline PyObject *get(PyObject *owner, Py_ssize_t at) noexcept:
    return (<PyObject **>(<char *>owner + at))[0]


cdef inline void put(PyObject *owner, Py_ssize_t at, object value):
    cdef PyObject **slot = <PyObject **>(<char *>owner + at)
    cdef PyObject *before = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *>value
    Py_XDECREF(before)
