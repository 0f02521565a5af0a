"""Command line of the test cluster: `python -m tests.cluster.harness --help`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import images
from .host import HarnessError, ensure_packages
from .local.binaries import built
from .local.provider import LocalProvider
from .selection import select

EXECUTE_TIMEOUT_S = 600.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.harness", description=__doc__)
    parser.add_argument("--name", default="default", help="which cluster (several can coexist)")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring the cluster up; does nothing if it is")
    up.add_argument("--nodes", type=int, default=3)
    commands.add_parser("down", help="remove the cluster and everything it left")
    commands.add_parser("status", help="show processes and nodes")
    commands.add_parser("kubeconfig", help="print the path of the kubeconfig")
    commands.add_parser("build", help="build Kubernetes, where the cluster is made here")
    image = commands.add_parser("image", help="build an image and print the path of its archive")
    image.add_argument("tag", metavar="NAME:TAG")
    image.add_argument("containerfile", type=Path)
    image.add_argument("--context", type=Path, default=Path())
    image.add_argument("--build-arg", action="append", default=[], metavar="KEY=VALUE")
    load = commands.add_parser("load", help="make images known to all nodes")
    load.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    for tool in ("kubectl", "helm"):
        commands.add_parser(tool, help=f"run {tool} on the cluster", add_help=False)
    execute = commands.add_parser("exec", help="run a command on a node")
    execute.add_argument("node")
    execute.add_argument("argv", nargs=argparse.REMAINDER)
    return parser


def main(arguments: list[str]) -> None:
    options, rest = _parser().parse_known_args(arguments)
    if rest and options.command not in {"kubectl", "helm"}:
        _parser().error(f"unknown arguments: {' '.join(rest)}")
    if options.command == "build":
        if isinstance(select(options.name)[0], LocalProvider):
            ensure_packages()
            built()
        return
    if options.command == "image":
        build_args = dict(pair.split("=", 1) for pair in options.build_arg)
        print(images.build(options.tag, options.containerfile, options.context.resolve(), build_args))
        return
    provider, reason = select(options.name)
    if options.command in {"load", "exec", "kubectl", "helm"} and not provider.kubeconfig.exists():
        raise HarnessError(f"{provider.what} is not up; use `up`")
    match options.command:
        case "up":
            print(f"using {provider.what}: {reason}", flush=True)
            provider.up(options.nodes)
            print(f"export KUBECONFIG={provider.kubeconfig}")
        case "down":
            provider.down()
        case "status":
            print(provider.status())
        case "kubeconfig":
            print(provider.kubeconfig)
        case "load":
            for archive in options.archives:
                provider.load(archive.resolve())
        case "exec":
            print(provider.execute(options.node, options.argv, timeout=EXECUTE_TIMEOUT_S), end="")
        case tool:
            os.execve(provider.tool(tool), [tool, *rest], {**os.environ, **provider.environment})


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; `down` removes what there is, `up` begins anew")
