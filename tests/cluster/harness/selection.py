"""Picks where the cluster comes from."""

from __future__ import annotations

import os
from pathlib import Path

from .host import HarnessError
from .local.provider import LocalProvider
from .provider import Provider
from .providers.given import GivenProvider
from .providers.kind import KindProvider


def select(name: str) -> tuple[Provider, str]:
    """The provider for the cluster called `name`, and why it was picked.

    Raises HarnessError naming what to install if there is no way to get a cluster here.
    """
    given = os.environ.get("ISTHMUS_TEST_KUBECONFIG")
    if given:
        return GivenProvider(Path(given)), "ISTHMUS_TEST_KUBECONFIG is set"
    no_kind = KindProvider.lacks()
    if not no_kind:
        return KindProvider(name), "kind and Docker work"
    no_local = LocalProvider.lacks()
    if not no_local:
        return LocalProvider(name), "running as root, Kubernetes can be built here"
    raise HarnessError(
        "no Kubernetes to test on. Do one of these:\n"
        "  - set ISTHMUS_TEST_KUBECONFIG to the kubeconfig of a cluster made for tests\n"
        f"  - for a cluster in Docker: {'; '.join(no_kind)}\n"
        f"  - for a cluster built here: {'; '.join(no_local)}"
    )
