"""`isthmus-gossip-router` as a command: ends on SIGTERM from its first moment."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """As `__main__.main`; the exit status is 143 when SIGTERM comes while the program still loads."""
    # The first process of a container gets no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    from isthmus_router.gossip.__main__ import main as loaded  # noqa: PLC0415  # takes a while

    return loaded()
