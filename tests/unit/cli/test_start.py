"""What the start of the command imports."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from click.testing import CliRunner
from isthmus_cli.__main__ import main
CliRunner().invoke(main, ["local", "status"])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_local_network_needs_no_kubernetes_client() -> None:
    """The import of that client takes as long as the rest of the command."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True
    )
    assert {"isthmus_cli", "pydantic"} <= set(done.stdout.split())
    assert not {"kubernetes", "aiohttp"} & set(done.stdout.split())
