"""Builds container images with buildah, without a registry or a container engine.

Archives are kept in the user's cache, named by the hash of what went into them: an unchanged
image is neither built nor loaded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .host import SYSTEM_PATH, HarnessError, cache_dir, ensure_packages, locked, run, unfinished

BASE_SUITE = "bookworm"
# What a public slim Python image has, too.
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
BUILD_TIMEOUT_S = 1200.0
# Builds leave a few each: what a COPY line gave, in a stage or under a name that a later build has taken.
LAYERS_KEPT = 20
# Part of every hash: raise it when images must be built anew though their sources are the same.
_FORMAT = "1"
_STAGE = re.compile(r"--[a-z]+(=\S+)?\s+")


def full_name(name: str) -> str:
    """The image's name as container runtimes store it: `router:1` -> `docker.io/library/router:1`."""
    name = name if ":" in name.rpartition("/")[2] else f"{name}:test"
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def name_in(archive: Path) -> str:
    """The name of the image in an archive that `docker save` or `build` wrote."""
    return _listed_in(archive)[0]


def id_in(archive: Path) -> str:
    """The id of that image as nodes know it: `sha256:` and the hash of its configuration."""
    return _listed_in(archive)[1]


def _listed_in(archive: Path) -> tuple[str, str]:
    listing = run(["tar", "--extract", "--to-stdout", "--file", archive, "manifest.json"], timeout=60)
    for image in json.loads(listing):
        # `<hash>.json`, or `blobs/sha256/<hash>`.
        digest = re.search(r"[0-9a-f]{64}", image["Config"])
        if digest and image.get("RepoTags"):
            return full_name(image["RepoTags"][0]), f"sha256:{digest[0]}"
    raise HarnessError(f"{archive}: the image in it has no name")


def build(
    name_tag: str,
    containerfile: Path,
    context: Path,
    build_args: Mapping[str, str] | None = None,
) -> Path:
    """Builds an image and returns its archive, in the format of `docker save`.

    The build argument BASE is set to `base_image()` unless given or unused. Only the files that
    the Containerfile copies from `context`, without those git ignores, count for "unchanged".
    """
    ensure_packages()
    text = containerfile.read_text()
    arguments = dict(build_args or {})
    if re.search(r"^ARG\s+BASE\b", text, re.MULTILINE) and "BASE" not in arguments:
        arguments["BASE"] = base_image()
    name = full_name(name_tag)
    digest = hashlib.sha256(json.dumps([_FORMAT, name, text, sorted(arguments.items())]).encode())
    for file in copied_files(text, context):
        mode = file.lstat().st_mode & 0o111
        content = os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
        digest.update(f"{file.relative_to(context)}\0{mode}\0{len(content)}\0".encode() + content)
    short = name.rpartition("/")[2].replace(":", "-")
    archive = cache_dir() / "images" / f"{short}-{digest.hexdigest()[:16]}.tar"
    if archive.exists():
        archive.touch()
        return archive
    with locked(cache_dir() / "buildah.lock"):
        if archive.exists():
            return archive
        print(f"building image {name}", file=sys.stderr, flush=True)
        words = ["build", "--pull-never", "--layers", "--quiet", "--tag", name, "--file", str(containerfile)]
        words += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        _buildah(*words, *_host_certificates(), str(context))
        _push(name, archive)
        _forget_older(archive, short)
        _forget_layers()
    return archive


def base_image(packages: Sequence[str] = BASE_PACKAGES) -> str:
    """Name, in our own image store, of a Debian with these packages; made the first time."""
    ensure_packages()
    wanted = sorted(set(packages))
    key = hashlib.sha256(json.dumps([_FORMAT, BASE_SUITE, wanted]).encode()).hexdigest()[:16]
    name = f"localhost/isthmus-base:{key}"
    rootfs = cache_dir() / "base" / f"{BASE_SUITE}-{key}.tar"
    if rootfs.exists() and _exists(name):
        return name
    with locked(cache_dir() / "buildah.lock"):
        if not rootfs.exists():
            print(f"making a base system: {BASE_SUITE} with {' '.join(wanted)}", flush=True)
            new = unfinished(rootfs)
            command = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={','.join(wanted)}"]
            command += ["--aptopt=APT::Install-Recommends false", "--format=tar", BASE_SUITE, str(new)]
            run(_private_mounts(command), timeout=900)
            new.rename(rootfs)
        if not _exists(name):
            container = _buildah("from", "scratch").strip()
            try:
                _buildah("add", "--quiet", container, str(rootfs), "/")
                _buildah("config", "--env", f"PATH={SYSTEM_PATH}", "--cmd", "/bin/bash", container)
                _buildah("commit", "--quiet", container, name)
            finally:
                _buildah("rm", container)
    return name


def copied_files(containerfile: str, context: Path) -> list[Path]:
    """The files of the context that COPY and ADD lines name, without those that git ignores."""
    sources: set[str] = set()
    for line in containerfile.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction.upper() in {"COPY", "ADD"} and "--from=" not in rest:
            while option := _STAGE.match(rest := rest.strip()):
                rest = rest[option.end() :]
            words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
            sources.update(word.lstrip("/") for word in words[:-1])
    tops = {
        path for source in sources for path in ([context] if source in {"", "."} else context.glob(source))
    }
    return sorted({file for top in tops for file in _files(top)})


def _files(top: Path) -> Iterable[Path]:
    if not top.is_dir():
        return [top]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=top,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if listed.returncode != 0:
        return [path for path in top.rglob("*") if path.is_symlink() or path.is_file()]
    files = (top / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
    return [file for file in files if file.is_symlink() or file.is_file()]


def _host_certificates() -> list[str]:
    """Lets RUN lines use this machine's certificate authorities without leaving them in the image."""
    return ["--volume=/etc/ssl/certs:/etc/ssl/certs:ro"] if Path("/etc/ssl/certs").is_dir() else []


def _exists(name: str) -> bool:
    return bool(_buildah("images", "--noheading", "--quiet", "--filter", f"reference={name}").strip())


def _push(name: str, archive: Path) -> None:
    new = unfinished(archive)
    _buildah("push", "--quiet", name, f"docker-archive:{new}:{name}")
    new.rename(archive)


def _forget_older(archive: Path, short: str) -> None:
    """Keeps the three newest archives of an image."""
    same = re.compile(re.escape(short) + r"-[0-9a-f]{16}\.tar")
    found = [path for path in archive.parent.iterdir() if same.fullmatch(path.name)]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[3:]:
        path.unlink()


def _forget_layers() -> None:
    """Keeps the newest layers that no image with a name needs; those are what later builds may begin with.
    Containers of builds that were interrupted go with theirs. The lock must be held."""
    listing = _buildah("images", "--filter=dangling=true", "--format={{.CreatedAtRaw}} {{.ID}}")
    old = [line.split()[-1] for line in sorted(listing.splitlines(), reverse=True)[LAYERS_KEPT:]]
    if old:
        _buildah("rmi", "--force", *old)


def _buildah(*arguments: str) -> str:
    root = cache_dir() / "buildah"
    # Layers are kept by buildah's own cache; its overlay mounts must not show on the machine.
    command = ["buildah", f"--root={root}/root", f"--runroot={root}/run", "--storage-driver=overlay"]
    environment = {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(root / "tmp")}
    (root / "tmp").mkdir(parents=True, exist_ok=True)
    return run(_private_mounts([*command, *arguments]), timeout=BUILD_TIMEOUT_S, env=environment)


def _private_mounts(command: Sequence[str]) -> list[str]:
    return ["unshare", "--mount", "--propagation", "slave", *command]
