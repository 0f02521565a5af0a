"""`isthmus status`."""

from __future__ import annotations

import click

from isthmus_cli.options import output_options
from isthmus_cli.output import show, watch


@click.command()
@click.option("-n", "--namespace", help="Namespace; the context's own when absent.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Kubeconfig file.")
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
    from .gather import Access, view  # noqa: PLC0415

    access = Access(kubeconfig, context, namespace)
    if watching:
        watch(lambda: view(access), output, interval)
    else:
        show(view(access), output)
