"""The watcher notices changed files, also when a directory is swapped as the kubelet does it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from isthmus_router.config import ConfigError, Configuration, load
from isthmus_router.config.watch import ConfigWatcher

CONF = """
router {{
    id: a
}}
sslProfile {{
    name: tls
    caCertFile: {directory}/ca.crt
    ordinal: {ordinal}
}}
"""


class Volume:
    """A mounted Secret: `file -> ..data/file`, `..data -> ..<generation>`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generation = 0

    def publish(self, **files: str) -> None:
        self.generation += 1
        generation = self.directory / f"..{self.generation}"
        generation.mkdir()
        for name, contents in files.items():
            (generation / name).write_text(contents)
            link = self.directory / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
        temporary = self.directory / "..data_tmp"
        temporary.symlink_to(generation.name)
        temporary.rename(self.directory / "..data")

    def publish_generation(self, ordinal: int, certificate: str) -> None:
        text = CONF.format(directory=self.directory, ordinal=ordinal)
        self.publish(**{"router.conf": text, "ca.crt": certificate})

    @property
    def path(self) -> str:
        return str(self.directory / "router.conf")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    volume = Volume(tmp_path)
    volume.publish_generation(1, "first")
    return volume


class Calls:
    def __init__(self) -> None:
        self.changes: list[Configuration] = []
        self.errors: list[ConfigError] = []
        self.called = asyncio.Event()

    def change(self, configuration: Configuration) -> None:
        self.changes.append(configuration)
        self.called.set()

    def error(self, error: ConfigError) -> None:
        self.errors.append(error)
        self.called.set()

    def watcher(self, volume: Volume) -> ConfigWatcher:
        return ConfigWatcher(volume.path, load(volume.path), self.change, self.error, interval=0.01)


async def test_no_call_without_a_change(volume: Volume) -> None:
    calls = Calls()
    watcher = calls.watcher(volume)
    await watcher.poll()
    volume.publish_generation(1, "first")
    await watcher.poll()
    assert not calls.called.is_set()


async def test_configuration_and_certificate_are_swapped_together(volume: Volume) -> None:
    calls = Calls()
    watcher = calls.watcher(volume)
    before = watcher.current.ssl_profiles["tls"]
    await watcher.poll()
    volume.publish_generation(2, "second")
    await watcher.poll()
    (after,) = (configuration.ssl_profiles["tls"] for configuration in calls.changes)
    assert (before.ordinal, after.ordinal) == (1, 2)
    assert before.files_digest != after.files_digest


async def test_only_the_certificate_changed(volume: Volume) -> None:
    calls = Calls()
    watcher = calls.watcher(volume)
    await watcher.poll()
    volume.publish_generation(1, "renewed")
    await watcher.poll()
    assert len(calls.changes) == 1


async def test_an_error_is_reported_once_and_taken_back_once(volume: Volume) -> None:
    calls = Calls()
    watcher = calls.watcher(volume)
    volume.publish(**{"router.conf": "router {\n mode: x\n}\n", "ca.crt": "first"})
    await watcher.poll()
    await watcher.poll()
    assert len(calls.errors) == 1
    assert watcher.last_error is calls.errors[0]
    volume.publish_generation(1, "first")
    await watcher.poll()
    await watcher.poll()
    assert watcher.last_error is None
    assert calls.changes == [load(volume.path)]


async def test_a_vanished_file_is_an_error_until_it_is_back(volume: Volume) -> None:
    calls = Calls()
    watcher = calls.watcher(volume)
    await watcher.poll()
    (volume.directory / "ca.crt").unlink()
    await watcher.poll()
    assert "cannot be read" in str(watcher.last_error)
    volume.publish_generation(2, "back")
    await watcher.poll()
    assert watcher.last_error is None
    assert calls.changes[0].ssl_profiles["tls"].ordinal == 2


async def test_a_replacement_in_the_middle_of_reading_is_read_again(volume: Volume) -> None:
    """Configuration of one generation with the certificate of the next must never be reported."""

    class SwapsDuringReading:
        """Publishes the next generation after so many more reads of the configuration."""

        def __init__(self) -> None:
            self.reads_left = 0

        def read(self, path: str) -> bytes:
            contents = Path(path).read_bytes()
            if path.endswith("router.conf") and self.reads_left:
                self.reads_left -= 1
                if not self.reads_left:
                    volume.publish_generation(3, "third")
            return contents

        def variable(self, name: str) -> str | None:
            return None

    sources, calls = SwapsDuringReading(), Calls()
    watcher = ConfigWatcher(volume.path, load(volume.path), calls.change, calls.error, sources=sources)
    await watcher.poll()
    volume.publish_generation(2, "second")
    sources.reads_left = 2  # Once to notice the change, once to load it.
    while not calls.changes:
        await asyncio.wait_for(watcher.poll(), 5)
    assert [c.ssl_profiles["tls"].ordinal for c in calls.changes] == [3]
    assert calls.changes[0] == load(volume.path)


async def test_run_polls(volume: Volume) -> None:
    calls = Calls()
    task = asyncio.create_task(calls.watcher(volume).run())
    volume.publish_generation(7, "seventh")
    await asyncio.wait_for(calls.called.wait(), 10)
    task.cancel()
    assert calls.changes[0].ssl_profiles["tls"].ordinal == 7


async def test_a_random_router_id_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "f.conf"
    path.write_text("network {\n}\n")
    current = load(str(path))
    calls = Calls()
    watcher = ConfigWatcher(str(path), current, calls.change, calls.error)
    path.write_text("network {\n networkId: n\n}\n")
    await watcher.poll()
    assert calls.changes[0].router.id == current.router.id
