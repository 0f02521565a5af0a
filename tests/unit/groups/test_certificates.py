"""Which certificates have a name that is wanted."""

from __future__ import annotations

import pytest

from isthmus_router.groups.certificates import is_of_member, misnamed


@pytest.mark.parametrize(
    ("names", "wanted", "fits"),
    [
        (("sfo.example",), (), True),
        ((), ("sfo.example",), False),
        (("nyc.example", "SFO.example"), ("sfo.Example",), True),
        (("sfo.example",), ("example",), False),
        (("sfo-0.sfo.example",), ("*.sfo.example",), True),
        (("*.sfo.example",), ("*.sfo.example",), True),
        (("*.sfo.example",), ("sfo-0.sfo.example",), False),
        (("sfo.example",), ("*.sfo.example",), False),
        (("a.b.sfo.example",), ("*.sfo.example",), False),
        (("sfo",), ("*.",), False),
    ],
)
def test_a_name_is_wanted(names: tuple[str, ...], wanted: tuple[str, ...], fits: bool) -> None:
    told = f"certificate is for {', '.join(names) or 'nobody'}, not {', '.join(wanted)}"
    fix = ": issue it for that name, or change peerNames"
    assert misnamed(names, wanted) == ("" if fits else told + fix)


@pytest.mark.parametrize(
    ("names", "member", "fits"),
    [
        (("nyc-0",), "nyc-0", True),
        (("NYC-0.site.example",), "nyc-0", True),
        (("nyc",), "nyc-12", True),
        (("nyc.example",), "nyc-0", False),
        (("nyc",), "nyc-a", False),
        (("nyc-0",), "nyc-00", False),
        (("nyc-01",), "nyc-0", False),
        (("payments-app", "*.example"), "nyc-0", False),
        ((), "nyc-0", False),
    ],
)
def test_certificates_of_members(names: tuple[str, ...], member: str, fits: bool) -> None:
    assert is_of_member(names, member) is fits
