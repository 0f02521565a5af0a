"""The report in a real browser: it is laid out at all widths, in both colour schemes, and nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flow_report.samples import network

from isthmus_flows.report import render

CHROMIUM = "chromium"
POLICY = "default-src 'none'"
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
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
MEASURE = """
<script>
addEventListener("load", () => {
  const page = document.documentElement, ink = getComputedStyle(document.body);
  const boxes = [...document.querySelectorAll(".drawing, .scroll")].map(one => one.getBoundingClientRect());
  const labels = [...document.querySelectorAll("svg text")].filter(one => one.textContent.trim());
  const texts = [...document.querySelectorAll("svg text")].map(one => getComputedStyle(one).fill);
  const cells = [...document.querySelectorAll(".heat td")].map(one => getComputedStyle(one).backgroundColor);
  top.document.title = JSON.stringify({
    width: innerWidth, scroll: page.scrollWidth, ink: ink.color, paper: ink.backgroundColor,
    box: getComputedStyle(document.querySelector("section")).backgroundColor,
    boxes: boxes.map(one => [Math.round(one.width), Math.round(one.height)]),
    drawings: document.querySelectorAll("svg").length, cells: [...new Set(cells)],
    letters: Math.min(...labels.map(one => { const box = one.getBBox(), on = one.getScreenCTM();
      return box.height * Math.hypot(on.c, on.d); })),
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
    script = MEASURE.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert html.count(POLICY) == 1
    html = html.replace(POLICY, f"{POLICY}; script-src 'sha256-{digest}'")
    path.write_text(html.replace("</body>", MEASURE))
    return path


def framed(page: Path, width: int) -> Path:
    """The page as wide as that: windows cannot be as narrow as a telephone."""
    path = page.with_name(f"{width}.html")
    inner = escape(page.read_text())
    path.write_text(
        f'<title>-</title><iframe width="{width}" height="900" style="border: 0" srcdoc="{inner}">'
    )
    return path


def opened(page: Path, folder: Path, *options: str) -> dict[str, Any]:
    assert shutil.which(CHROMIUM), "chromium is missing: apt-get install chromium"
    size = "--window-size=1400,1200"
    words = [CHROMIUM, *QUIET, *options, size, f"--user-data-dir={folder}", "--dump-dom", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BROWSER_S, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.DOTALL)
    assert title is not None, done.stderr
    found: dict[str, Any] = json.loads(unescape(title[1]))
    assert "CONSOLE" not in done.stderr
    return found


@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_every_width_and_fetches_nothing(page: Path, tmp_path: Path, width: int) -> None:
    seen = opened(framed(page, width), tmp_path)
    assert seen["width"] == width
    assert seen["scroll"] <= width, "only tables and drawings scroll, in their boxes"
    assert seen["requests"] == 0
    assert seen["tables"] > 10
    assert seen["drawings"] > 5
    assert all(0.7 * width < wide < width and high > 40 for wide, high in seen["boxes"])
    assert seen["letters"] > 8, "in drawings too"


def test_the_policy_of_the_page_runs_no_script(tmp_path: Path) -> None:
    html = render(network(sites=2, addresses=2))
    script = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    for name, page, title in (
        ("with", html, "Flows of a network"),
        ("without", html.replace("Content-Security-Policy", "x"), "run"),
    ):
        path = tmp_path / f"{name}.html"
        path.write_text(page.replace("</body>", f"{script}</body>"))
        words = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / name}", "--dump-dom", path.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=BROWSER_S, check=True)
        assert f"<title>{title}</title>" in done.stdout


def test_both_colour_schemes_can_be_read(page: Path, tmp_path: Path) -> None:
    light = opened(page, tmp_path / "light", "--blink-settings=preferredColorScheme=1")
    dark = opened(page, tmp_path / "dark", "--blink-settings=preferredColorScheme=0")
    for seen in (light, dark):
        assert abs(brightness(seen["ink"]) - brightness(seen["paper"])) > 150
        assert all(abs(brightness(text) - brightness(seen["paper"])) > 70 for text in seen["texts"]), seen[
            "texts"
        ]
        assert min(contrast(seen["ink"], over(cell, seen["box"])) for cell in seen["cells"]) > 4.5
    assert brightness(light["paper"]) > 200
    assert brightness(dark["paper"]) < 60


def parts(colour: str) -> list[float]:
    """Red, green, blue of `rgb(...)`, each up to 255, and opacity if it is told."""
    return [float(part) for part in re.findall(r"[\d.]+", colour)]


def brightness(colour: str) -> float:
    """0 to 255."""
    red, green, blue, *_ = parts(colour)
    return 0.3 * red + 0.59 * green + 0.11 * blue


def over(colour: str, below: str) -> str:
    """What is seen of a colour that lets another one through."""
    *upper, opacity = parts(colour) if colour.startswith("rgba") else [*parts(colour), 1.0]
    mixed = [
        opacity * one + (1 - opacity) * other for one, other in zip(upper, parts(below)[:3], strict=True)
    ]
    return f"rgb({mixed[0]}, {mixed[1]}, {mixed[2]})"


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it: 1 to 21, and at least 4.5 for text."""

    def luminance(colour: str) -> float:
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (part / 255 for part in parts(colour)[:3])
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
