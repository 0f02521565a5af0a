"""Sends a message through a router and receives it: `helm test` runs this in a pod.

Arguments: the router's URL, seconds to keep trying. Waits until the router is reachable.
"""

import sys
import time

from proton import Delivery, Message, ProtonException
from proton.utils import BlockingConnection

ADDRESS = "isthmus.helm-test"


def exchange(url: str, seconds: float) -> str:
    connection = BlockingConnection(url, timeout=seconds)
    try:
        receiver = connection.create_receiver(ADDRESS, credit=1)
        sender = connection.create_sender(ADDRESS)
        # Not the sender's blocking send: that waits for the outcome, which is decided below.
        delivery = sender.link.send(Message(body="through the router"))
        message = receiver.receive(timeout=seconds)
        receiver.accept()
        connection.wait(lambda: delivery.settled, timeout=seconds, msg="the outcome")
        if delivery.remote_state != Delivery.ACCEPTED:
            raise ProtonException(f"the outcome is {delivery.remote_state}")
        return str(message.body)
    finally:
        connection.close()


def main() -> None:
    url, timeout = sys.argv[1], float(sys.argv[2])
    deadline = time.monotonic() + timeout
    trouble = None
    while time.monotonic() < deadline:
        try:
            body = exchange(url, 10)
        except (ProtonException, OSError) as error:
            if str(error) != trouble:
                trouble = str(error)
                print(f"not yet: {trouble}", flush=True)
            time.sleep(0.5)
            continue
        if body != "through the router":
            sys.exit(f"received {body!r}")
        print(f"a message went through {url}")
        return
    sys.exit(f"no message went through {url} within {timeout:g} s")


main()
