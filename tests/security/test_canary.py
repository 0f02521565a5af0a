"""The canary that accompanies every attack reports what happened to its messages."""

import os
import signal
import time

from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers, eventually
from tests.security.support.canary import Canary, cpu, main_thread_cpu, memory


def test_canary_of_an_idle_router_loses_nothing(routers: Routers, clients: Clients) -> None:
    router = routers.start("A")
    with Canary(router) as canary:
        clients.connect(router.port).receiver("elsewhere")
        time.sleep(0.3)  # a canary needs time to send; nothing is awaited
    canary.report.check(at_least=10)
    assert canary.report.longest >= canary.report.p99 >= canary.report.p50 > 0
    assert canary.report.most_cpu_seconds < main_thread_cpu(router.pid)
    assert memory(router.pid) > 1 << 20
    assert cpu(router.pid) > 0 < main_thread_cpu(router.pid)


def test_canary_shows_a_router_that_stands_still(routers: Routers) -> None:
    router = routers.start("A")
    with Canary(router, rate=50) as canary:
        os.kill(router.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(router.pid, signal.SIGCONT)
    canary.report.check()
    assert canary.report.longest > 0.4
    assert canary.report.most_cpu_seconds < 0.4


def test_canary_shows_a_router_that_ends(routers: Routers) -> None:
    router = routers.start("A")
    with Canary(router) as canary:
        router.kill()
        eventually(lambda: canary.has_ended, "the end of its connections")
    assert canary.report.failure
