"""The condition `Insecure`: what accepts or carries messages in clear text, or from peers that do not authenticate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ..render import ConnectorInstance, RouterInstance, SiteInstance
from ..render.flows import Destination
from ..resources import Connector, FlowLog, GossipRouter, Listener, Router
from ..resources.listener import ANY_PEER
from ..resources.relaysite import Multicast
from .conditions import INSECURE, Verdict, condition_status, joined, no, yes

_PEERS = {"inter-router": "a router", "edge": "an edge router", "route-container": "a broker"}
"""Who connects to a listener, by its role."""
_FIX_COLLECTOR = "remove tls, sasl and routerRef.listener from the FlowLog, or name a listener that"


def until_in_effect(verdict: Verdict, previous: Mapping[str, Any] | None, *, behind: bool) -> Verdict:
    """`verdict` about the current specification, or that an earlier one is insecure and may still be in effect.

    `previous` is the status before, and `behind` says that some pod may run an earlier configuration. The condition
    stays true through any number of changes until no pod does.
    """
    if verdict.holds or not behind or condition_status(previous, INSECURE) != "True":
        return verdict
    return yes(
        "EarlierConfiguration",
        "what runs may still have the earlier configuration, which is insecure; the condition Configured says why",
    )


def shared_with_collectors(instances: Iterable[RouterInstance]) -> set[str]:
    """Names of the listeners whose clients may receive flow records."""
    return {
        listener.name
        for instance in instances
        for listener in instance.listeners
        if listener.attributes.get("allowFlowRecords")
    }


def router_insecure(router: Router, collecting: Collection[str] = ()) -> Verdict:
    """About the listeners of `router`, but for those that its author accepts as they are.

    `collecting`: names of listeners whose clients may receive flow records, as a collector uses them.
    """
    clear, anonymous, unbound = [], [], []
    for listener in router.spec.effective_listeners():
        if listener.accept_insecure:
            continue
        if not listener.encrypted:
            clear.append(_clear(listener) + _shows(listener, collecting))
        elif _is_open(listener):
            anonymous.append(_anonymous(listener) + _shows(listener, collecting))
        elif _is_unbound(listener):
            unbound.append(_any_certificate(listener))
    found = {"ClearText": clear, "AnonymousClients": anonymous, "UnboundNames": unbound}
    for reason, sentences in found.items():
        if sentences:
            return yes(reason, joined(sentence for each in found.values() for sentence in each))
    return no("Secured", "every listener demands TLS and authentication, or is accepted as it is")


def connector_insecure(connector: Connector, instances: Iterable[ConnectorInstance]) -> Verdict:
    """About `connector`, which routers have as `instances`."""
    found = list(instances)
    if not found:
        return no("NotInEffect", "no router has the connector")
    if all(item.tls is not None for item in found):
        if connector.spec.tls is not None and not connector.spec.tls.verify_hostname:
            return yes("UnverifiedHost", _any_server("connector"))
        return no("Secured", "the connections use TLS")
    if connector.spec.to.router_ref is not None:
        fix = "remove tls.disabled from the listener that it leads to, or set tls in both"
    else:
        fix = "set spec.tls"
    sasl = connector.spec.sasl
    secret = sasl is not None and sasl.has_password and sasl.allow_plain_without_tls
    what = "carries messages and a password in clear text" if secret else "carries messages in clear text"
    return yes("ClearText", f"the connector {what}; {fix}")


def relay_site_insecure(instance: SiteInstance | None) -> Verdict:
    """About the connections of a RelaySite's members, which routers have as `instance`."""
    if instance is None:
        return no("NotInEffect", "no router has the site")
    clear = []
    if instance.tls is None:
        clear.append(f"connections between members use clear text; {_fix_peers('spec.tls')}")
    if instance.bridge_tls is None:
        fix = _fix_peers("spec.bridge.tls", " of both sites")
        clear.append(f"connections with other sites use clear text; {fix}")
    if instance.through_gossip and instance.gossip_tls is None:
        clear.append(f"connections with gossip routers use clear text; {_fix_gossip(instance)}")
    found = {
        "ClearText": clear,
        "UnauthenticatedSite": list(_over(instance)),
        "UnboundNames": list(_unbound(instance)),
        "UnauthenticatedDiscovery": list(_multicast(instance)),
    }
    for reason, sentences in found.items():
        if sentences:
            return yes(reason, joined(sentence for each in found.values() for sentence in each))
    return no("Secured", "all connections of the members use TLS")


def _over(instance: SiteInstance) -> Iterator[str]:
    """Sites that are reached over addresses of the network, where nobody shows a certificate."""
    for remote in instance.spec.remote_sites or ():
        if remote.over is not None and not remote.accept_insecure:
            yield (
                f'anyone who may attach to addresses below "{remote.over}" in the network can act as site '
                f'"{remote.site}"; allow "{remote.over}/#" to no client in spec.policy of the Routers, and set '
                "spec.remoteSites[].acceptInsecure"
            )


def _unbound(instance: SiteInstance) -> Iterator[str]:
    """Certificates of an authority that is not the namespace's own, any of which is accepted."""
    spec = instance.spec
    if instance.tls is not None and not instance.own_tls and spec.peer_names is None:
        yield "any certificate of the authority of spec.tls can be a member; set spec.peerNames"
    unnamed = [
        f'"{remote.site}"'
        for remote in spec.remote_sites or ()
        if remote.peer_names is None and remote.over is None
    ]
    if unnamed and instance.bridge_tls is not None and not instance.own_bridge_tls:
        yield (
            f"any certificate of the authority of spec.bridge.tls can be site {', '.join(unnamed)}; "
            "set spec.remoteSites[].peerNames"
        )


def _multicast(instance: SiteInstance) -> Iterator[str]:
    """Discovery without authentication."""
    discovery = instance.spec.discovery
    if discovery.type == "multicast" and not (discovery.multicast or Multicast()).accept_insecure:
        yield (
            "discovery by UDP multicast has no authentication: any host of the network can ask for members; choose "
            "another spec.discovery.type, or set spec.discovery.multicast.acceptInsecure"
        )


def _fix_peers(field: str, where: str = "") -> str:
    return f"remove {field}.disabled{where}, or set {field}"


def _fix_gossip(instance: SiteInstance) -> str:
    reference = instance.spec.discovery.gossip_router_ref
    if reference is None:
        return "set spec.discovery.gossipTls"
    return f'remove spec.tls.disabled of GossipRouter "{reference.name}"'


def gossip_router_insecure(found: GossipRouter) -> Verdict:
    """About the port of a GossipRouter for members."""
    tls = found.spec.tls
    if tls is None:
        return no("Secured", "members authenticate by certificates of the namespace's own authority")
    if tls.disabled:
        return yes(
            "ClearText", f"the port for members accepts clear text from anybody; {_fix_peers('spec.tls')}"
        )
    if not tls.require_client_certificate:
        fix = "set spec.tls.requireClientCertificate to true, or remove it"
        return yes("AnonymousMembers", f"the port for members accepts anybody; {fix}")
    return no("Secured", "members authenticate by certificates")


def flow_log_insecure(log: FlowLog, to: Destination | None) -> Verdict:
    """About the listener that the collector of `log` connects to, and its object store; `to` is None if its objects
    are not made."""
    if to is None:
        return no("NotInEffect", "no collector is made")
    found = {
        "AnonymousClients": list(_anonymous_collectors(to)),
        "ClearText": list(_clear_records(log, to)),
        "UnverifiedHost": [_any_server("collector")] if _accepts_any_server(log) else [],
    }
    for reason, sentences in found.items():
        if sentences:
            return yes(reason, joined(sentence for each in found.values() for sentence in each))
    if to.declared is None:
        return no("Secured", "the Router has a listener that accepts collectors of FlowLogs alone")
    return no("Secured", f"clients of {_listener_of(to)} authenticate; each of them may receive flow records")


def _anonymous_collectors(to: Destination) -> Iterator[str]:
    if to.declared is not None and "ANONYMOUS" in to.declared.mechanisms:
        fix = f"{_FIX_COLLECTOR} demands authentication"
        yield f"anybody may receive the flow records of the network from {_listener_of(to)}; {fix}"


def _clear_records(log: FlowLog, to: Destination) -> Iterator[str]:
    if to.declared is not None and not to.declared.encrypted:
        yield f"{_listener_of(to)} sends flow records in clear text; {_FIX_COLLECTOR} uses TLS"
    store = log.spec.s3
    if store is not None and (store.endpoint or "").lower().startswith("http:"):
        yield "records go to the object store in clear text; set an https: URL in spec.s3.endpoint"


def _accepts_any_server(log: FlowLog) -> bool:
    return log.spec.tls is not None and not log.spec.tls.disabled and not log.spec.tls.verify_hostname


def _listener_of(to: Destination) -> str:
    return f'listener "{to.listener}" of Router "{to.router.name}"'


def _any_server(what: str) -> str:
    return (
        f"the {what} accepts every server with a certificate of the authorities that it trusts; remove "
        "spec.tls.verifyHostname"
    )


def _clear(listener: Listener) -> str:
    who = "clear text from anybody" if "ANONYMOUS" in listener.mechanisms else "clear text"
    if listener.plain_in_clear:
        who = f"passwords in {who}"
    return f'listener "{listener.name}" accepts {who}{_where(listener)}; {_fix(listener)}'


def _anonymous(listener: Listener) -> str:
    return f'listener "{listener.name}" accepts anybody{_where(listener)}; {_fix(listener)}'


def _fix(listener: Listener) -> str:
    """What the listener lacks, among TLS and authentication."""
    if listener.role in {"inter-router", "edge"} and listener.given_tls is None:
        # Without these fields it has mutual TLS.
        anonymous = listener.sasl is not None and "ANONYMOUS" in listener.sasl.mechanisms
        fields = {"tls.disabled": not listener.encrypted, "sasl": anonymous}
        return f"remove {' and '.join(field for field, given in fields.items() if given)}"
    steps = []
    if not listener.encrypted:
        steps.append("set tls" if listener.tls is None else "set tls.secretName in place of tls.disabled")
    if _is_open(listener):
        steps.append(_authentication(listener))
    fix = " and ".join(steps)
    return fix if listener.role in {"inter-router", "edge"} else f"{fix}, or acceptInsecure to accept it"


def _authentication(listener: Listener) -> str:
    """What makes the peers of a listener that accepts anonymous ones authenticate."""
    if listener.sasl is None:
        return "sasl" if not listener.encrypted else "set tls.requireClientCertificate: true, or sasl"
    if len(listener.sasl.mechanisms) > 1:
        return "remove ANONYMOUS from sasl.mechanisms"
    return "replace ANONYMOUS in sasl.mechanisms"


def _shows(listener: Listener, collecting: Collection[str]) -> str:
    if listener.name not in collecting or "ANONYMOUS" not in listener.mechanisms:
        return ""
    fix = "remove tls, sasl and routerRef.listener from the FlowLog"
    return f", and shows anybody the flow records of the network; {fix}"


def _is_open(listener: Listener) -> bool:
    """Whether peers need not authenticate, on a Service or as routers."""
    if "ANONYMOUS" not in listener.mechanisms:
        return False
    return listener.exposure != "None" or listener.role in {"inter-router", "edge"}


def _is_unbound(listener: Listener) -> bool:
    """Whether every certificate of the authorities makes its owner a router or a broker."""
    if listener.role == "normal" or "EXTERNAL" not in listener.mechanisms:
        return False
    # The operator adds names to those of listeners between routers, also where none are given.
    without_names = [ANY_PEER] if listener.role == "route-container" else []
    return ANY_PEER in (listener.peer_names or without_names)


def _any_certificate(listener: Listener) -> str:
    whose = "the namespace's own authority" if listener.own_tls else "the authorities of tls"
    if listener.role == "route-container":
        fix = "name the certificates of brokers in peerNames, or set acceptInsecure to accept it"
    else:
        fix = 'replace "*" in peerNames by the names of certificates'
    return (
        f'listener "{listener.name}" accepts every certificate of {whose} as {_PEERS[listener.role]}; {fix}'
    )


def _where(listener: Listener) -> str:
    return f" on a Service of type {listener.exposure}" if listener.exposure != "None" else ""
