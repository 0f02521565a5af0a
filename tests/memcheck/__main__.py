"""`python -m tests.memcheck`: both kinds of random plays with the compiled kernel, under valgrind.

The verdict is about the kernel and the engine it calls: what valgrind says of memory used after it was freed, past its
end or before it was written, and of blocks that nobody knows any more, counts if one of the two is in the stack. The
interpreter's own peculiarities do not. Exit status: 0 clean, 1 not clean or a play has failed, 2 valgrind is missing.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.unit.amqp import test_kernel_disorder, test_kernels

CALLERS = 30
SHOWN_LINES = 14
RUN_SECONDS = 3000
_OURS = re.compile(
    r"\((?:in .*/)?(?:drain|cproton_ffi)[\w.-]*\.(?:so|c|pyx)|\b(?:by|at) 0x[0-9A-F]+: pn[i_]\w*"
)


def plays(steps: Any, count: int, number: int) -> list[list[Any]]:
    """Random lists of steps, the same for the same `number`."""
    found: list[list[Any]] = []

    @seed(number)
    @settings(max_examples=count, phases=[Phase.generate], database=None, deadline=None)
    @given(st.lists(steps, min_size=10, max_size=30))
    def collect(drawn: list[Any]) -> None:
        found.append(drawn)

    collect()
    return found


def faults(log: str) -> list[str]:
    """What valgrind's log says about the kernel or the engine: one text for each error, with its stack."""
    text = re.sub(r"^==\d+== ?", "", log, flags=re.MULTILINE)
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text)]
    return [block for block in blocks if _OURS.search(block) and "PyInit_" not in block]  # loading a module


def check(count: int, number: int) -> int:
    """Take that many plays of each kind; prints the verdict and returns the exit status."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("valgrind is not installed: nothing was checked", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="memcheck-") as folder:
        drawn, log = Path(folder, "plays"), Path(folder, "log")
        both = [plays(module.STEPS, count, number) for module in (test_kernels, test_kernel_disorder)]
        drawn.write_bytes(pickle.dumps(both))
        command = [valgrind, f"--num-callers={CALLERS}", f"--log-file={log}", "--leak-check=full"]
        command += ["--show-leak-kinds=definite", sys.executable, "-m", "tests.memcheck.play", str(drawn)]
        # With the allocator of the interpreter, valgrind would not see objects come and go.
        environment = {**os.environ, "PYTHONMALLOC": "malloc"}
        status = subprocess.run(command, env=environment, timeout=RUN_SECONDS, check=False).returncode
        text = log.read_text(errors="replace")
    if "ERROR SUMMARY" not in text:
        print(f"valgrind did not come to its end, status {status}:\n{text[-2000:]}", file=sys.stderr)
        return 1
    found = faults(text)
    for fault in found:
        print("\n".join(fault.splitlines()[:SHOWN_LINES]), end="\n\n", file=sys.stderr)
    played = f"{sum(map(len, both))} plays, seed {number}"
    if status:
        print(f"memcheck: a play has failed, status {status} ({played})", file=sys.stderr)
    elif found:
        print(f"memcheck: NOT CLEAN, {len(found)} faults of kernel or engine ({played})", file=sys.stderr)
    else:
        print(f"memcheck: clean ({played})", file=sys.stderr)
    return int(bool(status or found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plays", type=int, default=100, help="of each kind (100: two to three minutes)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return check(options.plays, options.seed)


if __name__ == "__main__":
    sys.exit(main())
