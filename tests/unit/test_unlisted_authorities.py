"""Authorities that no certificate revocation list is from: whoever configures TLS is told of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography import x509
from tests.integration.support.certificates import Authority

from isthmus_router.__main__ import main
from isthmus_router.credentials import TlsFiles


def name(authority: Authority) -> str:
    """The organisational unit of its subject."""
    subject = x509.load_pem_x509_certificate(authority.certificate.read_bytes()).subject
    return next(str(part.value) for part in subject if part.oid == x509.NameOID.ORGANIZATIONAL_UNIT_NAME)


def remark(authorities: Path, lists: Path | None) -> str:
    revocations = str(lists) if lists is not None else None
    return TlsFiles(None, None, str(authorities), revocations=revocations).read().remark()


@pytest.fixture
def root(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "root")


def test_a_root_with_its_list_needs_no_other(root: Authority) -> None:
    assert remark(root.file, root.revoke()) == ""
    assert remark(root.file, None) == ""


def test_authorities_without_a_list_are_named(root: Authority, tmp_path: Path) -> None:
    intermediate = root.subordinate("west")
    both = tmp_path / "both.pem"
    both.write_bytes(intermediate.certificate.read_bytes() + root.file.read_bytes())
    assert remark(both, root.revoke()) == ""
    text = remark(both, intermediate.revoke())
    assert name(root) in text
    assert name(intermediate) not in text
    assert str(tmp_path / "west.crl") in text


def test_few_of_many_authorities_are_named(root: Authority, tmp_path: Path) -> None:
    others = [Authority(tmp_path, f"other{number}") for number in range(6)]
    all_of_them = tmp_path / "all.pem"
    all_of_them.write_bytes(b"".join(item.file.read_bytes() for item in (root, *others)) * 2)
    text = remark(all_of_them, root.revoke())
    assert [name(item) in text for item in others] == [True] * 4 + [False] * 2
    assert text.endswith(" and 2 more")


@pytest.mark.parametrize("complete", [True, False])
def test_the_check_of_a_configuration_names_them(
    root: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str], complete: bool
) -> None:
    lists = root.revoke() if complete else Authority(tmp_path, "other").revoke()
    _, profile = root.issue("router").profile(crlFile=str(lists))
    empty = {**profile, "name": "empty", "crlFile": str(root.file)}
    configuration = tmp_path / "router.json"
    configuration.write_text(
        json.dumps([["router", {"id": "A"}], ["sslProfile", profile], ["sslProfile", empty]])
    )
    assert main(["-c", str(configuration), "--check"]) == 0
    *warnings, last = capsys.readouterr().out.splitlines()
    assert last.endswith("valid")
    assert (
        f"warning: sslProfile empty: crlFile '{root.file}': no certificate revocation list in it" in warnings
    )
    assert [
        name(root) in line for line in warnings if line.startswith("warning: sslProfile tls: crlFile")
    ] == ([] if complete else [True])
