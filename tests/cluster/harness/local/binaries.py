"""Builds Kubernetes and what it needs from Go modules, once per user.

Each folder below `parts/` is a Go module of its own, for their dependencies disagree. A part's
binaries live in the cache below a name made of the hash of everything that goes into them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..host import CommandError, HarnessError, cache_dir, dying_with_us, locked, run, unfinished

KUBERNETES_VERSION = "v1.36.3"
GO_VERSION = (1, 26)
PARTS_DIR = Path(__file__).parent / "parts"
BUILD_TIMEOUT_S = 2400.0
ATTEMPTS = 3


Binaries = Mapping[str, Path]


@dataclass(frozen=True)
class Part:
    """A Go module and the binaries built from it: name of the binary -> package."""

    name: str
    binaries: dict[str, str]
    tags: str = ""
    ldflags: str = ""

    def key(self) -> str:
        digest = hashlib.sha256(f"{self.binaries}{self.tags}{self.ldflags}".encode())
        folder = PARTS_DIR / self.name
        for file in sorted([*folder.glob("go.*"), *folder.glob("*.go")]):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:16]

    def folder(self) -> Path:
        return cache_dir() / "bin" / f"{self.name}-{self.key()}"


def _kubernetes(*commands: str) -> dict[str, str]:
    return {command: f"k8s.io/kubernetes/cmd/{command}" for command in commands}


PARTS = (
    Part(
        "kubernetes",
        _kubernetes(
            "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"
        ),
        tags="selinux,notest,grpcnotrace",
        # Without it every component reports a development version and refuses its peers.
        ldflags=" ".join(
            f"-X {package}.gitVersion={KUBERNETES_VERSION}"
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        ),
    ),
    Part(
        "containerd",
        {
            command: f"github.com/containerd/containerd/v2/cmd/{command}"
            for command in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        tags="no_btrfs,no_zfs,no_devmapper",
    ),
    Part("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Part("coredns", {"coredns": "."}),
    Part("pause", {"pause": "."}),
    Part("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}),
)


def built(names: Iterable[str] | None = None) -> Binaries:
    """The named binaries (all by default), built now where the cache lacks them."""
    every = {binary for part in PARTS for binary in part.binaries}
    wanted = every if names is None else set(names)
    paths: dict[str, Path] = {}
    for part in PARTS:
        binaries = [binary for binary in part.binaries if binary in wanted]
        if binaries:
            folder = _build(part, binaries)
            paths.update({binary: folder / binary for binary in binaries})
    return paths


def complete() -> bool:
    """True if every binary is in the cache."""
    return not any(_missing(part, list(part.binaries)) for part in PARTS)


def _missing(part: Part, binaries: list[str]) -> list[str]:
    return [binary for binary in binaries if not (part.folder() / binary).exists()]


def _build(part: Part, binaries: list[str]) -> Path:
    folder = part.folder()
    if not _missing(part, binaries):
        return folder
    with locked(folder.with_name(folder.name + ".lock")):
        missing = _missing(part, binaries)
        if not missing:
            return folder
        _check_go()
        print(f"building {part.name}: {' '.join(missing)}", flush=True)
        begin = time.monotonic()
        new = unfinished(folder)
        new.mkdir()
        output = new / missing[0] if len(missing) == 1 else f"{new}/"
        _go_build(part, [part.binaries[binary] for binary in missing], output)
        folder.mkdir(parents=True, exist_ok=True)
        for binary in missing:
            (new / binary).rename(folder / binary)
        new.rmdir()
        print(f"built {part.name} in {time.monotonic() - begin:.0f} s", flush=True)
    return folder


def _go_build(part: Part, packages: list[str], output: Path | str) -> None:
    command = ["go", "build", "-p=2", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += [f"-tags={part.tags}", f"-ldflags=-s -w {part.ldflags}", "-o", str(output), *packages]
    environment = {"CGO_ENABLED": "0", "GOWORK": "off", "GOMAXPROCS": "2", "GOFLAGS": ""}
    for attempt in range(1, ATTEMPTS + 1):
        try:
            run(dying_with_us(command), timeout=BUILD_TIMEOUT_S, env=environment, cwd=PARTS_DIR / part.name)
            return
        except CommandError as error:
            # A download that broke off goes on where it stopped; a compile error comes back at once.
            if attempt == ATTEMPTS or error.returncode is None:
                raise
            time.sleep(5)


def _check_go() -> None:
    wanted = ".".join(map(str, GO_VERSION))
    if shutil.which("go") is None:
        raise HarnessError(f"Go {wanted} or later is needed to build Kubernetes; it is not in PATH")
    # Newer tool chains are fetched by Go itself where that is allowed; this is what it would use here.
    found = re.search(
        r"go(\d+)\.(\d+)", run(["go", "env", "GOVERSION"], timeout=300, cwd=PARTS_DIR / "pause")
    )
    if found is None or (int(found[1]), int(found[2])) < GO_VERSION:
        raise HarnessError(f"Go {wanted} or later is needed to build Kubernetes")
