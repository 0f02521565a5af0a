"""Polling of real HTTP servers on loopback: what is noticed, what is forgiven, what is dropped."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from isthmus_operator import observe
from isthmus_operator.decoding import LONG_BYTES
from isthmus_operator.observe import MAX_PARALLEL_PER_NAMESPACE, READING_SHARE, Observer, Target
from isthmus_operator.report import RouterReport, occupied, parse_report
from isthmus_router.relay_site.status import RelayStatus, RemoteStatus, relay_document

TIMEOUT = 10.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FakePod:
    """A `/status` endpoint whose answer a test decides."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | int = {"router": {"id": "west-0", "configHash": "1"}}
        self.lost = 0
        """So many of the next polls fail."""
        self.polls = 0
        self._polled = asyncio.Condition()

    async def handle(self, _: web.Request) -> web.Response:
        async with self._polled:
            self.polls += 1
            self._polled.notify_all()
        if self.lost:
            self.lost -= 1
            return web.Response(status=503)
        if isinstance(self.answer, int):
            return web.Response(status=self.answer)
        return web.json_response(self.answer)

    async def polled(self, times: int) -> None:
        """Waits for so many polls more, all but the last of them answered."""
        wanted = self.polls + times
        async with asyncio.timeout(TIMEOUT), self._polled:
            await self._polled.wait_for(lambda: self.polls >= wanted)


class Watch:
    """An observer, the server it polls, and the changes it told."""

    def __init__(self, port: int, pod: FakePod) -> None:
        self.target = Target("uid", "127.0.0.1", port)
        self.pod = pod
        self.told = 0
        self._changed = asyncio.Event()
        self.observer = Observer(self._on_change, interval=0.02, numbers_seconds=0.5)

    def _on_change(self, namespace: str) -> None:
        assert namespace == "net"
        self.told += 1
        self._changed.set()

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not check():
                self._changed.clear()
                await self._changed.wait()

    def hash(self) -> str | None:
        observation = self.observer.observations("net").get("west-0")
        return observation.report.config_hash if observation is not None and observation.report else None


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    pod = FakePod()
    app = web.Application()
    app.router.add_get("/status", pod.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found = Watch(runner.addresses[0][1], pod)
    found.observer.watch("net", {"west-0": found.target})
    yield found
    await found.observer.close()
    await runner.cleanup()


async def test_a_change_is_told_once(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    await watch.pod.polled(4)
    assert watch.told == 1, "the same answer is no news"
    watch.pod.answer = {"router": {"id": "west-0", "configHash": "2"}}
    await watch.until(lambda: watch.hash() == "2")
    assert watch.told == 2


async def test_counters_that_do_not_matter_are_no_news(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    watch.pod.answer = {
        "router": {"id": "west-0", "configHash": "1"},
        "addressesTotal": 7,
        "connections": [{}],
    }
    await watch.pod.polled(4)
    assert watch.told == 1


NODES = [{"id": f"router-{number}"} for number in range(400)]


async def test_reports_of_all_pods_are_bounded_together(watch: Watch) -> None:
    """A namespace has as much room as is free for others."""
    small = {"router": {"id": "west-0", "configHash": "1"}}
    large = {**small, "nodes": NODES}
    size = occupied(parse_report(large, NOW))
    names = [f"west-{number}" for number in range(4)]
    changed = asyncio.Event()
    observer = Observer(
        lambda _: changed.set(),
        interval=0.02,
        max_report_bytes=int(4.5 * size),
        reserved_bytes=size // 2,
    )

    async def until(reports: int, namespace: str = "net") -> list[str]:
        async with asyncio.timeout(TIMEOUT):
            while True:
                changed.clear()
                seen = observer.observations(namespace)
                if len(seen) == 4 and sum(item.report is not None for item in seen.values()) == reports:
                    return [item.error for item in seen.values() if item.error]
                await changed.wait()

    watch.pod.answer = large
    observer.watch("net", dict.fromkeys(names, watch.target))
    refused = "does not answer as it should: the reports of all pods of the namespace take too much memory"
    assert await until(2) == [refused, refused]
    observer.watch("other", dict.fromkeys(names, watch.target))
    assert await until(1, "other") == [refused] * 3
    observer.watch("third", dict.fromkeys(names, watch.target))
    assert await until(0, "third") == [refused] * 4
    watch.pod.answer = small
    for namespace in ("net", "other", "third"):
        assert await until(4, namespace) == []
    watch.pod.answer = large
    observer.watch("other", {})
    observer.watch("third", {})
    assert await until(2) == [refused, refused]
    await observer.close()


def lists(*names: str) -> dict[str, Any]:
    """An answer with as many entries in these lists as there may be values in a document."""
    found: dict[str, Any] = {
        "nodes": lambda number: {"id": f"{number}"},
        "connectors": lambda number: {"name": f"{number}", "state": "a"},
        "listeners": lambda number: {"name": f"{number}", "state": "failed"},
        "sslProfiles": lambda number: {"name": f"{number}", "ordinal": 1, "connections": {"1": 1}},
        "linkRoutes": lambda number: {
            "name": f"{number}",
            "direction": "in",
            "prefix": None,
            "pattern": "a",
            "connection": None,
            "containerId": None,
            "destinations": 0,
            "remote": 0,
            "links": 1000,
            "refusals": 1000,
            "lastRefusal": None,
        },
        "autoLinks": lambda number: {
            "connection": f"{number}",
            "address": "a",
            "direction": "in",
            "externalAddress": None,
            "phase": None,
            "state": "a",
            "message": "",
        },
    }
    return {
        "router": {"id": "west-0"},
        **{name: [found[name](number) for number in range(5_000)] for name in names},
    }


@pytest.mark.parametrize(
    "answer",
    [
        *(
            lists(name)
            for name in ("nodes", "connectors", "listeners", "sslProfiles", "linkRoutes", "autoLinks")
        ),
        {
            "router": {"id": "west-0"},
            "sslProfiles": [
                {"name": "p", "ordinal": 1, "connections": {f"{number}": 1000 for number in range(10_000)}}
            ],
        },
    ],
    ids=["nodes", "connectors", "listeners", "sslProfiles", "linkRoutes", "autoLinks", "ordinals"],
)
def test_the_memory_of_a_report_is_known(answer: dict[str, Any]) -> None:
    parse_report(answer, NOW)  # what is loaded with the first one does not count
    tracemalloc.start()
    try:
        report = parse_report(answer, NOW)
        size = occupied(report)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 1.2 * size
    assert report.id == "west-0"


async def test_numbers_of_an_edge_are_told_now_and_then(watch: Watch) -> None:
    def answer(addresses: int) -> dict[str, Any]:
        edge = {"active": None, "standbys": [], "proxiedAddresses": addresses}
        return {"router": {"id": "west-0", "configHash": "2"}, "edge": edge}

    watch.pod.answer = answer(1)
    await watch.until(lambda: watch.hash() == "2")
    told = watch.told
    watch.pod.answer = answer(2)
    await watch.pod.polled(2)
    assert watch.told == told, "not yet"
    await watch.until(lambda: watch.told == told + 1)
    await watch.pod.polled(40)  # more than the half second after which numbers are told
    assert watch.told == told + 1, "the same number is no news"


async def test_lag_of_a_site_is_told_now_and_then_and_what_was_dropped_at_once(watch: Watch) -> None:
    def answer(lag: int, dropped: int) -> dict[str, Any]:
        values: dict[str, Any] = {item.name: 0 for item in fields(RemoteStatus)}
        values |= {"site": "sfo", "state": "up", "members": (), "problem": "", "round_trip_seconds": None}
        remote = RemoteStatus(**{**values, "lag_messages": lag, "dropped_messages": dropped})
        relay = RelayStatus("trades", "nyc", "1" * 32, 1, (), (remote,), 0, 0, ())
        return {"router": {"id": "west-0", "configHash": "2"}, "relay": relay_document(relay)}

    watch.pod.answer = answer(1, 0)
    await watch.until(lambda: watch.hash() == "2")
    told = watch.told
    watch.pod.answer = answer(2, 0)
    await watch.pod.polled(2)
    assert watch.told == told, "not yet"
    await watch.until(lambda: watch.told == told + 1)
    watch.pod.answer = answer(3, 1)
    await watch.pod.polled(3)
    assert watch.told == told + 2


async def test_links_of_a_link_route_are_told_now_and_then_and_its_container_at_once(watch: Watch) -> None:
    def answer(destinations: int, links: int) -> dict[str, Any]:
        route = {"name": "b2/in", "direction": "in", "prefix": "b2", "pattern": None, "connection": "broker"}
        route |= {"containerId": None, "destinations": destinations, "remote": 0, "links": links}
        route |= {"refusals": 0, "lastRefusal": None}
        return {"router": {"id": "west-0", "configHash": "2"}, "linkRoutes": [route]}

    watch.pod.answer = answer(0, 0)
    await watch.until(lambda: watch.hash() == "2")
    told = watch.told
    watch.pod.answer = answer(1, 0)
    await watch.pod.polled(2)
    assert watch.told == told + 1
    watch.pod.answer = answer(1, 5)
    await watch.pod.polled(2)
    assert watch.told == told + 1, "not yet"
    await watch.until(lambda: watch.told == told + 2)


async def test_one_lost_poll_is_no_news(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    watch.pod.lost = 1
    await watch.pod.polled(4)
    assert watch.pod.lost == 0
    assert (watch.hash(), watch.told) == ("1", 1)


async def test_a_router_is_given_up_after_two_lost_polls_and_found_again(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    watch.pod.answer = 503
    await watch.until(lambda: watch.hash() is None)
    assert "503" in watch.observer.observations("net")["west-0"].error
    watch.pod.answer = {"router": {"id": "west-0", "configHash": "3"}}
    await watch.until(lambda: watch.hash() == "3")


async def test_what_is_not_a_status_is_an_error(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    watch.pod.answer = {"hello": "world"}
    await watch.until(lambda: watch.hash() is None)
    assert "not a router's status" in watch.observer.observations("net")["west-0"].error


async def test_a_port_that_nobody_listens_on_is_told_in_words() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can take it
        watch = Watch(held.getsockname()[1], FakePod())
        watch.observer.watch("net", {"west-0": watch.target})
        await watch.until(lambda: "west-0" in watch.observer.observations("net"))
        error = watch.observer.observations("net")["west-0"].error
        await watch.observer.close()
    assert error == "does not answer on its health port: connection refused"


async def test_a_pod_that_is_gone_is_forgotten_and_polled_no_more(watch: Watch) -> None:
    await watch.until(lambda: watch.hash() == "1")
    watch.observer.watch("net", {})
    assert watch.observer.observations("net") == {}
    polls = watch.pod.polls
    watch.observer.watch("net", {"west-1": Target("other", watch.target.ip, watch.target.port)})
    await watch.pod.polled(2)
    assert set(watch.observer.observations("net")) == {"west-1"}
    assert watch.pod.polls >= polls + 2


async def test_routers_are_asked_often_while_something_waits_for_them(watch: Watch) -> None:
    watch.observer.watch("net", {})
    patient = Observer(lambda namespace: None, interval=60.0)
    try:
        patient.watch("net", {"west-0": watch.target}, hurry=True)
        async with asyncio.timeout(TIMEOUT):
            await watch.pod.polled(2)
    finally:
        await patient.close()


async def test_a_new_ordinal_is_news_and_the_number_of_its_connections_now_and_then(watch: Watch) -> None:
    def answer(counts: dict[str, int], config: str = "1") -> dict[str, Any]:
        section = {"name": "net", "ordinal": 2, "oldestValidOrdinal": 1, "connections": counts}
        return {"router": {"id": "west-0", "configHash": config}, "sslProfiles": [section]}

    def known() -> dict[int, int]:
        found = watch.observer.observations("net").get("west-0")
        report = found.report if found is not None else None
        return dict(report.profiles["net"].connections) if report is not None and report.profiles else {}

    watch.pod.answer = answer({"1": 3})
    await watch.until(lambda: known() == {1: 3})
    watch.pod.answer = answer({"1": 2, "2": 1})
    await watch.until(lambda: known() == {1: 2, 2: 1})
    told = watch.told
    watch.pod.answer = answer({"1": 1, "2": 2})
    await watch.pod.polled(5)
    assert watch.told == told, "not at once"
    await watch.until(lambda: watch.told == told + 1)


async def test_lag_is_told_with_each_poll_while_a_message_is_old(watch: Watch) -> None:
    def answer(messages: int, seconds: float) -> dict[str, Any]:
        names = ("lagBytes", "droppedMessages", "replayedMessages", "duplicateMessages", "gapMessages")
        site = {"site": "sfo", "state": "up", "members": [], "problem": "", **dict.fromkeys(names, 0)}
        site |= {"lagMessages": messages, "lagSeconds": seconds}
        member = {"group": "g", "site": "nyc", "view": 1, "members": [], "problems": [], "accepts": True}
        return {"router": {"id": "west-0", "configHash": "2"}, "relay": {**member, "remotes": [site]}}

    watch.pod.answer = answer(0, 0.0)
    await watch.until(lambda: watch.hash() == "2")
    patient = Observer(watch._on_change, interval=0.02, numbers_seconds=600.0)
    watch.observer.watch("net", {})
    try:
        patient.watch("net", {"west-0": watch.target})
        await watch.pod.polled(2)
        told = watch.told
        watch.pod.answer = answer(3, 0.02)
        await watch.pod.polled(3)
        assert watch.told == told, "what is under way all the time is no news"
        for step in (1, 2):
            watch.pod.answer = answer(3, step)
            await watch.until(lambda step=step: watch.told >= told + step)
        watch.pod.answer = answer(0, 0.0)
        await watch.until(lambda: watch.told >= told + 3)
    finally:
        await patient.close()


async def test_answers_that_take_long_to_read_leave_the_processor_to_others(watch: Watch) -> None:
    """16 pods of a namespace are polled as often as can be, and each answer takes 20 ms of a processor."""
    watch.observer.watch("net", {})
    cost, loop = 0.02, asyncio.get_running_loop()
    clock = itertools.count()
    busy = Observer(lambda namespace: None, interval=0.001, cpu=lambda: next(clock) * cost)
    before, started = watch.pod.polls, loop.time()
    busy.watch("busy", {f"west-{number}": watch.target for number in range(16)})
    try:
        while watch.pod.polls < before + 25:
            await watch.pod.polled(1)
    finally:
        await busy.close()
    at_first = MAX_PARALLEL_PER_NAMESPACE
    assert loop.time() - started >= (25 - 1 - at_first) * cost / READING_SHARE
    assert len(busy.observations("busy")) == 16


async def test_long_answers_are_read_apart(watch: Watch) -> None:
    """Not in the event loop, which renews the lease."""
    readers: list[int] = []

    def parse(answer: Any, now: datetime) -> RouterReport:
        readers.append(threading.get_ident())
        return parse_report(answer, now)

    assert isinstance(watch.pod.answer, dict)
    watch.pod.answer["padding"] = "x" * LONG_BYTES
    watch.observer.watch("net", {"west-0": replace(watch.target, parse=parse)})
    await watch.until(lambda: watch.hash() == "1")
    assert threading.get_ident() not in readers


async def test_pods_of_one_namespace_do_not_slow_down_those_of_others(watch: Watch) -> None:
    """2,000 pods that do not answer: the others would be asked every 40 s."""
    observer = Observer(lambda namespace: None, interval=0.2)
    nobody = Target("uid", "127.0.0.1", 1)
    try:
        observer.watch("attacker", {f"pod-{number}": nobody for number in range(2_000)})
        observer.watch("net", {"west-0": watch.target})
        watch.observer.watch("net", {})
        async with asyncio.timeout(TIMEOUT):
            await watch.pod.polled(4)
        pauses = {namespace: observer._pause(namespace) for namespace in ("attacker", "net")}
    finally:
        await observer.close()
    assert pauses["net"] < 0.5
    assert pauses["attacker"] > 30


async def test_silent_pods_of_many_namespaces_do_not_slow_down_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one queue, each request to a pod of another namespace came after one to each of 480 silent pods."""
    asked: Counter[str] = Counter()
    enough = asyncio.Event()

    async def fetch(ip: str, *_: Any, **__: Any) -> bytes:
        await asyncio.sleep(0.03 if ip == "silent" else 0.001)
        asked[ip] += 1
        if asked["canary"] == 10:
            enough.set()
        if ip == "silent":
            raise TimeoutError
        return b"{}"

    monkeypatch.setattr(observe, "fetch", fetch)
    monkeypatch.setattr(observe, "REQUESTS_PER_SECOND", 1e9)
    observer = Observer(lambda namespace: None, interval=0.01)
    for number in range(60):
        observer.watch(f"w{number}", {f"pod-{pod}": Target("uid", "silent", 1) for pod in range(8)})
    await asyncio.sleep(0.3)
    before = asked["silent"]
    observer.watch("net", {"west-0": Target("uid", "canary", 1)})
    try:
        async with asyncio.timeout(TIMEOUT):
            await enough.wait()
    finally:
        await observer.close()
    assert asked["silent"] - before < 10 * 3 * observe.MAX_PARALLEL
