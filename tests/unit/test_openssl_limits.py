"""Bounds that each TLS context of the project has, whatever library made it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import cproton_ffi
import pytest
from cproton_ffi import lib
from tests.integration.support.certificates import Authority

from isthmus_flowlog.collector.credentials import ssl_domain
from isthmus_flowlog.collector.settings import Tls
from isthmus_router import openssl
from isthmus_router.amqp.tls import TlsDomain
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.credentials import Credentials

GET_MAX_CERT_LIST = 50


def profile(folder: Path) -> SslProfileConfig:
    identity = Authority(folder, "ca").issue("localhost")
    return SslProfileConfig(
        name="tls",
        ciphers=None,
        protocols=None,
        ca_cert_file=str(identity.trusted),
        crl_file=None,
        cert_file=str(identity.certificate),
        private_key_file=str(identity.key),
        password=None,
        uid_format=None,
        uid_name_mapping_file=None,
        ordinal=0,
        oldest_valid_ordinal=0,
    )


def collector(folder: Path) -> None:
    ssl_domain(Tls(ca=profile(folder).ca_cert_file))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: TlsDomain(profile(folder), server=True, verify_peer=lib.PN_SSL_VERIFY_PEER),
        lambda folder: TlsDomain(profile(folder), server=False, verify_peer=lib.PN_SSL_VERIFY_PEER),
        lambda folder: Credentials(profile(folder)),
        collector,
    ],
    ids=["listener", "connector", "members and gossip routers", "collector"],
)
def test_bounds_of_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    library = ctypes.CDLL(cproton_ffi.__file__)
    library.SSL_CTX_get_verify_depth.argtypes = [ctypes.c_void_p]
    library.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    library.SSL_CTX_ctrl.restype = ctypes.c_long
    limited: list[tuple[int, int]] = []
    limit = openssl.limit_peers

    def observed(context: int) -> None:
        limit(context)
        found = library.SSL_CTX_get_verify_depth(context)
        limited.append((found, library.SSL_CTX_ctrl(context, GET_MAX_CERT_LIST, 0, None)))

    monkeypatch.setattr(openssl, "limit_peers", observed)
    monkeypatch.setattr("isthmus_router.credentials.limit_peers", observed)
    kept = make(tmp_path)
    assert limited
    assert set(limited) == {(openssl.MOST_AUTHORITIES, openssl.MOST_CHAIN_BYTES)}
    del kept
