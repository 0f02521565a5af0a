"""Another site has the relay send it again what is retained for a third site, as often as it likes.

The canary is a stream of messages between clients of the relay.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.other_site import OtherSite

MESSAGE_BYTES = 30_000
MESSAGES = 1_000
REQUESTS = 6
MOST_CPU_SECONDS = 0.03
"""That the router spends on anything while a message of the canary is on its way. To encrypt all that is retained takes
0.08 to 0.3."""


def with_two_remotes(routers: Routers, authority: Authority) -> tuple[Router, int]:
    """The only member of a site; `mia` is not reachable, and `lon` dials the port of the bridge."""
    router = routers.add("nyc-0", authority.issue("nyc-0").profile("tls"))
    sites = RelaySites()
    sites.site("nyc", router, plainText=False, sslProfile="tls", bridgeSslProfile="tls")
    router.sections += [
        ("relayRemote", {"site": "lon"}),
        ("relayRemote", {"site": "mia", "endpoints": f"127.0.0.1:{free_port()}"}),
    ]
    routers.start_all()
    eventually(lambda: router.status()["relay"]["members"], "the site has a relay")
    return router, next(
        int(str(values["bridgePort"])) for kind, values in router.sections if kind == "relaySite"
    )


def test_batches_that_a_site_asks_for_again_are_sent_in_small_steps(
    routers: Routers, clients: Clients, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "own")
    router, port = with_two_remotes(routers, authority)
    identity = authority.issue("lon")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(identity.certificate, identity.key)
    with OtherSite(port, tls, GROUP, "lon", "nyc") as lon:
        sender = clients.connect(router.port).sender(f"relay/{GROUP}")
        for _ in range(MESSAGES):
            sender.await_credit().send("x" * MESSAGE_BYTES)
        total = MESSAGES * MESSAGE_BYTES
        clients.until(lambda: lon.received >= total, "the site has everything")
        with Canary(router) as canary:
            for request in range(REQUESTS):
                lon.ask_again(1 << 20)
                lon.reads = request % 2 == 0
                time.sleep(0.3)
                lon.reads = True
                time.sleep(0.7)
        canary.report.check()
        assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS
        before = lon.received
        lon.ask_again(1 << 20)
        eventually(lambda: lon.received >= before + total, "all is repeated", 30)
        assert lon.open
