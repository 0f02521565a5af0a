"""The commands of the images as the first process of a container."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WHILE_LOADING = """
import builtins, time

def load(name, *arguments, **options):
    if name == "{package}.__main__":
        print("loading", flush=True)
        time.sleep(60)
    return original(name, *arguments, **options)

from {package}.entry import main
original, builtins.__import__ = builtins.__import__, load
main()
"""


@pytest.mark.parametrize("package", ["isthmus_router", "isthmus_operator"])
def test_sigterm_ends_a_program_that_still_loads(package: str) -> None:
    code = WHILE_LOADING.format(package=package)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 143
