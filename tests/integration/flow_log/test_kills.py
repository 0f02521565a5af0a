"""A process that is killed at any moment, again and again, has lost no row that was in its journal."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from tests.unit.flow_log.samples import identities

from isthmus_flowlog.collector.sinks import FolderSink

ROOT = Path(__file__).parents[3]
KILLS, MORE_LIVES = 8, 20
LONGEST_LIFE = 0.6
"""Seconds after the first row is in the journal."""
PROGRAM = '''
"""Journals rows from the number on that is given, and says which it has; recovers, rotates, merges and deletes."""
import itertools, sys, time
from pathlib import Path
from isthmus_flowlog.collector import store as module
from isthmus_flowlog.collector.journal import Journal
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.settings import parse
from isthmus_flowlog.collector.sinks import FolderSink
from tests.unit.flow_log.samples import delivery

module.JOURNAL_SECONDS = 0.005
root, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
compaction = {"afterSeconds": 0, "graceSeconds": 0.1, "everySeconds": 0.02}
settings = parse({"hosts": ["x"], "log": str(root), "rotate": {"seconds": 0.02}, "compaction": compaction})
sink = FolderSink(root)
sink.clean()
journal = Journal(root / "journal")
recovered = journal.recover()
store = module.Store(settings, journal, sink, Metrics())
for segment in recovered.segments:
    store.shipper.add(segment)
store.start()
for number in range(first, last, 5):
    store.queue.put({"deliveries": [delivery(number + at) for at in range(5)]}, time.time())
    while store.queue.size:
        time.sleep(0.001)
    print(number + 5, flush=True)
assert store.stop(time.monotonic() + 20) == 0
'''


def live(root: Path, first: int, last: int, seconds: float | None) -> int:
    """Run until the end, or until it is killed; the first row that may not be in the journal."""
    command = [sys.executable, "-c", PROGRAM, str(root), str(first), str(last)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        reached = first
        death: threading.Timer | None = None
        for line in process.stdout:
            reached = int(line)
            if seconds is not None and death is None:
                death = threading.Timer(seconds, process.kill)
                death.start()
        if death is not None:
            death.join()
        status = process.wait(30)
    assert status == (0 if seconds is None else -9)
    return reached


def test_no_row_of_the_journal_is_lost(tmp_path: Path) -> None:
    chance = random.Random(7)
    reached = 0
    for _ in range(KILLS):
        reached = live(tmp_path, reached, 10**9, chance.uniform(0, LONGEST_LIFE))
    last = live(tmp_path, reached, reached + 50, None)
    files = FolderSink(tmp_path).files()
    # On a busy machine, each of those before may have been too short to merge files.
    for _ in range(MORE_LIVES):
        if any("merged-" in file.path for file in files):
            break
        last = live(tmp_path, last, last + 50, None)
        files = FolderSink(tmp_path).files()
    found: Counter[str] = Counter()
    for file in files:
        found.update(identities(pq.read_table(tmp_path / file.path)))
    missing = {f"abcde:{number}" for number in range(last)} - set(found)
    assert not missing
    assert any("merged-" in file.path for file in files)
    assert last > 10 * KILLS
