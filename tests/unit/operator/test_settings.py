"""Environment variables of the operator; every mistake names its variable."""

from __future__ import annotations

import kopf
import pytest

from isthmus_operator.settings import Settings, SettingsError, kopf_settings

GOOD = {"ROUTER_IMAGE": "router:1", "POD_NAMESPACE": "isthmus"}


def test_defaults() -> None:
    found = Settings.from_environment(GOOD)
    assert found.watch_namespaces == ()
    assert found.lease_name == "isthmus-operator"
    assert (found.health_port, found.log_format, found.poll_seconds) == (8080, "json", 3)


def test_lists_and_switches() -> None:
    found = Settings.from_environment(
        {**GOOD, "WATCH_NAMESPACES": "a, b,", "IMAGE_PULL_SECRETS": "x", "LEASE_NAME": "none"}
    )
    assert found.watch_namespaces == ("a", "b")
    assert found.render.image_pull_secrets == ("x",)
    assert found.lease_name is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROUTER_IMAGE", ""),
        ("HEALTH_PORT", "http"),
        ("HEALTH_PORT", "0"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment({**GOOD, name: value})


def test_kopf_never_writes_into_objects_under_its_own_name() -> None:
    settings = kopf_settings()
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True


def test_kopf_reads_nothing_that_others_can_write_into_objects() -> None:
    """A value that kopf could not read would keep the object from the handlers, and so would a finalizer of its own."""
    settings = kopf_settings()
    annotations = {"isthmus.dev/last-handled-configuration": "{", "isthmus.dev/progress": "{"}
    body = kopf.Body({"metadata": {"annotations": annotations}})
    assert settings.persistence.diffbase_storage.fetch(body=body) is None
    assert settings.persistence.progress_storage.fetch(body=body, key="progress") is None
    assert " " in settings.persistence.finalizer, "a name that the API server accepts"
    assert list(settings.queueing.error_delays) == []


def test_all_objects_can_be_indexed_at_once() -> None:
    assert kopf_settings().queueing.worker_limit is None, "a limit deadlocks with more objects than slots"
