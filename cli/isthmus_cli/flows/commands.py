"""`isthmus flows report`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from isthmus_cli.errors import CliError
from isthmus_cli.local.state import DEFAULT_NETWORK, flow_logs_folder
from isthmus_operator.names import nearest
from isthmus_router.printable import printable

BAD_ARGUMENTS = 2
"""Exit code of the analysis if what is asked for cannot be."""
_COLOURS = {"critical": "red", "warning": "yellow", "info": "blue"}


@click.group()
def flows() -> None:
    """What flowed through a network, from its flow log."""


@flows.command()
@click.argument("flow_log", required=False, metavar="[FLOWLOG]")
@click.option("--name", "-N", default=DEFAULT_NETWORK, show_default=True, help="Name of the local network.")
@click.option("--log", help="Folder or s3a URL of another flow log, in place of one of a local network.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    help="Folder for runs; beside the log.",
)
@click.option("--last", help="The time before now that is looked at.  [default: 24h]")
@click.option("--from", "start", help="Its beginning, in place of --last: 2026-11-23T08:00:00Z.")
@click.option("--to", "end", help="Its end; now if it is left out.")
@click.option("--bucket", default="1m", show_default=True, help="Interval of rates over time.")
@click.option("--keep", default=30, show_default=True, type=click.IntRange(min=1), help="Runs that are kept.")
@click.option("--open/--no-open", "opening", default=True, help="Open the report in the browser.")
def report(
    flow_log: str | None,
    name: str,
    log: str | None,
    output: Path | None,
    last: str | None,
    start: str | None,
    end: str | None,
    bucket: str,
    keep: int,
    opening: bool,
) -> None:
    """Analyse the flow log of a local network, and open the report.

    It is the same analysis as that of a FlowAnalysis on Kubernetes, with Spark in one process. FLOWLOG is the name of
    the FlowLog; it is not needed if there is one.
    """
    if find_spec("pyspark") is None or find_spec("isthmus_flows") is None:
        raise CliError("the analysis is not installed here; install isthmus[flows] beside the command line")
    if last and start:
        raise CliError("--last is a window that ends now, --from one that begins then: give one of them")
    where = str(_folder(name, flow_log)) if log is None else log if "://" in log else str(Path(log).resolve())
    target = output or (Path(where) / "analyses" / "report" if "://" not in where else None)
    if target is None:
        raise CliError("--output is needed with a log that is not in a folder of this machine")
    window = [f"--from={start}", *([f"--to={end}"] if end else [])] if start else [f"--last={last or '24h'}"]
    words = [f"--log={where}", f"--output={target}", f"--bucket={bucket}", f"--keep={keep}", *window]
    click.echo("Spark starts, reads the log and makes the report; that takes a minute", err=True)
    found = _run(words)
    page = target / str(found["run"]) / "report.html"
    for finding in found.get("findings", ()):
        severity, text = printable(str(finding["severity"])), printable(str(finding["text"]))
        click.echo(f"{click.style(severity, fg=_COLOURS.get(severity))}: {text}")
    click.echo(f"report: {page}")
    if opening:
        webbrowser.open(page.as_uri())


def _folder(network: str, flow_log: str | None) -> Path:
    """Where the log is. Raises CliError."""
    logs = flow_logs_folder(network)
    known = sorted(item.name for item in logs.iterdir() if item.is_dir()) if logs.is_dir() else []
    if not known:
        raise CliError(
            f"the network {network!r} has no flow log; put a FlowLog into its files and run `isthmus local up` again"
        )
    if flow_log is None and len(known) > 1:
        raise CliError(f"there are several flow logs; say which: {', '.join(known)}")
    if flow_log is not None and flow_log not in known:
        close = nearest(flow_log, known)
        raise CliError(f"there is no flow log {flow_log!r}" + (f"; did you mean {close!r}?" if close else ""))
    return logs / (flow_log or known[0])


def _run(arguments: list[str]) -> dict[str, Any]:
    """Run the analysis in a process of its own; what it says at its end. Raises CliError."""
    with tempfile.TemporaryDirectory() as folder:
        said, log = Path(folder) / "said.json", Path(folder) / "log"
        words = [sys.executable, "-m", "isthmus_flows", "run", *arguments, f"--termination-log={said}"]
        with log.open("wb") as file:
            status = subprocess.run(words, stdout=file, stderr=file, check=False).returncode
        told: dict[str, Any] = json.loads(said.read_text()) if said.exists() else {}
        if status != 0:
            reason = told.get("reason") or log.read_text(errors="replace").strip()[-2000:]
            raise CliError(str(reason) if status == BAD_ARGUMENTS else f"the analysis failed: {reason}")
        return told
