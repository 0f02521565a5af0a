"""Two routers whose connections use the certificates of an SslProfile, as they are rendered."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.unit.operator.certificates import NOW, issued
from tests.unit.operator.support import connector, model, router, ssl_profile

from isthmus_operator.model import NamespaceModel
from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.rotation import Ledger, Past, Wish, adopt

SETTINGS = RenderSettings(router_image="router:1")
TLS = {"sslProfile": "net"}
NETWORK = (
    router(
        "west",
        listeners=[
            {"name": "amqps", "port": 5671, "tls": TLS},
            {
                "name": "inter-router",
                "role": "inter-router",
                "port": 55671,
                "tls": {**TLS, "requireClientCertificate": True, "minimumVersion": "TLSv1.3"},
            },
        ],
    ),
    router("east", listeners=[{"name": "amqp", "port": 5672}]),
    connector("link", "east", "west", "inter-router", tls=TLS),
)


def ledger(*numbers: int) -> Ledger:
    """After these certificates."""
    found: Ledger | None = None
    for number in numbers:
        found = adopt(found, "server", issued(number), Wish(), Past(), NOW).ledger
    assert found is not None
    return found


def rendered(found: Ledger | None, *manifests: dict[str, Any], delivered: Any = None) -> Rendered:
    resources = manifests or (*NETWORK, ssl_profile("net", "server"))
    built: NamespaceModel = model(*resources).at(NOW, delivered or {})
    return render(built.serving({**built.ledgers, **({"net": found} if found is not None else {})}), SETTINGS)


def files(found: Rendered, name: str) -> Mapping[str, bytes]:
    (secret,) = [item for item in found.routers[name].objects if item["kind"] == "Secret"]
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


def sections(found: Rendered, name: str, kind: str) -> list[dict[str, Any]]:
    config = json.loads(files(found, name)[f"{name}-0.json"])
    return [attributes for section, attributes in config if section == kind]
