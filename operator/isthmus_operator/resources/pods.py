"""What resources state of their pods: images, compute resources, changes to the template."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from .base import Model

IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"

ImageName = Annotated[str, Field(min_length=1, max_length=512, pattern=IMAGE)]

QUANTITY = r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"

Quantity = Annotated[
    int | Annotated[str, Field(max_length=32, pattern=QUANTITY)],
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
        }
    ),
]

ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16)]


class ResourceRequirements(Model):
    """Compute resources of the router container."""

    requests: ResourceMap | None = None
    """What is reserved, for example `cpu: 100m`."""

    limits: ResourceMap | None = None
    """What is not exceeded, for example `memory: 256Mi`."""


class PodTemplateMetadata(Model):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None = None
    """Additional labels; those of the operator win. Keys other than `app.kubernetes.io/version` need
    `restrictions.allowedMetadata` of the chart."""

    annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] | None
    ) = None
    """Additional annotations. Keys with a domain other than `prometheus.io` need `restrictions.allowedMetadata` of the
    chart."""


MAX_POD_LEVELS = 24
"""Of objects and lists in each other in `podTemplate.spec`; those of Kubernetes have less than half."""


MAX_POD_VALUES = 5000
"""In `podTemplate.spec`; those of a pod with ten sidecars are a few hundred."""


def values(value: Any, most: int) -> int:
    """The number of values in `value`, or more than `most` if there are more."""
    count, open_values = 0, [value]
    while open_values and count <= most:
        item = open_values.pop()
        if isinstance(item, dict | list):
            count += len(item)
            if count <= most:
                open_values += item.values() if isinstance(item, dict) else item
    return count


def _checked_size(spec: dict[str, Any]) -> dict[str, Any]:
    if values(spec, MAX_POD_VALUES) > MAX_POD_VALUES:
        raise ValueError(f"more than {MAX_POD_VALUES} values")
    return spec


def _checked_depth(spec: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [spec]
    for _ in range(MAX_POD_LEVELS):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return spec
    raise ValueError(f"more than {MAX_POD_LEVELS} objects and lists in each other")


class PodTemplate(Model):
    """Changes to the generated pod template."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods."""

    spec: (
        Annotated[
            dict[str, Any],
            AfterValidator(_checked_size),
            AfterValidator(_checked_depth),
            WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ]
        | None
    ) = None
    """Any fields of a pod's specification; lists of named objects are merged by name, others replaced. Secrets of
    `imagePullSecrets` need the label `isthmus.dev/use: "true"`."""
