"""Real processes in networks of their own: hosts that are network namespaces, segments that join them, and faults.

```
with Network() as network:
    nyc, wan = network.segment("10.71.1.0/24"), network.segment("10.71.9.0/24")
    gateway = network.gateway("gateway", nyc, wan)
    a = network.host("a", nyc, gateway=gateway)
    process = a.start(sys.executable, "-m", "isthmus_router", ...)
    a.links[nyc].cut()
```
Nothing of it touches the machine's own network: interfaces are made inside of namespaces. At the end, processes that
were started are killed and namespaces that were made are deleted, each by its recorded id or name. Needs root,
iproute2 and iptables.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.integration.support.forks import end_with_the_tests

_numbers = itertools.count(1)
END_SECONDS = 5.0
NAMESPACES = Path("/run/netns")
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """The system did not do what a network needs; the text has its words."""


def run(*command: str) -> str:
    """What a command has written. Raises NetworkError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NetworkError(f"{command[0]} is not installed: iproute2 and iptables are needed") from error
    if done.returncode:
        hint = "" if os.geteuid() == 0 else "; network namespaces need root"
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}{hint}")
    return done.stdout


class Segment:
    """An Ethernet that hosts are linked to: a bridge in a namespace of its own."""

    def __init__(self, network: Network, subnet: str) -> None:
        self.subnet = ipaddress.IPv4Network(subnet)
        self._addresses = self.subnet.hosts()
        self.namespace = network.namespace(f"segment-{self.subnet.network_address}")
        self.run("ip", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        self.run("ip", "link", "set", "bridge", "up")

    def run(self, *command: str) -> str:
        """Run a command in the segment's namespace."""
        return run("ip", "netns", "exec", self.namespace, *command)

    def next_address(self) -> str:
        """One that no host has."""
        return str(next(self._addresses))


class Link:
    """A host's interface in a segment, with the faults that it can have."""

    def __init__(self, host: Host, segment: Segment, number: int, *, slow: bool) -> None:
        self.host = host
        self.segment = segment
        self.interface = f"eth{number}"
        self.address = segment.next_address()
        self._port = f"port-{self.address.rpartition('.')[2]}"
        self._losing: tuple[str, ...] = ()
        self._forwarder = _Forwarder(self, self._port) if slow else None
        if not slow:
            peer = ("peer", "name", self._port, "netns", segment.namespace)
            run("ip", "link", "add", self.interface, "netns", host.namespace, "type", "veth", *peer)
        segment.run("ip", "link", "set", self._port, "master", "bridge", "up")
        host.run("ip", "address", "add", f"{self.address}/{segment.subnet.prefixlen}", "dev", self.interface)
        host.run("ip", "link", "set", self.interface, "up")

    def cut(self) -> None:
        """As if the cable was drawn, at its far end: the host is told nothing."""
        self.segment.run("ip", "link", "set", self._port, "nomaster")

    def heal(self) -> None:
        """Put it back."""
        self.segment.run("ip", "link", "set", self._port, "master", "bridge")

    def down(self) -> None:
        """The interface fails, and the host sees that."""
        self.host.run("ip", "link", "set", self.interface, "down")

    def lose(self, share: float) -> None:
        """Lose that share of the packets that arrive (0 to 1), also of those to be forwarded."""
        table = ("iptables", "-t", "mangle")
        if self._losing:
            self.host.run(*table, "-D", *self._losing)
        random = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.6f}")
        self._losing = ("PREROUTING", "-i", self.interface, *random, "-j", "DROP") if share else ()
        if self._losing:
            self.host.run(*table, "-A", *self._losing)

    def limit(self, bits_per_second: int | None) -> None:
        """No more than that leaves the host; None: as fast as can be."""
        if bits_per_second is None:
            self.host.run("tc", "qdisc", "del", "dev", self.interface, "root")
            return
        shape = ("tbf", "rate", str(bits_per_second), "burst", "16kb", "latency", "100ms")
        self.host.run("tc", "qdisc", "replace", "dev", self.interface, "root", *shape)

    def delay(self, milliseconds: float, jitter: float = 0.0) -> None:
        """Let each packet take so long each way, and up to `jitter` longer, so that some overtake others.

        For a link that was made slow.
        """
        assert self._forwarder is not None, "not a slow link"
        self._forwarder.set(milliseconds, jitter)

    def close(self) -> None:
        """End what forwards its packets."""
        if self._forwarder is not None:
            self._forwarder.close()


class _Forwarder:
    """A process between two TAP devices; kernels are built without netem as often as not."""

    def __init__(self, link: Link, port: str) -> None:
        here = (str(NAMESPACES / link.host.namespace), link.interface)
        there = (str(NAMESPACES / link.segment.namespace), port)
        script = str(Path(__file__).with_name("slow_link.py"))
        self._process = subprocess.Popen(
            (sys.executable, script, *here, *there), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise NetworkError("a slow link could not be made; /dev/net/tun is needed")

    def set(self, milliseconds: float, jitter: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{milliseconds} {jitter}\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Host:
    """A machine: a namespace with a link to each of its segments."""

    def __init__(
        self, network: Network, name: str, *segments: Segment, gateway: Host | None, slow: bool
    ) -> None:
        self.name = name
        self.namespace = network.namespace(name)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.run("ip", "link", "set", "lo", "up")
        self.links = {
            segment: Link(self, segment, number, slow=slow) for number, segment in enumerate(segments)
        }
        if gateway is not None:
            (segment,) = set(segments) & set(gateway.links)
            self.run("ip", "route", "add", "default", "via", gateway.links[segment].address)

    @property
    def address(self) -> str:
        """In its first segment."""
        return next(iter(self.links.values())).address

    def command(self, *command: str) -> tuple[str, ...]:
        """A command, for it to be run on this host."""
        return ("ip", "netns", "exec", self.namespace, *command)

    def run(self, *command: str) -> str:
        """Run a command on this host, to its end. Raises NetworkError."""
        return run(*self.command(*command))

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile, and processes that it starts, are on this host."""
        with open("/proc/thread-self/ns/net") as before, (NAMESPACES / self.namespace).open() as there:
            if _libc.setns(there.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"namespace of {self.name}")
            try:
                yield
            finally:
                _libc.setns(before.fileno(), 0)

    def start(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        input: int = subprocess.DEVNULL,
        output: IO[bytes] | int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process on this host, with these files to read from and write to. It is killed with the network."""
        environment = None if env is None else {**os.environ, **env}
        process = subprocess.Popen(
            self.command(*command),
            env=environment,
            stdin=input,
            stdout=output,
            start_new_session=True,
            preexec_fn=end_with_the_tests,  # noqa: PLW1509  # as for the routers
        )
        self.processes.append(process)
        return process

    def refuse(self, other: Host, *, silently: bool = True) -> None:
        """Take nothing of what another host sends: a cut in one direction. `silently`: without a word to it."""
        target = ("DROP",) if silently else ("REJECT", "--reject-with", "icmp-host-prohibited")
        for link in other.links.values():
            self.run("iptables", "-A", "INPUT", "-s", link.address, "-j", *target)

    def accept_all(self) -> None:
        """Undo every `refuse`."""
        self.run("iptables", "-F", "INPUT")

    def pause(self) -> None:
        """Stop its processes, as a host without CPU would."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill its processes; their connections are reset by the system, as with a process that crashes."""
        self._signal(signal.SIGKILL)
        for process in self.processes:
            process.wait(END_SECONDS)
        self.processes.clear()

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


class Gateway(Host):
    """A host that forwards between its segments."""

    def __init__(self, network: Network, name: str, *segments: Segment, slow: bool) -> None:
        super().__init__(network, name, *segments, gateway=None, slow=slow)
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def translate(self, inside: Segment, outside: Segment) -> None:
        """Network address translation: what comes from the inside seems to come from this host, and nothing can be
        connected to from outside but what `publish` names."""
        there = self.links[outside].interface
        source = ("-s", str(inside.subnet), "-o", there)
        self.run("iptables", "-t", "nat", "-A", "POSTROUTING", *source, "-j", "MASQUERADE")
        for state, target in (("DNAT", "ACCEPT"), ("NEW", "REJECT")):
            arriving = ("-i", there, "-m", "conntrack", "--ctstate", state)
            self.run("iptables", "-A", "FORWARD", *arriving, "-j", target)

    def publish(self, outside: Segment, port: int, to: Host, to_port: int) -> None:
        """Connections to a port of this host from outside are made to a host inside."""
        what = ("-i", self.links[outside].interface, "-p", "tcp", "--dport", str(port))
        destination = f"{to.address}:{to_port}"
        self.run("iptables", "-t", "nat", "-A", "PREROUTING", *what, "-j", "DNAT", "--to", destination)

    def cut(self, one: Segment, other: Segment) -> None:
        """Forward nothing between two segments any more, either way; hosts hear nothing of it."""
        self._between("-I", one, other)

    def heal(self, one: Segment, other: Segment) -> None:
        """Forward again."""
        self._between("-D", one, other)

    def _between(self, action: str, one: Segment, other: Segment) -> None:
        for here, there in ((one, other), (other, one)):
            way = ("-i", self.links[here].interface, "-o", self.links[there].interface)
            self.run("iptables", action, "FORWARD", *way, "-j", "DROP")


class Network:
    """Segments and hosts of one test."""

    def __init__(self) -> None:
        self.prefix = f"isthmus-{os.getpid()}-{next(_numbers)}"
        """Of its namespaces' names."""
        self._namespaces: list[str] = []
        self._hosts: list[Host] = []

    def namespace(self, name: str) -> str:
        """Make one; returns its full name."""
        full = f"{self.prefix}-{name}"
        run("ip", "netns", "add", full)
        self._namespaces.append(full)
        return full

    def segment(self, subnet: str) -> Segment:
        """An Ethernet with addresses like 10.71.1.0/24."""
        return Segment(self, subnet)

    def host(self, name: str, *segments: Segment, gateway: Host | None = None, slow: bool = False) -> Host:
        """A machine in segments. `gateway`: its way to everywhere else. `slow`: its links can have a delay."""
        host = Host(self, name, *segments, gateway=gateway, slow=slow)
        self._hosts.append(host)
        return host

    def gateway(self, name: str, *segments: Segment, slow: bool = False) -> Gateway:
        """A machine that forwards between segments. `slow`: its links can have a delay."""
        gateway = Gateway(self, name, *segments, slow=slow)
        self._hosts.append(gateway)
        return gateway

    def close(self) -> None:
        """Kill and delete what was started and made."""
        for host in self._hosts:
            host.kill()
            for link in host.links.values():
                link.close()
        for name in self._namespaces:
            with contextlib.suppress(NetworkError):
                run("ip", "netns", "del", name)
        self._hosts.clear()
        self._namespaces.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
