"""Reaching a cluster: kubeconfig, context and namespace, and errors in words that help."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.aio import client, config

from isthmus_cli.errors import CliError
from isthmus_operator.cluster import ApiError, Cluster, guard

FIELD_MANAGER = "isthmus"


@dataclass(frozen=True)
class Access:
    """How to reach a cluster; what is None comes from the kubeconfig."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Connection:
    """A cluster that can be asked, and the namespace that is meant."""

    api: client.ApiClient
    cluster: Cluster
    namespace: str


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Connection]:
    """A connection for as long as the context lasts. Raises CliError when the cluster cannot be asked, or
    refuses what is asked in the context."""
    _check_kubeconfig(access)
    configuration = client.Configuration()
    guard(configuration)
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=access.kubeconfig, context=access.context, client_configuration=configuration
        )
        namespace = access.namespace or _namespace_of_context(access)
    except config.ConfigException as error:
        raise CliError(f"no cluster to ask: {error} (--kubeconfig, --context, or KUBECONFIG)") from None
    except yaml.YAMLError as error:
        raise CliError(f"no cluster to ask: the kubeconfig is not YAML: {error}") from None
    api = client.ApiClient(configuration)
    cluster = Cluster(api, manager=FIELD_MANAGER)
    try:
        yield Connection(api, cluster, namespace)
    except ApiError as error:
        raise CliError(_explain(error, namespace)) from None
    finally:
        await cluster.close()


def _check_kubeconfig(access: Access) -> None:
    """Raises CliError when there is no kubeconfig at all; the library's own words for it are puzzling."""
    named = access.kubeconfig or os.environ.get("KUBECONFIG")
    files = [Path(name).expanduser() for name in (named or "~/.kube/config").split(os.pathsep) if name]
    if not any(file.is_file() for file in files):
        missing = ", ".join(str(file) for file in files)
        raise CliError(
            f"no cluster to ask: there is no kubeconfig ({missing} does not exist); "
            "name one with --kubeconfig or KUBECONFIG"
        )


def _namespace_of_context(access: Access) -> str:
    contexts, active = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
        config_file=access.kubeconfig
    )
    chosen = next((item for item in contexts if item["name"] == access.context), active)
    return str(chosen["context"].get("namespace") or "default")


def _explain(error: ApiError, namespace: str) -> str:
    if error.status == 404:
        return "the cluster does not know Isthmus resources; install the chart, or kubectl apply -f crds/"
    if error.status == 401:
        return f"the API server does not accept the credentials in the kubeconfig: {error}"
    if error.status == 403:
        return f"not allowed to read Isthmus resources in namespace {namespace}: {error}"
    return str(error)
