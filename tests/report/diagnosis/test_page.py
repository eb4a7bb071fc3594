"""The page of a diagnosis: its chapters, its figures, its banner, and what it says of measures that were not taken."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from layerwise.report import ReportData, markdown, render
from layerwise.report.diagnosis.chapters.proxies import recommendation
from layerwise.report.diagnosis.lookup import MEASURES, DiagnosisScores
from layerwise.results.rows import Note, Score
from report import diagnosed, synthetic
from report.page.test_render import CHAPTERS as SWEEP
from report.page.test_render import Page, read

CHAPTERS = (
    "claims", "verdicts", "ablation", "racing", "order", "deltas", "predictability", "recovery", "manipulation",
    "structure",
    "proxies", "agreement", "pruning", "provenance",
)  # fmt: skip
MISSING = {
    "ablation": "No layer was silenced or replaced",
    "racing": "No race was run",
    "effect": "No layers were put into another order",
    "deltas": "Weight differences were not measured",
    "predictability": "Predictability of weights was not measured",
    "recovery": "No layer was damaged and trained again",
    "manipulation": "No layer's weights were changed",
    "structure": "The structure of the layers was not measured",
    "proxies": "No proxy was measured",
    "agreement": "No two scores were compared",
    "pruning": "No set of layers was dropped jointly",
}


def chapters(page: Page) -> list[str]:
    return [found for found in page.ids if found in {*CHAPTERS, *SWEEP}]


def figures(html: str) -> dict[str, Any]:
    return dict(json.loads(read(html).json)["figures"])


def both() -> ReportData:
    sweep, diagnosis = synthetic.run(12), diagnosed.diagnosis(12)
    return replace(sweep, plans=sweep.plans + diagnosis.plans, scores=sweep.scores + diagnosis.scores)


@pytest.fixture(scope="module")
def html() -> str:
    return render(diagnosed.diagnosis(12))


@pytest.fixture(scope="module")
def drawn(html: str) -> dict[str, Any]:
    return figures(html)


def test_a_diagnosis_has_its_own_chapters_and_no_others(html: str) -> None:
    page = read(html)
    assert chapters(page) == list(CHAPTERS)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(text not in page.text for text in MISSING.values())


def test_a_sweep_has_no_chapter_of_a_diagnosis() -> None:
    assert chapters(read(render(synthetic.run(6)))) == list(SWEEP)


def test_a_run_that_is_both_has_both_and_one_provenance() -> None:
    page = read(render(both()))
    assert chapters(page) == ["headline", "claims", *SWEEP[1:-1], *CHAPTERS[1:]]
    assert len(page.ids) == len(set(page.ids))


def test_every_figure_has_its_slot_and_its_data(html: str, drawn: dict[str, Any]) -> None:
    assert set(re.findall(r'class="plot" data-figure="([^"]+)"', html)) == set(drawn)
    assert all(figure["leader"] in drawn for figure in drawn.values())
    assert all(figure["variants"] for figure in drawn.values())


def test_a_follower_has_a_choice_for_every_one_of_its_leader(drawn: dict[str, Any]) -> None:
    for figure in drawn.values():
        assert figure["choices"] in (0, drawn[figure["leader"]]["choices"])
        assert set(figure["variants"]) <= set(drawn[figure["leader"]]["variants"]) | {""}


@pytest.mark.parametrize("measure", MISSING)
def test_a_measure_that_was_not_taken_has_no_chapter_and_is_said_at_the_end(measure: str) -> None:
    page = read(render(diagnosed.without(diagnosed.diagnosis(8), measure)))
    assert chapters(page) == [name for name in CHAPTERS if name != {"effect": "order"}.get(measure, measure)]
    assert MISSING[measure] in page.text
    assert [text for text in MISSING.values() if text in page.text] == [MISSING[measure]]


@pytest.mark.parametrize("measure", [*MEASURES, "effect"])
def test_a_measure_alone_makes_a_page(measure: str) -> None:
    rest = {score.measure for score in diagnosed.scores(8)} - {measure}
    page = read(render(diagnosed.without(diagnosed.diagnosis(8), *rest)))
    own = {"effect": "order", "verdict": "verdicts"}.get(measure, measure)
    told = [name for name in chapters(page) if name != "claims"]  # some claims are decided by one measure, some by more
    drawn = {"racing": {"verdicts", "racing"}}.get(measure, {own})
    assert told == [name for name in CHAPTERS if name in {*drawn, "provenance"}]
    assert page.open == []


def test_it_opens_with_a_paragraph_that_says_what_it_is_about(html: str) -> None:
    opening = html[html.index('<p class="opening">') : html.index("<section")]
    for words in ("Which of the 12 layers", "what would be found if there were nothing to find", "0.69 nats more"):
        assert words in opening


def test_what_a_measure_left_out_stands_in_its_chapter() -> None:
    data = replace(diagnosed.diagnosis(8), notes=(Note("deltas", "Layers 3 and 4 have <unlike> shapes."),))
    page = render(data)
    chapter = page[page.index('<section id="deltas"') : page.index('<section id="predictability"')]
    assert "Layers 3 and 4 have &lt;unlike&gt; shapes." in chapter


def trace(figure: dict[str, Any], name: str, mode: str = "lines") -> dict[str, Any]:
    return next(found for found in figure["data"] if found.get("name") == name and mode in found.get("mode", ""))


def test_a_null_is_drawn_as_a_band_under_the_measured_line(drawn: dict[str, Any]) -> None:
    figure = drawn["ablation-silenced"]["variants"]["0"]
    names = [found["name"] for found in figure["data"]]
    assert names.index("no effect") < names.index("skipped")
    band = next(found for found in figure["data"] if found["name"] == "no effect" and found.get("fill"))
    assert (min(band["y"]), max(band["y"])) == (-0.02, 0.02)


def test_the_measured_line_is_the_rows(drawn: dict[str, Any]) -> None:
    rows = {
        int(score.subject): score
        for score in diagnosed.scores(12)
        if (score.measure, score.metric, score.task) == ("ablation", "skip", "all") and score.subject.isdecimal()
    }
    figure = drawn["ablation-silenced"]["variants"]["0"]
    line = trace(figure, "skipped", "markers")
    assert line["x"] == list(range(12))
    assert line["y"] == [rows[layer].value for layer in range(12)]
    ribbon = next(found for found in figure["data"] if found["name"] == "skipped" and found.get("fill"))
    assert ribbon["y"][:12] == [rows[layer].high for layer in range(12)]


def test_perplexity_is_a_translation_in_the_hover_and_nowhere_else(drawn: dict[str, Any]) -> None:
    line = trace(drawn["ablation-silenced"]["variants"]["0"], "skipped", "markers")
    assert all("perplexity" in text and "nats per token" in text for text in line["text"])
    assert all(
        "perplexity" not in json.dumps(figure["variants"]["0"]["layout"]) for figure in [drawn["ablation-silenced"]]
    )


def test_the_line_of_independent_layers_is_drawn(drawn: dict[str, Any]) -> None:
    shapes = drawn["deltas-correlation"]["variants"]["0"]["layout"]["shapes"]
    assert any(shape["y0"] == shape["y1"] == -0.5 for shape in shapes)
    shapes = drawn["deltas-types"]["variants"][""]["layout"]["shapes"]
    assert any(shape["x0"] == shape["x1"] == -0.5 for shape in shapes)


def test_censored_layers_are_open_marks(drawn: dict[str, Any]) -> None:
    line = trace(
        drawn["recovery-area"]["variants"]["0"], "Loss above the undamaged twin, summed over training", "markers"
    )
    assert line["marker"]["symbol"][0].endswith("-open")
    assert not any(symbol.endswith("-open") for symbol in line["marker"]["symbol"][1:])


def test_wild_values_of_r2_stand_at_the_floor_and_tell_the_truth(drawn: dict[str, Any]) -> None:
    rows = [
        replace(score, value=-30.0, low=-40.0, high=-20.0) if score.metric == "heldout_layers_r2" else score
        for score in diagnosed.scores(8)
    ]
    figure = figures(render(replace(diagnosed.diagnosis(8), scores=tuple(rows))))["predictability-r2"]["variants"]["1"]
    marks = trace(figure, "held-out layers", "markers")
    assert set(marks["x"]) == {-1.0}
    assert all("−30" in text for text in marks["text"])


def test_verdicts_are_cells_by_depth(html: str) -> None:
    cells = re.findall(r'<li class="(matters|no_effect|harmful)" title="([^"]+)">', html)
    assert [kind for kind, _ in cells] == ["matters"] * 6 + ["harmful", "no_effect"] + ["matters"] * 4
    assert "layer 7: no effect above 0.0210 nats" in [title for _, title in cells]
    assert "10 layers matter, 1 layer is without effect, 1 layer is harmful" in read(html).text


def test_the_masthead_counts_what_a_diagnosis_has(html: str) -> None:
    header = html[html.index("<header>") : html.index("</header>")]
    for name in ("layers", "scores", "tasks", "documents", "tokens"):
        assert f"<dt>{name}</dt>" in header
    assert "<dt>plans</dt>" not in header
    assert "banner" not in header


def test_an_interrupted_diagnosis_names_the_parts_that_are_waiting() -> None:
    part = diagnosed.resumable(diagnosed.without(diagnosed.diagnosis(8), "recovery", "pruning"), *diagnosed.PARTS[:8])
    text = read(render(part)).text
    assert "3 parts of this diagnosis are not complete (recovery, agreement and pruning)" in text
    whole = diagnosed.resumable(diagnosed.diagnosis(8), *diagnosed.PARTS)
    assert "not complete" not in read(render(whole)).text


def compared(**correlations: tuple[float, float | None, float]) -> DiagnosisScores:
    """Rank correlations of proxies with skipping: each with the low end of its interval, and its p."""
    rows = [
        Score("agreement", f"skip,{name}", "all", "spearman", value, low, 0.95, p, 1.0)
        for name, (value, low, p) in correlations.items()
    ]
    return DiagnosisScores.of(rows, 12)


def test_the_proxy_is_recommended_that_agrees_with_skipping_on_this_model() -> None:
    sensitivity, taylor = (0.74, 0.3, 0.004), (0.7, 0.2, 0.01)
    influence, gradient = (0.5, 0.1, 0.03), (-0.15, -0.7, 0.6)
    told = recommendation(
        compared(gate_gradient=gradient, taylor=taylor, gate_sensitivity=sensitivity, block_influence=influence)
    )
    assert told.startswith("Recommended for this model: gate sensitivity 0.740 [0.300, 0.950] (Spearman's")
    assert "also in agreement: taylor 0.700" in told
    # A p of 0.03 is not below 0.05 / 2, which Holm's correction asks of the third of four.
    assert "not beyond chance: block influence 0.500 [0.100, 0.950] and gate gradient −0.150" in told


@pytest.mark.parametrize("row", [(0.8, None, 0.01), (0.8, -0.1, 0.01), (0.8, 0.2, 0.2)])
def test_no_proxy_is_recommended_without_evidence(row: tuple[float, float | None, float]) -> None:
    """A great correlation without an interval, with one that holds zero, or no greater than chance may give."""
    assert recommendation(compared(taylor=row)).startswith("No proxy is recommended: none ranks these layers")
    assert recommendation(compared()) == ""


def test_the_page_says_whether_documents_or_windows_are_resampled() -> None:
    data = diagnosed.diagnosis(8)
    many, one = (read(render(replace(data, manifest={**data.manifest, "documents": n}))).text for n in (40, 1))
    assert "whole documents are drawn again" in many
    assert "Ribbons are intervals by bootstrap over documents" in many
    assert "bootstraps over windows, since the text has fewer than 8 documents" in one
    assert "Ribbons are intervals by bootstrap over windows" in one
    assert "whole documents are drawn again" not in one


def test_depth_is_read_from_the_rows_where_nobody_states_it(html: str) -> None:
    assert "<dd>12</dd><dt>layers</dt>" in html
    alone = diagnosed.without(replace(diagnosed.diagnosis(12), plans=()), "proxies", "effect")
    assert "<dd>12</dd><dt>layers</dt>" in render(alone)


def test_hostile_names_stay_text() -> None:
    hostile = "<script>alert('a')</script>\"&|%{x}"
    rows = tuple(replace(score, task=hostile) if score.task == "text" else score for score in diagnosed.scores(8))
    rows += tuple(replace(score, task=hostile) for score in diagnosed.scores(8) if score.task == diagnosed.TYPES[1])
    html = render(replace(diagnosed.diagnosis(8), scores=rows))
    page = read(html)
    assert "<script>alert" not in html
    assert page.names.count("script") == 3
    assert page.open == []


def test_values_that_are_not_finite_leave_the_page_whole() -> None:
    rows = tuple(
        replace(score, value=float("nan")) if number % 3 == 0 else replace(score, low=float("nan"))
        for number, score in enumerate(diagnosed.scores(8))
    )
    page = read(render(replace(diagnosed.diagnosis(8), scores=rows)))
    json.loads(page.json, parse_constant=lambda name: pytest.fail(name))
    assert chapters(page) == list(CHAPTERS)


def test_one_task_and_thirty_layers() -> None:
    html = render(diagnosed.diagnosis(30, tasks=("all",)))
    assert chapters(read(html)) == list(CHAPTERS)
    assert len(html.encode()) < 9_000_000


def test_markdown_has_claims_verdicts_and_effects() -> None:
    text = markdown(diagnosed.diagnosis(12))
    assert "- **Core layers** (contradicted) At layers 1–4 skipping a layer costs −0.90" in text
    assert "| 6 | harmful | −0.0600 \\[" in text or "| 6 | harmful | −0.0600 [" in text
    assert "## Ablation" in text
    assert "No finding" not in text
    assert "## Claims" in markdown(both())
    assert "Which change hurts least?" in markdown(both())
