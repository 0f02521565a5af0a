"""What it costs sites to agree on who is there, over the number of members and of sites.

Whole members (streams, membership, discovery, relay) in the world of `tests/unit/sites`, whose frames take 1 ms and
whose time is virtual: frames and bytes are exact and the same in each run; CPU time is that of all members together.
A table goes to standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.sites.sites import Net
from tests.unit.sites.world import World

SIZES = (
    *({"one": members} for members in (3, 10, 30, 100)),
    *(dict.fromkeys("abcdefghij"[:sites], 3) for sites in (2, 4, 10)),
)
SETTLE_SECONDS = 60.0
IDLE_SECONDS = 10.0


def main() -> None:
    """Run all sizes."""
    print("| sites | members of each | what | s | frames | KB | CPU ms |")
    print("|---|---|---|---|---|---|---|")
    for sizes in SIZES:
        Course(sizes).run()


class Course:
    """What happens to a number of sites."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.world = World(1)
        self.net = Net(self.world, sizes)

    def run(self) -> None:
        """Raises AssertionError if they do not agree in the end."""
        net = self.net
        self.measure("all join at once", self.join)
        self.measure(f"{IDLE_SECONDS:.0f} s at rest", lambda: None, seconds=IDLE_SECONDS)
        self.measure("each coordinator crashes", lambda: [net.crash(net.of(site)[0]) for site in self.sizes])
        self.world.run(5.0)
        if min(self.sizes.values()) >= 10:
            self.measure("a tenth crashes", self.crash_tenth)
            self.world.run(5.0)
            self.divide()
            self.measure("halves merge", self.world.heal)

    def join(self) -> None:
        """Every member starts."""
        for site, size in self.sizes.items():
            for number in range(size):
                self.net.start(f"{site}{number}")

    def crash_tenth(self) -> None:
        """Every tenth of each site, its coordinator among them."""
        for site, size in self.sizes.items():
            for node in self.net.of(site)[::10][: size // 10]:
                self.net.crash(node)

    def divide(self) -> None:
        """Each site in two, until either half knows that the other is gone."""
        for site in self.sizes:
            hosts = [node.process.host.name for node in self.net.of(site)]
            half = len(hosts) // 2
            self.world.cut(hosts[:half], hosts[half:])
        self.world.run(15.0)
        assert not self.net.is_settled()

    def measure(self, what: str, act: Callable[[], object], seconds: float = 0.0) -> None:
        """From the act until all agree, or for so many seconds."""
        world = self.world
        begun, frames, size, cpu = world.now, world.frames, world.bytes, time.process_time()
        act()
        if seconds:
            world.run(seconds)
        assert self.net.settled(SETTLE_SECONDS), self.net.describe()
        cpu = time.process_time() - cpu
        print(
            f"| {len(self.sizes)} | {max(self.sizes.values())} | {what} | {world.now - begun:.2f} "
            f"| {world.frames - frames:,} | {(world.bytes - size) / 1000:,.0f} | {cpu * 1000:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
