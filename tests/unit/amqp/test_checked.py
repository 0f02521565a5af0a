"""The values of peers pass one border, and what is not valid does not pass it."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cproton_ffi import lib
from tests.integration.support.invalid import INVALID, SWALLOWED

import isthmus_router
from isthmus_router.amqp.checked import MOST_ITEMS, condition_of, copy_condition, copy_data, read_data
from isthmus_router.amqp.engine import set_condition
from isthmus_router.message.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)

SOURCES = Path(isthmus_router.__file__).parent
BORDER = "checked.py"
GUARDED = frozenset(
    {
        "pn_condition_copy",
        "pn_data_append",
        "pn_data_appendn",
        "pn_data_copy",
        "pn_data_encode",
        "pn_data_encoded_size",
        "pn_disposition_copy",
        "pn_terminus_copy",
    }
)


VALID = {
    "scalars": [
        None,
        True,
        UByte(1),
        UShort(2),
        UInt(0),
        UInt(300),
        ULong(0),
        ULong(2**60),
        Byte(-1),
        Short(-2),
        Int(-3),
        -(2**60),
        1.5,
        Float(0.5),
        Decimal32(b"1234"),
        Decimal64(b"12345678"),
        Decimal128(b"1234567812345678"),
        Char("ä"),
        Timestamp(12),
        uuid.UUID(int=5),
        b"\x00\xff",
        "ä" * 300,
        Symbol("a" * 300),
    ],
    "a map": {Symbol("a"): {"b": [1, {}, []]}},
    "an array": Array(Symbol, (Symbol("a"), Symbol("b"))),
    "an array of nothing": Array(Symbol, ()),
    "an array of one": Array(Symbol, (Symbol("a"),)),
    "an array of described lists": Array(list, ([1, None], []), ULong(5)),
    "an array of arrays": Array(Array, (Array(UInt, (UInt(1),)), Array(UInt, ()))),
    "an array of maps": Array(dict, ({"a": 1}, {})),
    "a filter": {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 'b'")},
    "a described list with nulls": Described(ULong(0x24), [None, [None], None]),
    "many": [*range(MOST_ITEMS - 1)],
}


def engine_calls(file: Path) -> Iterator[str]:
    """Functions of the engine that a module names, in whichever way."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias | ast.Name):
            yield node.name if isinstance(node, ast.alias) else node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_module_copies_or_encodes_values() -> None:
    found = {file.name: GUARDED & set(engine_calls(file)) for file in SOURCES.rglob("*.py")}
    assert {"pn_terminus_copy", "pn_data_copy"} <= found.pop(BORDER)
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_no_compiled_module_copies_or_encodes_values() -> None:
    files = [file for kind in ("*.pyx", "*.pxd", "*.pxi", "*.h") for file in SOURCES.rglob(kind)]
    assert len(files) > 5
    assert [(file.name, name) for file in files for name in GUARDED if name in file.read_text()] == []


@pytest.fixture
def values() -> Iterator[Callable[[], Any]]:
    """Makes values of the engine's."""
    made: list[Any] = []

    def make() -> Any:
        made.append(lib.pn_data(0))
        return made[-1]

    yield make
    for value in made:
        lib.pn_data_free(value)


@pytest.fixture
def links() -> Iterator[list[Any]]:
    """Two links of the engine's."""
    connection = lib.pn_connection()
    session = lib.pn_session(connection)
    yield [lib.pn_sender(session, name) for name in (b"a", b"b")]
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)


def decoded(data: Any, encoded: bytes) -> Any:
    """Decode as the engine does, which does not look at the result."""
    lib.pn_data_decode(data, encoded, len(encoded))
    lib.pn_data_rewind(data)
    return data


@pytest.mark.parametrize("encoded", (INVALID | SWALLOWED).values(), ids=INVALID | SWALLOWED)
def test_an_invalid_value_is_refused(values: Callable[[], Any], encoded: bytes) -> None:
    data = decoded(values(), encoded)
    with pytest.raises(DecodeError):
        read_data(data)
    target = values()
    copy_data(data, target)
    assert read_data(target) is None


@pytest.mark.parametrize("value", VALID.values(), ids=VALID)
def test_a_valid_value_passes(values: Callable[[], Any], value: Any) -> None:
    data = decoded(values(), encode(value))
    assert read_data(data) == value
    target = values()
    copy_data(data, target)
    assert read_data(target) == value


def test_a_condition_is_copied_without_invalid_info(links: list[Any]) -> None:
    source, target = map(lib.pn_link_condition, links)
    set_condition(source, "a:b", "why")
    decoded(lib.pn_condition_info(source), INVALID["an array that is too short"])
    with pytest.raises(DecodeError):
        condition_of(source)
    copy_condition(source, target)
    assert condition_of(target) == ("a:b", "why", None)
