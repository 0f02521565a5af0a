"""Settings: what is wrong is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus_flowlog.collector import settings
from isthmus_flowlog.collector.settings import SettingsError, load, parse

LEAST = {"hosts": ["router"], "log": "/log"}
PAGE = Path(__file__).parents[3] / "docs" / "flow-log.md"


def test_the_least() -> None:
    found = parse(LEAST)
    assert found.endpoints() == [("router", 5672)]
    assert (found.rotate.seconds, found.rotate.rows) == (300, 262_144)
    assert found.staging_folder == Path("/log/.staging")
    assert found.wants("anything")
    assert not found.filtered


def test_everything() -> None:
    found = parse(
        {
            "name": "flows",
            "hosts": ["a", "b:5673", "::1", "[::1]:7", "[fe80::1]"],
            "port": 5671,
            "tls": {"ca": "/ca", "cert": "/cert", "key": "/key", "verifyHostname": False},
            "sasl": {"mechanisms": "PLAIN", "userFile": "/user", "passwordFile": "/password"},
            "log": "s3a://bucket/prefix",
            "s3": {
                "endpoint": "http://minio:9000",
                "region": "x",
                "accessKeyFile": "/a",
                "secretKeyFile": "/s",
            },
            "rotate": {"seconds": 1.5, "rows": 10},
            "compaction": {"enabled": False, "targetBytes": 1, "afterSeconds": 0, "graceSeconds": 0},
            "retentionDays": 30,
            "include": ["edge-*"],
            "exclude": ["*-test"],
            "httpPort": 1,
            "staging": "/staging",
        }
    )
    assert found.endpoints() == [("a", 5671), ("b", 5673), ("::1", 5671), ("::1", 7), ("fe80::1", 5671)]
    assert found.tls is not None
    assert not found.tls.verifyHostname
    assert found.in_bucket
    assert found.filtered
    assert [router for router in ("edge-1", "edge-test", "core") if found.wants(router)] == ["edge-1"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"host": "x"}, "`host` is unknown"),
        ({"tls": {"caFile": "x"}}, "`tls.caFile` is unknown"),
        ({"hosts": []}, "`hosts` is empty"),
        ({"hosts": "router"}, "`hosts` is to be a list of strings"),
        ({"hosts": ["a:b"]}, "`hosts` has 'a:b'"),
        ({"hosts": ["a:0"]}, "`hosts` has 'a:0'"),
        ({"log": 5}, "`log` is 5: a string is needed"),
        ({"log": "ftp://x"}, "`log` is 'ftp://x'"),
        ({"log": "s3a://x"}, "`staging` is missing"),
        ({"port": "5672"}, "`port` is '5672': a whole number is needed"),
        ({"port": True}, "`port` is True: a whole number is needed"),
        ({"rotate": {"seconds": 0}}, "`rotate.seconds` is 0"),
        ({"rotate": 5}, "`rotate` is to be an object"),
        ({"retentionDays": -1}, "`retentionDays` is -1"),
        ({"tls": {"cert": "x"}}, "`tls.cert` and `tls.key`"),
        ({"tls": {"crl": "x"}}, "`tls.crl` needs `tls.ca`"),
        ({"s3": {"accessKeyFile": "x"}}, "`s3.accessKeyFile` and"),
        ({"tls": {"verifyHostname": "no"}}, "`tls.verifyHostname` is 'no': true or false is needed"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], what: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(LEAST | change)
    assert what in str(error.value)


@pytest.mark.parametrize(("missing"), ["hosts", "log"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(SettingsError, match=f"`{missing}` is missing"):
        parse({key: value for key, value in LEAST.items() if key != missing})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    with pytest.raises(SettingsError, match="No such file"):
        load(path)
    path.write_text("{")
    with pytest.raises(SettingsError, match="not JSON"):
        load(path)
    path.write_text("[]")
    with pytest.raises(SettingsError, match=r"settings\.json: the whole is to be an object"):
        load(path)
    path.write_text(json.dumps(LEAST))
    assert load(path) == parse(LEAST)


def test_every_setting_is_on_the_page() -> None:
    text = PAGE.read_text()
    for kind, prefix in (
        (settings.Settings, ""),
        (settings.Tls, "tls."),
        (settings.Sasl, "sasl."),
        (settings.S3, "s3."),
        (settings.Rotate, "rotate."),
        (settings.Compaction, "compaction."),
    ):
        for field in dataclasses.fields(kind):
            if f"{field.name}." not in ("tls.", "sasl.", "s3.", "rotate.", "compaction."):
                assert f"`{prefix}{field.name}`" in text, f"{prefix}{field.name}"
