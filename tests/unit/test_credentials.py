"""Names that a certificate is for."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus_router.credentials import certificate_names


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("organizationName", "o"),), (("commonName", "sfo"),))}, ("sfo",)),
        (
            {
                "subject": ((("commonName", "a.example"),),),
                "subjectAltName": (("DNS", "b.example"), ("IP Address", "10.0.0.1"), ("DNS", "a.example")),
            },
            ("b.example", "a.example"),
        ),
    ],
)
def test_names(certificate: dict[str, Any] | None, names: tuple[str, ...]) -> None:
    assert certificate_names(certificate) == names
