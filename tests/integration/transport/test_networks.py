"""Members on hosts of a real network: addresses, interfaces and links that fail."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.sites.support.netns import Host, Network

SECONDS = 15.0


class Agent:
    """A member on a host."""

    def __init__(self, machine: Host, number: int, **settings: Any) -> None:
        arguments = (str(number), machine.address, repr(settings))
        command = (sys.executable, "-m", "tests.integration.transport.agent", *arguments)
        self._process = machine.start(*command, input=subprocess.PIPE, output=subprocess.PIPE)
        self.address = self._read()
        self.at = f"At{self.address!r}"

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line, "the member has ended; its traceback is above"
        return ast.literal_eval(line)

    def __call__(self, expression: str) -> Any:
        """What it is for the member (`one`)."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{expression}\n".encode())
        self._process.stdin.flush()
        return self._read()

    def until(self, condition: str, seconds: float = SECONDS) -> float:
        """Wait for it; returns how long that took."""
        begun = time.monotonic()
        while not self(condition):
            assert time.monotonic() - begun < seconds, f"{condition}; lost: {self('one.lost')}"
            time.sleep(0.005)
        return time.monotonic() - begun


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


def test_process_that_is_killed(network: Network) -> None:
    """Its system ends the connection, and refuses another one."""
    lan = network.segment("10.72.1.0/24")
    host = network.host("two", lan)
    one, two = Agent(network.host("one", lan), 1), Agent(host, 2)
    one(f"one.send({two.at}, b'a')")
    two.until("one.bodies == [b'a']")
    host.kill()
    assert one.until("len(one.lost) == 1") < 0.2
    assert one("one.lost[0][1]") is False
    one(f"one.send({two.at}, b'b')")
    one.until("len(one.lost) == 2")
    assert one("one.lost[1][1]") is True


def test_host_that_is_gone(network: Network) -> None:
    """Half-open: nobody says that the connection has ended; who sends finds out after the user timeout."""
    lan = network.segment("10.72.1.0/24")
    host = network.host("two", lan)
    one, two = Agent(network.host("one", lan), 1, user_timeout=1.0), Agent(host, 2)
    one(f"one.send({two.at}, b'a')")
    two.until("one.bodies == [b'a']")
    host.links[lan].cut()
    one(f"one.send({two.at}, b'b')")
    assert 0.8 < one.until("len(one.lost) == 1") < 4.0
    assert one("one.lost[0][1]") is False
    one(f"one.send({two.at}, b'c')")
    one.until("len(one.lost) == 2")
    assert one("one.lost[1][1]") is False
    host.links[lan].heal()
    one(f"one.send({two.at}, b'd')")
    two.until("one.bodies[-1] == b'd'")


def test_loss_and_delay_keep_the_order(network: Network) -> None:
    lan = network.segment("10.72.1.0/24")
    hosts = network.host("one", lan), network.host("two", lan, slow=True)
    one, two = (Agent(host, number) for number, host in enumerate(hosts, start=1))
    hosts[1].links[lan].delay(5, jitter=5)
    hosts[1].links[lan].lose(0.05)
    one(f"[one.send({two.at}, b'%d' % n) for n in range(2000)] and None")
    two.until("len(one.bodies) == 2000")
    assert two("one.bodies == [b'%d' % n for n in range(2000)]")
    assert one("one.lost") == []


def test_multicast_by_every_interface(network: Network) -> None:
    """A member with two interfaces is heard in both networks, and goes on when one of them fails."""
    red, blue = network.segment("10.72.1.0/24"), network.segment("10.72.2.0/24")
    hosts = network.host("both", red, blue), network.host("red", red), network.host("blue", blue)
    multicast = _Source("MulticastSettings()")
    both, in_red, in_blue = (Agent(host, n, multicast=multicast) for n, host in enumerate(hosts, start=1))
    both("one.driver.multicast(one.frame(b'a'))")
    in_red.until("one.bodies == [b'a']")
    in_blue.until("one.bodies == [b'a']")
    hosts[0].links[red].down()
    both("one.driver.multicast(one.frame(b'b'))")
    in_blue.until("one.bodies == [b'a', b'b']")
    in_blue("one.driver.multicast(one.frame(b'c'))")
    both.until("one.bodies == [b'c']")
    assert in_red("one.bodies") == [b"a"]


def test_networks_of_its_interfaces(network: Network) -> None:
    """By which an address that others announce is told to be near."""
    red, blue = network.segment("10.72.1.0/24"), network.segment("10.72.2.0/24")
    one = Agent(network.host("one", red, blue), 1)
    assert set(one("own_networks()")) - {"127.0.0.0/8"} == {"10.72.1.0/24", "10.72.2.0/24"}


def test_interface_that_fails(network: Network) -> None:
    """A member with two interfaces announces both addresses; where one is lost, it is reached by the other."""
    red, blue = network.segment("10.72.1.0/24"), network.segment("10.72.2.0/24")
    hosts = network.host("one", red, blue), network.host("two", red, blue)
    one, two = (Agent(host, number, host="") for number, host in enumerate(hosts, start=1))
    port = two("one.driver.port")
    in_red, in_blue = (f"At('{hosts[1].links[segment].address}', {port})" for segment in (red, blue))
    two(f"one.announce({in_red}, {in_blue})")
    one(f"one.send({in_red}, b'a')")
    two.until("one.bodies == [b'a']")
    hosts[1].links[red].cut()
    one(f"one.send({in_red}, b'b')")
    assert one.until("len(one.lost) == 1") < 3.0
    assert one(f"one.lost == [({in_red}, False)]")
    one(f"one.send({in_blue}, b'c')")
    two.until("one.bodies == [b'a', b'c']")


def test_member_behind_address_translation(network: Network) -> None:
    """It can dial, and is answered on the connection that it has made: nobody reaches the address it has."""
    inside, outside = network.segment("10.72.1.0/24"), network.segment("10.72.2.0/24")
    gateway = network.gateway("gateway", inside, outside)
    gateway.translate(inside, outside)
    one = Agent(network.host("one", inside, gateway=gateway), 1)
    two = Agent(network.host("two", outside, gateway=gateway), 2)
    one(f"one.send({two.at}, b'a')")
    two.until("one.bodies == [b'a']")
    assert two("tuple(one.frames[0][0])") == one.address
    two(f"one.send({one.at}, b'back')")
    one.until("one.bodies == [b'back']")


class _Source:
    """An expression, for a place where a value is written out."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
