"""What flow records tell of a router that is a member of a site: taken from its log and its figures."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus_router.flows.relay import MemberFigures, RelayRecorder, RemoteFigures
from isthmus_router.groups.identity import MemberInfo
from isthmus_router.groups.views import View
from isthmus_router.relay.snapshot import SiteSnapshot
from isthmus_router.sites.snapshot import MemberSnapshot

EVENTS = {
    "session with another site": "session-opened",
    "session with another site ended": "session-ended",
    "session of another site refused": "session-refused",
    "messages that another site has not acknowledged dropped": "messages-dropped",
    "messages lost": "messages-lost",
}
"""Names of events by what the log says."""
SITE_CHANGED = "site changed"


def record_event(recorder: RelayRecorder, said: str, fields: Mapping[str, object]) -> None:
    """Record what the log says of a member, if it is one of these events."""
    event = f"site-{fields['state']}" if said == SITE_CHANGED else EVENTS.get(said)
    if event is None:
        return
    messages, reason = fields.get("messages"), fields.get("reason")
    recorder.event(
        event,
        str(fields["site"]),
        messages if isinstance(messages, int) else None,
        None if reason is None else str(reason),
    )


def record_view(recorder: RelayRecorder, view: View) -> None:
    """Record that there is a new view; its coordinator is the subject."""
    recorder.event("view-installed", view.members[0].name, len(view.members))


def figures(own: MemberInfo, view: View | None, snapshot: MemberSnapshot) -> MemberFigures:
    """How the member is."""
    relay = snapshot.relay
    return MemberFigures(
        group=snapshot.group,
        site=relay.site,
        name=own.name,
        members=snapshot.members,
        coordinator=view is not None and view.members[0].id == own.id,
        relays=relay.is_relay,
        remotes=[_remote(site, relay.is_relay) for site in relay.sites],
    )


def _remote(site: SiteSnapshot, relays: bool) -> RemoteFigures:
    """A member that does not carry messages only knows what it has not been told: its lag is none."""
    return RemoteFigures(
        site=site.site,
        state=site.state.value,
        sent=site.sent_messages,
        replayed=site.replayed_messages,
        received=site.received_messages,
        duplicates=site.duplicate_messages,
        dropped=site.dropped_messages,
        gaps=site.gap_messages_received,
        held_back_seconds=site.held_back_seconds,
        lag_messages=site.lag_messages if relays else 0,
        lag_bytes=site.lag_bytes if relays else 0,
        lag_seconds=site.lag_seconds if relays else 0.0,
        round_trip_seconds=site.round_trip,
    )
