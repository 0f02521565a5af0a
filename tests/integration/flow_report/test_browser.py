"""The report in a real browser: it is laid out at all widths, in both colour schemes, and nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flow_report.samples import network

from isthmus_flows.report import render

CHROMIUM = "chromium"
BROWSER_S = 60
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
MEASURE = """
<script>
addEventListener("load", () => {
  const page = document.documentElement, ink = getComputedStyle(document.body);
  const drawings = [...document.querySelectorAll("svg")].map(one => one.getBoundingClientRect());
  const texts = [...document.querySelectorAll("svg text")].map(one => getComputedStyle(one).fill);
  document.title = JSON.stringify({
    width: innerWidth, scroll: page.scrollWidth, ink: ink.color, paper: ink.backgroundColor,
    drawings: drawings.map(one => [Math.round(one.width), Math.round(one.height)]),
    texts: [...new Set(texts)], requests: performance.getEntriesByType("resource").length,
    tables: document.querySelectorAll("table").length,
  });
});
</script></body>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a script that tells what the browser has made of it."""
    html = render(network(sites=12, addresses=40, name="a-name-that-is-as-long-as-those-of-addresses-may-be"))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html.replace("</body>", MEASURE))
    return path


def opened(page: Path, folder: Path, width: int, *options: str) -> dict[str, Any]:
    assert shutil.which(CHROMIUM), "chromium is missing: apt-get install chromium"
    size = f"--window-size={width},1200"
    words = [CHROMIUM, *QUIET, *options, size, f"--user-data-dir={folder}", "--dump-dom", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BROWSER_S, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.DOTALL)
    assert title is not None, done.stderr
    found: dict[str, Any] = json.loads(unescape(title[1]))
    assert "CONSOLE" not in done.stderr
    return found


@pytest.mark.parametrize("width", [1280, 500])
def test_it_fits_every_width_and_fetches_nothing(page: Path, tmp_path: Path, width: int) -> None:
    seen = opened(page, tmp_path, width)
    assert seen["scroll"] <= seen["width"] <= width, "only tables scroll, in their boxes"
    assert seen["requests"] == 0
    assert seen["tables"] > 10
    assert len(seen["drawings"]) > 5
    assert all(0.2 * seen["width"] < wide <= seen["width"] and high > 40 for wide, high in seen["drawings"])


def test_both_colour_schemes_can_be_read(page: Path, tmp_path: Path) -> None:
    light = opened(page, tmp_path / "light", 1280, "--blink-settings=preferredColorScheme=1")
    dark = opened(page, tmp_path / "dark", 1280, "--blink-settings=preferredColorScheme=0")
    for seen in (light, dark):
        assert abs(brightness(seen["ink"]) - brightness(seen["paper"])) > 150
        assert all(abs(brightness(text) - brightness(seen["paper"])) > 70 for text in seen["texts"]), seen[
            "texts"
        ]
    assert brightness(light["paper"]) > 200
    assert brightness(dark["paper"]) < 60


def brightness(colour: str) -> float:
    """0 to 255, of `rgb(...)`."""
    red, green, blue = (float(part) for part in re.findall(r"[\d.]+", colour)[:3])
    return 0.3 * red + 0.59 * green + 0.11 * blue
