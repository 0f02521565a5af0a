"""Flow logs on this machine, and how `isthmus status` shows them and analyses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.cli.test_view import drawn

from isthmus_cli.__main__ import main
from isthmus_cli.local.deploy import write
from isthmus_cli.local.probe import flow_log_rows, service_troubles
from isthmus_cli.local.state import NetworkState, flow_logs_folder
from isthmus_cli.local.supervisor import Supervisor
from isthmus_cli.local.wanted import config_path
from isthmus_cli.manifests import Manifests, load
from isthmus_cli.view import flow_analysis_row, flow_log_row, network_view
from isthmus_flowlog.collector.settings import load as load_settings
from isthmus_operator.certificates import identities

EXAMPLE = Path(__file__).parents[3] / "examples" / "flows.yaml"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NetworkState:
    monkeypatch.setenv("ISTHMUS_STATE_DIR", str(tmp_path / "state"))
    return NetworkState("test")


def manifests(tmp_path: Path, text: str) -> Manifests:
    file = tmp_path / "network.yaml"
    file.write_text(text)
    return load([str(file)])


def test_a_collector_is_a_process_with_a_folder_that_stays(state: NetworkState, tmp_path: Path) -> None:
    network = write(state, manifests(tmp_path, EXAMPLE.read_text()))
    assert network.findings == ()
    assert network == state.network(), "it is read as it was written"
    (service,) = network.services_of("FlowLog")
    settings = load_settings(config_path(state, service.id))
    assert settings.endpoints() == [("localhost", network.ports["london-0/collectors/flow-records"])]
    assert settings.tls is not None
    assert identities(Path(settings.tls.cert or "").read_bytes()) == ("flows-flowlog", "flows-flowlog")
    (endpoint,) = next(item.endpoints for item in network.routers if item.id == "london-0")
    assert endpoint == f"amqp://127.0.0.1:{network.ports['london-0/amqp']}", "clients use this one alone"
    folder = flow_logs_folder("test") / "flows"
    assert settings.log == str(folder)
    assert not folder.is_relative_to(state.folder), "`down` removes that one"
    assert (settings.httpHost, settings.httpPort) == ("127.0.0.1", network.ports["flows-flowlog/health"])
    command = Supervisor("test").command(service.id)
    assert command == ["isthmus_flowlog.collector", "-c", str(config_path(state, service.id))]
    assert service_troubles(state, network) == [
        "FlowLog flows: NotRunning: flows-flowlog is not running",
    ]
    shown = " ".join(drawn(network_view("n", "p", [], flow_logs=flow_log_rows(state, network))).split())
    assert f"flows down 0 0 0 {folder} -" in shown


def test_changed_settings_start_it_anew(state: NetworkState, tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    first = write(state, manifests(tmp_path, text)).wanted["flows-flowlog"]
    again = write(state, manifests(tmp_path, text)).wanted["flows-flowlog"]
    assert first == again
    changed = write(state, manifests(tmp_path, text.replace("seconds: 30", "seconds: 60")))
    assert changed.wanted["flows-flowlog"].restart_hash != first.restart_hash


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        (
            "spec:\n  routerRef: {name: london}",
            "spec:\n  routerRef: {name: paris}",
            'FlowLog flows: Pending: Router "paris" (spec.routerRef) does not exist',
        ),
        (
            "  volume: {size: 10Gi}",
            "  volume: {size: 10Gi}\n  tls: {secretName: net}",
            'FlowLog flows: TlsMismatch: listener "amqp" of Router "london" does not use TLS; remove spec.tls',
        ),
    ],
)
def test_what_keeps_it_from_running_is_told(
    old: str, new: str, finding: str, state: NetworkState, tmp_path: Path
) -> None:
    text = EXAMPLE.read_text()
    assert old in text
    network = write(state, manifests(tmp_path, text.replace(old, new)))
    assert network.services == ()
    assert network.findings == (finding,)


def manifest(name: str, spec: dict[str, Any], ready: str, reason: str, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "reason": reason, "message": ""}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions, **status}}


def test_how_they_are_shown() -> None:
    log = manifest(
        "flows",
        {},
        "True",
        "Ready",
        routers=3,
        rowsWritten=1200,
        messagesMissed=4,
        location="pvc:flows-flowlog",
    )
    spec = {"flowLogRef": {"name": "flows"}, "schedule": "@hourly"}
    running = manifest("hourly", spec, "True", "Ready", state="Running", percent=40, headline="all is well")
    new = manifest("new", {"flowLogRef": {"name": "flows"}}, "Unknown", "NoRun")
    view = network_view(
        "n",
        "p",
        [],
        flow_logs=[flow_log_row(log), flow_log_row(manifest("bad", {}, "False", "NotConnected"))],
        flow_analyses=[flow_analysis_row(running), flow_analysis_row(new)],
    )
    shown = " ".join(drawn(view).split())
    assert "flows ready 3 1200 4 pvc:flows-flowlog -" in shown
    assert "bad NotConnected 0 0 0 - -" in shown
    assert "hourly flows @hourly Running 40% - all is well" in shown
    assert "new flows - Pending - - -" in shown


def report(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["flows", "report", "--no-open", *words])
    return done.exit_code, done.output


def test_which_log_is_meant(state: NetworkState) -> None:
    code, said = report("--name", "test")
    assert code == 1
    assert "the network 'test' has no flow log; put a FlowLog into its files" in said
    for name in ("flows", "other"):
        (flow_logs_folder("test") / name).mkdir(parents=True)
    assert "there are several flow logs; say which: flows, other" in report("--name", "test")[1]
    assert "there is no flow log 'flow'; did you mean 'flows'?" in report("--name", "test", "flow")[1]
    assert "--output is needed" in report("--log", "s3a://bucket/flows")[1]


def test_an_analysis_that_fails_says_why(state: NetworkState, tmp_path: Path) -> None:
    code, said = report("--log", str(tmp_path), "--last", "soon")
    assert code == 1
    assert "error: argument --last: 'soon' is no duration" in said


def test_an_analysis_in_the_files_is_left_to_the_command(state: NetworkState) -> None:
    kinds = [item.kind_name for item in load([str(EXAMPLE)]).resources]
    assert "FlowAnalysis" in kinds
    assert json.dumps(kinds).count("FlowLog") == 1
