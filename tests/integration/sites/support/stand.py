"""Sites of real routers, each on a host of its own, and clients that count what arrives."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from proton import Message
from tests.integration.sites.support.netns import Gateway, Host, Network, Segment
from tests.integration.support.client import Clients
from tests.integration.support.foreign import Program, c_clients
from tests.integration.support.forks import end_with_the_tests
from tests.integration.support.routers import Router, Section, eventually

GROUP = "trades"
EVERYBODY = f"relay/{GROUP}"
GAP = "x-opt-isthmus.gap"
RATE = 1_000
"""Messages a second."""
_NEW_MOUNTS, _BIND, _RECURSIVE_PRIVATE = 0x00020000, 4096, 0x4000 | 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


class SiteRouter(Router):
    """A router on a host of a network, and a member of a site."""

    def __init__(
        self,
        folder: Path,
        host: Host,
        site: str,
        *,
        remotes: Sequence[Section] = (),
        name: str | None = None,
        host_names: Path | None = None,
        **attributes: Any,
    ) -> None:
        """`name`: None is the host's. `host_names`: what it has instead of the system's file of them."""
        section = ("relaySite", {"group": GROUP, "site": site, "plainText": True, **attributes})
        super().__init__(folder, name or host.name, (section, *remotes), mode="interior")
        self.host = host
        self.site = site
        self._host_names = host_names

    @property
    def own_address(self) -> str:
        """Where a single member is sent to."""
        return f"{EVERYBODY}/{self.site}/{self.id}"

    def _start_process(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """A process that is started has the namespaces of the thread that starts it; a forked one has others."""
        with self.host.inside(), self.log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self.module, "-c", str(self.config_path)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=self._prepare,  # noqa: PLW1509  # a few system calls
            )

    def _prepare(self) -> None:
        end_with_the_tests()
        if self._host_names is not None:
            _libc.unshare(_NEW_MOUNTS)
            _libc.mount(b"none", b"/", None, _RECURSIVE_PRIVATE, None)
            _libc.mount(str(self._host_names).encode(), b"/etc/hosts", None, _BIND, None)

    def status(self) -> dict[str, Any]:
        with self.host.inside():
            return super().status()

    @property
    def relay(self) -> dict[str, Any]:
        """What it says of its site; empty while it says nothing, or is no member."""
        with suppress(OSError):
            found: dict[str, Any] | None = self.status()["relay"]
            return found or {}
        return {}

    @property
    def members(self) -> list[str]:
        """Names of the members of its site as it sees them, the coordinator first."""
        return [member["name"] for member in self.relay.get("members", ())]

    def remote(self, site: str) -> dict[str, Any]:
        """What it says of another site."""
        found = [remote for remote in self.relay.get("remotes", ()) if remote["site"] == site]
        return found[0] if found else {"state": "", "members": []}

    def client(self, name: str, *arguments: object) -> Program:
        """Start one of the C clients on its host."""
        with self.host.inside():
            return Program([str(c_clients() / name), f"localhost:{self.port}", *map(str, arguments)])


class Site:
    """Routers of one site."""

    def __init__(self, name: str, routers: Iterable[SiteRouter]) -> None:
        self.name = name
        self.routers = list(routers)

    @property
    def running(self) -> list[SiteRouter]:
        """Those that have a process."""
        return [router for router in self.routers if router.process is not None]

    def start(self) -> Self:
        """Start those that do not run, and wait until all of them are in one view."""
        waiting = [router for router in self.routers if router.process is None]
        for router in waiting:
            router.launch()
        for router in waiting:
            router.await_ready()
        self.order()
        return self

    def is_whole(self) -> bool:
        """Whether all that run see one another, in the same order."""
        orders = [router.members for router in self.running]
        return orders[0] == orders[-1] and all(
            order == orders[0] and len(order) == len(orders) for order in orders
        )

    def order(self) -> list[SiteRouter]:
        """Those that run, once they are in one view, in its order: the relay, the second in line, others."""
        eventually(self.is_whole, f"one view of {self.name}: {[router.id for router in self.running]}")
        by_name = {router.id: router for router in self.running}
        return [by_name[name] for name in self.running[0].members]

    def kill(self) -> None:
        """Every router, at once."""
        for router in self.running:
            router.kill()


def await_mutual(*sites: Site) -> None:
    """Wait until all members of all sites know each other."""

    def known() -> bool:
        members = {site.name: [router.id for router in site.order()] for site in sites}
        return all(
            router.remote(other)["state"] == "up" and router.remote(other)["members"] == members[other]
            for site in sites
            for router in site.running
            for other in members
            if other != site.name
        )

    eventually(known, "all members know those of the other site")


class TwoSites:
    """NYC and SFO, three routers each, with a gateway between."""

    def __init__(self, network: Network, folder: Path, *, members: int = 3, **attributes: Any) -> None:
        self.segments: dict[str, Segment] = {}
        for site, subnet in (("nyc", "10.73.1.0/24"), ("sfo", "10.73.2.0/24")):
            self.segments[site] = network.segment(subnet)
        self.gateway: Gateway = network.gateway("gateway", *self.segments.values())
        hosts = {
            site: [
                network.host(f"{site}-{number}", segment, gateway=self.gateway) for number in range(members)
            ]
            for site, segment in self.segments.items()
        }
        self.nyc, self.sfo = (
            Site(
                site,
                (
                    SiteRouter(
                        folder,
                        host,
                        site,
                        remotes=[remote(other, hosts[other])],
                        **{"discoveryHosts": addresses(hosts[site]), **attributes},
                    )
                    for host in hosts[site]
                ),
            )
            for site, other in (("nyc", "sfo"), ("sfo", "nyc"))
        )

    def start(self) -> Self:
        """All that do not run; returns when everybody knows everybody."""
        for site in (self.nyc, self.sfo):
            for router in site.routers:
                if router.process is None:
                    router.launch()
        for site in (self.nyc, self.sfo):
            for router in site.routers:
                router.await_ready()
        await_mutual(self.nyc, self.sfo)
        return self

    def cut(self) -> None:
        """Nothing passes between the sites, and nobody is told."""
        self.gateway.cut(*self.segments.values())

    def heal(self) -> None:
        """It does again."""
        self.gateway.heal(*self.segments.values())

    def stop(self) -> None:
        """Kill every router."""
        self.nyc.kill()
        self.sfo.kill()


def addresses(hosts: Iterable[Host], port: int = 7800) -> str:
    """As in a list of endpoints."""
    return ",".join(f"{host.address}:{port}" for host in hosts)


def remote(site: str, hosts: Iterable[Host]) -> Section:
    """A site that is dialled at these hosts."""
    return ("relayRemote", {"site": site, "endpoints": addresses(hosts, 7900)})


class Flow:
    """Numbered messages at a rate from a client of one router to clients of others: each once, in their order."""

    def __init__(
        self,
        source: SiteRouter,
        receivers: Iterable[SiteRouter],
        *,
        messages: int,
        address: str = EVERYBODY,
        rate: int = RATE,
        patience: float = 20.0,
    ) -> None:
        """`patience`: seconds that nothing may arrive for."""
        self.messages = messages
        self.source = source
        timeout = ("--timeout", patience)
        self.receivers = {
            router.id: router.client("recv", address, messages, *timeout) for router in receivers
        }
        for receiver in self.receivers.values():
            receiver.await_line("attached")
        self.sender = source.client("send", address, messages, 200, "--rate", rate, *timeout)
        self.sender.await_line("attached")
        self.begun = time.monotonic()

    def after(self, seconds: float) -> None:
        """Let it flow until so long after its begin."""
        time.sleep(max(0.0, self.begun + seconds - time.monotonic()))

    def end(self, what: str, timeout: float = 60.0) -> dict[str, float]:
        """Everything was accepted, and received once, in order; the longest delay at each receiver, in seconds."""
        sent = self.sender.result(timeout)
        assert sent["accepted"] == self.messages, sent
        found = {router: receiver.result(timeout) for router, receiver in self.receivers.items()}
        for router, report in found.items():
            wrong = {key: report[key] for key in ("missing", "duplicates", "reordered", "foreign")}
            assert not any(wrong.values()), f"{what}: {router}: {report}"
        delays = {router: report["latency_us"]["max"] / 1e6 for router, report in found.items()}
        listed = ", ".join(f"{router} {seconds * 1000:.0f}" for router, seconds in delays.items())
        print(f"{what}: longest delay in ms: {listed}")
        return delays

    def stop(self) -> None:
        """End what still runs of it."""
        for program in (self.sender, *self.receivers.values()):
            program.stop()


class Listener:
    """A client of one router that hears of everything: the numbers of a Flow, and how many are lost."""

    def __init__(self, clients: Clients, router: SiteRouter, *, credit: int = 20_000) -> None:
        with router.host.inside():
            client = clients.connect(router.port)
        self._receiver = client.receiver(
            EVERYBODY, credit=credit, accept=True, capability="isthmus.relay-gaps"
        )
        self._read = 0
        self.numbers: list[int] = []
        """As they came."""
        self.lost = 0

    def heard(self) -> int:
        """Messages that came or are told to be lost, until now."""
        while self._read < len(self._receiver.received) and self._receiver.received[self._read].complete:
            message = self._receiver.received[self._read].message
            self._read += 1
            gap = (message.annotations or {}).get(GAP)
            if gap is None:
                self.numbers.append(struct.unpack_from("=Q", message.body, len(message.body) - 16)[0])
            else:
                self.lost += gap["messages"]
        return len(self.numbers) + self.lost


class Requests:
    """A client of one router asks one of another site, again and again, and is answered once each time; or a sender,
    of the request or of its answer, is told that it may not have arrived."""

    INTERVAL = 0.02

    def __init__(self, asking: SiteRouter, answering: SiteRouter) -> None:
        self.asked = 0
        self.refused: set[int] = set()
        self.answers: list[int] = []
        self.longest = 0.0
        """Seconds between two answers."""
        self._clients = Clients()
        with answering.host.inside():
            server = self._clients.connect(answering.port)
        with asking.host.inside():
            client = self._clients.connect(asking.port)
        self._server = server.receiver(answering.own_address, credit=100, accept=True)
        self._reply = server.sender(None)
        self._replies = client.receiver(None, dynamic=True, credit=100, accept=True)
        self._sender = client.sender(answering.own_address).await_credit()
        self._reply.await_credit()
        self._ending = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = last = time.monotonic()
        served = heard = 0
        under_way: list[tuple[int, Any]] = []
        clients = self._clients
        try:
            while not self._ending or under_way or len(self.refused.union(self.answers)) < self.asked:
                now = time.monotonic()
                assert now - last < 40.0, "no answer for 40 s"
                if now >= due and not self._ending and self._sender.credit:
                    due = now + self.INTERVAL
                    reply_to = self._replies.link.remote_source.address
                    request = Message(body=self.asked, reply_to=reply_to)
                    under_way.append((self.asked, self._sender.send(request)))
                    self.asked += 1
                clients.step()
                for received in self._server.received[served:]:
                    request = received.message
                    answer = Message(address=request.reply_to, body=request.body)
                    under_way.append((request.body, self._reply.send(answer)))
                    served += 1
                for received in self._replies.received[heard:]:
                    self.answers.append(received.body)
                    heard += 1
                    self.longest, last = max(self.longest, now - last), now
                self.refused.update(
                    body for body, each in under_way if each.outcome in ("modified", "released")
                )
                under_way = [(body, each) for body, each in under_way if each.outcome is None]
                time.sleep(0.002)
        except BaseException as error:
            self._failure = error

    def end(self, *, refused: bool = False) -> None:
        """All that were asked were answered, once and in order. `refused`: or a sender was told."""
        self._ending = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        told = f"{len(self.refused)} of {self.asked} refused"
        assert refused or not self.refused, told
        assert self.answers == sorted(set(self.answers)), "answered twice, or out of order"
        assert self.refused.union(self.answers) == set(range(self.asked))
        print(f"{told}; {self.longest * 1000:.0f} ms between answers at most")

    def stop(self) -> None:
        """End its connections."""
        self._ending = True
        self._thread.join(1)
        self._clients.close()
