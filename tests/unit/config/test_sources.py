"""Secrets can be kept out of the configuration file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus_router.config import ConfigError, parse
from isthmus_router.config.sources import GuardedSources, SystemSources, resolve

FILES = {"/secret": b"from the file\r\nsecond line\n", "/binary": b"\xff\xfe"}


class Fakes:
    def read(self, path: str) -> bytes:
        if path not in FILES:
            raise FileNotFoundError(2, "No such file or directory")
        return FILES[path]

    def variable(self, name: str) -> str | None:
        return {"PASSWORD": "from the environment"}.get(name)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("env:PASSWORD", "from the environment"),
        ("file:/secret", "from the file"),
        ("pass:env:PASSWORD", "env:PASSWORD"),
        ("literal:file:/secret", "file:/secret"),
        ("plain", "plain"),
        ("other:form", "other:form"),
        ("env", "env"),
        ("pass:", ""),
    ],
)
def test_forms(text: str, secret: str) -> None:
    assert resolve(text, Fakes()) == secret


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env:OTHER", "environment variable 'OTHER' is not set"),
        ("file:/other", "file '/other' cannot be read: No such file or directory"),
        ("file:/binary", "file '/binary' is not UTF-8 text"),
    ],
)
def test_missing_secrets_are_configuration_errors(text: str, message: str) -> None:
    conf = f"connector {{\n saslPassword: {text}\n}}\n"
    with pytest.raises(ConfigError, match=f"^f:2: connector, attribute saslPassword: {message}$"):
        parse(conf, "f", sources=Fakes())


def test_missing_certificate_files_are_configuration_errors() -> None:
    conf = "sslProfile {\n name: t\n certFile: /nowhere\n}\n"
    with pytest.raises(
        ConfigError, match=r"^f:3: sslProfile 't', attribute certFile: file '/nowhere' cannot"
    ):
        parse(conf, "f", sources=Fakes())
    assert parse(conf, "f").ssl_profiles["t"].files_digest == ""


@pytest.mark.parametrize("sources", [SystemSources(), GuardedSources()], ids=["files", "clients"])
def test_only_regular_files_of_a_bounded_length_are_read(tmp_path: Path, sources: SystemSources) -> None:
    """A pipe made all reloads wait, and the end of the process as well; a large file took all memory."""
    small, large, fifo = tmp_path / "small", tmp_path / "large", tmp_path / "fifo"
    small.write_bytes(b"text")
    with large.open("wb") as file:
        file.truncate(sources.most_bytes + 1)
    os.mkfifo(fifo)
    assert sources.read(str(small)) == b"text"
    for path in (large, fifo, "/dev/zero", tmp_path):
        with pytest.raises(OSError, match=r"regular file|more than|directory"):
            sources.read(str(path))


def test_the_file_of_a_password_has_an_older_name() -> None:
    def password(*lines: str) -> str | None:
        text = "".join(f" {line}\n" for line in ("name: t", *lines))
        return parse(f"sslProfile {{\n{text}}}\n", "f", sources=Fakes()).ssl_profiles["t"].password

    assert password("passwordFile: /secret") == password("password: file:/secret") is not None
    assert password("password-file: /secret") == password("passwordFile: /secret")
    with pytest.raises(ConfigError, match="file '/other' cannot be read"):
        password("passwordFile: /other")
    with pytest.raises(ConfigError, match="given twice"):
        password("password: x", "passwordFile: /secret")
