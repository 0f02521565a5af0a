"""The two halves of a routed link in one router: which of them is to be detached, when, and with what.

Each half is a link of its own with its own peer. A detach travels: what the peer of one half says is said to the peer
of the other, with its condition and whether the link is closed, and answered with that one's answer. A half that is
lost (its connection or session ended) is lost to the other's peer, too; but a detach of that one's is just answered.

Sans-IO and pure: events in, actions out. Source: AMQP 1.0 part 2, 2.6.5 and 2.6.6; link routing of qpid-dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from isthmus_router.core.terms import Condition

LINK_LOST = Condition("qd:routed-link-lost", "Connectivity to the peer container was lost")


class Half(StrEnum):
    """A half of a routed link in one router."""

    NEAR = "near"
    """The peer attached it."""
    FAR = "far"
    """This router attached it, towards the container."""

    @property
    def other(self) -> Half:
        """The other one."""
        return Half.FAR if self is Half.NEAR else Half.NEAR


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the attach of the near half as the far half was answered."""


@dataclass(frozen=True, slots=True)
class Detach:
    """Detach a half: with a condition or without, for good (`closed`) or not."""

    half: Half
    condition: Condition | None
    closed: bool


@dataclass(frozen=True, slots=True)
class End:
    """Both ends of a half have detached: nothing is left of it."""

    half: Half


Action: TypeAlias = Answer | Detach | End


@dataclass(slots=True)
class _State:
    told: bool = False
    """This router has detached it."""
    heard: bool = False
    """Its peer has."""
    closed: bool = False
    """Its peer has closed it with that."""
    gone: bool = False
    """Both have, or it is lost."""


class Chain:
    """From the moment both halves are attached by their initiators to the end of both."""

    __slots__ = ("_answered", "_outlives", "_states")

    def __init__(self, *, outlives: bool = False) -> None:
        """`outlives`: a terminus is to stay after its link, so that what is lost is not closed for good."""
        self._outlives = outlives
        self._answered = False
        self._states = {Half.NEAR: _State(), Half.FAR: _State()}

    @property
    def attached(self) -> bool:
        """Whether it has been answered, and nobody has detached yet."""
        return self._answered and not any(
            state.told or state.heard or state.gone for state in self._states.values()
        )

    @property
    def ended(self) -> bool:
        """Whether nothing is left of either half."""
        return all(state.gone for state in self._states.values())

    def on_answered(self) -> list[Action]:
        """The peer of the far half has attached its end."""
        near = self._states[Half.NEAR]
        if self._answered or near.told or near.gone:
            return []
        self._answered = True
        return [Answer()]

    def on_detached(self, half: Half, condition: Condition | None, *, closed: bool) -> list[Action]:
        """The peer of a half has detached it."""
        state, other = self._states[half], self._states[half.other]
        if state.gone or state.heard:
            return []
        state.heard, state.closed = True, closed
        actions: list[Action] = []
        if not other.told and not other.gone:
            actions += self._tell(half.other, condition, closed=closed)
        if not state.told and (other.heard or other.gone):
            actions += self._tell(half, None, closed=closed)
        return actions + self._ended(half)

    def on_lost(self, half: Half) -> list[Action]:
        """A half is gone with its connection or session, or was taken from the router's hands."""
        state, other = self._states[half], self._states[half.other]
        if state.gone:
            return []
        state.gone = True
        if other.gone or other.told:
            return []
        if other.heard:
            return self._tell(half.other, None, closed=other.closed)
        return self._tell(half.other, LINK_LOST, closed=not self._outlives)

    def _tell(self, half: Half, condition: Condition | None, *, closed: bool) -> list[Action]:
        state = self._states[half]
        state.told = True
        return [Detach(half, condition, closed), *self._ended(half)]

    def _ended(self, half: Half) -> list[Action]:
        state = self._states[half]
        if state.gone or not (state.told and state.heard):
            return []
        state.gone = True
        return [End(half)]
