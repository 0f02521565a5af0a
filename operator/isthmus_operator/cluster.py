"""The Kubernetes API as the operator uses it: a few verbs on plain manifests, with timeouts everywhere.

Built on the official client's asynchronous `ApiClient`, which brings authentication, TLS and token
renewal; its generated classes per kind are not needed, as desired objects are manifests already.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from .decoding import LIST_CHUNK, apart, decoded
from .fetch import MAX_ANSWER_BYTES
from .fields import applied
from .names import MANAGER
from .resources.base import API_VERSION
from .slots import CutError, Slots
from .untrusted import document, mapping, scrubbed

Manifest = dict[str, Any]

REQUEST_TIMEOUT_SECONDS = 20.0
MAX_MESSAGE = 2_000
"""Characters of the message of an error: the API server repeats invalid values, which a tenant may have chosen."""
_APPLY = "application/apply-patch+yaml"
MAX_PARALLEL = 16
"""Requests under way at a time: a cold start must not flood the API server."""
MAX_PARALLEL_PER_NAMESPACE = 8
"""Of these, so that the thousands that one namespace may wait for leave room for those of others."""
MAX_PARALLEL_SLOW = 8
"""Of all namespaces together whose requests take longer than a second: an admission webhook of somebody else may delay
the writes of some namespaces for as long as it likes."""
MAX_PARALLEL_LATE = 32
"""Beside these, requests that take longer than a second although no earlier one of their namespace had done so. They
leave their places to others. Further ones are cut and sent again when it is the turn of a namespace with such requests:
all requests can be repeated."""
CLOCK_SECONDS = 60.0
"""For which the time that an API server has stated counts."""
MOST_CLOCKS = 64
"""Different times that are remembered, in whole seconds."""
REQUEST_SECONDS = 1.0
"""Duration of a request that counts as one more request."""
EARLY_REQUESTS = 8
"""Of a reconciliation, which count less. A change of a small namespace needs about 5."""
REQUEST_CREDIT = 32.0
"""Requests that an idle namespace has in advance."""


@dataclass(frozen=True)
class Endpoint:
    """Where the objects of a kind are in the API."""

    api_version: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        root = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        parts = [root]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


METADATA_CHUNK = 500
"""Objects in one answer with metadata only. Most have 2 to 5 KB of it. If the answer has more than `MAX_ANSWER_BYTES`,
the next one has a quarter of the objects."""
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

ENDPOINTS = {
    "ServiceAccount": Endpoint("v1", "serviceaccounts"),
    "Secret": Endpoint("v1", "secrets"),
    "PersistentVolumeClaim": Endpoint("v1", "persistentvolumeclaims"),
    "Service": Endpoint("v1", "services"),
    "Pod": Endpoint("v1", "pods"),
    "StatefulSet": Endpoint("apps/v1", "statefulsets"),
    "Deployment": Endpoint("apps/v1", "deployments"),
    "ReplicaSet": Endpoint("apps/v1", "replicasets"),
    "Job": Endpoint("batch/v1", "jobs"),
    "CronJob": Endpoint("batch/v1", "cronjobs"),
    "RoleBinding": Endpoint("rbac.authorization.k8s.io/v1", "rolebindings"),
    "PodDisruptionBudget": Endpoint("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": Endpoint("networking.k8s.io/v1", "networkpolicies"),
    "Event": Endpoint("events.k8s.io/v1", "events"),
    "Lease": Endpoint("coordination.k8s.io/v1", "leases"),
    "Router": Endpoint(API_VERSION, "routers"),
    "Connector": Endpoint(API_VERSION, "connectors"),
    "LinkRoute": Endpoint(API_VERSION, "linkroutes"),
    "RelaySite": Endpoint(API_VERSION, "relaysites"),
    "GossipRouter": Endpoint(API_VERSION, "gossiprouters"),
    "SslProfile": Endpoint(API_VERSION, "sslprofiles"),
    "FlowLog": Endpoint(API_VERSION, "flowlogs"),
    "FlowAnalysis": Endpoint(API_VERSION, "flowanalyses"),
}


class ApiError(Exception):
    """The API server refused a request, or could not be reached (`status` 0).

    Nothing here depends on `message`. An answer with status 500 does not state whether the next attempt fails as well.
    The API server answers with status 500, no `reason` and no `details` (`ErrorToAPIStatus` in
    `apiserver/pkg/endpoints/handlers/responsewriters/status.go`) when an error has no status of its own: an object that
    is too large for etcd or for the request to etcd (kubernetes/kubernetes#112152), a patch for server-side apply with
    a field that the schema does not have (`structuredMergeManager.Apply`), and etcd without a leader. Only a body of
    more than 3 MiB gets status 413. So `Holds` delays the next write of the same object, whatever the cause is."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def concerns_object(self) -> bool:
        """Whether requests about other objects may succeed meanwhile: the API server is there and not overloaded, and
        nobody else has changed the object."""
        return self.status not in {0, 408, 409, 429}

    @property
    def transient(self) -> bool:
        """Whether trying again soon may help without anything having changed."""
        return not self.concerns_object or self.status >= 500


class TooLongError(Exception):
    """The answer of the API server is longer than the request allows."""


class Cluster:
    """A connection to the API server. `count` is told verb and status code of every request."""

    def __init__(
        self,
        api: Any,
        *,
        count: Callable[[str, int], None] | None = None,
        manager: str = MANAGER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._count = count
        self._manager = manager
        self._clock = clock
        self._slots = Slots(
            MAX_PARALLEL, MAX_PARALLEL_PER_NAMESPACE, REQUEST_CREDIT, MAX_PARALLEL_SLOW, MAX_PARALLEL_LATE
        )
        self._ended: dict[str | None, float] = {}
        """By namespace: when a request ended last."""
        self.last_end_of_any: float | None = None
        """When a request about any namespace ended last, by the clock."""

    def apart(self) -> Cluster:
        """The same connection with slots of its own, for what must not wait for the work on namespaces."""
        return Cluster(self._api, count=self._count, manager=self._manager, clock=self._clock)

    def begin(self, namespace: str) -> None:
        """A reconciliation of the namespace begins. Its first requests go before those of long reconciliations."""
        self._slots.begin(namespace, EARLY_REQUESTS)

    def last_end(self, namespace: str) -> float | None:
        """When a request about the namespace ended last, with or without success, by the clock. None: none has."""
        return self._ended.get(namespace)

    def is_waiting(self, namespace: str) -> bool:
        """Return whether requests about the namespace wait for their turn."""
        return self._slots.is_waiting(namespace)

    def forget(self, namespace: str) -> None:
        """Forgets the requests about the namespace."""
        self._ended.pop(namespace, None)
        self._slots.forget(namespace)

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """The object, or None when it does not exist."""
        try:
            return await self._request("GET", ENDPOINTS[kind].path(namespace, name), namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str | None, **query: str) -> list[Manifest]:
        """All objects of a kind, in one namespace or in all."""
        return [
            item async for page in self.pages(kind, namespace, metadata_only=False, **query) for item in page
        ]

    async def pages(
        self, kind: str, namespace: str | None, *, metadata_only: bool = False, **query: str
    ) -> AsyncIterator[Sequence[Manifest]]:
        """The same, in pieces that bound the memory for an answer. `metadata_only`: without all but the metadata, in
        larger pieces."""
        path, accept = ENDPOINTS[kind].path(namespace), _METADATA if metadata_only else _JSON
        chunk = METADATA_CHUNK if metadata_only else LIST_CHUNK
        while True:
            most = MAX_ANSWER_BYTES if chunk > LIST_CHUNK else None
            sent = {"limit": str(chunk), **query}
            try:
                answer = await self._request("GET", path, namespace, query=sent, accept=accept, most=most)
            except TooLongError:
                chunk = max(LIST_CHUNK, chunk // 4)
                continue
            items = answer.get("items", False)
            if items is not None and not isinstance(items, list):
                raise ApiError(502, "BadAnswer", "the answer is no list")
            yield items or ()  # null if there are none, and only metadata is asked for
            if not (more := answer.get("metadata", {}).get("continue")):
                return
            query["continue"] = more
            chunk = min(2 * chunk, METADATA_CHUNK) if metadata_only else LIST_CHUNK

    async def ask_pod(self, namespace: str, pod: str, port: int, path: str) -> Manifest:
        """A JSON object that a pod serves over HTTP, fetched through the API server, which passes on what it sends."""
        proxy = ENDPOINTS["Pod"].path(namespace, f"{pod}:{port}", "proxy")
        return await self._request("GET", f"{proxy}/{path.lstrip('/')}", namespace, limit=MAX_ANSWER_BYTES)

    async def apply(
        self, manifest: Manifest, *, seen: Manifest | None = None, subresource: str | None = None
    ) -> Manifest:
        """Server-side apply: fields in `manifest` are ours, fields no longer in it are given up. 409 when the object is
        no longer `seen`, if that is stated."""
        metadata = manifest["metadata"]
        path = ENDPOINTS[manifest["kind"]].path(metadata["namespace"], metadata["name"], subresource)
        query = {"fieldManager": self._manager, "force": "true"}
        body = manifest if seen is None else {**manifest, "metadata": {**metadata, **_version(seen)}}
        return await self._request(
            "PATCH",
            path,
            metadata["namespace"],
            query=query,
            body=body,
            content_type=_APPLY,
        )

    async def claim(self, seen: Manifest) -> Manifest:
        """Has the fields of an object that `create` has made count as applied, so that `apply` removes those that are
        no longer wanted. 409 when the object is no longer `seen`."""
        metadata = seen["metadata"]
        patch = {"metadata": {**_version(seen), "managedFields": applied(metadata, self._manager)}}
        return await self.merge(seen["kind"], metadata["namespace"], metadata["name"], patch)

    async def merge(
        self, kind: str, namespace: str, name: str, patch: Manifest, *, subresource: str | None = None
    ) -> Manifest:
        """Merge patch."""
        path = ENDPOINTS[kind].path(namespace, name, subresource)
        return await self._request(
            "PATCH",
            path,
            namespace,
            query={"fieldManager": self._manager},
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def create(self, manifest: Manifest) -> Manifest:
        """Creates the object; 409 when there is one of its name, and 400 for a field that the schema does not have."""
        namespace = manifest["metadata"]["namespace"]
        path = ENDPOINTS[manifest["kind"]].path(namespace)
        query = {"fieldManager": self._manager, "fieldValidation": "Strict"}
        return await self._request("POST", path, namespace, query=query, body=manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        """Update; 409 when `metadata.resourceVersion` is not the current one."""
        metadata = manifest["metadata"]
        path = ENDPOINTS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        return await self._request(
            "PUT", path, metadata["namespace"], query={"fieldManager": self._manager}, body=manifest
        )

    async def delete(self, seen: Manifest) -> bool:
        """Deletes the object if it still is `seen`; False when it is gone, replaced or changed."""
        metadata = seen["metadata"]
        path = ENDPOINTS[seen["kind"]].path(metadata["namespace"], metadata["name"])
        body = {"preconditions": _version(seen), "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", path, metadata["namespace"], body=body)
        except ApiError as error:
            if error.status in {404, 409}:
                return False
            raise
        return True

    async def _request(
        self,
        verb: str,
        path: str,
        namespace: str | None,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        limit: int | None = None,
        most: int | None = None,
    ) -> Manifest:
        while True:
            try:
                async with self._slots.slot(namespace) as use:
                    began = self._clock()
                    try:
                        return await self._send(verb, path, query, body, content_type, accept, limit, most)
                    finally:
                        self._ended[namespace] = self.last_end_of_any = self._clock()
                        use.cost = (self._ended[namespace] - began) / REQUEST_SECONDS
            except CutError:
                self._counted(verb, 0)

    async def _send(
        self,
        verb: str,
        path: str,
        query: dict[str, str] | None,
        body: Any,
        content_type: str,
        accept: str,
        limit: int | None,
        most: int | None,
    ) -> Manifest:
        """`limit`: the length of an answer that does not come from the API server itself. `most`: that of another one.
        Raises TooLongError."""
        try:
            method, url, headers, data, _ = await self._api.param_serialize(
                verb,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": accept, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            if content_type == _APPLY:
                # With a parameter, the client does not encode the body as JSON.
                headers, data = {**headers, "Content-Type": f"{_APPLY};charset=utf-8"}, _yaml(data)
            answer = await self._api.call_api(
                method, url, headers, data, _request_timeout=REQUEST_TIMEOUT_SECONDS
            )
            bound = limit if most is None else most
            payload = await (answer.read() if bound is None else _bounded(answer.response, bound))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._counted(verb, 0)
            raise ApiError(0, "Unreachable", f"the API server cannot be reached: {_why(error)}") from error
        self._counted(verb, answer.status)
        if most is not None and len(payload) > most:
            raise TooLongError
        content = await apart(_decoded, payload) if limit is None else _foreign(payload, limit)
        if not 200 <= answer.status < 300:
            raise ApiError(
                409 if _is_other_uid(answer.status, content) else answer.status,
                str(content.get("reason") or answer.reason),
                str(content.get("message") or f"HTTP status {answer.status}")[:MAX_MESSAGE],
            )
        return content

    def _counted(self, verb: str, status: int) -> None:
        if self._count is not None:
            self._count(verb, status)


def _yaml(value: Any) -> str:
    """`value` as YAML, in printable ASCII. JSON has two escapes for a character beyond the first 65,536, which the API
    server refuses in YAML; those of Python are those of YAML. A tenant decides how many there are, so no function of
    Python is called for each."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("ascii", "backslashreplace").decode().replace("\x7f", r"\x7f")


def _is_other_uid(status: int, content: Manifest) -> bool:
    """Whether a patch with a `uid` has met another object, which the API server reports as an invalid change."""
    details = content.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return status == 422 and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes or ()
    )


def _version(seen: Manifest) -> dict[str, str]:
    """What tells an object, and this version of it, from every other one."""
    return {key: seen["metadata"][key] for key in ("uid", "resourceVersion")}


def _why(error: Exception) -> str:
    """In words; the library's own have internal objects in them."""
    if isinstance(error, TimeoutError):
        return f"no answer within {REQUEST_TIMEOUT_SECONDS:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        refused = error.certificate_error
        reason = getattr(refused, "verify_message", refused)
        return f"{error.host}:{error.port}: its certificate is not trusted: {reason}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        return f"{error.host}:{error.port}: {os.strerror(number) if number > 0 else error.os_error.strerror}"
    return str(error) or repr(error)


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body of a response, or one byte more than `limit` of it."""
    body = bytearray()
    while len(body) <= limit and (part := await response.content.readany()):
        body += part
    if len(body) > limit:
        response.close()
    return bytes(body[: limit + 1])


def _foreign(payload: bytes, limit: int) -> Manifest:
    """What a pod has sent. Raises ApiError."""
    try:
        if len(payload) > limit:
            raise ValueError(f"more than {limit} bytes")
        return dict(mapping(scrubbed(document(payload))))
    except ValueError as error:
        raise ApiError(0, "BadAnswer", f"the answer is refused: {error}") from None


def _decoded(payload: bytes) -> Manifest:
    try:
        found = decoded(payload)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _guarded(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
    response: aiohttp.ClientResponse = await handler(request)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        response.close()
        raise aiohttp.ClientError("an answer with a content encoding is refused")
    if 300 <= response.status < 400:
        response.close()
        raise aiohttp.ClientError(f"a redirect is refused (HTTP status {response.status})")
    return response


class ServerClock:
    """By how much the clock of this process is ahead of that of the API server.

    There may be several API servers behind one address. The clock of this process is as good as that of the one which
    agrees with it best."""

    def __init__(
        self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns the time in seconds since the epoch, `steady` that of a clock that nobody corrects."""
        self._clock = clock
        self._steady = steady
        self._stated: dict[int, tuple[float, float]] = {}
        """By whole seconds: the difference between the stated time and the steady one, and when it was stated last.
        The latest ones come last."""

    @property
    def ahead(self) -> float:
        """Seconds; 0 as long as nothing is known. The smallest difference of the last minute, or the last one."""
        if not self._stated:
            return 0.0
        now = self._steady()
        own = self._clock() - now
        recent = [value for value, when in self._stated.values() if now - when <= CLOCK_SECONDS]
        return min((own - value for value in recent or [next(reversed(self._stated.values()))[0]]), key=abs)

    async def note(self, request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        """Reads the time of an answer, which has the moment in which the API server began it."""
        began, steady = self._clock(), self._steady()
        response: aiohttp.ClientResponse = await handler(request)
        took = self._clock() - began
        # What a pod answers through the API server has the time that the pod states.
        if "/proxy/" in request.url.path or not 0 <= took <= REQUEST_TIMEOUT_SECONDS:
            return response
        try:
            date = parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
        except (ValueError, TypeError, OverflowError):
            return response
        difference = date - steady
        self._stated.pop(int(difference), None)
        self._stated[int(difference)] = difference, self._steady()
        if len(self._stated) > MOST_CLOCKS:
            del self._stated[next(iter(self._stated))]
        return response


def guard(configuration: kubernetes_client.Configuration, *middlewares: aiohttp.ClientMiddlewareType) -> None:
    """Makes clients follow no redirect and decode nothing: through the API server's proxy, pods answer too.
    `middlewares` come before."""
    configuration.client_session_kwargs = {
        "auto_decompress": False,
        "headers": {"Accept-Encoding": "identity"},
        "middlewares": (*middlewares, _guarded),
    }


async def connect(count: Callable[[str, int], None], clock: ServerClock) -> Cluster:
    """A connection with the pod's service account, or with `KUBECONFIG` outside a cluster. `clock` learns the time of
    the API server."""
    configuration = kubernetes_client.Configuration()
    guard(configuration, clock.note)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG"):
        kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await kubernetes_config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return Cluster(kubernetes_client.ApiClient(configuration), count=count)
