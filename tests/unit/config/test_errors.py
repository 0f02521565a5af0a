"""Errors name file, line, section, attribute, value and the fix, and are all reported at once."""

from __future__ import annotations

import pytest

from isthmus_router.config import ConfigError, load, parse


def messages(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    return str(caught.value).split("\n")


def section(name: str, *lines: str, before: str = "") -> str:
    return before + f"{name} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


INTERIOR = section("router", "mode: interior", "id: a")
EDGE = section("router", "mode: edge", "id: a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            section("router", "mode: interor"),
            "f:2: router, attribute mode: 'interor' is not one of standalone",
        ),
        (section("router", "id: a/b"), "f:2: router, attribute id: 'a/b' contains '/'"),
        (
            section("router", "dataConnectionCount: many"),
            "f:2: router, attribute dataConnectionCount: 'many'",
        ),
        (
            section("router", "helloMaxAgeSeconds: 2", "helloIntervalSeconds: 2"),
            "f:2: router, attribute helloM",
        ),
        (
            section("router") + section("router"),
            "f:3: router: there can be only one such section, first in line 1",
        ),
        (section("lisener"), "f:1: unknown section 'lisener'; did you mean 'listener'?"),
        (section("tcpListener", "port: 1", "x: y"), "f:1: section tcpListener: not supported: TCP services"),
        (
            section("listener", "prot: 5"),
            "f:2: listener, attribute prot: unknown; did you mean 'port'?",
        ),
        (
            section("listener", "port: 99999"),
            "f:2: listener, attribute port: '99999' is not a port",
        ),
        (
            section("listener", "cost: 0"),
            "f:2: listener, attribute cost: '0' is out of range: 1 to",
        ),
        (
            section("listener", "http: maybe"),
            "f:2: listener, attribute http: 'maybe' is not a boolean",
        ),
        (
            section("listener", "port: 1", "port: 2"),
            "f:3: listener, attribute port: given twice, first in line 2",
        ),
        (
            section("listener", "role: inter-router"),
            "attribute role: inter-router needs router mode interior",
        ),
        (
            section("connector", "role: inter-router", before=EDGE),
            "attribute role: inter-router needs router mode interior",
        ),
        (
            section("listener", "role: edge", before=EDGE),
            "f:6: listener, attribute role: an edge router",
        ),
        (
            section("connector", "role: edge", before=INTERIOR),
            "attribute role: an edge connector needs router mode edge",
        ),
        (
            section("listener", "sslProfile: x"),
            "attribute sslProfile: no sslProfile is named 'x'; there is none",
        ),
        (
            section("sslProfile", "name: tls-a") + section("listener", "sslProfile: tls"),
            "f:5: listener, attribute sslProfile: no sslProfile is named 'tls'; did you mean 'tls-a'?",
        ),
        (section("listener", "requireSsl: yes"), "attribute requireSsl: needs an sslProfile"),
        (section("listener", "http: yes", "role: route-container"), "attribute http: needs role normal"),
        (
            section("policy", "enableVhostPolicy: yes") + section("listener", "policyVhost: v"),
            "attribute policyVhost: no vhost is named 'v'; there is none",
        ),
        (
            section("listener", "failoverUrls: a:1, amqp://b c"),
            "attribute failoverUrls: 'amqp://b c' is not of the form [scheme://]host[:port]",
        ),
        (section("connector", "port: 0"), "attribute port: 0 is no port to connect to"),
        (
            section("listener", 'openProperties: {"qd.x": 1, "y": 2}'),
            "attribute openProperties: 'qd.x' reserved",
        ),
        (
            section("listener", 'openProperties: {"grün": 1}'),
            "attribute openProperties: 'grün': keys are symbols, which are ASCII",
        ),
        (
            section("listener", 'openProperties: {"x": [1, {"y": 18446744073709551616}]}'),
            "attribute openProperties: 'x': integers have 64 bits",
        ),
        (
            section("connector", 'openProperties: {"x": "\\ud800"}'),
            "attribute openProperties: 'x': integers have 64 bits and text is Unicode",
        ),
        (
            section("listener", 'openProperties: {"x": 1}', "role: edge"),
            "attribute openProperties: only for the roles",
        ),
        (section("listener", "openProperties: {x}"), "f:2: not a JSON object"),
        (
            "log { module: AGENT }",
            "f:1: expected 'section {' alone on its line, found 'log { module: AGENT }'",
        ),
        (
            section("listener") + section("listener", "host: 0.0.0.0"),
            "f:3: listener, attribute port: two listeners on 0.0.0.0:5672",
        ),
        (
            section("listener", "name: a") + section("listener", "name: a", "port: 1"),
            "f:5: listener 'a', attribute name: 'a' is used twice, first in line 1",
        ),
        (section("sslProfile"), "f:1: sslProfile, attribute name: required and missing"),
        (
            section("sslProfile", "name: t", "ordinal: 2", "oldestValidOrdinal: 3"),
            "f:4: sslProfile 't', attribute oldestValidOrdinal: 3 is greater than ordinal (2)",
        ),
        (
            section("sslProfile", "name: t", "ordinal: -1"),
            "f:3: sslProfile 't', attribute ordinal: '-1' is out of range",
        ),
        (section("sslProfile", "name: t", "protocols: TLSv1.2 SSLv3"), "'SSLv3' not among TLSv1, TLSv1.1"),
        (section("sslProfile", "name: t", "uidFormat: x"), "attribute uidFormat: 'x' may only contain"),
        (section("sslProfile", "name: t", "privateKeyFile: k"), "attribute privateKeyFile: needs certFile"),
        (
            section("sslProfile", "name: t", "password: env:X"),
            "attribute password: the form 'env:' cannot be used here",
        ),
        (
            section("address", "prefix: a", "pattern: b"),
            "f:1: address: needs exactly one of prefix and pattern; both given",
        ),
        (
            section("address", "prefix: a.*"),
            "f:2: address, attribute prefix: 'a.*' has wildcards; use pattern",
        ),
        (
            section("linkRoute", "pattern: /.", "direction: in", "containerId: b"),
            "f:2: linkRoute, attribute pattern: '/.' has nothing between its separators; "
            "for all addresses, use the pattern '#'",
        ),
        (
            section("address", "prefix: a", "egressPhase: 10"),
            "attribute egressPhase: '10' is out of range: 0 to 9",
        ),
        (
            section("address", "prefix: a") + section("address", "prefix: a"),
            "f:5: address, attribute prefix: 'a' is configured twice",
        ),
        (
            section("linkRoute", "pattern: ///", "direction: in"),
            "f:2: linkRoute, attribute pattern: '///' has nothing between its separators; "
            "for all addresses, use the pattern '#'",
        ),
        (
            section("address", "prefix: ."),
            "f:2: address, attribute prefix: '.' has nothing between its separators",
        ),
        (
            section("linkRoute", "prefix: a", "containerId: b"),
            "f:1: linkRoute, attribute direction: required and missing: one of in, out",
        ),
        (
            section("autoLink", "address: a", "direction: in"),
            "f:1: autoLink: needs containerId or connection",
        ),
        *(
            (
                section(kind, f"{attribute}: {address}", "direction: in", "containerId: b"),
                f"f:2: {kind}, attribute {attribute}: '{address}' is for routers, which use addresses that begin",
            )
            for kind, attribute in (
                ("autoLink", "address"),
                ("linkRoute", "prefix"),
                ("linkRoute", "pattern"),
            )
            for address in (
                "mc/sfe.all",
                "amqp:/sfe.abcde:0",
                "_topo/0/all/qdrouter",
                "_$phase.1/mc/sfe.all",
                "$management",
                "_orders",
            )
        ),
        (
            section("autoLink", "address: $coordinator", "direction: in", "containerId: b"),
            "f:2: autoLink, attribute address: '$coordinator' is for routers",
        ),
        (
            section("autoLink", "externalAddress: q", "direction: out", "connection: broker"),
            "f:1: autoLink, attribute address: is needed for direction out",
        ),
        (
            section("autoLink", "direction: in", "connection: broker"),
            "f:1: autoLink, attribute address: is needed where externalAddress is absent",
        ),
        (
            section("connector", "name: broker")
            + section("autoLink", "address: a", "direction: in", "connection: broker"),
            "f:7: autoLink, attribute connection: connector 'broker' has role normal; auto-links need role route-",
        ),
        (
            section("connector", "name: broker")
            + section("linkRoute", "prefix: a", "direction: in", "connection: broker"),
            "f:7: linkRoute, attribute connection: connector 'broker' has role normal; link routes need role route-",
        ),
        (
            section("log", "module: ROUTR"),
            "f:2: log, attribute module: 'ROUTR' is not one of DEFAULT, ROUTER",
        ),
        (
            section("log", "module: AGENT", "enable: loud"),
            "f:3: log 'AGENT', attribute enable: 'loud' is not a level",
        ),
        ("listener {\nport: 1\nnonsense\n}\n", "f:3: expected 'attribute: value' or '}', found 'nonsense'"),
        ("port: 1\n", "f:1: attribute 'port' stands outside a section"),
        ("}\n", "f:1: '}' without a section to close"),
        ("listener {\n", "f:1: section 'listener' is not closed by '}'"),
        ('[\n["router", {"id": "a",\n "mode": "x"}]\n]', "f:3: router, attribute mode: 'x' is not one of"),
        ('[\n["router", {"id": "a"]\n]', "f:2: expected ',' or '}', found ']'"),
        ('[\n["router", {"id" "a"}]\n]', "f:2: expected ':', found"),
        ('[\n["router", {"id": }]\n]', "f:2: expected a value, found '}]'"),
        ('[\n["router", {"id": NaN}]\n]', "f:2: invalid JSON value: NaN is not a JSON value"),
        ('[["router", {"id": ["a"]}]]', "f:1: router, attribute id: ['a'] is not a string"),
        ('[["listener", {"host": "a\\ud800"}]]', "attribute host: 'a\\ud800' contains half of a character"),
        ('[["listener", {"cost": true}]]', "attribute cost: True is not an integer"),
        (
            '[["autoLink", {"address": "a", "direction": "in", "containerId": [1]}]]',
            "attribute containerId: [1] is not a string",
        ),
        ('[["address", {"prefix": [1]}]]', "attribute prefix: [1] is not a string"),
        ("[] x", "f:1: unexpected 'x' after the list of sections"),
    ],
)
def test_single_problem(text: str, expected: str) -> None:
    found = messages(text)
    assert any(expected in message for message in found), found
    assert len(found) == 1, found


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    text = section("router", "mode: x") + section("listener", "cost: y", "port: -") + section("nowhere")
    assert [message.split(" ")[0] for message in messages(text)] == ["f:2:", "f:5:", "f:6:", "f:8:"]


def test_a_wrong_mode_does_not_cause_complaints_about_roles() -> None:
    assert len(messages(section("router", "mode: x") + section("listener", "role: inter-router"))) == 1


def test_secrets_are_not_shown() -> None:
    (message,) = messages('[["connector", {"saslPassword": ["hunter2"]}]]')
    assert "hunter2" not in message
    assert "attribute saslPassword: the value is not a string" in message


def test_json_syntax_error_does_not_hide_earlier_problems() -> None:
    assert len(messages('[\n["router", {"mode": "x"}],\n["listener" {}]]')) == 2


def test_a_missing_file_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"^/nowhere/f.conf: cannot be read: No such file"):
        load("/nowhere/f.conf")
