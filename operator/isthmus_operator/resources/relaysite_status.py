"""Status of the RelaySite kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Condition, ListMap, Model

Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(max_length=255)]
RemoteState = Literal["up", "suspect", "unreachable", "left", "unknown"]


class MemberStatus(Model):
    """A member of the site."""

    id: Annotated[str, Field(max_length=36)]
    """Its UUID, a new one with each start."""

    name: Name
    """Its logical name: the router's id."""

    relay: bool = False
    """It carries messages to other sites."""


class RemoteSiteStatus(Model):
    """A remote site, as the relays of this one see it."""

    site: Annotated[str, Field(max_length=63)]
    """Its name."""

    state: RemoteState
    """`up`: a relay has a session with it. `suspect`: the session has ended just now. `unreachable`: there is none.
    `left`: it said goodbye. `unknown`: there has been none yet."""

    members: Annotated[list[Name], Field(max_length=128)] | None = None
    """Logical names of its members, the coordinator first."""

    lag_messages: Count = 0
    """Messages for it that it has not acknowledged."""

    lag_milliseconds: Count = 0
    """Age of the oldest of them."""

    buffered_bytes: Count = 0
    """Their size."""

    dropped: Count = 0
    """Messages dropped by the bounds of `spec.buffer` before it had acknowledged them, since the members' start; some
    of them may have arrived all the same."""

    replayed: Count = 0
    """Messages sent to it that had waited for a session with it, after an outage or a change of relays."""

    duplicates: Count = 0
    """Messages from it that were here already, and not delivered again."""

    gaps: Count = 0
    """Messages from it that it has told to be lost on the way here."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why it is not up."""


class RelaySiteStatus(Model):
    """Observed state of a RelaySite, from the routers that are its members."""

    observed_generation: Count = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (its references resolve and the routers run this specification), `Formed` (all replicas are members
    of one view), `Bridged` (every remote site is up), `Ready` (all of them), `Insecure` (some connections use clear
    text, or no name ties a member or a site to its certificate)."""

    view: Annotated[str, Field(max_length=64)] | None = None
    """Number and coordinator of the present view."""

    coordinator: Name | None = None
    """Logical name of the coordinator, the first relay."""

    members: Annotated[list[MemberStatus], Field(max_length=64), ListMap("id")] | None = None
    """The members of the view, the coordinator first."""

    formed: Annotated[str, Field(max_length=16)] | None = None
    """Members of the view, of those wanted, for display."""

    remotes: Annotated[str, Field(max_length=2048)] | None = None
    """Remote sites with their state, for display."""

    lag_messages: Count = 0
    """Messages that some remote site has not acknowledged: of the one that is most behind."""

    lag_milliseconds: Count = 0
    """Age of the oldest of them."""

    remote_sites: Annotated[list[RemoteSiteStatus], Field(max_length=32), ListMap("site")] | None = None
    """The remote sites."""

    bridge: Annotated[str, Field(max_length=262)] | None = None
    """Where other sites reach this one: `host:port`, for their `remoteSites[].endpoints`."""
