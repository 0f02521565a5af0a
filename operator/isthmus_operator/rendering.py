"""One rendering of a namespace, which is good for many looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from .apply import owned
from .certificates import examine
from .cluster import Manifest
from .model import NamespaceModel
from .render import KubernetesResolver, Rendered, RenderSettings, collector_tls, gossip_tls, render
from .rotation.ledger import TLS_KEYS
from .seniority import Owner
from .status import Users


@dataclass(frozen=True)
class Rendering:
    """What was rendered, kept for as long as `version` of its inputs is the same."""

    version: frozenset[tuple[str, ...]]
    at: float
    """When, as the operator's clock has it."""
    model: NamespaceModel
    """With the ledgers of SslProfiles."""
    rendered: Rendered
    desired: Mapping[tuple[str, str], tuple[Owner, list[Manifest]]]
    """Kind and name of a resource to it and its objects, complete with owner and hash."""
    users: Users
    """Of SslProfiles."""
    until: datetime | None = None
    """When the next certificate expires of which the rendering tells."""

    @classmethod
    def of(
        cls,
        version: frozenset[tuple[str, ...]],
        at: float,
        model: NamespaceModel,
        settings: RenderSettings,
        most: int | None = None,
    ) -> Rendering:
        """Render `model`. Raise LargeError if that takes more than `most` bytes of memory, if stated.

        This takes seconds for thousands of resources, so call it in a thread of its own: otherwise the operator does
        not renew its lease in time."""
        rendered = render(model, settings, most)
        desired = {
            (owner.kind_name, owner.name): (owner, [owned(manifest, owner) for manifest in objects])
            for owner, objects in rendered.owners()
        }
        resolver = KubernetesResolver(model.namespace)
        users = Users(
            model, rendered.plan.instances, lambda instance, target: resolver.dial(instance, target)[0]
        )
        for item in rendered.routers.values():
            _ = item.content_digest  # computed here, and not when it is first needed
        for ledger in model.ledgers.values():
            _ = ledger.revocations_expiry
        return cls(version, at, model, rendered, desired, users, _next_expiry(model, rendered))

    @cached_property
    def invalid(self) -> Mapping[tuple[str, str], str]:
        """Kind and name of a resource that the schema refuses, and why."""
        return {(item.kind, item.name): item.message for item in self.model.invalid}


def _next_expiry(model: NamespaceModel, rendered: Rendered) -> datetime | None:
    """When the next certificate of `model` that is in use expires."""
    named = {
        tls.secret_name
        for tls in (
            *(gossip_tls(item, model) for item in model.gossip_routers.values()),
            *(collector_tls(item) for item in model.flow_logs.values()),
        )
        if tls is not None and tls.secret_name is not None
    }
    used = [item.material for item in model.ledgers.values()]
    used += [model.secrets[name].data for name in sorted(named) if name in model.secrets]
    ends = [end for data in used for end in examine(*(data.get(key) for key in TLS_KEYS)).ends]
    ends += rendered.plan.expiries.values()
    return min((end for end in ends if model.now is None or end >= model.now), default=None)
