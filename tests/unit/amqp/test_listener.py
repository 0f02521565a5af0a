"""Listeners: how long they accept connections before other things get their turn."""

from __future__ import annotations

import itertools
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus_router.amqp import listener as module
from isthmus_router.amqp.listener import ACCEPT_BATCH, ACCEPT_SECONDS, Listener

WAITING = 20


class Waiting:
    """A socket that listens, with connections that wait."""

    def __init__(self) -> None:
        self.left = WAITING

    def accept(self) -> tuple[Any, Any]:
        if not self.left:
            raise BlockingIOError
        self.left -= 1
        return socket.socket(), ("127.0.0.1", 1000 + self.left)


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """A listener, and what it has given to its driver."""
    adopted: list[Any] = []

    def adopt(client: socket.socket, *_: object, **__: object) -> object:
        client.close()
        adopted.append(client)
        return object()

    driver = SimpleNamespace(adopt=adopt, flush=lambda: None)
    config = SimpleNamespace(max_handshakes=1000, max_handshakes_per_host=1000, name="clients")
    return Listener(driver, config, SimpleNamespace()), adopted  # type: ignore[arg-type]


def clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """Time passes by `step` seconds whenever it is read."""
    times = itertools.count(start=5.0, step=step)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times)))


def test_connections_that_take_long_to_accept(
    accepting: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, ACCEPT_SECONDS / 4)
    listener, adopted = accepting
    waiting = Waiting()
    listener._on_acceptable(waiting)
    assert len(adopted) == 4
    while waiting.left:
        before = len(adopted)
        listener._on_acceptable(waiting)
        assert before < len(adopted) <= before + 4
    assert len(adopted) == WAITING


def test_one_connection_is_accepted_however_long_it_takes(
    accepting: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 2 * ACCEPT_SECONDS)
    listener, adopted = accepting
    listener._on_acceptable(Waiting())
    assert len(adopted) == 1


def test_connections_that_take_no_time(
    accepting: tuple[Any, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 0.0)
    listener, adopted = accepting
    listener._on_acceptable(Waiting())
    assert len(adopted) == min(WAITING, ACCEPT_BATCH)
