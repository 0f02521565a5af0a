"""Networks whose connections between routers use certificates that can be rotated, and traffic to watch meanwhile."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.links import Receiver, Sender
from tests.integration.support.raw import (
    AMQP_HEADER,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TIMEOUT_SECONDS,
    frame,
)
from tests.integration.support.routers import Router, Routers
from tests.integration.support.topology import Network

from isthmus_router.message.types import Described, Symbol, UByte, decode

PROFILE = "routers"


class RotatingNetwork(Network):
    """A network where every router has an sslProfile of its own for connections to other routers."""

    def __init__(self, routers: Routers, clients: Clients, folder: Path) -> None:
        super().__init__(routers)
        self.clients = clients
        self.authority = Authority(folder, "network")

    def secure(self, *router_ids: str) -> None:
        """Give these routers credentials, and let their listeners and connectors between routers use them."""
        for router_id in router_ids:
            router = self[router_id]
            for kind, section in router.sections:
                if kind in {"listener", "connector"} and section["role"] in {"inter-router", "edge"}:
                    section["sslProfile"] = PROFILE
                    if kind == "listener":
                        section["saslMechanisms"] = "EXTERNAL"
            identity = self.authority.issue(router_id)
            router.sections.append(identity.profile(PROFILE, ordinal=1))

    def overhear_group(self, start: str, end: str) -> str:
        """The correlator that router `start` tells `end` when it connects, which only they should know.

        Starts `start`, and answers in the place of `end`, which must not run yet.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        identity = self.authority.issue("listener")
        context.load_cert_chain(identity.certificate, identity.key)
        with socket.create_server(("localhost", self.inter_router_ports[end])) as server:
            server.settimeout(TIMEOUT_SECONDS)
            self[start].start()
            plain, _ = server.accept()
            plain.settimeout(TIMEOUT_SECONDS)
            with context.wrap_socket(plain, server_side=True) as peer:
                peer.sendall(SASL_HEADER + frame(SASL_MECHANISMS, [Symbol("EXTERNAL")]))
                _heard(peer, SASL_INIT)
                peer.sendall(frame(SASL_OUTCOME, [UByte(0)]) + AMQP_HEADER)
                return str(_heard(peer, OPEN)[9][Symbol("qd.group-correlator")])

    def rotate(
        self,
        router_id: str,
        ordinal: int,
        *,
        oldest: int | None = None,
        renew: bool = True,
        key_of: str | None = None,
    ) -> None:
        """Raise the ordinal of a router's profile, with a new certificate unless not to `renew`.

        With `key_of`, its key belongs to another certificate.
        """
        router = self[router_id]
        profile = _profile(router)
        if renew:
            profile.update(self.authority.issue(f"{router_id}-{ordinal}").profile(PROFILE)[1])
        if key_of is not None:
            profile["privateKeyFile"] = self.authority.issue(key_of).profile(PROFILE)[1]["privateKeyFile"]
        profile["ordinal"] = ordinal
        if oldest is not None:
            profile["oldestValidOrdinal"] = oldest
        router.configure()

    def retire(self, router_id: str, oldest: int) -> None:
        """Let the credentials before `oldest` be no longer valid."""
        router = self[router_id]
        _profile(router)["oldestValidOrdinal"] = oldest
        router.configure()

    def await_status(self, router_id: str, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Wait until a router's status fulfils `condition`, while the traffic of clients goes on."""
        self.clients.until(lambda: condition(self[router_id].status()), f"router {router_id}: {what}")

    def await_ordinal(self, router_id: str, ordinal: int) -> None:
        """Wait until every connector of the router uses connections of that ordinal."""
        self.await_status(
            router_id,
            lambda status: all(
                (row["tlsOrdinal"], row["state"], row["message"]) == (ordinal, "open", "")
                for row in status["connectors"]
            ),
            f"connectors of ordinal {ordinal}",
        )

    def await_rotated(self, router_id: str, ordinal: int) -> None:
        """Wait until connections of that ordinal carry what is new, as both ends see it."""
        self.await_ordinal(router_id, ordinal)
        for other in self.routers.all:
            self.await_status(
                other,
                lambda status: (
                    not any(
                        row["container"] == router_id and row["upgrade"] == "pending"
                        for row in status["connections"]
                    )
                ),
                f"nothing of {router_id} is pending",
            )

    def await_connections(self, router_id: str, count: int) -> None:
        """Wait until a router has that many connections to others."""
        self.await_status(
            router_id,
            lambda status: sum(row["role"] != "normal" for row in status["connections"]) == count,
            f"{count} connections to other routers",
        )

    def connections(self, router_id: str) -> int:
        """Connections to other routers."""
        return sum(row["role"] != "normal" for row in self[router_id].status()["connections"])

    def computations(self) -> dict[str, float]:
        """Path computations so far, by interior router."""
        return {
            router_id: self[router_id].metric("path_computations_total")
            for router_id in self.inter_router_ports
        }


def _profile(router: Router) -> dict[str, Any]:
    return next(section for kind, section in router.sections if kind == "sslProfile")


class Flow:
    """Numbered messages from one sender to one receiver, as fast as credit and `window` let them."""

    def __init__(self, sender: Sender, receiver: Receiver, *, window: int = 20) -> None:
        self.sender = sender
        self.receiver = receiver
        self.window = window
        self.sent = 0
        self.accepted = 0
        self.other_outcomes: list[str] = []
        self.numbers: list[int] = []
        self.running = True

    def push(self) -> bool:
        """Send and take in what there is; True when all is done after `stop`."""
        for tag, item in list(self.sender.sent.items()):
            if item.outcome is not None:
                del self.sender.sent[tag]
                if item.outcome == "accepted":
                    self.accepted += 1
                else:
                    self.other_outcomes.append(item.outcome)
        self.numbers += [int(item.body) for item in self.receiver.arrived()]
        self.receiver.received[:] = [item for item in self.receiver.received if not item.complete]
        while self.running and self.sender.credit > 0 and len(self.sender.sent) < self.window:
            self.sender.send(str(self.sent))
            self.sent += 1
        return not self.running and not self.sender.sent and len(self.numbers) >= self.sent

    @property
    def done(self) -> bool:
        """Whether each message that was sent has an outcome, and as many have arrived as were accepted."""
        outcomes = self.accepted + len(self.other_outcomes)
        return outcomes == self.sent and len(self.numbers) >= self.accepted

    @property
    def fault(self) -> str:
        """What is wrong once all was sent and has arrived; empty if nothing is."""
        if self.other_outcomes:
            return f"{len(self.other_outcomes)} of {self.sent} were not accepted: {self.other_outcomes[:5]}"
        for place, number in enumerate(self.numbers):
            if number != place:
                return f"number {number} arrived in the place of {place}: {self.numbers[place : place + 30]}"
        return "" if len(self.numbers) == self.sent else f"{len(self.numbers)} of {self.sent} arrived"

    def __str__(self) -> str:
        return (
            f"{self.receiver.address}: {self.sent} sent, {self.accepted} accepted, "
            f"{len(self.other_outcomes)} with other outcomes, {len(self.numbers)} arrived"
        )


@contextmanager
def flowing(clients: Clients, flows: list[Flow]) -> Iterator[None]:
    """Traffic within the block; afterwards each message has arrived exactly once, in order, and was accepted."""
    clients.background += [flow.push for flow in flows]
    clients.until(lambda: all(flow.accepted > 10 for flow in flows), "every flow flows")
    yield
    for flow in flows:
        flow.running = False
    try:
        clients.until(lambda: all(flow.done for flow in flows), "everything arrived")
    except AssertionError as error:
        raise AssertionError("; ".join(str(flow) for flow in flows if not flow.done)) from error
    faults = [f"{flow}: {flow.fault}" for flow in flows if flow.fault]
    assert not faults, faults


def progress(clients: Clients, flows: list[Flow], count: int = 10) -> None:
    """Wait until that many more messages have been accepted on each flow."""
    before = [flow.accepted for flow in flows]
    clients.until(
        lambda: all(flow.accepted >= then + count for flow, then in zip(flows, before, strict=True)),
        f"{count} more messages on each link",
    )


class EndlessStream:
    """One delivery that never seems to end: `more` sends another piece, `finish` ends it."""

    FIRST_BYTES = 128 * 1024  # enough for routers to pass it on while it arrives
    PIECE_BYTES = 1024

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self.sender = sender
        self.receiver = receiver
        self._sent = sender.begin(bytes(self.FIRST_BYTES))
        self._pieces = 0

    @property
    def arrived_bytes(self) -> int:
        """What the receiver has of it."""
        return len(self.receiver.received[0].data) if self.receiver.received else 0

    def more(self) -> None:
        """Send a piece that differs from the one before."""
        self.sender.more(self._pieces.to_bytes(4, "big") * (self.PIECE_BYTES // 4))
        self._pieces += 1

    def keeps_up(self) -> bool:
        """Whether all that was sent has arrived."""
        return self.arrived_bytes == self.FIRST_BYTES + self._pieces * self.PIECE_BYTES

    def finish(self) -> None:
        """End it; it must have arrived whole and in order, and be accepted."""
        self.sender.finish()
        assert self.sender.outcome(self._sent) == "accepted"
        data = bytes(self.receiver.received[0].data)[self.FIRST_BYTES :]
        assert data == b"".join(n.to_bytes(4, "big") * (self.PIECE_BYTES // 4) for n in range(self._pieces))


def _heard(peer: ssl.SSLSocket, code: int) -> list[Any]:
    """The fields of the next frame of this kind; protocol headers and other frames are passed over."""
    while True:
        head = _read(peer, 8)
        if head.startswith(b"AMQP"):
            continue
        body = _read(peer, int.from_bytes(head[:4]) - 8)
        value = decode(body)[0] if body else None
        if isinstance(value, Described) and int(str(value.descriptor)) == code:
            return list(value.value)


def _read(peer: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        assert more, "the router has closed the connection"
        data += more
    return data
