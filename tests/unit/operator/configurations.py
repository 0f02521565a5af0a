"""What resources are rendered to, as the router reads it."""

from __future__ import annotations

from typing import Any

from tests.unit.operator.support import model

from isthmus_operator.render import (
    InstanceTarget,
    ListenerInstance,
    RouterInstance,
    config_bytes,
    plan,
    router_config,
)
from isthmus_router.config import Configuration, parse


class Resolver:
    """Addresses that say what they were made from."""

    def bind(self, instance: RouterInstance, listener: ListenerInstance) -> tuple[str, int]:
        return listener.host, listener.port

    def health(self, instance: RouterInstance) -> tuple[str, int]:
        return "", instance.health_port

    def dial(self, instance: RouterInstance, target: InstanceTarget) -> tuple[str, int]:
        return f"{target.router}-{'any' if target.any_replica else target.ordinal}", target.port

    def path(self, instance: RouterInstance, file: str) -> str:
        return f"/etc/isthmus/{file}"


class _Files:
    def __init__(self, instance: RouterInstance) -> None:
        self._instance = instance

    def read(self, path: str) -> bytes:
        try:
            return self._instance.files[path.removeprefix("/etc/isthmus/")]
        except KeyError:
            raise FileNotFoundError(path) from None

    def names(self, folder: str) -> list[str]:
        prefix = folder.removeprefix("/etc/isthmus").strip("/")
        return [name for name in self._instance.files if name.rpartition("/")[0] == prefix]

    def variable(self, name: str) -> str | None:
        return None


def read_back(instance: RouterInstance) -> Configuration:
    """The instance's configuration as the router reads it."""
    text = config_bytes(router_config(instance, Resolver())).decode()
    return parse(text, instance.id, sources=_Files(instance))


def configs(*manifests: dict[str, Any], secrets: Any = ()) -> dict[str, Configuration]:
    planned = plan(model(*manifests, secrets=secrets))
    return {item.id: read_back(item) for items in planned.instances.values() for item in items}
