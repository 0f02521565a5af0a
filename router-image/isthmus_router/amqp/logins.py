"""Logins of the peers of listeners: which passwords are checked, and what is logged and counted of those that fail.

The user name is part of what a client sends to the SASL mechanism. It is read here, because Cyrus SASL names a user
only once the login has succeeded.

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 2195 (CRAM-MD5), RFC 2831 (DIGEST-MD5).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable

from cproton_ffi import lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.client_hosts import address_of, network_of
from isthmus_router.policy.logins import LoginThrottle

log = logging.getLogger("SERVER")

DEFAULT_PER_MINUTE = 10
WITHOUT_PASSWORD = frozenset({"ANONYMOUS", "EXTERNAL"})
"""Mechanisms in which nothing can be guessed."""
LONGEST_READ = 4096
"""Bytes of a frame's data in which the name is looked for."""
LONGEST_SHOWN = 128
PATIENCE_SECONDS = 3.0
"""A login that must not cost much yet waits so long before it is refused: connections of honest clients may break
together, and each second or so another login may begin. When that succeeds, the next one may."""
_SCRAM_NAME = re.compile(rb"(?:n|y|p=[^,]*),(?:a=[^,]*)?,n=([^,]*)")
_DIGEST_NAME = re.compile(rb'(?:^|,)\s*username="((?:[^"\\]|\\.)*)"')


def name_in(mechanism: str, data: bytes) -> str | None:
    """The user name in what a client sends to `mechanism`; None if there is none in it."""
    name: bytes | None = None
    if mechanism == "PLAIN":
        parts = data.split(b"\0")
        name = parts[1] if len(parts) > 2 else None
    elif mechanism.startswith("SCRAM-"):
        if found := _SCRAM_NAME.match(data):
            name = found[1].replace(b"=2C", b",").replace(b"=3D", b"=")
    elif mechanism == "CRAM-MD5":
        name = data.rpartition(b" ")[0] or None
    elif mechanism == "DIGEST-MD5" and (found := _DIGEST_NAME.search(data)):
        name = re.sub(rb"\\(.)", rb"\1", found[1])
    return None if name is None else name.decode("utf-8", "replace")


class Logins:
    """Those at all listeners of a router."""

    def __init__(self, clock: Callable[[], float], per_minute: int = DEFAULT_PER_MINUTE) -> None:
        """`clock` is monotonic, in seconds."""
        self.clock = clock
        self.throttle = LoginThrottle(per_minute)
        self.failures: Counter[str] = Counter()
        """`refused` by the mechanism; `throttled`, which is to say unchecked; or `abandoned` by the peer."""


class Login:
    """The SASL exchange of one connection to a listener."""

    def __init__(self, logins: Logins, sasl: Pointer, listener: str, peer: str) -> None:
        """`peer` is `<host>:<port>`, with an IPv6 address in brackets."""
        self._logins = logins
        self._sasl = sasl
        self._listener = listener
        self._peer = peer
        self._host = network_of(address_of(peer))
        self._mechanism = ""
        self._user: str | None = None
        self._began = self._over = False
        self._under_way = False
        """It has cost much, and has no outcome yet."""
        self._began_at = 0.0

    @property
    def line(self) -> str:
        """In which what costs much waits: others of the host and the name may have to end first."""
        return f"{self._host} {self._user or ''}"

    def begin(self, mechanism: str, data: bytes) -> bool:
        """Whether the mechanism may have the init frame; not a second one, which would start it twice.

        The case of its name does not count.
        """
        if self._began:
            return False
        self._began, self._began_at = True, self._logins.clock()
        self._mechanism = mechanism.upper()
        return self._admitted(data)

    def go_on(self, data: bytes) -> bool:
        """Whether the mechanism may have another frame."""
        return self._began and not self._over and self._admitted(data)

    def may_cost_much(self) -> bool | None:
        """Whether the mechanism may have the frame now that makes it compute for long, which then counts; None: later.

        False if the login has failed.
        """
        if self._over or not self._admitted():
            return False
        now, throttle, user = self._logins.clock(), self._logins.throttle, self._user or ""
        found = throttle.may_begin(self._host, user, now)
        if found:
            throttle.begun(self._host, user, now)
            self._under_way = True
        elif found is False:
            if now < self._began_at + PATIENCE_SECONDS:
                return None
            self._failed("throttled")
        return found

    def end(self) -> None:
        """Nothing more comes of it."""
        if self._under_way:
            self._failed("abandoned")
        self._over = True

    def _settle(self, *, judged: bool) -> None:
        if self._under_way:
            self._under_way = False
            logins = self._logins
            logins.throttle.ended(self._host, self._user or "", logins.clock(), judged=judged)

    def _admitted(self, data: bytes = b"") -> bool:
        if self._user is None:
            self._user = name_in(self._mechanism, data)
        if self._mechanism in WITHOUT_PASSWORD:
            return True
        logins = self._logins
        if logins.throttle.admits(self._host, self._user or "", logins.clock()):
            return True
        self._failed("throttled")
        return False

    def judge(self) -> None:
        """The mechanism has dealt with a frame."""
        outcome = lib.pn_sasl_outcome(self._sasl)
        if self._over or outcome == lib.PN_SASL_NONE:
            return
        self._settle(judged=True)
        logins, checked = self._logins, self._mechanism not in WITHOUT_PASSWORD
        if outcome == lib.PN_SASL_OK:
            self._over = True
            if checked:
                logins.throttle.succeeded(self._host, self._user or "")
            return
        if checked:
            logins.throttle.failed(self._host, self._user or "", logins.clock())
        self._failed("refused")

    def _failed(self, outcome: str) -> None:
        self._over = True
        self._settle(judged=False)
        self._logins.failures[outcome] += 1
        log.warning(
            "login failed",
            extra={
                "event": "login.failed",
                "listener": self._listener,
                "peer": self._peer,
                "mechanism": self._mechanism[:LONGEST_SHOWN],
                "user": None if self._user is None else self._user[:LONGEST_SHOWN],
                "outcome": outcome,
            },
        )
