"""Requests are answered for addresses and names that no web page can have, and for names that are stated."""

from __future__ import annotations

import pytest

from isthmus_router.http_hosts import hosts


@pytest.mark.parametrize(
    "host",
    [
        None,
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:9090",
        "10.244.1.7",
        "[::1]:8080",
        "[fd00::7]",
        "[::ffff:10.0.0.1]:80",
        "router-a:8080",
        "east.localhost",
        "east.network.svc:9090",
        "east-0.east.network.svc.cluster.local.",
    ],
)
def test_these_are_answered(host: str | None) -> None:
    assert hosts({})(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "attacker.example",
        "attacker.example:8080",
        "127.0.0.1.attacker.example",
        "localhost.attacker.example",
        "svc.attacker.example",
        "10.0.0.1, attacker.example",
        "attacker.example/localhost",
        "user@localhost",
        "localhost:8080x",
        "[::1",
        "[attacker.example]",
        "1.2.3.4.5",
        "local host",
    ],
)
def test_these_are_not(host: str) -> None:
    assert not hosts({})(host)


def test_names_can_be_stated() -> None:
    stated = {"ISTHMUS_HTTP_HOSTS": "router.example, Other.example."}
    assert hosts(stated)("router.example:80")
    assert hosts(stated)("other.EXAMPLE")
    assert not hosts(stated)("attacker.example")
    assert hosts({}, "listener.example")("listener.example:8080")
    assert hosts({"ISTHMUS_HTTP_HOSTS": "*"})("attacker.example")


def test_in_a_pod_the_name_is_that_of_the_api_server() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert hosts(pod)("api.cluster.example:6443")
    assert not hosts({**pod, "ISTHMUS_HTTP_HOSTS": ""})("api.cluster.example:6443")
