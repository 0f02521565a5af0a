"""`python -m tests.cluster.prepare`: builds Kubernetes and the images, for which tests would wait otherwise.

`make test` runs it behind the tests that need neither.
"""

from __future__ import annotations

from . import installation
from .harness.__main__ import main as harness
from .support import broker

if __name__ == "__main__":
    harness(["build"])
    for name in installation.IMAGES:
        print(f"{name}: {installation.build(name)}")
    print(f"a broker: {broker.build()}")
