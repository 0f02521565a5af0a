"""What a platform gathers of each router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RouterReport:
    """What a platform knows of one router."""

    id: str
    router: str
    """Name of the Router resource."""
    mode: str
    site: str | None
    where: str
    """The process or pod, for display: `pid 4711`, `pod on node-1`."""
    status: Mapping[str, Any] | None
    """The router's `/status` document, or None when it did not answer."""
    trouble: str | None = None
    """Why there is no document, or what is wrong with the process or pod."""
    restarts: int = 0
    endpoints: tuple[str, ...] = ()
    """Where clients connect: `amqp://127.0.0.1:20000`."""
    http: str | None = None
    """Where `/status` and `/metrics` are, if they can be reached from here."""
    asked: bool = True
    """The router itself was asked; otherwise `status` has only what its resource says."""

    def entries(self, section: str) -> list[Mapping[str, Any]]:
        """The entries of a list in the document; none when there is no document."""
        return list((self.status or {}).get(section) or ())
