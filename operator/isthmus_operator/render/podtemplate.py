"""Laying a user's pod template over the generated one."""

from __future__ import annotations

from typing import Any

from ..resources.pods import PodTemplate

_LIST_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
"""Lists of named objects are merged by this key; any other list is replaced."""


def overlaid(template: dict[str, Any], overlay: PodTemplate | None) -> dict[str, Any]:
    """`template` with `overlay` merged over it; neither is changed."""
    if overlay is None:
        return template
    return _merged(template, overlay.model_dump(by_alias=True, exclude_none=True))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for name, value in over.items():
        present = out.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            out[name] = _merged(present, value)
        elif isinstance(present, list) and isinstance(value, list) and name in _LIST_KEYS:
            out[name] = _merged_lists(present, value, _LIST_KEYS[name])
        else:
            out[name] = value
    return out


def _merged_lists(base: list[Any], over: list[Any], key: str) -> list[Any]:
    if not all(isinstance(item, dict) and key in item for item in over):
        return over
    changes = {item[key]: item for item in over}
    merged = [_merged(item, changes.pop(item[key], {})) for item in base]
    return merged + [item for item in over if item[key] in changes]
