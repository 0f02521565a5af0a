"""What the files of the last `up` said, kept so that rotations go on between two `up`s."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from isthmus_cli.manifests import Manifests
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.resources import API_VERSION, parse

from . import authority
from .state import NetworkState


def write(state: NetworkState, manifests: Manifests) -> None:
    """Keeps the resources and Secrets of `manifests`."""
    resources = [
        {
            "apiVersion": API_VERSION,
            "kind": item.kind_name,
            **item.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        for item in manifests.resources
    ]
    secrets = {
        secret.name: {key: base64.b64encode(content).decode() for key, content in secret.data.items()}
        for secret in manifests.secrets
    }
    state.write_resources({"resources": resources, "secrets": secrets})


def read(state: NetworkState) -> Manifests | None:
    """What was kept."""
    document = state.resources()
    if document is None:
        return None
    secrets = [
        SecretView(name, {key: base64.b64decode(text) for key, text in data.items()})
        for name, data in document["secrets"].items()
    ]
    return Manifests([parse(item) for item in document["resources"]], secrets)


def model_at(state: NetworkState, now: datetime) -> NamespaceModel | None:
    """What the planning at `now` starts from: what was kept, beside what the routers have."""
    manifests = read(state)
    if manifests is None:
        return None
    model = NamespaceModel.of(state.name, manifests.resources, manifests.secrets)
    model = model.with_authority(authority.read(state), local=True)
    return model.at(now, _delivered(state))


def files_folder(state: NetworkState, router_id: str) -> Path:
    return state.router_folder(router_id) / "files"


def config_path(state: NetworkState, router_id: str) -> Path:
    return state.router_folder(router_id) / "config.json"


def files_hash(files: Mapping[str, bytes]) -> str:
    """SHA-256 of names and contents."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _delivered(state: NetworkState) -> Mapping[str, Mapping[str, bytes]]:
    """Router to the files that its processes have, with the configuration of one of them; otherwise they are
    the same for all."""
    network = state.network()
    found: dict[str, Mapping[str, bytes]] = {}
    for router in network.routers if network else ():
        folder = files_folder(state, router.id)
        if router.router not in found and folder.is_dir():
            config = config_path(state, router.id)
            items = [*folder.iterdir(), *([config] if config.exists() else [])]
            found[router.router] = {item.name: item.read_bytes() for item in items}
    return found
