"""Fixtures: routers that end with the test, clients driven together, and router logs in failure reports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.foreign import INTEGRATION, Program, Run, c_clients, rhea_modules
from tests.integration.support.passwords import use_database, user_database
from tests.integration.support.policies import Governed
from tests.integration.support.routers import LIVE, Router, Routers, Section, address

SHOWN_LOG_CHARACTERS = 6000
# For each Java virtual machine of the tests. Most end within a minute: the second compiler and a parallel collector
# would take a third of their CPU time.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of every running router with a test that fails."""
    report = yield
    if report.failed:
        for router in LIVE:
            report.sections.append((f"log of router {router.id}", router.log[-SHOWN_LOG_CHARACTERS:]))
    return report


@pytest.fixture
def routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routers]:
    """Routers of one test."""
    started = Routers(tmp_path_factory.mktemp("routers"))
    yield started
    started.stop()


@pytest.fixture(scope="module", params=["compiled", "python"])
def either_kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Routers]]:
    """Makes Routers for the tests of one module, which run with either kernel."""
    with makers(tmp_path_factory, request.param) as make:
        yield make


@pytest.fixture(scope="module")
def compiled_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Routers]]:
    """Makes Routers for the tests of one module that measure what load costs, which is said of this kernel alone."""
    with makers(tmp_path_factory, "compiled") as make:
        yield make


@contextlib.contextmanager
def makers(folders: pytest.TempPathFactory, kernel: str) -> Iterator[Callable[[], Routers]]:
    """A function that makes Routers, which end with the context."""
    with contextlib.ExitStack() as ends:

        def make() -> Routers:
            routers = Routers(folders.mktemp(kernel), kernel=kernel)
            ends.callback(routers.stop)
            return routers

        yield make


@pytest.fixture(scope="module")
def router(either_kernel: Callable[[], Routers]) -> Router:
    """One router for all tests of a module that leave it as they found it."""
    routers = either_kernel()
    router = routers.add(
        "A",
        address("closest", "closest"),
        address("multicast", "multicast"),
        address("nobody", "unavailable"),
    )
    router.start()
    assert ("forwarding in Python" in router.log) == (routers.kernel == "python")
    assert router.metric("build_info", f'kernel="{routers.kernel}"') == 1
    return router


@pytest.fixture
def clients(routers: Routers) -> Iterator[Clients]:
    """Clients of one test; they are gone before its routers are stopped, which would wait for them."""
    connected = Clients()
    yield connected
    connected.close()


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the passwords of Alice, Bob, Carol and Mallory."""
    return user_database(tmp_path_factory.mktemp("users"), "alice", "bob", "carol", "mallory")


@pytest.fixture
def governed(routers: Routers, passwords: Path) -> Governed:
    """Starts a router whose clients have to log in."""

    def start(*sections: Section, **normal: Any) -> Router:
        router = routers.add("A", *sections, authenticatePeer=True, saslMechanisms="PLAIN", **normal)
        use_database(router, passwords)
        return router.start()

    return start


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    """Programs of one test, ended with it."""
    started: list[Program] = []
    yield started
    for program in started:
        program.stop()


@pytest.fixture
def rhea(programs: list[Program]) -> Run:
    """Start one of the scripts in `rhea/`."""
    modules = rhea_modules()

    def run(script: str, *arguments: object) -> Program:
        path = INTEGRATION / "rhea" / script
        program = Program(["node", str(path), *map(str, arguments)], {"NODE_PATH": str(modules)})
        programs.append(program)
        return program

    return run


@pytest.fixture
def c_client(programs: list[Program]) -> Run:
    """Start one of the C clients."""
    folder = c_clients()

    def run(name: str, *arguments: object) -> Program:
        program = Program([str(folder / name), *map(str, arguments)])
        programs.append(program)
        return program

    return run
