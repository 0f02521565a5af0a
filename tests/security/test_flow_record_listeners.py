"""Attack: applications read, forge or command flow records in a network whose FlowLog says nothing about security.

They come without a certificate, with certificates of the network's own authority, or with that of a Router.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.flow_log.traffic import PATIENCE, Flow, await_counts, counted
from tests.integration.support.certificates import Identity
from tests.integration.support.client import Client, Clients
from tests.integration.support.flow_collector import FlowCollector
from tests.integration.support.isthmus import Isthmus
from tests.integration.support.routers import eventually

from isthmus_operator.authority import Authority, Names
from isthmus_operator.authority.issue import issue

pytestmark = pytest.mark.timeout(400)
UNAUTHORIZED = "amqp:unauthorized-access"
COLLECTORS = "hub-0/collectors/flow-records"
HUB = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: hub}
spec:
  flowIntervalSeconds: 1
  listeners:
    - {name: amqp, port: 5672, idleTimeoutSeconds: 0}
    - {name: inter-router, role: inter-router, port: 55672}
    - {name: edge, role: edge, port: 45672}
"""
GOVERNED = f"""{HUB}
  policy:
    defaultGroup: {{sources: ["#"], targets: ["#"]}}
"""
FLOWS = """
apiVersion: isthmus.dev/v1alpha1
kind: FlowLog
metadata: {name: flows}
spec:
  routerRef: {name: hub}
  volume: {size: 1Gi}
  rotation: {seconds: 5}
"""
SHARED = FLOWS.replace("{name: hub}", "{name: hub, listener: amqp}")
FOREIGN_NAMES = (
    "app",
    "flows",
    "hub",
    "flows-flowlog.example",
    "x.flows-flowlog",
    "*.flows-flowlog",
    "flows-flowlog2",
    "collectors-of-flow-records",
)


@pytest.fixture
def isthmus(tmp_path: Path) -> Iterator[Isthmus]:
    command = Isthmus(tmp_path)
    yield command
    command("local", "down", "--all")


def ports(isthmus: Isthmus) -> dict[str, int]:
    found: dict[str, int] = json.loads((isthmus.folder / "network.json").read_text())["ports"]
    return found


def application(isthmus: Isthmus, folder: Path, name: str) -> Identity:
    """A certificate of the network's own authority."""
    document = json.loads((isthmus.folder / "authority.json").read_text())
    authority = Authority.of({key: base64.b64decode(text) for key, text in document.items()})
    data = issue(authority, Names(name), datetime.now(UTC))
    folder = folder / name.replace("*", "any")
    folder.mkdir(exist_ok=True)
    for key, content in data.items():
        (folder / key).write_bytes(content)
    return Identity(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")


def of_process(isthmus: Isthmus, name: str, prefix: str = "") -> Identity:
    files = isthmus.folder / "routers" / name / "files"
    return Identity(*(files / f"{prefix}{key}" for key in ("tls.crt", "tls.key", "ca.crt")))


class Log:
    """What the collector of a local network has written, and whether it collects."""

    def __init__(self, isthmus: Isthmus) -> None:
        self._isthmus = isthmus
        folder = isthmus.folder / "routers" / "flows-flowlog"
        self._settings = json.loads((folder / "config.json").read_text())
        self.rows = FlowCollector(folder / "unused")
        self.rows.log_folder = Path(self._settings["log"])
        self.rows.http_port = self._settings["httpPort"]

    @property
    def pid(self) -> int:
        processes = self._isthmus.processes()["routers"]
        return int(processes["flows-flowlog"]["process"]["pid"])

    def _status(self) -> dict[str, Any]:
        code, text = self.rows.get("/status")
        return dict(json.loads(text)) if code == 200 else {}

    def collects(self) -> None:
        eventually(lambda: self._status().get("routers") == 1, "the router is heard", PATIENCE)

    def sources(self) -> set[str]:
        return {row["identity"] for row in self.rows.rows("records", type="ROUTER")}


def assert_no_flow_records(client: Client, source: str) -> None:
    """Whatever the client attaches to, in whatever spelling."""
    for address in (
        "mc/sfe.all",
        f"mc/sfe.{source}",
        f"mc/sfe.{source}.flows",
        "/mc/sfe.all",
        "amqp:/mc/sfe.all",
        "amqp://hub/mc/sfe.all/",
        "_$phase.1/mc/sfe.all",
    ):
        assert client.refusal(client.receiver(address, credit=10, wait=False).link).name == UNAUTHORIZED
        assert client.refusal(client.sender(address, wait=False).link).name == UNAUTHORIZED
    for address in (f"sfe.{source}", f"amqp:/sfe.{source}"):
        assert client.refusal(client.sender(address, wait=False).link).name == UNAUTHORIZED
        assert client.refusal(client.receiver(address, credit=10, wait=False).link).name == UNAUTHORIZED


def is_refused(clients: Clients, to: int, **how: Any) -> bool:
    """Whether the router does not open the connection, or closes it."""
    client = clients.connect(to, wait=False, **how)
    link = client.receiver("mc/sfe.all", credit=10, wait=False).link
    clients.until(
        lambda: client.finished or client.connection.remote_condition or link.remote_source.address,
        "the connection is refused or closed, or the link is attached",
    )
    refused = bool(client.finished or client.connection.remote_condition)
    client.connection.close()
    return refused


@pytest.mark.parametrize("hub", [HUB, GOVERNED], ids=["open", "policy"])
def test_applications_reach_flow_records_on_no_listener(
    isthmus: Isthmus, clients: Clients, tmp_path: Path, hub: str
) -> None:
    isthmus.up(hub, FLOWS)
    at, log = ports(isthmus), Log(isthmus)
    log.collects()
    flow = Flow(clients, at["hub-0/amqp"], at["hub-0/amqp"])
    flow.send(50)
    clients.until(log.sources, "the record of the router", PATIENCE)
    (source,) = log.sources()
    to = at[COLLECTORS]
    strangers = [application(isthmus, tmp_path, name) for name in FOREIGN_NAMES]
    router = of_process(isthmus, "hub-0", "hub_router_1-")
    assert is_refused(clients, to), "without TLS"
    assert is_refused(clients, to, tls=router.client_domain(present=False)), "without a certificate"
    for identity in (*strangers, router):
        assert is_refused(clients, to, tls=identity.client_domain(), mechanisms="EXTERNAL")
        assert is_refused(clients, to, tls=identity.client_domain(), mechanisms="ANONYMOUS")
    assert_no_flow_records(clients.connect(at["hub-0/amqp"]), source)
    for listener in ("inter-router", "edge"):
        for identity in (*strangers[:1], of_process(isthmus, "flows-flowlog")):
            assert is_refused(
                clients, at[f"hub-0/{listener}"], tls=identity.client_domain(), mechanisms="EXTERNAL"
            )
    flow.send(50)
    await_counts(log.rows, flow, clients, **{"in": "hub-0", "out": "hub-0"})
    assert [item for item in isthmus.document("hub-0")["listeners"] if "flow-records" in item["name"]]
    shown = isthmus("local", "status").stdout
    assert "FlowLog" not in shown.partition("Insecure")[2], shown


def test_a_collector_does_only_what_it_needs_under_a_policy(isthmus: Isthmus, clients: Clients) -> None:
    isthmus.up(GOVERNED, FLOWS)
    identity = of_process(isthmus, "flows-flowlog")
    client = clients.connect(ports(isthmus)[COLLECTORS], tls=identity.client_domain(), mechanisms="EXTERNAL")
    client.attached(client.receiver("mc/sfe.all", credit=1).link)
    client.attached(client.sender("sfe.abcde:0").link)
    for link in (
        client.receiver("orders", wait=False).link,
        client.receiver("sfe.abcde:0", wait=False).link,
        client.receiver(None, dynamic=True, wait=False).link,
        client.sender("orders", wait=False).link,
        client.sender("mc/sfe.all", wait=False).link,
        client.sender("$management", wait=False).link,
        client.sender(None, wait=False).link,
    ):
        assert client.refusal(link).name == UNAUTHORIZED


def test_flow_records_leave_a_shared_listener_without_its_applications(
    isthmus: Isthmus, clients: Clients
) -> None:
    """As when a FlowLog of an earlier version is upgraded: nothing of its log is missing."""
    isthmus.up(HUB, SHARED)
    at, log = ports(isthmus), Log(isthmus)
    log.collects()
    assert "anybody may receive the flow records" in isthmus("local", "status").stdout
    flow = Flow(clients, at["hub-0/amqp"], at["hub-0/amqp"])
    spy = clients.connect(at["hub-0/amqp"])
    spy.attached(spy.receiver("mc/sfe.all", credit=10).link)
    flow.send(100)
    isthmus.up(HUB, FLOWS)
    flow.send(100)
    condition = spy.await_end()
    assert condition is not None
    assert condition.name == UNAUTHORIZED
    log.collects()
    flow.send(100)
    await_counts(log.rows, flow, clients, **{"in": "hub-0", "out": "hub-0"})
    (source,) = log.sources()
    assert_no_flow_records(clients.connect(at["hub-0/amqp"]), source)
    assert "flow records" not in isthmus("local", "status").stdout


def test_the_certificate_of_a_collector_is_replaced_in_traffic(isthmus: Isthmus, clients: Clients) -> None:
    isthmus.up(HUB, FLOWS)
    at, log = ports(isthmus), Log(isthmus)
    log.collects()
    process = log.pid
    flow = Flow(clients, at["hub-0/amqp"], at["hub-0/amqp"])
    flow.send(100)
    clients.until(lambda: counted(log.rows, flow, **{"in": "hub-0"}), "what was before", PATIENCE)
    before = of_process(isthmus, "flows-flowlog").certificate.read_bytes()
    (isthmus.folder / "authority.json").unlink()
    isthmus.up(HUB, FLOWS)
    assert of_process(isthmus, "flows-flowlog").certificate.read_bytes() != before

    def connections() -> int:
        return len(log.rows.rows("records", type="CONNECTION", user="flows-flowlog"))

    while connections() < 2:
        flow.send(20)
    flow.send(100)
    await_counts(log.rows, flow, clients, **{"in": "hub-0", "out": "hub-0"})
    rows = log.rows.rows("deliveries", address="orders", direction="in")
    assert sorted(row["sequence"] for row in rows) == list(range(1, len(rows) + 1))
    assert log.pid == process, "the process goes on"
    assert log.rows.get("/readyz")[0] == 200
