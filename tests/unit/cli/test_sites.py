"""Sites and gossip routers on this machine, and how `isthmus status` shows sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_view import address, drawn, report, status

from isthmus_cli.local.deploy import write
from isthmus_cli.local.probe import gossip_rows, service_troubles
from isthmus_cli.local.state import NetworkState
from isthmus_cli.local.supervisor import Supervisor
from isthmus_cli.local.wanted import config_path
from isthmus_cli.manifests import Manifests, load
from isthmus_cli.view import as_json, gossip_router_row, network_view, relay_site_row
from isthmus_router.config import Discovery, RelaySiteConfig
from isthmus_router.config import load as load_configuration

EXAMPLE = Path(__file__).parents[3] / "examples" / "sites.yaml"
GOSSIP = """
apiVersion: isthmus.dev/v1alpha1
kind: GossipRouter
metadata: {name: g}
spec: {replicas: 2, expirySeconds: 7}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NetworkState:
    monkeypatch.setenv("ISTHMUS_STATE_DIR", str(tmp_path / "state"))
    return NetworkState("test")


def manifests(tmp_path: Path, text: str) -> Manifests:
    file = tmp_path / "network.yaml"
    file.write_text(text)
    return load([str(file)])


def site_of(state: NetworkState, router: str) -> RelaySiteConfig:
    found = load_configuration(str(config_path(state, router))).relay_site
    assert found is not None
    return found


def test_a_host_list_is_that_of_the_processes(state: NetworkState, tmp_path: Path) -> None:
    discovery = (
        "  discovery: {type: hostList, hosts: [nyc-0.nyc-mesh], portRange: 3}\n  group: trades\n  site: nyc\n"
    )
    text = EXAMPLE.read_text().replace("  group: trades\n  site: nyc\n", discovery)
    network = write(state, manifests(tmp_path, text))
    assert network.findings == ()
    sites = [site_of(state, f"nyc-{number}") for number in range(3)]
    for own in sites:
        assert set(own.whom_to_ask) == {("127.0.0.1", each.member_port) for each in sites}
        assert own.port_range == 0, "ports beside them are other processes'"


def test_members_and_sites_find_each_other_by_the_ports_of_their_processes(
    state: NetworkState, tmp_path: Path
) -> None:
    network = write(state, manifests(tmp_path, EXAMPLE.read_text()))
    assert network.findings == ()
    assert network.sites == ("nyc", "sfo")
    sites = {router.id: site_of(state, router.id) for router in network.routers}
    assert set(sites) == {"nyc-0", "nyc-1", "nyc-2", "sfo-0", "sfo-1", "sfo-2"}
    ports = [port for site in sites.values() for port in (site.member_port, site.bridge_port)]
    assert len(set(ports)) == 12
    members = {("127.0.0.1", sites[f"nyc-{number}"].member_port) for number in range(3)}
    bridges = {("127.0.0.1", sites[f"nyc-{number}"].bridge_port) for number in range(3)}
    for number in range(3):
        own = sites[f"nyc-{number}"]
        assert (own.member_host, own.discovery, own.domain) == ("127.0.0.1", Discovery.HOST_LIST, "test/nyc")
        assert set(own.whom_to_ask) == members
        (remote,) = load_configuration(str(config_path(state, f"sfo-{number}"))).relay_remotes
        assert set(remote.bridges) == bridges


def test_gossip_routers_are_processes_that_members_ask(state: NetworkState, tmp_path: Path) -> None:
    discovery = "  discovery: {type: tunnel, gossipRouterRef: {name: g}}\n  group: trades\n  site: nyc\n"
    text = EXAMPLE.read_text().replace("  group: trades\n  site: nyc\n", discovery)
    network = write(state, manifests(tmp_path, f"{text}---\n{GOSSIP}"))
    assert network.findings == ()
    assert network == state.network(), "it is read as it was written"
    assert [item.id for item in network.services] == ["g-gossip-0", "g-gossip-1"]
    asked = {port for _, port in site_of(state, "nyc-0").whom_to_ask}
    listening = {network.ports[f"{item.id}/gossip"] for item in network.services}
    assert asked == listening
    command = Supervisor("test").command("g-gossip-1")
    assert command[0] == "isthmus_router.gossip"
    assert {"--expiry=7", f"--port={network.ports['g-gossip-1/gossip']}"} < set(command)
    assert "--plain-text" not in command
    own = site_of(state, "nyc-0")
    assert (own.without_tls, own.plain_text, own.gossip_ssl_profile) == ((), False, own.ssl_profile)
    assert Supervisor("test").command("nyc-0")[0] == "isthmus_router"
    rows = gossip_rows(state, network)
    assert [(row.name, row.state, row.ready, row.where) for row in rows] == [
        ("g-gossip-0", "down", "0/1", "-"),
        ("g-gossip-1", "down", "0/1", "-"),
    ]
    shown = " ".join(drawn(network_view("n", "p", [], gossip_routers=rows)).split())
    assert f"g-gossip-0 down 0/1 127.0.0.1:{network.ports['g-gossip-0/gossip']} -" in shown
    assert service_troubles(state, network)[0] == "GossipRouter g: NotRunning: g-gossip-0 is not running"


def test_a_gossip_router_without_its_certificates_is_told(state: NetworkState, tmp_path: Path) -> None:
    text = GOSSIP.replace("replicas: 2", "tls: {secretName: net}")
    network = write(state, manifests(tmp_path, text))
    assert network.services == ()
    assert network.findings == ('GossipRouter g: SecretNotFound: Secret "net" does not exist',)


def site(ready: str, reason: str, message: str, **status: Any) -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": ready, "reason": reason, "message": message},
        {"type": "Bridged", "status": ready, "reason": reason, "message": "1 remote site up"},
    ]
    spec = {"routerRef": {"name": "east"}, "group": "trades", "site": "nyc"}
    return {"metadata": {"name": "new-york"}, "spec": spec, "status": {"conditions": conditions, **status}}


def test_a_site_is_shown_with_its_remote_sites_and_their_lag() -> None:
    remote = {
        "state": "up",
        "members": ["w-0", "w-1"],
        "lagMessages": 12,
        "lagMilliseconds": 340,
        "dropped": 5,
        "bufferedBytes": 300,
        "replayed": 9,
        "duplicates": 8,
        "gaps": 7,
    }
    remotes = [{"site": "sfo", **remote}, {"site": "lon", "state": "unreachable"}]
    members = [{"id": name, "name": name, "relay": name == "east-0"} for name in ("east-0", "east-1")]
    found = {"formed": "2/2", "coordinator": "east-0", "view": "7 of east-0", "members": members}
    manifest = site("True", "Ready", "", remoteSites=remotes, **found)
    manifest["spec"]["buffer"] = {"messages": 100, "bytes": 1000, "seconds": 60}
    row = relay_site_row(manifest)
    assert (row.state, row.message) == ("ready", "1 remote site up")
    view = network_view("n", "p", [report(status("a-0"))], sites=[row])
    shown = " ".join(drawn(view).split())
    own = "new-york trades nyc ready 2/2 east-0 east-0 7 of east-0 4"
    assert f"{own} sfo up 2 12 340 5 30% 9 8 7 lon unreachable 0 0 0 0 0% 0 0 0" in shown
    assert as_json(view)["sites"][0]["remotes"][0]["lagMessages"] == 12


def test_a_gossip_router_of_a_cluster_is_shown() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "ReplicasMissing", "message": "1 of 2"}
    status = {"readyReplicas": 1, "endpoint": "g-gossip.net.svc:12001", "conditions": [ready]}
    row = gossip_router_row({"metadata": {"name": "g"}, "spec": {"replicas": 2}, "status": status})
    view = network_view("n", "p", [], gossip_routers=[row])
    assert "g ReplicasMissing 1/2 g-gossip.net.svc:12001 -" in " ".join(drawn(view).split())
    assert as_json(view)["gossipRouters"][0]["address"] == "g-gossip.net.svc:12001"


def test_addresses_of_groups_without_consumers_do_not_bury_the_others() -> None:
    rows = [address(f"relay/trades/m-{number}", 0) for number in range(20)]
    rows += [address("relay/trades", 2), address("stock", 0)]
    shown = drawn(network_view("n", "p", [report(status("a-0", addresses=rows))]))
    assert "relay/trades/m-" not in shown
    assert "stock" in shown
    assert " ".join(shown.split()).endswith("20 relay/... without consumers are not shown")


def test_where_a_router_tells_its_status_is_shown() -> None:
    view = network_view("n", "p", [report(status("a-0"), http="http://127.0.0.1:20009")])
    assert "http://127.0.0.1:20009" in drawn(view)
    assert as_json(view)["routers"][0]["http"] == "http://127.0.0.1:20009"


def test_a_site_that_nobody_has_looked_at() -> None:
    row = relay_site_row({"metadata": {"name": "x"}, "spec": site("", "", "")["spec"]})
    assert (row.state, row.formed, row.remotes) == ("unknown", "-", ())
    assert "x trades nyc unknown - -" in " ".join(drawn(network_view("n", "p", [], sites=[row])).split())


def test_sites_have_certificates_of_the_networks_own_authority(state: NetworkState, tmp_path: Path) -> None:
    assert write(state, manifests(tmp_path, EXAMPLE.read_text())).findings == ()
    for router, other in (("nyc", "sfo"), ("sfo", "nyc")):
        site = site_of(state, f"{router}-0")
        assert site.without_tls == ()
        assert (site.plain_text, site.bind_names, site.peer_names) == (False, True, (router,))
        (remote,) = load_configuration(str(config_path(state, f"{router}-0"))).relay_remotes
        assert remote.peer_names == (other,)


def test_sites_in_clear_text_state_it(state: NetworkState, tmp_path: Path) -> None:
    clear = "  tls: {disabled: true}\n  bridge: {tls: {disabled: true}}\n  group: trades\n"
    text = EXAMPLE.read_text().replace("  group: trades\n", clear)
    assert write(state, manifests(tmp_path, text)).findings == ()
    site = site_of(state, "nyc-0")
    assert site.plain_text
    assert site.without_tls == ("members", "bridge")
