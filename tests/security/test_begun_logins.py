"""Logins with SCRAM, each of which has the router compute for 5 ms before a password is proven: by clients that leave
then, and by servers that choose for how long a connector computes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from tests.integration.support.passwords import PASSWORD, use_database, user_database
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    SASL_CHALLENGE,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    SASL_RESPONSE,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.security.support.canary import Canary, cpu

from isthmus_router.message.types import Symbol, UByte

ATTACKER, NEIGHBOR = "127.0.0.2", "127.0.0.3"
ALICE, BOB = "alice@isthmus", "bob@isthmus"
FOR_NAME, FOR_HOST = 50, 100
NAMES = 12
CROWD = 120
MORE_THAN_ONE_STEP_SECONDS = 0.025
"""A step takes 5 ms, on a busy machine more; what has no bound took 76 ms."""


@pytest.fixture
def port() -> int:
    """Of the listener with passwords. The canary uses another one, without."""
    return free_port()


@pytest.fixture
def guarded(routers: Routers, tmp_path: Path, port: int) -> Router:
    attributes = {"authenticatePeer": True, "saslMechanisms": "SCRAM-SHA-256"}
    router = routers.add("A", listener(port, name="guarded", **attributes))
    use_database(router, user_database(tmp_path, "alice", "bob", *(f"user-{n}" for n in range(NAMES))))
    return router.start()


class Login(RawConnection):
    """A login with SCRAM-SHA-256, up to where the client waits for the challenge."""

    def __init__(self, port: int, host: str = ATTACKER, user: str = ALICE, *, first: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60, source_address=(host, 0))
        self._input, self._kept, self.ended = b"", [], False
        self._bare = f"n={user},r=abcdefgh".encode()
        self.send(SASL_HEADER)
        if first:
            self.send(self.init())
        self.expect(SASL_MECHANISMS)

    def init(self) -> bytes:
        """The frame that has the router compute."""
        return frame(SASL_INIT, [Symbol("SCRAM-SHA-256"), self.init_data()])

    def init_data(self) -> bytes:
        """The name, for the mechanism."""
        return b"n,," + self._bare

    def challenge(self) -> bytes | None:
        """What the router asks; None if it has refused the login."""
        found = self.expect_one_of(SASL_CHALLENGE, SASL_OUTCOME)
        return None if found.code == SASL_OUTCOME else bytes(found.fields[0])

    def leave(self) -> bool:
        """Whether the router has computed."""
        with self:
            return self.challenge() is not None

    def succeeds(self) -> bool:
        """Whether the right password logs in."""
        with self:
            asked = self.challenge()
            return asked is not None and self.prove(asked) == 0

    def prove(self, asked: bytes) -> Any:
        """Send the proof; the outcome."""
        found = re.fullmatch(rb"(r=[^,]*),s=([^,]*),i=(\d+)", asked)
        assert found is not None
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(found[2]), int(found[3]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = b"c=biws," + found[1]
        signed = b",".join((self._bare, asked, final))
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        self.send(frame(SASL_RESPONSE, [final + b",p=" + proof]))
        answer = self.expect_one_of(SASL_CHALLENGE, SASL_OUTCOME)
        if answer.code == SASL_CHALLENGE:  # the proof of the router
            self.send(frame(SASL_RESPONSE, [b""]))
            answer = self.expect(SASL_OUTCOME)[0]
        return answer.fields[0]


def failed(router: Router, outcome: str) -> int:
    """What the router has counted."""
    return int(router.metric("failed_logins_total", f'outcome="{outcome}"'))


def storm(port: int, logins: list[tuple[str, str]], rounds: int) -> int:
    """How many logins have had the router compute; one of each host and user is begun at the same time, again and
    again."""
    computed = 0
    for _ in range(rounds):
        begun = [Login(port, host, user, first=False) for host, user in logins]
        for login in begun:
            login.send(login.init())
        with ThreadPoolExecutor(len(begun)) as threads:  # each leaves as soon as it is answered
            computed += sum(threads.map(Login.leave, begun))
    return computed


def test_a_host_that_leaves_its_logins_is_refused(guarded: Router, port: int) -> None:
    assert Login(port, user=BOB).succeeds()
    with Canary(guarded) as canary:
        begun = time.monotonic()
        computed = storm(port, [(ATTACKER, ALICE)] * 30, 6)
        seconds = time.monotonic() - begun
        assert Login(port, user=BOB).succeeds(), "another user at the same address"
        assert Login(port, NEIGHBOR).succeeds(), "alice elsewhere"
    canary.report.check()
    assert canary.report.cpu_p99 < MORE_THAN_ONE_STEP_SECONDS
    assert FOR_NAME <= computed <= FOR_NAME + FOR_NAME * seconds / 60 + 1
    guarded.await_log("login failed", '"outcome":"abandoned"')
    line = next(json.loads(one) for one in guarded.log.splitlines() if '"abandoned"' in one)
    assert (line["event"], line["listener"], line["user"]) == ("login.failed", "guarded", ALICE)
    assert line["mechanism"] == "SCRAM-SHA-256"
    assert failed(guarded, "abandoned") == computed
    assert failed(guarded, "throttled") == 6 * 30 - computed


def test_many_names_are_no_way_around(guarded: Router, port: int) -> None:
    assert Login(port, user=BOB).succeeds()
    begun = time.monotonic()
    users = [(ATTACKER, f"user-{n}@isthmus") for n in range(NAMES)]
    computed = storm(port, users * 4, FOR_HOST // NAMES // 2)
    seconds = time.monotonic() - begun
    assert FOR_HOST <= computed <= FOR_HOST + FOR_HOST * seconds / 60 + 1
    assert Login(port, user=BOB).succeeds(), "a user that has logged in from this host before can log in"
    assert Login(port, NEIGHBOR).succeeds()


def test_others_are_served_between_the_logins_of_many_hosts(guarded: Router, port: int) -> None:
    hosts = [(f"127.0.1.{n}", ALICE) for n in range(1, 61)]
    with Canary(guarded) as canary:
        assert storm(port, hosts, 6) == 6 * len(hosts)
    canary.report.check()
    assert canary.report.cpu_p99 < MORE_THAN_ONE_STEP_SECONDS


def test_a_crowd_behind_one_address_logs_in(guarded: Router, port: int) -> None:
    """All at the same time and with one name, when many connections have broken in the middle."""
    for _ in range(FOR_NAME):
        assert Login(port).leave()
    crowd = [Login(port) for _ in range(CROWD)]
    for login in crowd:
        assert login.succeeds()
    assert failed(guarded, "abandoned") == FOR_NAME
    assert failed(guarded, "throttled") == failed(guarded, "refused") == 0


def test_frames_that_come_before_the_challenge_end_the_login(guarded: Router, port: int) -> None:
    for more in (SASL_INIT, SASL_RESPONSE):
        with Login(port, first=False) as login:
            second = login.init() if more == SASL_INIT else frame(SASL_RESPONSE, [b"c=biws,r=x,p=AAAA"])
            login.send(login.init() + second)
            assert login.challenge() is None
    assert Login(port).succeeds()
    assert failed(guarded, "abandoned") == 0


def test_the_name_may_come_in_the_second_frame(guarded: Router, port: int) -> None:
    """It is that frame which has the router compute."""
    assert not failed(guarded, "abandoned")
    for leaves in (False, True):
        with Login(port, first=False) as login:
            login.send(frame(SASL_INIT, [Symbol("SCRAM-SHA-256")]))
            assert login.challenge() == b""
            login.send(frame(SASL_RESPONSE, [login.init_data()]))
            asked = login.challenge()
            assert asked is not None
            assert leaves or login.prove(asked) == 0
    guarded.await_log("login failed", '"outcome":"abandoned"')
    assert failed(guarded, "abandoned") == 1


class ScramServer:
    """A server that demands a number of iterations from each client, and refuses the proof."""

    def __init__(self, iterations: str) -> None:
        self._iterations = iterations
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.asked = self.proven = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=[sock], daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError, TimeoutError), sock:
            sock.settimeout(30)
            sock.sendall(SASL_HEADER + frame(SASL_MECHANISMS, [Symbol("SCRAM-SHA-256")]))
            received = b""
            while not (nonce := re.search(rb",r=([A-Za-z0-9+/=]{20,})", received)):
                if not (data := sock.recv(4096)):
                    return
                received += data
            challenge = b"r=" + nonce[1] + b"XYZ,s=QUFBQQ==,i=" + self._iterations.encode()
            sock.sendall(frame(SASL_CHALLENGE, [challenge]))
            self.asked += 1
            if b"p=" in sock.recv(4096):
                self.proven += 1
                sock.sendall(frame(SASL_OUTCOME, [UByte(1)]))


def with_connectors(routers: Routers, server: ScramServer, count: int) -> Router:
    attributes = {"saslUsername": "bob", "saslPassword": PASSWORD, "saslMechanisms": "SCRAM-SHA-256"}
    connectors = [connector(server.port, "route-container", name=f"c{n}", **attributes) for n in range(count)]
    return routers.start("A", *connectors)


@pytest.mark.parametrize(
    ("iterations", "reason"),
    [
        ("65536", "the server demands 65536 iterations of SCRAM, and at most 10000 are made"),
        (" +65536", "the server states an iteration count for SCRAM that is no valid number"),
    ],
)
def test_a_server_demands_many_iterations(routers: Routers, iterations: str, reason: str) -> None:
    with ScramServer(iterations) as server:
        router = with_connectors(routers, server, 10)
        before = cpu(router.pid)
        with Canary(router) as canary:
            time.sleep(6)
        canary.report.check()
        assert canary.report.cpu_p99 < MORE_THAN_ONE_STEP_SECONDS
        assert cpu(router.pid) - before < 3
        router.await_log("connector failed", reason)
        assert server.asked >= 10
        assert server.proven == 0


def test_a_server_refuses_each_login(routers: Routers) -> None:
    """The most iterations that are made: the connectors compute seldom."""
    with ScramServer("10000") as server:
        router = with_connectors(routers, server, 10)
        with Canary(router) as canary:
            time.sleep(6)
        canary.report.check()
        assert 10 <= server.proven <= 30
