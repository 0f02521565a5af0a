"""The part of the memory check that runs under valgrind: `python -m tests.memcheck.play FILE`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from tests.unit.amqp import test_kernel_disorder, test_kernels

from isthmus_router.amqp.kernel.handles import WHY_NOT_COMPILED


def main() -> None:
    if WHY_NOT_COMPILED is not None:
        sys.exit(f"there is no compiled kernel to check: {WHY_NOT_COMPILED}")
    both = pickle.loads(Path(sys.argv[1]).read_bytes())
    for module, drawn in zip((test_kernels, test_kernel_disorder), both, strict=True):
        for steps in drawn:
            module.play(module.START + steps, compiled=True)


if __name__ == "__main__":
    main()
