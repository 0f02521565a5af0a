"""Patterns of addresses as one automaton: whether they match an address, and all that another pattern matches.

Both follow all patterns at the same time, one token after the other, and beginnings that patterns have in common once.
The work for an address is the number of its tokens, times the states that the automaton can be in at a time.

A pattern of a link route is compared by the same steps. For its wildcards stands a token that is in no pattern, so that
only wildcards match it: whatever matches this matches every token. The automaton can be in different sets of states
behind a `#`, as that stands for any number of tokens. Sets that include another one are left out, as they match more.
The number of sets is small for usual patterns, but not for all, so the steps have a bound.

Tokens contain no separators, which is why texts with separators stand for wildcards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isthmus_router.core.patterns import MANY, ONE, TooManyPatternsError

EITHER = ""
"""Separator before a token: any, or none."""
_BOTH: tuple[str, ...] = (EITHER, ".", "/")
_ALIKE: tuple[str, ...] = (EITHER,)
_SEPARATORS: dict[str, tuple[str, ...]] = {".": (EITHER, "."), "/": (EITHER, "/")}
_ANY_TOKEN = "//*"
_UNKNOWN = "//"
"""A token that is in no pattern."""

MOST_STEPS = 2000
"""Of a comparison of two patterns, about 2 ms."""
_BEGINNINGS_PER_STEP = 4
"""Lengths of beginnings of tokens, compared in the time of a step."""
_SETS_PER_STEP = 4
"""Sets of states, compared in the time of a step."""


@dataclass(frozen=True, slots=True)
class Element:
    """One token of a pattern."""

    kind: str
    """`*`, `#`, or empty for a literal."""
    text: str
    separator: str
    """What must stand before it unless it is the first token of the address. `EITHER`: any."""


class State:
    """Where a match of one or more patterns has come to."""

    __slots__ = ("_reach", "beginnings", "children", "entry", "loops", "skips")

    def __init__(self, *, loops: bool = False) -> None:
        self.children: dict[str, State] = {}
        """By the separator before a token, and the token."""
        self.skips: dict[str, State] = {}
        """Reached without a token: behind a `#`, by its separator, and the end of a pattern."""
        self.entry: tuple[str, State] | None = None
        """The first token of a `#` with this separator before it leads there."""
        self.beginnings: dict[str, dict[int, set[str]]] = {}
        """By separator and length: a token that begins so leads to `EVERYTHING`."""
        self.loops = loops
        """Every token leads back here."""
        self._reach: frozenset[State] | None = None

    @property
    def reach(self) -> frozenset[State]:
        """This state, and those that are reached from it without a token. All patterns must have been added."""
        if self._reach is None:
            found = {self}.union(*(state.reach for state in self.skips.values()))
            if self.loops and END in found:
                found.add(EVERYTHING)
            self._reach = frozenset(found)
        return self._reach


END = State()
"""An address that ends here matches."""
EVERYTHING = State()
"""An address matches, whatever follows."""
_BEGIN = State()
"""No token has been read."""
_UNSEEN = frozenset({_BEGIN})
"""No move from these states with this token has been made."""
_END_KEY = "end"


class Automaton:
    """A set of patterns."""

    def __init__(self) -> None:
        self.root = State()
        self.separators_matter = False
        """Some patterns match with one separator and not with the other one."""

    def add(self, elements: Iterable[Element]) -> None:
        """Match addresses against a pattern."""
        self._behind(elements).skips[_END_KEY] = END

    def add_beginning(self, elements: Sequence[Element]) -> None:
        """Match addresses whose tokens are these literals, the last of which may go on in any way."""
        *first, last = elements
        state = self._behind(first)
        self.separators_matter |= last.separator != EITHER
        lengths = state.beginnings.setdefault(last.separator, {})
        lengths.setdefault(len(last.text), set()).add(last.text)

    def _behind(self, elements: Iterable[Element]) -> State:
        state = self.root
        for element in elements:
            separator = element.separator
            self.separators_matter |= separator != EITHER
            if element.kind != MANY:
                token = _ANY_TOKEN if element.kind == ONE else element.text
                state = state.children.setdefault(separator + token, State())
            elif state.loops and separator == EITHER:
                pass  # behind another `#`: both are like one
            elif separator in state.skips:
                state = state.skips[separator]
            else:
                before = state
                state = before.skips[separator] = State(loops=separator == EITHER)
                if separator != EITHER:
                    inside = State(loops=True)
                    inside.children, inside.skips = state.children, state.skips
                    state.entry = (separator, inside)
        return state


class Automata:
    """Several automata: an address matches if it matches one of them."""

    def __init__(self, parts: Sequence[Automaton]) -> None:
        self._start = frozenset[State]().union(*(part.root.reach for part in parts))
        self._separators_matter = any(part.separators_matter for part in parts)

    @property
    def match_everything(self) -> bool:
        """Whether every address matches."""
        return EVERYTHING in self._start

    def match(self, tokens: Iterable[tuple[str, str]]) -> bool:
        """Whether an address matches, given as its tokens, each with the separator before it."""
        states = self._start
        before = _BOTH
        known: dict[tuple[frozenset[State], tuple[str, ...], str], frozenset[State]] = {}
        for separator, token in tokens:
            if before is not _BOTH and self._separators_matter:
                before = _SEPARATORS[separator]
            move = (states, before, token)
            states = known.get(move, _UNSEEN)
            if states is _UNSEEN:
                states = known[move] = _after(*move)
            if not states:
                return False
            if EVERYTHING in states:
                return True
            before = _ALIKE
        return END in states

    def match_all_of(self, pattern: Sequence[str]) -> bool:
        """Whether every address matches that matches `pattern`, in normal form, with each separator.

        Addresses with empty tokens count as those without. Raises TooManyPatternsError after `MOST_STEPS`.
        """
        sets = _Sets(self._separators_matter)
        sets.add(self._start | {_BEGIN})
        for token in pattern:
            if token == MANY:
                sets.repeat()
            else:
                sets.follow(_UNKNOWN if token == ONE else token)
            if sets.failed:
                return False
        return bool(pattern) and all(END in states or _BEGIN in states for states in sets.least)


def _after(states: Iterable[State], separators: Sequence[str], token: str) -> frozenset[State]:
    """The states behind a token with one of these separators before it."""
    after: set[State] = set()
    for state in states:
        if state.loops:
            after |= state.reach
        children = state.children
        if children:
            for separator in separators:
                child = children.get(separator + token)
                if child is not None:
                    after |= child.reach
                if token:
                    child = children.get(separator + _ANY_TOKEN)
                    if child is not None:
                        after |= child.reach
        if state.entry is not None and state.entry[0] in separators:
            after |= state.entry[1].reach
        if state.beginnings and any(
            token[:length] in texts
            for separator in separators
            for length, texts in state.beginnings.get(separator, {}).items()
        ):
            after.add(EVERYTHING)
    return frozenset(after)


class _Sets:
    """The sets of states in which an automaton may be behind the same tokens of a pattern."""

    def __init__(self, separators_matter: bool) -> None:
        self._separators = tuple(_SEPARATORS.values()) if separators_matter else (_ALIKE,)
        self._left = MOST_STEPS
        self.least: list[frozenset[State]] = []
        """None includes another. Those that match everything are left out."""
        self.failed = False
        """One of the sets is empty: some address does not match, whatever follows."""

    def add(self, states: frozenset[State]) -> bool:
        """Whether it is kept."""
        if EVERYTHING in states:
            return False
        self._count(len(self.least) // _SETS_PER_STEP)
        if any(known <= states for known in self.least):
            return False
        self.least = [known for known in self.least if not states <= known]
        self.least.append(states)
        self.failed |= not states
        return True

    def follow(self, token: str) -> None:
        """The pattern goes on with a token."""
        before, self.least = self.least, []
        for states in before:
            for after in self._next(states, token):
                self.add(after)

    def repeat(self) -> None:
        """The pattern goes on with any number of tokens."""
        left = self.least[:]
        while left and not self.failed:
            left += [after for after in self._next(left.pop(), _UNKNOWN) if self.add(after)]

    def _next(self, states: frozenset[State], token: str) -> list[frozenset[State]]:
        first = _BEGIN in states
        found = []
        for separators in (_BOTH,) if first else self._separators:
            beginnings = sum(len(lengths) for state in states for lengths in state.beginnings.values())
            self._count(1 + len(states) + beginnings // _BEGINNINGS_PER_STEP)
            found.append(_after(states, separators, token))
        return found

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManyPatternsError
