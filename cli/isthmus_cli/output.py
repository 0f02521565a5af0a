"""Showing a view: once or again and again, as tables or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.live import Live

from .view import NetworkView, as_json, render

_PLAIN_WIDTH = 180
"""Columns when the output is not a terminal: wide enough that no cell is folded."""


def console() -> Console:
    """A console for standard output."""
    return Console(
        width=None if sys.stdout.isatty() else shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns
    )


def show(view: NetworkView, output: str) -> None:
    """Prints the view once."""
    if output == "json":
        click.echo(json.dumps(as_json(view), indent=2))
    else:
        console().print(render(view))


def watch(view: Callable[[], NetworkView], output: str, interval: float) -> None:
    """Shows the view every `interval` seconds until interrupted; JSON as one document per line."""
    try:
        if output == "json":
            while True:
                click.echo(json.dumps(as_json(view())))
                time.sleep(interval)
        with Live(render(view()), console=console(), auto_refresh=False, screen=sys.stdout.isatty()) as live:
            while True:
                time.sleep(interval)
                live.update(render(view()), refresh=True)
    except KeyboardInterrupt:
        return
