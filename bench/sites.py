"""Two relay sites on this machine, for relay.py: as members without AMQP, or as routers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from group_member import GROUP, HOST, Place
from identities import Identities
from load import ISTHMUS, Network, Topology, make_clients
from routers import (
    HOST_NAME,
    PROFILE,
    BenchError,
    Credentials,
    Node,
    Router,
    cpu_seconds,
    free_port,
    running,
    section,
)

SITES = ("nyc", "sfo")
READY_SECONDS = 30.0
BRIDGES = ("direct", "tls", "over")
"""How routers' sites reach each other: by connections, with mutual TLS, over a network of all routers."""


class Member:
    """A process of group_member.py."""

    def __init__(self, place: Place) -> None:
        self.place = place
        script = Path(__file__).with_name("group_member.py")
        words = [sys.executable, str(script), json.dumps(place._asdict())]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def tell(self, **command: object) -> None:
        """Have it do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """To the command that was told."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"member {self.place.name} has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: object) -> dict[str, Any]:
        """Both."""
        self.tell(**command)
        return self.answer()

    def end(self, *, kill: bool = False) -> None:
        """Without a word, either way."""
        assert self.process.stdin is not None
        if kill:
            self.process.kill()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(10)


class MemberSites:
    """Sites of members; a context."""

    def __init__(self, members: int, relays: int = 1, *, by_proxy: bool = False) -> None:
        self.size = members
        self.proxy = Proxy() if by_proxy else None
        self._relays = relays
        self._ports = {site: tuple(free_port() for _ in range(members)) for site in SITES}
        self._bridges = {site: [free_port() for _ in range(members)] for site in SITES}
        self._reached = {
            site: [self.proxy.forward(port) for port in ports] if self.proxy else ports
            for site, ports in self._bridges.items()
        }
        self._started = 0
        self.sites: dict[str, list[Member]] = {}
        """Members in the order of the view: the first is the coordinator and relay."""

    def __enter__(self) -> MemberSites:
        for site in SITES:
            self.sites[site] = [self._start(site, index) for index in range(self.size)]
        self.ready()
        return self

    def __exit__(self, *exception: object) -> None:
        for members in self.sites.values():
            for member in members:
                member.end()
        if self.proxy:
            self.proxy.close()

    def _start(self, site: str, index: int) -> Member:
        self._started += 1
        other = next(each for each in SITES if each != site)
        return Member(
            Place(
                site,
                f"{site}-{self._started}",
                self._ports[site][index],
                self._bridges[site][index],
                self._ports[site],
                {other: self._reached[other]},
                self._reached[site][index],
                self._relays,
            )
        )

    def ready(self) -> None:
        """Wait for views, sessions, and for everybody to know everybody."""
        deadline = time.monotonic() + READY_SECONDS
        while not self._complete():
            if time.monotonic() > deadline:
                raise BenchError("the sites do not come together")
            time.sleep(0.05)

    def _complete(self) -> bool:
        for site, members in self.sites.items():
            states = [member.ask(do="state") for member in members]
            order = states[0]["view"]
            if len(order) != self.size or any(state["view"] != order for state in states):
                return False
            if any(state["everybody"] != self.size * len(SITES) for state in states):
                return False
            if not all(state["open"] for state in states if state["is_relay"]):
                return False
            self.sites[site] = sorted(members, key=lambda member: order.index(member.place.name))
        return True

    def kill_relay(self, site: str) -> None:
        """The first member; no other takes its place before `replace`."""
        self._killed = self.sites[site].pop(0)
        self._killed.end(kill=True)

    def replace(self, site: str) -> None:
        """Start another one where the last was that was killed; it is the newest of the site."""
        self.sites[site].append(self._start(site, self._ports[site].index(self._killed.place.port)))
        self.ready()

    def cpu_seconds(self) -> dict[str, float]:
        """Of each member, by site and place in the view."""
        return {
            f"{site}-{index}": cpu_seconds(member.process.pid)
            for site, members in self.sites.items()
            for index, member in enumerate(members)
        }


@contextlib.contextmanager
def router_sites(members: int, bridge: str, directory: Path, command: str = ISTHMUS) -> Iterator[Network]:
    """Sites of so many routers each, ready; clients are at the last of each. `bridge`: one of BRIDGES."""
    ports = {site: [free_port() for _ in range(members)] for site in SITES}
    bridges = {site: [free_port() for _ in range(members)] for site in SITES}
    sections = {
        f"{site}-{index}": _relay_sections(site, index, ports[site], bridges, bridge)
        for site in SITES
        for index in range(members)
    }
    hub = next(iter(sections)) if bridge == "over" else None
    nodes = tuple(Node(name, uplink=None if name == hub else hub) for name in sections)
    credentials: dict[str, Credentials] = {}
    if bridge == "tls":
        identities = Identities(directory)
        credentials = {node.id: identities.issue(node.id, 1) for node in nodes}
    topology = Topology(nodes, f"{SITES[0]}-{members - 1}", f"{SITES[1]}-{members - 1}")
    more = dict.fromkeys(sections, ("http",))
    make_clients()
    with running(nodes, [command], 1, directory, more, credentials, sections=sections) as routers:
        deadline = time.monotonic() + READY_SECONDS
        while not all(_is_ready(router, members) for router in routers.values()):
            if time.monotonic() > deadline:
                raise BenchError("the sites do not come together")
            time.sleep(0.1)
        yield Network("routers", topology, routers)


def _relay_sections(
    site: str, index: int, ports: list[int], bridges: dict[str, list[int]], bridge: str
) -> str:
    tls = bridge == "tls"
    hosts = ",".join(f"{HOST}:{port}" for port in ports)
    own = section(
        "relaySite",
        group=GROUP,
        site=site,
        plainText="yes",
        memberHost=HOST,
        memberPort=ports[index],
        bridgeHost=HOST,
        bridgePort=bridges[site][index],
        discovery="hostList",
        discoveryHosts=hosts,
        **({"bridgeSslProfile": PROFILE, "bindNames": "no"} if tls else {}),
    )
    (other,) = (each for each in SITES if each != site)
    reached_at = HOST_NAME if tls else HOST
    endpoints = ",".join(f"{reached_at}:{port}" for port in bridges[other])
    way = {"over": "bridges/bench"} if bridge == "over" else {"endpoints": endpoints}
    return own + section("relayRemote", site=other, **way)


def _is_ready(router: Router, members: int) -> bool:
    with urllib.request.urlopen(f"http://{HOST}:{router.ports['http']}/status", timeout=5) as answer:
        relay = json.load(answer)["relay"]
    return len(relay["members"]) == members and all(
        site["state"] == "up" and len(site["members"]) == members for site in relay["remotes"]
    )


class Proxy:
    """Between the sites' bridges: passes on what comes, or while it is blocked nothing."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def forward(self, port: int) -> int:
        """The port at which that one is reached from now on."""

        async def serve() -> int:
            async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    await self._open.wait()
                    onward_reader, onward = await asyncio.open_connection(HOST, port)
                    await asyncio.gather(self._pass(reader, onward), self._pass(onward_reader, writer))
                writer.close()

            server = await asyncio.start_server(accepted, HOST, 0)
            number: int = server.sockets[0].getsockname()[1]
            return number

        return asyncio.run_coroutine_threadsafe(serve(), self._loop).result()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def block(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def unblock(self) -> None:
        """What has not been given up arrives."""
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
