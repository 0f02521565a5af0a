"""`isthmus local up|status|rotate|down`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial

import click

from isthmus_cli.errors import CliError
from isthmus_cli.manifests import load
from isthmus_cli.options import output_options, revoke_option
from isthmus_cli.output import say, show, watch
from isthmus_cli.progress import follow
from isthmus_cli.view import NetworkView
from isthmus_operator.names import nearest
from isthmus_operator.resources import Connector, FlowAnalysis, GossipRouter, Router

from . import lifecycle, probe
from .state import DEFAULT_NETWORK, Network, NetworkState, network_names

_KINDS = "Routers, Connectors, LinkRoutes, RelaySites, GossipRouters, SslProfiles, FlowLogs and Secrets"
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
    where they can. A changed certificate of an SslProfile is a rotation, and is waited for. Ends with status 1
    when not everything is well after the wait: a router that is not ready, a link that is not open, a rotation
    that is not done, a reference to something that is not in the files.
    """
    manifests = load(files)
    for skipped in manifests.skipped:
        click.echo(f"left out, since only {_KINDS} run locally: {skipped}", err=True)
    if analyses := [item.name for item in manifests.resources if isinstance(item, FlowAnalysis)]:
        click.echo(
            f"not run here, but by `isthmus flows report`: FlowAnalysis {', '.join(analyses)}", err=True
        )
    if not any(isinstance(item, Router | Connector | GossipRouter) for item in manifests.resources):
        raise CliError("the files have no Router, Connector or GossipRouter")
    state, begun = NetworkState(name), time.monotonic()
    network, change = lifecycle.up(state, manifests)
    _say(change)
    if not timeout:
        for each, ordinal in change.rotated.items():
            click.echo(f"rotating: SslProfile {each} to ordinal {ordinal}")
    else:
        settled = lifecycle.await_settled(state, network, timeout, change.renewed)
        _say_rotated(change, lifecycle.rotating(state), time.monotonic() - begun)
        now = probe.view(state, _known(state))
        show(now, "table")
        if not (settled and now.ready):
            raise CliError(_trouble(now, state, timeout))


@local.command()
@_name_option
@output_options
def status(name: str, output: str, watching: bool, interval: float) -> None:
    """Show routers, links, certificates and addresses of the network."""
    state = NetworkState(name)
    if watching:
        watch(lambda: probe.view(state, _known(state)), output, interval)
    else:
        show(probe.view(state, _known(state)), output)


@local.command()
@click.argument("profile", required=False)
@_name_option
@revoke_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait at most until all connections have followed; 0 does not wait.",
)
def rotate(profile: str | None, name: str, revoke: bool, timeout: float) -> None:
    """Raise the ordinal of the SslProfile PROFILE, or of all.

    All routers that use it connect anew, with what its Secret held at the last `up`; what flows on older
    connections goes on there. A changed Secret does so with the next `up`; this is for the same certificate.
    With --revoke, connections made with earlier certificates are closed at once.
    Ends with status 1 when not all have followed in time, and says which.
    """
    state = NetworkState(name)
    _known(state)
    names = _profiles(state, profile)
    lifecycle.rotate(state, names, revoke=revoke)
    deadline = time.monotonic() + timeout
    for each in names:
        click.echo(f"asked for a rotation of SslProfile {each}")
        if timeout:
            left = max(0.0, deadline - time.monotonic())
            look = partial(probe.profile_manifest, state, each)
            asyncio.run(follow(look, 0, revoked=0 if revoke else None, seconds=left, say=say))


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


def _profiles(state: NetworkState, wanted: str | None) -> list[str]:
    """The SslProfiles meant. Raises CliError when there is none."""
    names = state.profile_names()
    if wanted is None:
        if not names:
            raise CliError(f"network {state.name!r} has no SslProfile with certificates")
        return names
    if wanted not in names:
        close = nearest(wanted, names)
        hint = f"; did you mean {close}?" if close else f"; there is {', '.join(names)}" if names else ""
        raise CliError(f"network {state.name!r} has no SslProfile {wanted!r} with certificates{hint}")
    return [wanted]


def _trouble(view: NetworkView, state: NetworkState, timeout: float) -> str:
    """Why `up` ends with status 1."""
    logs = f"logs: {state.folder}/routers/*/router.log"
    if view.problems:
        return f"not everything is well, see Problems above; what runs goes on. {logs}"
    late = [f"SslProfile {row.name}: {row.message}" for row in view.profiles if row.state == "rotating"]
    what = f"the network did not settle within {timeout:g} s; it goes on"
    return f"{what}. {'. '.join((*late, logs))}"


def _say_rotated(change: lifecycle.Change, under_way: Mapping[str, int], seconds: float) -> None:
    for name, ordinal in change.rotated.items():
        if name not in under_way:
            click.echo(
                f"rotated: SslProfile {name} to ordinal {ordinal}, in use everywhere after {seconds:.1f} s"
            )


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
