"""PEM files: read once, with a bound, and only what OpenSSL is to read of them is passed on."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from proton import SSLException
from tests.unit.operator.test_revocations import revoking

from isthmus_flowlog.collector.credentials import ssl_domain
from isthmus_flowlog.collector.settings import Tls
from isthmus_router import pem, regular_files
from isthmus_router.amqp.tls import TlsDomain, TlsError
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.credentials import Credentials, CredentialsError, TlsFiles, WatchedFiles

AUTHORITY, OTHER = trustme.CA(), trustme.CA()
ISSUED = AUTHORITY.issue_cert("west.example")
CERTIFICATE = ISSUED.cert_chain_pems[0].bytes()
KEY = ISSUED.private_key_pem.bytes()
TRUSTED = AUTHORITY.cert_pem.bytes()
LISTS = revoking()
FILES = {"tls.crt": CERTIFICATE, "tls.key": KEY, "ca.crt": TRUSTED, "revoked.pem": LISTS}


def key_block(label: bytes) -> bytes:
    return b"-----BEGIN %b-----\nAAAA\n-----END %b-----\n" % (label, label)


def headed(content: bytes) -> bytes:
    """The block with the headers of an encrypted one."""
    begin, _, rest = content.partition(b"\n")
    return begin + b"\nProc-Type: 4,ENCRYPTED\nDEK-Info: DES-CBC,0011223344556677\n\n" + rest


@pytest.mark.parametrize(
    "content",
    [
        KEY + CERTIFICATE + TRUSTED,
        CERTIFICATE + key_block(b"DSA PRIVATE KEY") + key_block(b"EC PARAMETERS") + TRUSTED + KEY,
        b"Bag Attributes\n" + CERTIFICATE + b"    localKeyID: 01 \xff\n" + TRUSTED.rstrip(),
        (CERTIFICATE + TRUSTED).replace(b"\n", b" \t\r\n"),
        CERTIFICATE.replace(b"\n", b"\n\n") + TRUSTED,
    ],
)
def test_a_chain_has_the_certificates_and_nothing_else(content: bytes) -> None:
    assert pem.chain(content) == CERTIFICATE + TRUSTED


@pytest.mark.parametrize("label", [b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"])
def test_certificates_keep_their_labels(label: bytes) -> None:
    content = TRUSTED.replace(b"CERTIFICATE", label)
    assert pem.chain(content) == pem.authorities(content) == content


def test_authorities_may_have_lists_beside_them() -> None:
    assert pem.authorities(b"text" + b"\n" + TRUSTED + LISTS) == TRUSTED + LISTS


@pytest.mark.parametrize("encoded", [pem.chain, pem.authorities])
@pytest.mark.parametrize(
    "content",
    [
        TRUSTED + b"x" * 254 + CERTIFICATE,
        TRUSTED + b"  " + CERTIFICATE,
        headed(TRUSTED),
        TRUSTED[:-12],
        TRUSTED.replace(b"END CERTIFICATE", b"END X509 CERTIFICATE"),
        TRUSTED.replace(b"M", b"=", 1),
        TRUSTED.rstrip() + CERTIFICATE,
    ],
    ids=["long line", "indented", "headers", "no end", "other end", "no base64", "one line"],
)
def test_blocks_that_parsers_read_differently_are_refused(
    encoded: Callable[[bytes], bytes], content: bytes
) -> None:
    with pytest.raises(ValueError, match="a PEM block in it is"):
        encoded(content)


def test_a_file_without_blocks_has_no_certificates() -> None:
    assert pem.chain(b"text") == pem.authorities(b"") == b""


def test_a_file_in_memory_has_the_content_and_goes() -> None:
    with pem.in_memory(b"x" * 100_000) as name:
        assert Path(name).read_bytes() == Path(name).read_bytes() == b"x" * 100_000
    with pem.in_memory(b"") as again:
        assert again == name


class Changing:
    """Files that have another content once they were read: who opens one a second time reads another certificate."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths = {name: folder / name for name in FILES}
        self.opened = dict.fromkeys(FILES, 0)
        for name, path in self.paths.items():
            path.write_bytes(FILES[name])
        original = regular_files.read

        def read(path: str, most: int) -> bytes:
            content = original(path, most)
            self.opened[Path(path).name] += 1
            Path(path).write_bytes(OTHER.cert_pem.bytes())
            return content

        monkeypatch.setattr(regular_files, "read", read)

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changing:
    return Changing(tmp_path, monkeypatch)


def profile(files: Changing | dict[str, str]) -> SslProfileConfig:
    return SslProfileConfig(
        name="own",
        ciphers=None,
        protocols=None,
        ca_cert_file=files["ca.crt"],
        crl_file=files["revoked.pem"],
        cert_file=files["tls.crt"],
        private_key_file=files["tls.key"],
        password=None,
        uid_format=None,
        uid_name_mapping_file=None,
        ordinal=0,
        oldest_valid_ordinal=0,
    )


ONCE = dict.fromkeys(FILES, 1)


def test_a_router_reads_each_file_once(changing: Changing) -> None:
    TlsDomain(profile(changing), server=True, verify_peer=1)
    assert changing.opened == ONCE


def test_a_member_reads_each_file_once(changing: Changing) -> None:
    credentials = Credentials(profile(changing))
    trusted = ssl.PEM_cert_to_DER_cert(TRUSTED.decode())
    assert [context.get_ca_certs(True) for context in (credentials.server, credentials.client)] == [
        [trusted]
    ] * 2
    assert changing.opened == ONCE


def test_a_collector_reads_each_file_once(changing: Changing) -> None:
    ssl_domain(Tls(changing["ca.crt"], changing["revoked.pem"], changing["tls.crt"], changing["tls.key"]))
    assert changing.opened == ONCE


def test_a_gossip_router_does_not_use_files_that_change_meanwhile(changing: Changing) -> None:
    files = TlsFiles(changing["tls.crt"], changing["tls.key"], changing["ca.crt"])
    watched = WatchedFiles(files)
    assert watched.load() is None, "the second reading finds other contents"
    with pytest.raises(CredentialsError, match="not a PEM file"):
        watched.load()


@pytest.mark.parametrize("kind", ["large file", "device", "pipe"])
@pytest.mark.parametrize("name", FILES)
def test_files_without_end_and_pipes_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    for file, content in FILES.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / name).unlink()
    if kind == "large file":
        with (tmp_path / name).open("wb") as large:
            large.truncate(65 << 20)
    elif kind == "device":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / name)
    paths = {file: str(tmp_path / file) for file in FILES}
    own = profile(paths)
    for load, error in (
        (lambda: TlsDomain(own, server=True, verify_peer=1), TlsError),
        (lambda: Credentials(own), CredentialsError),
        (
            lambda: ssl_domain(
                Tls(*(paths[file] for file in ("ca.crt", "revoked.pem", "tls.crt", "tls.key")))
            ),
            OSError,
        ),
    ):
        with pytest.raises(error, match=r"it has more than \d+ bytes|it is not a regular file"):
            load()


def test_a_list_of_revocations_that_is_none_is_named(tmp_path: Path) -> None:
    for file, content in {**FILES, "revoked.pem": b"none"}.items():
        (tmp_path / file).write_bytes(content)
    paths = {file: str(tmp_path / file) for file in FILES}
    with pytest.raises(TlsError, match=r"crlFile '.*revoked\.pem'"):
        TlsDomain(profile(paths), server=True, verify_peer=1)
    with pytest.raises(SSLException, match=r"revoked\.pem: no certificate revocation list"):
        ssl_domain(Tls(paths["ca.crt"], paths["revoked.pem"]))
