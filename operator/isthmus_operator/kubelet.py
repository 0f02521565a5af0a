"""Making the kubelet deliver a changed configuration at once.

A kubelet refreshes Secret volumes about once a minute, but at once when the pod object changes. So the
digest of the Secret's content, or of the certificates in it, is written into an annotation of each pod. The
kubelet may see that before its own watch shows it the new Secret, so a pod is touched once more some seconds
later, and then for as long as its process reports another configuration or other certificates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .names import ANNOTATION_SYNC
from .status import PodView

RETRY_SECONDS = 4.0
MAX_ATTEMPTS = 8
"""After that the kubelet's own period is all that is left."""


class Receiver(Protocol):
    """What has pods to which a Secret is delivered."""

    @property
    def delivered(self) -> str | None:
        """The digest of what is delivered; None: nothing."""

    @property
    def serving(self) -> Sequence[PodView]:
        """Pods that are not on their way out."""

    def lags(self, pod: PodView) -> bool:
        """Whether `pod` has reported that it has something else."""


@dataclass
class _Attempt:
    content: str
    at: float
    changed: bool
    """The content changed during the pod's life; otherwise it has been mounted at its start."""
    number: int = 0


class ConfigSync:
    """Decides which pods to touch. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[str, _Attempt] = {}

    def touches(self, receiver: Receiver) -> Iterable[tuple[PodView, Mapping[str, str]]]:
        """Pods to annotate, with the annotation."""
        content = receiver.delivered
        if content is None:
            return
        for pod in receiver.serving:
            if not pod.running:
                continue
            attempt = self._attempts.get(pod.uid)
            if attempt is None:
                self._attempts[pod.uid] = _Attempt(content, self._clock(), changed=False)
                continue
            if attempt.content != content:
                attempt = self._attempts[pod.uid] = _Attempt(content, self._clock(), changed=True)
            elif self._wants_more(receiver, pod, attempt) and self._clock() - attempt.at >= RETRY_SECONDS:
                attempt.number += 1
                attempt.at = self._clock()
            else:
                continue
            yield pod, {ANNOTATION_SYNC: f"{content}-{attempt.number}"}

    def waiting(self, receiver: Receiver) -> bool:
        """Whether some pod may have to be touched again."""
        return receiver.delivered is not None and any(
            pod.uid in self._attempts and self._wants_more(receiver, pod, self._attempts[pod.uid])
            for pod in receiver.serving
            if pod.running
        )

    def forget(self, pods: Iterable[PodView]) -> None:
        """Drops what is known about pods other than these."""
        alive = {pod.uid for pod in pods}
        self._attempts = {uid: item for uid, item in self._attempts.items() if uid in alive}

    def _wants_more(self, receiver: Receiver, pod: PodView, attempt: _Attempt) -> bool:
        if attempt.changed and attempt.number == 0:
            return True
        return attempt.number < MAX_ATTEMPTS and receiver.lags(pod)
