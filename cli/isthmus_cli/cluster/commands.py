"""`isthmus status` and `isthmus rotate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from isthmus_cli.options import output_options, revoke_option
from isthmus_cli.output import say, show, watch

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _access_options(command: _Command) -> _Command:
    """`--namespace`, `--context` and `--kubeconfig`."""
    for option in (
        click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Kubeconfig file."),
        click.option("--context", help="Context of the kubeconfig."),
        click.option("-n", "--namespace", help="Namespace; the context's own when absent."),
    ):
        command = option(command)
    return command


@click.command()
@_access_options
@output_options
def status(
    *,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: str,
    watching: bool,
    interval: float,
) -> None:
    """Show routers, links and addresses of a namespace on a cluster."""
    # The Kubernetes client takes a second to import, which `isthmus local` need not wait for.
    from .access import Access  # noqa: PLC0415
    from .gather import view  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    if watching:
        watch(lambda: view(access), output, interval)
    else:
        show(view(access), output)


@click.command()
@click.argument("profile")
@_access_options
@revoke_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds to wait at most until all connections have followed; 0 does not wait.",
)
def rotate(
    *,
    profile: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    revoke: bool,
    timeout: float,
) -> None:
    """Raise the ordinal of the SslProfile PROFILE.

    All routers that use it connect anew, with what its Secret holds now; what flows on older connections
    goes on there. A changed Secret does so by itself; this is for the same certificate.
    With --revoke, connections made with earlier certificates are closed at once.
    Ends with status 1 when not all have followed in time, and says which.
    """
    from .access import Access  # noqa: PLC0415
    from .rotate import rotate as run  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    run(access, profile, revoke=revoke, timeout=timeout, say=say)
