"""The sections policy and vhost: groups in every form that files have them in, and what is wrong with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.config.test_errors import messages

from isthmus_router.config import ConfigError, Configuration, parse
from isthmus_router.config.model import PolicyConfig
from isthmus_router.policy.rules import Ruleset

ROOT = Path(__file__).parents[3]
GROUPS = {
    "shops": {
        "users": ["north", "south"],
        "remoteHosts": "*",
        "sourcePattern": "offers/#, a/*",
        "maxSenders": 3,
    },
    "$default": {"remoteHosts": ["10.0.0.0/8", "::1"], "targets": "x*", "allowAnonymousSender": True},
}
NESTED = """
vhost {
    hostname: #.example
    groups: {
        # who sells
        shops: {
            users: north, south   # both
            remoteHosts: *
            source-pattern: offers/#, a/*
            sourcePattern: offers/#, a/*
            maxSenders: 3
        }

        $default: {
            remoteHosts: 10.0.0.0/8, ::1
            targets: x*
            allowAnonymousSender: yes
        }
    }
}
"""


def vhost(groups: object, **attributes: object) -> str:
    return json.dumps([["vhost", {"hostname": "h", "groups": groups, **attributes}]])


def groups_of(text: str) -> object:
    return parse(text, "f").vhosts[0].groups


def test_groups_mean_the_same_in_every_form() -> None:
    wanted = groups_of(vhost(GROUPS))
    nested = NESTED.replace("            source-pattern: offers/#, a/*\n", "")
    assert groups_of(nested) == wanted
    assert parse(nested, "f").vhosts[0].hostname == "#.example"
    spare = json.dumps(GROUPS, indent=2).replace("\n  }", ",\n # a comment\n  }")
    assert groups_of(f"vhost {{\n id: h\n groups: {spare}\n}}\n") == wanted
    assert groups_of(vhost(json.dumps(GROUPS))) == wanted, "as management tools send it"


def test_the_example_of_the_page() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    (text,) = re.findall(r"```\n(policy \{.*?)```", page, re.DOTALL)
    configuration: Configuration = parse(text, "page")
    assert configuration.warnings == ()
    assert configuration.policy.enable_vhost_policy
    assert configuration.vhosts[0].groups["shops"].sources == ("offers*", "${user}/*")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (vhost({"a": 7}), "f:1: vhost 'h', attribute groups: group 'a' is not a map of attributes"),
        (vhost([]), "vhost 'h', attribute groups: [] is not a map of user groups"),
        (vhost("{a"), "vhost 'h', attribute groups: '{a' is not a map of user groups"),
        (
            vhost({"a": {"sauces": "x"}}),
            "group 'a' has an unknown attribute 'sauces'; attributes are allowAdmin",
        ),
        (vhost({"a": {"maxSenders": -1}}), "group 'a', attribute maxSenders: -1 is out of range"),
        (
            vhost({"a": {"users": {}}}),
            "group 'a', attribute users: {} is not a list: items separated by commas",
        ),
        (vhost({"a": {"users": "u"}, "b": {"users": "v, u"}}), "user 'u' is in two groups, 'a' and 'b'"),
        (vhost({"a": {"remoteHosts": "h.example"}}), "'h.example' is not a host: give '*', an IP address"),
        (vhost({"a": {"sources": "a", "sourcePattern": "b"}}), "only one of sources and sourcePattern"),
        (vhost({"a": {"targets": "${group}/x"}}), "'${group}/x': only ${user} can be substituted"),
        (vhost({"a": {"maxFrameSize": 100}}), "attribute maxFrameSize: 100 is out of range: at least 512"),
        (vhost({}, allowUnknownUser=True), "attribute allowUnknownUser: needs the group '$default'"),
        (
            vhost({})[:-1] + ", " + vhost({}, hostname="i", aliases="x, h")[1:],
            "'h' is the name of two vhosts",
        ),
        ("vhost {\n}\n", "f:1: vhost, attribute hostname: required and missing"),
        (
            "policy {\n enableVhostPolicy: yes\n}\nvhost {\n hostname: broker\n}\n"
            "connector {\n policyVhost: broker\n role: route-container\n}\n",
            "attribute policyVhost: vhost 'broker' has no group '$connector'",
        ),
        (
            "router {\n mode: interior\n}\nconnector {\n policyVhost: x\n role: inter-router\n}\n",
            "attribute policyVhost: only for connectors of the roles normal and route-container",
        ),
        ("vhostUserGroupSettings {\n}\n", "not supported: write the groups into `groups` of the vhost"),
    ],
)
def test_what_is_wrong(text: str, expected: str) -> None:
    (found,) = messages(text)
    assert expected in found


class Files:
    """Sources with the files of one directory."""

    def __init__(self, **files: str) -> None:
        self.files = {f"{name}.json": text for name, text in files.items()}

    def read(self, path: str) -> bytes:
        return self.files[path.removeprefix("/vhosts/")].encode()

    def names(self, folder: str) -> list[str]:
        if folder != "/vhosts":
            raise FileNotFoundError(2, "No such file or directory")
        return [*self.files, "readme.txt"]

    def variable(self, name: str) -> str | None:
        return None


def test_vhosts_in_a_directory() -> None:
    text = "policy {\n policyDir: /vhosts/\n}\nvhost {\n hostname: z\n}\n".replace("/vhosts/", "/vhosts")
    files = Files(a=vhost(GROUPS), b='[["router", {"id": "other"}], ["vhost", {"hostname": "b"}]]')
    configuration = parse(text, "f", sources=files)
    assert [item.hostname for item in configuration.vhosts] == ["z", "h", "b"]
    assert configuration.router.id != "other"


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("/nowhere", Files(), "'/nowhere' cannot be read: No such file or directory"),
        ("/vhosts", Files(a='[["vhost", {}]]'), "/vhosts/a.json:1: vhost, attribute hostname: required"),
        ("/vhosts", Files(a="[["), "/vhosts/a.json:1: "),
        ("/vhosts", Files(a=vhost({}), b=vhost({})), "'h' is the name of two vhosts"),
    ],
)
def test_what_is_wrong_in_a_directory(text: str, files: Files, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"policy {{\n policyDir: {text}\n}}\n", "f", sources=files)
    assert expected in str(caught.value)


def test_what_is_probably_not_meant() -> None:
    groups = {
        "a": {"users": "u"},
        "b": {"remoteHosts": "*"},
        "$connector": {},
        "$default": {"remoteHosts": "*"},
    }
    assert parse(vhost(groups), "f").warnings == (
        "f:1: vhost 'h': without effect: enableVhostPolicy of the policy section is not set",
        "f:1: vhost 'h', attribute groups: group 'a' has no remoteHosts: none of its users may connect",
        "f:1: vhost 'h', attribute groups: group 'b' has no users",
    )


@pytest.mark.parametrize(
    ("names", "conflict"),
    [
        (("#.example", "#.#.example"), True),
        (("*.#.x", "#.*.x"), True),
        (("a.b", "a/b"), True),
        (("*.*.x", "*.x"), False),
        (("#.example", "*.example"), False),
    ],
)
def test_patterns_of_vhosts_that_match_the_same(names: tuple[str, str], conflict: bool) -> None:

    def configured(*, patterns: bool) -> Configuration:
        policy = {"enableVhostPolicy": True, "enableVhostNamePatterns": patterns}
        vhosts = [["vhost", {"hostname": name}] for name in names]
        return parse(json.dumps([["router", {"id": "a"}], ["policy", policy], *vhosts]), "f")

    assert len(configured(patterns=False).vhosts) == 2
    if not conflict:
        assert len(configured(patterns=True).vhosts) == 2
        return
    with pytest.raises(ConfigError) as refused:
        configured(patterns=True)
    assert f"{names[1]!r}: pattern conflicts with {names[0]!r}" in str(refused.value)
    assert all(problem.duplicate for problem in refused.value.problems)


def test_a_vhost_of_clients_without_a_hostname() -> None:
    names = [["vhost", {"hostname": name}] for name in ("", "$default")]
    text = json.dumps([["router", {"id": "a"}], *names])
    vhosts = parse(text, "f").vhosts
    assert [vhost.hostname for vhost in vhosts] == ["", "$default"]
    rules = Ruleset(PolicyConfig(), vhosts)
    assert rules.vhost("") is rules.vhosts[""]
    assert rules.vhost("elsewhere") is rules.vhosts["$default"]
