"""One routing engine and what it asks for."""

from isthmus_router.routing import actions as act
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.messages import (
    HELLO_ADDRESS,
    Hello,
    decode_control,
    encode_control,
)

LINK = 5


class Driver:
    """Talks to one engine, "ME", and sorts its actions: messages sent, and everything else."""

    def __init__(self, timers=None):
        self.now = 100.0
        self.engine = RoutingEngine("ME", instance=1, now=self.now, timers=timers)
        self.sent = []
        self.other = []

    def take(self, actions):
        self.sent, self.other = [], []
        for action in actions:
            match action:
                case act.SendHello(link, payload):
                    self.sent.append((link, decode_control(payload)))
                case act.SendUnicast(router, _, payload):
                    self.sent.append((router, decode_control(payload)))
                case act.SendMulticast(_, payload):
                    self.sent.append(("all", decode_control(payload)))
                case _:
                    self.other.append(action)
        return self

    def receive(self, message, link=LINK):
        return self.receive_bytes(encode_control(message, "x"), link)

    def receive_bytes(self, payload, link=LINK):
        """Receive an encoded message, and read all of it if it is a large one."""
        actions = self.engine.on_message(link, payload, self.now)
        while self.engine.has_work(self.now):
            actions += self.engine.work(self.now)
        return self.take(actions)

    def after(self, seconds):
        """Let time pass, ticking whenever the engine wants to; collects all actions."""
        end = self.now + seconds
        actions = []
        while self.engine.next_deadline <= end:
            assert self.engine.next_deadline >= self.now or not actions
            self.now = max(self.now, self.engine.next_deadline)
            actions += self.engine.on_tick(self.now)
            while self.engine.has_work(self.now):
                actions += self.engine.work(self.now)
        self.now = end
        return self.take(actions)

    def events(self, kind):
        return [action for action in self.other if isinstance(action, kind)]

    def sent_of(self, kind):
        return [message for _, message in self.sent if isinstance(message, kind)]


def keep_alive(driver, seconds, seen=("ME",)):
    actions = []
    for _ in range(seconds):
        actions += driver.engine.on_message(
            LINK, encode_control(Hello("PEER", 7, seen), HELLO_ADDRESS), driver.now
        )
        driver.now += 1
        actions += driver.engine.on_tick(driver.now)
    return driver.take(actions)
