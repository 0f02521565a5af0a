"""The metrics of a router that is a member of a site; docs/status.md describes them.

All have the labels `group` and `site`; those about another site have `remote_site`, which the configuration bounds.
Counts begin with the member: a router that leaves its site and joins again counts anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from isthmus_router.relay.sites import SiteState
from isthmus_router.relay.snapshot import SiteSnapshot
from isthmus_router.sites.face import FaceCounters
from isthmus_router.sites.receivers import ReceiverCounters
from isthmus_router.sites.snapshot import MemberSnapshot

PREFIX = "isthmus_router_relay_"
_REMOTE = "remote_site"


@dataclass(frozen=True, slots=True)
class RelayFigures:
    """Of a member with its sockets and its AMQP face."""

    member: MemberSnapshot
    connections: int
    """With other members."""
    transport: Mapping[str, int]
    """Counts of the transport by what happened."""
    face: FaceCounters
    receivers: ReceiverCounters


def relay_families(figures: RelayFigures) -> Iterator[Metric]:
    """All of the metrics."""
    family = _Families(figures.member.group, figures.member.relay.site)
    yield from _of_the_site(family, figures)
    yield from _of_remote_sites(family, figures.member.relay.sites)
    yield from _of_clients(family, figures.face, figures.receivers)


_ByLabels = Mapping[tuple[str, ...], float]
_Values = float | _ByLabels


class _Families:
    """Makes families with the labels that all have."""

    def __init__(self, *common: str) -> None:
        self._common = common

    def gauge(self, name: str, text: str, values: _Values, *labels: str) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=["group", "site", *labels])
        return self._filled(family, values)

    def counter(self, name: str, text: str, values: _Values, *labels: str) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=["group", "site", *labels])
        return self._filled(family, values)

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
        for labels, value in values.items() if isinstance(values, Mapping) else (((), values),):
            family.add_metric([*self._common, *labels], value)
        return family


def _of_the_site(family: _Families, figures: RelayFigures) -> Iterator[Metric]:
    member = figures.member
    relay, bounds, streams, resolver = member.relay, member.bounds, member.streams, member.resolver
    yield family.gauge("members", "Members in the view of the own site.", member.members)
    yield family.counter("view_changes", "Views that were installed.", member.view_changes)
    yield family.gauge("is_relay", "Whether this member carries messages to other sites.", relay.is_relay)
    yield family.gauge("is_holder", "Whether it keeps what is for other sites.", relay.is_holder)
    yield family.gauge("holder_ready", "Whether it has all that it would have to replay.", relay.holder_ready)
    yield family.gauge("buffered_messages", "Kept for other sites.", relay.buffered_messages)
    yield family.gauge("buffered_bytes", "Kept for other sites.", relay.buffered_bytes)
    yield family.gauge("buffer_limit_messages", "Kept at most.", bounds.buffer_messages)
    yield family.gauge("buffer_limit_bytes", "Kept at most.", bounds.buffer_bytes)
    yield family.gauge("buffer_limit_seconds", "Kept for at most so long.", bounds.buffer_seconds)
    yield family.gauge("streams", "Origins, of all sites, that something is known of.", streams.streams)
    yield family.gauge(
        "retained_bytes", "Kept for members or sites that may lack them.", streams.retained_bytes
    )
    yield family.gauge(
        "unstable_bytes", "Published here, and not yet everywhere in the site.", streams.unstable_bytes
    )
    yield family.gauge("early_batches", "Waiting for one before them.", streams.early_batches)
    yield family.gauge("early_bytes", "Waiting for a batch before them.", streams.early_bytes)
    repairs: _ByLabels = {("asked",): streams.repairs_asked, ("answered",): streams.repairs_answered}
    yield family.counter(
        "repairs", "Requests for missing batches, and batches given to others.", repairs, "side"
    )
    yield family.gauge("connections", "Open connections with other members.", figures.connections)
    events: dict[tuple[str, ...], float] = {(name,): count for name, count in figures.transport.items()}
    events["misdirected",] = member.misdirected_frames
    events["refused_frame",] = member.refused_frames
    events["without_room",] = streams.without_room
    events["malformed_bridge",] = relay.malformed_frames
    yield family.counter("transport_events", "What went wrong with frames and connections.", events, "event")
    lookups: _ByLabels = {
        ("waited",): resolver.waited,
        ("overflowed",): resolver.overflowed,
        ("expired",): resolver.expired,
    }
    yield family.counter("unresolved_frames", "Frames to who is not known where.", lookups, "result")
    yield family.counter("lookups", "Times that it was asked where a member is.", resolver.asked)
    yield family.counter("foreign_announcements", "Announcements of other groups.", resolver.foreign)
    yield family.gauge(
        "unicast_waiting_messages", "To one member, and not acknowledged.", member.unicasts_waiting
    )
    yield family.counter("unicast_repeated_messages", "To one member, sent again.", member.unicasts_repeated)
    yield family.counter("unicast_dropped_messages", "To one member, pre-settled.", member.unicasts_dropped)
    yield family.counter(
        "unicast_unroutable_frames", "To other sites, without a way.", relay.forwards_dropped
    )


def _of_remote_sites(family: _Families, sites: tuple[SiteSnapshot, ...]) -> Iterator[Metric]:
    def each(field: str) -> _ByLabels:
        return {(site.site,): getattr(site, field) for site in sites if getattr(site, field) is not None}

    states: _ByLabels = {
        (site.site, state.value): site.state is state for site in sites for state in SiteState
    }
    yield family.gauge("remote_site_state", "1 for the state that the site is in.", states, _REMOTE, "state")
    yield family.gauge("remote_site_members", "Members of the site that are known.", each("members"), _REMOTE)
    yield family.gauge(
        "lag_messages", "Here, and not acknowledged by the site.", each("lag_messages"), _REMOTE
    )
    yield family.gauge("lag_bytes", "Here, and not acknowledged by the site.", each("lag_bytes"), _REMOTE)
    yield family.gauge("lag_seconds", "Age of the oldest not acknowledged.", each("lag_seconds"), _REMOTE)
    yield family.gauge(
        "round_trip_seconds", "To the relay of the site and back.", each("round_trip"), _REMOTE
    )
    yield family.counter("sent_messages", "Sent to the site.", each("sent_messages"), _REMOTE)
    yield family.counter(
        "replayed_messages", "Of those, sent after a session began.", each("replayed_messages"), _REMOTE
    )
    yield family.counter("received_messages", "From the site.", each("received_messages"), _REMOTE)
    yield family.counter("duplicate_messages", "Of those, here before.", each("duplicate_messages"), _REMOTE)
    yield family.counter(
        "dropped_messages", "From the buffer, unacknowledged.", each("dropped_messages"), _REMOTE
    )
    yield family.counter(
        "held_back_seconds",
        "That senders waited for the site to acknowledge.",
        each("held_back_seconds"),
        _REMOTE,
    )
    yield family.counter(
        "gap_messages_sent", "The site was told that they are lost.", each("gap_messages_sent"), _REMOTE
    )
    yield family.counter(
        "gap_messages_received",
        "The site has told that they are lost.",
        each("gap_messages_received"),
        _REMOTE,
    )


def _of_clients(family: _Families, face: FaceCounters, receivers: ReceiverCounters) -> Iterator[Metric]:
    yield family.counter("published_messages", "Of senders here, to all of the group.", face.published)
    yield family.counter("directed_messages", "Of senders here, to one member.", face.sent_to_one)
    yield family.counter("refused_messages", "Of senders here: too large, or not allowed.", face.refused)
    yield family.counter(
        "returned_messages", "Of senders here: for a member that is not there, or no longer.", face.returned
    )
    yield family.counter("malformed_messages", "Delivered without annotations.", face.malformed)
    yield family.counter("unanswerable_messages", "From one member to nobody who is here.", face.unanswerable)
    yield family.counter("lost_messages", "Of the group, never delivered here.", face.lost)
    yield family.counter("deliveries", "To receivers here, each copy.", receivers.delivered)
    yield family.counter("oversized_deliveries", "Too large for their receivers.", receivers.oversized)
    yield family.counter("receivers_detached", "Receivers too far behind, or cut off.", receivers.detached)
