"""The routing protocol of one interior router as a state machine without I/O.

Whoever owns the engine tells it what happened (``on_...``, with the current time in seconds of a monotonic
clock), carries out the actions that each call returns, in order, and calls :meth:`RoutingEngine.on_tick` at
:attr:`RoutingEngine.next_deadline` at the latest. Control messages that cannot be used are counted and
reported as an action; nothing that comes from the network raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from . import actions as act
from .advertising import AdvertisementSchedule
from .linkstate import LinkState
from .messages import (
    ALL_ROUTERS_ADDRESS,
    ALL_ROUTERS_MOBILE_ADDRESS,
    HELLO_ADDRESS,
    AddressSnapshot,
    ControlMessage,
    ControlMessageError,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
    UnsupportedVersionError,
    control_address,
    decode_control,
    encode_control,
    link_cost,
    mobile_control_address,
)
from .mobile import AddressChanges, LocalAddresses, SnapshotMaker
from .neighbours import NeighbourChange, Neighbours
from .nodes import MAX_ROUTERS, RouterNode, RouterTable
from .overview import NodeInfo, other_rows, own_row
from .relay import LinkStateRelay
from .timers import Timers
from .topology import Topology
from .updates import READ_AT_ONCE_BYTES, UpdateReader, check_size, large_update
from .waiting import STEP, WaitingUpdates

_NEVER = float("inf")

MOST_STEPS = 2**20
"""By which a number of a router grows between two messages; a router that is not heard for so long is forgotten."""

MOST_REPORTED = 10 * MAX_ROUTERS
"""Conditions of routers that are remembered as reported."""
ADDRESSES_ANSWERED = 200_000
"""In a second, to all who ask for the addresses of this router."""

SECONDS_OF_ANSWERS = 2.0
"""Seconds' worth of such answers that may be sent at a time."""

PART_SECONDS = 0.02
"""Between updates of addresses, if one of them cannot have all."""

_REGRESSIONS_OF_A_RESTART = 2
"""One advertisement may overtake another; two in a row behind what is known mean an unannounced restart."""

_ECHO_TIME = 10.0
"""How long after our start advertisements of our own former life may still be under way."""


class RoutingEngine:
    """HELLO, link state, paths and mobile addresses of an interior router.

    ``instance`` must differ from that of the router's previous life (seconds of the wall clock, by custom).
    """

    def __init__(self, router_id: str, *, instance: int, now: float, timers: Timers | None = None) -> None:
        self.router_id = router_id
        self.instance = instance
        self.timers = timers or Timers()
        self.table = act.RouteTable()
        """The current table, as last reported by RoutesChanged."""
        self.refused_messages = 0
        """Control messages that could not be used, or in which addresses were skipped, so far."""
        self.refused_routers = 0
        """How often a router found no place in the table, so far."""
        self.displaced_routers = 0
        """Routers that lost their place to another one, so far."""
        self.neighbour_refused_at: float | None = None
        """When a router that is heard directly found no place last."""
        self.received_messages: Counter[str] = Counter()
        """Control messages by opcode."""
        self.last_topology_change = now

        self._started = now
        self._neighbours = Neighbours(self.timers.hello_max_age)
        self._nodes = RouterTable(self.timers.request_retry, self.timers.ra_interval)
        self._addresses = LocalAddresses()
        self._updates = WaitingUpdates(lambda node: self._nodes.get(node.id) is node)
        self._relay = LinkStateRelay()
        self._local = LinkState(router_id)
        self._topology = Topology(router_id, self.timers)

        self._actions: list[act.Action] = []
        self._attention = False
        self._deadline = now
        self._next_hello = now
        self._advertising = AdvertisementSchedule(self.timers, now)
        self._answer_at = now
        """When the addresses of this router may be sent again to a router that asks for them."""
        self._snapshot: SnapshotMaker | None = None
        self._announce_at = _NEVER
        self._last_announced = -_NEVER
        self._reported: dict[tuple[str, str], None] = {}
        """Conditions reported once, the oldest first: (router, what)."""

    # --- events ---------------------------------------------------------------------------------------------

    def on_link_up(self, link: int, cost: int, now: float, least: int | None = None) -> list[act.Action]:
        """Both control links of an inter-router connection are attached; ``link`` is its mask bit.

        With ``least``, the peer decides on the cost: a change that it announces in its link state is taken
        over, down to ``least``. So a changed connector counts in both directions without a new connection.
        """
        self._neighbours.link_up(link, link_cost(cost), least)
        self._send_hello(link, now)
        return self._finish(now, attention=True)

    def on_link_cost(self, link: int, cost: int, now: float) -> list[act.Action]:
        """The cost of a control link that is up changed."""
        if link in self._neighbours.links:
            self._neighbours.link_up(link, link_cost(cost))
        return self._finish(now, attention=True)

    def on_link_lost(self, link: int, now: float) -> list[act.Action]:
        """The outgoing control link is gone, and no other connection took its mask bit over."""
        self._neighbours.link_down(link)
        self._apply_neighbour_changes("control link lost", now)
        return self._finish(now, attention=True)

    def on_message(self, link: int, payload: bytes, now: float) -> list[act.Action]:
        """A complete control message (router annotations or not) came in on the control link ``link``."""
        try:
            message = _read(payload)
        except UnsupportedVersionError as error:
            self.refused_messages += 1
            if self._first_report(error.router, "version"):
                self._actions.append(act.VersionUnsupported(error.router, error.version))
        except ControlMessageError as error:
            self.refused_messages += 1
            self._actions.append(act.MessageRefused(link, str(error)))
        else:
            self.received_messages[message.opcode] += 1
            self._dispatch(message, link, len(payload), now)
        return self._finish(now)

    def has_work(self, now: float) -> bool:
        """Whether paths are being computed, or a large update of addresses can be read on."""
        return self._topology.is_computing or self._is_encoding or self._updates.ready(now)

    def work(self, now: float) -> list[act.Action]:
        """Go a step on with the paths, the answer to requests for addresses, and the updates that are read; to be
        called between other things."""
        if self._topology.is_computing:
            self._compute_paths(now)
        if self._is_encoding:
            assert self._snapshot is not None
            self._snapshot.go_on(STEP)
            self._attention = self._attention or self._snapshot.is_complete
        found = self._updates.next(now)
        if found is not None:
            node, link, steps = found
            try:
                if next(steps, True):
                    self._updates.done(node.id)
                    if not node.wants_mobile:
                        node.mobile_request.answered()
                    self._attention = True
            except ControlMessageError as error:
                self._updates.done(node.id)
                self.refused_messages += 1
                self._actions.append(act.MessageRefused(link, str(error)))
        return self._finish(now)

    def on_tick(self, now: float) -> list[act.Action]:
        """Time has passed."""
        return self._finish(now)

    def local_address_added(self, address: MobileAddress, now: float) -> list[act.Action]:
        """Consumers for an address appeared on this router, or attributes of an advertised one changed."""
        self._addresses.put(address)
        return self._schedule_announcement(now)

    def local_address_removed(self, key: str, now: float) -> list[act.Action]:
        """The last consumer for an address on this router is gone."""
        self._addresses.remove(key)
        return self._schedule_announcement(now)

    @property
    def next_deadline(self) -> float:
        """When :meth:`on_tick` is due."""
        return self._deadline

    # --- queries --------------------------------------------------------------------------------------------

    @property
    def recomputations(self) -> int:
        """Path computations so far."""
        return self._topology.computations

    def has_neighbour_without_place(self, now: float) -> bool:
        """Whether a router that is heard directly finds no place in the table."""
        at = self.neighbour_refused_at
        return at is not None and now < at + self.timers.hello_max_age

    @property
    def refused_addresses(self) -> int:
        """Announced addresses of other routers that found no room, so far."""
        return self._nodes.room.refused

    def nodes(self) -> list[NodeInfo]:
        """This router and every known one, by mask bit."""
        own = own_row(self._local, self.instance, self.last_topology_change)
        return [own, *other_rows(self._nodes, self.table, self._topology.graph)]

    # --- received messages ----------------------------------------------------------------------------------

    def _dispatch(self, message: ControlMessage | UpdateReader, link: int, size: int, now: float) -> None:
        if message.router == self.router_id:
            self._on_own_id(message, now)
            return
        direct = isinstance(message, Hello)
        if direct and link not in self._neighbours.links:
            return
        if direct and not self._neighbours.admits(message.router, link):
            self.refused_messages += 1
            self._actions.append(
                act.MessageRefused(link, f"HELLO of {message.router}: the peer is another router")
            )
            return
        node = self._node(message.router, link, now, direct=direct, speaks=True)
        if node is None:
            return
        contradiction = self._contradiction(message, node, link)
        if contradiction is not None:
            self.refused_messages += 1
            self._actions.append(act.MessageRefused(link, f"{message.opcode} of {node.id}: {contradiction}"))
            return
        match message:
            case Hello():
                self._on_hello(message, node, link, now)
            case RouterAdvertisement():
                self._on_advertisement(message, node, link, now)
            case LinkStateRequest():
                node.asks_link_state = True
                self._attention = True
            case LinkStateUpdate():
                self._on_link_state(message, node, link, now)
            case MobileAddressRequest():
                node.asks_mobile = message.have_sequence
                self._attention = True
            case MobileAddressUpdate():
                self._on_mobile_update(message, node, link, size)
            case UpdateReader():
                self._on_large_update(message, node, link)

    def _contradiction(
        self, message: ControlMessage | UpdateReader, node: RouterNode, link: int
    ) -> str | None:
        """Why the router cannot have sent this message, by what is known of it; None if it can."""
        steps = 0
        match message:
            case RouterAdvertisement() | LinkStateUpdate() if message.instance != node.instance:
                greeted = self._neighbours.instance_of(node.id)
                if greeted not in (None, message.instance) and not self._neighbours.leads_to(node.id, link):
                    return "its HELLO has another instance"
            case RouterAdvertisement():
                if node.link_state is not None:
                    steps = message.link_state_sequence - node.link_state.sequence
                if node.mobile.sequence:
                    steps = max(steps, message.mobile_sequence - node.mobile.sequence)
            case LinkStateUpdate() if node.link_state is not None:
                steps = message.link_state.sequence - node.link_state.sequence
            case MobileAddressUpdate() | UpdateReader() if node.mobile.sequence:
                steps = message.sequence - node.mobile.sequence
        return f"its number leaps by {steps}" if steps > MOST_STEPS else None

    def _on_own_id(self, message: ControlMessage | UpdateReader, now: float) -> None:
        if not isinstance(message, Hello | RouterAdvertisement) or message.instance == self.instance:
            return
        if isinstance(message, RouterAdvertisement) and now < self._started + _ECHO_TIME:
            return
        if self._first_report(self.router_id, f"duplicate {message.instance}"):
            instances = frozenset((self.instance, message.instance))
            self._actions.append(act.DuplicateRouterId(self.router_id, instances))

    def _on_hello(self, message: Hello, node: RouterNode, link: int, now: float) -> None:
        self._observe(node, message.version, message.instance, now)
        names_us = self.router_id in message.seen
        new = self._neighbours.heard(node.id, link, names_us=names_us, now=now, instance=message.instance)
        if new:
            # Answered at once instead of at the next HELLO: the link is up a second earlier.
            self._send_hello(link, now)
        if names_us and self._neighbours.link_to(node.id) != link:
            self._attention = True

    def _on_advertisement(
        self, message: RouterAdvertisement, node: RouterNode, link: int, now: float
    ) -> None:
        self._observe(node, message.version, message.instance, now)
        node.last_seen = now
        known = node.link_state.sequence if node.link_state else 0
        if message.link_state_sequence < known or message.mobile_sequence < node.mobile.sequence:
            # Counted by link: forged advertisements on another one cannot hide those of the router itself.
            node.regressions[link] = node.regressions.get(link, 0) + 1
            if node.regressions[link] >= _REGRESSIONS_OF_A_RESTART:
                self._restart(node, now)
        else:
            node.regressions.pop(link, None)
        if message.link_state_sequence == known:
            node.confirmed = True
        node.announced_link_state = message.link_state_sequence
        node.announced_mobile = message.mobile_sequence
        if node.mobile.may_be_completed:
            node.mobile.doubtful = True
        if node.wants_link_state:
            node.link_state_request.encourage()
            self._attention = True
        if node.wants_mobile:
            node.mobile_request.encourage()
            self._attention = True

    def _on_link_state(self, message: LinkStateUpdate, node: RouterNode, link: int, now: float) -> None:
        if node.instance is not None and message.instance < node.instance:
            # Most likely of a former life: instances are wall-clock times. Only HELLO and RA, which come
            # from the router itself and now, are believed in any case.
            return
        self._observe(node, message.version, message.instance, now)
        node.last_seen = now
        state, known = message.link_state, node.link_state
        if known is not None and state.sequence <= known.sequence:
            return
        node.link_state = state
        node.confirmed = True
        if self.router_id in state.peers:
            self._neighbours.follow(node.id, state.peers[self.router_id])
        node.announced_link_state = max(node.announced_link_state or 0, state.sequence)
        if not node.wants_link_state:
            node.link_state_request.answered()
        for peer in state.peers:
            if peer != self.router_id:
                self._node(peer, link, now)
        if known is None or known.peers != state.peers:
            node.last_topology_change = now
            self._relay.changed(node.id, link)
            self._topology.changed_elsewhere(now, len(self._nodes))
        self._attention = True

    def _on_large_update(self, reader: UpdateReader, node: RouterNode, link: int) -> None:
        if not node.reachable:
            return
        follows = reader.absolute or reader.sequence in (node.mobile.sequence, node.mobile.sequence + 1)
        if follows or node.updating:
            self._wait(node, link, reader.size, self._read_update(reader, node, link))
        else:
            node.announced_mobile = max(node.announced_mobile or 0, reader.sequence)
            self._attention = True

    def _wait(self, node: RouterNode, link: int, size: int, steps: Iterator[bool]) -> None:
        """An update is read in steps, after those of the same router that came before."""
        if not self._updates.add(node, link, size, steps):
            self.refused_messages += 1
            self._actions.append(act.MessageRefused(link, f"too many updates of addresses of {node.id} wait"))

    def _read_update(self, reader: UpdateReader, node: RouterNode, link: int) -> Iterator[bool]:
        while not reader.read(STEP):
            yield False
        if reader.skipped:
            self.refused_messages += 1
            reason = f"{reader.skipped} invalid addresses of {node.id} are skipped: {reader.first_problem}"
            self._actions.append(act.MessageRefused(link, reason))
        yield from self._apply_in_steps(reader.update(), node, link, reader.omitted)

    def _apply_in_steps(
        self, update: MobileAddressUpdate, node: RouterNode, link: int, omitted: int = 0
    ) -> Iterator[bool]:
        node.announced_mobile = max(node.announced_mobile or 0, update.sequence)
        refused = self.refused_addresses
        here = 0
        for changes in node.mobile.in_steps(update, STEP):
            here += self.refused_addresses - refused
            if changes:
                self._report_addresses(node, changes)
            yield False
            refused = self.refused_addresses
        if omitted:
            node.mobile.omit(omitted)
        self._report_refused(node, link, here + omitted)

    def _on_mobile_update(self, message: MobileAddressUpdate, node: RouterNode, link: int, size: int) -> None:
        if not node.reachable:
            # Nothing would ever remove these addresses; they are asked for when there is a path.
            return
        if node.updating:
            self._wait(node, link, size, self._apply_in_steps(message, node, link))
            return
        node.announced_mobile = max(node.announced_mobile or 0, message.sequence)
        refused = self.refused_addresses
        changes = node.mobile.apply(message)
        self._report_refused(node, link, self.refused_addresses - refused)
        if not node.wants_mobile:
            node.mobile_request.answered()
        if changes:
            self._report_addresses(node, changes)
        self._attention = True

    def _report_refused(self, node: RouterNode, link: int, refused: int) -> None:
        if refused:
            reason = f"no room for {refused} addresses of {node.id}, which has {len(node.mobile.addresses)}"
            self._actions.append(act.MessageRefused(link, reason))

    def _report_addresses(self, node: RouterNode, changes: AddressChanges) -> None:
        added = {address.key: address for address in changes.added}
        self._actions.append(act.RemoteAddressesChanged(node.id, added, frozenset(changes.removed)))

    def _send(self, router: str, address: str, message: ControlMessage | AddressSnapshot) -> None:
        self._actions.append(act.SendUnicast(router, address, encode_control(message, address)))

    # --- routers --------------------------------------------------------------------------------------------

    def _node(
        self, router: str, link: int, now: float, *, direct: bool = False, speaks: bool = False
    ) -> RouterNode | None:
        """The node of another router that is named on `link`, learned now if need be; None if there is no place."""
        node = self._nodes.get(router)
        if node is not None:
            return node
        node = self._nodes.add(router, link)
        if node is None:
            heard = set(self._neighbours.seen(now))
            displaced = self._nodes.to_displace(link, heard, direct=direct, speaks=speaks)
            if displaced is not None:
                self._displace(displaced, now)
                node = self._nodes.add(router, link)
        if node is not None:
            self._actions.append(act.RouterAdded(router, node.index))
            return node
        self.refused_routers += 1
        if direct:
            self.neighbour_refused_at = now
        if self._first_report(router, "limit"):
            self._actions.append(act.TooManyRouters(router, MAX_ROUTERS))
        return None

    def _displace(self, node: RouterNode, now: float) -> None:
        """A router loses its place to one that goes before it."""
        self.displaced_routers += 1
        self._flush(node)
        self._nodes.remove(node)
        self._actions.append(act.RouterRemoved(node.id, node.index))
        if node.link_state is not None or node.reachable:
            self._topology.changed_elsewhere(now, len(self._nodes))

    def _observe(self, node: RouterNode, version: int, instance: int, now: float) -> None:
        """Take note of which life of a router is speaking."""
        node.version = version
        if node.instance == instance:
            return
        former, node.instance = node.instance, instance
        if former is None:
            return
        self._actions.append(act.RouterRestarted(node.id, instance, former))
        if instance == node.previous_instance and self._first_report(node.id, "duplicate"):
            self._actions.append(act.DuplicateRouterId(node.id, frozenset((former, instance))))
        node.previous_instance = former
        self._restart(node, now)

    def _restart(self, node: RouterNode, now: float) -> None:
        """Forget all that a router said in its former life."""
        self._flush(node)
        node.announced_link_state = None
        node.announced_mobile = None
        node.regressions.clear()
        node.link_state_request.encourage()
        node.mobile_request.encourage()
        if node.link_state is not None:
            node.link_state = None
            self._topology.changed_elsewhere(now, len(self._nodes))
        self._attention = True

    def _flush(self, node: RouterNode) -> None:
        node.flush_at = None
        if node.mobile.clear():
            self._actions.append(act.RouterFlushed(node.id))

    def _first_report(self, router: str, what: str) -> bool:
        if (router, what) in self._reported:
            return False
        if len(self._reported) >= MOST_REPORTED:
            # Peers invent names: those must not keep what is said of others from being reported.
            del self._reported[next(iter(self._reported))]
        self._reported[router, what] = None
        return True

    # --- work that is due -----------------------------------------------------------------------------------

    def _finish(self, now: float, *, attention: bool = False) -> list[act.Action]:
        """End an event: do what became due by it or by time, and hand over the actions."""
        if attention or self._attention or now >= self._deadline:
            self._work(now)
        done, self._actions = self._actions, []
        return done

    def _work(self, now: float) -> None:
        late = now - self._deadline
        if late > 1.5 * self.timers.hello_interval:
            self._neighbours.postpone(late)
        self._apply_neighbour_changes("no HELLO", now)
        self._send_hellos(now)
        self._expire_link_states(now)
        if now >= self._announce_at and not self._is_encoding:
            if self._topology.settled:
                self._answer_all(now)  # before the next update, which follows on what is encoded
            self._announce_addresses(now)
        if now >= self._topology.due and not self._topology.is_computing:
            self._topology.begin(self._local, self._nodes, now)
            self._compute_paths(now)
        if self._topology.settled:
            # Only on settled paths: what is sent now must take the new ones, and what looks unreachable is.
            self._flush_unreachable(now)
            if self._relay:
                for neighbour, update in self._relay.take(self._nodes, self.table.neighbours):
                    self._send(neighbour, control_address(neighbour), update)
            self._answer_all(now)
            for node in self._nodes:
                if node.reachable:
                    self._ask(node, now)
            self._advertise(now)
        heard = self._neighbours.seen(now)
        for node in self._nodes.forget_unreferenced(heard, self.timers.forget_delay, now):
            self._flush(node)
            self._actions.append(act.RouterRemoved(node.id, node.index))
        self._attention = False
        self._deadline = self._compute_deadline(now)

    def _apply_neighbour_changes(self, reason: str, now: float) -> None:
        changes = self._neighbours.refresh(now)
        for change in changes:
            self._report_neighbour(change, reason)
        local = self._local.with_peers(self._neighbours.costs())
        if local is not self._local:
            self._local = local
            self._advertising.news(now)
            self._topology.changed_here(now)
        elif changes:
            self._publish()

    def _report_neighbour(self, change: NeighbourChange, reason: str) -> None:
        if change.link is None:
            assert change.previous is not None
            self._actions.append(act.NeighbourLost(change.router, change.previous, reason))
        elif change.previous is None:
            self._actions.append(act.NeighbourUp(change.router, change.link))
            self._relay.neighbour_up(change.router)
        else:
            self._actions.append(act.NeighbourMoved(change.router, change.link, change.previous))

    def _send_hellos(self, now: float) -> None:
        if now >= self._next_hello:
            self._next_hello = now + self.timers.hello_interval
            for link in self._neighbours.links:
                self._send_hello(link, now)

    def _send_hello(self, link: int, now: float) -> None:
        hello = Hello(self.router_id, self.instance, self._neighbours.seen(now))
        self._actions.append(act.SendHello(link, encode_control(hello, HELLO_ADDRESS)))

    def _expire_link_states(self, now: float) -> None:
        for node in self._nodes:
            if node.link_state is not None and now >= node.last_seen + self.timers.remote_ls_max_age:
                node.link_state = None
                node.announced_link_state = None
                self._actions.append(act.LinkStateExpired(node.id))
                self._topology.changed_here(now)

    def _compute_paths(self, now: float) -> None:
        if not self._topology.go_on():
            return
        self._attention = True
        self.last_topology_change = now
        self._advertising.topology_changed(now)
        for node in self._nodes:
            reachable = node.id in self._topology.paths.cost
            if reachable == node.reachable:
                continue
            node.reachable = reachable
            node.last_topology_change = now
            if reachable:
                node.flush_at = None
                node.link_state_request.encourage()
                node.mobile_request.encourage()
            else:
                node.confirmed = False
                node.flush_at = now + self.timers.unreachable_holdoff
        self._publish()

    def _publish(self) -> None:
        table = self._topology.table(self._neighbours.in_use, self._nodes)
        if table != self.table:
            self.table = table
            self._actions.append(act.RoutesChanged(table))

    def _flush_unreachable(self, now: float) -> None:
        for node in self._nodes:
            if node.flush_at is not None and now >= node.flush_at:
                self._flush(node)

    def _answer_all(self, now: float) -> None:
        for node in self._nodes:
            if node.reachable:
                self._answer(node, now)

    def _answer(self, node: RouterNode, now: float) -> None:
        """Answer what a router asked, possibly before there was a path to it."""
        if node.asks_link_state:
            node.asks_link_state = False
            update = LinkStateUpdate(self.router_id, self.instance, self._local)
            self._send(node.id, control_address(node.id), update)
        if node.asks_mobile is not None and node.asks_mobile < self._addresses.sequence:
            if now < self._answer_at:
                return
            snapshot = self._current_snapshot()
            if not snapshot.is_complete:
                return
            self._send(node.id, mobile_control_address(node.id), snapshot.message(self.router_id))
            # Requests may be forged, and an answer can be a million times as large as a request.
            seconds = snapshot.count / ADDRESSES_ANSWERED
            self._answer_at = max(self._answer_at, now - SECONDS_OF_ANSWERS) + seconds
        node.asks_mobile = None

    @property
    def _is_encoding(self) -> bool:
        """Whether the addresses are being encoded. Changes are announced after the answer, so that the router that has
        asked for them can apply the next update."""
        return self._snapshot is not None and not self._snapshot.is_complete

    def _current_snapshot(self) -> SnapshotMaker:
        if self._snapshot is None or self._snapshot.sequence != self._addresses.sequence:
            self._snapshot = self._addresses.snapshot()
            self._snapshot.go_on(STEP)
        return self._snapshot

    def _ask(self, node: RouterNode, now: float) -> None:
        """Ask a router for what is missing, unless it was asked just now."""
        if node.wants_link_state and now >= node.link_state_request.due:
            node.link_state_request.sent(now)
            self._send(node.id, control_address(node.id), LinkStateRequest(self.router_id))
        if node.wants_mobile and now >= node.mobile_request.due:
            node.mobile_request.sent(now)
            request = MobileAddressRequest(self.router_id, node.have_mobile)
            self._send(node.id, mobile_control_address(node.id), request)

    def _advertise(self, now: float) -> None:
        if now >= self._advertising.due(now):
            self._advertising.sent(now)
            advertisement = RouterAdvertisement(
                self.router_id, self.instance, self._local.sequence, self._addresses.sequence
            )
            self._multicast(ALL_ROUTERS_ADDRESS, advertisement)

    def _schedule_announcement(self, now: float) -> list[act.Action]:
        """The first change is announced at once, since senders elsewhere wait for it; a flood of them in batches."""
        if self._announce_at == _NEVER:
            interval = self.timers.mobile_update_interval_among(len(self._nodes))
            self._announce_at = max(now, self._last_announced + interval)
            self._deadline = min(self._deadline, self._announce_at)
        return self._finish(now)

    def _announce_addresses(self, now: float) -> None:
        update = self._addresses.announce(self.router_id)
        self._announce_at = now + PART_SECONDS if self._addresses.has_news else _NEVER
        if update is not None:
            self._last_announced = now
            self._advertising.news(now)
            self._multicast(ALL_ROUTERS_MOBILE_ADDRESS, update)

    def _multicast(self, address: str, message: ControlMessage) -> None:
        if self.table.routes:
            self._actions.append(act.SendMulticast(address, encode_control(message, address)))

    def _compute_deadline(self, now: float) -> float:
        times = [self._neighbours.deadline()]
        if not self._is_encoding:
            times.append(self._announce_at)
        if not self._topology.is_computing:
            times.append(self._topology.due)
        if self._neighbours.links:
            times.append(self._next_hello)
        times.append(self._updates.due(now))
        for node in self._nodes:
            if node.link_state is not None:
                times.append(node.last_seen + self.timers.remote_ls_max_age)
            if node.forget_at is not None:
                times.append(node.forget_at)
        if self._topology.settled:
            times.append(self._advertising.due(now))
            times.extend(at for node in self._nodes for at in node.deadlines())
            if not self._is_encoding and any(
                node.asks_mobile is not None and node.reachable for node in self._nodes
            ):
                times.append(self._answer_at)
        return min(times)


def _read(payload: bytes) -> ControlMessage | UpdateReader:
    """Decode a control message, and of a large update of addresses, or an invalid one, what comes before them."""
    if len(payload) > READ_AT_ONCE_BYTES:
        update = large_update(payload)
        if update is not None:
            return update
        check_size(payload)
    try:
        return decode_control(payload)
    except UnsupportedVersionError:
        raise
    except ControlMessageError:
        update = large_update(payload)
        if update is None:
            raise
        return update
