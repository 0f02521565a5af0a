"""What it costs sites to agree on who is there, over the number of members and of sites.

Whole members (streams, membership, discovery, relay) in the world of `tests/unit/sites`, whose frames take 1 ms and
whose time is virtual: frames and bytes are exact and the same in each run; CPU time is that of all members together.
A table goes to standard output, with `--plot FILE` the frames and bytes over the sizes to a file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.sites.sites import Net
from tests.unit.sites.world import World

SIZES = (
    *({"one": members} for members in (3, 10, 30, 100)),
    *(dict.fromkeys("abcdefghij"[:sites], 3) for sites in (2, 4, 10)),
)
SETTLE_SECONDS = 60.0
IDLE_SECONDS = 10.0


class Row(NamedTuple):
    """What one event has cost."""

    sites: int
    members: int
    """Of each site."""
    what: str
    seconds: float
    frames: int
    kilobytes: float
    cpu_ms: float


def main() -> None:
    """Run all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse_args()
    print("| sites | members of each | what | s | frames | KB | CPU ms |")
    print("|---|---|---|---|---|---|---|")
    rows = [row for sizes in SIZES for row in Course(sizes).run()]
    if options.plot is not None:
        plot(rows, options.plot)


def plot(rows: list[Row], file: Path) -> None:
    """Frames and bytes over the members of one site, and over the number of sites of three."""
    import matplotlib as mpl  # noqa: PLC0415  # an extra that the measuring does without

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "site_scale", "font.size": 9})
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(2, 2, figsize=(10.4, 6.4), sharey="row", sharex="col")
    one, many = [row for row in rows if row.sites == 1], [row for row in rows if row.members == 3]
    for column, (found, count, label) in enumerate(
        ((one, "members", "members of one site"), (many, "sites", "sites of three members"))
    ):
        for number, what in enumerate(dict.fromkeys(row.what for row in one)):
            points = [row for row in found if row.what == what]
            for axis, value in zip(axes[:, column], ("frames", "kilobytes"), strict=True):
                counts = [getattr(row, count) for row in points]
                axis.plot(
                    counts, [getattr(row, value) for row in points], "o-", color=f"C{number}", label=what
                )
        for axis in axes[:, column]:
            axis.set(xscale="log", yscale="log")
            axis.grid(alpha=0.2)
        axes[1][column].set_xlabel(label)
    axes[0][0].set_ylabel("frames")
    axes[1][0].set_ylabel("KB")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


class Course:
    """What happens to a number of sites."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.world = World(1)
        self.net = Net(self.world, sizes)
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """What each event has cost. Raises AssertionError if they do not agree in the end."""
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
        return self.rows

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
        row = Row(
            len(self.sizes),
            max(self.sizes.values()),
            what,
            world.now - begun,
            world.frames - frames,
            (world.bytes - size) / 1000,
            cpu * 1000,
        )
        self.rows.append(row)
        print(
            f"| {row.sites} | {row.members} | {what} | {row.seconds:.2f} | {row.frames:,} | {row.kilobytes:,.0f} "
            f"| {row.cpu_ms:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
