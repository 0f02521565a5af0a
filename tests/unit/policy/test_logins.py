"""How many passwords a host may try, by a clock of the test."""

import pytest

from isthmus_router.amqp.logins import name_in
from isthmus_router.client_hosts import network_of
from isthmus_router.policy.logins import MOST_HOSTS, MOST_NAMES, LoginThrottle

ATTACKER, OTHER = "192.0.2.1", "192.0.2.2"


def fail(throttle: LoginThrottle, host: str, user: str, now: float, tries: int = 1000) -> int:
    """How many of the `tries` are checked."""
    checked = 0
    for _ in range(tries):
        if throttle.admits(host, user, now):
            throttle.failed(host, user, now)
            checked += 1
    return checked


def test_failures_for_one_name_are_bounded_in_each_minute() -> None:
    throttle = LoginThrottle(10)
    assert fail(throttle, ATTACKER, "alice", 0) == 10
    assert fail(throttle, ATTACKER, "alice", 5.9) == 0
    assert fail(throttle, ATTACKER, "alice", 6) == 1
    assert fail(throttle, ATTACKER, "alice", 66) == 10
    assert fail(throttle, ATTACKER, "alice", 10_000) == 10


def test_the_name_stays_usable_from_other_hosts() -> None:
    throttle = LoginThrottle(10)
    fail(throttle, ATTACKER, "alice", 0)
    assert throttle.admits(OTHER, "alice", 0)


def test_failures_of_a_host_with_many_names_are_bounded() -> None:
    throttle = LoginThrottle(10)
    assert sum(fail(throttle, ATTACKER, f"user-{n}", 0, 1) for n in range(1000)) == 100
    assert not throttle.admits(ATTACKER, "never seen", 0)
    assert throttle.admits(OTHER, "never seen", 0)
    assert throttle.admits(ATTACKER, "never seen", 0.6)


def test_a_name_that_has_logged_in_survives_the_failures_of_its_neighbours() -> None:
    throttle = LoginThrottle(10)
    throttle.succeeded(ATTACKER, "bob")
    for n in range(1000):
        fail(throttle, ATTACKER, f"user-{n}", 0, 1)
    assert throttle.admits(ATTACKER, "bob", 0)
    assert fail(throttle, ATTACKER, "bob", 0) == 10


def test_a_login_that_succeeds_restores_no_allowance() -> None:
    throttle = LoginThrottle(10)
    assert fail(throttle, ATTACKER, "alice", 0, 9) == 9
    throttle.succeeded(ATTACKER, "alice")
    assert fail(throttle, ATTACKER, "alice", 0) == 1


def test_success_costs_nothing() -> None:
    throttle = LoginThrottle(1)
    for _ in range(1000):
        assert throttle.admits(ATTACKER, "alice", 0)
        throttle.succeeded(ATTACKER, "alice")


def test_without_a_limit_everything_is_checked() -> None:
    throttle = LoginThrottle(0)
    assert fail(throttle, ATTACKER, "alice", 0, 500) == 500
    assert len(throttle) == 0


def test_tables_are_bounded() -> None:
    throttle = LoginThrottle(10)
    for n in range(3 * MOST_NAMES):
        throttle.failed(f"2001:db8:0:{n:x}::/64", f"{n}" * 5000, 0)
        throttle.succeeded(f"2001:db8:0:{n:x}::/64", f"{n}")
        throttle.begun(f"2001:db8:0:{n:x}::/64", f"{n}" * 5000, 0)
        throttle.ended(f"2001:db8:0:{n:x}::/64", f"{n}" * 5000, 0, judged=False)
    assert len(throttle) == 2 * MOST_HOSTS + 3 * MOST_NAMES


def begin(throttle: LoginThrottle, host: str, user: str, now: float, tries: int = 1000) -> int:
    """How many of the `tries` are begun, and abandoned at once."""
    begun = 0
    for _ in range(tries):
        if throttle.may_begin(host, user, now):
            throttle.begun(host, user, now)
            throttle.ended(host, user, now, judged=False)
            begun += 1
    return begun


def test_logins_that_are_abandoned_are_bounded_in_each_minute() -> None:
    throttle = LoginThrottle(10)
    assert begin(throttle, ATTACKER, "alice", 0) == 50
    assert throttle.may_begin(ATTACKER, "alice", 1) is False
    assert throttle.may_begin(ATTACKER, "alice", 1.2) is True
    assert begin(throttle, ATTACKER, "alice", 60) == 50
    assert throttle.may_begin(OTHER, "alice", 60) is True
    assert throttle.admits(ATTACKER, "alice", 60), "no password was wrong"


def test_logins_of_many_names_that_are_abandoned_are_bounded() -> None:
    throttle = LoginThrottle(10)
    throttle.succeeded(ATTACKER, "bob")
    assert sum(begin(throttle, ATTACKER, f"user-{n}", 0, 1) for n in range(1000)) == 100
    assert throttle.may_begin(ATTACKER, "never seen", 0) is False
    assert throttle.may_begin(ATTACKER, "never seen", 0.6) is True
    assert begin(throttle, ATTACKER, "bob", 0) == 50, "has logged in from there"


def test_logins_under_way_count_until_they_have_an_outcome() -> None:
    throttle = LoginThrottle(10)
    for _ in range(50):
        throttle.begun(ATTACKER, "alice", 0)
    assert throttle.may_begin(ATTACKER, "alice", 0) is None, "it depends on those under way"
    throttle.ended(ATTACKER, "alice", 0, judged=True)
    assert throttle.may_begin(ATTACKER, "alice", 0) is True
    throttle.begun(ATTACKER, "alice", 0)
    throttle.ended(ATTACKER, "alice", 0, judged=False)
    assert throttle.may_begin(ATTACKER, "alice", 0) is None
    for _ in range(49):
        throttle.ended(ATTACKER, "alice", 0, judged=False)
    assert throttle.may_begin(ATTACKER, "alice", 0) is False


def test_outcomes_give_no_more_than_was_taken() -> None:
    throttle = LoginThrottle(10)
    for now in range(1000):
        throttle.begun(ATTACKER, "alice", now)
        throttle.ended(ATTACKER, "alice", now, judged=True)
    assert begin(throttle, ATTACKER, "alice", 1000) == 50


def test_without_a_limit_any_number_may_begin() -> None:
    throttle = LoginThrottle(0)
    assert begin(throttle, ATTACKER, "alice", 0) == 1000
    assert len(throttle) == 0


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_a_host_is_an_ipv4_address_or_an_ipv6_network(address: str, host: str) -> None:
    assert network_of(address) == host


@pytest.mark.parametrize(
    ("mechanism", "data", "name"),
    [
        ("PLAIN", b"\0alice@isthmus\0secret", "alice@isthmus"),
        ("PLAIN", b"admin\0alice\0secret", "alice"),
        ("PLAIN", b"\0\0", ""),
        ("PLAIN", b"\0\xff\0x", "\ufffd"),
        ("PLAIN", b"", None),
        ("PLAIN", b"alice", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-256", b"y,a=admin,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("SCRAM-SHA-256-PLUS", b"p=tls-unique,,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-1", b"c=biws,r=abc,p=proof", None),
        ("CRAM-MD5", b"tim brown b913a602c7eda7a495b4e6e7334d3890", "tim brown"),
        ("CRAM-MD5", b"tim", None),
        ("DIGEST-MD5", b'charset=utf-8,username="a\\"b",realm="x"', 'a"b'),
        ("DIGEST-MD5", b"realm=x", None),
        ("EXTERNAL", b"alice", None),
        ("GSSAPI", b"\x60\x82", None),
    ],
)
def test_user_name_in_what_a_client_sends(mechanism: str, data: bytes, name: str | None) -> None:
    assert name_in(mechanism, data) == name


@pytest.mark.parametrize("spelling", [" alice", "alice\t", "\n\v\f\r alice "])
def test_white_space_around_a_name_makes_no_other_name(spelling: str) -> None:
    """Cyrus SASL removes it."""
    throttle = LoginThrottle(10)
    assert fail(throttle, ATTACKER, "alice", 0) == 10
    assert not throttle.admits(ATTACKER, spelling, 0)


def test_long_names_that_begin_alike_are_told_apart() -> None:
    throttle = LoginThrottle(10)
    long = "x" * 1000
    throttle.succeeded(ATTACKER, long + "mallory")
    for number in range(100):
        throttle.failed(ATTACKER, f"user-{number}", 0)
    assert throttle.admits(ATTACKER, long + "mallory", 0)
    assert not throttle.admits(ATTACKER, long + "alice", 0)
