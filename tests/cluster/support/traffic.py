"""Messages from one site to another while something happens to them, and what must have become of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Self

from .clients import Client
from .sites import ADDRESS, Site

RATE, MORE = 20, 20
SPACING = 1_000_000
"""Between the first numbers of senders."""


class Traffic:
    """A sender at each member of one site, a receiver of the group's address at each member of the other, and
    requests to one member of it. Senders send each number once."""

    def __init__(
        self, name: str, source: Site, to: Site, asker: str, server: str, *, witness: bool = False
    ) -> None:
        """`asker` and `server` are the members that the clients of requests are at. A `witness` is one more
        receiver, at the source."""
        self.name, self.source, self.to = name, source, to
        address = f"{ADDRESS}/{to.name}/{server}"
        self.server = to.start(f"{name}-serve", "serve", to.url(server), address)
        self.receivers = {
            pod: to.start(f"{name}-at-{pod}", "receive", to.url(pod), ADDRESS, "--stay") for pod in to.pods
        }
        if witness:
            self.receivers["witness"] = source.start(
                f"{name}-witness", "receive", source.url(asker), ADDRESS, "--stay"
            )
        for receiver in self.receivers.values():
            receiver.reaches("attached", True)
        self.senders = {
            pod: source.start(f"{name}-from-{pod}", *self._sending(pod, number), f"--rate={RATE}")
            for number, pod in enumerate(source.pods)
        }
        self.requester = source.start(
            f"{name}-ask", "request", source.url(asker), address, f"--rate={RATE // 3}"
        )
        self._reach(dict.fromkeys((*self.senders.values(), self.requester), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Takes the clients away, also those of a test that has failed."""
        for site in (self.source, self.to):
            site.network.kubectl("delete", "pod", "--selector=run=client", "--now")

    def _sending(self, pod: str, number: int) -> tuple[str, ...]:
        return "send", self.source.url(pod), ADDRESS, f"--base={number * SPACING}"

    def advance(self) -> None:
        """Waits until every sender has some more accepted, and some more requests are answered."""
        counts = {sender: sender.progress()["accepted"] for sender in self.senders.values()}
        self._reach({**counts, self.requester: self.requester.progress()["answered"]})

    def _reach(self, before: Mapping[Client, int]) -> None:
        for client, count in before.items():
            field = "answered" if client is self.requester else "accepted"
            client.reaches(field, count + MORE)

    def end(self, *, interrupted: Iterable[str] = ()) -> None:
        """Ends the clients. Every receiver has each number at most once and in order, and all that is accepted;
        but for those at members that `interrupted` names, which have lost their connection once: what they miss has
        no other number between, and is at another receiver."""
        for sender in self.senders.values():
            sender.stop()
        sent = [sender.report() for sender in self.senders.values()]
        last = len(self.source.pods) * SPACING
        pod = self.source.pods[-1]
        self.source.start(
            f"{self.name}-last", *self._sending(pod, len(self.source.pods)), "--count=1"
        ).report()
        for receiver in self.receivers.values():
            receiver.reaches("greatest", last)
            receiver.stop()
        got = {pod: receiver.report() for pod, receiver in self.receivers.items()}
        for number, report in enumerate(sent):
            self._check(number, report["outcomes"], got, set(interrupted))
        for pod, report in got.items():
            if pod not in interrupted:
                assert (report["detaches"], report["disconnects"]) == ({}, []), pod

    def _check(
        self, sender: int, outcomes: dict[str, list[int]], got: dict[str, dict[str, Any]], cut: set[str]
    ) -> None:
        first = sender * SPACING
        together: set[int] = set()
        accepted = set(outcomes["accepted"])
        for pod, report in got.items():
            numbers = [number - first for number in report["numbers"] if first <= number < first + SPACING]
            assert all(one < next for one, next in pairwise(numbers)), f"{pod}: {disorder(numbers)}"
            unknown = set(numbers) - accepted - set(outcomes["lost"])
            assert not unknown, f"{pod}: refused, and yet there: {sorted(unknown)[:10]}"
            missing = sorted(accepted - set(numbers))
            if pod not in cut:
                assert not missing, f"{pod}: {len(missing)} of sender {sender} missing, {missing[:10]}"
            elif missing:
                between = [number for number in numbers if missing[0] < number < missing[-1]]
                assert not between, f"{pod}: {between[:10]} of sender {sender}, and not {missing[:10]}"
            together |= set(numbers)
        nowhere = accepted - together
        assert not nowhere, f"{len(nowhere)} of sender {sender} nowhere, {sorted(nowhere)[:10]}"

    def all_answered(self) -> None:
        """Ends the requests: each is answered."""
        self.requester.stop()
        report = self.requester.report()
        assert report["answered"] == list(range(report["sent"]))
        assert report["disconnects"] == []


def disorder(numbers: list[int]) -> str:
    """Where numbers do not rise, for people."""
    found = [(one, next) for one, next in pairwise(numbers) if next <= one]
    return f"{len(found)} times out of order, {found[:5]}"
