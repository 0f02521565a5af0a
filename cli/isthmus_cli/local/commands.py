"""`isthmus local up|status|down`."""

from __future__ import annotations

import click

from isthmus_cli.errors import CliError
from isthmus_cli.manifests import load
from isthmus_cli.options import output_options
from isthmus_cli.output import show, watch
from isthmus_operator.resources import Connector, Router

from . import lifecycle, probe
from .state import DEFAULT_NETWORK, Network, NetworkState, network_names

_name_option = click.option(
    "--name", "-N", default=DEFAULT_NETWORK, show_default=True, help="Name of the network."
)


@click.group()
def local() -> None:
    """Run a network as processes on this machine, on loopback."""


@local.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_name_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait at most until all is well; 0 does not wait.",
)
def up(files: tuple[str, ...], name: str, timeout: float) -> None:
    """Start a network, or change it.

    Afterwards it is what the resources in FILE... describe.
    FILE is a YAML file, a folder of them, or - for the standard input. What was started by an earlier
    `up` and is not in the files any more is stopped; running routers take changes over without a restart
    where they can. Ends with status 1 when not everything is well after the wait: a router that is not
    ready, a link that is not open, a reference to something that is not in the files.
    """
    manifests = load(files)
    for skipped in manifests.skipped:
        click.echo(
            f"left out, since only Routers, Connectors, SslProfiles and Secrets run locally: {skipped}",
            err=True,
        )
    if not any(isinstance(item, Router | Connector) for item in manifests.resources):
        raise CliError("the files have no Router or Connector")
    state = NetworkState(name)
    network, change = lifecycle.up(state, manifests)
    _say(change)
    if timeout:
        settled = lifecycle.await_settled(state, network, timeout)
        now = probe.view(state, network)
        show(now, "table")
        if not (settled and now.ready):
            logs = f"logs: {state.folder}/routers/*/router.log"
            raise CliError(
                f"not everything is well, see Problems above; what runs goes on. {logs}"
                if now.problems
                else f"the network did not settle within {timeout:g} s; it goes on. {logs}"
            )


@local.command()
@_name_option
@output_options
def status(name: str, output: str, watching: bool, interval: float) -> None:
    """Show routers, links and addresses of the network."""
    state = NetworkState(name)
    if watching:
        watch(lambda: probe.view(state, _known(state)), output, interval)
    else:
        show(probe.view(state, _known(state)), output)


@local.command()
@_name_option
@click.option("--all", "everything", is_flag=True, help="End every network of this user.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    help="Seconds a process may take to end by itself.",
)
def down(name: str, everything: bool, grace: float) -> None:
    """End the network.

    That is: the processes that `up` started, and nothing else.
    """
    for each in network_names() if everything else [name]:
        state = NetworkState(each)
        if not state.folder.exists():
            click.echo(f"network {each} is not there: nothing to do")
            continue
        running = lifecycle.down(state, grace)
        click.echo(f"network {each} is down: {running} router{'' if running == 1 else 's'} ended")


def _known(state: NetworkState) -> Network:
    network = state.network()
    if network is None:
        others = [name for name in network_names() if name != state.name]
        hint = f"; there is {', '.join(others)} (--name)" if others else ""
        raise CliError(f"no network {state.name!r} is up; start one with `isthmus local up FILE...`{hint}")
    return network


def _say(change: lifecycle.Change) -> None:
    for verb, routers in (
        ("started", change.started),
        ("stopped", change.stopped),
        ("restarted", change.restarted),
        ("changed while running", change.changed),
        ("changed certificates or passwords", change.renewed),
    ):
        if routers:
            click.echo(f"{verb}: {', '.join(routers)}")
    if not any((change.started, change.stopped, change.restarted, change.changed, change.renewed)):
        click.echo("nothing changed")
