"""Reads a namespace through the Kubernetes API."""

from __future__ import annotations

import asyncio

from kubernetes.aio import client

from isthmus_cli.errors import CliError
from isthmus_cli.view import (
    Manifest,
    NetworkView,
    RouterReport,
    condition_problems,
    flow_analysis_row,
    flow_log_row,
    gossip_router_row,
    insecure_parts,
    link_route_row,
    network_view,
    profile_row,
    relay_site_row,
)
from isthmus_operator.cluster import ApiError
from isthmus_operator.names import LABEL_INSTANCE, LABEL_NAME, base_name
from isthmus_operator.resources import InvalidResourceError, Router, parse

from .access import Access, Connection, connected

_AT_ONCE = 16
_CLIENT_ROLE = "normal"


def view(access: Access) -> NetworkView:
    """The namespace as it is now. Raises CliError when the cluster cannot be asked."""
    return asyncio.run(_view(access))


async def _view(access: Access) -> NetworkView:
    async with connected(access) as connection:
        return await _Gatherer(connection).view()


class _Gatherer:
    def __init__(self, connection: Connection) -> None:
        self._api = connection.api
        self._cluster = connection.cluster
        self._namespace = connection.namespace
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._findings: list[str] = []

    async def view(self) -> NetworkView:
        kinds = asyncio.gather(
            self._cluster.list("Router", self._namespace),
            self._cluster.list("Connector", self._namespace),
            self._optional("LinkRoute", "link routes are not shown: no right to list linkroutes"),
            self._optional("RelaySite", "sites are not shown: no right to list relaysites"),
            self._optional("GossipRouter", "gossip routers are not shown: no right to list gossiprouters"),
            self._optional("SslProfile", "certificates are not shown: no right to list sslprofiles"),
        )
        flows = asyncio.gather(
            self._optional("FlowLog", "flow logs are not shown: no right to list flowlogs"),
            self._optional("FlowAnalysis", "flow analyses are not shown: no right to list flowanalyses"),
        )
        resources, (logs, analyses), pods = await asyncio.gather(kinds, flows, self._pods())
        routers, connectors, link_routes, sites, gossip_routers, profiles = resources
        if not routers and not connectors:
            await self._check_namespace()
        for kind, items in (
            ("Router", routers),
            ("Connector", connectors),
            ("LinkRoute", link_routes),
            ("RelaySite", sites),
            ("GossipRouter", gossip_routers),
            ("FlowLog", logs),
            ("FlowAnalysis", analyses),
            ("SslProfile", profiles),
        ):
            self._findings += [text for item in items for text in condition_problems(kind, item)]
        groups = await asyncio.gather(*(self._reports(item, pods) for item in routers))
        reports = [report for group in groups for report in group]
        rows = [profile_row(item) for item in profiles]
        routes = [link_route_row(item) for item in link_routes]
        relay_sites = [relay_site_row(item) for item in sites]
        gossips = [gossip_router_row(item) for item in gossip_routers]
        return network_view(
            self._namespace,
            "Kubernetes",
            reports,
            self._findings,
            rows,
            routes,
            relay_sites,
            gossips,
            [flow_log_row(item) for item in logs],
            [flow_analysis_row(item) for item in analyses],
            [
                text
                for kind, items in (
                    ("Router", routers),
                    ("Connector", connectors),
                    ("RelaySite", sites),
                    ("GossipRouter", gossip_routers),
                    ("FlowLog", logs),
                )
                for item in items
                for text in insecure_parts(kind, item)
            ],
        )

    async def _check_namespace(self) -> None:
        """An empty list is what the API server gives for a namespace that is not there, too."""
        try:
            await client.CoreV1Api(self._api).read_namespace(self._namespace)
        except client.ApiException as error:
            if error.status == 404:
                raise CliError(f"namespace {self._namespace!r} does not exist") from None
            if error.status != 403:
                raise CliError(f"namespace {self._namespace!r} cannot be read: {error.reason}") from None

    async def _optional(self, kind: str, hidden: str) -> list[Manifest]:
        """All of a kind; without the right to list it, `hidden` is among the problems."""
        try:
            return list(await self._cluster.list(kind, self._namespace))
        except ApiError as error:
            if error.status not in {403, 404}:  # 404: the schemas of an earlier version
                raise
            if error.status == 403:
                self._find(hidden)
            return []

    async def _pods(self) -> list[Manifest] | None:
        """None when pods may not be read."""
        try:
            selector = f"{LABEL_NAME}=isthmus-router"
            return list(await self._cluster.list("Pod", self._namespace, labelSelector=selector))
        except ApiError as error:
            if error.status != 403:
                raise
            self._find("routers were not asked: no right to list pods; what is shown is in their resources")
            return None

    async def _reports(self, manifest: Manifest, pods: list[Manifest] | None) -> list[RouterReport]:
        try:
            router = parse(manifest)
        except InvalidResourceError as error:
            self._findings.append(f"Router {manifest['metadata']['name']}: {error}")
            return []
        assert isinstance(router, Router)
        if pods is None:
            return [_from_resource(router, manifest, item, "pod") for item in _instances(manifest)]
        base = base_name(router.name)
        own = [pod for pod in pods if pod["metadata"].get("labels", {}).get(LABEL_INSTANCE) == base]
        wanted = router.spec.replicas
        if len(own) < wanted:
            self._find(f"Router {router.name}: {len(own)} of {wanted} pods exist")
        return list(await asyncio.gather(*(self._report(router, manifest, pod) for pod in own)))

    async def _report(self, router: Router, manifest: Manifest, pod: Manifest) -> RouterReport:
        name = pod["metadata"]["name"]
        where = f"pod on {pod.get('spec', {}).get('nodeName', 'no node')}"
        status, trouble = None, _pod_trouble(pod)
        if pod.get("status", {}).get("phase") == "Running":
            async with self._slots:
                try:
                    status = await self._cluster.ask_pod(
                        self._namespace, name, router.spec.health_port, "status"
                    )
                except ApiError as error:
                    if error.status == 403:
                        self._find(
                            "routers were not asked: no right to get pods/proxy; what is shown is in their resources"
                        )
                        told = next((item for item in _instances(manifest) if item["id"] == name), None)
                        return _from_resource(router, manifest, told or {"id": name}, where)
                    trouble = trouble or f"does not answer: {error}"
        return RouterReport(
            id=name,
            router=router.name,
            mode=router.spec.mode,
            site=router.spec.site,
            where=where,
            status=status,
            trouble=trouble,
            restarts=sum(item.get("restartCount", 0) for item in _containers(pod)),
            endpoints=_endpoints(router, manifest),
        )

    def _find(self, text: str) -> None:
        if text not in self._findings:
            self._findings.append(text)


def _containers(pod: Manifest) -> list[Manifest]:
    return list(pod.get("status", {}).get("containerStatuses") or ())


def _pod_trouble(pod: Manifest) -> str | None:
    """Why the pod does not run as it should, in the cluster's own words."""
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    status = pod.get("status", {})
    for container in _containers(pod):
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))
    for item in status.get("conditions") or ():
        if item.get("type") == "PodScheduled" and item.get("status") != "True":
            return f"{item.get('reason')}: {item.get('message')}"
    phase = status.get("phase")
    return None if phase == "Running" else f"pod is {phase}"


def _endpoints(router: Router, manifest: Manifest) -> tuple[str, ...]:
    """URLs for clients, as the operator published them."""
    listeners = {item.name: item for item in router.spec.effective_listeners()}
    urls = []
    for item in (manifest.get("status") or {}).get("endpoints") or ():
        listener = listeners.get(item.get("listener", ""))
        if listener is not None and listener.role == _CLIENT_ROLE:
            urls.append(f"{'amqps' if listener.encrypted else 'amqp'}://{item['host']}:{item['port']}")
    return tuple(urls)


def _instances(manifest: Manifest) -> list[Manifest]:
    return list((manifest.get("status") or {}).get("instances") or ())


def _from_resource(router: Router, manifest: Manifest, instance: Manifest, where: str) -> RouterReport:
    """What the Router's own status says, when its pods must not be asked."""
    return RouterReport(
        id=instance["id"],
        router=router.name,
        mode=router.spec.mode,
        site=router.spec.site,
        where=where,
        status={
            "router": {"ready": instance.get("ready"), "version": instance.get("version")},
            "neighbors": [{"id": item} for item in instance.get("neighbors") or ()],
        },
        trouble=instance.get("message"),
        endpoints=_endpoints(router, manifest),
        asked=False,
    )
