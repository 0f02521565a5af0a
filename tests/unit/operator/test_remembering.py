"""Results are remembered within a number of bytes, and arguments are not."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import pytest

from isthmus_operator import certificates
from isthmus_operator.authority import issue
from isthmus_operator.certificates import examine
from isthmus_operator.remembering import ENTRY_BYTES, Memory

MIB = 1024 * 1024


@dataclass(frozen=True)
class Pair:
    one: str
    other: bytes


def test_a_function_is_called_once_for_equal_arguments() -> None:
    calls: list[object] = []
    memory = Memory(MIB)

    @memory
    def first(*items: object) -> str:
        calls.append(items)
        return "first"

    @memory
    def second(*items: object) -> str:
        return "second"

    kinds: list[tuple[object, ...]] = [
        (),
        (b"",),
        ("",),
        (None,),
        (b"None",),
        ("None",),
        (b"ab",),
        (b"a", b"b"),
        (Pair("a", b"b"),),
        (Pair("ab", b""),),
        (("a", "b"),),
    ]
    for items in (*kinds, *kinds):
        assert first(*items) == "first"
        assert second(*items) == "second"
    assert calls == kinds


def test_named_arguments_count() -> None:
    memory = Memory(MIB)

    @memory
    def tells(*, name: str) -> str:
        return name

    assert [tells(name="a"), tells(name="b"), tells(name="a")] == ["a", "b", "a"]


def test_what_was_not_used_for_the_longest_time_is_forgotten_first() -> None:
    calls = []
    size = ENTRY_BYTES + len(b"x" * 1_000) + 64
    memory = Memory(10 * size)

    @memory
    def made(number: int) -> bytes:
        calls.append(number)
        return b"x" * 1_000

    for number in range(10):
        made(number)
    made(0)
    made(10)
    assert calls == list(range(11))
    made(0)
    assert calls == list(range(11))
    made(1)
    assert calls == [*range(11), 1]
    assert memory.bytes <= 10 * size


def test_an_error_and_a_result_without_room_are_not_remembered() -> None:
    calls = []
    memory = Memory(MIB)

    @memory
    def fails() -> bytes:
        calls.append(1)
        raise KeyError

    @memory
    def large() -> bytes:
        calls.append(2)
        return b"x" * MIB

    for _ in range(2):
        with pytest.raises(KeyError):
            fails()
        large()
    assert calls == [1, 2, 1, 2]
    assert memory.bytes == 0


def test_versions_of_a_large_secret_take_no_memory() -> None:
    """14 Secrets of 1 MB, changed 15 times, ended an operator with 512 MiB."""
    tracemalloc.start()
    try:
        for number in range(100):
            assert examine(b"%d " % number + b"x" * MIB, None, None).problem is not None
        assert tracemalloc.get_traced_memory()[0] < 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("module", [certificates, issue])
def test_no_function_of_key_material_holds_its_arguments(module: object) -> None:
    """As `functools.lru_cache` does."""
    assert [name for name, item in vars(module).items() if hasattr(item, "cache_info")] == []
