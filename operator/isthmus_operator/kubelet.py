"""Making the kubelet deliver a changed configuration at once.

A kubelet refreshes Secret volumes about once a minute, but at once when the pod object changes. So the
digest of the Secret's content is written into an annotation of each pod. The kubelet may see that before
its own watch shows it the new Secret, so a pod is touched once more some seconds later, and then for as
long as its router reports another configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .names import ANNOTATION_SYNC
from .status import PodView, RouterFacts

RETRY_SECONDS = 4.0
MAX_ATTEMPTS = 8
"""After that the kubelet's own period is all that is left."""


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

    def touches(self, facts: RouterFacts) -> Iterable[tuple[PodView, Mapping[str, str]]]:
        """Pods to annotate, with the annotation."""
        if facts.rendered is None:
            return
        content = facts.rendered.content_digest
        for pod in facts.serving:
            if not pod.running:
                continue
            attempt = self._attempts.get(pod.uid)
            if attempt is None:
                self._attempts[pod.uid] = _Attempt(content, self._clock(), changed=False)
                continue
            if attempt.content != content:
                attempt = self._attempts[pod.uid] = _Attempt(content, self._clock(), changed=True)
            elif self._wants_more(facts, pod, attempt) and self._clock() - attempt.at >= RETRY_SECONDS:
                attempt.number += 1
                attempt.at = self._clock()
            else:
                continue
            yield pod, {ANNOTATION_SYNC: f"{content}-{attempt.number}"}

    def waiting(self, facts: RouterFacts) -> bool:
        """Whether some pod may have to be touched again."""
        return facts.rendered is not None and any(
            pod.uid in self._attempts and self._wants_more(facts, pod, self._attempts[pod.uid])
            for pod in facts.serving
            if pod.running
        )

    def forget(self, pods: Iterable[PodView]) -> None:
        """Drops what is known about pods other than these."""
        alive = {pod.uid for pod in pods}
        self._attempts = {uid: item for uid, item in self._attempts.items() if uid in alive}

    def _wants_more(self, facts: RouterFacts, pod: PodView, attempt: _Attempt) -> bool:
        if attempt.changed and attempt.number == 0:
            return True
        return attempt.number < MAX_ATTEMPTS and self._behind(facts, pod)

    def _behind(self, facts: RouterFacts, pod: PodView) -> bool:
        report = facts.report(pod)
        assert facts.rendered is not None
        return report is not None and report.config_hash != facts.rendered.expected_hash(report.id)
