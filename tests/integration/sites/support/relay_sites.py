"""Sites of interior routers on this machine, and a stream of numbered messages from one to another."""

from __future__ import annotations

from typing import Any

from tests.integration.support.client import Clients, Receiver, Sender
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Section, eventually

GROUP = "trades"
UNDER_WAY = 300


class RelaySites:
    """Sites of one group; each member is a router."""

    def __init__(self) -> None:
        self.members: dict[str, list[Router]] = {}
        self._bridge_ports: dict[str, list[int]] = {}

    def site(self, name: str, *routers: Router, **attributes: Any) -> None:
        """These routers are the members of the site."""
        ports = [free_port() for _ in routers]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.members[name] = list(routers)
        self._bridge_ports[name] = [free_port() for _ in routers]
        for router, port, bridge_port in zip(routers, ports, self._bridge_ports[name], strict=True):
            values = {
                "group": GROUP,
                "site": name,
                "plainText": True,
                "memberHost": "127.0.0.1",
                "memberPort": port,
                "bridgeHost": "127.0.0.1",
                "bridgePort": bridge_port,
                "discoveryHosts": hosts,
                **attributes,
            }
            router.sections.append(("relaySite", values))

    def over(self, one: str, other: str, address: str) -> None:
        """Two sites reach each other over the network of routers."""
        self._remotes(one, {"site": other, "over": address})
        self._remotes(other, {"site": one, "over": address})

    def direct(self, one: str, other: str) -> None:
        """Two sites reach each other by connections of their own."""
        for near, far in ((one, other), (other, one)):
            ports = ",".join(f"127.0.0.1:{port}" for port in self._bridge_ports[far])
            self._remotes(near, {"site": far, "endpoints": ports})

    def _remotes(self, site: str, values: dict[str, Any]) -> None:
        section: Section = ("relayRemote", values)
        for router in self.members[site]:
            router.sections.append(section)

    def formed(self) -> None:
        """Wait until everybody that runs knows everybody that runs."""
        running = {
            site: {router.id for router in routers if router.process is not None}
            for site, routers in self.members.items()
        }
        for site, routers in self.members.items():
            others = {
                other: names
                for other, names in running.items()
                if other != site and self._joined(site, other)
            }
            for router in routers:
                if router.process is not None:
                    eventually(
                        lambda r=router, s=site, o=others: _knows(r, running[s], o), f"{router.id} knows all"
                    )  # type: ignore[misc]

    def _joined(self, site: str, other: str) -> bool:
        sections = self.members[site][0].sections
        return any(name == "relayRemote" and values["site"] == other for name, values in sections)

    def relay(self, site: str) -> Router:
        """The relay of a site."""
        routers = {router.id: router for router in self.members[site]}
        status = next(router for router in routers.values() if router.process is not None).status()
        return routers[next(member["name"] for member in status["relay"]["members"] if member["relay"])]

    def other(self, site: str) -> Router:
        """A running member of a site that is not its relay."""
        relay = self.relay(site)
        return next(each for each in self.members[site] if each is not relay and each.process is not None)


def _knows(router: Router, own: set[str], others: dict[str, set[str]]) -> bool:
    relay = router.status()["relay"]
    remotes = {remote["site"]: remote for remote in relay["remotes"]}
    return {member["name"] for member in relay["members"]} == own and all(
        site in remotes and remotes[site]["state"] == "up" and set(remotes[site]["members"]) == names
        for site, names in others.items()
    )


class Stream:
    """Messages 0, 1, 2, ... from one sender to the group."""

    def __init__(self, clients: Clients, sender: Sender) -> None:
        self._clients = clients
        self._sender = sender
        self.count = 0

    def send(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self._clients.until(self._has_room, "room for one more")
            self._sender.send(f"{self.count}")
            self.count += 1

    def accepted(self) -> None:
        """Wait until all are."""
        self._clients.until(lambda: not self._open(), "all are accepted")
        assert {sent.outcome for sent in self._sender.sent.values()} <= {"accepted"}

    def _has_room(self) -> bool:
        return self._sender.credit > 0 and self._open() < UNDER_WAY

    def _open(self) -> int:
        for tag in [tag for tag, sent in self._sender.sent.items() if sent.outcome == "accepted"]:
            del self._sender.sent[tag]
        return len(self._sender.sent)


class Tail:
    """The numbers that a receiver has got."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.numbers: list[int] = []

    def read(self) -> list[int]:
        """All so far."""
        arrived = self._receiver.arrived()
        self._receiver.received = self._receiver.received[len(arrived) :]
        self.numbers += [int(item.body) for item in arrived]
        return self.numbers
