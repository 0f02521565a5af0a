"""`python -m tests.security.fuzz.border`: random values at the border of `amqp/checked.py`.

What the border lets through of a valid value is what a decoder without the engine reads from the same bytes. A copy of
any value is what was read. Of invalid values, the engine takes some: it ignores the sizes of lists, maps and arrays.
Exit status: 0 nothing found, 1 something is wrong; the process ends by a signal if the engine does.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cproton_ffi import lib
from tests.security.fuzz.encodings import mutated_encoding

from isthmus_router.amqp.checked import MOST_ITEMS, copy_data, read_data
from isthmus_router.message.types import DecodeError, decode_all

VALUES_OF_A_PAIR = 5000


@contextmanager
def two_values() -> Iterator[tuple[Any, Any]]:
    """Two `pn_data_t` for the values of the engine."""
    pair = lib.pn_data(0), lib.pn_data(0)
    yield pair
    for one in pair:
        lib.pn_data_free(one)


def find_problem(taken: Any, copied: Any, given: bytes) -> str:
    """What is wrong with how one value passes, or nothing."""
    lib.pn_data_clear(taken)
    lib.pn_data_clear(copied)
    size = lib.pn_data_decode(taken, given, len(given))
    lib.pn_data_rewind(taken)
    try:
        found = repr(read_data(taken))
    except DecodeError:
        found = repr(None)
    else:
        problem = _difference(found, given[:size]) if size > 0 else ""
        if problem:
            return problem
    copy_data(taken, copied)
    lib.pn_data_rewind(copied)
    shown = repr(read_data(copied))
    return "" if shown == found else f"copied as {shown}, not as {found}"


def _difference(found: str, given: bytes) -> str:
    """What is wrong with what was read of bytes, if they are a valid value."""
    try:
        expected = repr(decode_all(given, most=MOST_ITEMS))
    except DecodeError:
        return ""
    return "" if found == expected else f"read as {found}, not as {expected}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    for first in range(0, options.values, VALUES_OF_A_PAIR):
        with two_values() as (taken, copied):
            for _ in range(min(VALUES_OF_A_PAIR, options.values - first)):
                given = mutated_encoding(chance)
                problem = find_problem(taken, copied, given)
                if problem:
                    print(f"{given.hex()}: {problem}", file=sys.stderr)
                    return 1
    print(f"{options.values} values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
