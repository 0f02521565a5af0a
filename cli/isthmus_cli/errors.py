"""The errors a person sees: a message that says what is wrong and what to do, and an exit status."""

from __future__ import annotations

import click

from isthmus_router.printable import printable


class CliError(click.ClickException):
    """Something the user can put right. The command ends with status 1 and prints the message."""

    def show(self, file: object = None) -> None:
        message = printable(self.format_message(), lines=True)
        click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
