"""The `isthmus` command."""

from __future__ import annotations

import click

from .cluster.commands import rotate, status
from .demo.commands import demo
from .flows.commands import flows
from .local.commands import local


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="isthmus", prog_name="isthmus")
def main() -> None:
    """Networks of AMQP 1.0 message routers, on Kubernetes and on this machine."""


main.add_command(local)
main.add_command(status)
main.add_command(rotate)
main.add_command(flows)
main.add_command(demo)

if __name__ == "__main__":
    main()
