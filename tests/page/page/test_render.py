"""The page is complete, escaped and valid, and makes no requests."""

import json
import re
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from layerwise.errors import RunError
from layerwise.page import ReportData, render, write
from layerwise.results.rows import PlanRecord
from page.planted import of, without
from tools.golden.outputs import stored

VOID = {"meta", "input", "br", "hr", "col"}


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.names: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.json = ""
        self.styles = ""
        self.rows = 0
        self.data = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.names.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.loads += [found[name] or "" for name in ("src", "href", "srcset", "action", "data") if name in found]
        self.data = found.get("type") == "application/json"
        self.rows += tag == "svg" and found.get("class") == "wiring" and "table" in self.open
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.json += data if self.data else ""
        elif inside == "style":
            self.styles += data
        else:
            self.text += data


@lru_cache(maxsize=4)
def read(html: str) -> Page:
    return Page(html)


SWEEP = stored("sweep-planted")
"""Six layers, two tasks; tests/golden freezes the page's structure."""
CHAPTERS = ("headline", "curves", "layers", "cost", "similarity", "tasks", "plans", "provenance")


@pytest.fixture(scope="module")
def html() -> str:
    return render(SWEEP)


def test_the_page_loads_nothing(html: str) -> None:
    page = read(html)
    assert all(address.startswith("#") for address in page.loads)
    assert not re.search(r"@import|url\(", page.styles)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.names)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert "default-src 'none'" in policy[1]
    assert "http" not in policy[1]


def test_every_figure_and_plan_is_on_the_page(html: str) -> None:
    page, plans = read(html), {record.plan for record in SWEEP.plans}
    assert set(re.findall(r'class="plot" data-figure="([^"]+)"', html)) == set(json.loads(page.json)["figures"])
    assert (page.open, len(page.ids)) == ([], len(set(page.ids)))
    assert page.rows == len(plans)
    curves = json.loads(page.json)["figures"]["curves"]
    assert curves["choices"] == 3
    assert len({key.split(".")[2] for key in curves["variants"]}) == len(SWEEP.tasks)


def test_rendering_is_deterministic_and_small(html: str) -> None:
    assert render(replace(SWEEP, scores=(*SWEEP.scores,))) == html
    assert len(render(stored("sweep")).encode()) < 8_000_000


@pytest.mark.parametrize(
    ("missing", "left_out", "line"),
    [
        ({"effect"}, {"curves", "cost", "layers"}, "No effect was measured"),
        ({"similarity"}, {"similarity"}, "Similarity was not measured"),
        ({"benchmark", "effect"}, {"curves", "cost", "layers", "tasks"}, "No tasks or benchmarks were"),
        ({"benchmark"}, set(), ""),
    ],
)
def test_empty_chapters_are_listed_at_the_end(missing: set[str], left_out: set[str], line: str) -> None:
    html = render(without(SWEEP, "contrast", *missing))
    page = read(html)
    assert [found for found in page.ids if found in CHAPTERS] == [name for name in CHAPTERS if name not in left_out]
    assert line in html[html.index('id="provenance"') :]
    assert "Not in this run" in page.text  # the claims at least: these rows hold no contrasts
    assert ("Benchmarks" in page.text) == ("benchmark" not in missing)
    assert 'class="missing"' not in html


def test_an_empty_run_has_a_page() -> None:
    page = read(render(of()))
    assert [found for found in page.ids if found in CHAPTERS] == ["headline", "provenance"]
    assert "The run has no plans." in page.text
    assert "There are no findings" in page.text


def test_an_interrupted_run_has_a_banner(html: str) -> None:
    kept = {record.plan for record in SWEEP.plans[:4]}
    page = read(render(replace(SWEEP, scores=tuple(score for score in SWEEP.scores if score.plan in kept))))
    assert "have no effect yet: the run was interrupted" in page.text
    assert "interrupted" not in read(html).text


def test_invalid_plans_stay_in_the_table() -> None:
    foreign = PlanRecord("not a plan", "painters", "skip", 1, None, 1, 1, 1, 1)
    assert "not a plan" in render(ReportData({"depth": 4}, (foreign,), ()))


def test_pages_are_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(path, "<p>ä</p>")
    assert path.read_text(encoding="utf-8") == "<p>ä</p>"
    with pytest.raises(RunError, match="Choose a path"):
        write(tmp_path / "nowhere" / "report.html", "x")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["report.html"]
