"""What the harness needs of the machine: folders of the user, commands, Debian packages."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

# Package -> a file or command that shows it is installed.
DEBIAN_PACKAGES: Mapping[str, str] = {
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ipset": "ipset",
    "ethtool": "ethtool",
    "socat": "socat",
    "iproute2": "ip",
    "util-linux": "unshare",
    "procps": "sysctl",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HarnessError(RuntimeError):
    """The cluster cannot be brought up or used; the message says what to do about it."""


class CommandError(HarnessError):
    """A command failed or took too long; carries what it wrote."""

    def __init__(self, argv: Sequence[str], returncode: int | None, output: str) -> None:
        what = "timed out" if returncode is None else f"exited with {returncode}"
        super().__init__(f"{shlex.join(argv)}: {what}\n{output.strip()}")
        self.returncode = returncode
        self.output = output


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Runs a command and returns its standard output.

    `env` is added to this process's environment. Raises CommandError with both outputs
    when the command fails or takes longer than `timeout` seconds.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(words, None, _text(error.stdout) + _text(error.stderr)) from error
    except FileNotFoundError as error:
        raise HarnessError(f"{words[0]}: not found: {error.filename}") from error
    if done.returncode != 0:
        raise CommandError(words, done.returncode, done.stdout + done.stderr)
    return done.stdout


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, killed if we are, where the system can do that: the next run does not meet it."""
    return ["setpriv", "--pdeathsig=KILL", *command] if shutil.which("setpriv") else list(command)


def _text(output: bytes | str | None) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else output.decode(errors="replace")


def find_tool(name: str) -> Path | None:
    """A command from PATH."""
    found = shutil.which(name)
    return Path(found) if found else None


def cache_dir() -> Path:
    """Per-user cache of binaries, base systems and images."""
    return _user_dir("XDG_CACHE_HOME", ".cache") / "isthmus" / "cluster"


def state_dir() -> Path:
    """Per-user folder of the running clusters, one sub-folder for each."""
    return _user_dir("XDG_STATE_HOME", ".local/state") / "isthmus" / "clusters"


def _user_dir(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path.home() / default


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`, waiting for it. The kernel drops it if we are killed.

    Who holds it may remove the file at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is(file, path):
                continue  # it was removed while we waited; others lock the new one
            yield
            return


def _is(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def unfinished(path: Path) -> Path:
    """A new name beside `path` for what is renamed to it once it is complete; call it locked.

    Removes what interrupted runs left under such names. A child of theirs may still be writing
    there, so the name is never used twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{glob.escape(path.name)}.unfinished-*"):
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)
    return path.with_name(f"{path.name}.unfinished-{secrets.token_hex(4)}")


def missing_packages() -> list[str]:
    """Names of the Debian packages whose commands are not on this machine."""
    return [name for name, shows in DEBIAN_PACKAGES.items() if shutil.which(shows, path=SYSTEM_PATH) is None]


def ensure_packages() -> None:
    """Installs missing Debian packages as root; raises HarnessError naming them otherwise."""
    missing = missing_packages()
    if not missing:
        return
    command = "apt-get install -o DPkg::Lock::Timeout=300 --yes --no-install-recommends " + " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise HarnessError(f"Debian packages are missing; as root: {command}")
    print(f"installing {' '.join(missing)}", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], timeout=300, env=quiet)
    run(shlex.split(command), timeout=900, env=quiet)
    still = missing_packages()
    if still:
        raise HarnessError(f"installed, yet their commands are missing: {' '.join(still)}")
