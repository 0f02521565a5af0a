"""The addresses of a group: what comes behind `relay/<group>`, and who is meant by it.

| address | whom it reaches |
|---|---|
| `relay/<group>` | every receiver of it, at every member of every site |
| `relay/<group>/<site>/<name>` | the receivers of `relay/<group>/<name>` at that member |
| `relay/<group>/<name>` | the same; the member of the own site, else the only one of that name elsewhere |
| `relay/<group>/~/<uuid>/<address>` | that temporary address in the network of the member: for replies |

The last one is what the RELAY design calls a ProxyUUID. It has the original member only, not the relay by which its
message came: an answer that is sent later finds its way by whoever relays then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from isthmus_router.core.address import Purpose, is_temporary, purpose
from isthmus_router.groups.identity import ID_BYTES, MemberId
from isthmus_router.sites.port import SiteMember

_PREFIX = "relay"
_GROUP_NAME = re.compile(r"[-a-z0-9]+")
BY_IDENTITY = "~"
_NAMED = 5
"""Choices that an error names at most."""


class NoSuchMemberError(LookupError):
    """An address means no member, at present; says which there are."""


class ManyMembersError(NoSuchMemberError):
    """An address means several members; says which."""


class GroupAddresses:
    """The addresses of one group as a member of it sees them."""

    def __init__(self, group: str, own: SiteMember) -> None:
        self.everybody = f"{_PREFIX}/{group}"
        self.own = (f"{self.everybody}/{own.name}", f"{self.everybody}/{own.site}/{own.name}")
        """Where receivers of this member attach; one is as good as the other."""
        self._group = group
        self._site = own.site
        self._by_id: dict[MemberId, SiteMember] = {}
        self._by_name: dict[str, list[SiteMember]] = {}
        self.members_changed((own,))

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        """These are the members of all sites."""
        self._by_id = {member.id: member for member in members}
        self._by_name = {}
        for member in members:
            self._by_name.setdefault(member.name, []).append(member)
            self._by_name.setdefault(member.label, []).append(member)

    def is_of_one(self, address: str) -> bool:
        """Whether an address is one for a single member."""
        return address.startswith(f"{self.everybody}/")

    def of_no_group(self, address: str) -> str | None:
        """Why an address below `relay/` cannot be one of any group; None: it can, or is none of those."""
        if not address.startswith(f"{_PREFIX}/"):
            return None
        name = address.split("/")[1]
        if _GROUP_NAME.fullmatch(name):
            return None
        rule = "names of groups have lower case letters, digits and -"
        return f"no group is named {name!r}: {rule}; this router is in group {self._group}: {self.everybody}"

    def reply_prefix(self, origin: SiteMember) -> str:
        """What stands in front of a reply-to of that member's network everywhere else."""
        return f"{self.everybody}/{BY_IDENTITY}/{origin.id.hex()}/"

    def member(self, address: str) -> tuple[SiteMember, str]:
        """Who is meant by an address for a single member, and by which address there (empty: its own receivers).

        Raises NoSuchMemberError, ManyMembersError.
        """
        rest = address[len(self.everybody) + 1 :]
        if rest.startswith(f"{BY_IDENTITY}/"):
            return self._by_identity(rest)
        found = self._by_name.get(rest, [])
        if len(found) > 1:
            found = [member for member in found if member.site == self._site] or found
        if len(found) == 1:
            return found[0], ""
        if not found:
            raise NoSuchMemberError(f"no member {rest} in group {self._group}; {self._choices()}")
        listed = ", ".join(
            f"{self.everybody}/{BY_IDENTITY}/{member.id.hex()} ({member.label})" for member in found[:_NAMED]
        )
        raise ManyMembersError(f"{len(found)} members are called {rest}: say {listed}")

    def _by_identity(self, rest: str) -> tuple[SiteMember, str]:
        identity, _, to = rest[len(BY_IDENTITY) + 1 :].partition("/")
        try:
            member = self._by_id.get(MemberId(bytes.fromhex(identity)))
        except ValueError:
            member = None
        if member is None or len(identity) != 2 * ID_BYTES:
            raise NoSuchMemberError(
                f"member {identity[: 2 * ID_BYTES]} is not, or no longer, in group {self._group}"
            )
        return member, to

    def _choices(self) -> str:
        labels = sorted(member.label for member in self._by_id.values())
        more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
        return f"there are {', '.join(labels[:_NAMED])}{more}"


def may_be_answered(address: str) -> bool:
    """Return whether other members may send to `address` in the network of this member: only to a temporary one.

    The policy of this network does not apply to such messages. A temporary address has a random name, which only its
    client and the receivers of its requests have. Any other address would be open to every sender of the group.
    """
    return is_temporary(address) and purpose(address) is Purpose.CLIENTS
