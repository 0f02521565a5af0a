"""The page: all of it is there, nothing of a log is markup, and its size is bounded."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from tests.unit.flow_report.samples import network, nothing, row, rows, summary

from isthmus_flows import formats
from isthmus_flows.report import ReportData, render

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Text of sections and tables; a tag that is not closed is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: dict[str, str] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.references: list[str] = []
        self._open: list[str] = []
        self._section = ""
        self._caption: str | None = None
        self._cells: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attributes)
        self.attributes |= given.keys()
        self.references += [str(given[name]) for name in ("src", "href", "xlink:href") if name in given]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "section":
            self._section = given["id"] or ""
            self.text[self._section] = ""
        if tag == "table":
            self._caption = ""
        if tag == "tr":
            self._cells = []
        if tag in ("td", "th"):
            self._cells.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.attributes |= dict(attributes).keys()
        self.references += [str(value) for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "tr" and self._caption is not None:
            self.tables.setdefault(self._caption, []).append(self._cells)
        if tag == "table":
            self._caption = None
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self._section:
            self.text[self._section] += data
        if "caption" in self._open[-1:]:
            self._caption = (self._caption or "") + data
        if self._open and self._open[-1] in ("td", "th"):
            self._cells[-1] += data


SECTIONS = [
    "findings",
    "traffic",
    "rates",
    "latency",
    "talkers",
    "utilisation",
    "waiting",
    "rotation",
    "topology",
    "relay",
    "anomalies",
    "sessions",
    "quality",
]


@cache
def ordinary() -> str:
    return render(network())


def test_everything_is_told() -> None:
    page = Page(ordinary())
    assert list(page.text) == SECTIONS
    tables = page.tables
    assert tables["Links without credit"][1][4:7] == ["20 min 50 s", "35 %", "10 min"]
    assert tables["Deliveries without an outcome for 10 s or longer"][1][4:6] == ["7", "1 h 12 min"]
    assert tables["Rotations"][1][2:4] == ["3 → 4", "22 Nov 14:00:00"]
    assert tables["Connections that outlived a rotation"][1][3:] == ["3 of 4", "17", "still there"]
    assert tables["Times of change, by what they cost"][1][2] == "398"
    assert "cost 398" in page.text["topology"], "on the timeline"
    assert tables["Sites with each other"][1][:7] == ["trades", "nyc", "sfo", "up", "90 k", "88 k", "120"]
    assert tables["Unusual hours"][1][5:8] == ["450 ms", "12 ms", "17"]
    lives = [tables[f"{kind} with the most traffic"][1] for kind in ("Routers", "Connections", "Links")]
    assert [line[3] for line in lives] == ["lost 23 Nov 08:00:00", "still there", "23 Nov 08:00:00"]
    assert lives[1][2].startswith("before ")
    assert tables["Slowest addresses"][1][:3] == ["site-3", "orders.5", "in"]
    assert [line[3] for line in tables["Slowest links"][1:3]] == [
        "billing-7 at 10.1.2.3",
        "billing-6 at 10.1.2.3",
    ]
    assert tables["Clients that received most"][1][1:3] == ["site-0", "billing-0 at 10.1.2.3"]
    assert "1.2 M" in page.text["findings"]
    assert "120 messages from nyc will never arrive at sfo." in page.text["findings"]
    busiest = tables["Busiest addresses"]
    assert busiest[1][:4] == ["site-3", "orders", "in", "40 k"]
    assert "and 28 more in the table's files." in page.text["traffic"]


def test_the_map_has_what_was_sent_where() -> None:
    page = Page(render(network(sites=2, addresses=2)))
    assert page.tables["Messages sent by clients"] == [
        ["address", "site-1", "site-0"],
        ["orders", "20 k", "10 k"],
        ["orders.1", "10 k", "5 k"],
    ]


def test_a_log_without_anything_is_a_page_that_says_so() -> None:
    page = Page(render(nothing()))
    assert list(page.text) == SECTIONS
    assert "Nothing stands out." in page.text["findings"]
    assert "There are no relay sites." in page.text["relay"]
    assert "Nothing had to wait." in page.text["waiting"]
    assert "svg" not in page.tags


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</svg><b>&lt;",
    ],
)
def test_names_are_text(evil: str) -> None:
    found = network(sites=2, addresses=2, name=evil)
    found.tables["relay_events"].rows[0]["reason"] = evil  # type: ignore[index]
    html = render(found)
    page = Page(html)
    assert not {"script", "img", "b"} & page.tags
    assert not [name for name in page.attributes if name.startswith("on")]
    assert any(evil in cell for lines in page.tables.values() for line in lines for cell in line)
    assert html.count("<svg") > 5


def test_the_page_forbids_scripts_and_everything_from_elsewhere() -> None:
    head = ordinary().partition("<style>")[0]
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', head)
    assert policy is not None
    assert policy[1].split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_nothing_is_fetched_from_anywhere() -> None:
    page = Page(ordinary())
    assert [item for item in page.references if not item.startswith("#")] == []
    assert "url(http" not in ordinary()


def test_drawings_are_well_formed_and_say_what_they_show() -> None:
    html = render(network(sites=5, routers=20))
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) >= 8
    for drawing in drawings:
        svg = drawing.replace("xlink:href", "href")
        root = ElementTree.fromstring(svg)
        assert root.attrib["aria-label"]
        assert not {"width", "height"} & set(root.attrib)
    (drawn,) = (drawing for drawing in drawings if 'class="network"' in drawing)
    assert drawn.count("<circle") == 60
    assert drawn.count('class="site"') > 1
    assert f"{99 - drawn.count('<line')} connections are not drawn" in drawn


def test_a_page_is_bounded_however_much_there_is() -> None:
    html = render(
        network(
            sites=60,
            addresses=5000,
            routers=3,
            name="a-name-that-is-as-long-as-names-of-addresses-may-well-be",
        )
    )
    assert len(html) < 3_000_000
    page = Page(html)
    assert len(page.tables["Messages sent by clients"]) <= 26
    assert len(page.tables["Messages sent by clients"][0]) <= 22


@pytest.mark.parametrize("names", [["$a", "_b", "c$d_e", "x" * 200], ["\\alpha$x$", "&<>", "'\""]])
def test_odd_names_in_drawings(names: list[str]) -> None:
    found = network(addresses=2)
    for number, item in enumerate(found.series["rates"]):
        item["address"] = names[number % len(names)]  # type: ignore[index]
    html = render(found)
    page = Page(html)
    assert all(formats.short(name) in page.text["rates"] for name in names), "in the legend"
    for drawing in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        ElementTree.fromstring(drawing.replace("xlink:href", "href"))


def test_one_interval_is_drawn_too() -> None:
    found = network(sites=1, addresses=1, routers=2)
    short = {
        name: [item for item in lines if item.get("moment") == lines[0].get("moment")]
        for name, lines in found.series.items()
    }
    assert "<svg" in render(ReportData(found.summary, found.tables, short, found.step))


def test_what_is_not_known_is_a_dash() -> None:
    unknown = rows(row("traffic_matrix", direction="in", deliveries=5, latency_p50_us=None))
    page = Page(render(ReportData(summary(), {"traffic_matrix": unknown})))
    line = page.tables["Busiest addresses"][1]
    assert line[:4] == ["(no site)", "(in each message)", "in", "5"]
    assert line[7] == "–"
