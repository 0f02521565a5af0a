"""What the collector connects with: the files of `tls` and `sasl` as they are now."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address

from cproton_ffi import lib
from proton import SSLDomain, SSLException

from isthmus_flowlog.collector.settings import Sasl, Tls
from isthmus_router import openssl, pem, regular_files
from isthmus_router.ciphers import DEFAULT_PROTOCOLS, cipher_list
from isthmus_router.openssl import OpenSslError


def ssl_domain(tls: Tls) -> SSLDomain:
    """The files as they are now. Raises SSLException, OpenSslError, OSError, ValueError."""
    with openssl.made_contexts() as contexts:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
    for context in contexts:
        openssl.limit_peers(context)
    if tls.ca is not None:
        with pem.in_memory(pem.authorities(regular_files.read(tls.ca, pem.MOST_BYTES))) as authorities:
            domain.set_trusted_ca_db(authorities)
    if tls.crl is not None:
        try:
            lists = openssl.Revocations(pem.lists(regular_files.read(tls.crl, pem.MOST_LIST_BYTES)))
        except OpenSslError as error:
            raise SSLException(f"{tls.crl}: {error}") from error
        if not (len(contexts) == 1 and lists.check(contexts[0])):
            raise SSLException(f"{tls.crl} cannot be used")
    if tls.cert is not None and tls.key is not None:
        chain, key = (regular_files.read(path, pem.MOST_BYTES) for path in (tls.cert, tls.key))
        with pem.in_memory(pem.chain(chain)) as chain_file, pem.in_memory(key) as key_file:
            domain.set_credentials(chain_file, key_file, None)
    domain.set_peer_authentication(
        SSLDomain.VERIFY_PEER_NAME if tls.verifyHostname else SSLDomain.VERIFY_PEER
    )
    # Proton's Python API has neither, and by default proton accepts TLS 1.0 and lowers the security level for it.
    refused = lib.pn_ssl_domain_set_protocols(domain._domain, " ".join(DEFAULT_PROTOCOLS).encode())
    if refused or lib.pn_ssl_domain_set_ciphers(domain._domain, cipher_list().encode()):
        raise SSLException("proton refuses the versions or the ciphers of TLS")
    return domain


@dataclass(frozen=True, slots=True)
class Credentials:
    """Hashes of the files of `tls`; None where there is none, or it cannot be read."""

    identity: tuple[bytes | None, ...] = ()
    """Of authorities, certificate and key."""
    revocations: tuple[bytes | None, ...] = ()
    digest: str = ""
    """Of the certificates, as `pem.digest` has it."""

    @classmethod
    def of(cls, tls: Tls | None) -> Credentials:
        """As they are now."""
        if tls is None:
            return cls()
        authorities, certificate, key, lists = map(_content, (tls.ca, tls.cert, tls.key, tls.crl))
        return cls(
            (_hash(authorities), _hash(certificate), _hash(key)),
            (_hash(lists),),
            pem.digest(authorities, certificate, lists),
        )


def _content(path: str | None) -> bytes | None:
    try:
        return regular_files.read(path, pem.MOST_LIST_BYTES) if path is not None else None
    except OSError:
        return None


def _hash(content: bytes | None) -> bytes | None:
    return sha256(content).digest() if content is not None else None


def login(sasl: Sasl, tls: Tls | None) -> dict[str, str]:
    """Options of a connection, with the files as they are now. Raises OSError."""
    options = {}
    user = sasl.user if sasl.userFile is None else _line(sasl.userFile)
    if user is not None:
        options["user"] = user
        if sasl.passwordFile is not None:
            options["password"] = _line(sasl.passwordFile)
    default = "EXTERNAL" if tls is not None and tls.cert is not None and user is None else "ANONYMOUS"
    if sasl.mechanisms is not None or user is None:
        options["allowed_mechs"] = sasl.mechanisms or default
    return options


def is_local(host: str) -> bool:
    """Whether nobody but this machine can read what is sent to `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _line(path: str) -> str:
    return regular_files.read(path, pem.MOST_BYTES).decode().rstrip("\r\n")
