"""Names of virtual hosts: which vhost's policy holds for a connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isthmus_router.core.patterns import PatternTree

DEFAULT_GROUP = "$default"
"""The group of users that are in no other, where these may connect."""
CONNECTOR_GROUP = "$connector"
"""The group that connections of connectors with a policyVhost belong to."""


class VhostNames:
    """Finds the vhost of a name by hostname, alias or pattern, or else the default."""

    def __init__(self, aliases: Mapping[str, Iterable[str]], *, default: str, patterns: bool) -> None:
        """`aliases`: hostname to its other names."""
        self._exact: dict[str, str] = {}
        self._patterns: PatternTree[str] | None = PatternTree() if patterns else None
        for hostname, others in aliases.items():
            for name in (hostname, *others):
                self._exact[name] = hostname
                if self._patterns is not None:
                    self._patterns.add_pattern(name, hostname)
        self._default = default if default in aliases else None

    def find(self, name: str) -> str | None:
        """The hostname of the vhost, None when there is none for `name`."""
        found = self._patterns.find(name) if self._patterns is not None else self._exact.get(name)
        return found if found is not None else self._default
