"""The verdict of the memory check: what valgrind's log says about the kernel and the engine, and nothing else."""

from __future__ import annotations

from tests.memcheck.__main__ import faults

INTERPRETER = """\
==7== Memcheck, a memory error detector
==7==
==7== Conditional jump or move depends on uninitialised value(s)
==7==    at 0x49E04DA: maybe_small_long (longobject.c:71)
==7==    by 0x49AABA2: PyObject_Vectorcall (call.c:299)
==7==
"""
ENGINE = """\
==7== Invalid read of size 8
==7==    at 0x92E8D26: pn_collector_peek (in /venv/lib/python3.11/site-packages/cproton_ffi.abi3.so)
==7==    by 0x49AABA2: PyObject_Vectorcall (call.c:299)
==7==  Address 0x88 is 24 bytes inside a block of size 72 free'd
==7==    by 0x92E8D26: pn_collector_free (in /venv/lib/python3.11/site-packages/cproton_ffi.abi3.so)
==7==
"""
KERNEL = """\
==7== 24 bytes in 1 blocks are definitely lost in loss record 9 of 10
==7==    at 0x48417B4: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x92E8D26: __pyx_f_5drain_incoming (in /r/kernel/drain.cpython-311-x86_64-linux-gnu.so)
==7==
"""
LOADING = """\
==7== 104 bytes in 1 blocks are definitely lost in loss record 8 of 10
==7==    at 0x48417B4: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
==7==    by 0x92E8D26: PyInit_cproton_ffi (cproton_ffi.c:18635)
==7==
==7== ERROR SUMMARY: 4 errors from 4 contexts (suppressed: 0 from 0)
"""


def test_faults_of_the_interpreter_do_not_count() -> None:
    assert faults(INTERPRETER + LOADING) == []


def test_faults_of_kernel_and_engine_count() -> None:
    read, lost = faults(INTERPRETER + ENGINE + KERNEL + LOADING)
    assert read.startswith("Invalid read of size 8")
    assert "free'd" in read
    assert lost.startswith("24 bytes in 1 blocks are definitely lost")
