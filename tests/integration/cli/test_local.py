"""`isthmus local` as a person uses it: the command, real routers, real clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.integration.support.certificates import Authority
from tests.integration.support.isthmus import EAST, LINK, TIMEOUT, WEST, Isthmus, secret_with

from isthmus_cli.demo.clients import Crew, Service, ask


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def request(source: str, target: str) -> int:
    """One request from a client at `source` to a service at `target`; the number answered."""
    service = Service(target, "greetings")
    crew = Crew(30)
    try:
        crew.start(service)
        ask(source, "greetings", 1, 30)
    finally:
        crew.stop()
    return service.answered


def test_up_status_down(isthmus: Isthmus) -> None:
    output = isthmus.up(EAST, WEST, LINK)
    assert "started: east-0, west-0" in output
    assert "2 of 2 routers ready, 1 of 1 link open" in output
    document = isthmus.status()
    assert document["ready"] is True
    assert {router["id"]: router["neighbors"] for router in document["routers"]} == {
        "east-0": ["west-0"],
        "west-0": ["east-0"],
    }
    urls = {router["id"]: router["endpoints"][0] for router in document["routers"]}
    assert request(urls["east-0"], urls["west-0"]) == 1
    pids = [isthmus.pid("east-0"), isthmus.pid("west-0"), isthmus.processes()["supervisor"]["pid"]]
    done = isthmus("local", "down")
    assert "2 routers ended" in done.stdout
    assert not [pid for pid in pids if running(pid)]
    assert not isthmus.folder.exists()
    again = isthmus("local", "down")
    assert (again.returncode, again.stdout) == (0, "network default is not there: nothing to do\n")


def test_a_change_is_applied_to_running_routers(isthmus: Isthmus) -> None:
    isthmus.up(EAST, WEST)
    pids = {name: isthmus.pid(name) for name in ("east-0", "west-0")}
    change = "  addresses: [{prefix: news, distribution: multicast}]\n  defaultDistribution: closest\n"
    output = isthmus.up(EAST + change, WEST, LINK)
    assert "changed while running: east-0, west-0" in output, (
        "west accepts the certificate of east from now on"
    )
    assert isthmus.router("east-0")["neighbors"] == ["west-0"]
    assert pids == {name: isthmus.pid(name) for name in pids}
    assert "stopped: west-0" in isthmus.up(EAST)
    assert not running(pids["west-0"])
    assert isthmus.pid("east-0") == pids["east-0"]
    assert [router["id"] for router in isthmus.status()["routers"]] == ["east-0"]


def test_what_cannot_change_while_running_restarts_that_router_only(isthmus: Isthmus) -> None:
    isthmus.up(EAST, WEST)
    pids = {name: isthmus.pid(name) for name in ("east-0", "west-0")}
    assert "restarted: east-0" in isthmus.up(EAST + "  site: orient\n", WEST)
    assert isthmus.pid("east-0") != pids["east-0"]
    assert isthmus.pid("west-0") == pids["west-0"]


def test_a_router_that_ends_is_started_again(isthmus: Isthmus) -> None:
    isthmus.up(EAST, WEST, LINK)
    first = isthmus.router("east-0")
    os.kill(isthmus.pid("east-0"), signal.SIGKILL)
    isthmus.eventually(
        "restarted", lambda: isthmus.router("east-0")["restarts"] == 1 and isthmus.status()["ready"]
    )
    second = isthmus.router("east-0")
    assert second["where"] != first["where"]
    assert second["endpoints"] == first["endpoints"]


def test_down_after_the_supervisor_was_killed(isthmus: Isthmus) -> None:
    isthmus.up(EAST)
    router, supervisor = isthmus.pid("east-0"), isthmus.processes()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGKILL)
    isthmus.eventually("supervisor gone", lambda: not running(supervisor))
    assert running(router)
    assert "the supervisor is not running" in isthmus.status()["problems"][0]
    assert "1 router ended" in isthmus("local", "down").stdout
    assert not running(router)


def test_up_after_the_supervisor_was_killed_starts_only_what_is_missing(isthmus: Isthmus) -> None:
    isthmus.up(EAST, WEST)
    east, west = isthmus.pid("east-0"), isthmus.pid("west-0")
    url = isthmus.router("east-0")["endpoints"][0]
    supervisor = isthmus.processes()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGKILL)
    isthmus.eventually("supervisor gone", lambda: not running(supervisor))
    os.kill(west, signal.SIGKILL)
    isthmus.eventually("router gone", lambda: not running(west))
    assert "started: west-0\n" in isthmus.up(EAST, WEST, LINK)
    assert isthmus.pid("east-0") == east
    assert isthmus.router("east-0")["endpoints"] == [url]
    assert isthmus.status()["ready"] is True
    # What was taken over is kept, changed and ended like any other.
    os.kill(east, signal.SIGKILL)
    isthmus.eventually("restarted", lambda: isthmus.router("east-0")["restarts"] == 1)
    isthmus.eventually("ready", lambda: bool(isthmus.status()["ready"]))


def test_a_router_that_was_taken_over_restarts_and_stops(isthmus: Isthmus) -> None:
    isthmus.up(EAST, WEST)
    east, west = isthmus.pid("east-0"), isthmus.pid("west-0")
    supervisor = isthmus.processes()["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGKILL)
    isthmus.eventually("supervisor gone", lambda: not running(supervisor))
    output = isthmus.up(EAST + "  site: orient\n")
    assert "restarted: east-0" in output
    assert "stopped: west-0" in output
    assert isthmus.pid("east-0") != east
    assert not running(east)
    assert not running(west)


def test_a_reference_to_nothing_is_shown_and_heals(isthmus: Isthmus) -> None:
    done = isthmus.try_up(EAST, LINK)
    assert done.returncode == 1
    assert 'Connector east-west: Pending: Router "west" (spec.to.routerRef) does not exist' in done.stdout
    assert "not everything is well, see Problems above" in done.stderr
    assert isthmus.status()["ready"] is False
    isthmus.up(EAST, WEST, LINK)
    assert isthmus.status()["problems"] == []


def test_up_tells_of_a_link_that_failed(isthmus: Isthmus) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    elsewhere = LINK.replace("{routerRef: {name: west}}", f"{{host: localhost, port: {port}}}")
    done = isthmus.try_up(EAST, elsewhere)
    assert done.returncode == 1
    assert "Connector east-west: TlsRequired: " in " ".join(done.stdout.split()), (
        "clear text has to be stated"
    )
    done = isthmus.try_up(EAST, elsewhere + "  tls: {disabled: true}\n")
    assert done.returncode == 1
    assert f"router east-0: connector east-west to localhost:{port} is failed" in " ".join(
        done.stdout.split()
    )


def test_two_networks_beside_each_other(isthmus: Isthmus, tmp_path: Path) -> None:
    isthmus.up(EAST)
    other = isthmus("local", "up", "-N", "other", str(tmp_path / "net.yaml"))
    assert other.returncode == 0, other.stdout + other.stderr
    isthmus("local", "down", "-N", "other")
    assert isthmus.status()["ready"] is True


def test_mistakes_change_nothing(isthmus: Isthmus, tmp_path: Path) -> None:
    isthmus.up(EAST)
    bad = tmp_path / "bad.yaml"
    bad.write_text(EAST.replace("mode", "mood"))
    done = isthmus("local", "up", str(bad))
    assert done.returncode == 1
    assert f'{bad}:6: document 1, Router "east": spec.mood: unknown field; did you mean mode?' in done.stderr
    assert isthmus.status()["ready"] is True


def test_a_port_that_somebody_took_is_named(isthmus: Isthmus) -> None:
    isthmus.up(EAST)
    port = int(isthmus.router("east-0")["endpoints"][0].rpartition(":")[2])
    pid = isthmus.pid("east-0")
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        isthmus.eventually("port taken", lambda: took(thief, port))
        isthmus.eventually("named", lambda: any(f":{port}" in text for text in isthmus.status()["problems"]))


def took(thief: socket.socket, port: int) -> bool:
    try:
        thief.bind(("127.0.0.1", port))
    except OSError:
        return False
    thief.listen()
    return True


def test_links_with_certificates(isthmus: Isthmus, tmp_path: Path) -> None:
    """Secrets in the files become key material of the routers; the mesh and a connector use it."""
    authority = Authority(tmp_path, "network")
    identity = authority.issue("router")
    secret = secret_with(identity)
    tls = "{secretName: identity, requireClientCertificate: true}"
    listener = f"listeners: [{{name: links, port: 55671, role: inter-router, tls: {tls}}}]"
    east = f"{EAST}  replicas: 2\n  {listener}\n"
    link = LINK + "  tls: {secretName: identity}\n"
    isthmus.up(secret, east, f"{WEST}  {listener}\n", link)
    document = isthmus.status()
    assert document["problems"] == []
    assert {row["connector"]: row["state"] for row in document["links"]} == {
        "mesh/east-0": "open",
        "east-west": "open",
    }
    renewed = authority.issue("router")
    other = yaml.safe_load(secret)
    other["stringData"]["tls.crt"] = renewed.certificate.read_text()
    other["stringData"]["tls.key"] = renewed.key.read_text()
    output = isthmus.up(yaml.safe_dump(other), east, f"{WEST}  {listener}\n", link)
    assert "changed certificates or passwords: east-0, east-1, west-0" in output
    late = authority.issue("late", expired=True)
    other["stringData"]["tls.crt"] = late.certificate.read_text()
    other["stringData"]["tls.key"] = late.key.read_text()
    for documents, reason in (
        ([yaml.safe_dump(other)], ": the certificate in tls.crt expired at"),
        ([], " does not exist"),
    ):
        done = isthmus.try_up(*documents, east, f"{WEST}  {listener}\n", link)
        assert done.returncode == 1
        told = " ".join(done.stdout.split())
        assert "Connector east-west: Secret" in told
        assert f'Secret "identity"{reason}' in told
        assert "the routers keep the earlier certificates" in told
        document = isthmus.status()
        assert {row["state"] for row in document["links"]} == {"open"}
        assert any(reason in problem for problem in document["problems"])
    keys = list(isthmus.folder.glob("routers/*/files/*"))
    assert keys
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert "PRIVATE KEY" not in "".join(path.read_text() for path in isthmus.folder.rglob("*.log"))


def test_another_up_with_a_changed_secret_rotates_the_links(isthmus: Isthmus, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "network")
    profile = """
apiVersion: isthmus.dev/v1alpha1
kind: SslProfile
metadata: {name: network}
spec: {secretName: identity}
"""
    tls = "{sslProfile: network, requireClientCertificate: true}"
    listener = f"listeners: [{{name: links, port: 55671, role: inter-router, tls: {tls}}}]"
    routers = (f"{EAST}  replicas: 2\n  {listener}\n", f"{WEST}  {listener}\n")
    link = LINK + "  tls: {sslProfile: network}\n"
    first, second = authority.issue("first"), authority.issue("second")

    def ordinals() -> tuple[int, set[int]]:
        document = isthmus.status()
        assert document["problems"] == []
        return document["profiles"][0]["ordinal"], {row["tlsOrdinal"] for row in document["links"]}

    isthmus.up(secret_with(first), profile, *routers, link)
    assert ordinals() == (1, {1})
    assert "nothing changed" in isthmus.up(secret_with(first), profile, *routers, link)
    pids = {name: isthmus.pid(name) for name in ("east-0", "east-1", "west-0")}
    output = isthmus.up(secret_with(second), profile, *routers, link)
    assert "changed while running: east-0, east-1, west-0" in output
    isthmus.eventually("all links are on the new ordinal", lambda: ordinals() == (2, {2}))
    assert {name: isthmus.pid(name) for name in pids} == pids
    assert isthmus.status()["profiles"][0]["oldestValid"] == 1


@pytest.mark.parametrize("command", [("status",), ("status", "--watch")])
def test_status_of_nothing(isthmus: Isthmus, command: tuple[str, ...]) -> None:
    done = isthmus("local", *command)
    assert done.returncode == 1
    assert "no network 'default' is up; start one with `isthmus local up FILE...`" in done.stderr


def test_watch_follows(isthmus: Isthmus) -> None:
    isthmus.up(EAST)
    command = [
        sys.executable,
        "-m",
        "isthmus_cli",
        "local",
        "status",
        "--watch",
        "-o",
        "json",
        "--interval",
        "0.1",
    ]
    environment = {**os.environ, "ISTHMUS_STATE_DIR": str(isthmus.folder.parents[1]), "PYTHONUNBUFFERED": "1"}
    # Of a test that a shell runs in the background, the children would ignore interrupts.
    command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        documents = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=TIMEOUT) == 0
    assert all(document["ready"] for document in documents)


def test_watch_into_a_pipe_writes_a_table_each_time(isthmus: Isthmus) -> None:
    isthmus.up(EAST)
    words = [sys.executable, "-m", "isthmus_cli", "local", "status", "--watch", "--interval", "0.1"]
    environment = {**os.environ, "ISTHMUS_STATE_DIR": str(isthmus.folder.parents[1])}
    command = ["env", "--default-signal=INT", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        tables = 0
        while tables < 3:
            line = watching.stdout.readline()
            assert line, "the command ended"
            tables += line.startswith("Routers")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=TIMEOUT) == 0


def test_the_demo(isthmus: Isthmus) -> None:
    begun = time.monotonic()
    done = isthmus("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 of 200 requests were answered across both sites" in done.stdout
    assert "100 of 100 multicast messages reached each of 4 subscribers" in done.stdout
    assert time.monotonic() - begun < 60
    assert not (isthmus.folder.parent / "demo").exists()
