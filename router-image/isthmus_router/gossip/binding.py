"""Which certificates the members of a group have to show at gossip routers.

A gossip router that verifies certificates passes messages on only between members with fitting ones. It has no
configuration of groups: members state the rule when they register, and a digest of the rule is part of the name of
their group. A registration under a weaker rule is one in another group.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from isthmus_router.groups.certificates import misnamed, not_of_member

MARK = "#"
"""Before the digest; names of groups and sites have none."""
_DIGEST_CHARACTERS = 32


class Binding(NamedTuple):
    """The rule of one group."""

    peer_names: tuple[str, ...] = ()
    """A certificate has one of them, `*.` standing for one label; none: any will do."""
    bind_names: bool = False
    """A certificate is for the logical name of its member."""

    def group(self, name: str) -> str:
        """The name under which gossip routers have the group."""
        if self == Binding():
            return name
        rule = "\n".join((str(self.bind_names), *sorted({each.lower() for each in self.peer_names})))
        return f"{name}{MARK}{hashlib.sha256(rule.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"

    def objection(self, group: str, member: str, names: tuple[str, ...] | None) -> str:
        """Why a member with these names in its certificate cannot register in the group; empty if it can.

        None: the router does not verify certificates.
        """
        if self.group(group.partition(MARK)[0]) != group:
            return "the name of the group is not that of its rule for certificates"
        if names is None:
            return ""
        if problem := misnamed(names, self.peer_names):
            return problem
        return not_of_member(names, member) if self.bind_names else ""
