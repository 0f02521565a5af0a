"""An application that comes later gets the state of another one, then exactly what is not in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from tests.integration.sites.support.relay_sites import RelaySites, Stream
from tests.integration.support.client import Client, Clients
from tests.integration.support.routers import Routers
from tests.integration.support.topology import ROUTER_ATTRIBUTES

STATE = "trades/state"


class Application:
    """Its state is the list of numbers that it has got; it gives it, in parts, to who asks."""

    def __init__(self, client: Client, *, gets_state: bool, part: int = 4_000) -> None:
        self.numbers: list[int] = []
        self.requests = 0
        self.had_state = not gets_state
        self._part = part
        capability = "isthmus.relay-state" if gets_state else None
        self.receiver = client.receiver(STATE, credit=2_000, accept=True, capability=capability)
        self._answers = client.sender(None)

    def work(self) -> int:
        """Deal with what has come; how much it knows."""
        arrived = self.receiver.arrived()
        self.receiver.received = self.receiver.received[len(arrived) :]
        for item in arrived:
            message = item.message
            annotations = {str(key): value for key, value in (message.annotations or {}).items()}
            if "x-opt-isthmus.state-request" in annotations:
                assert message.subject == "isthmus.state-request"
                self.requests += 1
                self._answer(message.reply_to)
            elif "x-opt-isthmus.state" in annotations:
                assert not self.had_state
                self.numbers += json.loads(message.body)
                self.had_state = annotations["x-opt-isthmus.state"] == "last"
            else:
                assert self.had_state, "nothing comes before the state"
                self.numbers.append(int(message.body))
        return len(self.numbers)

    def _answer(self, to: str) -> None:
        parts = [self.numbers[at : at + self._part] for at in range(0, len(self.numbers), self._part)] or [[]]
        for at, part in enumerate(parts, 1):
            more: dict[str, Any] = {"isthmus_more": True} if at < len(parts) else {}
            self._answers.send(Message(json.dumps(part), address=to, properties=more))


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients()
    yield clients
    clients.close()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[RelaySites]:
    """NYC and SFO, each of two members."""
    routers = Routers(tmp_path)
    sites = RelaySites()
    for site in ("nyc", "sfo"):
        members = [routers.add(f"{site}-{number}", mode="interior") for number in (0, 1)]
        for member in members:
            member.sections[0][1].update(ROUTER_ATTRIBUTES)
        sites.site(site, *members, stateAddress=STATE)
    sites.direct("nyc", "sfo")
    routers.start_all()
    sites.formed()
    yield sites
    routers.stop()


def everything(application: Application, stream: Stream) -> Callable[[], bool]:
    return lambda: application.work() >= stream.count


@pytest.mark.parametrize("killed", ["nothing", "providing", "asking"])
def test_snapshot_and_tail_are_the_whole_sequence(sites: RelaySites, clients: Clients, killed: str) -> None:
    near, far = sites.other("nyc"), sites.other("sfo")
    first = Application(clients.connect(near.port), gets_state=False)
    stream = Stream(clients, clients.connect(near.port).sender("relay/trades").await_credit())
    stream.send(10_000)
    clients.until(everything(first, stream), "the first application has everything so far")
    second = Application(clients.connect(far.port), gets_state=True)
    if killed != "nothing":
        sites.relay("nyc" if killed == "providing" else "sfo").kill()
    for _ in range(50):
        stream.send(40)
        first.work()
        second.work()
    for application in (first, second):
        clients.until(lambda a=application: first.work() + a.work() and everything(a, stream)(), "everything")  # type: ignore[misc]
    stream.accepted()
    clients.round_trip()
    for application in (first, second):
        application.work()
        assert application.numbers == list(range(stream.count))
    assert first.requests >= 1
    # Who has got the state gives it as well.
    third = Application(clients.connect(sites.relay("sfo").port), gets_state=True)
    stream.send(100)
    clients.until(
        lambda: first.work() and second.work() and third.work() >= stream.count, "everything at the third"
    )
    assert third.numbers == list(range(stream.count))
    assert second.requests == 1, "one in the own site is asked first"


def test_nobody_gives_it(sites: RelaySites, clients: Clients) -> None:
    client = clients.connect(sites.other("sfo").port)
    receiver = client.receiver("relay/trades", credit=10, capability="isthmus.relay-state")
    condition = client.refusal(receiver.link)
    assert condition.name == "amqp:not-found"
    assert condition.description.count("no application there gives it") == 4
    assert "nyc/nyc-0" in condition.description
    sender = client.sender(STATE).await_credit()
    assert sender.deliver("stray") == "rejected"


def test_an_application_that_is_asked_and_goes(sites: RelaySites, clients: Clients) -> None:
    silent = clients.connect(sites.relay("nyc").port)
    requests = silent.receiver(STATE, credit=10, accept=True)
    waiting = clients.connect(sites.relay("sfo").port)
    receiver = waiting.receiver("relay/trades", credit=10, capability="isthmus.relay-state")
    clients.until(lambda: requests.received, "a request")
    silent.close()
    assert "the application has gone" in waiting.refusal(receiver.link).description
