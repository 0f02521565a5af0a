"""A collector of flow records, so that routers have somebody to tell: `collector.py HOST:PORT`.

Subscribes to every source that it hears of, asks it for all records, and takes whatever comes. Says `attached` on
standard error with the first records; on SIGTERM it prints what it has had as JSON and ends.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

CREDIT = 200


class Collector(MessagingHandler):
    """Takes records and counts them."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(prefetch=CREDIT)
        self.endpoint = endpoint
        self.counts: Counter[str] = Counter()
        self.heard: set[str] = set()
        """Sources."""
        self.asked: set[str] = set()
        """Links on which records were asked for."""
        self.connection: Any = None

    def on_start(self, event: Any) -> None:
        """Listen for beacons."""
        self.connection = event.container.connect(self.endpoint, sasl_enabled=True, allowed_mechs="ANONYMOUS")
        event.container.create_receiver(self.connection, "mc/sfe.all")
        signal.signal(signal.SIGTERM, lambda *_: self.end())

    def end(self) -> None:
        """What was counted, for standard output."""
        print(json.dumps({**self.counts, "cpu_seconds": time.process_time()}), flush=True)
        sys.exit(0)

    def on_message(self, event: Any) -> None:
        """A beacon, a heartbeat, or records."""
        message = event.message
        self.counts[message.subject] += 1
        if message.subject == "RECORD":
            if not self.counts["records"]:
                print("attached", file=sys.stderr, flush=True)
            self.counts["records"] += len(message.body)
        elif message.subject == "BEACON" and message.properties["id"] not in self.heard:
            self.heard.add(message.properties["id"])
            for suffix in ("", ".flows"):
                event.container.create_receiver(self.connection, message.properties["address"] + suffix)
            event.container.create_sender(self.connection, message.properties["direct"])

    def on_sendable(self, event: Any) -> None:
        """Ask once."""
        if event.link.name not in self.asked:
            self.asked.add(event.link.name)
            event.sender.send(Message(subject="FLUSH"))


if __name__ == "__main__":
    Container(Collector(sys.argv[1])).run()
