"""File descriptors: as many as the system lets this process have, some of them kept back from clients."""

from __future__ import annotations

import resource

RESERVE = 256
"""For connections to other routers, probes and files, whatever clients do; a quarter where the limit is low."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one: every connection takes a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def reserve() -> int:
    """How many descriptors clients leave alone."""
    return min(RESERVE, _limit() // 4)


def left_for_clients() -> int:
    """The first descriptor too high for a client's connection; the system always gives the lowest free one."""
    return _limit() - reserve()


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
