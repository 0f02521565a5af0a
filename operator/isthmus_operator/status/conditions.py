"""Conditions: verdicts with a reason and a message, and what becomes of the time of transition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

Truth = Literal["True", "False", "Unknown"]

MAX_MESSAGE = 1024
INSECURE = "Insecure"
"""Name of the condition of what accepts or carries messages in clear text, or from peers that do not authenticate."""


@dataclass(frozen=True)
class Verdict:
    """Whether something holds, why in a word for machines, and why in a sentence for people."""

    status: Truth
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


def yes(reason: str, message: str = "") -> Verdict:
    return Verdict("True", reason, message)


def no(reason: str, messages: str | Iterable[str]) -> Verdict:
    return Verdict("False", reason, joined(messages))


def unknown(reason: str, message: str) -> Verdict:
    return Verdict("Unknown", reason, message)


def joined(messages: str | Iterable[str]) -> str:
    """Several messages in one sentence, with a limit."""
    text = messages if isinstance(messages, str) else "; ".join(messages)
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def ready(parts: Sequence[Verdict]) -> Verdict:
    """`Ready` is the conjunction of `parts`; the first one that does not hold says why."""
    failed = [part for part in parts if not part.holds]
    if not failed:
        return yes("Ready")
    first = failed[0]
    status: Truth = "False" if any(part.status == "False" for part in failed) else "Unknown"
    return Verdict(status, first.reason, first.message)


def conditions(
    verdicts: Mapping[str, Verdict],
    previous: Mapping[str, Any] | None,
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """The list for `status.conditions`. The time of transition is kept while the status stays the same."""
    before = {item.get("type"): item for item in (previous or {}).get("conditions") or ()}
    out = []
    for kind, verdict in verdicts.items():
        old = before.get(kind, {})
        kept = old.get("lastTransitionTime") if old.get("status") == verdict.status else None
        out.append(
            {
                "type": kind,
                "status": verdict.status,
                "reason": verdict.reason,
                "message": verdict.message,
                "lastTransitionTime": kept or now,
                "observedGeneration": generation,
            }
        )
    return out


def condition_status(status: Mapping[str, Any] | None, kind: str) -> str:
    """The status of the condition of type `kind`, "Unknown" without one."""
    return next(
        (str(item["status"]) for item in (status or {}).get("conditions") or () if item["type"] == kind),
        "Unknown",
    )


def readiness(status: Mapping[str, Any]) -> str:
    """The status of the condition `Ready`."""
    return condition_status(status, "Ready")


def invalid_status(
    manifest: Mapping[str, Any], message: str, previous: Mapping[str, Any] | None, now: str
) -> dict[str, Any]:
    """Status of a resource that this operator cannot read; what runs for it is left as it is."""
    generation = manifest["metadata"].get("generation", 0)
    verdict = no("InvalidSpec", message)
    verdicts = {"Configured": verdict, "Ready": verdict}
    for item in (previous or {}).get("conditions") or ():
        if item["type"] == INSECURE:
            verdicts[INSECURE] = Verdict(item["status"], item["reason"], item["message"])
    return {
        **(previous or {}),
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
    }


def deleting_status(
    manifest: Mapping[str, Any], previous: Mapping[str, Any] | None, now: str
) -> dict[str, Any]:
    """Status of a resource that a finalizer holds after its deletion: its objects are not maintained any more."""
    generation = manifest["metadata"].get("generation", 0)
    finalizers = ", ".join(map(str, manifest["metadata"].get("finalizers") or ()))
    verdict = unknown(
        "Deleting",
        joined(
            f"it is deleted, and the operator does not maintain its objects; finalizers hold it: {finalizers}"
        ),
    )
    return {
        "observedGeneration": generation,
        "conditions": conditions({"Configured": verdict, "Ready": verdict}, previous, generation, now),
    }


def normal(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status for comparison: lists of named objects in the order of their names."""
    return {
        name: sorted(value, key=itemgetter(_LIST_KEYS[name])) if name in _LIST_KEYS else value
        for name, value in status.items()
    }


def altered(wanted: Any, found: Any) -> Any:
    """The values of `found` that differ from those of `wanted`, with their places. None: there are none, or there is
    nothing in the place of `wanted`."""
    if wanted == found:
        return None
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return {
            key: altered(wanted.get(key), found.get(key))
            for key in sorted({*wanted, *found})
            if wanted.get(key) != found.get(key)
        }
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [altered(*pair) for pair in zip(wanted, found, strict=True)]
    return found


def without(field: str, value: Any) -> Any:
    """A status, or a part of one, without this field of any of its parts."""
    if isinstance(value, Mapping):
        return {key: without(field, item) for key, item in value.items() if key != field}
    return [without(field, item) for item in value] if isinstance(value, list) else value


_LIST_KEYS = {"conditions": "type", "instances": "id", "users": "pod", "ordinals": "ordinal"}
