"""What kopf keeps of an object in the object itself: nothing.

By default kopf reads annotations and a finalizer that anybody who may edit the object can set. A value that kopf cannot
read keeps the object's events from the handlers, and so does the finalizer, which the operator may not remove.
"""

from __future__ import annotations

from typing import Any

import kopf

NO_FINALIZER = "isthmus.dev/no finalizer"
"""The API server refuses objects with a finalizer of this name."""


class NoDiffBase(kopf.DiffBaseStorage):
    """No handler asks for differences."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


class NoProgress(kopf.ProgressStorage):
    """No handler is tried again by kopf."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence
