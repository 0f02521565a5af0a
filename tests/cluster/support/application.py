"""An application in a pod whose state is the numbers that it has got. It gives it to those that come later.

    application.py URL ADDRESS [--ask]

With `--ask` it wants the state of another one first. It ends once STOP exists, with the report of a receiver.
"""

from __future__ import annotations

import argparse
import json

from proton import Event, Link, Message, symbol
from proton.reactor import Container, ReceiverOption

from .client import Receiver

PART = 1_000
"""Numbers in each message of a state."""


class Asking(ReceiverOption):
    """Of a receiver that wants the state."""

    def apply(self, receiver: Link) -> None:
        receiver.source.capabilities.put_symbol(symbol("isthmus.relay-state"))


class Application(Receiver):
    def __init__(self, url: str, address: str, ask: bool) -> None:
        super().__init__(url, address, mixed=False, delay=0.0, stay=True, selector=None)
        self.filter = Asking() if ask else None
        self.answers: Link | None = None
        self.requests = 0

    def attach(self) -> None:
        super().attach()
        self.answers = self.container.create_sender(self.connection, None)

    def on_link_opened(self, event: Event) -> None:
        if event.link.is_receiver:
            super().on_link_opened(event)

    def on_message(self, event: Event) -> None:
        message = event.message
        annotations = {str(key): value for key, value in (message.annotations or {}).items()}
        if "x-opt-isthmus.state-request" in annotations:
            self.requests += 1
            self._give(message.reply_to)
            self.accept(event.delivery)
        elif "x-opt-isthmus.state" in annotations:
            self.numbers += json.loads(message.body)
            self.accept(event.delivery)
        else:
            super().on_message(event)

    def _give(self, to: str) -> None:
        assert self.answers is not None
        parts = [self.numbers[at : at + PART] for at in range(0, len(self.numbers), PART)] or [[]]
        for at, part in enumerate(parts, 1):
            more = {"isthmus_more": True} if at < len(parts) else {}
            self.answers.send(Message(json.dumps(part), address=to, properties=more))

    def progress(self) -> dict[str, object]:
        return {**super().progress(), "requests": self.requests}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("address")
    parser.add_argument("--ask", action="store_true")
    options = parser.parse_args()
    Container(Application(options.url, options.address, options.ask)).run()


if __name__ == "__main__":
    main()
