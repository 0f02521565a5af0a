"""Mutated traces of frames against a router: it survives, keeps nothing, and its other connections notice nothing."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.mutations import client_trace, mutated, router_trace, split
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, eventually, listener

SEEDS = range(400)
KEPT: tuple[int, ...] = ()
"""Seeds outside of `SEEDS` that have found something."""
WARM_UP = 200
"""Seeds before memory counts: buffers and pools fill."""
GROWTH_BYTES = 4 * 1024 * 1024
BETWEEN_LOOKS = 50
ANSWER_SECONDS = 10.0
BEGIN = b"\x00\x53\x11"
ROLES = ("normal", "edge", "inter-router")


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """An interior router with a listener of each role."""
    others = [listener(free_port(), role, name=role) for role in ROLES[1:]]
    router = either_kernel().add("A", *others, mode="interior")
    return router.start()


def attack(port: int, greeting: bytes, rest: bytes, *, abrupt: bool = False) -> bytes:
    """Say both, the rest when the greeting is answered; listen until the router has hung up, or leave at once."""
    heard = b""
    with socket.create_connection(("localhost", port), ANSWER_SECONDS) as raw:
        try:
            raw.sendall(greeting)
            while greeting and BEGIN not in heard:
                heard += (data := raw.recv(65536))
                assert data, "hung up over a greeting that is in order"
            raw.sendall(rest)
            if abrupt:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return heard
            raw.shutdown(socket.SHUT_WR)
            while data := raw.recv(65536):
                heard += data
        except (BrokenPipeError, ConnectionResetError):
            pass  # the router had heard enough before the end
    return heard


def port_and_trace(router: Router, role: str) -> tuple[int, list[bytes]]:
    """Where to say what, for a listener of that role."""
    if role == "normal":
        return router.port, client_trace()
    trace = client_trace(edge=True) if role == "edge" else router_trace("A")
    ports = {section.get("name"): section.get("port") for _, section in router.sections}
    return ports[role], trace


@pytest.mark.parametrize("role", ROLES)
def test_the_trace_itself_is_in_order(attacked: Router, role: str) -> None:
    port, trace = port_and_trace(attacked, role)
    heard = attack(port, *map(b"".join, split(trace)))
    errors = re.findall(rb"amqp:(?!\w+:list)[\w:-]+", heard)
    assert errors == [b"amqp:connection:framing-error"], heard  # it has left without a word
    assert heard.count(b"small") == (4 if role == "normal" else 0)  # an edge does not get its own back
    assert (b"HELLO" in heard) == (role == "inter-router")


@pytest.mark.parametrize("role", ROLES)
def test_mutated_frames(attacked: Router, clients: Clients, role: str) -> None:
    port, trace = port_and_trace(attacked, role)
    receiver = clients.connect(attacked.port).receiver("calm", credit=1000, accept=True)
    sender = clients.connect(attacked.port).sender("calm").await_credit()
    memory = descriptors = 0
    for number, seed in enumerate((*SEEDS, *KEPT)):
        attack(port, *mutated(trace, seed), abrupt=seed % 7 == 0)
        if number % BETWEEN_LOOKS == 0:
            assert sender.deliver(f"after {seed}") == "accepted", f"seeds up to {seed}"
        if number == WARM_UP:
            memory, descriptors = attacked.memory(), attacked.descriptors()
    assert len(receiver.bodies()) == len(range(0, len(SEEDS) + len(KEPT), BETWEEN_LOOKS))
    eventually(lambda: attacked.descriptors() <= descriptors, "the connections are gone")
    grown = attacked.memory() - memory
    assert grown < GROWTH_BYTES, f"{grown} bytes over {len(SEEDS) - WARM_UP} connections"
    before = attacked.cpu()
    clients.let_time_pass(1.0)
    assert attacked.cpu() - before < 0.2, "the router is idle again"
