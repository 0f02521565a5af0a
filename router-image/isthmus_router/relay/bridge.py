"""Sessions with other sites: dialling, the handshake, refusal of those that do not belong here, and liveness."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from random import Random
from typing import Protocol

from isthmus_router.groups.certificates import is_of_member, misnamed
from isthmus_router.groups.frames import PROTOCOL_VERSION, FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import View
from isthmus_router.places import Places
from isthmus_router.relay.messages import (
    BridgeKind,
    Hello,
    Names,
    a,
    as_endpoints,
    endpoint_fields,
    kind_of,
    pack,
    pack_hello,
    pack_numbers,
    unpack,
    unpack_hello,
    unpack_names,
    unpack_version,
)
from isthmus_router.relay.port import BridgePort
from isthmus_router.relay.session import Dialler, Phase, Session
from isthmus_router.relay.settings import Endpoint, RelaySettings

DIAL_TIMEOUT = 1.0
HELLO_INTERVAL = 0.5
"""Over a transport that loses frames, HELLO is repeated."""
MOST_ACCEPTED = 256
LONGEST_REASON = 200
RENAME = "give one of them another name"
REFUSAL_TOLD = 60.0
"""Seconds; who is refused dials again more often than that."""


class BridgeUser(Protocol):
    """Who uses the sessions."""

    def hello(self, to_site: str) -> Hello:
        """What this member says of itself and of what it has of the other site."""

    def name_of(self, member: MemberId) -> str | None:
        """The logical name of a member in the view of this site; None if it is not there."""

    def objection(self, site: str, view: View) -> str:
        """Why that is no view of the other site; empty: it may be."""

    def relay_endpoints(self) -> tuple[Endpoint, ...]:
        """Of the relays of this site."""

    def session_opened(self, now: float, session: Session, hello: Hello) -> None:
        """The handshake is done."""

    def session_frame(self, now: float, session: Session, kind: BridgeKind, frame: bytes) -> None:
        """Of an open session. Raises FrameError."""

    def session_ended(self, now: float, session: Session, reason: str) -> None:
        """It was open."""

    def stranger(self, site: str, reason: str) -> None:
        """Somebody was refused who is of no configured site; `site` as it has said, or empty."""

    def log(self, event: str, *, trouble: bool = False, **fields: object) -> None:
        """Something worth a line in the log."""


class Bridge:
    """Dials as long as this member is a relay; what others dial is answered all the same."""

    def __init__(self, settings: RelaySettings, port: BridgePort, user: BridgeUser, random: Random) -> None:
        self._settings = settings
        self._port = port
        self._user = user
        self._random = random
        self._numbers = count(1)
        self.sessions: dict[int, Session] = {}
        self.diallers: dict[str, Dialler] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        """When and why configured sites were refused here, or refused this one, last."""
        self._places = Places(MOST_ACCEPTED)
        """Of open sessions that others have dialled, by site."""
        self.malformed = 0
        self._active = False
        self._logged = -inf
        self.configure(0.0, settings)
        self._receive: dict[BridgeKind, Callable[[float, Session, bytes], None]] = {
            BridgeKind.HELLO: self._on_hello,
            BridgeKind.HELLO_ACK: self._on_hello_ack,
            BridgeKind.REFUSED: self._on_refused,
            BridgeKind.NOT_RELAY: self._on_not_relay,
        }

    def configure(self, now: float, settings: RelaySettings) -> None:
        """Other sites, or the same elsewhere. Sessions with those that are no more, or are checked otherwise, end."""
        before, self._settings = self._settings, settings
        for session in list(self.sessions.values()):
            if session.site and before.sites.get(session.site) != settings.sites.get(session.site):
                self.end(now, session, "the site is configured otherwise")
        for site in list(self._refused):
            if before.sites.get(site) != settings.sites.get(site):
                del self._refused[site]
        kept = self.diallers
        self.diallers = {
            site: kept[site]
            if site in kept and before.sites.get(site) == remote
            else Dialler(site, remote, settings, at=now if self._active else inf)
            for site, remote in settings.sites.items()
            if remote.endpoints
        }

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(
            min((dialler.at for dialler in self.diallers.values()), default=inf) if self._active else inf,
            min(map(self._due, self.sessions.values()), default=inf),
        )

    def refusal(self, now: float, site: str) -> str:
        """Why a site was refused here, or refused this one, not long ago; empty: it was not."""
        at, reason = self._refused.get(site, (-inf, ""))
        return reason if now - at < REFUSAL_TOLD else ""

    def activate(self, now: float) -> None:
        """This member is a relay."""
        self._active = True
        for dialler in self.diallers.values():
            dialler.at = now

    def resign(self, now: float) -> None:
        """It is none any more: others are sent to who is."""
        self._active = False
        answer = pack(BridgeKind.NOT_RELAY, endpoint_fields(self._user.relay_endpoints()))
        for session in list(self.sessions.values()):
            self._port.send(session.id, answer)
            self.end(now, session, "not a relay any more")
        for dialler in self.diallers.values():
            dialler.at = inf

    def close_all(self, now: float, reason: str) -> None:
        """Nothing is dialled any more."""
        self._active = False
        for session in list(self.sessions.values()):
            self.end(now, session, reason)

    def send(self, session: int, frame: bytes) -> None:
        """Over a session."""
        self._port.send(session, frame)

    def backlog(self, session: int) -> int:
        """Bytes sent over a session that the transport has not taken."""
        return self._port.backlog(session)

    def redial(self, now: float, site: str, endpoints: tuple[Endpoint, ...], reason: str) -> None:
        """The site is to be reached there rather than where it is now."""
        dialler = self.diallers.get(site)
        if dialler is None or not self._active:
            return
        session = self.sessions.get(dialler.session or 0)
        dialler.hint(now, endpoints)
        if session is not None:
            self.end(now, session, reason)

    def end(self, now: float, session: Session, reason: str) -> None:
        """Close it; if this side has dialled, it does so again."""
        self._port.close(session.id, reason)
        self._forget(now, session, reason)

    def opened(self, now: float, number: int, certificate_names: tuple[str, ...]) -> None:
        """The driver has a connection, dialled or accepted."""
        if number < 0:
            if len(self.sessions) >= MOST_ACCEPTED and not self._make_room(now):
                self._port.close(number, "too many sessions")
                return
            self.sessions[number] = Session(number, "", Phase.GREETING, now, now, None, certificate_names)
            return
        session = self.sessions.get(number)
        if session is None or session.phase is not Phase.DIALLING:
            return
        session.certificate_names = certificate_names
        if problem := self._misnamed(session, session.site):
            self._refuse(now, session, problem)
            return
        session.phase, session.since, session.heard = Phase.GREETING, now, now
        self._greet(now, session)

    def _make_room(self, now: float) -> bool:
        """Whoever has dialled and said nothing for longest has to leave."""
        for session in self.sessions.values():
            if not session.dialled and session.phase is Phase.GREETING:
                self.end(now, session, "others need its place")
                return True
        return False

    def frame(self, now: float, number: int, frame: bytes) -> None:
        """The driver has got a frame."""
        session = self.sessions.get(number)
        if session is None:
            return
        session.heard = now
        try:
            kind = kind_of(frame)
            handler = self._receive.get(kind)
            if handler is not None:
                handler(now, session, frame)
            elif session.phase is Phase.OPEN:
                self._user.session_frame(now, session, kind, frame)
        except FrameError as error:
            self.malformed += 1
            if now - self._logged >= 1.0:
                self._logged = now
                self._user.log(
                    "malformed frame of another site", trouble=True, site=session.site, reason=str(error)
                )

    def heard(self, now: float, number: int) -> None:
        """Part of a frame has come: one may take longer than the time that a silent session is given."""
        if session := self.sessions.get(number):
            session.heard = now

    def closed(self, now: float, number: int, reason: str) -> None:
        """The driver has lost a session, or could not make it."""
        session = self.sessions.get(number)
        if session is not None:
            self._forget(now, session, reason)

    def on_time(self, now: float) -> None:
        """Dial, greet again, ping, and close what is silent."""
        for session in list(self.sessions.values()):
            if now >= self._due(session):
                self._session_due(now, session)
        if self._active:
            for dialler in self.diallers.values():
                if now >= dialler.at:
                    self._dial(now, dialler)

    def _due(self, session: Session) -> float:
        if session.phase is Phase.DIALLING:
            return session.since + DIAL_TIMEOUT
        if session.phase is Phase.GREETING:
            return min(session.since + self._settings.handshake_timeout, session.ping_at)
        return min(session.ping_at, session.heard + self._settings.silence)

    def _session_due(self, now: float, session: Session) -> None:
        if session.phase is Phase.DIALLING:
            self.end(now, session, "connecting takes too long")
        elif session.phase is Phase.GREETING:
            if now >= session.since + self._settings.handshake_timeout:
                self.end(now, session, "handshake takes too long")
            else:
                self._greet(now, session)
        elif now >= session.heard + self._settings.silence:
            self.end(now, session, "silent")
        else:
            session.ping_at = now + self._settings.ping_interval
            session.pinged = now
            self._port.send(session.id, pack_numbers(BridgeKind.PING, ()))

    def _dial(self, now: float, dialler: Dialler) -> None:
        endpoint, through = dialler.next()
        number = next(self._numbers)
        dialler.session, dialler.at = number, inf
        session = Session(number, dialler.site, Phase.DIALLING, now, now, endpoint)
        session.through = through
        self.sessions[number] = session
        self._port.dial(number, dialler.site, endpoint)

    def _greet(self, now: float, session: Session) -> None:
        session.ping_at = now + HELLO_INTERVAL
        hello = self._user.hello(session.site)._replace(through=session.through)
        self._port.send(session.id, pack_hello(BridgeKind.HELLO, hello))

    def _on_hello(self, now: float, session: Session, frame: bytes) -> None:
        if session.dialled:
            raise FrameError("HELLO from who was dialled")
        if session.phase is Phase.OPEN:
            self._answer_again(now, session, frame)
            return
        hello = self._checked(now, session, frame)
        if hello is None:
            return
        if not self._active:
            self._pass_on(session, hello)
            return
        for other in list(self.sessions.values()):
            if (other.site, other.peer) == (hello.site, hello.relay) and not (
                other is session or other.dialled
            ):
                self.end(now, other, "dialled again")
        if not self._places.take(hello.site):
            session.site = hello.site
            self._refuse(now, session, f"too many sessions of site {hello.site}")
            return
        self._acknowledge(now, session, hello.site)
        self._open(now, session, hello)

    def _answer_again(self, now: float, session: Session, frame: bytes) -> None:
        """The answer may have been lost. It can be long, so it is sent at the rate of an honest HELLO."""
        names = unpack_names(frame)
        if (names.site, names.relay) != (session.site, session.peer):
            raise FrameError("HELLO of another relay in an open session")
        if now - session.acknowledged >= HELLO_INTERVAL / 2:
            self._acknowledge(now, session, names.site)

    def _acknowledge(self, now: float, session: Session, site: str) -> None:
        session.acknowledged = now
        self._port.send(session.id, pack_hello(BridgeKind.HELLO_ACK, self._user.hello(site)))

    def _on_hello_ack(self, now: float, session: Session, frame: bytes) -> None:
        if not session.dialled or session.phase is not Phase.GREETING:
            return
        hello = self._checked(now, session, frame)
        if hello is not None:
            self.diallers[session.site].succeeded()
            self._open(now, session, hello)

    def _on_refused(self, now: float, session: Session, frame: bytes) -> None:
        if not session.dialled:
            raise FrameError("REFUSED from who has dialled")
        problem = f"refused there: {a(str, unpack(frame, 1)[0])[:LONGEST_REASON]}"
        self._note_refusal(now, session.site, problem)
        self.end(now, session, problem)

    def _on_not_relay(self, now: float, session: Session, frame: bytes) -> None:
        endpoints = as_endpoints(unpack(frame, 1)[0])
        dialler = self.diallers.get(session.site)
        if session.dialled and dialler is not None:
            dialler.redirected(now, endpoints, self._random.random())
        self.end(now, session, "no relay")

    def _pass_on(self, session: Session, hello: Hello) -> None:
        endpoints = self._user.relay_endpoints()
        del self.sessions[session.id]
        if hello.through and endpoints and not hello.via:
            own = self._user.hello(hello.site).relay
            onward = hello._replace(through=False, via=bytes(own))
            self._port.splice(session.id, endpoints[0], pack_hello(BridgeKind.HELLO, onward))
        else:
            self._port.send(session.id, pack(BridgeKind.NOT_RELAY, endpoint_fields(endpoints)))
            self._port.close(session.id, "no relay")

    def _open(self, now: float, session: Session, hello: Hello) -> None:
        session.site, session.peer, session.domain = hello.site, hello.relay, hello.domain
        session.endpoints = hello.endpoints
        session.phase, session.since = Phase.OPEN, now
        session.ping_at = now + self._settings.ping_interval
        self._refused.pop(hello.site, None)
        self._user.session_opened(now, session, hello)

    def _checked(self, now: float, session: Session, frame: bytes) -> Hello | None:
        """HELLO or HELLO_ACK of somebody who belongs here; others are refused."""
        version = unpack_version(frame)
        if version != PROTOCOL_VERSION:
            self._refuse(now, session, f"protocol version {version}; {PROTOCOL_VERSION} is spoken here")
            return None
        names = unpack_names(frame)
        problem = self._misaddressed(session, names)
        if not problem:
            # Only now: it may be long, and who sends it could be anybody.
            hello = unpack_hello(frame)
            problem = self._problem(session, hello)
            if not problem:
                return hello
        session.site = session.site or names.site
        self._refuse(now, session, problem)
        return None

    def _misaddressed(self, session: Session, hello: Names) -> str:
        own = self._settings
        if hello.group != own.group:
            return f"group {hello.group} at the other end of a session of group {own.group}"
        if hello.site == own.site:
            return f"both sites are named {own.site}, {own.domain} and {hello.domain}: {RENAME}"
        if hello.to_site != own.site:
            return f"this is site {own.site}, not {hello.to_site}"
        if session.dialled and hello.site != session.site:
            return f"site {hello.site} where {session.site} was dialled"
        if hello.site not in own.sites:
            return f"site {hello.site} is not known to {own.site}"
        if any(
            other.site == hello.site and other.domain != hello.domain and other.phase is Phase.OPEN
            for other in self.sessions.values()
        ):
            return f"another site is named {hello.site} as well: {RENAME}"
        return ""

    def _problem(self, session: Session, hello: Hello) -> str:
        own = self._settings
        if problem := self._user.objection(hello.site, hello.view):
            return problem
        if not hello.via:
            return self._misnamed(session, hello.site)
        member = self._user.name_of(MemberId(hello.via))
        if member is None:
            return "passed on by a stranger"
        if is_of_member(session.certificate_names, member):
            return ""
        # That member has compared the names of the other site. The ids of members are no secret.
        names = own.own_certificate_names or ((own.site,) if own.sites[hello.site].certificate_names else ())
        return misnamed(session.certificate_names, names)

    def _misnamed(self, session: Session, site: str) -> str:
        remote = self._settings.sites.get(site)
        return misnamed(session.certificate_names, remote.certificate_names if remote else ())

    def _refuse(self, now: float, session: Session, problem: str) -> None:
        self._note_refusal(now, session.site, problem)
        if session.phase is not Phase.DIALLING:
            self._port.send(session.id, pack(BridgeKind.REFUSED, problem))
        self.end(now, session, problem)

    def _note_refusal(self, now: float, site: str, reason: str) -> None:
        if site not in self._settings.sites:
            self._user.stranger(site, reason)
            return
        if self.refusal(now, site) != reason:
            self._user.log("session of another site refused", trouble=True, site=site, reason=reason)
        self._refused[site] = now, reason

    def _forget(self, now: float, session: Session, reason: str) -> None:
        if self.sessions.pop(session.id, None) is None:
            return
        was_open = session.phase is Phase.OPEN
        if was_open and not session.dialled:
            self._places.leave(session.site)
        dialler = self.diallers.get(session.site)
        if dialler is not None and dialler.session == session.id:
            (dialler.lost if was_open else dialler.failed)(now, reason, self._random.random())
        if was_open:
            self._user.session_ended(now, session, reason)
