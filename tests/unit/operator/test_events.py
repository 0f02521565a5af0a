"""Which changes of `Ready` are news."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus_operator.events import DROPS_SECONDS, LASTING_SECONDS, Announcer, Note, post


def status(reason: str) -> dict[str, Any]:
    if not reason:
        return {}
    truth = "True" if reason == "Ready" else "False"
    return {"conditions": [{"type": "Ready", "status": truth, "reason": reason, "message": "why"}]}


def told(start: str, *steps: tuple[str, float]) -> list[tuple[str, str]]:
    """What is told of a resource first met as `start` that then has these reasons, each for so many
    seconds; it is looked at once per second."""
    announcer, now = Announcer(), 0.0
    announcer.meet("uid", status(start))
    out = []
    for reason, seconds in steps:
        for _ in range(int(seconds)):
            note = announcer.news("uid", status(reason), now)
            if note is not None:
                out.append((note.type, note.reason))
            now += 1.0
    return out


LONG = LASTING_SECONDS + 2
READY, LOST = ("Normal", "Ready"), ("Warning", "PeersMissing")


@pytest.mark.parametrize(
    ("start", "steps", "expected"),
    [
        ("", [("NoReplicaReady", LONG), ("Ready", 2)], [READY]),
        ("", [("SecretNotFound", 2), ("Ready", 2)], [("Warning", "SecretNotFound"), READY]),
        ("", [("Pending", 2), ("Ready", 2)], [READY]),
        ("", [("Pending", LONG), ("Ready", 2)], [("Warning", "Pending"), READY]),
        ("Ready", [("Ready", LONG)], []),
        ("Ready", [("ConfigPending", LONG), ("Ready", 2)], []),
        ("Ready", [("ConfigPending", 2), ("PeersMissing", 2), ("Ready", 2)], []),
        ("Ready", [("RolloutInProgress", LONG), ("PeersMissing", LONG), ("Ready", 1)], [LOST, READY]),
        ("Ready", [("PeersMissing", 2), ("Ready", LONG)], []),
        ("Ready", [("PeersMissing", LONG), ("Ready", 2)], [LOST, READY]),
        ("Ready", [("SecretInvalid", 1), ("Ready", 1)], [("Warning", "SecretInvalid"), READY]),
        ("PeersMissing", [("PeersMissing", LONG), ("Ready", 1)], [READY]),
        ("ApplyFailed", [("ApplyFailed", LONG)], []),
        ("Ready", [("Pending", 2)], []),
        (
            "",
            [("NoMembers", LONG), ("ViewChanging", 2), ("Divided", 2), ("SiteUnreachable", 2), ("Ready", 2)],
            [READY],
        ),
        ("", [("MembersMissing", LONG), ("SiteUnreachable", LONG)], [("Warning", "SiteUnreachable")]),
    ],
)
def test_transitions_that_last_are_told_once(
    start: str, steps: list[tuple[str, float]], expected: list[tuple[str, str]]
) -> None:
    assert told(start, *steps) == expected


def test_dropped_messages_are_told_when_they_begin_and_with_what_came_since() -> None:
    def dropped(number: int) -> dict[str, Any]:
        return {"remoteSites": [{"site": "sfo", "dropped": number}, {"site": "lon"}]}

    announcer = Announcer()
    announcer.meet("uid", dropped(3))
    assert announcer.drops("uid", dropped(3), 0.0) is None, "known before"
    first = announcer.drops("uid", dropped(5), 1.0)
    assert first is not None
    assert (first.type, first.reason) == ("Warning", "MessagesDropped")
    assert first.text == "2 more messages were dropped from the buffer; in all 5 for sfo"
    assert announcer.drops("uid", dropped(6), 2.0) is None, "not each one"
    assert announcer.due(2.0) == DROPS_SECONDS - 1
    assert announcer.drops("uid", dropped(9), 1.0 + DROPS_SECONDS - 0.1) is None
    later = announcer.drops("uid", dropped(9), 1.0 + DROPS_SECONDS)
    assert later is not None
    assert later.text.startswith("4 more")
    assert announcer.due(1.0 + DROPS_SECONDS) is None
    assert announcer.drops("uid", dropped(0), 300.0) is None, "the members have started anew"
    assert announcer.drops("uid", dropped(1), 301.0) is not None


def test_another_look_is_asked_for_when_something_may_have_lasted() -> None:
    announcer = Announcer()
    announcer.meet("uid", status("Ready"))
    assert announcer.due(0.0) is None
    assert announcer.news("uid", status("PeersMissing"), 5.0) is None
    assert announcer.due(6.0) == LASTING_SECONDS - 1
    assert announcer.news("uid", status("PeersMissing"), 5.0 + LASTING_SECONDS) is not None
    assert announcer.due(5.0 + LASTING_SECONDS) is None
    announcer.news("uid", status("Ready"), 30.0)
    announcer.news("uid", status("Pending"), 31.0)
    announcer.retain([])
    assert announcer.due(31.0) is None, "what is gone is forgotten"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "Router \x1b[2J\x9b\u202e\ud800 is gone\nfor now",
            "Router \ufffd[2J\ufffd\ufffd\ufffd is gone for now",
        ),
        ("東" * 1024, "東" * 341),
        ("x" * 2000, "x" * 1024),
    ],
)
async def test_the_note_of_an_event_is_one_that_the_api_server_accepts(text: str, note: str) -> None:
    posted: list[dict[str, Any]] = []

    class Api:
        async def create(self, manifest: dict[str, Any]) -> None:
            posted.append(manifest)

    api: Any = Api()
    metadata = {"name": "west", "namespace": "net", "uid": "1"}
    regarding = {"kind": "Router", "metadata": metadata}
    await post(api, regarding, Note("Warning", "Odd", text), "2030-01-01T00:00:00Z", "pod")
    (event,) = posted
    assert event["note"] == note
    assert len(event["note"].encode()) <= 1024
