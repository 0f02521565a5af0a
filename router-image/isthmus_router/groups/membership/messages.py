"""Bodies of membership's frames.

```
JOIN        [member]                                   LEAVE       []
PROPOSE     [view, [view id known to the leader ...]]
AGREE       [proposal, agreed?, installed | null, highest number seen, [step ...], state]
INSTALL     [[step ...], baseline | null]
HEARTBEAT, ARE_YOU_ALIVE, ALIVE  [installed]
SUSPECT     [[id ...]]
MERGE, MERGE_AGREE  [[step ...]]                       NOT_A_MEMBER  [installed | null, [id ...]]

member   [id, name, [[host, port, tunnelled] ...]]     view id   [number, coordinator]
view     [view id, [member ...], [view id ...]]        step      [[view id ...], view]
```
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from isthmus_router.groups.frames import (
    MOST_NUMBER,
    MOST_VALUES,
    MOST_VIEW_VALUES,
    FrameError,
    decode_body,
    encode_body,
)
from isthmus_router.groups.identity import (
    ID_BYTES,
    LONGEST_NAME_BYTES,
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    MemberId,
    MemberInfo,
    PhysicalAddress,
)
from isthmus_router.groups.membership.history import LENGTH, MOST_STEPS, Step
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId

_T = TypeVar("_T")

MOST_STEP_VALUES = MOST_VIEW_VALUES - MOST_VALUES
"""Of all steps in a frame; there is room for its other fields."""
MOST_MEMBERS_VALUES = MOST_VIEW_VALUES - 4_096
"""Of all members of a view; there is room in a frame for the identities of more views than a leader knows."""

MOST_STATE_BYTES = 300_000
"""Of an answer to a proposal: positions of all streams that a member remembers."""


class Propose(NamedTuple):
    """The view that is to be next; members' present views should be among `known`."""

    view: View
    known: tuple[ViewId, ...]


class Agree(NamedTuple):
    """The answer to it."""

    proposal: ViewId
    agreed: bool
    """False: the member follows a higher proposal, or one that does not come from its view."""
    installed: ViewId | None
    """Its present view; None: it joins."""
    highest: int
    """The highest number of a view that it has seen."""
    steps: tuple[Step, ...]
    """How it came to its view, as far as the leader does not know."""
    state: bytes


class Install(NamedTuple):
    """How to come to a view: the last step leads to it."""

    steps: tuple[Step, ...]
    baseline: bytes | None


class NotAMember(NamedTuple):
    """To somebody who is not in the sender's view: which that is."""

    view: ViewId | None
    members: tuple[MemberId, ...]


def encode_member(info: MemberInfo) -> list[object]:
    return [info.id, info.name, [list(address) for address in info.addresses]]


def encode_view(view: View) -> list[object]:
    return [
        list(view.id),
        [encode_member(info) for info in view.members],
        [list(part) for part in view.merged],
    ]


def encode_steps(steps: Iterable[Step]) -> list[object]:
    """The last of these steps, as many as fit into a frame, and at least one.

    In sites of hundreds of members, these are fewer than a member remembers. A member that needs an earlier step leaves
    its view, and merges with the others.
    """
    encoded: deque[object] = deque()
    room = MOST_STEP_VALUES
    for step in reversed(tuple(steps)):
        room -= count_values(step)
        if encoded and room < 0:
            break
        encoded.appendleft([[list(base) for base in step.bases], encode_view(step.view)])
    return list(encoded)


def count_values(step: Step) -> int:
    """How many values a step has in a frame, the lists included."""
    ids = len(step.bases) + len(step.view.merged)
    return 8 + 3 * ids + sum(map(count_member_values, step.view.members))


def count_member_values(info: MemberInfo) -> int:
    """How many values a member has in a frame."""
    return 4 + 4 * len(info.addresses)


def encode_propose(message: Propose) -> bytes:
    return encode_body(encode_view(message.view), [list(known) for known in message.known])


def encode_agree(message: Agree) -> bytes:
    return encode_body(
        list(message.proposal),
        message.agreed,
        _encode_id(message.installed),
        message.highest,
        encode_steps(message.steps),
        message.state,
    )


def encode_install(message: Install) -> bytes:
    return encode_body(encode_steps(message.steps), message.baseline)


def encode_view_id(view: ViewId | None) -> bytes:
    return encode_body(_encode_id(view))


def encode_not_a_member(message: NotAMember) -> bytes:
    return encode_body(_encode_id(message.view), list(message.members))


def decode_join(frame: bytes) -> MemberInfo:
    return _member(decode_body(frame, fields=1)[0])


def decode_propose(frame: bytes) -> Propose:
    view, known, *_ = decode_body(frame, fields=2)
    return Propose(_view(view), _each(known, _view_id))


def decode_agree(frame: bytes) -> Agree:
    proposal, agreed, installed, highest, steps, state, *_ = decode_body(frame, fields=6)
    if len(_typed(state, bytes)) > MOST_STATE_BYTES:
        raise FrameError(f"AGREE with a state of {len(_typed(state, bytes))} bytes")
    return Agree(
        _view_id(proposal),
        agreed is True,
        None if installed is None else _view_id(installed),
        _number(highest),
        _steps(steps, LENGTH),
        _typed(state, bytes),
    )


def decode_install(frame: bytes) -> Install:
    steps, baseline, *_ = decode_body(frame, fields=2)
    message = Install(_steps(steps, MOST_STEPS), None if baseline is None else _typed(baseline, bytes))
    if not message.steps:
        raise FrameError("INSTALL of nothing")
    return message


def decode_steps(frame: bytes) -> tuple[Step, ...]:
    """Of MERGE and MERGE_AGREE: at least one, the last leads to the sender's view."""
    steps = _steps(decode_body(frame, fields=1)[0], LENGTH)
    if not steps:
        raise FrameError("merge of no view")
    return steps


def decode_view_id(frame: bytes) -> ViewId | None:
    """Of HEARTBEAT, ARE_YOU_ALIVE and ALIVE."""
    view = decode_body(frame, fields=1)[0]
    return None if view is None else _view_id(view)


def decode_suspect(frame: bytes) -> tuple[MemberId, ...]:
    return _each(decode_body(frame, fields=1)[0], _id)


def decode_not_a_member(frame: bytes) -> NotAMember:
    view, members, *_ = decode_body(frame, fields=2)
    return NotAMember(None if view is None else _view_id(view), _each(members, _id))


def _encode_id(view: ViewId | None) -> list[object] | None:
    return None if view is None else list(view)


def _typed(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise FrameError(f"{type(value).__name__} where {kind.__name__} is due")
    return value


def _each(value: object, decode: Callable[[object], _T]) -> tuple[_T, ...]:
    return tuple([decode(item) for item in _typed(value, list)])


def _fields(value: object, number: int) -> list[object]:
    fields: list[object] = _typed(value, list)
    if len(fields) < number:
        raise FrameError(f"{len(fields)} fields where {number} are due")
    return fields


def _number(value: object) -> int:
    number = _typed(value, int)
    if not 0 <= number < MOST_NUMBER:
        raise FrameError(f"{number} as number of a view")
    return number


def _id(value: object) -> MemberId:
    octets = _typed(value, bytes)
    if len(octets) != ID_BYTES or octets == NOBODY:
        raise FrameError(f"identity of {len(octets)} bytes")
    return MemberId(octets)


def _view_id(value: object) -> ViewId:
    number, coordinator, *_ = _fields(value, 2)
    return ViewId(_number(number), _id(coordinator))


def _address(value: object) -> PhysicalAddress:
    host, port, tunnelled, *_ = _fields(value, 3)
    if len(_typed(host, str).encode()) > LONGEST_NAME_BYTES:
        raise FrameError("host is too long")
    if not 0 <= _typed(port, int) <= 65_535:
        raise FrameError(f"port {port}")
    return PhysicalAddress(_typed(host, str), _typed(port, int), tunnelled is True)


def _member(value: object) -> MemberInfo:
    member, name, addresses, *_ = _fields(value, 3)
    text = _typed(name, str)
    if len(text.encode()) > LONGEST_NAME_BYTES:
        raise FrameError("logical name is too long")
    return MemberInfo(_id(member), text, _each(addresses, _address)[:MOST_PHYSICAL_ADDRESSES])


def _view(value: object) -> View:
    view_id, members, merged, *_ = _fields(value, 3)
    if len(_typed(members, list)) > MOST_MEMBERS:
        raise FrameError(f"view of more than {MOST_MEMBERS} members")
    view = View(_view_id(view_id), _each(members, _member), _each(merged, _view_id))
    if not view.members or len(set(view.ids)) != len(view.ids) or view.id.coordinator != view.ids[0]:
        raise FrameError(f"view {view.id} with its coordinator not first, or somebody twice")
    return view


def _steps(value: object, most: int) -> tuple[Step, ...]:
    if len(_typed(value, list)) > most:
        raise FrameError(f"more than {most} steps")
    return _each(value, _step)


def _step(value: object) -> Step:
    bases, view, *_ = _fields(value, 2)
    return Step(_each(bases, _view_id), _view(view))
