"""What it costs to collect flow records: how many a second, CPU time of each, memory.

`stages` is one process without a network, step by step. `sustained` is a collector process at a router, with sources
that a client plays, at rising rates until messages are missed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proton import Delivery, Handler
from proton.reactor import AtMostOnce, Container

from isthmus_flowlog.collector import parquet, wire
from isthmus_flowlog.collector.assembly import Assembly
from isthmus_flowlog.collector.journal import Journal
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_router.flows import messages
from isthmus_router.flows.records import Attr, Record, RecordType
from isthmus_router.message.control import decode_message

RECORDS = 50
"""In a message."""
MESSAGES_PER_SECOND = 20
"""Of a source: as many as routers send."""
_MARK = 10**15
"""Identities of summaries begin here, so that all have as many digits."""
COUNTS = (
    Attr.OCTETS,
    Attr.DELIVERIES,
    Attr.ACCEPTED,
    Attr.REJECTED,
    Attr.RELEASED,
    Attr.MODIFIED,
    Attr.PRESETTLED,
    Attr.DROPPED,
    Attr.LATE_1_SECOND,
    Attr.LATE_10_SECONDS,
    Attr.UNSETTLED,
    Attr.OLDEST_UNSETTLED,
    Attr.NO_CREDIT,
)


class Source:
    """A router that tells of 50 busy links, as one would: sizes in 4 buckets, latencies in `buckets`."""

    def __init__(self, name: str, buckets: int) -> None:
        self.name = name
        self._prefix = name.partition(":")[0]
        self._numbers = 0
        self._identity = _MARK
        begin = time.time_ns() // 1000
        chance = random.Random(name)
        router = _record(RecordType.ROUTER, name, {Attr.START_TIME: begin, Attr.NAME: f"0/{self._prefix}"})
        listener = self._child(1, RecordType.LISTENER, router, begin, {Attr.NAME: "clients"})
        self.known = [router, listener]
        summaries = []
        for number in range(RECORDS):
            values = {
                Attr.CONTAINER: f"client-{number}",
                Attr.ROLE: "normal",
                Attr.SOURCE_HOST: f"10.0.0.{number}",
            }
            connection = self._child(100 + number, RecordType.CONNECTION, listener, begin, values)
            address = f"orders/region-{number % 10}"
            about = {Attr.DIRECTION: "in", Attr.VAN_ADDRESS: address}
            link = self._child(
                200 + number, RecordType.AMQP_LINK, connection, begin, {Attr.NAME: "sender", **about}
            )
            self.known += [connection, link]
            values = {attribute: chance.randrange(100_000) for attribute in COUNTS}
            values |= {Attr.END_TIME: begin + 10_000_000, Attr.SEQUENCE: 1, **about}
            values[Attr.SIZES] = {bucket: chance.randrange(1, 1000) for bucket in range(40, 44)}
            values[Attr.LATENCIES] = {bucket: chance.randrange(1, 1000) for bucket in range(60, 60 + buckets)}
            summaries.append(self._child(_MARK + number, RecordType.DELIVERY_SUMMARY, link, begin, values))
        self._template = bytearray(messages.records_message(_MARK, f"{self.address}.flows", summaries))
        self._places = []
        at = 0
        for number in range(RECORDS):
            at = self._template.index(str(_MARK + number).encode(), at)
            self._places.append(at)
        self._number_at = self._template.index(_MARK.to_bytes(8))

    @property
    def address(self) -> str:
        """Of its records."""
        return messages.records_address(self.name)

    def _child(
        self, number: int, kind: RecordType, parent: Record, begin: int, values: dict[Attr, Any]
    ) -> Record:
        about = {Attr.PARENT: parent.identity, Attr.START_TIME: begin}
        return _record(kind, f"{self._prefix}:{number}", about | values)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def beacon(self) -> bytes:
        """It is there."""
        return messages.beacon(self._number(), self.name)

    def heartbeat(self) -> bytes:
        """It is alive."""
        return messages.heartbeat(self._number(), self.name, time.time_ns() // 1000)

    def records(self) -> list[bytes]:
        """All but summaries."""
        batches = [self.known[at : at + RECORDS] for at in range(0, len(self.known), RECORDS)]
        return [messages.records_message(self._number(), self.address, batch) for batch in batches]

    def summaries(self) -> bytes:
        """The next 50."""
        self._template[self._number_at : self._number_at + 8] = self._number().to_bytes(8)
        for place in self._places:
            self._identity += 1
            self._template[place : place + 16] = str(self._identity).encode()
        return bytes(self._template)


def _record(kind: RecordType, identity: str, values: dict[Attr, Any]) -> Record:
    record = Record(kind, identity)
    record.update(values)
    return record


# One process, step by step


def stages(count: int, buckets: int) -> dict[str, float]:
    """CPU microseconds per record of each step."""
    source = Source("abcde:0", buckets)
    payloads = [source.summaries() for _ in range(count // RECORDS)]
    total = len(payloads) * RECORDS
    found: dict[str, float] = {"bytes per record": len(payloads[0]) / RECORDS}

    def measure(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = work()
        found[name] = (time.process_time() - began) / total * 1e6
        return result

    def read() -> None:
        for payload in payloads:
            wire.read(payload)

    def read_generally() -> None:
        for payload in payloads:
            decode_message(payload, most=1_000_000)

    measure("(general decoder)", read_generally)
    measure("decode", read)
    decoded = [wire.read(payload).records for payload in payloads]  # type: ignore[union-attr]
    gc.freeze()  # all of it is here only for the sake of the next steps
    chance = random.Random(1)
    for (
        records
    ) in decoded:  # the sources say the same again and again, which a file would hold in a few bytes
        for attributes in records:
            attributes |= {attribute: chance.randrange(100_000) for attribute in map(int, COUNTS)}
            for sketch in (int(Attr.SIZES), int(Attr.LATENCIES)):
                attributes[sketch] = [(bucket, chance.randrange(1, 1000)) for bucket, _ in attributes[sketch]]
    gc.freeze()
    assembly = Assembly()
    now = time.time_ns() // 1000
    for payload in source.records():
        assembly.heard(source.name, now, wire.read(payload).records)  # type: ignore[union-attr]
    assembly.take()

    def assemble() -> list[Any]:
        for number, records in enumerate(decoded):
            assembly.heard(source.name, now + number, records)
        return assembly.take()["deliveries"]

    rows = measure("assemble", assemble)
    assert len(rows) == total
    table, unfit = measure("to Arrow", lambda: to_arrow("deliveries", rows))
    assert not unfit
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        journal.recover()
        measure("journal", lambda: journal.append({"deliveries": table}, time.time()))
        segment = journal.seal()
        assert segment is not None
        found["journal bytes"] = segment.size / total

        def ship() -> None:
            for number, (_, content) in enumerate(parquet.tables_of(segment)):
                parquet.write(content, Path(folder, f"{number}.parquet"))

        measure("Parquet", ship)
        found["Parquet bytes"] = sum(path.stat().st_size for path in Path(folder).glob("*.parquet")) / total
    found["all"] = sum(found[name] for name in ("decode", "assemble", "to Arrow", "journal", "Parquet"))
    return found


# A process at a router


class Play(Handler):
    """Plays sources at a rate that can be changed."""

    def __init__(self, endpoint: str, sources: Sequence[Source], seconds: float) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._sources = sources
        self._ends = time.monotonic() + seconds
        self._senders: dict[str, Any] = {}
        self._tick = 0
        self.sent = 0
        """Records."""
        self.late = 0
        """Messages there was no credit for."""

    def on_reactor_init(self, event: Any) -> None:
        """Connect."""
        self._connection = event.reactor.connect(self._endpoint, reconnect=False, allowed_mechs="ANONYMOUS")
        for address in [
            "mc/sfe.all",
            *(f"{source.address}{suffix}" for source in self._sources for suffix in ("", ".flows")),
        ]:
            self._senders[address] = event.reactor.create_sender(
                self._connection, address, options=AtMostOnce()
            )
        event.reactor.schedule(1.0, self)

    def _send(self, address: str, payload: bytes) -> bool:
        sender = self._senders[address]
        if sender.credit <= 0:
            self.late += 1
            return False
        delivery: Delivery = sender.delivery(sender.delivery_tag())
        sender.stream(payload)
        sender.advance()
        delivery.settle()
        return True

    def on_timer_task(self, event: Any) -> None:
        """A twentieth of a second: one message of each source."""
        if time.monotonic() > self._ends:
            self._connection.close()
            event.reactor.stop()
            return
        event.reactor.schedule(1 / MESSAGES_PER_SECOND, self)
        for source in self._sources:
            if self._tick % (10 * MESSAGES_PER_SECOND) == 0:
                self._send("mc/sfe.all", source.beacon())
            if self._tick % (2 * MESSAGES_PER_SECOND) == 0:
                self._send(source.address, source.heartbeat())
            if self._tick == MESSAGES_PER_SECOND:
                for payload in source.records():
                    self._send(source.address, payload)
            if self._tick > 2 * MESSAGES_PER_SECOND and self._send(
                f"{source.address}.flows", source.summaries()
            ):
                self.sent += RECORDS
        self._tick += 1


def play(endpoint: str, sources: int, seconds: float, buckets: int) -> None:
    """In a process of its own: what was sent goes to standard output."""
    handler = Play(endpoint, [Source(f"s{number:04}:0", buckets) for number in range(sources)], seconds)
    Container(handler).run()
    print(json.dumps({"sent": handler.sent, "late": handler.late}))


@dataclass
class Collected:
    """Of one rate."""

    rate: float
    sent: int
    received: int
    missed: int
    cpu_us: float
    resident_mib: float
    unwritten_seconds: float


def _port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def _await(url: str) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            _get(url)
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def sustained(rates: Sequence[int], seconds: float, buckets: int, every: float | None) -> Iterator[Collected]:
    """A collector, at rising rates."""
    with tempfile.TemporaryDirectory() as name:
        folder, port, health, http = Path(name), _port(), _port(), _port()
        listeners = [
            {"port": port, "host": "127.0.0.1", "allowFlowRecords": True},
            {"port": health, "host": "127.0.0.1", "http": True},
        ]
        sections: list[Any] = [["router", {"id": "A", "mode": "standalone"}]]
        sections.append(["address", {"prefix": "mc", "distribution": "multicast"}])
        sections += [["listener", {"name": f"l{number}", **item}] for number, item in enumerate(listeners)]
        (folder / "router.json").write_text(json.dumps(sections))
        settings = {
            "hosts": [f"127.0.0.1:{port}"],
            "log": str(folder / "log"),
            "httpHost": "127.0.0.1",
            "httpPort": http,
            "rotate": {"seconds": 10},
        }
        (folder / "collector.json").write_text(json.dumps(settings))
        with running(sys.executable, "-m", "isthmus_router", "-c", str(folder / "router.json")):
            _await(f"http://127.0.0.1:{health}/healthz")
            command = (
                sys.executable,
                "-m",
                "isthmus_flowlog.collector",
                "-c",
                str(folder / "collector.json"),
            )
            with running(*command) as collector:
                _await(f"http://127.0.0.1:{http}/readyz")
                for rate in rates:
                    yield _at_rate(rate, seconds, buckets, every, port, http, collector.pid)


def _at_rate(
    rate: int, seconds: float, buckets: int, every: float | None, port: int, http: int, pid: int
) -> Collected:
    def metric(name: str) -> float:
        lines = _get(f"http://127.0.0.1:{http}/metrics").splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"isthmus_collector_{name}")
        )

    sources = max(1, rate // (RECORDS * MESSAGES_PER_SECOND))
    names = ("records_total", "missed_messages_total")
    before = {name: metric(name) for name in names}
    cpu = _cpu(pid)
    arguments = ["play", f"127.0.0.1:{port}", str(sources), str(seconds), str(buckets)]
    with subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE) as player:
        while every is not None and player.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                player.wait(every)
            print(f"  {metric('records_total'):12.0f} records, {_resident_mib(pid):.0f} MiB", flush=True)
        assert player.stdout is not None
        sent = json.loads(player.stdout.read())["sent"]
    used = _cpu(pid) - cpu
    unwritten = metric("oldest_unwritten_seconds")
    time.sleep(4)  # gaps are noticed
    after = {name: metric(name) - before[name] for name in names}
    received = round(after["records_total"])
    return Collected(
        sent / (seconds - 3),
        sent,
        received,
        round(after["missed_messages_total"]),
        used / max(1, received) * 1e6,
        _resident_mib(pid),
        unwritten,
    )


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["stages", "sustained"])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--buckets", type=int, default=12, help="of latencies")
    parser.add_argument("--every", type=float, help="say how much memory it takes, each so many seconds")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[2000, 5000, 10_000, 15_000, 20_000, 25_000, 30_000]
    )
    options = parser.parse_args()
    if options.what == "stages":
        for name, value in stages(options.records, options.buckets).items():
            print(f"{name:20} {value:8.2f}")
        return
    print("records/s      sent  received  missed  CPU us/record  MiB  oldest unwritten s")
    for row in sustained(options.rates, options.seconds, options.buckets, options.every):
        print(
            f"{row.rate:9.0f} {row.sent:9} {row.received:9} {row.missed:7} {row.cpu_us:14.1f} "
            f"{row.resident_mib:4.0f} {row.unwritten_seconds:6.1f}",
            flush=True,
        )
        if row.missed:
            break


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
