"""A canary: a well-behaved client in a process of its own, whose messages pass through a router during an attack.

`with Canary(router) as canary: attack()` sends numbered messages at a steady rate to a receiver of its own (of another
router with `receive_at`). Afterwards `canary.report` has what became of them, and `canary.report.check()` fails when
one was lost, refused or came twice. `most_cpu_seconds` is the CPU time that the router spent on anything while one
message was on its way: unlike the latencies it depends little on what else the machine has to do. What the router did
while the canary was ready to run and had no processor does not count, as the message may have arrived before.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TextIO

from tests.integration.support.client import Client, Clients, Received, Receiver, Sender
from tests.integration.support.forks import Forked
from tests.integration.support.routers import Router, server_of

START_SECONDS = 60.0
END_SECONDS = 60.0
"""For the outcomes and deliveries that are due when the attack is over."""
DEFAULT_RATE = 100.0
_NUMBER = struct.Struct(">Q")
_HEAD = b"\x00\x53\x75\xa0\x08"
"""Before the number, which makes up a data section."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the messages of a canary."""

    sent: int
    accepted: int
    refused: int
    """Outcomes other than accepted."""
    received: int
    """Different messages."""
    lost: int
    """Accepted, and not received."""
    unanswered: int
    """Sent, and without an outcome."""
    duplicates: int
    p50: float
    """Seconds from when a message was due until its receiver had it."""
    p99: float
    longest: float
    cpu_p99: float
    """CPU seconds that the router's main thread spent between a message's start and its arrival, while the canary had
    a processor or nothing to do."""
    most_cpu_seconds: float
    failure: str
    """Why a connection ended, if one did."""

    def check(self, *, at_least: int = 1) -> None:
        """Fail unless every message arrived once and was accepted, and there were `at_least` of them."""
        wrong = self.lost or self.refused or self.unanswered or self.duplicates or self.failure
        assert not wrong, self
        assert self.received == self.sent >= at_least, self


class Canary:
    """Sends through a router while a `with` block runs; `report` is there after it."""

    def __init__(
        self,
        router: Router,
        *,
        receive_at: Router | None = None,
        rate: float = DEFAULT_RATE,
        address: str | None = None,
        user: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        enough: int = 0,
    ) -> None:
        """`rate`: messages per second. `ca`: connect with TLS, and trust this authority. `enough`: the number of
        messages after which `has_sent_enough`.
        """
        self._task = {
            "port": router.port,
            "receive_at": (receive_at or router).port,
            "pid": router.pid,
            "rate": rate,
            "address": address or f"canary/{secrets.token_hex(4)}",
            "user": user,
            "password": password,
            "ca": None if ca is None else str(ca),
            "enough": enough,
        }
        self._process: Forked | None = None
        self._asks: int
        """It ends when this is closed."""
        self._says: TextIO
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The outcome, after the block."""
        assert self._report is not None, "the canary has not ended"
        return self._report

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself, because one of its connections has."""
        return self._process is not None and self._process.poll() is not None

    @property
    def has_sent_enough(self) -> bool:
        """Whether it has sent as many messages as were asked for, or will send no more."""
        return bool(select.select([self._says], [], [], 0)[0])

    def __enter__(self) -> Self:
        theirs, self._asks = os.pipe()
        listens, their_output = os.pipe()
        self._says = open(listens, encoding="utf-8")
        try:
            server = server_of(__name__, os.environ)
            self._process = server.start(
                [json.dumps(self._task)], streams=[theirs, their_output], environment=os.environ
            )
        finally:
            os.close(theirs)
            os.close(their_output)
        assert self._says.readline() == "ready\n", "the canary cannot start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            os.close(self._asks)
            ends = threading.Timer(START_SECONDS + END_SECONDS, self._process.kill)
            ends.start()
            with self._says:
                output = self._says.read()
            ends.cancel()
            status = self._process.wait(END_SECONDS)
            assert status == 0, f"the canary ended with status {status}"
            self._report = Report(**json.loads(output.splitlines()[-1]))
        finally:
            self._process.kill()


def memory(pid: int) -> int:
    """Resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has ended")


def cpu(pid: int) -> float:
    """CPU seconds of a process, all threads and system calls included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main_thread_cpu(pid: int) -> float:
    """CPU seconds of the main thread of a process, to the microsecond."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def cpu_that_counts(pid: int) -> float:
    """CPU seconds of the main thread of a process, less the seconds in which this thread was ready to run and others
    had the processors.

    The difference of two results is what the process did while this thread ran or had nothing to do.
    """
    while True:
        before, spent, after = _time_without_processor(), main_thread_cpu(pid), _time_without_processor()
        if before == after:  # otherwise this thread lost its processor between the two numbers
            return spent - after


def _time_without_processor() -> float:
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class _Flight:
    """The messages of one canary, and when each started and arrived."""

    def __init__(self, clients: Clients, task: dict[str, Any]) -> None:
        self._clients = clients
        self._pid = task["pid"]
        self._period = 1 / task["rate"]
        self._enough = task["enough"]
        options: dict[str, Any] = {}
        if task["user"]:
            options = {"user": task["user"], "password": task["password"], "mechanisms": "PLAIN"}
        if task["ca"]:
            from proton import SSLDomain  # noqa: PLC0415

            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(task["ca"])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            options["tls"] = domain
        self._ends: list[Client] = [
            clients.connect(task["receive_at"], container="canary-receiver", **options),
            clients.connect(task["port"], container="canary-sender", **options),
        ]
        self._receiver: Receiver = self._ends[0].receiver(task["address"], credit=1000, accept=True)
        self._sender: Sender = self._ends[1].sender(task["address"])
        self._sender.await_credit()
        self._starts: list[tuple[float, float]] = []
        """Time when it was due, and `cpu_that_counts` of the router when it was sent."""
        self._arrivals: dict[int, tuple[float, float]] = {}
        """Latency and CPU time of the router, by number."""
        self._duplicates = 0
        self._outcomes: dict[int, str] = {}

    @property
    def _alive(self) -> bool:
        return not any(client.finished for client in self._ends)

    def run(self, over: threading.Event) -> None:
        """Send until `over`, then wait for what is under way."""
        due = time.monotonic()
        while not over.is_set() and self._alive:
            now = time.monotonic()
            while due <= now and self._sender.credit > 0:
                self._sender.send(_HEAD + _NUMBER.pack(len(self._starts)))
                self._starts.append((due, cpu_that_counts(self._pid)))
                due += self._period
                if len(self._starts) == self._enough:
                    print("enough", flush=True)
            self._clients.step(min(0.05, max(0.0, due - time.monotonic())))
            self._collect()
        end = time.monotonic() + END_SECONDS
        while self._alive and time.monotonic() < end and not self._done():
            self._clients.step(0.05)
            self._collect()

    def _done(self) -> bool:
        return len(self._outcomes) == len(self._starts) == len(self._arrivals)

    def _collect(self) -> None:
        now = time.monotonic()
        received: list[Received] = self._receiver.received
        while received and received[0].complete:
            number = _NUMBER.unpack(bytes(received.pop(0).data)[-_NUMBER.size :])[0]
            if number in self._arrivals:
                self._duplicates += 1
                continue
            start, before = self._starts[number]
            self._arrivals[number] = now - start, max(0.0, cpu_that_counts(self._pid) - before)
        for tag, sent in list(self._sender.sent.items()):
            if sent.outcome is not None:
                self._outcomes[int(tag)] = sent.outcome
                del self._sender.sent[tag]

    def report(self) -> Report:
        """What has become of them."""
        latencies = sorted(latency for latency, _ in self._arrivals.values())
        spent = sorted(cpu_seconds for _, cpu_seconds in self._arrivals.values())
        accepted = {number for number, outcome in self._outcomes.items() if outcome == "accepted"}
        return Report(
            sent=len(self._starts),
            accepted=len(accepted),
            refused=len(self._outcomes) - len(accepted),
            received=len(self._arrivals),
            lost=sum(number - 1 not in self._arrivals for number in accepted),  # tags count from 1
            unanswered=len(self._starts) - len(self._outcomes),
            duplicates=self._duplicates,
            p50=_quantile(latencies, 0.5),
            p99=_quantile(latencies, 0.99),
            longest=_quantile(latencies, 1),
            cpu_p99=_quantile(spent, 0.99),
            most_cpu_seconds=_quantile(spent, 1),
            failure="; ".join(str(client.failure) for client in self._ends if client.finished),
        )


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def main(arguments: list[str]) -> int:
    """The process: starts when it has links, ends when its input does."""
    clients = Clients()
    flight = _Flight(clients, json.loads(arguments[0]))
    over = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=await_end, daemon=True).start()
    print("ready", flush=True)
    flight.run(over)
    report = flight.report()
    clients.close()
    print(json.dumps(asdict(report)), flush=True)
    return 0
