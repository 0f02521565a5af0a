"""The driver of a member: sockets, names and time for a stack of protocols that does no I/O itself.

Everything happens in turns of the event loop: what has arrived at any socket is given to the stack, then the stack
is asked to `flush` once, then every connection that something was sent on is written to once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from isthmus_router.config.model import SslProfileConfig
from isthmus_router.credentials import Credentials
from isthmus_router.gossip.client import Endpoint, GossipClient
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import ID_BYTES, MemberId, MemberInfo, PhysicalAddress, tunnel_address
from isthmus_router.transport.arrivals import Arrivals
from isthmus_router.transport.bridge import Bridge
from isthmus_router.transport.connection import LINGER_SECONDS, FrameConnection
from isthmus_router.transport.dns import DnsResolver
from isthmus_router.transport.gossip import GossipConnections
from isthmus_router.transport.hello import Hello
from isthmus_router.transport.members import MemberConnections
from isthmus_router.transport.multicast import Multicast
from isthmus_router.transport.problems import Problems
from isthmus_router.transport.settings import TransportSettings
from isthmus_router.transport.sockets import Listener, listening_socket
from isthmus_router.transport.stack import Stack
from isthmus_router.transport.strangers import Strangers
from isthmus_router.turns import Turns

logger = logging.getLogger("TRANSPORT")

_LOG_SECONDS = 1.0
"""Between two lines about what peers send, or what goes wrong with it."""


class MemberDriver:
    """Of one member; implements NetworkPort for its stack. `bridge` implements BridgePort."""

    def __init__(
        self, settings: TransportSettings, random: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Binds the sockets that are listened on; to be called with an event loop running.

        Raises OSError, CredentialsError.
        """
        self._settings = settings
        self._random = random
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self.problems = Problems(logger, clock)
        """With peers that cannot be used, and gossip routers."""
        self._credentials = {
            profile: Credentials(profile)
            for profile in (settings.profile, settings.bridge_profile, settings.gossip_profile)
            if profile is not None
        }
        self.counts: Counter[str] = Counter(malformed=0, faults=0, refused_tunnelled=0, ignored_tunnelled=0)
        """`malformed`: frames that the stack took for none; `faults`: calls of the stack that failed;
        `refused_tunnelled`: frames that came through a gossip router without `tunnel`; `ignored_tunnelled`: too many of
        a sender that is not in the view."""
        self._strangers = Strangers()
        self._dirty: list[FrameConnection] = []
        self.arrivals = Arrivals(self._loop)
        """Implements Turn."""
        self.ready = Turns(self._loop).ready
        """Implements Turn."""
        self._turning = False
        self._started = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.armed = math.inf
        """When the event loop wakes the driver at the latest."""
        self._logged_at = -math.inf
        self.bridge = Bridge(settings, self._of(settings.bridge_profile), self, self, self.problems)
        self._listener = Listener(listening_socket(settings.host, settings.port), settings.user_timeout)
        self._bridge_listener: Listener | None = None
        if settings.bridge_port is not None:
            try:
                self._bridge_listener = Listener(
                    listening_socket(settings.bridge_host, settings.bridge_port),
                    settings.bridge_user_timeout,
                )
            except OSError:
                self._listener.close()
                raise

    def _of(self, profile: SslProfileConfig | None) -> Credentials | None:
        return None if profile is None else self._credentials[profile]

    @property
    def port(self) -> int:
        """Where members connect to this one."""
        return self._listener.port

    @property
    def bridge_port(self) -> int | None:
        """Where other sites connect to this member; None: they do not."""
        return None if self._bridge_listener is None else self._bridge_listener.port

    def start(self, stack: Stack, hello: Hello) -> None:
        """Let others connect, and drive the stack from now on. Raises OSError if there can be no multicast."""
        settings = self._settings
        self._multicast = (
            Multicast(settings.multicast, self._datagram) if settings.multicast is not None else None
        )
        self._started = True
        self._stack = stack
        self._own_id = hello.member.id
        self._members = MemberConnections(
            hello, settings, self._of(settings.profile), self, self, self.clock, self.problems
        )
        self._dns = DnsResolver(self._resolved)
        self._gossip = GossipConnections(
            settings, self._of(settings.gossip_profile), self, self, self.problems
        )
        routers = [Endpoint(address.host, address.port) for address in settings.gossip_routers]
        self._gossip_client = GossipClient(
            f"{hello.group.group}/{hello.group.site}",
            hello.member,
            routers,
            self._gossip,
            self,
            self._random,
            binding=settings.gossip_binding,
        )
        self._gossip_client.start(self.clock())
        self._listener.start(self._members.accepted)
        if self._bridge_listener is not None:
            self._bridge_listener.start(self.bridge.accepted)
        self.wake()

    def readdress(self, info: MemberInfo) -> None:
        """This member is reached elsewhere now; told on connections made from now on, and to gossip routers."""
        self._members.hello = self._members.hello._replace(member=info)
        self._gossip_client.readdressed(self.clock(), info)

    def reload(
        self,
        *,
        profile: SslProfileConfig | None = None,
        bridge_profile: SslProfileConfig | None = None,
        gossip_profile: SslProfileConfig | None = None,
    ) -> None:
        """These profiles have changed. Connections with members and gossip routers are made anew before the old ones
        are closed; the stack is told to do so with bridge sessions. What is left of generations before
        `oldest_valid_ordinal` is closed.

        Raises CredentialsError; then nothing has changed. None: as it was.
        """
        changes = [
            (each, owner, None if owner.credentials is None else owner.credentials.renewed(each))
            for each, owner in (
                (profile, self._members),
                (bridge_profile, self.bridge),
                (gossip_profile, self._gossip),
            )
            if each is not None
        ]
        for each, owner, credentials in changes:
            if credentials is not None:
                owner.renew(credentials)
            owner.retire(each.oldest_valid_ordinal)

    @property
    def connections(self) -> int:
        """With other members, open."""
        return self._members.open

    def statistics(self) -> dict[str, int]:
        """Counts since the start: frames dropped, lost and malformed, connections refused."""
        counts = Counter(self.counts)
        counts.update(self._members.statistics())
        counts["bridge_refused"] = self.bridge.counts["refused"]
        counts["undelivered_by_gossip"] = self._gossip_client.dropped
        counts["multicast_unsent"] = self._multicast.unsent if self._multicast is not None else 0
        return dict(counts)

    async def close(self) -> None:
        """End everything, after what was sent is written or a few seconds are over."""
        self._listener.close()
        if self._bridge_listener is not None:
            self._bridge_listener.close()
        if self._closed or not self._started:
            return
        self._end_turn()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._multicast is not None:
            self._multicast.close()
        self._dns.close()
        self._gossip_client.close(self.clock())
        ending = (*self._members.shut(), *self.bridge.shut(), *self._gossip.shut())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * LINGER_SECONDS):
                for connection in ending:
                    await connection.over.wait()

    # Turns and time

    def wake(self) -> None:
        """The stack was called from elsewhere: end the turn, once all that is ready now is done."""
        if not self._turning and not self._closed:
            self._turning = True
            self._loop.call_soon(self._end_turn)

    def touch(self, connection: FrameConnection) -> None:
        """Implements Turn."""
        self._dirty.append(connection)
        self.wake()

    def _end_turn(self) -> None:
        if self._closed:
            return
        self._turning = True
        self._call(self._stack.flush)
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.write()
        self._turning = False
        if self._dirty:
            self.wake()
        self._arm()

    def _arm(self) -> None:
        at = min(self._stack.deadline, self._gossip_client.deadline)
        if at >= self.armed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.armed = at
        # The event loop rounds to milliseconds: down, it would turn and turn until the time has come.
        wait = math.ceil((at - self.clock()) * 1000) / 1000
        self._timer = self._loop.call_later(max(0.0, wait), self._time)

    def _time(self) -> None:
        self._timer, self.armed = None, math.inf
        now = self.clock()
        if self._stack.deadline <= now:
            self._call(self._stack.on_time)
        if self._gossip_client.deadline <= now:
            self._gossip_client.on_time(now)
        self.wake()

    def _tell(self, call: Callable[..., None], *what: Any) -> bool:
        self.wake()
        return self._call(call, *what)

    def _call(self, call: Callable[..., None], *what: Any) -> bool:
        """Tell the stack. Nothing that a peer sends may end the member, whatever the stack makes of it. Returns False
        for a malformed frame."""
        try:
            call(self.clock(), *what)
        except FrameError as error:
            self.counts["malformed"] += 1
            self._log("malformed frame", reason=str(error))
            return False
        except Exception:
            self.counts["faults"] += 1
            self._log("event not handled", failed=True)
        return True

    def _log(self, event: str, *, failed: bool = False, **fields: str) -> None:
        now = self.clock()
        if now >= self._logged_at + _LOG_SECONDS:
            self._logged_at = now
            logger.log(logging.ERROR if failed else logging.WARNING, event, extra=fields, exc_info=failed)

    # NetworkPort

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        """Implements NetworkPort."""
        if not to.tunnelled:
            self._members.send(to, frame)
            return
        if not self._settings.tunnel:
            return  # a peer has stated such an address, but here gossip routers report addresses only
        try:
            member = MemberId(bytes.fromhex(to.host))
        except ValueError:
            return  # somebody has announced that; there is no such member
        if len(member) == ID_BYTES:
            self._gossip_client.send(self.clock(), member, frame)

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        """Implements NetworkPort."""
        return self._gossip.backlog if to.tunnelled else self._members.backlog(to, member)

    def multicast(self, frame: bytes) -> None:
        """Implements NetworkPort."""
        if self._multicast is not None:
            self._multicast.send(frame)

    def resolve(self, host: str) -> None:
        """Implements NetworkPort."""
        self._dns.resolve(host)

    def ask_gossip_routers(self) -> None:
        """Implements NetworkPort."""
        self._gossip_client.ask(self.clock())

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        """Implements NetworkPort."""
        self._members.drop(to, member)

    # What happens

    def member_frame(self, source: PhysicalAddress, frame: bytes) -> None:
        """Implements MemberEvents."""
        self._tell(self._stack.on_frame, source, frame)

    def member_heard(self, member: MemberId) -> None:
        """Implements MemberEvents."""
        self._tell(self._stack.heard, member)

    def member_lost(self, address: PhysicalAddress, refused: bool) -> None:
        """Implements MemberEvents."""
        self._tell(self._stack.connection_lost, address, refused)

    def _datagram(self, frame: bytes) -> None:
        if frame[1 : 1 + ID_BYTES] != self._own_id:
            self._tell(self._stack.on_frame, None, frame)

    def _resolved(self, host: str, addresses: tuple[str, ...]) -> None:
        (self.problems.solved if addresses else self.problems.tell)(
            f"host {host}", "the name has no IP address"
        )
        self._tell(self._stack.on_resolved, host, addresses)

    def bridge_opened(self, session: int, names: tuple[str, ...]) -> None:
        """Implements BridgeEvents."""
        self._tell(self._stack.bridge_opened, session, names)

    def bridge_frame(self, session: int, frame: bytes) -> None:
        """Implements BridgeEvents."""
        self._tell(self._stack.bridge_frame, session, frame)

    def bridge_heard(self, session: int) -> None:
        """Implements BridgeEvents."""
        self._tell(self._stack.bridge_heard, session)

    def bridge_closed(self, session: int, reason: str) -> None:
        """Implements BridgeEvents."""
        self._tell(self._stack.bridge_closed, session, reason)

    def bridge_renewed(self, sessions: list[int]) -> None:
        """Implements BridgeEvents."""
        self._tell(self._stack.bridge_renewed, sessions)

    def gossip_connected(self, router: Endpoint) -> None:
        """Implements GossipEvents."""
        self._gossip_client.connected(self.clock(), router)
        self.wake()

    def gossip_frame(self, router: Endpoint, frame: bytes) -> None:
        """Implements GossipEvents."""
        self._gossip_client.on_frame(self.clock(), router, frame)
        self.wake()

    def gossip_heard(self, router: Endpoint) -> None:
        """Implements GossipEvents."""
        self._gossip_client.heard(self.clock(), router)

    def gossip_closed(self, router: Endpoint) -> None:
        """Implements GossipEvents."""
        self._gossip_client.closed(self.clock(), router)
        self.wake()

    # GossipUser

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """Implements GossipUser."""
        self._tell(self._stack.on_gossip_members, infos)

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        """Implements GossipUser. A router lets nobody speak for others, so nothing within may either.

        Without `tunnel` only connections of members are trusted, which verify certificates and names.
        """
        if not self._settings.tunnel:
            self.counts["refused_tunnelled"] += 1
            self.problems.tell("gossip routers", "passed on a frame of a member, but discovery is not tunnel")
        elif frame[1 : 1 + ID_BYTES] != sender:
            self.counts["malformed"] += 1
        elif self._stack.knows(sender):
            self._tell(self._stack.on_frame, tunnel_address(sender), frame)
        elif not self._strangers.takes(now, sender, frame):
            self.counts["ignored_tunnelled"] += 1
            self.problems.tell(
                "gossip routers", "passed on too many frames of a member that is not in the view"
            )
        elif not self._tell(self._stack.on_frame, tunnel_address(sender), frame):
            self._strangers.malformed(sender, frame)

    def suspect(self, now: float, member: MemberId) -> None:
        """Implements GossipUser."""
        self._tell(self._stack.on_gossip_suspect, member)

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        """Implements GossipUser."""
        self.problems.tell(f"gossip router {router}", reason)
