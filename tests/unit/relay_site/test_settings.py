"""What the configuration of a site means for its member."""

from __future__ import annotations

import pytest

from isthmus_router.config import parse
from isthmus_router.gossip.binding import Binding
from isthmus_router.groups.choosers import make_chooser
from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.relay_site.settings import member_settings, transport_settings

ELSEWHERE, HERE = PhysicalAddress("192.0.2.250", 7800), PhysicalAddress("127.0.0.7", 7800)


@pytest.mark.parametrize(("choice", "chosen"), [("first", ELSEWHERE), ("same-network", HERE)])
def test_which_address_of_a_member_is_used(
    choice: str, chosen: PhysicalAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus_router.relay_site.settings.own_networks", lambda: ("127.0.0.0/8",))
    configuration = parse(
        f"""
        router {{
            mode: interior
            id: nyc-0
        }}
        relaySite {{
            group: trades
            site: nyc
            plainText: yes
            addressChoice: {choice}
        }}
        """,
        "f",
    )
    assert configuration.relay_site is not None
    resolver = member_settings(configuration, configuration.relay_site, ()).resolver
    assert make_chooser(resolver.chooser, resolver.networks).choose((ELSEWHERE, HERE)) == chosen


@pytest.mark.parametrize(
    ("bind", "names", "wanted"),
    [
        ("yes", "", ("sfo",)),
        ("yes", "peerNames: bridge.example", ("bridge.example",)),
        ("yes", "peerNames: *", ()),
        ("no", "", ()),
        ("no", "peerNames: bridge.example", ("bridge.example",)),
    ],
)
def test_which_names_a_remote_site_may_have(bind: str, names: str, wanted: tuple[str, ...]) -> None:
    configuration = parse(
        f"""
        router {{
            mode: interior
            id: nyc-0
        }}
        sslProfile {{
            name: bridge
            certFile: tls.crt
            privateKeyFile: tls.key
            caCertFile: ca.crt
        }}
        relaySite {{
            group: trades
            site: nyc
            plainText: yes
            bridgeSslProfile: bridge
            bindNames: {bind}
        }}
        relayRemote {{
            site: sfo
            {names}
        }}
        """,
        "f",
    )
    assert configuration.relay_site is not None
    settings = member_settings(configuration, configuration.relay_site, ())
    assert settings.relay.sites["sfo"].certificate_names == wanted


@pytest.mark.parametrize(
    ("discovery", "bind", "names", "binding"),
    [
        (
            "tunnel",
            "yes",
            "peerNames: nyc, *.nyc.example",
            Binding(("nyc", "*.nyc.example"), bind_names=True),
        ),
        ("tunnel", "yes", "", Binding(bind_names=True)),
        ("tunnel", "no", "", Binding()),
        ("gossipRouter", "yes", "peerNames: nyc", None),
    ],
)
def test_certificates_at_gossip_routers_are_bound_where_these_carry_frames(
    discovery: str, bind: str, names: str, binding: Binding | None
) -> None:
    configuration = parse(
        f"""
        router {{
            mode: interior
            id: nyc-0
        }}
        sslProfile {{
            name: site
            certFile: tls.crt
            privateKeyFile: tls.key
            caCertFile: ca.crt
        }}
        relaySite {{
            group: trades
            site: nyc
            plainText: yes
            sslProfile: site
            gossipSslProfile: site
            discovery: {discovery}
            discoveryHosts: gossip.example
            bindNames: {bind}
            {names}
        }}
        """,
        "f",
    )
    assert configuration.relay_site is not None
    settings = transport_settings(configuration, configuration.relay_site)
    assert (settings.tunnel, settings.gossip_binding) == (discovery == "tunnel", binding)
