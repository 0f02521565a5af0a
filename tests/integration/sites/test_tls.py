"""Sites with mutual TLS between members, on the bridge and to gossip routers: everything is rotated under load."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.gossip.support import GossipRouter
from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.foreign import Run
from tests.integration.support.routers import Router, Routers, eventually

RATE = 2_000
MANY = 10_000_000
STALL_SECONDS = 4
"""After so long without a message the receiving client gives up."""
MEMBERS = ("nyc-0", "nyc-1", "sfo-0", "sfo-1")
PROFILE = "tls"
ENDED = "session with another site ended"


def host_name(router_id: str) -> str:
    """In its certificate."""
    return f"{router_id}.{router_id.partition('-')[0]}.example"


class SecureGossip:
    """A gossip router, whose files are replaced in place."""

    def __init__(self, folder: Path, number: int, authority: Authority) -> None:
        self._name = f"gossip-{number}"
        self._files = Identity(*(folder / f"{self._name}.{kind}" for kind in ("crt", "key", "ca")))
        self.loads = 0
        self.issue(authority, authority.file)
        self.router = GossipRouter(folder, identity=self._files)
        asyncio.run(self.router.start())

    def issue(self, authority: Authority, trusted: Path) -> None:
        """Another certificate, and whom to trust."""
        made = authority.issue(self._name)
        shutil.copy(made.certificate, self._files.certificate)
        shutil.copy(made.key, self._files.key)
        shutil.copy(trusted, self._files.trusted)

    def reissue(self, authority: Authority, trusted: Path) -> None:
        """As `issue`; returns when it uses them."""
        before = self.router.log.count("credentials loaded")
        self.issue(authority, trusted)
        eventually(lambda: self.router.log.count("credentials loaded") > before, "gossip router has loaded")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "old")


@pytest.fixture
def gossip(tmp_path: Path, authority: Authority) -> Iterator[list[SecureGossip]]:
    started: list[SecureGossip] = []
    try:
        for number in range(2):
            started.append(SecureGossip(tmp_path, number, authority))
        yield started
    finally:
        for each in started:
            each.router.kill()


@pytest.fixture
def sites(routers: Routers, gossip: list[SecureGossip], authority: Authority) -> RelaySites:
    """nyc and sfo, of two members each."""
    sites = RelaySites()
    hosts = ",".join(f"127.0.0.1:{each.router.port}" for each in gossip)
    for site in ("nyc", "sfo"):
        members = [
            routers.add(
                router_id, authority.issue(router_id, host_name(router_id)).profile(PROFILE, ordinal=1)
            )
            for router_id in MEMBERS
            if router_id.startswith(site)
        ]
        sites.site(
            site,
            *members,
            discovery="gossipRouter",
            discoveryHosts=hosts,
            sslProfile=PROFILE,
            bridgeSslProfile=PROFILE,
            gossipSslProfile=PROFILE,
            peerNames=f"*.{site}.example",
        )
    sites.direct("nyc", "sfo")
    for router in routers.all.values():
        other = "sfo" if router.id.startswith("nyc") else "nyc"
        section(router, "relayRemote")["peerNames"] = f"*.{other}.example"
    routers.start_all()
    sites.formed()
    return sites


def bridged(routers: Routers, authority: Authority, bad: Identity) -> tuple[Router, Router]:
    """Two sites of one member; that of sfo shows the wrong certificate on the bridge."""
    nyc = routers.add(
        "nyc-0", authority.issue("nyc-0", host_name("nyc-0"), "nyc").profile(PROFILE, ordinal=1)
    )
    sfo = routers.add("sfo-0", bad.profile(PROFILE, ordinal=1))
    sites = RelaySites()
    sites.site("nyc", nyc, bridgeSslProfile=PROFILE)
    sites.site("sfo", sfo, bridgeSslProfile=PROFILE)
    sites.direct("nyc", "sfo")
    routers.start_all()
    return nyc, sfo


@pytest.mark.parametrize(
    ("kind", "told"),
    [("foreign", "unable to get local issuer certificate"), ("expired", "certificate has expired")],
)
def test_no_good_certificate_on_the_bridge(
    routers: Routers, authority: Authority, tmp_path: Path, kind: str, told: str
) -> None:
    """Both sites say so until there is a good one."""
    other = Authority(tmp_path, "foreign") if kind == "foreign" else authority
    bad = other.issue("bad", trusted=authority.file, expired=kind == "expired")
    nyc, sfo = bridged(routers, authority, bad)
    nyc.await_status(lambda s: told in s["relay"]["remotes"][0]["problem"], "cannot dial")
    nyc.await_status(
        lambda s: any("bridge from 127.0.0.1" in each and told in each for each in s["relay"]["problems"]),
        "has refused",
    )
    sfo.await_status(lambda s: "refused this certificate" in s["relay"]["remotes"][0]["problem"], "may know")
    rotate(sfo, 2, identity=authority.issue("good", host_name("sfo-0"), "sfo"))
    for router in (nyc, sfo):
        router.await_status(
            lambda s: (s["relay"]["remotes"][0]["state"], s["relay"]["remotes"][0]["problem"]) == ("up", ""),
            "up",
        )


def section(router: Router, kind: str) -> dict[str, Any]:
    """The router's only section of a kind."""
    return next(values for name, values in router.sections if name == kind)


def rotate(router: Router, ordinal: int, oldest: int | None = None, identity: Identity | None = None) -> None:
    """Raise the ordinal of the router's profile, with other files or the same."""
    profile = section(router, "sslProfile")
    if identity is not None:
        profile.update(identity.profile(PROFILE)[1])
    profile["ordinal"] = ordinal
    if oldest is not None:
        profile["oldestValidOrdinal"] = oldest
    router.configure()


class Load:
    """Messages from one site to the other, at a constant rate."""

    def __init__(self, c_client: Run, source: Router, target: Router) -> None:
        address = f"relay/{GROUP}"
        self._receiver = c_client(
            "recv", f"127.0.0.1:{target.port}", address, MANY, "--timeout", STALL_SECONDS
        )
        self._receiver.await_line("attached")
        self._sender = c_client("send", f"127.0.0.1:{source.port}", address, MANY, 200, "--rate", RATE)
        self._sender.await_line("attached")

    def end(self) -> int:
        """Each message was accepted, and has arrived once and in order; how many there were."""
        assert self._sender.process.poll() is None, "the sender goes on"
        self._sender.process.send_signal(signal.SIGTERM)
        sent = self._sender.report()
        received = self._receiver.report()
        assert (sent["rejected"], sent["modified"]) == (0, 0)
        assert (received["duplicates"], received["reordered"]) == (0, 0)
        count = MANY - received["missing"]
        assert count == sent["accepted"]
        return int(count)


def issuer(port: int, identity: Identity) -> str:
    """Of the certificate that a port shows."""
    context = ssl.create_default_context(cafile=str(identity.trusted))
    context.check_hostname = False
    context.load_cert_chain(identity.certificate, identity.key)
    with socket.create_connection(("127.0.0.1", port), 5) as sock, context.wrap_socket(sock) as connection:
        parts = connection.getpeercert()["issuer"]  # type: ignore[index]
    return str(dict(pair for part in parts for pair in part)["organizationName"])  # type: ignore[union-attr]


def refused(port: int, identity: Identity) -> bool:
    """Whether a port ends a connection of who shows that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(identity.certificate, identity.key)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as sock,
            context.wrap_socket(sock) as connection,
        ):
            return connection.recv(1) == b""
    except ssl.SSLError as error:
        return "ALERT" in str(error).upper()


@pytest.mark.timeout(180)
def test_everything_is_rotated_under_load(
    sites: RelaySites,
    routers: Routers,
    gossip: list[SecureGossip],
    authority: Authority,
    c_client: Run,
    tmp_path: Path,
) -> None:
    load = Load(c_client, sites.other("nyc"), sites.other("sfo"))

    def each(change: Callable[[Router], None]) -> None:
        for router_id in MEMBERS:
            change(routers.all[router_id])
            sites.formed()

    # Certificates of the same authority, and those from before are no longer valid.
    relay = sites.relay("nyc")
    rotate(relay, 2, identity=authority.issue("renewed", host_name(relay.id)))
    relay.await_log(ENDED, '"dialled":true', "new credentials")
    assert "no longer valid" not in relay.log
    rotate(relay, 2, oldest=2)
    relay.await_log(ENDED, '"dialled":false', "credentials of ordinal 1 are no longer valid")
    sites.formed()

    # Another authority: first both are trusted, then it has signed everything, then the old one is trusted no more.
    new = Authority(tmp_path, "new")
    both = tmp_path / "both.pem"
    both.write_bytes(authority.file.read_bytes() + new.file.read_bytes())
    for router in gossip:
        router.reissue(authority, both)
    each(lambda r: rotate(r, 3, identity=authority.issue(f"{r.id}-3", host_name(r.id), trusted=both)))
    for router in gossip:
        router.reissue(new, both)
    each(lambda r: rotate(r, 4, identity=new.issue(f"{r.id}-4", host_name(r.id), trusted=both)))
    for router in gossip:
        router.reissue(new, new.file)
    each(lambda r: rotate(r, 5, oldest=5, identity=new.issue(f"{r.id}-5", host_name(r.id))))

    assert load.end() > 2 * RATE
    probe, old = new.issue("probe", host_name("nyc-9")), authority.issue("late", host_name("nyc-9"))
    for router in routers.all.values():
        values = section(router, "relaySite")
        for port in (values["memberPort"], values["bridgePort"]):
            assert issuer(port, probe) == "new"
            assert refused(port, old)
        assert "messages lost" not in router.log
        assert_views_stayed(router)


def assert_views_stayed(router: Router) -> None:
    """Nobody was taken for dead."""
    views = [line for line in router.log.splitlines() if '"message":"view installed"' in line]
    assert len(views) <= 2, views


def test_peers_of_other_names_are_refused_with_the_reason(sites: RelaySites, routers: Routers) -> None:
    relay = sites.relay("nyc")
    section(relay, "relayRemote")["peerNames"] = "*.fra.example"
    relay.configure()
    told = relay.await_status(
        lambda status: "certificate is for" in status["relay"]["remotes"][0]["problem"], "says why"
    )["relay"]["remotes"][0]
    assert "not *.fra.example" in told["problem"]
    other = sites.relay("sfo")
    other.await_status(
        lambda status: "refused there: certificate is for" in status["relay"]["remotes"][0]["problem"],
        "is told why",
    )
    section(relay, "relayRemote")["peerNames"] = "*.sfo.example"
    relay.configure()
    sites.formed()

    stranger = sites.other("nyc")
    section(stranger, "relaySite")["peerNames"] = "*.fra.example"
    stranger.configure()
    for router in (stranger, relay):
        router.await_status(
            lambda status: any(
                "certificate is for" in problem and "not *.fra.example" in problem
                for problem in status["relay"]["problems"]
            ),
            "says why",
        )
    section(stranger, "relaySite")["peerNames"] = "*.nyc.example"
    stranger.configure()
    sites.formed()
