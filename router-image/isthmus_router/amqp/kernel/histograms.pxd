# cython: language_level=3
"""`Histograms` in place: octets, messages by bucket of their size, deliveries by bucket of their latency."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long) noexcept nogil

cdef enum:
    BUCKETS = 240


cdef inline uint32_t bucket_of(int64_t number) noexcept:
    """As `flows.sketch.bucket_of`."""
    cdef int shift
    if number < 8:
        return 0 if number < 0 else <uint32_t>number
    if number > 0xFFFFFFFF:
        number = 0xFFFFFFFF
    shift = 60 - leading_zeros(number)
    return (shift << 3) + <uint32_t>(number >> shift)


cdef inline void add_message(void *cell, Py_ssize_t size, uint32_t bucket) noexcept:
    (<uint64_t *>cell)[0] += size
    (<uint32_t *>(<char *>cell + sizeof(uint64_t)))[bucket] += 1


cdef inline void add_latency(void *cell, uint32_t bucket) noexcept:
    (<uint32_t *>(<char *>cell + sizeof(uint64_t)))[BUCKETS + bucket] += 1
