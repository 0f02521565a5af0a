"""How much a server may have a client compute in a login with SCRAM. Source: RFC 5802."""

from __future__ import annotations

import re

MOST_ITERATIONS = 10_000
"""That the challenge of a server may ask for, which is 10 ms of work; servers state 4,096 as a rule."""
_ITERATIONS = re.compile(rb",i=([^,]*)")


def excess_of(challenge: bytes) -> str:
    """What is wrong with the iteration count in a challenge of SCRAM; empty if nothing is, or there is none.

    Cyrus reads numbers with `strtoul`, which accepts more than digits.
    """
    for stated in _ITERATIONS.findall(challenge):
        if not re.fullmatch(rb"[0-9]{1,20}", stated):
            return "the server states an iteration count for SCRAM that is no valid number"
        if (count := int(stated)) > MOST_ITERATIONS:
            return f"the server demands {count} iterations of SCRAM, and at most {MOST_ITERATIONS} are made"
    return ""
