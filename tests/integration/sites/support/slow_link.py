"""Forwards packets between two TAP devices of two namespaces, each after a delay.

`python slow_link.py <namespace> <device> <namespace> <device>`: namespaces as files. A line `<ms> <jitter ms>` on its
standard input changes the delay; it answers each, and its start, with a line.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_MOST_WAITING = 20_000
"""Packets; beyond it they are lost, as in a router."""


def device(namespace: str, name: str) -> int:
    """A TAP device that is made in a namespace; it can be used from any."""
    descriptor = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
        raise OSError(ctypes.get_errno(), f"namespace {namespace}")
    os.close(descriptor)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return tap


def main() -> None:
    """Forward until standard input ends."""
    namespace, name, other_namespace, other_name = sys.argv[1:]
    one, two = device(namespace, name), device(other_namespace, other_name)
    other = {one: two, two: one}
    delay = jitter = 0.0
    waiting: list[tuple[float, int, int, bytes]] = []
    numbers = itertools.count()
    print("ready", flush=True)
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([one, two, sys.stdin], [], [], wait)
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay, jitter = (float(word) / 1000 for word in line.split())
            print("changed", flush=True)
        now = time.monotonic()
        for tap in (one, two):
            while tap in readable:
                try:
                    packet = os.read(tap, 65536)
                except OSError:
                    break
                if len(waiting) < _MOST_WAITING:
                    due = now + delay + jitter * random.random()
                    heapq.heappush(waiting, (due, next(numbers), other[tap], packet))
        while waiting and waiting[0][0] <= now:
            _, _, tap, packet = heapq.heappop(waiting)
            try:
                os.write(tap, packet)
            except OSError:
                continue  # the device is down, or its queue is full


if __name__ == "__main__":
    main()
