"""Connections and their numbers, whatever comes and goes and changes: against a recount of all that is open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.config.printing import as_json

from isthmus_router.config import Configuration, parse
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition, Direction, Terminus
from isthmus_router.policy.counters import Denial
from isthmus_router.policy.enforcer import Applicant, PolicyEnforcer
from isthmus_router.policy.grant import Grant

USERS, HOSTS = ("ann", "bob", "eve"), ("10.0.0.1", "10.0.0.2")


def configuration(
    *, enabled: bool = True, most: int = 4, of_user: int = 2, ann: bool = True
) -> Configuration:
    groups: dict[str, Any] = {"$default": {"remoteHosts": "10.0.0.1", "sources": "*", "targets": "*"}}
    if ann:
        groups["a"] = {"users": "ann", "remoteHosts": "*", "maxConnectionsPerUser": of_user}
    vhost = {
        "hostname": "$default",
        "maxConnections": most,
        "maxConnectionsPerUser": 2,
        "maxConnectionsPerHost": 3,
        "allowUnknownUser": True,
        "groups": groups,
    }
    policy = {"enableVhostPolicy": enabled, "maxConnections": 6}
    return parse(as_json([("policy", policy), ("vhost", vhost)]), "f")


def applicant(number: int, user: str, name: str, role: Role = Role.NORMAL) -> Applicant:
    """An incoming connection from the host and port in `name`."""
    return Applicant(number, role, incoming=True, user=user, name=name, hostname="", policy_vhost=None)


class Closing:
    """A driver that closes connections at once."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.enforcer: PolicyEnforcer | None = None

    def close_connection(self, connection: Connection, condition: Condition) -> None:
        assert condition.name == "amqp:unauthorized-access"
        self.closed.append(connection.id)

    def detach_link(self, link: Link, condition: Condition) -> None:
        raise AssertionError("there are none")


CONNECT = st.tuples(st.just("connect"), st.sampled_from(USERS), st.sampled_from(HOSTS), st.booleans())
STEPS = st.lists(
    CONNECT
    | st.tuples(st.just("end"), st.integers(0, 9))
    | st.tuples(
        st.just("configure"),
        st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans(),
                "most": st.integers(0, 5),
                "of_user": st.integers(0, 3),
                "ann": st.booleans(),
            },
        ),
    ),
    max_size=40,
)


@given(STEPS)
def test_numbers_are_those_of_what_is_open(steps: list[Any]) -> None:
    present = configuration()
    core, port = RouterCore("R", edge=False), Closing()
    core.attach_port(port)  # type: ignore[arg-type]
    enforcer = PolicyEnforcer(core, present)
    open_: dict[int, Applicant] = {}
    for number, (kind, *arguments) in enumerate(steps):
        if kind == "connect":
            user, host, client = arguments
            role = Role.NORMAL if client else Role.EDGE
            candidate = applicant(number, user, f"{host}:{number}", role)
            answer = enforcer.admit(candidate)
            if isinstance(answer, Condition):
                assert client
                enforcer.ended(number)
            else:
                open_[number] = candidate
                connection = Connection(number, role, incoming=True, name=candidate.name)
                connection.grant = answer
                core.connections[number] = connection
        elif kind == "end":
            if open_:
                gone = sorted(open_)[arguments[0] % len(open_)]
                del open_[gone], core.connections[gone]
                enforcer.ended(gone)
        else:
            present = configuration(**arguments[0])
            list(enforcer.configure(present))
            for gone in port.closed:
                del open_[gone], core.connections[gone]
                enforcer.ended(gone)
            port.closed.clear()
        clients = [item for item in open_.values() if item.role is Role.NORMAL]
        assert enforcer.clients == len(clients)
        members = enforcer.members("$default")
        governed = clients if present.policy.enable_vhost_policy else []
        assert members.names == {item.connection_id: item.name for item in governed}
        for groups, key in ((members.by_user, "user"), (members.by_host, "host")):
            assert {name: len(found) for name, found in groups.items()} == {
                name: count
                for name in {getattr(item, key) for item in governed}
                if (count := sum(getattr(item, key) == name for item in governed))
            }
        for item in governed:
            unknown = item.user != "ann" or "a" not in present.vhosts[0].groups
            assert not unknown or item.host == "10.0.0.1", "others may connect from one host only"
            assert isinstance(core.connections[item.connection_id].grant, Grant)


@given(st.lists(CONNECT, max_size=30))
def test_limits_are_kept(attempts: list[Any]) -> None:
    core = RouterCore("R", edge=False)
    enforcer = PolicyEnforcer(core, configuration())
    admitted: list[tuple[str, str]] = []
    for number, (_, user, host, _) in enumerate(attempts):
        candidate = applicant(number, user, f"{host}:1")
        allowed = (
            (user == "ann" or host == "10.0.0.1")
            and len(admitted) < 4
            and sum(other == user for other, _ in admitted) < 2
            and sum(other == host for _, other in admitted) < 3
        )
        answer = enforcer.admit(candidate)
        assert isinstance(answer, Condition) is not allowed
        if allowed:
            admitted.append((user, host))
    assert enforcer.denials.total[Denial.CONNECTION] == len(attempts) - len(admitted)


class Detaching(Closing):
    """A driver that detaches links at once."""

    def __init__(self) -> None:
        super().__init__()
        self.detached: list[Link] = []

    def detach_link(self, link: Link, condition: Condition) -> None:
        assert condition.name == "amqp:unauthorized-access"
        link.connection.links.discard(link)
        self.detached.append(link)


def test_a_change_is_carried_out_link_by_link_and_connections_take_turns() -> None:
    core, port = RouterCore("R", edge=False), Detaching()
    core.attach_port(port)  # type: ignore[arg-type]
    enforcer = PolicyEnforcer(core, configuration(enabled=False))
    for number, count in enumerate((50, 2)):
        candidate = applicant(number, "ann", f"10.0.0.1:{number}")
        assert enforcer.admit(candidate) is None
        connection = core.connections[number] = Connection(number, Role.NORMAL, incoming=True, name="p")
        for at in range(count):
            link = Link(at, connection, Direction.OUT, f"l{at}", source=Terminus("x"), target=Terminus())
            link.by_peer = True
            connection.links.add(link)
    steps = enforcer.configure(configuration())
    before = 0
    for _ in steps:
        assert len(port.detached) <= before + 1, "one link in a step"
        before = len(port.detached)
    assert len(port.detached) == 52
    last = max(at for at, link in enumerate(port.detached) if link.connection.id == 1)
    assert last < 4, "the connection with two links does not wait for the other one"


def test_what_the_review_has_not_reached_has_the_new_rules() -> None:
    """A link that attaches, and a request to management, before the steps are taken."""
    core = RouterCore("R", edge=False)
    enforcer = PolicyEnforcer(core, configuration(enabled=False))
    candidate = applicant(1, "ann", "10.0.0.2:1")
    assert enforcer.admit(candidate) is None
    connection = core.connections[1] = Connection(1, Role.NORMAL, incoming=True, name="p")
    steps = enforcer.configure(configuration())
    assert enforcer.renew(connection) is None
    assert isinstance(connection.grant, Grant)
    assert list(steps)
    list(enforcer.configure(configuration(enabled=False)))
    enforcer.configure(configuration(ann=False))
    refusal = enforcer.renew(connection)
    assert refusal is not None
    assert refusal.description == "this user may not connect from this host"


def test_an_ipv6_network_counts_as_one_host() -> None:
    enforcer = PolicyEnforcer(RouterCore("R", edge=False), configuration(most=10, of_user=10))

    def connects(number: int, address: str) -> bool:
        candidate = applicant(number, "ann", f"[{address}]:5671")
        return not isinstance(enforcer.admit(candidate), Condition)

    assert [connects(number, f"2001:db8::{number}") for number in range(4)] == [True, True, True, False]
    assert connects(4, "2001:db8:0:1::1")


class FailingOnce(Detaching):
    """A driver that cannot detach the links of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self.conditions: list[Condition] = []

    def detach_link(self, link: Link, condition: Condition) -> None:
        if link.connection.id == 0:
            raise KeyError(link.name)
        super().detach_link(link, condition)

    def close_connection(self, connection: Connection, condition: Condition) -> None:
        self.closed.append(connection.id)
        self.conditions.append(condition)


def test_a_connection_that_cannot_be_reviewed_is_closed_and_others_are_reviewed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, port = RouterCore("R", edge=False), FailingOnce()
    core.attach_port(port)  # type: ignore[arg-type]
    enforcer = PolicyEnforcer(core, configuration(enabled=False))
    for number in range(2):
        candidate = applicant(number, "ann", f"10.0.0.1:{number}")
        assert enforcer.admit(candidate) is None
        connection = core.connections[number] = Connection(number, Role.NORMAL, incoming=True, name="p")
        link = Link(number, connection, Direction.OUT, "l", source=Terminus("x"), target=Terminus())
        link.by_peer = True
        connection.links.add(link)
    for _ in enforcer.configure(configuration()):
        pass
    assert [link.connection.id for link in port.detached] == [1]
    assert port.closed == [0]
    assert [condition.name for condition in port.conditions] == ["amqp:internal-error"]
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "rights not reviewed"
    ]
