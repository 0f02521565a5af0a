"""Diallers: pauses between attempts, and never two attempts at a time."""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus_router.amqp.connector import DATA_INTERVAL_SECONDS, Connector
from isthmus_router.amqp.dialler import (
    FIRST_DELAY_AFTER_REFUSAL,
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_AFTER_REFUSAL,
    LONGEST_DELAY_SECONDS,
    Backoff,
    Dialler,
)
from isthmus_router.amqp.settings import connector_settings
from isthmus_router.amqp.tls import UNTRUSTED, explain_failure
from isthmus_router.config.loader import load
from isthmus_router.config.model import Configuration
from isthmus_router.core.roles import Role
from isthmus_router.host_names import HostNames


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    backoff = Backoff(random.Random(1))
    expected = FIRST_DELAY_SECONDS
    for _ in range(12):
        assert expected / 2 <= backoff.next_delay() <= expected
        expected = min(expected * 2, LONGEST_DELAY_SECONDS)
    assert expected == LONGEST_DELAY_SECONDS
    backoff.reset()
    assert backoff.next_delay() <= FIRST_DELAY_SECONDS


def test_pauses_after_refused_logins_are_longer() -> None:
    backoff = Backoff(random.Random(1))
    expected = FIRST_DELAY_AFTER_REFUSAL
    for _ in range(6):
        assert expected / 2 <= backoff.next_delay(refused=True) <= expected
        expected = min(expected * 2, LONGEST_DELAY_AFTER_REFUSAL)
    assert expected == LONGEST_DELAY_AFTER_REFUSAL
    assert backoff.next_delay() <= LONGEST_DELAY_SECONDS, "the host cannot be reached any more"
    backoff.reset()
    assert backoff.next_delay() <= FIRST_DELAY_SECONDS


def test_jitter_keeps_routers_apart() -> None:
    delays = {Backoff(random.Random(seed)).next_delay() for seed in range(20)}
    assert len(delays) == 20


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("SSL Failure: error:0A000086:SSL routines::certificate verify failed", UNTRUSTED),
        (
            "SSL Failure: error:0A000418:SSL routines::tlsv1 alert unknown ca",
            "it does not know the authority",
        ),
        ("SSL Failure: error:0A000415:SSL routines::sslv3 alert certificate expired", "it has expired"),
        ("SSL Failure: error:0A0000C7:SSL routines::peer did not return a certificate", "no certificate"),
        ("SSL Failure: error:0A00010B:SSL routines::wrong version number", "does not speak TLS"),
        ("SSL Failure: something new", "TLS failed: SSL Failure: something new"),
    ],
)
def test_tls_failures_in_words(description: str, words: str) -> None:
    assert words in explain_failure("amqp:connection:framing-error", description)


def test_other_failures_keep_their_condition() -> None:
    assert explain_failure("amqp:decode-error", "bad frame") == "amqp:decode-error: bad frame"


class CountingDriver:
    """A driver that counts the sockets it is given."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.adopted: list[socket.socket] = []
        self.first = asyncio.Event()
        self.host_names = HostNames()

    def adopt(self, sock: socket.socket, *arguments: Any, **options: Any) -> Any:
        self.adopted.append(sock)
        self.first.set()
        return SimpleNamespace(close=sock.close, opened=False)

    def flush(self) -> None:
        pass


def with_connector(folder: Path, port: int) -> Configuration:
    """A router with one connector."""
    file = folder / "router.conf"
    file.write_text(
        "router {\n mode: interior\n id: A\n}\n"
        f"connector {{\n name: c\n host: 127.0.0.1\n port: {port}\n role: inter-router\n}}\n"
    )
    return load(str(file), None)


async def test_never_two_attempts_at_a_time(tmp_path: Path) -> None:
    """Starting again, as renewed credentials do, replaces an attempt that waits for its turn."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = with_connector(tmp_path, server.getsockname()[1]).connectors[0]
        driver = CountingDriver()
        settings: Any = SimpleNamespace(tls=None)
        dialler = Dialler(driver, config, settings)  # type: ignore[arg-type]
        dialler._failed("a first attempt failed")
        dialler.start()
        async with asyncio.timeout(5):
            await driver.first.wait()
        await asyncio.sleep(2 * FIRST_DELAY_SECONDS)
        assert len(driver.adopted) == 1
        dialler.close()


def test_data_connections_do_not_shake_hands_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(Dialler, "start", lambda _, delay=0.0: delays.append(delay))
    configuration = with_connector(tmp_path, 5672)
    config = configuration.connectors[0]
    driver: Any = None
    connector = Connector(driver, config, connector_settings(config, configuration), data_connections=3)
    connector.start()
    connector._start_data(connector._diallers[0])
    assert delays == [0.0, *(place * DATA_INTERVAL_SECONDS for place in (1, 2, 3))]


@pytest.mark.parametrize("role", [Role.INTER_ROUTER, Role.INTER_ROUTER_DATA, Role.EDGE])
async def test_what_is_retired_in_its_handshake(tmp_path: Path, role: Role) -> None:
    """Only a data connection may be in use at the peer before this router knows that it has opened."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = with_connector(tmp_path, server.getsockname()[1]).connectors[0]
        driver = CountingDriver()
        settings: Any = SimpleNamespace(tls=None, role=role)
        dialler = Dialler(driver, config, settings)  # type: ignore[arg-type]
        dialler.start()
        async with asyncio.timeout(5):
            await driver.first.wait()
        dialler.retire()
        assert (dialler.connection is not None) == (role is Role.INTER_ROUTER_DATA)
        assert (driver.adopted[0].fileno() >= 0) == (role is Role.INTER_ROUTER_DATA)
        dialler.close()
        assert driver.adopted[0].fileno() < 0


@pytest.mark.parametrize("ordinal", [1, 2])
def test_nothing_is_dialled_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordinal: int
) -> None:
    """Renewed credentials may come to a connector that the end of the router has closed."""
    started: list[Dialler] = []
    monkeypatch.setattr(Dialler, "start", lambda dialler, delay=0.0: started.append(dialler))
    configuration = with_connector(tmp_path, 5672)
    config = configuration.connectors[0]
    driver: Any = None
    tls: Any = SimpleNamespace(ordinal=1)
    settings = replace(connector_settings(config, configuration), tls=tls)
    connector = Connector(driver, config, settings)
    connector.close()
    connector.renew(replace(settings, tls=SimpleNamespace(ordinal=ordinal)))
    assert started == []
    assert connector.state == "closed"
