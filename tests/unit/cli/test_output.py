"""Names that peers have chosen do nothing to a terminal."""

from __future__ import annotations

import json

import pytest
from tests.unit.cli.test_view import address, connector, report, status

from isthmus_cli.errors import CliError
from isthmus_cli.output import say, show
from isthmus_cli.view import NetworkView, network_view

EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n"


def hostile_view() -> NetworkView:
    document = status(
        f"east{EVIL}",
        addresses=[address(f"orders{EVIL}", 2)],
        connectors=[connector("failed", container=f"c{EVIL}", message=f"refused{EVIL}")],
        neighbors=[{"id": f"west{EVIL}", "cost": 3, "connectionId": 1}],
        lastConfigError=f"wrong{EVIL}",
    )
    return network_view("n", "this machine", [report(document)])


def controls(text: str) -> set[str]:
    return {letter for letter in text if not letter.isprintable() and letter != "\n"}


@pytest.mark.parametrize("output", ["table", "wide", "json"])
def test_control_characters_of_peers_do_not_reach_the_terminal(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(hostile_view(), output)
    shown = capsys.readouterr().out
    assert "orders" in shown
    assert controls(shown) == set()
    if output == "json":
        assert json.loads(shown)["addresses"][0]["name"] == f"orders{EVIL}"


def test_messages_and_errors_are_shown_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"pod{EVIL}: ready\nnext line")
    CliError(f"refused: {EVIL}").show()
    captured = capsys.readouterr()
    assert controls(captured.out) == set()
    assert controls(captured.err) <= set("\x1b")
    assert "\x1b]" not in captured.err
    assert "\nnext line" in captured.out
