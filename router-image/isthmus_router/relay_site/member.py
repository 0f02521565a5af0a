"""The router's membership in a relay site: a member with its sockets and its AMQP face, made from the configuration.

While the configuration has a section `relaySite` the router is a member. What may change while it runs is taken over;
for the rest the member leaves and another one joins. Ports that are in use are tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from isthmus_router.config.diff import Changes
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.config.relay_model import Discovery
from isthmus_router.core.terms import Outcome
from isthmus_router.credentials import CredentialsError
from isthmus_router.flows.relay import MemberFigures
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import (
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
    tunnel_address,
)
from isthmus_router.groups.views import View
from isthmus_router.relay.over_network import Bridges, bridge_address
from isthmus_router.relay.roles import relays_of
from isthmus_router.relay.settings import Endpoint
from isthmus_router.relay.sites import SiteState
from isthmus_router.relay_site import flows
from isthmus_router.relay_site.metrics import RelayFigures
from isthmus_router.relay_site.network import RelayNetwork
from isthmus_router.relay_site.settings import addresses, group_name, member_settings, transport_settings
from isthmus_router.relay_site.status import MemberStatus, RelayStatus, RemoteStatus
from isthmus_router.sites.face import RelayFace
from isthmus_router.sites.member import Member
from isthmus_router.sites.port import FaceSettings
from isthmus_router.sites.settings import MemberObserver
from isthmus_router.sites.waiting import Pending, WaitingRoom
from isthmus_router.transport.driver import MemberDriver
from isthmus_router.transport.hello import Hello
from isthmus_router.transport.interfaces import own_addresses

if TYPE_CHECKING:
    from isthmus_router.process import RouterProcess

log = logging.getLogger("RELAY")

RETRY_SECONDS = 1.0
ADDRESSES_SECONDS = 5.0
"""Between looks at which addresses this machine has."""
LEAVE_SECONDS = 4.0
"""A member that has not left in good order by then just ends."""


class RelaySite:
    """Of one router process."""

    def __init__(self, process: RouterProcess) -> None:
        self._process = process
        self._loop = process.loop
        self._present: _Present | None = None
        self._problem = ""
        """Why there is no member although there should be."""
        self._waiting: WaitingRoom | None = None
        """While there should be a member and is none."""
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Join, if the configuration says so."""
        if self._stopped or self._process.configuration.relay_site is None:
            return
        pending = self._end_waiting()
        try:
            self._present = _Present(self._process, pending)
            self._problem = ""
        except (OSError, CredentialsError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            if problem != self._problem:
                log.error("cannot be a member of the site", extra={"reason": problem})
            self._problem = problem
            self._wait(pending)
            self._retry = self._loop.call_later(RETRY_SECONDS, self.start)

    async def configure(self, changes: Changes) -> None:
        """Take over what has changed."""
        change = changes.relay_site
        if self._present is None or (change is not None and change.rejoin):
            if change is not None or self._retry is not None:
                await self._leave(again=True)
                self.start()
        else:
            if change is not None or changes.relay_remotes or changes.relay_addresses:
                self._present.configure()
            if changes.ssl_profiles_changed:
                self._present.reload({each.new.name: each.new for each in changes.ssl_profiles_changed})

    async def stop(self) -> None:
        """Leave in good order."""
        self._stopped = True
        await self._leave()

    def _wait(self, pending: Pending) -> None:
        configuration = self._process.configuration
        config = configuration.relay_site
        assert config is not None
        self._waiting = WaitingRoom(
            self._process.core, config.group, addresses(configuration), config.max_message_bytes, pending
        )

    def _end_waiting(self) -> Pending:
        waiting, self._waiting = self._waiting, None
        return Pending() if waiting is None else waiting.close()

    async def _leave(self, *, again: bool = False) -> None:
        """`again`: to be a member once more, if the configuration still says so."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        present, self._present = self._present, None
        self._problem = ""
        again = again and self._process.configuration.relay_site is not None
        if present is not None and not self._stopped:
            present.face.detach_receivers()
        taker = self._waiting if present is None else present.face
        if taker is not None and not (again or self._stopped):
            taker.detach_senders()
        pending = self._end_waiting() if present is None else present.face.close()
        if again:
            self._wait(pending)
        else:
            self._process.core.port.settle(pending.unsettled, Outcome.RELEASED)
            self._process.core.port.read_on()
        self._process.driver.flush()
        if present is not None:
            await present.leave()
            self._process.driver.flush()

    def status(self) -> RelayStatus | None:
        """What `/status` says; None: the router is no member."""
        config = self._process.configuration.relay_site
        if config is None:
            return None
        if self._present is not None:
            return self._present.status()
        return RelayStatus(config.group, config.site, "", 0, (), (), 0, 0, (self._problem,))

    def figures(self) -> RelayFigures | None:
        """What `/metrics` says; None: there is no member at present."""
        return None if self._present is None else self._present.figures()

    def flow_figures(self) -> MemberFigures | None:
        """What flow records say; None: there is no member at present."""
        return None if self._present is None else self._present.flow_figures()


class _Driven(Member):
    """A member whose calls from the AMQP side end a turn of its driver, and the other way round."""

    wake: Callable[[], None]
    flush_amqp: Callable[[], None]

    def publish(self, messages: Sequence[GroupMessage], token: object | None) -> None:
        super().publish(messages, token)
        self.wake()

    def send_to(
        self, member: MemberId, message: GroupMessage, token: object | None, source: object = None
    ) -> None:
        super().send_to(member, message, token, source)
        self.wake()

    def flush(self, now: float) -> None:
        super().flush(now)
        self.flush_amqp()


class _Present(MemberObserver):
    """The member that the router is at the moment."""

    def __init__(self, process: RouterProcess, pending: Pending) -> None:
        """`pending` is what its senders have given before. Raises OSError, CredentialsError."""
        configuration = process.configuration
        config = configuration.relay_site
        assert config is not None
        self._process = process
        self._recorder = process.flow_log.relay if process.flow_log is not None else None
        self._config = config
        self._left = asyncio.Event()
        self._driver = MemberDriver(
            transport_settings(configuration, config), Random(SystemRandom().random())
        )
        identity = member_id(os.urandom(16), config.site)
        name = config.member_name or configuration.router.id
        self._info = MemberInfo(identity, name, self._reached_at(identity))
        group = group_name(config)
        settings = member_settings(configuration, config, self._bridges())
        self._network = RelayNetwork(process, self._driver)
        self.member = _Driven(
            self._info,
            settings,
            self._driver,
            Bridges(self._driver.bridge, self._network.bridge),
            self,
            self._driver.clock,
            Random(SystemRandom().random()),
        )
        self.member.wake = self._driver.wake
        self.member.flush_amqp = process.driver.flush
        try:
            self._driver.start(self.member, Hello(group, self._info))
        except OSError:
            process.loop.create_task(self._driver.close())
            raise
        self._network.open()
        self.face = RelayFace(process.core, self._face_settings(), self.member, self._later)
        self.member.user = self.face
        self.face.take_over(pending)
        process.core.port.read_on()
        self._looking = process.loop.call_later(ADDRESSES_SECONDS, self._look_at_addresses)
        self.member.start(self._driver.clock())
        self._driver.wake()
        log.info("joining the site", extra={"group": config.group, "site": config.site, "member": name})
        if config.without_tls:
            log.warning(
                "connections without TLS",
                extra={
                    "site": config.site,
                    "connections": list(config.without_tls),
                    "allowed_by": "plainText",
                },
            )
        if self._recorder is not None:
            self._recorder.joins(config.group, config.site, name)

    def _face_settings(self) -> FaceSettings:
        config = self._config
        return FaceSettings(
            config.group,
            self.member.own,
            addresses(self._process.configuration),
            config.max_message_bytes,
            config.state_address,
        )

    def _reached_at(self, identity: MemberId) -> tuple[PhysicalAddress, ...]:
        config = self._config
        if config.discovery is Discovery.TUNNEL:
            return (tunnel_address(identity),)
        hosts = config.announced or tuple(
            (host, self._driver.port) for host in own_addresses(config.member_host)
        )
        return tuple(PhysicalAddress(host, port) for host, port in hosts)

    def _look_at_addresses(self) -> None:
        """Interfaces come and go: the others are told where this member is reached now."""
        self._looking = self._process.loop.call_later(ADDRESSES_SECONDS, self._look_at_addresses)
        addresses = self._reached_at(self._info.id)
        if addresses != self._info.addresses:
            log.info("reached elsewhere", extra={"addresses": [str(address) for address in addresses]})
            self._info = self._info._replace(addresses=addresses)
            self.member.readdressed(addresses)
            self._driver.readdress(self._info)

    def _bridges(self) -> tuple[Endpoint, ...]:
        config = self._config
        port = self._driver.bridge_port
        assert port is not None
        hosts = config.announced_bridges or tuple((host, port) for host in own_addresses(config.bridge_host))
        return tuple(Endpoint(host, port) for host, port in hosts)

    def configure(self) -> None:
        """The configuration has changed in what may change while the member is there."""
        configuration = self._process.configuration
        config = configuration.relay_site
        assert config is not None
        self._config = config
        settings = member_settings(configuration, config, self._bridges())
        self.member.configure(self._driver.clock(), settings)
        self.face.configure(self._face_settings())
        self._listen()
        self._driver.wake()

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        def call() -> None:
            if not self._left.is_set():
                callback()
                self._driver.wake()

        self._process.loop.call_later(seconds, call)

    def reload(self, profiles: dict[str, SslProfileConfig]) -> None:
        """These profiles have other credentials now."""
        config = self._config
        profile, bridge, gossip = (
            profiles.get(name) if name else None
            for name in (config.ssl_profile, config.bridge_ssl_profile, config.gossip_ssl_profile)
        )
        try:
            self._driver.reload(profile=profile, bridge_profile=bridge, gossip_profile=gossip)
        except CredentialsError as error:
            self._driver.problems.tell("credentials", str(error))

    async def leave(self) -> None:
        """In good order, or after a while without it."""
        self._looking.cancel()
        self.member.leave(self._driver.clock())
        self._driver.wake()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._left.wait()
        except TimeoutError:
            log.warning("left before the other members confirmed it")
        self.member.close(self._driver.clock())
        self._network.close()
        if self._recorder is not None:
            self._recorder.leaves()
        await self._driver.close()

    # MemberObserver

    def view_installed(self, view: View) -> None:
        """Implements MemberObserver."""
        names = [member.name for member in view.members]
        log.info("view installed", extra={"view": f"{view.id.number} of {names[0]}", "members": names})
        for problem in _shared_names(view):
            who, _, reason = problem.partition(": ")
            log.warning("relay site problem", extra={"event": "relay.problem", "peer": who, "reason": reason})
        self._listen()
        if self._recorder is not None:
            flows.record_view(self._recorder, view)
            self._recorder.look(self.flow_figures())

    def _listen(self) -> None:
        """At the bridge addresses of the site, if the member is its relay."""
        places = {remote.over for remote in self._process.configuration.relay_remotes if remote.over}
        own = {bridge_address(over, self._config.group, self._config.site) for over in places}
        self._network.listen(own if self.member.relay.is_relay else set())

    def left(self) -> None:
        """Implements MemberObserver."""
        self._left.set()

    def event(self, name: str, *, trouble: bool = False, **fields: object) -> None:
        """Implements MemberObserver."""
        log.log(logging.WARNING if trouble else logging.INFO, name, extra=fields)
        if self._recorder is not None:
            flows.record_event(self._recorder, name, fields)

    def problem(self, who: str, reason: str) -> None:
        """Implements MemberObserver."""
        self._driver.problems.tell(who, reason)

    def status(self) -> RelayStatus:
        """What `/status` says."""
        now = self._driver.clock()
        member = self.member
        view = member.membership.view
        snapshot = member.relay.snapshot(now)
        names: dict[str, list[str]] = {}
        for each in member.members.values():
            names.setdefault(each.site, []).append(each.name)
        relays = relays_of(view, self._config.relays) if view else ()
        problems = (*self._driver.problems.recent(), *(_shared_names(view) if view else ()))
        return RelayStatus(
            self._config.group,
            self._config.site,
            member.id.hex(),
            view.id.number if view else 0,
            tuple(MemberStatus(each.id.hex(), each.name, each.id in relays) for each in view.members)
            if view
            else (),
            tuple(
                RemoteStatus(
                    site.site,
                    site.state.value,
                    tuple(names.get(site.site, ())),
                    site.refused or site.problem,
                    site.lag_messages if snapshot.is_relay else 0,
                    site.lag_bytes if snapshot.is_relay else 0,
                    site.lag_seconds if snapshot.is_relay else 0.0,
                    site.dropped_messages,
                    site.replayed_messages,
                    site.duplicate_messages,
                    site.gap_messages_received,
                    site.round_trip,
                )
                for site in snapshot.sites
            ),
            snapshot.buffered_messages,
            snapshot.buffered_bytes,
            problems,
            snapshot.is_holder,
            snapshot.holder_ready,
            self._config.without_tls,
            (len(view.ids) if view else 0) >= self._config.copies
            or any(site.state is SiteState.UP for site in snapshot.sites),
        )

    def figures(self) -> RelayFigures:
        """What `/metrics` says."""
        return RelayFigures(
            self.member.snapshot(self._driver.clock()),
            self._driver.connections,
            self._driver.statistics() | self._network.statistics(),
            self.face.counters,
            self.face.receivers.counters,
        )

    def flow_figures(self) -> MemberFigures:
        """What flow records say."""
        member = self.member
        return flows.figures(self._info, member.membership.view, member.snapshot(self._driver.clock()))


def _shared_names(view: View) -> tuple[str, ...]:
    counts = Counter(member.name for member in view.members)
    return tuple(
        f"member {name}: {count} members have this name; messages to one of them need its UUID"
        for name, count in counts.items()
        if count > 1
    )
