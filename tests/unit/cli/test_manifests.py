"""Reading manifests: every mistake is named with file, line, document and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_cli.manifests import ManifestError, Manifests, load
from isthmus_operator.resources import Connector, Router

HEAD = "apiVersion: isthmus.dev/v1alpha1\nkind: Router\nmetadata:\n  name: east\n"
ROUTER = HEAD + "spec: {}\n"
SITE = (
    "apiVersion: isthmus.dev/v1alpha1\nkind: RelaySite\nmetadata: {name: nyc}\n"
    "spec: {routerRef: {name: east}, group: g, site: nyc, "
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.yaml"


def read(file: Path, text: str) -> Manifests:
    file.write_text(text)
    return load([str(file)])


def problems(file: Path, text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        read(file, text)
    return [problem.removeprefix(f"{file}:") for problem in caught.value.problems]


def test_resources_and_secrets(file: Path) -> None:
    found = read(
        file,
        ROUTER
        + "---\napiVersion: isthmus.dev/v1alpha1\nkind: Connector\nmetadata: {name: c, namespace: shop}\n"
        "spec: {from: {routerRef: {name: east}}, to: {host: h, port: 1}, role: normal}\n"
        "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: Yg==}\nstringData: {c: d}\n",
    )
    router, connector = found.resources
    assert isinstance(router, Router)
    assert isinstance(connector, Connector)
    assert found.secrets[0].data == {"a": b"b", "c": b"d"}
    assert found.namespace == "shop"


def test_a_folder_is_its_yaml_files_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt"):
        (tmp_path / name).write_text(ROUTER.replace("east", name[0]))
    assert [item.name for item in load([str(tmp_path)]).resources] == ["a", "b"]


def test_other_kinds_are_left_out_and_named(file: Path) -> None:
    found = read(file, ROUTER + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")
    assert found.skipped == [f"Deployment web ({file}:7)"]
    # A kind of the same name in another group is not ours.
    other = "---\napiVersion: skupper.io/v2alpha1\nkind: Connector\nmetadata: {name: web}\n"
    assert len(read(file, ROUTER + other).skipped) == 1


def test_a_list_as_kubectl_writes_it(file: Path) -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: isthmus.dev/v1alpha1\n  kind: Router\n  metadata:\n"
    extra = (
        "    name: east\n    uid: x\n    creationTimestamp: 2026-01-01T00:00:00Z\n  status: {replicas: 1}\n"
    )
    assert [item.name for item in read(file, text + extra + "  spec: {}\n").resources] == ["east"]
    assert problems(file, text + extra + "  spec: {replicas: -1}\n") == [
        '11: document 1, Router "east": spec.replicas: Input should be greater than or equal to 0 (it is -1)'
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEAD + "spec:\n  mode: inside\n",
            "6: document 1, Router \"east\": spec.mode: Input should be 'interior' or 'edge' (it is 'inside')",
        ),
        (
            HEAD + "spec:\n  replica: 2\n",
            '6: document 1, Router "east": spec.replica: unknown field; did you mean replicas?',
        ),
        (
            "---\n" + HEAD + "spec:\n  listeners:\n  - name: amqp\n    port: 99999\n",
            '9: document 1, Router "east": spec.listeners[0].port: '
            "Input should be less than or equal to 65535 (it is 99999)",
        ),
        (
            HEAD + "spec:\n  replicas: '2'\n",
            "6: document 1, Router \"east\": spec.replicas: Input should be a valid integer (it is '2')",
        ),
        (
            HEAD + "spec: {}\nspec: {}\n",
            "6: document 1: key 'spec' is there twice",
        ),
        (
            ROUTER + "---\n" + ROUTER,
            '10: document 2, Router "east": metadata.name: this Router is already in {file}:1',
        ),
        (
            ROUTER.replace("v1alpha1", "v9"),
            "1: document 1, Router \"east\": apiVersion: 'isthmus.dev/v9' is not isthmus.dev/v1alpha1",
        ),
        (
            ROUTER.replace("Router", "Routr"),
            "2: document 1, Routr \"east\": kind: 'Routr' is not one of Connector, FlowAnalysis, FlowLog, "
            "GossipRouter, LinkRoute, RelaySite, Router, SslProfile",
        ),
        ("just words\n", "1: document 1: not an object with apiVersion, kind, metadata and spec"),
        (
            "metadata: {name: x}\n",
            "1: document 1: has no kind; a resource begins with apiVersion: isthmus.dev/v1alpha1, kind:",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  key: not base64!\n",
            '5: document 1, Secret "s": data.key: not base64; plain text goes under stringData',
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: [1]\n",
            '4: document 1, Secret "s": data: should be a map of names to values',
        ),
        (
            ROUTER.replace("east", "East_1"),
            '4: document 1, Router "East_1": metadata.name: should be small letters, digits, dashes and dots, '
            "each part beginning and ending with a letter or digit (it is 'East_1')",
        ),
        (
            HEAD + "spec:\n  site: a b\n",
            '6: document 1, Router "east": spec.site: has a character that is not allowed here, '
            "or begins or ends with one that is not (it is 'a b')",
        ),
        (
            SITE + "discovery: {type: hostList, hosts: ['a:99999']}}\n",
            '4: document 1, RelaySite "nyc": spec.discovery.hosts[0]: should be host or host:port, with a port of 1 to '
            "65535; an IPv6 address stands in brackets (it is 'a:99999')",
        ),
        (
            SITE + "discovery: {type: hostList, hosts: []}}\n",
            '4: document 1, RelaySite "nyc": spec.discovery.hosts: List should have at least 1 item, not 0',
        ),
        (
            HEAD + "spec:\n  mode: null\n",
            "6: document 1, Router \"east\": spec.mode: Input should be 'interior' or 'edge' (it is null)",
        ),
        (
            HEAD + "spec:\n  replicas: {a: 1}\n",
            '6: document 1, Router "east": spec.replicas: Input should be a valid integer (it is a map)',
        ),
        (HEAD + "spec:\n", '5: document 1, Router "east": spec: Input should be a map (it is null)'),
        ("a: [1\nb: 2\n", "2: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("a:\n\tb: 1\n", "2: a tab is used for indentation; YAML wants spaces"),
    ],
)
def test_mistakes(file: Path, text: str, expected: str) -> None:
    assert problems(file, text) == [expected.replace("{file}", str(file))]


def test_one_network_is_one_namespace(file: Path) -> None:
    other = HEAD.replace("east", "west") + "  namespace: b\nspec: {}\n"
    (problem,) = problems(file, HEAD + "  namespace: a\nspec: {}\n---\n" + other)
    assert problem.endswith("metadata.namespace: 'b' beside 'a': one network runs one namespace")


def test_all_mistakes_at_once(file: Path) -> None:
    text = HEAD + "spec: {mode: x, replicas: -1}\n---\nkind: Router\n"
    assert len(problems(file, text)) == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ManifestError) as caught:
        load([str(tmp_path / "none.yaml"), str(tmp_path / "binary.yaml"), str(tmp_path / "empty")])
    assert caught.value.problems == [
        f"{tmp_path}/none.yaml: no such file",
        f"{tmp_path}/binary.yaml: cannot be read: not UTF-8 text",
        f"{tmp_path}/empty: the folder has no .yaml file",
    ]


def test_a_secret_is_never_shown(file: Path) -> None:
    found = read(file, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n")
    assert "hunter2" not in repr(found)
