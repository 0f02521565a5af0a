"""`isthmus demo`."""

from __future__ import annotations

import statistics
import time
from importlib.resources import as_file, files
from pathlib import Path

import click

from isthmus_cli.errors import CliError
from isthmus_cli.local import lifecycle, probe
from isthmus_cli.local.state import Network, NetworkState
from isthmus_cli.manifests import load
from isthmus_cli.output import show

NETWORK = "demo"
REQUESTS = 200
NEWS = 100
_READY_SECONDS = 30.0
_TRAFFIC_SECONDS = 30.0
_GRACE_SECONDS = 15.0


@click.command()
@click.option("--keep", is_flag=True, help="Leave the network running at the end.")
def demo(keep: bool) -> None:
    """Run two sites on this machine and send real messages across.

    Two interior routers in different sites, an edge router on each; a service in the west answers
    requests from the east, and news from the east reaches subscribers everywhere. Ends with status 1 if
    anything did not arrive.
    """
    begun = time.monotonic()
    state = NetworkState(NETWORK)
    lifecycle.down(state, _GRACE_SECONDS)
    try:
        with as_file(files(__package__) / "network.yaml") as path:
            network = _start(state, path)
        findings = _traffic(state, network)
        _summary(findings, time.monotonic() - begun)
    finally:
        if not keep:
            lifecycle.down(state, _GRACE_SECONDS)
    if keep:
        click.echo(f"\nLeft running. isthmus local status -N {NETWORK}; isthmus local down -N {NETWORK}")
    else:
        click.echo("Everything that was started has been ended. `isthmus demo --keep` leaves it running.")


def _start(state: NetworkState, path: Path) -> Network:
    click.echo("1. Two sites, east and west: one interior and one edge router in each, as processes.")
    begun = time.monotonic()
    network, _ = lifecycle.up(state, load([str(path)]))
    if not lifecycle.await_settled(state, network, _READY_SECONDS):
        show(probe.view(state, network), "table")
        raise CliError(f"the network is not ready; logs: {state.folder}/routers/*/router.log")
    click.echo(f"   {len(network.routers)} routers are ready after {time.monotonic() - begun:.1f} s.")
    return network


def _traffic(state: NetworkState, network: Network) -> list[str]:
    """Sends everything and shows the network while the clients are there; returns sentences about what
    arrived. Raises CliError if something did not."""
    # proton is part of the router's installation, not of the command line's.
    from .clients import Crew, DemoError, Service, Subscriber, ask, publish  # noqa: PLC0415

    urls = {router.router: router.endpoints[0] for router in network.routers}
    service = Service(urls["edge-west"], "quotes/acme")
    subscribers = [Subscriber(name, url, "news/today") for name, url in urls.items()]
    crew = Crew(_TRAFFIC_SECONDS)
    try:
        crew.start(service, *subscribers)
        click.echo(f"2. {REQUESTS} requests from a client of edge-east to a service behind edge-west.")
        times = ask(urls["edge-east"], "quotes/acme", REQUESTS, _TRAFFIC_SECONDS)
        click.echo(f"3. {NEWS} messages to a multicast address with {len(subscribers)} subscribers.")
        publish(urls["edge-east"], "news/today", NEWS, subscribers, crew)
        crew.wait(
            "every subscriber has everything",
            lambda: all(len(subscriber.numbers) >= NEWS for subscriber in subscribers),
        )
        click.echo("4. The network with its clients, as `isthmus local status` shows it:\n")
        show(probe.view(state, network), "table")
    except DemoError as error:
        raise CliError(f"not everything arrived: {error}") from None
    finally:
        crew.stop()
    wrong = [each.name for each in subscribers if each.numbers != list(range(NEWS))]
    if wrong or service.answered != REQUESTS:
        raise CliError(
            f"not everything arrived as sent: {service.answered} of {REQUESTS} requests served; "
            f"subscribers with lost, repeated or reordered messages: {', '.join(wrong) or 'none'}"
        )
    middle, worst = statistics.median(times) * 1000, max(times) * 1000
    return [
        f"{len(times)} of {REQUESTS} requests were answered across both sites "
        f"(edge-east, east, west, edge-west and back): median {middle:.1f} ms, longest {worst:.1f} ms.",
        f"{NEWS} of {NEWS} multicast messages reached each of {len(subscribers)} subscribers "
        f"({', '.join(each.name for each in subscribers)}) exactly once and in order.",
    ]


def _summary(findings: list[str], seconds: float) -> None:
    click.echo()
    click.secho(f"What happened, in {seconds:.1f} s:", bold=True)
    for finding in findings:
        click.echo(f"  {finding}")
