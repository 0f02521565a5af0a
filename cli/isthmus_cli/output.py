"""Showing a view: once or again and again, as tables or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable

import click
from rich.console import Console, RenderableType
from rich.live import Live

from isthmus_router.printable import printable, printable_all

from .view import NetworkView, as_json, natural_width, render

_PLAIN_WIDTH = 180
"""Columns when the output is not a terminal and COLUMNS is not set."""


def show(view: NetworkView, output: str) -> None:
    """Prints the view once, as `table`, `wide` (every column, no cell broken) or `json`."""
    if output == "json":
        click.echo(json.dumps(as_json(view), indent=2))
    else:
        console, screen = _screen(view, output)
        if console.is_terminal:
            console.print(screen)
            return
        with console.capture() as capture:
            console.print(screen)
        click.echo("\n".join(line.rstrip() for line in capture.get().rstrip().split("\n")))


def watch(view: Callable[[], NetworkView], output: str, interval: float) -> None:
    """Shows the view every `interval` seconds until interrupted.

    JSON is one document per line. Tables replace each other on a terminal; elsewhere each is written
    below the one before.
    """
    try:
        if sys.stdout.isatty() and output != "json":
            _live(view, output, interval)
        while True:
            if output == "json":
                click.echo(json.dumps(as_json(view())))
            else:
                show(view(), output)
                click.echo()
            sys.stdout.flush()
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def _live(view: Callable[[], NetworkView], output: str, interval: float) -> None:
    console, screen = _screen(view(), output)
    with Live(screen, console=console, auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval)
            live.update(_screen(view(), output)[1], refresh=True)


def say(text: str) -> None:
    """Print lines in which there may be strings of peers or of the cluster."""
    click.echo(printable(text, lines=True))


def _screen(view: NetworkView, output: str) -> tuple[Console, RenderableType]:
    # Names of addresses, containers and the like are those that peers have chosen.
    view = printable_all(view)
    if output == "wide":
        return Console(width=natural_width(view)), render(view)
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    return Console(width=width), render(view, width)
