"""`isthmus-gossip-router`: run one gossip router in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TypeVar

import uvloop

from isthmus_router import __version__, stop_signals
from isthmus_router.ciphers import DEFAULT_PROTOCOLS
from isthmus_router.config.model import LogConfig
from isthmus_router.config.tables.router import LOG_LEVELS
from isthmus_router.credentials import CredentialsError, TlsFiles, WatchedFiles
from isthmus_router.descriptors import raise_limit
from isthmus_router.gossip.health import GossipHealth
from isthmus_router.gossip.server import Bounds, GossipServer
from isthmus_router.gossip.table import Limits
from isthmus_router.logs import RouterLog
from isthmus_router.transport.sockets import listening_socket

log = logging.getLogger("GOSSIP")

_Number = TypeVar("_Number", int, float)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 after SIGTERM or SIGINT, 1 where the options cannot be used."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.tls_cert is None) != (options.tls_key is None) or (options.tls_ca and not options.tls_cert):
        parser.error("--tls-cert and --tls-key go together, and with --tls-ca")
    if options.tls_crl is not None and options.tls_ca is None:
        parser.error("--tls-crl needs --tls-ca")
    if options.tls_cert is None and not options.plain_text:
        parser.error(
            "members need TLS: give --tls-cert, --tls-key and --tls-ca, or state --plain-text to allow anyone who "
            "reaches the port to register and to read what is passed on"
        )
    if options.tls_cert is not None and options.tls_ca is None and not options.anonymous_members:
        parser.error(
            "members need certificates: give --tls-ca, the authority that has signed them, or state "
            "--anonymous-members to allow anyone who reaches the port to register and to read what is passed on"
        )
    if options.tls_ca is not None and options.anonymous_members:
        parser.error("--anonymous-members contradicts --tls-ca")
    router_log = RouterLog()
    router_log.configure([LogConfig("DEFAULT", f"{options.log_level}+", True, None, None)])
    router_log.install()
    raise_limit()
    try:
        uvloop.run(run(options))
    except (CredentialsError, OSError) as error:
        log.error("gossip router cannot start", extra={"reason": str(error)})
        return 1
    return 0


async def run(options: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT. Raises CredentialsError, or OSError for an address that cannot be used."""
    loop = asyncio.get_running_loop()
    stop = stop_signals.heed(loop)
    credentials = None
    if options.tls_cert is not None:
        credentials = WatchedFiles(
            TlsFiles(
                options.tls_cert,
                options.tls_key,
                options.tls_ca,
                revocations=options.tls_crl,
                oldest_protocol=options.tls_minimum_version,
            )
        )
    server = GossipServer(
        listening_socket(options.host, options.port),
        credentials,
        Limits(
            expiry=options.expiry,
            most_bytes=options.most_frame_bytes,
            most_connections=options.most_connections,
            most_groups=options.most_groups,
            most_members=options.most_members,
        ),
        Bounds(options.most_queued_bytes, options.most_held_bytes),
    )
    await server.start()
    health = GossipHealth(server, listening_socket(options.health_host, options.health_port))
    log.info("gossip router started", extra={"port": options.port, "tls": credentials is not None})
    if options.tls_ca is None:
        # A stable event: alerts may rest on it.
        extra = {
            "tls": credentials is not None,
            "allowed_by": "--anonymous-members" if credentials else "--plain-text",
        }
        log.warning("members are not authenticated", extra=extra)
    running = loop.create_task(server.run())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    log.info("gossip router stopping")
    running.cancel()
    await server.stop()
    await health.stop()
    stop_signals.ignore()


def _number(kind: type[_Number], least: _Number, most: _Number) -> Callable[[str], _Number]:
    """Reads an option with a number in this range."""

    def read(text: str) -> _Number:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return value

    return read


def _parser() -> argparse.ArgumentParser:
    limits, bounds = Limits(), Bounds()
    parser = argparse.ArgumentParser(
        prog="isthmus-gossip-router",
        description="Tells members of groups who else there is, and carries what they cannot send each other.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    port, count, size = _number(int, 0, 65_535), _number(int, 1, 1_000_000), _number(int, 1 << 16, 1 << 40)
    add("--host", default="", help="address to listen on; empty: every local one")
    add("--port", type=port, default=12001, help="for members")
    add("--health-host", default="", help="as --host, for --health-port")
    add("--health-port", type=port, default=9090, help="HTTP: /healthz, /readyz, /status, /metrics")
    add("--tls-cert", help="certificate chain (PEM); files are loaded again when they change")
    add("--tls-key", help="its key (PEM)")
    add("--tls-ca", help="members have to show a certificate signed by this authority (PEM)")
    add("--tls-crl", help="certificate revocation lists (PEM) of that authority")
    add(
        "--tls-minimum-version",
        choices=DEFAULT_PROTOCOLS,
        default=DEFAULT_PROTOCOLS[0],
        help="the oldest accepted",
    )
    add(
        "--anonymous-members", action="store_true", help="members without a certificate are allowed, with TLS"
    )
    add("--plain-text", action="store_true", help="connections without TLS are allowed")
    add(
        "--expiry",
        type=_number(float, 0.1, 1e6),
        default=limits.expiry,
        help="seconds of silence that end a connection",
    )
    add("--most-frame-bytes", type=size, default=limits.most_bytes, help="of one frame")
    add("--most-groups", type=count, default=limits.most_groups, help="at a time")
    add("--most-members", type=count, default=limits.most_members, help="over all groups")
    add("--most-connections", type=count, default=limits.most_connections, help="at a time")
    add(
        "--most-queued-bytes",
        type=size,
        default=bounds.most_queued,
        help="of answers that may wait for one client; half as many of its messages",
    )
    add(
        "--most-held-bytes",
        type=size,
        default=bounds.most_held,
        help="of messages of all connections, and of answers",
    )
    add("--log-level", choices=LOG_LEVELS, default="info", help="the lowest that is written")
    add("--version", action="version", version=__version__)
    return parser


if __name__ == "__main__":
    sys.exit(main())
