"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

revoke_option = click.option(
    "--revoke", is_flag=True, help="Close the connections of all earlier ordinals at once."
)


def output_options(command: _Command) -> _Command:
    """`-o`, `--watch` and `--interval`, as `output`, `watching` and `interval`."""
    for option in (
        click.option(
            "--interval",
            type=click.FloatRange(min=0.1),
            default=1.0,
            show_default=True,
            help="Seconds between looks with --watch.",
        ),
        click.option("--watch", "-w", "watching", is_flag=True, help="Look again and again."),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "wide", "json"]),
            default="table",
            show_default=True,
            help="Form of the output; a table leaves columns out to fit the terminal, wide never does.",
        ),
    ):
        command = option(command)
    return command
