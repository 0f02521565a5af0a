"""Work on all addresses that clients of an edge use: on a few immediately, on more of them in steps.

An edge may have 100,000 of them, and each costs up to 50 microseconds of CPU time when the uplink changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus_router.core import steps
from isthmus_router.core.port import Port

AT_ONCE = 128
"""Addresses that are dealt with within the event that concerns them."""


def begin(port: Port, job: Iterator[None]) -> None:
    """Carry out the first steps of a job, one for each address, and leave the others to the driver."""
    steps.begin(port.work, job, AT_ONCE)
