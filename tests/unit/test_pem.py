"""PEM files: read once, with a bound, and only what OpenSSL is to read of them is passed on."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from proton import SSLException
from tests.unit.operator.test_revocations import revoking

from isthmus_flowlog.collector.credentials import ssl_domain
from isthmus_flowlog.collector.settings import Tls
from isthmus_router import pem
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


class Pipes:
    """Named pipes with the names of the files. A reader that opens one a second time reads another certificate."""

    def __init__(self, folder: Path) -> None:
        self.paths = {name: folder / name for name in FILES}
        self.opened = dict.fromkeys(FILES, 0)
        self._threads = [threading.Thread(target=self._serve, args=(name,)) for name in FILES]
        self._over = False
        for path in self.paths.values():
            os.mkfifo(path)
        for thread in self._threads:
            thread.start()

    def _serve(self, name: str) -> None:
        while True:
            with open(self.paths[name], "wb") as pipe:
                if self._over:
                    return
                self.opened[name] += 1
                with contextlib.suppress(BrokenPipeError):
                    pipe.write(FILES[name] if self.opened[name] == 1 else OTHER.cert_pem.bytes())
            self._await_reader_gone(name)

    def _await_reader_gone(self, name: str) -> None:
        """Until then the same reader would get the next content as well."""
        with contextlib.suppress(OSError):
            while not self._over:
                os.close(os.open(self.paths[name], os.O_WRONLY | os.O_NONBLOCK))

    def close(self) -> None:
        self._over = True
        for thread, path in zip(self._threads, self.paths.values(), strict=True):
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            thread.join()
            os.close(reader)

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Pipes]:
    made = Pipes(tmp_path)
    yield made
    made.close()


def profile(files: Pipes | dict[str, str]) -> SslProfileConfig:
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


def test_a_router_reads_each_file_once(pipes: Pipes) -> None:
    TlsDomain(profile(pipes), server=True, verify_peer=1)
    assert pipes.opened == ONCE


def test_a_member_reads_each_file_once(pipes: Pipes) -> None:
    credentials = Credentials(profile(pipes))
    trusted = ssl.PEM_cert_to_DER_cert(TRUSTED.decode())
    assert [context.get_ca_certs(True) for context in (credentials.server, credentials.client)] == [
        [trusted]
    ] * 2
    assert pipes.opened == ONCE


def test_a_collector_reads_each_file_once(pipes: Pipes) -> None:
    ssl_domain(Tls(pipes["ca.crt"], pipes["revoked.pem"], pipes["tls.crt"], pipes["tls.key"]))
    assert pipes.opened == ONCE


def test_a_gossip_router_does_not_use_files_that_change_meanwhile(pipes: Pipes) -> None:
    files = TlsFiles(pipes["tls.crt"], pipes["tls.key"], pipes["ca.crt"])
    watched = WatchedFiles(files)
    assert watched.load() is None, "the second reading finds other contents"
    with pytest.raises(CredentialsError, match="not a PEM file"):
        watched.load()


@pytest.mark.parametrize("name", FILES)
def test_files_without_end_are_refused(tmp_path: Path, name: str) -> None:
    for file, content in FILES.items():
        (tmp_path / file).write_bytes(content)
    paths = {file: str(tmp_path / file) for file in FILES} | {name: "/dev/zero"}
    own = profile(paths)
    for load, error in (
        (lambda: TlsDomain(own, server=True, verify_peer=1), TlsError),
        (lambda: Credentials(own), CredentialsError),
        (
            lambda: ssl_domain(
                Tls(*(paths[file] for file in ("ca.crt", "revoked.pem", "tls.crt", "tls.key")))
            ),
            ValueError,
        ),
    ):
        with pytest.raises(error, match=r"it has more than \d+ bytes"):
            load()


def test_a_list_of_revocations_that_is_none_is_named(tmp_path: Path) -> None:
    for file, content in {**FILES, "revoked.pem": b"none"}.items():
        (tmp_path / file).write_bytes(content)
    paths = {file: str(tmp_path / file) for file in FILES}
    with pytest.raises(TlsError, match=r"crlFile '.*revoked\.pem'"):
        TlsDomain(profile(paths), server=True, verify_peer=1)
    with pytest.raises(SSLException, match=r"revoked\.pem: no certificate revocation list"):
        ssl_domain(Tls(paths["ca.crt"], paths["revoked.pem"]))
