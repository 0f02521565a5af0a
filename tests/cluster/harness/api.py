"""Reading from the API server without a process for each request, as tests ask for the same again and again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes import config
from urllib3.exceptions import HTTPError

from .host import HarnessError

TIMEOUT_S = 20.0
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OPTIONS = {"--selector": "labelSelector", "--field-selector": "fieldSelector"}
"""Of `kubectl get`, and the parameters of a request that they stand for."""


@dataclass(frozen=True)
class _Resource:
    folder: str
    """Path of its group and version."""
    plural: str
    namespaced: bool


class Api:
    """The API server that a kubeconfig names. HarnessError for whatever it refuses or does not answer."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._resources: dict[str, _Resource] = {}
        """By plural, singular and short names, with and without their groups."""

    def read(self, path: str, query: dict[str, str] | None = None, accept: str = "*/*") -> str:
        """Return the body of the answer to a GET of `path`, with the parameters `query`."""
        request = self._client.param_serialize(
            "GET",
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=TIMEOUT_S)
            body: bytes = answer.read()
        except HTTPError as error:
            raise HarnessError(f"GET {path}: {error}") from error
        text = body.decode()
        if answer.status != HTTPStatus.OK:
            raise HarnessError(f"GET {path}: {_reason(answer.status, text)}")
        return text

    def get(self, resource: str, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        """Return one object (`pod/web-0`) or a list (`pods`), with the parameters `query`.

        `namespace` has no effect on resources that are in none.
        """
        kind, _, name = resource.partition("/")
        kind = kind.lower()
        found = self._resources.get(kind) or self._discovered(kind)
        folder = f"{found.folder}/namespaces/{namespace}" if found.namespaced else found.folder
        path = f"{folder}/{found.plural}/{name}" if name else f"{folder}/{found.plural}"
        document: dict[str, Any] = json.loads(self.read(path, query))
        items: list[dict[str, Any]] = [document] if name else document["items"]
        for item in items:  # as kubectl shows them
            item.setdefault("apiVersion", document["apiVersion"])
            item.setdefault("kind", document["kind"].removesuffix("List"))
            item["metadata"].pop("managedFields", None)
        return document

    def _discovered(self, kind: str) -> _Resource:
        """Ask the server again which resources it has, as CustomResourceDefinitions come and go."""
        for path in ("/apis", "/api"):  # names of the core group go before
            for group in json.loads(self.read(path, accept=DISCOVERY))["items"]:
                version = group["versions"][0]
                group_name = group["metadata"].get("name")
                folder = (
                    f"{path}/{group_name}/{version['version']}"
                    if group_name
                    else f"{path}/{version['version']}"
                )
                for item in version["resources"]:
                    found = _Resource(folder, item["resource"], item["scope"] == "Namespaced")
                    names = [item["resource"], item.get("singularResource"), *item.get("shortNames", ())]
                    names += [f"{name}.{group_name}" for name in names if group_name]
                    self._resources |= {name: found for name in names if name}
        if kind not in self._resources:
            raise HarnessError(f"the server has no resource {kind!r}")
        return self._resources[kind]


def _reason(status: int, text: str) -> str:
    try:
        found = json.loads(text)
        return f"Error from server ({found['reason']}): {found['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}: {text[:500]}"
