"""The OpenSSL objects behind proton's TLS: names of a peer's certificate, revoked certificates, messages of handshakes.

Proton's API gives access to none of them. OpenSSL calls a function of this module for each `SSL_CTX` and `SSL` that is
made (`CRYPTO_get_ex_new_index`); `made_contexts` and `made_sessions` collect those that the calling thread makes
meanwhile.

Source: OpenSSL 3 manual pages of the functions named below.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from functools import cache

import cproton_ffi

from isthmus_router.der import serial_and_issuer

log = logging.getLogger("SERVER")

MOST_STEPS, STEPS_SECONDS = 512, 60.0
"""Steps that a TLS session may take in this time, beside passing data. A handshake has about 25, a key update that the
peer sends has 5 and takes up to 50 microseconds."""
MOST_SESSIONS_KNOWN = 1000
"""Sessions whose steps are counted before those are left out that have had none for a while."""

MOST_NAMES = 256
"""Names that are read of one certificate."""

MOST_AUTHORITIES = 8
"""Between the certificate of a peer and an authority that is trusted."""
MOST_CHAIN_BYTES = 16 * 1024
"""Of all certificates that a peer sends in a handshake. OpenSSL looks through them for the issuer of each."""

GROUPS = "X25519:P-256:P-384:P-521"
"""For the exchange of keys. With those of finite fields (ffdhe8192), a handshake takes up to 0.125 s."""
_GROUPS_OF_FIPS = "P-256:P-384:P-521"
_MOST_OF_HELLO = {10: 512, 13: 512, 50: 512, 51: 8192}
"""Bytes of a ClientHello, by the number of the extension: supported groups, signature algorithms (two extensions), and
key shares. OpenSSL looks through the groups for each key share."""
MOST_CIPHERS_BYTES = 2048
"""Of a ClientHello."""

_INDEX_SSL, _INDEX_SSL_CTX = 0, 1
_COMMON_NAME, _SUBJECT_ALT_NAME = 13, 85
_DNS = 2
_CRL_CHECK, _CRL_CHECK_ALL = 0x4, 0x8
"""The second one alone checks nothing; the first one alone checks only the certificate of the peer itself."""
_REVOKED = 1
_NO_LIST, _OTHER_HOST = 3, 50
"""Results of the verification: there is no list of an authority; proton has found no name that is the host's."""
_LONGEST_NAME = 256
_NO_TICKET = 1 << 14
_SET_SESSION_CACHE_MODE, _CACHE_OFF = 44, 0
_SET_MAX_CERT_LIST = 51
_SET_GROUPS_LIST = 92
_HELLO_ACCEPTED, _HELLO_REFUSED = 1, 0
_ILLEGAL_PARAMETER = 47
_POINTER = ctypes.c_void_p
_NEW = ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER, ctypes.c_int, ctypes.c_long, _POINTER)
_INFO = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int, ctypes.c_int)
_HELLO = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.POINTER(ctypes.c_int), _POINTER)
_STEP = 0x1
_PEER_HAS_CLOSED = 0x2
_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "CRYPTO_get_ex_new_index": (
        ctypes.c_int,
        (ctypes.c_int, ctypes.c_long, _POINTER, _NEW, _POINTER, _POINTER),
    ),
    "SSL_CTX_ctrl": (ctypes.c_long, (_POINTER, ctypes.c_int, ctypes.c_long, _POINTER)),
    "SSL_CTX_set_num_tickets": (ctypes.c_int, (_POINTER, ctypes.c_size_t)),
    "SSL_CTX_set_options": (ctypes.c_uint64, (_POINTER, ctypes.c_uint64)),
    "SSL_CTX_get_cert_store": (_POINTER, (_POINTER,)),
    "X509_STORE_add_crl": (ctypes.c_int, (_POINTER, _POINTER)),
    "X509_STORE_set_flags": (ctypes.c_int, (_POINTER, ctypes.c_ulong)),
    "ERR_clear_error": (None, ()),
    "SSL_CTX_set_info_callback": (None, (_POINTER, _INFO)),
    "SSL_CTX_set_verify_depth": (None, (_POINTER, ctypes.c_int)),
    "SSL_CTX_set_client_hello_cb": (None, (_POINTER, _HELLO, _POINTER)),
    "SSL_client_hello_get0_ciphers": (ctypes.c_size_t, (_POINTER, ctypes.POINTER(_POINTER))),
    "SSL_client_hello_get0_ext": (
        ctypes.c_int,
        (_POINTER, ctypes.c_uint, ctypes.POINTER(_POINTER), ctypes.POINTER(ctypes.c_size_t)),
    ),
    "SSL_set_shutdown": (None, (_POINTER, ctypes.c_int)),
    "SSL_up_ref": (ctypes.c_int, (_POINTER,)),
    "SSL_free": (None, (_POINTER,)),
    "SSL_get1_peer_certificate": (_POINTER, (_POINTER,)),
    "SSL_get0_verified_chain": (_POINTER, (_POINTER,)),
    "SSL_get_verify_result": (ctypes.c_long, (_POINTER,)),
    "X509_verify_cert_error_string": (ctypes.c_char_p, (ctypes.c_long,)),
    "BIO_new_mem_buf": (_POINTER, (ctypes.c_char_p, ctypes.c_int)),
    "BIO_free": (ctypes.c_int, (_POINTER,)),
    "PEM_read_bio_X509_CRL": (_POINTER, (_POINTER, _POINTER, _POINTER, ctypes.c_char_p)),
    "X509_CRL_free": (None, (_POINTER,)),
    "X509_CRL_get0_by_cert": (ctypes.c_int, (_POINTER, ctypes.POINTER(_POINTER), _POINTER)),
    "X509_CRL_get0_by_serial": (ctypes.c_int, (_POINTER, ctypes.POINTER(_POINTER), _POINTER)),
    "X509_CRL_get_issuer": (_POINTER, (_POINTER,)),
    "d2i_ASN1_INTEGER": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_char_p), ctypes.c_long)),
    "ASN1_INTEGER_free": (None, (_POINTER,)),
    "d2i_X509_NAME": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_char_p), ctypes.c_long)),
    "X509_NAME_cmp": (ctypes.c_int, (_POINTER, _POINTER)),
    "X509_NAME_free": (None, (_POINTER,)),
    "X509_free": (None, (_POINTER,)),
    "X509_get_issuer_name": (_POINTER, (_POINTER,)),
    "X509_NAME_oneline": (ctypes.c_char_p, (_POINTER, ctypes.c_char_p, ctypes.c_int)),
    "PEM_read_bio_X509_AUX": (_POINTER, (_POINTER, _POINTER, _POINTER, ctypes.c_char_p)),
    "X509_get_ext_d2i": (_POINTER, (_POINTER, ctypes.c_int, _POINTER, _POINTER)),
    "X509_get_subject_name": (_POINTER, (_POINTER,)),
    "X509_NAME_get_index_by_NID": (ctypes.c_int, (_POINTER, ctypes.c_int, ctypes.c_int)),
    "X509_NAME_get_entry": (_POINTER, (_POINTER, ctypes.c_int)),
    "X509_NAME_ENTRY_get_data": (_POINTER, (_POINTER,)),
    "GENERAL_NAMES_free": (None, (_POINTER,)),
    "GENERAL_NAME_get0_value": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_int))),
    "OPENSSL_sk_num": (ctypes.c_int, (_POINTER,)),
    "OPENSSL_sk_value": (_POINTER, (_POINTER, ctypes.c_int)),
    "ASN1_STRING_length": (ctypes.c_int, (_POINTER,)),
    "ASN1_STRING_get0_data": (_POINTER, (_POINTER,)),
    "ASN1_STRING_to_UTF8": (ctypes.c_int, (ctypes.POINTER(_POINTER), _POINTER)),
    "CRYPTO_free": (None, (_POINTER, ctypes.c_char_p, ctypes.c_int)),
}


class OpenSslError(Exception):
    """The OpenSSL that proton uses cannot be reached, or it refuses what it is given."""


class _Made(threading.local):
    """What the calling thread makes; None: nobody asks."""

    contexts: list[int] | None = None
    sessions: list[int] | None = None


_made = _Made()


def _context_made(parent: int, *_: object) -> None:
    if _made.contexts is not None:
        _made.contexts.append(parent)


def _session_made(parent: int, *_: object) -> None:
    _steps.pop(parent, None)
    if _made.sessions is not None:
        _made.sessions.append(parent)


_new_context, _new_session = _NEW(_context_made), _NEW(_session_made)


@cache
def _openssl() -> ctypes.CDLL:
    """The library that proton is linked with; raises OpenSslError."""
    library = ctypes.CDLL(cproton_ffi.__file__)  # the one that is loaded already
    try:
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise OpenSslError(f"proton's OpenSSL is older than 3.0, or hidden: {error}") from error
    for index, new in ((_INDEX_SSL_CTX, _new_context), (_INDEX_SSL, _new_session)):
        if library.CRYPTO_get_ex_new_index(index, 0, None, new, None, None) < 0:
            raise OpenSslError("OpenSSL has no room for application data")
    return library


@contextlib.contextmanager
def made_contexts() -> Iterator[list[int]]:
    """Collect the `SSL_CTX` pointers that this thread makes. Raises OpenSslError."""
    _openssl()
    _made.contexts = []
    try:
        yield _made.contexts
    finally:
        _made.contexts = None


def forbid_resumption(context: int) -> None:
    """Let no session of a server's `SSL_CTX` be resumed, so that the certificate of a client is verified each time.

    Without an identity of the context, OpenSSL refuses clients that try (`SSL_CTX_set_session_id_context`).
    """
    library = _openssl()
    library.SSL_CTX_set_options(context, _NO_TICKET)
    library.SSL_CTX_set_num_tickets(context, 0)
    library.SSL_CTX_ctrl(context, _SET_SESSION_CACHE_MODE, _CACHE_OFF, None)


@contextlib.contextmanager
def made_sessions() -> Iterator[list[int]]:
    """Collect the `SSL` pointers that this thread makes. Raises OpenSslError."""
    _openssl()
    _made.sessions = []
    try:
        yield _made.sessions
    finally:
        _made.sessions = None


_steps: dict[int, tuple[float, int]] = {}
"""Since when, and how many, by the address of the `SSL`."""
_most_known = MOST_SESSIONS_KNOWN


def _count_step(session: int, where: int, _: int) -> None:
    """OpenSSL has taken a step of a handshake, or for a message after it."""
    if not where & _STEP:
        return
    now = time.monotonic()
    since, count = _steps.get(session, (now, 0))
    if now - since >= STEPS_SECONDS:
        since, count = now, 0
    if count == 0 and len(_steps) >= _most_known:
        _forget_sessions(now)
    _steps[session] = since, count + 1
    if count + 1 > MOST_STEPS:
        # What the peer has sent is not read: to OpenSSL, the peer has closed the session.
        _openssl().SSL_set_shutdown(session, _PEER_HAS_CLOSED)
        if count == MOST_STEPS:
            log.warning("TLS session ended", extra={"reason": "the peer sends key updates without pause"})


def _forget_sessions(now: float) -> None:
    global _most_known  # noqa: PLW0603
    for session, (since, _) in list(_steps.items()):
        if now - since >= STEPS_SECONDS:
            del _steps[session]
    _most_known = max(MOST_SESSIONS_KNOWN, 2 * len(_steps))


_step_taken = _INFO(_count_step)


def _examine_hello(session: int, alert: ctypes._Pointer[ctypes.c_int], _: object) -> int:
    """Whether the lists of a ClientHello are short. OpenSSL has not examined them yet."""
    library = _openssl()
    data, size = _POINTER(), ctypes.c_size_t()
    long = library.SSL_client_hello_get0_ciphers(session, ctypes.byref(data)) > MOST_CIPHERS_BYTES
    for extension, most in _MOST_OF_HELLO.items():
        size.value = 0
        library.SSL_client_hello_get0_ext(session, extension, ctypes.byref(data), ctypes.byref(size))
        long = long or size.value > most
    if long:
        alert[0] = _ILLEGAL_PARAMETER
        return _HELLO_REFUSED
    return _HELLO_ACCEPTED


_hello_came = _HELLO(_examine_hello)


def limit_peers(context: int) -> None:
    """Bound what peers can make sessions of an `SSL_CTX` do.

    A session ends when its peer makes it take more than `MOST_STEPS` in `STEPS_SECONDS`: a key update is a record of 27
    bytes that takes much longer than others of this size, and TLS 1.3 allows any number. A handshake fails when the
    peer sends more than `MOST_CHAIN_BYTES` of certificates, a chain with more than `MOST_AUTHORITIES`, or a ClientHello
    with long lists. Keys are exchanged with `GROUPS` alone. Raises OpenSslError.
    """
    library = _openssl()
    library.SSL_CTX_set_info_callback(context, _step_taken)
    library.SSL_CTX_set_verify_depth(context, MOST_AUTHORITIES)
    library.SSL_CTX_ctrl(context, _SET_MAX_CERT_LIST, MOST_CHAIN_BYTES, None)
    library.SSL_CTX_set_client_hello_cb(context, _hello_came, None)
    if not any(
        library.SSL_CTX_ctrl(context, _SET_GROUPS_LIST, 0, groups.encode()) == 1
        for groups in (GROUPS, _GROUPS_OF_FIPS)
    ):
        raise OpenSslError(f"OpenSSL has none of the groups {GROUPS}")


class Revocations:
    """Certificate revocation lists, for handshakes and to look certificates up that were accepted before."""

    def __init__(self, data: bytes) -> None:
        """Decodes lists in PEM; raises OpenSslError."""
        self._library = _openssl()
        self._lists: list[int] = []
        weakref.finalize(self, _free_lists, self._library, self._lists)
        source = self._library.BIO_new_mem_buf(data, len(data))
        try:
            # Without a password of its own OpenSSL would ask for one on the terminal.
            while item := self._library.PEM_read_bio_X509_CRL(source, None, None, b""):
                self._lists.append(item)
        finally:
            self._library.BIO_free(source)
            self._library.ERR_clear_error()
        if not self._lists:
            raise OpenSslError("no certificate revocation list in it")
        self._sort()

    def _sort(self) -> None:
        """The first look into a list sorts it, which takes a second for one of 64 MiB. Lists are decoded in threads,
        and looks stop the event loop."""
        any_serial = b"\x02\x01\x01"
        serial = self._library.d2i_ASN1_INTEGER(
            None, ctypes.byref(ctypes.c_char_p(any_serial)), len(any_serial)
        )
        for item in self._lists:
            self._library.X509_CRL_get0_by_serial(item, ctypes.byref(_POINTER()), serial)
        self._library.ASN1_INTEGER_free(serial)

    def check(self, context: int) -> bool:
        """Make an `SSL_CTX` check peers against these lists; False when it does not.

        It checks each certificate of the verified chain, which needs a valid list of each authority in the chain.
        """
        library = self._library
        store = library.SSL_CTX_get_cert_store(context)
        added = all(library.X509_STORE_add_crl(store, item) for item in self._lists)
        # Errors that stay in the queue of the thread would be taken for errors of a connection.
        library.ERR_clear_error()
        return added and bool(library.X509_STORE_set_flags(store, _CRL_CHECK | _CRL_CHECK_ALL))

    def unlisted(self, authorities: bytes) -> tuple[str, ...]:
        """The names of the certificates in PEM that none of the lists is from."""
        library, found = self._library, []
        source = library.BIO_new_mem_buf(authorities, len(authorities))
        try:
            while item := library.PEM_read_bio_X509_AUX(source, None, None, b""):
                name = library.X509_get_subject_name(item)
                if not self._is_from(name):
                    found.append(_one_line(library, name))
                library.X509_free(item)
        finally:
            library.BIO_free(source)
            library.ERR_clear_error()
        return tuple(dict.fromkeys(found))

    def first_unlisted(self, session: Session) -> str | None:
        """The name of the first authority in the chain of a session's peer that none of the lists is from."""
        issuers = map(self._library.X509_get_issuer_name, session.peer_chain())
        name = next((name for name in issuers if not self._is_from(name)), None)
        return _one_line(self._library, name) if name is not None else None

    def _is_from(self, name: int) -> bool:
        library = self._library
        return any(
            library.X509_NAME_cmp(library.X509_CRL_get_issuer(item), name) == 0 for item in self._lists
        )

    def include(self, certificate: bytes) -> bool:
        """Whether a certificate, in DER, is revoked, or cannot be read."""
        library, entry = self._library, _POINTER()
        try:
            serial_text, issuer_text = serial_and_issuer(certificate)
        except ValueError:
            return True
        serial = library.d2i_ASN1_INTEGER(None, ctypes.byref(ctypes.c_char_p(serial_text)), len(serial_text))
        issuer = library.d2i_X509_NAME(None, ctypes.byref(ctypes.c_char_p(issuer_text)), len(issuer_text))
        try:
            if not serial or not issuer:
                library.ERR_clear_error()
                return True
            return any(
                library.X509_NAME_cmp(library.X509_CRL_get_issuer(item), issuer) == 0
                and library.X509_CRL_get0_by_serial(item, ctypes.byref(entry), serial) == _REVOKED
                for item in self._lists
            )
        finally:
            library.ASN1_INTEGER_free(serial)
            library.X509_NAME_free(issuer)

    def include_peer(self, session: Session) -> bool:
        """Whether a certificate of the chain of a session's peer is revoked, or the peer has one without a chain."""
        chain = list(session.peer_chain())
        if chain:
            return any(map(self._include, chain))
        with session.peer_certificate() as certificate:
            return certificate is not None

    def _include(self, pointer: int) -> bool:
        entry = _POINTER()
        look_up = self._library.X509_CRL_get0_by_cert
        return any(look_up(item, ctypes.byref(entry), pointer) == _REVOKED for item in self._lists)


def _one_line(library: ctypes.CDLL, name: int) -> str:
    """A name in ASCII, without characters that are not printable, and not longer than a log line should be."""
    buffer = ctypes.create_string_buffer(_LONGEST_NAME)
    library.X509_NAME_oneline(name, buffer, _LONGEST_NAME)
    return buffer.value.decode("ascii", "backslashreplace")


def _free_lists(library: ctypes.CDLL, lists: list[int]) -> None:
    for item in lists:
        library.X509_CRL_free(item)


class Session:
    """A reference to an `SSL`, which stays valid whatever proton does."""

    def __init__(self, pointer: int) -> None:
        self._library = _openssl()
        self._pointer: int | None = pointer
        self._library.SSL_up_ref(pointer)

    def peer_names(self) -> tuple[str, ...]:
        """The names that the peer's certificate is for: its dNSNames, then its common names. Empty without one."""
        with self.peer_certificate() as certificate:
            if certificate is None:
                return ()
            names = [*_dns_names(self._library, certificate), *_common_names(self._library, certificate)]
        return tuple(dict.fromkeys(names))

    @contextlib.contextmanager
    def peer_certificate(self) -> Iterator[int | None]:
        """The `X509` of the peer's certificate; None without one."""
        pointer = (
            self._library.SSL_get1_peer_certificate(self._pointer) if self._pointer is not None else None
        )
        try:
            yield pointer
        finally:
            self._library.X509_free(pointer)

    def peer_chain(self) -> Iterator[int]:
        """The `X509` pointers of the chain that the handshake has verified: the peer's certificate, then its
        authorities up to a trusted one. They are valid as long as the session; none without a certificate, or in a
        resumed session."""
        if self._pointer is None or not (chain := self._library.SSL_get0_verified_chain(self._pointer)):
            return
        for place in range(self._library.OPENSSL_sk_num(chain)):
            yield self._library.OPENSSL_sk_value(chain, place)

    def why_untrusted(self, lists: Revocations | None, host: str | None) -> str:
        """Why the certificate of the peer, which should be that of `host`, was not accepted; empty if it was."""
        result = self._library.SSL_get_verify_result(self._pointer) if self._pointer is not None else 0
        if result == 0:
            return ""
        if result == _OTHER_HOST:
            return f"no dNSName in it is {host!r}"
        reason: str = self._library.X509_verify_cert_error_string(result).decode("ascii", "backslashreplace")
        if result == _NO_LIST and lists is not None and (name := lists.first_unlisted(self)) is not None:
            reason += f": crlFile has no list of the authority {name}"
        return reason

    def release(self) -> None:
        """Give the reference back; only the first call counts."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._library.SSL_free(pointer)


def _dns_names(library: ctypes.CDLL, certificate: int) -> Iterator[str]:
    names = library.X509_get_ext_d2i(certificate, _SUBJECT_ALT_NAME, None, None)
    if not names:
        return
    try:
        kind = ctypes.c_int()
        for place in range(min(library.OPENSSL_sk_num(names), MOST_NAMES)):
            value = library.GENERAL_NAME_get0_value(
                library.OPENSSL_sk_value(names, place), ctypes.byref(kind)
            )
            if kind.value == _DNS:
                length = library.ASN1_STRING_length(value)
                data = ctypes.string_at(library.ASN1_STRING_get0_data(value), length)
                yield data.decode("ascii", "backslashreplace")
    finally:
        library.GENERAL_NAMES_free(names)


def _common_names(library: ctypes.CDLL, certificate: int) -> Iterator[str]:
    subject = library.X509_get_subject_name(certificate)
    place = -1
    for _ in range(MOST_NAMES):
        place = library.X509_NAME_get_index_by_NID(subject, _COMMON_NAME, place)
        if place < 0:
            return
        value = library.X509_NAME_ENTRY_get_data(library.X509_NAME_get_entry(subject, place))
        buffer = _POINTER()
        length = library.ASN1_STRING_to_UTF8(ctypes.byref(buffer), value)
        if length < 0:
            continue
        try:
            yield ctypes.string_at(buffer, length).decode("utf-8", "backslashreplace")
        finally:
            library.CRYPTO_free(buffer, None, 0)
