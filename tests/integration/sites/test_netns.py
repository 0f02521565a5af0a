"""The networks that tests make for themselves do what they say, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.integration.sites.support.netns import NAMESPACES, Host, Network

ECHO = """
import socket, sys
server = socket.create_server(("", 7000))
print("ready", flush=True)
while True:
    sock, peer = server.accept()
    sock.settimeout(5)
    sock.sendall(f"{peer[0]} {sock.recv(100).decode()}".encode())
    sock.close()
"""
ASK = """
import socket, sys, time
begun = time.monotonic()
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as sock:
        sock.sendall(b"hello")
        print(sock.recv(100).decode(), time.monotonic() - begun)
except OSError as error:
    print(type(error).__name__, time.monotonic() - begun)
"""


def echo(host: Host) -> None:
    """A server that answers with who asked."""
    process = host.start(sys.executable, "-c", ECHO, output=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def ask(host: Host, address: str, port: int = 7000) -> tuple[str, float]:
    """What it answers, and how long that took."""
    answer, _, seconds = host.run(sys.executable, "-c", ASK, address, str(port)).strip().rpartition(" ")
    return answer, float(seconds)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


def test_a_segment(network: Network) -> None:
    lan = network.segment("10.71.1.0/24")
    one, two = network.host("one", lan), network.host("two", lan)
    echo(two)
    assert ask(one, two.address)[0] == f"{one.address} hello"
    two.links[lan].cut()
    assert ask(one, two.address)[0] in ("TimeoutError", "OSError")
    two.links[lan].heal()
    assert ask(one, two.address)[0] == f"{one.address} hello"
    two.refuse(one)
    assert ask(one, two.address)[0] == "TimeoutError"
    two.accept_all()
    assert ask(one, two.address)[0] == f"{one.address} hello"
    two.pause()
    assert ask(one, two.address)[0] == "TimeoutError"
    two.resume()
    two.kill()
    assert ask(one, two.address)[0] == "ConnectionRefusedError"


def test_delay(network: Network) -> None:
    lan = network.segment("10.71.1.0/24")
    one, two = network.host("one", lan), network.host("two", lan, slow=True)
    echo(two)
    assert ask(one, two.address)[1] < 0.1
    two.links[lan].delay(50)
    answer, seconds = ask(one, two.address)
    assert answer == f"{one.address} hello"
    assert 0.2 <= seconds < 0.5  # a handshake and an answer: two ways there and two back


def test_loss(network: Network) -> None:
    lan = network.segment("10.71.1.0/24")
    one, two = network.host("one", lan), network.host("two", lan)
    two.links[lan].lose(1.0)
    echo(two)
    assert ask(one, two.address)[0] == "TimeoutError"
    two.links[lan].lose(0.0)
    assert ask(one, two.address)[0] == f"{one.address} hello"


def test_faults_between_segments(network: Network) -> None:
    nyc, sfo = network.segment("10.71.1.0/24"), network.segment("10.71.2.0/24")
    gateway = network.gateway("gateway", nyc, sfo, slow=True)
    one, two = network.host("one", nyc, gateway=gateway), network.host("two", sfo, gateway=gateway)
    echo(two)
    gateway.links[sfo].delay(50)
    answer, seconds = ask(one, two.address)
    assert answer == f"{one.address} hello"
    assert 0.2 <= seconds < 0.5
    gateway.links[sfo].lose(1.0)
    assert ask(one, two.address)[0] == "TimeoutError"
    gateway.links[sfo].lose(0.0)
    assert ask(one, two.address)[0] == f"{one.address} hello"


def test_limited_rate(network: Network) -> None:
    lan = network.segment("10.71.1.0/24")
    one, two = network.host("one", lan), network.host("two", lan)
    one.links[lan].limit(1_000_000)
    assert "1Mbit" in one.run("tc", "qdisc", "show", "dev", "eth0")
    one.links[lan].limit(None)
    echo(two)
    assert ask(one, two.address)[1] < 0.1


def test_translation(network: Network) -> None:
    inside, outside = network.segment("10.71.1.0/24"), network.segment("10.71.2.0/24")
    gateway = network.gateway("gateway", inside, outside)
    gateway.translate(inside, outside)
    one = network.host("one", inside, gateway=gateway)
    two = network.host("two", outside, gateway=gateway)
    echo(one)
    echo(two)
    own = gateway.links[outside].address
    assert ask(one, two.address)[0] == f"{own} hello"
    assert ask(two, one.address)[0] == "ConnectionRefusedError"
    gateway.publish(outside, 7001, one, 7000)
    assert ask(two, own, 7001)[0] == f"{two.address} hello"
    gateway.cut(inside, outside)
    assert ask(one, two.address)[0] == "TimeoutError"
    gateway.heal(inside, outside)
    assert ask(one, two.address)[0] == f"{own} hello"


def test_nothing_is_left() -> None:
    with Network() as network:
        lan = network.segment("10.71.1.0/24")
        process = network.host("one", lan, slow=True).start("sleep", "1000")
        made = [path for path in NAMESPACES.iterdir() if path.name.startswith(network.prefix)]
        assert len(made) == 2
        assert process.poll() is None
    assert process.poll() is not None
    assert not any(path.exists() for path in made)
