"""Strings of peers are shown without control characters, and JSON stays what it was."""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.printable import printable, printable_all, replaced


def test_control_and_invisible_characters_are_escaped() -> None:
    assert printable("a\x1b[2Jb\r\n") == "a\\u001b[2Jb\\u000d\\u000a"
    assert (
        printable("\x9b31m\x7f\u202egnp.exe\u2066\ufeff") == "\\u009b31m\\u007f\\u202egnp.exe\\u2066\\ufeff"
    )
    assert printable("\U000e0041\ud800") == "\\udb40\\udc41\\ud800"
    assert printable("Zürich 東京 😀 a\\b") == "Zürich 東京 😀 a\\b"
    assert printable("one\n\ttwo\x1b", lines=True) == "one\n\ttwo\\u001b"


@given(st.text())
def test_json_has_the_same_strings_after_that(text: str) -> None:
    line = printable(json.dumps([text], ensure_ascii=False))
    assert json.loads(line) == [text]
    assert len(line.splitlines()) == 1
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in line)


@dataclass(frozen=True)
class Row:
    name: str
    at: tuple[str, ...]
    number: int | None = None


def test_every_string_of_a_view_is_escaped() -> None:
    rows = [Row("a\x07", ("b\x1b", "c")), {"d\x00": Row("e", ())}]
    assert printable_all(rows) == [Row("a\\u0007", ("b\\u001b", "c")), {"d\\u0000": Row("e", ())}]


def test_all_categories_of_characters_that_are_not_shown_are_escaped_and_replaced() -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        category = unicodedata.category(character)
        unsafe = printable(character) != character
        assert unsafe or category not in hidden, hex(number)
        assert not unsafe or category in hidden | {"Cn", "Mn"}, hex(number)
        assert replaced(character) == ("\N{REPLACEMENT CHARACTER}" if unsafe else character)
