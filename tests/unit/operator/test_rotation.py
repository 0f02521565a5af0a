"""What becomes of the certificates of an SslProfile: by example, and for any order of events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.operator.certificates import NOW, authorities, issued

from isthmus_operator.certificates import count, described
from isthmus_operator.resources.sslprofile import Retention
from isthmus_operator.rotation import Ledger, Past, Refusal, Seen, Wish, adopt, retire
from isthmus_operator.rotation.machine import DIAL_SECONDS

ONE, TWO, THREE = (issued(number) for number in range(3))
KEEP_ONE = Retention(old_ordinals=1, delay_seconds=60)
LATER = NOW + timedelta(seconds=60)

BAD: Mapping[str, Mapping[str, bytes]] = {
    "is not the private key of the certificate": {**TWO, "tls.key": ONE["tls.key"]},
    "tls.crt is not a certificate": {**TWO, "tls.crt": b"garbage"},
    "tls.key is not a private key": {**TWO, "tls.key": b"garbage"},
    "ca.crt is not a certificate": {**TWO, "ca.crt": b"garbage"},
    'has no key "ca.crt", which what is in service has': {k: v for k, v in TWO.items() if k != "ca.crt"},
    'has no key "tls.key"': {k: v for k, v in TWO.items() if k != "tls.key"} | {"ca.crt": ONE["ca.crt"]},
    "expired at": issued(5, end=timedelta(hours=-1)),
    "is not valid before": issued(6, begin=timedelta(hours=1)),
}


def first(offer: Mapping[str, bytes] = ONE, **wish: int) -> Ledger:
    ledger = adopt(None, "server", offer, Wish(**wish), Past(), NOW).ledger
    assert ledger is not None
    return ledger


def after(
    ledger: Ledger | None,
    offer: Mapping[str, bytes] | None,
    wish: Wish = Wish(),  # noqa: B008 - immutable
    now: datetime = NOW,
) -> Ledger:
    found = adopt(ledger, "server", offer, wish, Past(), now).ledger
    assert found is not None
    return found


def used(ordinal: int) -> Seen:
    return Seen(ordinal, served=True, used=True)


def refusal(ledger: Ledger | None, offer: Mapping[str, bytes] | None, now: datetime = NOW) -> Refusal:
    result = adopt(ledger, "server", offer, Wish(), Past(), now)
    assert result.refusal is not None
    assert result.ledger == ledger
    assert result.changes == ()
    return result.refusal


def test_the_first_certificate_has_ordinal_one() -> None:
    ledger = first()
    assert (ledger.ordinal, ledger.oldest_valid) == (1, 1)
    assert ledger.material == ONE


def test_a_new_certificate_raises_the_ordinal_once() -> None:
    ledger = after(first(), TWO)
    assert (ledger.ordinal, ledger.oldest_valid) == (2, 1)
    assert ledger.material["tls.crt"] == TWO["tls.crt"]
    assert after(ledger, TWO) == ledger
    again = {**TWO, "tls.crt": b"# written anew\n" + TWO["tls.crt"]}
    assert after(ledger, again).ordinal == 2


def test_going_back_to_the_certificate_of_before_is_a_change_too() -> None:
    ledger = after(after(first(), TWO), ONE)
    assert ledger.ordinal == 3
    assert ledger.material["tls.crt"] == ONE["tls.crt"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_good_changes_nothing_and_says_why(text: str) -> None:
    found = refusal(first(), BAD[text])
    assert found.reason == "SecretInvalid"
    assert 'Secret "server"' in found.message
    assert text in found.message


def test_a_deleted_secret_changes_nothing() -> None:
    assert refusal(first(), None) == Refusal("SecretNotFound", 'Secret "server" does not exist')
    assert refusal(None, None).reason == "SecretNotFound"
    assert "neither a certificate" in refusal(None, {"other": b""}).message


def test_a_certificate_is_adopted_when_its_time_has_come() -> None:
    early = issued(6, begin=timedelta(hours=1))
    until = NOW + timedelta(hours=1)
    assert refusal(first(), early).until == until
    assert after(first(), early, now=until).ordinal == 2


def test_authorities_change_under_the_same_ordinal() -> None:
    ledger = after(first(), {**ONE, "ca.crt": authorities("first", "second")})
    assert ledger.ordinal == 1
    assert count(ledger.material["ca.crt"]) == 2
    assert after(ledger, ONE) == first(), "taking one out again is the owner's will"


def test_a_profile_may_have_authorities_only() -> None:
    ledger = first({"ca.crt": authorities("first")})
    assert ledger.ordinal == 1
    assert set(ledger.material) == {"ca.crt"}
    assert after(ledger, {"ca.crt": authorities("second")}).ordinal == 1
    assert after(ledger, ONE).ordinal == 2


def test_the_authorities_of_all_valid_ordinals_are_trusted() -> None:
    ledger = after(first(), issued(7, by="second"))
    assert count(ledger.material["ca.crt"]) == 2
    revoked = after(ledger, issued(7, by="second"), Wish(oldest_valid=2))
    assert revoked.material["ca.crt"] == authorities("second")


def test_authorities_that_stay_the_same_are_kept_once() -> None:
    encoded = after(after(first(), TWO), issued(7, by="second")).encoded()
    assert sorted(content for name, content in encoded.items() if name.endswith("ca.crt")) == sorted(
        [authorities("first"), authorities("second")]
    )


def test_old_private_keys_are_not_kept() -> None:
    encoded = after(first(), TWO).encoded()
    assert TWO["tls.key"] in encoded.values()
    assert ONE["tls.key"] not in encoded.values()


def test_older_ordinals_follow_when_all_use_the_newest_and_time_has_passed() -> None:
    ledger = after(after(first(), TWO), THREE)
    waiting = retire(ledger, None, KEEP_ONE, LATER)
    assert (waiting.ledger, waiting.due) == (ledger, None)
    settled = retire(ledger, used(3), KEEP_ONE, NOW)
    assert [item.reason for item in settled.changes] == ["RotationCompleted"]
    assert (settled.ledger.oldest_valid, settled.due) == (1, LATER)
    assert retire(settled.ledger, None, KEEP_ONE, NOW).ledger == settled.ledger, "it need not be seen again"
    done = retire(settled.ledger, None, KEEP_ONE, LATER)
    assert done.ledger.oldest_valid == 2
    assert [item.ordinal for item in done.ledger.generations] == [2, 3]
    assert retire(done.ledger, used(3), KEEP_ONE, LATER).changes == ()


def test_listeners_come_before_connectors() -> None:
    ledger = after(first(), TWO, Wish(staged=True))
    assert (ledger.ordinal, ledger.dialled) == (2, 1)
    seen = Seen(2, served=False, used=False)
    waiting = retire(ledger, seen, KEEP_ONE, NOW)
    assert (waiting.ledger, waiting.due) == (ledger, NOW + timedelta(seconds=DIAL_SECONDS))
    served = retire(ledger, Seen(2, served=True, used=False), KEEP_ONE, NOW)
    assert (served.ledger.dialled, served.changes) == (2, ())
    assert served.ledger.current.settled is None, "nobody can have dialled with it yet"
    late = retire(ledger, seen, KEEP_ONE, NOW + timedelta(seconds=DIAL_SECONDS)).ledger
    assert late.dialled == 2, "a listener that does not follow holds nobody up for long"
    assert after(first(), TWO).dialled == 2, "nor is there anything to wait for without listeners"
    revoked = after(first(), TWO, Wish(request=1, revoke=True, staged=True))
    assert revoked.dialled == 2
    newer = after(ledger, THREE, Wish(staged=True))
    assert (newer.ordinal, newer.dialled) == (3, 1)


def test_a_newer_rotation_under_way_does_not_hold_the_older_one_up() -> None:
    ledger = retire(after(after(first(), TWO), THREE), used(3), KEEP_ONE, NOW).ledger
    newer = after(ledger, ONE, now=NOW)
    assert newer.ordinal == 4
    assert retire(newer, None, KEEP_ONE, LATER).ledger.oldest_valid == 2


def test_manual_retention_waits_for_a_person() -> None:
    manual = Retention(policy="Manual", old_ordinals=0, delay_seconds=0)
    ledger = retire(after(first(), TWO), used(2), manual, LATER).ledger
    assert ledger.oldest_valid == 1
    assert after(ledger, TWO, Wish(oldest_valid=2)).oldest_valid == 2
    assert after(ledger, TWO, Wish(oldest_valid=9)).oldest_valid == 2, "no more than there are"


def test_a_request_raises_the_ordinal_once() -> None:
    ledger = after(first(), ONE, Wish(request=1))
    assert (ledger.ordinal, ledger.handled_request) == (2, 1)
    assert after(ledger, ONE, Wish(request=1)) == ledger
    assert after(ledger, ONE, Wish(request=0)) == ledger, "lowered by who knows of no request"
    assert after(ledger, TWO, Wish(request=2)).ordinal == 3, (
        "a request and a new certificate are one rotation"
    )
    assert after(ledger, TWO, Wish(request=0)).handled_request == 1
    assert first(ONE, request=7).ordinal == 1, "nothing was there to be rotated"


def test_a_request_waits_until_the_secret_is_good() -> None:
    bad = {**TWO, "tls.key": ONE["tls.key"]}
    ledger = after(first(), bad, Wish(request=1, revoke=True))
    assert ledger == first()
    ledger = after(ledger, TWO, Wish(request=1, revoke=True))
    assert (ledger.ordinal, ledger.oldest_valid) == (2, 2)


def test_a_revocation_makes_the_new_ordinal_the_oldest_valid_one() -> None:
    ledger = after(after(first(), TWO), TWO, Wish(request=1, revoke=True))
    assert (ledger.ordinal, ledger.oldest_valid) == (3, 3)
    assert [item.ordinal for item in ledger.generations] == [3]
    plain = after(ledger, THREE, Wish(request=1, revoke=True))
    assert (plain.ordinal, plain.oldest_valid) == (4, 3), "a new certificate alone revokes nothing"


def test_a_lost_ledger_does_not_lower_the_ordinal() -> None:
    fingerprint = described(ONE["tls.crt"]).fingerprint
    same = adopt(None, "server", ONE, Wish(), Past(5, 4, fingerprint), NOW).ledger
    other = adopt(None, "server", TWO, Wish(), Past(5, 4, fingerprint), NOW).ledger
    assert same is not None
    assert other is not None
    assert (same.ordinal, same.oldest_valid) == (5, 4)
    assert (other.ordinal, other.oldest_valid) == (6, 4)
    odd = adopt(None, "server", ONE, Wish(), Past(5, 9, fingerprint), NOW).ledger
    assert odd is not None
    assert (odd.ordinal, odd.oldest_valid) == (5, 5)


@pytest.mark.parametrize(
    "broken", [{}, {"ledger.json": b"{"}, {"ledger.json": b"{}"}, {"ledger.json": b'{"generations": []}'}]
)
def test_what_is_no_ledger_is_none(broken: Mapping[str, bytes]) -> None:
    assert Ledger.decoded(broken) is None


def test_a_ledger_whose_certificate_was_replaced_by_hand_is_none() -> None:
    encoded = {**first().encoded(), "1.tls.crt": TWO["tls.crt"]}
    assert Ledger.decoded(encoded) is None


def edited(ledger: Ledger, **state: object) -> Mapping[str, bytes]:
    encoded = ledger.encoded()
    return {**encoded, "ledger.json": json.dumps({**json.loads(encoded["ledger.json"]), **state}).encode()}


def test_a_ledger_edited_by_hand_is_none_when_it_could_not_be_used() -> None:
    ledger = after(first(), TWO)
    assert Ledger.decoded(edited(ledger)) == ledger
    encoded = ledger.encoded()
    generations = json.loads(encoded["ledger.json"])["generations"]
    (bundle,) = (name for name in encoded if name.endswith(".ca.crt"))
    naive = [{**item, "since": "2030-01-01T00:00:00"} for item in generations]
    for broken in (
        {key: content for key, content in encoded.items() if key != "2.tls.key"},
        {**encoded, "2.tls.key": ONE["tls.key"]},
        {**encoded, bundle: b"garbage"},
        edited(ledger, oldestValidOrdinal=999),
        edited(ledger, oldestValidOrdinal=0),
        edited(ledger, dialledOrdinal=3),
        edited(ledger, dialledOrdinal=0),
        edited(ledger, generations=[generations[1], generations[1]]),
        edited(ledger, generations=naive),
        edited(ledger, generations=[{**item, "settled": "2030-01-01T00:00:00"} for item in generations]),
        edited(ledger, generations=[{**item, "notAfter": "2030-01-01T00:00:00"} for item in generations]),
        edited(ledger, generations=[{**item, "since": "9999-12-31T23:59:59+00:00"} for item in generations]),
        edited(ledger, generations=[{**item, "names": [{}]} for item in generations]),
        edited(ledger, generations=[[]]),
        edited(ledger, generations=7),
        edited(ledger, handledRequest=float("inf")),
        edited(ledger, handledRequest=2**31),
        edited(ledger, handledRequest="1"),
        {**encoded, "ledger.json": b"[" * 200_000},
        {
            **encoded,
            "ledger.json": encoded["ledger.json"].replace(b'"handledRequest": 0', b'"handledRequest": 1e999'),
        },
    ):
        assert Ledger.decoded(broken) is None


def test_no_key_is_in_a_representation() -> None:
    text = repr(after(first(), TWO))
    assert "PRIVATE" not in text
    assert "CERTIFICATE" not in text


OFFERS: tuple[Mapping[str, bytes] | None, ...] = (
    None,
    ONE,
    TWO,
    THREE,
    issued(7, by="second"),
    {**ONE, "ca.crt": authorities("first", "second")},
    *BAD.values(),
)


class Life(RuleBasedStateMachine):
    """A profile whose Secret, requests and users change in any order, with an operator that looks whenever it
    pleases and forgets everything but what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.offer: Mapping[str, bytes] | None = None
        self.wish = Wish()
        self.retention = KEEP_ONE
        self.written: Mapping[str, bytes] | None = None
        self.seen: list[tuple[int, int, int, int]] = []

    @property
    def ledger(self) -> Ledger | None:
        return Ledger.decoded(self.written) if self.written is not None else None

    @rule(offer=st.sampled_from(OFFERS))
    def secret(self, offer: Mapping[str, bytes] | None) -> None:
        self.offer = offer

    @rule(revoke=st.booleans(), step=st.integers(-1, 2))
    def request(self, revoke: bool, step: int) -> None:
        self.wish = replace(self.wish, request=max(0, self.wish.request + step), revoke=revoke)

    @rule(oldest=st.integers(0, 12))
    def floor(self, oldest: int) -> None:
        self.wish = replace(self.wish, oldest_valid=oldest)

    @rule(
        policy=st.sampled_from(["Automatic", "Manual"]), old=st.integers(0, 3), delay=st.sampled_from([0, 60])
    )
    def retain(self, policy: str, old: int, delay: int) -> None:
        self.retention = Retention.model_validate(
            {"policy": policy, "oldOrdinals": old, "delaySeconds": delay}
        )

    @rule(seconds=st.integers(1, 100))
    def pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(staged=st.booleans())
    def listeners(self, staged: bool) -> None:
        self.wish = replace(self.wish, staged=staged)

    @rule(times=st.integers(1, 3), crash=st.booleans())
    def look(self, times: int, crash: bool) -> None:
        before = self.ledger
        result = adopt(before, "server", self.offer, self.wish, Past(), self.now)
        if crash:
            return  # before anything was written
        usable = result.refusal is None
        for _ in range(times):
            again = adopt(self.ledger, "server", self.offer, self.wish, Past(), self.now)
            if again.ledger is not None:
                self.written = again.ledger.encoded()
        ledger = self.ledger
        if before is not None:
            assert ledger is not None
            requested = self.wish.request > before.handled_request
            new = usable and self.offer is not None and self._is_new(before)
            assert ledger.ordinal - before.ordinal == int(usable and (new or requested))
            if not usable:
                assert ledger.material == before.material or ledger.oldest_valid > before.oldest_valid
                assert ledger.material.get("tls.crt") == before.material.get("tls.crt")

    def _is_new(self, before: Ledger) -> bool:
        assert self.offer is not None
        return described(self.offer["tls.crt"]).identity != before.current.identity

    @precondition(lambda self: self.ledger is not None)
    @rule(known=st.booleans(), late=st.integers(0, 1), served=st.booleans(), everybody=st.booleans())
    def routers_report(self, known: bool, late: int, served: bool, everybody: bool) -> None:
        assert self.ledger is not None
        seen = Seen(self.ledger.ordinal - late, served, served and everybody) if known else None
        self.written = retire(self.ledger, seen, self.retention, self.now).ledger.encoded()

    @invariant()
    def nothing_falls(self) -> None:
        ledger = self.ledger
        if ledger is None:
            assert self.written is None
            return
        self.seen.append((ledger.ordinal, ledger.dialled, ledger.oldest_valid, ledger.handled_request))
        for before, after in pairwise(self.seen[-2:]):
            assert all(one <= two for one, two in zip(before, after, strict=True))
        assert ledger.oldest_valid <= ledger.dialled <= ledger.ordinal
        assert [item.ordinal for item in ledger.generations] == sorted(
            {item.ordinal for item in ledger.generations}
        )
        assert all(item.ordinal >= ledger.oldest_valid for item in ledger.generations)
        assert Ledger.decoded(ledger.encoded()) == ledger


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.sampled_from([ONE, TWO, THREE]), min_size=1, max_size=8), st.integers(1, 4))
def test_the_ordinal_counts_changes_not_looks(offers: list[Mapping[str, bytes]], looks: int) -> None:
    ledger: Ledger | None = None
    for offer in offers:
        for _ in range(looks):
            ledger = after(ledger, offer)
    changes = 1 + sum(one != two for one, two in pairwise(offers))
    assert ledger is not None
    assert ledger.ordinal == changes
