"""The certificates that a namespace's own authority signs: for which resources, with which names.

The certificates of a Router identify it by its name: that is their common name and one of their DNS names, and what
`peer_names` lists. GossipRouters and collectors of FlowLogs have certificates of their own; members of RelaySites use
those of their Router.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ..certificates import described
from ..names import (
    base_name,
    certificates_secret,
    flow_log_name,
    gossip_name,
)
from ..resources import Connector, FlowLog, GossipRouter, RelaySite, Router, SslProfile
from ..resources.base import Metadata
from ..resources.sslprofile import Retention, SslProfileSpec
from ..rotation.ledger import Ledger
from ..seniority import oldest_first, services_of_members
from .issue import Authority, Names, issue, renewal

AUTHORITY_SECRET = "isthmus-authority"
"""Name of the Secret of type `kubernetes.io/tls` with the authority of a namespace: `tls.crt`, `tls.key`, `ca.crt`."""

_RETENTION = Retention(old_ordinals=3)
"""A listener's certificate changes without those who connect to it having to connect again, which they do when their
own one changes: at least once within three changes of the listener's."""

_LOCAL_HOSTS, _LOCAL_ADDRESSES = ("localhost",), ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Own:
    """The implicit SslProfile of a resource."""

    profile: SslProfile
    owner: Router | GossipRouter | FlowLog
    names: Names
    older: Router | GossipRouter | FlowLog | None = None
    """The older resource whose certificates have the same name. The Secret with the ledger belongs to it."""

    @property
    def ledger_secret(self) -> str:
        """The Secret with the certificates in service."""
        return certificates_secret(self.names.common)


def router_profile(router: str) -> str:
    """Name of the implicit SslProfile of a Router. No resource has an underscore in its name."""
    return f"{router}_router"


def gossip_profile(gossip_router: str) -> str:
    """Name of the implicit SslProfile of a GossipRouter."""
    return f"{gossip_router}_gossip"


def flow_log_profile(flow_log: str) -> str:
    """Name of the implicit SslProfile of a FlowLog."""
    return f"{flow_log}_flowlog"


def is_own(profile: str) -> bool:
    """Whether `profile` is the name of an implicit SslProfile."""
    return "_" in profile


def own_profiles(
    namespace: str,
    routers: Iterable[Router],
    gossip_routers: Iterable[GossipRouter],
    relay_sites: Iterable[RelaySite] = (),
    flow_logs: Iterable[FlowLog] = (),
    *,
    juniors: Collection[str] = frozenset(),
    local: bool,
) -> Mapping[str, Own]:
    """The implicit SslProfiles of a namespace by name. `relay_sites` are those that count, `juniors` the uids of
    resources that come after others of the same second. `local` is for processes on one machine.

    A certificate has the hosts of Services that its owner gets: of two owners the older one gets a Service."""
    site_of = {site.spec.router_ref.name: site for site in relay_sites}
    owners: tuple[Router | GossipRouter | FlowLog, ...] = (
        *routers,
        *gossip_routers,
        *(log for log in flow_logs if log.own_tls),
    )
    found: dict[str, Own] = {}
    taken: set[str] = set()
    oldest: dict[str, Router | GossipRouter | FlowLog] = {}
    for owner in oldest_first(owners, juniors):
        if isinstance(owner, Router):
            profile, common = router_profile(owner.name), base_name(owner.name)
            services = [common, *services_of_members(owner, site_of.get(owner.name))]
        elif isinstance(owner, GossipRouter):
            profile, common = gossip_profile(owner.name), gossip_name(owner.name)
            services = [common]
        else:
            # A collector is a client: nobody verifies its certificate against the name of a host.
            profile, common, services = flow_log_profile(owner.name), flow_log_name(owner.name), []
        hosts = [service for service in services if service not in taken]
        taken.update(hosts)
        names = _names(common, hosts, namespace, local=local) if services else Names(common)
        first = oldest.setdefault(common, owner)
        found[profile] = Own(_profile(profile, owner), owner, names, first if first is not owner else None)
    return found


def peer_names(
    router: Router, connectors: Iterable[Connector], names: Mapping[str, str], role: str
) -> list[str]:
    """The names of which a listener of `router` with this role (`inter-router` or `edge`) accepts certificates of the
    namespace's own authority: of the other replicas, and of the Routers whose Connectors of the same role lead to
    `router`. `names` are those in the certificates, by Router."""
    sources = {
        item.spec.from_.router_ref.name
        for item in connectors
        if item.spec.role == role
        and item.spec.to.router_ref is not None
        and item.spec.to.router_ref.name == router.name
    }
    return sorted({base_name(router.name), *(names[name] for name in sources if name in names)})


def offer(
    authority: Authority | None, names: Names, ledger: Ledger | None, now: datetime
) -> tuple[Mapping[str, bytes] | None, datetime | None]:
    """What is to be in service at `now`, as the data of a Secret, and when it is to be replaced: the certificate that
    is in service while it fits and is valid, else a new one. None without an authority that could sign one."""
    certificate, key = (ledger.certificate, ledger.key) if ledger is not None else (None, None)
    if authority is None:
        return (ledger.material if ledger is not None else None), None
    if certificate is not None and key is not None:
        due = renewal(certificate, authority, names)
        # One that was issued while a clock was ahead is not valid yet.
        if due is not None and described(certificate).not_before <= now < due:
            return {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.trusted}, due
    issued = issue(authority, names, now)
    return issued, renewal(issued["tls.crt"], authority, names)


def _names(common: str, services: Iterable[str], namespace: str, *, local: bool) -> Names:
    if local:
        return Names(common, _LOCAL_HOSTS, _LOCAL_ADDRESSES)
    return Names(common, tuple(_hosts(services, namespace)))


def _hosts(services: Iterable[str], namespace: str) -> Iterator[str]:
    """The names of Services, and of the pods behind them."""
    for service in services:
        for domain in ("svc", "svc.cluster.local"):
            yield f"{service}.{namespace}.{domain}"
            yield f"*.{service}.{namespace}.{domain}"


def _profile(name: str, owner: Router | GossipRouter | FlowLog) -> SslProfile:
    # The name is none that the API server would accept, so that no SslProfile of a user has it.
    metadata = Metadata.model_construct(
        name=name, namespace=owner.metadata.namespace, uid=owner.metadata.uid, annotations={}, labels={}
    )
    spec = SslProfileSpec(secret_name=AUTHORITY_SECRET, retention=_RETENTION, uid_format="n")
    return SslProfile.model_construct(metadata=metadata, spec=spec, status=None)
