"""The example of flow logs on this machine: what clients send is in the report, also after the collector was killed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from tests.integration.support.client import Clients
from tests.integration.support.foreign import REPOSITORY
from tests.integration.support.isthmus import Isthmus
from tests.integration.support.routers import eventually

EXAMPLE = REPOSITORY / "examples" / "flows.yaml"
ANALYSIS_S = 400.0
"""Of Spark, on a busy machine."""
pytestmark = pytest.mark.timeout(ANALYSIS_S + 120)
COUNT = 200


@pytest.fixture
def clients() -> Iterator[Clients]:
    found = Clients()
    yield found
    found.close()


def ports(isthmus: Isthmus) -> dict[str, int]:
    found = {row["id"]: urlsplit(row["endpoints"][0]).port for row in isthmus.status()["routers"]}
    return {name: port for name, port in found.items() if port is not None}


def pour(clients: Clients, at: dict[str, int]) -> None:
    """Messages from the edge to the other site, all of which are accepted."""
    reader, writer = clients.connect(at["london-1"]), clients.connect(at["shop-0"])
    receiver = reader.receiver("orders", credit=2 * COUNT, accept=True)
    sender = writer.sender("orders")
    for number in range(COUNT):
        while sender.deliver(f"{number}") != "accepted":
            pass  # the way to the receiver is not known everywhere yet
    clients.until(lambda: len(receiver.received) == COUNT, "all messages")
    reader.close()
    writer.close()


def logged(log: Path) -> Counter[tuple[str, str]]:
    """Messages accepted on links that have ended, as the files of the log have them, by site and direction."""
    found: Counter[tuple[str, str]] = Counter()
    for path in log.glob("records/**/[!.]*.parquet"):
        for row in pq.ParquetFile(path).read(["address", "accepted", "site", "direction"]).to_pylist():
            if row["address"] == "orders" and row["accepted"] is not None:
                found[row["site"], row["direction"]] += row["accepted"]
    return found


def test_the_report_has_what_clients_sent(isthmus: Isthmus, clients: Clients) -> None:
    text = EXAMPLE.read_text()
    assert "rotation: {seconds: 30}" in text
    text = text.replace("rotation: {seconds: 30}", "rotation: {seconds: 5}")
    said = isthmus.up(text)
    assert "not run here, but by `isthmus flows report`: FlowAnalysis hourly" in isthmus.try_up(text).stderr
    assert "flows-flowlog" in said

    def log() -> dict[str, object]:
        (row,) = isthmus.status()["flowLogs"]
        return dict(row)

    eventually(lambda: (log()["state"], log()["routers"]) == ("ready", 3), "all routers are heard")
    at = ports(isthmus)
    pour(clients, at)
    pid = int(str(log()["where"]).removeprefix("pid "))
    os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: log()["where"] not in ("-", f"pid {pid}") and log()["routers"] == 3, "another collector"
    )
    pour(clients, at)
    folder = isthmus.folder.parents[1] / "flow-logs" / "default" / "flows"
    # Routers tell of a link when it has ended, and what they have not told when they end is not in the log.
    sent = {("shop", "in"): 2 * COUNT, ("london", "out"): 2 * COUNT}
    eventually(lambda: logged(folder) == sent, "all messages are in the log")
    down = isthmus("local", "down")
    assert down.returncode == 0, down.stderr

    done = isthmus("flows", "report", "--no-open", "--last", "1h", "--bucket", "10s", timeout=ANALYSIS_S)
    assert done.returncode == 0, done.stderr
    page = Path(done.stdout.rpartition("report: ")[2].strip())
    assert "orders at" in done.stdout
    summary = json.loads((page.parent / "summary.json").read_text())
    rows = {
        (row["site"], row["direction"]): row
        for row in summary["tables"]["traffic_matrix"]
        if row["address"] == "orders"
    }
    assert rows["shop", "in"]["accepted"] == rows["london", "out"]["accepted"] == 2 * COUNT
    assert "orders" in page.read_text()
    assert summary["quality"][0]["quarantined_rows"] == 0
