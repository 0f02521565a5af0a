"""A host that tries passwords has few of them checked; its tries are logged and affect nobody else."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.client import Clients
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
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, memory

from isthmus_router.message.types import Symbol

ATTACKER, NEIGHBOR = "127.0.0.2", "127.0.0.3"
ALICE, BOB = "alice@isthmus", "bob@isthmus"
MEBIBYTE = 1 << 20
OTHERS = (ALICE, "carol@isthmus", "dave@isthmus", "erin@isthmus")
PER_NAME, PER_HOST = 10, 100
RIGHT_PASSWORDS = 4
TRIES = 300
MOST_CPU_SECONDS = 0.05
"""For anything while a message of the canary is on its way."""
MOST_CPU_SECONDS_OF_PROOFS = 0.15
"""The same where ten proofs come at once, which take 5 ms each."""


@pytest.fixture
def port() -> int:
    """Of the listener with passwords. The canary uses another one, without."""
    return free_port()


@pytest.fixture
def guarded(routers: Routers, tmp_path: Path, port: int) -> Router:
    mechanisms = "PLAIN SCRAM-SHA-256 ANONYMOUS"
    attributes = {"authenticatePeer": True, "initialHandshakeTimeoutSeconds": 120}
    router = routers.add("A", listener(port, name="guarded", saslMechanisms=mechanisms, **attributes))
    use_database(router, user_database(tmp_path, "alice", "bob", "carol", "dave", "erin"))
    return router.start()


class Guess(RawConnection):
    """A connection from another address of this machine, up to the mechanisms."""

    def __init__(self, port: int, host: str = ATTACKER) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60, source_address=(host, 0))
        self._input, self._kept, self.ended = b"", [], False
        self.send(SASL_HEADER)
        self.expect(SASL_MECHANISMS)

    def outcome(self) -> Any:
        """0 is success."""
        (found,) = self.expect(SASL_OUTCOME)
        return found.fields[0]


def init(mechanism: str, data: bytes) -> bytes:
    return frame(SASL_INIT, [Symbol(mechanism), data])


def plain(port: int, user: str, password: str, host: str = ATTACKER) -> bool:
    """Whether a login succeeds."""
    with Guess(port, host) as guess:
        guess.send(init("PLAIN", f"\0{user}\0{password}".encode()))
        return bool(guess.outcome() == 0)


def scram(port: int, user: str) -> bool:
    """Whether the router asks for the proof; the one that it gets is wrong."""
    with Guess(port) as guess:
        guess.send(init("SCRAM-SHA-256", f"n,,n={user},r=abcdefgh".encode()))
        found = guess.expect_one_of(SASL_CHALLENGE, SASL_OUTCOME)
        if found.code == SASL_OUTCOME:
            return False
        nonce = bytes(found.fields[0]).split(b",")[0]
        guess.send(frame(SASL_RESPONSE, [b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="]))
        assert guess.outcome() != 0
        return True


def failed(router: Router, outcome: str) -> int:
    """What the router has counted."""
    return int(router.metric("failed_logins_total", f'outcome="{outcome}"'))


def lines(router: Router) -> list[dict[str, Any]]:
    """Of the log, about logins."""
    found = (json.loads(line) for line in router.log.splitlines() if line.startswith("{"))
    return [line for line in found if line.get("event") == "login.failed"]


def test_guesses_for_one_user_are_not_checked_for_long(clients: Clients, guarded: Router, port: int) -> None:
    before = memory(guarded.pid)
    with Canary(guarded) as canary:
        assert not any(plain(port, ALICE, f"guess {n}") for n in range(TRIES))
        # The right password would have been the next guess. One in 6 seconds is checked, hence more than one try.
        assert not all(
            plain(port, ALICE, "guess") or plain(port, ALICE, PASSWORD) for _ in range(RIGHT_PASSWORDS)
        )
        # Neither alice elsewhere nor bob at the same address is affected.
        assert plain(port, ALICE, PASSWORD, NEIGHBOR)
        assert plain(port, BOB, PASSWORD)
        clients.connect(port, user=ALICE, password=PASSWORD, mechanisms="PLAIN")
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    checked, unchecked = failed(guarded, "refused"), failed(guarded, "throttled")
    assert checked + unchecked > TRIES
    assert PER_NAME <= checked < TRIES / 2
    assert memory(guarded.pid) < before + 20 * MEBIBYTE


def test_guesses_for_many_users_are_not_checked_for_long(guarded: Router, port: int) -> None:
    assert plain(port, BOB, PASSWORD)
    with Canary(guarded) as canary:
        assert not any(plain(port, f"user-{n}", PASSWORD) for n in range(TRIES))
        # One in 0.6 seconds is checked, hence more than one user.
        assert not all(plain(port, "guess", "x") or plain(port, user, PASSWORD) for user in OTHERS)
        assert plain(port, BOB, PASSWORD), "a user that has logged in from this host before can log in"
        assert plain(port, ALICE, PASSWORD, NEIGHBOR)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert PER_HOST <= failed(guarded, "refused") < TRIES
    assert failed(guarded, "throttled") > 0


def test_guesses_with_scram_count_when_the_proof_is_wrong(guarded: Router, port: int) -> None:
    with Canary(guarded) as canary:
        challenged = sum(scram(port, ALICE) for _ in range(60))
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert PER_NAME <= challenged < 60
    assert failed(guarded, "refused") == challenged
    assert plain(port, BOB, PASSWORD)


def test_exchanges_that_wait_for_the_proof_are_no_way_around(guarded: Router, port: int) -> None:
    with Canary(guarded) as canary:
        waiting = [Guess(port) for _ in range(40)]
        for guess in waiting:
            guess.send(init("SCRAM-SHA-256", f"n,,n={ALICE},r=abcdefgh".encode()))
        challenges = [guess.expect(SASL_CHALLENGE)[0] for guess in waiting]
        for guess, challenge in zip(waiting, challenges, strict=True):
            nonce = bytes(challenge.fields[0]).split(b",")[0]
            guess.send(frame(SASL_RESPONSE, [b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="]))
            assert guess.outcome() != 0
            guess.socket.close()
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS_OF_PROOFS, canary.report
    assert failed(guarded, "refused") < 40
    assert failed(guarded, "throttled") > 0


def test_frames_after_a_refusal_do_not_reach_the_mechanism(guarded: Router, port: int) -> None:
    for _ in range(PER_NAME + 5):
        with Guess(port) as guess:
            first = init("SCRAM-SHA-256", f"n,,n={ALICE},r=abcdefgh".encode())
            more = [frame(SASL_RESPONSE, [b"c=biws,r=x,p=AAAA"]), first, init("PLAIN", b"\0a\0b")]
            guess.send(init("PLAIN", f"\0{ALICE}\0guess".encode()), *more, *more)
            assert b"\x00\x53\x44\xc0\x03\x01\x50\x00" not in guess.receive(), "no outcome is success"
    assert plain(port, ALICE, PASSWORD, NEIGHBOR)


def test_failed_logins_are_logged_with_their_user(guarded: Router, port: int) -> None:
    name = "\x1b[31mroot\n{}\u202e" + "x" * 300
    assert not plain(port, name, "guess")
    with Guess(port) as guess:
        guess.send(init("SCRAM-SHA-256", b"n,,n=carol,r=abcdefgh"))
        guess.expect_one_of(SASL_OUTCOME)
    guarded.await_log("login failed", "carol")
    first, second = lines(guarded)
    assert first["message"] == "login failed"
    assert (first["listener"], first["mechanism"], first["outcome"]) == ("guarded", "PLAIN", "refused")
    assert first["peer"].startswith(f"{ATTACKER}:")
    assert first["user"] == name[:128]
    assert (second["user"], second["mechanism"]) == ("carol", "SCRAM-SHA-256")
    assert "\x1b" not in guarded.log
    assert "guess" not in guarded.log
