"""Any valid configuration says the same as text and as JSON; any text at all is read or refused."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.config.printing import Pairs, as_conf, as_json

from isthmus_router.config import ConfigError, parse
from isthmus_router.config.attributes import Attribute, Kind, Section
from isthmus_router.config.schema import SECTIONS
from isthmus_router.core.address import Purpose, purpose
from isthmus_router.core.roles import Role

WORD = st.text("abcXYZ019_.$@:=-", min_size=1, max_size=12).filter(
    lambda word: not word.startswith(("env:", "file:"))
)
SENTENCE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
OF_CLIENTS = SENTENCE.filter(lambda address: purpose(address) is Purpose.CLIENTS)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FREE_KEYS = st.text(max_size=8).map(lambda key: f"user-{key}")

GROUPS = st.fixed_dictionaries(
    {},
    optional={
        "remoteHosts": st.sampled_from(["*", "::1, 10.0.0.0-10.0.0.9", ["localhost", "10.0.0.0/8"]]),
        "maxSenders": st.integers(0, 100) | st.just("7"),
        "allowDynamicSource": st.booleans() | st.sampled_from(["yes", "no"]),
        "sources": st.sampled_from(["*", "a*, b", ["a", "b*"]]),
        "targetPattern": st.sampled_from(["a/#", "${user}/*, #", []]),
    },
)


def values(attribute: Attribute) -> st.SearchStrategy[object]:
    match attribute.kind:
        case Kind.INTEGER:
            low = attribute.minimum or 0
            return st.integers(low, attribute.maximum if attribute.maximum is not None else low + 1000)
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.PORT:
            return st.integers(1, 65535) | st.sampled_from(["amqp", "amqps"])
        case Kind.ENUM:
            return st.sampled_from(attribute.choices)
        case Kind.MAP:
            return st.dictionaries(FREE_KEYS.filter(str.isascii), JSON_VALUES, max_size=3)
        case Kind.WORDS:
            return SENTENCE
        case Kind.LIST | Kind.ENDPOINTS:
            return st.just("")
        case Kind.GROUPS:
            return st.dictionaries(FREE_KEYS, GROUPS, max_size=2)
        case _:
            return WORD if attribute.keeps_hash else SENTENCE


SPECIAL = {
    ("router", "dataConnectionCount"): st.sampled_from(["auto", "0", "7"]),
    ("router", "id"): st.text("abcXYZ019_.-", min_size=1, max_size=20),
    ("router", "helloIntervalSeconds"): st.just(1),
    ("router", "helloMaxAgeSeconds"): st.integers(2, 9),
    ("router", "raIntervalSeconds"): st.integers(1, 59),
    ("router", "raIntervalFluxSeconds"): st.integers(1, 59),
    ("router", "remoteLsMaxAgeSeconds"): st.integers(60, 90),
    ("sslProfile", "protocols"): st.sampled_from(["TLSv1.2", "TLSv1.2 TLSv1.3"]),
    ("sslProfile", "ordinal"): st.integers(10, 20),
    ("sslProfile", "oldestValidOrdinal"): st.integers(0, 0),
    ("sslProfile", "uidFormat"): st.text("125csloun", min_size=1),
    ("listener", "failoverUrls"): st.sampled_from(["h", "amqps://h:5671, [::1]:amqp"]),
    ("listener", "role"): st.sampled_from(["normal", "route-container"]),
    ("connector", "role"): st.sampled_from(["normal", "route-container"]),
    ("relaySite", "group"): st.sampled_from(["trades", "a-1"]),
    ("relaySite", "site"): st.just("own"),
    ("relaySite", "plainText"): st.just(True),
    ("relaySite", "announce"): st.sampled_from(["a, b:7801", "[::1]:7800,::1", "10.0.0.1"]),
    ("relaySite", "discovery"): st.just("hostList"),
    ("relaySite", "discoveryHosts"): st.sampled_from(["", "a", "a:1, b:2"]),
    **{
        ("relaySite", name): st.sampled_from(["", "::1", "h.example"])
        for name in ("memberHost", "bridgeHost")
    },
    ("relaySite", "bridgePort"): st.integers(1, 7799),
    ("relaySite", "memberPort"): st.integers(7901, 65535),
    ("relaySite", "stateAddress"): st.sampled_from(["trades/state", "s"]),
    ("relayRemote", "site"): st.just("other"),
    ("relayRemote", "endpoints"): st.sampled_from(["a", "a.example:1, 10.0.0.1"]),
    ("relayAddress", "pattern"): st.sampled_from(["a/#/b", "*.b", "c"]),
    ("policy", "enableVhostPolicy"): st.just(False),
    ("vhost", "allowUnknownUser"): st.just(False),
    ("linkRoute", "prefix"): OF_CLIENTS,
    ("autoLink", "address"): OF_CLIENTS,
    ("log", "enable"): st.sampled_from(["info+", "debug", "none", "trace, error+"]),
}
LEFT_OUT = {
    *("bridgeSslProfile", "gossipSslProfile", "over"),
    *(
        "privateKeyFile",
        "crlFile",
        "sslProfile",
        "requireSsl",
        "requireClientCertificate",
        "http",
        "prefix",
        "pattern",
    ),
}
ALWAYS = {
    "listener": {"name", "port"},
    "connector": {"name"},
    "log": {"module"},
    "address": {"prefix"},
    "relaySite": {"group", "site", "plainText"},
    "relayRemote": {"site"},
    "relayAddress": {"pattern"},
    "linkRoute": {"prefix", "direction", "connection"},
    "autoLink": {"address", "direction", "containerId"},
    "sslProfile": {"name"},
    "vhost": {"hostname"},
}


@st.composite
def entities(draw: st.DrawFn, section: Section) -> tuple[str, dict[str, object]]:
    attributes = {}
    always = ALWAYS.get(section.name, set())
    for attribute in section.attributes:
        optional = attribute.name not in always
        if attribute.unsupported or (optional and (attribute.name in LEFT_OUT or draw(st.booleans()))):
            continue
        strategy = SPECIAL.get((section.name, attribute.name), values(attribute))
        attributes[attribute.name] = draw(strategy)
    return section.name, attributes


@st.composite
def configurations(draw: st.DrawFn) -> Pairs:
    """Pairs that make a valid configuration; names, ports and the like are made unique afterwards."""
    pairs = []
    for section in SECTIONS.values():
        count = 1 if section.singleton else draw(st.integers(0, 2))
        if section.name.startswith("relay") and pairs[0][1].get("mode") == "edge":
            continue
        for index in range(count):
            name, attributes = draw(entities(section))
            for unique in ("site", "pattern", "name", "prefix", "containerId", "hostname"):
                if unique in attributes and not section.singleton:
                    attributes[unique] = f"{attributes[unique]}{index}"
            if "port" in attributes:
                attributes["port"] = 20000 + index
            if name == "log":
                attributes["module"] = ("ROUTER", "SERVER")[index]
            pairs.append((name, attributes))
    pairs[0][1].setdefault("id", "r")
    return draw(st.permutations(pairs))


@given(configurations())
def test_text_and_json_mean_the_same(pairs: Pairs) -> None:
    assert parse(as_conf(pairs), "f.conf") == parse(as_json(pairs), "f.json")


@given(configurations())
def test_what_was_written_is_what_is_read(pairs: Pairs) -> None:
    configuration = parse(as_json(pairs), "f.json")
    written = [attributes for name, attributes in pairs if name == "listener"]
    for attributes, listener in zip(written, configuration.listeners, strict=True):
        assert listener.name == attributes["name"]
        assert listener.max_frame_size == attributes.get("maxFrameSize", 16384)
        assert listener.open_properties == attributes.get("openProperties", {})
        assert listener.role is Role.from_label(str(attributes.get("role", "normal")))


def reads_or_refuses(text: str) -> None:
    problems = None
    try:
        parse(text, "f")
    except ConfigError as error:
        problems = error.problems
    assert problems is None or problems
    assert all("\n" not in problem.message for problem in problems or ())


FRAGMENTS = st.sampled_from(
    [
        *(f"{name} {{" for name in SECTIONS),
        *(f'["{name}", {{' for name in SECTIONS),
        *(f"{a.name}: " for s in SECTIONS.values() for a in s.attributes),
        *(f'"{a.name}": ' for s in SECTIONS.values() for a in s.attributes),
        *(
            "\n",
            "}",
            "}]",
            "]",
            "[",
            "{",
            ",",
            ":",
            "#",
            '"',
            "1",
            "-1",
            "1e999",
            "amqp",
            "true",
            "null",
            "{}",
        ),
        *("openProperties: {\n", "9" * 5000, "[" * 100, "\\u0000", "\0", "\r\n", "\ufeff", "a#b", "NaN", "è"),
    ]
)


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=40).map("".join))
@example("[" * 100_000)
@example('[["router",{"id":' + "[" * 100_000)
@example('[["router",{"id":' + "9" * 5000 + "}]]")
@example("listener {\nopenProperties: " + '{"a":' * 100_000)
@example('[["router",{"id":"\\ud800"}]]')
@example("listener {\nport: ²\n}\n")
def test_pieces_of_configurations(text: str) -> None:
    reads_or_refuses(text)


@given(st.text())
def test_arbitrary_text(text: str) -> None:
    reads_or_refuses(text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(SECTIONS)),
            JSON_VALUES
            | st.dictionaries(
                st.sampled_from([a.name for s in SECTIONS.values() for a in s.attributes]),
                JSON_VALUES,
                max_size=6,
            ),
        ),
        max_size=6,
    )
)
def test_arbitrary_values(pairs: list[tuple[str, object]]) -> None:
    reads_or_refuses(json.dumps(pairs))


def test_a_comma_before_a_bracket_in_a_string_stays() -> None:
    pairs: Pairs = [("router", {"id": "r"}), ("listener", {"port": 20000, "openProperties": {"a,]": 1}})]
    assert parse(as_conf(pairs), "f.conf").listeners[0].open_properties == {"a,]": 1}
