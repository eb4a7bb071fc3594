"""The page as text: complete, escaped, valid, and without a single request."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from layerwise.errors import RunError
from layerwise.report import ReportData, markdown, render, write
from layerwise.results.rows import PlanRecord, Score
from report import synthetic

CHAPTERS = ("headline", "curves", "layers", "cost", "similarity", "gallery", "tasks", "plans", "provenance")
VOID = {"meta", "input", "br", "hr", "col"}
HOSTILE = "<script>alert('a')</script>\"&|%{x}"


class Page(HTMLParser):
    """A page read back: ids, elements, attributes that load something, and scripts apart from text."""

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
        self.rows += tag == "tr" and "data-resolved" in found
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
    """A page read back, once however often it is asked for: a page is megabytes."""
    return Page(html)


@pytest.fixture(scope="module")
def data() -> ReportData:
    return synthetic.run(12, ("painters", "leave_one_out", "swap_adjacent", "every_window", "gain_sweep"))


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render(data)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return read(html)


def test_every_chapter_stands_once_and_every_element_is_closed(page: Page) -> None:
    assert [found for found in page.ids if found in CHAPTERS] == list(CHAPTERS)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_loaded(page: Page) -> None:
    assert all(address.startswith("#") for address in page.loads)
    assert not re.search(r"@import|url\(", page.styles)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.names)


def test_the_policy_forbids_every_request(data: ReportData) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', render(replace(data, scores=(), plans=())))
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "http" not in policy[1]


def test_every_figure_has_its_slot_and_its_data(page: Page, html: str) -> None:
    figures = json.loads(page.json)["figures"]
    slots = set(re.findall(r'class="plot" data-figure="([^"]+)"', html))
    assert slots == set(figures)
    assert {"ranking", "curves", "cost", "layers-0", "layers-1", "map-0", "order"} <= slots
    assert all(figure["variants"] for figure in figures.values())


def test_every_task_has_a_variant_of_the_main_figure(page: Page) -> None:
    curves = json.loads(page.json)["figures"]["curves"]
    tasks = {key.split(".")[2] for key in curves["variants"]}
    assert curves["choices"] == 3
    assert len(tasks) == len(synthetic.TASKS) + 1


def test_every_plan_has_a_row_a_tile_and_its_details(page: Page, html: str, data: ReportData) -> None:
    plans = {record.plan for record in data.plans}
    assert page.rows == len(plans)
    assert {plan["plan"] for plan in json.loads(page.json)["plans"]} == plans
    assert html.count('class="tile"') == len(plans)


def test_the_same_rows_give_the_same_bytes(data: ReportData, html: str) -> None:
    assert render(data) == html


def test_names_that_users_choose_are_escaped() -> None:
    plain = synthetic.run(6, ("painters",), tasks=("text", "sorting"))
    hostile = replace(
        plain,
        manifest={"model": HOSTILE, "corpus": HOSTILE, "command": ["run", HOSTILE], HOSTILE: {HOSTILE: HOSTILE}},
        scores=(
            *(replace(score, task=HOSTILE if score.task == "text" else score.task) for score in plain.scores),
            Score("run", HOSTILE, 1.0, part="sweep"),
            Score("benchmark", HOSTILE, 1.0, task=HOSTILE, plan=HOSTILE),
        ),
        plans=(*plain.plans, PlanRecord(HOSTILE, HOSTILE, HOSTILE, 1, None, 1, 1, 1, 1)),
    )
    html = render(hostile)
    page = read(html)
    assert "<script>alert" not in html
    assert page.open == []
    assert page.names.count("script") == 3
    assert HOSTILE in page.text
    figures = json.dumps(json.loads(page.json)["figures"])
    assert "&lt;script&gt;" in figures  # plotly reads HTML in its labels


@pytest.mark.parametrize(
    ("missing", "left_out", "line"),
    [
        ({"effect"}, {"curves", "cost", "layers"}, "No effect was measured"),
        ({"similarity"}, {"similarity"}, "Similarity was not measured"),
        ({"benchmark", "effect"}, {"curves", "cost", "layers", "tasks"}, "No task and no benchmark was"),
        ({"benchmark"}, set(), ""),
        ({"run"}, set(), ""),
    ],
)
def test_a_chapter_without_rows_is_left_out_and_listed_at_the_end(
    missing: set[str], left_out: set[str], line: str
) -> None:
    whole = synthetic.run(6)
    part = replace(whole, scores=tuple(score for score in whole.scores if score.measure not in missing))
    html = render(part)
    page = read(html)
    assert [found for found in page.ids if found in CHAPTERS] == [name for name in CHAPTERS if name not in left_out]
    assert line in html[html.index('id="provenance"') :]
    assert "Not in this run" in page.text  # the claims at least: these rows hold no contrasts
    assert ("Benchmarks" in page.text) == ("benchmark" not in missing)
    assert 'class="missing"' not in html


def test_an_empty_run_is_a_page_that_says_so() -> None:
    page = read(render(ReportData({}, (), ())))
    assert [found for found in page.ids if found in CHAPTERS] == ["headline", "provenance"]
    assert "The run has no plans." in page.text
    assert "No finding" in page.text


@pytest.mark.parametrize("location", ["/data/models/tiny-llama/", "org/tiny-llama", "tiny-llama"])
def test_a_page_is_titled_by_the_name_of_its_model(location: str) -> None:
    run = synthetic.run(6)
    html = render(replace(run, manifest={**run.manifest, "model": location}))
    assert "<title>tiny-llama · layerwise report</title>" in html
    assert "<h1>tiny-llama</h1>" in html
    assert f"<dd>{location}</dd>" in html  # whole, in the provenance
    assert markdown(replace(run, manifest={**run.manifest, "model": location})).startswith("# tiny-llama\n")


def test_words_are_defined_where_they_are_met_first() -> None:
    run = synthetic.run(12)
    bounded = (
        replace(score, low=score.value - 1e-4, high=score.value + 1e-4) if score.measure == "similarity" else score
        for score in run.scores
    )
    text = read(render(replace(run, scores=tuple(bounded)))).text
    for word, definition in (
        ("nats", "0.69 nats more, and the right token is half as likely"),
        ("staircase", "As trained every step reads all that was written before: a staircase"),
        ("grey band", "The grey band is the smallest detectable effect"),
    ):
        assert text.index(word) <= text.index(definition) + len(definition)
        assert text.index(definition) < text.index(word) + 200
    assert "The sink token is one, mostly the first" in text


def test_a_tile_says_which_layers_its_plan_touches() -> None:
    run = synthetic.run(6, ("leave_one_out", "swap_adjacent"))
    html = render(run)
    told = re.findall(r'<span class="size">([^<]+)</span>', html)
    assert {f"without {layer}" for layer in range(6)} <= set(told)
    assert {f"layers {layer}–{layer + 1}" for layer in range(5)} <= set(told)


def test_an_interrupted_run_says_so_first() -> None:
    whole = synthetic.run(6)
    kept = {record.plan for record in whole.plans[:4]}
    page = read(render(replace(whole, scores=tuple(score for score in whole.scores if score.plan in kept))))
    assert "have no effect yet: the run was interrupted" in page.text
    assert "interrupted" not in read(render(whole)).text


def test_numbers_that_are_not_finite_do_not_break_the_page() -> None:
    whole = synthetic.run(6, ("painters", "leave_one_out"))
    broken = tuple(
        replace(score, value=float("nan"), low=None, high=None) if number % 3 == 0 else score
        for number, score in enumerate(whole.scores)
    )
    page = read(render(replace(whole, scores=broken)))
    assert page.open == []
    json.loads(page.json, parse_constant=lambda name: pytest.fail(name))


def test_plans_of_a_foreign_store_stay_in_the_table() -> None:
    foreign = PlanRecord("not a plan", "painters", "skip", 1, None, 1, 1, 1, 1)
    html = render(ReportData({"depth": 4}, (foreign,), ()))
    assert "not a plan" in html


def test_the_untouched_model_is_the_baseline_and_not_a_plan_that_was_missed() -> None:
    whole = synthetic.run(6)
    identity = PlanRecord("0-5", "identity", "identity", 0, None, 6, 6, 6, 6)
    kept = tuple(s for s in whole.scores if not (s.plan == "0-5" and s.metric == "delta_nll"))
    records = (identity, *(record for record in whole.plans if record.plan != "0-5"))
    html = render(replace(whole, plans=records, scores=kept))
    assert html.count("the baseline") == 3  # on its tile, in the tile's hover, and in the table
    without_claims = re.sub(r'<section id="claims".*?</section>', "", html, flags=re.DOTALL)
    assert "not measured" not in read(without_claims).text


def test_the_size_stays_sendable() -> None:
    html = render(synthetic.run(30, ("painters",)))
    assert len(html.encode()) < 8_000_000


def test_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(path, "<p>ä</p>")
    assert path.read_text(encoding="utf-8") == "<p>ä</p>"
    with pytest.raises(RunError, match="name a folder"):
        write(tmp_path / "nowhere" / "report.html", "x")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["report.html"]


def test_a_sweep_of_single_layers_begins_with_its_answer_and_the_chart_of_layers() -> None:
    html = render(synthetic.run(8, ("leave_one_out",)))
    assert "dropping it costs" in read(html[: html.index('<section id="headline"')]).text
    assert [name for name in read(html).ids if name in CHAPTERS][:2] == ["headline", "layers"]
