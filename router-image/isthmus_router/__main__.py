"""`isthmus-router -c FILE`: run one router in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from isthmus_router import __version__, stop_signals
from isthmus_router.amqp.engine import require_features
from isthmus_router.config.errors import ConfigError
from isthmus_router.config.loader import load
from isthmus_router.config.model import Configuration
from isthmus_router.config.watch import ConfigWatcher
from isthmus_router.credentials import CredentialsError, revocations
from isthmus_router.descriptors import raise_limit
from isthmus_router.garbage import FullCollections
from isthmus_router.logs import RouterLog
from isthmus_router.process import RouterProcess

log = logging.getLogger("ROUTER")

LONGEST_TURN_SECONDS = 0.0005
"""For which a thread (configuration, credentials, probes) holds the interpreter while messages wait."""


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 after SIGTERM or SIGINT, 1 for a configuration that cannot be used."""
    parser = argparse.ArgumentParser(prog="isthmus-router", description="An AMQP 1.0 message router.")
    parser.add_argument("-c", "--config", required=True, help="configuration file (.conf text or JSON)")
    parser.add_argument("--id", help="router id, instead of the one in the file")
    parser.add_argument("--check", action="store_true", help="only check the configuration")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(arguments)
    try:
        configuration = load(options.config, options.id)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if options.check:
        for warning in configuration.warnings:
            print(f"warning: {warning}")
        for profile in configuration.ssl_profiles.values():
            try:
                _, remark = revocations(profile)
            except CredentialsError as error:
                remark = str(error)
            if remark:
                print(f"warning: sslProfile {profile.name}: {remark}")
        print(f"{options.config}: valid")
        return 0
    router_log = RouterLog()
    router_log.configure(configuration.logs)
    router_log.install()
    for warning in configuration.warnings:
        log.warning("configuration", extra={"reason": warning})
    raise_limit()
    sys.setswitchinterval(LONGEST_TURN_SECONDS)
    uvloop.run(run(options.config, options.id, configuration, router_log))
    return 0


async def run(path: str, router_id: str | None, configuration: Configuration, router_log: RouterLog) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    process = RouterProcess(configuration, loop, router_log)
    stop = stop_signals.heed(loop)
    loop.add_signal_handler(
        signal.SIGHUP, log.info, "SIGHUP changes nothing: files are read again when they change"
    )
    for sentence in require_features():
        log.warning(sentence)
    await process.start()
    FullCollections(loop, lambda: process.driver.freed)
    log.info("router started", extra={"id": process.core.id, "mode": configuration.router.mode.value})
    watcher = ConfigWatcher(
        path,
        configuration,
        process.configuration_changed,
        process.configuration_failed,
        router_id_override=router_id,
    )
    watching = loop.create_task(watcher.run())
    await stop.wait()
    log.info("router stopping", extra={"id": process.core.id})
    watching.cancel()
    await process.stop()
    stop_signals.ignore()


if __name__ == "__main__":
    sys.exit(main())
