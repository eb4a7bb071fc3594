"""The report of pre-trained models: rows looked up, sentences that claim what intervals carry, page and Markdown."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest
from layerwise.report.pretraining.findings import pretraining_findings
from layerwise.report.pretraining.layer_weights import Alpha
from layerwise.report.pretraining.lookup import PretrainingScores
from layerwise.report.pretraining.tables import cost_rows, outcome_rows, suite_rows
from layerwise.report.pretraining.weight_map import weight_map

from layerwise.experiments.summary import summary
from layerwise.report import Evidence, ReportData, markdown, render
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.results.rows import Score
from report import diagnosed, pretrained, robust, synthetic
from report.page.test_render import read
from report.pretrained import row

CHAPTERS = (
    "study",
    "masked_lm",
    "alpha",
    "seed_agreement",
    "training",
    "costs",
    "pairs",
    "glue",
    "edges",
    "provenance",
)
MISSING = {
    ("masked_lm", "pairs", "blimp"): "Nothing was measured on held-out text",
    ("seed_agreement",): "The weights were not compared across seeds",
    ("training",): "Time, memory and size of the trainings were not noted",
}


@pytest.fixture(scope="module")
def data() -> ReportData:
    return pretrained.run(8)


@pytest.fixture(scope="module")
def found(data: ReportData) -> PretrainingScores:
    return PretrainingScores.of(data.scores)


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render(data)


def figures(html: str) -> dict[str, Any]:
    return dict(json.loads(read(html).json)["figures"])


def chapters(html: str) -> list[str]:
    return [name for name in read(html).ids if name in CHAPTERS]


def answer(found: PretrainingScores, question: str) -> tuple[str, str]:
    return next(
        (finding.text, finding.state) for finding in pretraining_findings(found) if finding.question == question
    )


# ---- rows looked up


def test_arms_seeds_and_depth_are_read_from_the_rows(found: PretrainingScores) -> None:
    assert found.arms == ("ltg", "elc", "zero", "denseformer")
    assert found.seeds["elc"] == pretrained.SEEDS
    assert found.depth == 8
    assert found.suites == ("pairs", "blimp")
    assert found.tasks == ("glue", "msgs-ours")


def test_layer_weights_are_the_mean_over_seeds_with_their_spread(data: ReportData, found: PretrainingScores) -> None:
    own = [s.value for s in data.scores if (s.measure, s.task, s.metric) == ("alpha", "5", "2") and "elc/" in s.subject]
    alpha = found.weights["elc"]
    assert alpha.mean[5, 2] == pytest.approx(fmean(own))
    assert alpha.spread[5, 2] == pytest.approx(stdev(own))
    assert not alpha.mixes_output
    assert found.weights["denseformer"].mixes_output
    assert "ltg" not in found.weights


def test_a_fine_tuning_is_counted_to_its_seed_and_never_to_the_mean_of_the_arm() -> None:
    rows = [row("glue", name, "rte", "accuracy", value) for name, value in (("a/0", 0.6), ("a/1", 0.8), ("a/0.1", 0.0))]
    found = PretrainingScores.of(rows)
    assert found.seeds["a"] == (0, 1)
    assert found.by_arm("glue", "accuracy", "rte")["a"].value == pytest.approx(0.7)


def test_a_model_with_a_slash_in_its_name_is_an_arm() -> None:
    assert PretrainingScores.of([row("blimp", "org/model", "all", "accuracy", 0.7)]).arms == ("org/model",)


def test_what_is_not_finite_was_not_measured() -> None:
    found = PretrainingScores.of(
        [row("masked_lm", "a", "test", "nll", math.nan), row("masked_lm", "b", "test", "nll", 4.0)]
    )
    assert found.arms == ("b",)


def test_runs_of_other_kinds_have_no_pre_trained_models() -> None:
    for scores in (robust.scores(8), synthetic.run(6).scores, diagnosed.scores(6)):
        assert PretrainingScores.of(scores).measures == ()


# ---- sentences


def test_the_study_is_told_better_worse_or_not_resolvable(found: PretrainingScores) -> None:
    text, state = answer(found, "Is elc worth it against ltg, at equal tokens?")
    assert text.startswith("Better: held-out loss −0.0230 [−0.0350, −0.0110] nats per token")
    assert "(3 seeds)" in text
    assert state == "resolved"
    text, state = answer(found, "Is elc worth it against ltg, at equal seconds?")
    assert text.startswith("Not resolvable: ")
    assert state == "unresolved"


@pytest.mark.parametrize(
    ("task", "value", "word"), [("masked_lm tokens", 0.1, "Worse"), ("pairs tokens", 0.1, "Better")]
)
def test_more_loss_is_worse_and_more_accuracy_better(task: str, value: float, word: str) -> None:
    found = PretrainingScores.of([Score("study", "elc - ltg", task, "difference", value, value / 2, 2 * value, 0.01)])
    assert pretraining_findings(found)[0].text.startswith(f"{word}: ")


def test_accuracies_are_told_in_points_and_ratios_as_such() -> None:
    rows = [
        Score("study", "elc - ltg", "pairs tokens", "difference", 0.021, 0.01, 0.032, 0.01),
        Score("study", "elc - ltg", "time", "ratio", 1.07, 1.05, 1.09),
    ]
    told, cost = pretraining_findings(PretrainingScores.of(rows))
    assert "+2.10 [+1.00, +3.20] points" in told.text
    assert cost.text == "elc time ×1.07 [1.05, 1.09]."


def test_an_arm_at_chance_is_not_said_to_know() -> None:
    rows = [
        Score("blimp", name, "all", "accuracy", value, value - 0.01, value + 0.01)
        for name, value in (("elc", 0.6), ("ltg", 0.505))
    ]
    assert pretraining_findings(PretrainingScores.of(rows))[0].text.endswith("above chance (50 %): elc.")
    rows.append(Score("blimp", "zero", "all", "accuracy", 0.45, 0.44, 0.46))
    assert pretraining_findings(PretrainingScores.of(rows))[0].text.endswith(
        "above chance (50 %): elc; below it: zero."
    )


def test_agreement_is_judged_by_its_p(found: PretrainingScores) -> None:
    assert "elc more than chance" in answer(found, "Are they alike beyond the start they share?")[0]
    assert "elc not distinguishable from chance" in answer(found, "Do they beyond being neighbours?")[0]


def test_the_sparse_wiring_stands_beside_its_nulls(found: PretrainingScores) -> None:
    text, _ = answer(found, "What does the sparse wiring lose?")
    assert text.startswith("30 edges kept: +0.0210 [+0.0120, +0.0300] nats; as many cut by size +0.0640")
    assert text.endswith("better than by size.")


# ---- tables


def test_losses_have_three_decimals_and_costs_are_multiples_of_the_backbone(found: PretrainingScores) -> None:
    assert outcome_rows(found).body[1][:3] == ("elc", "3", "4.089 [4.080, 4.098]")
    rows = cost_rows(found)
    step = rows.head.index("step (s)")
    assert rows.body[0][step] == "0.450"
    assert rows.body[1][step] == "0.482 [×1.07]"


def test_every_paradigm_has_a_row_with_its_pairs(found: PretrainingScores) -> None:
    rows = suite_rows(found, "blimp", "paradigm:")
    assert len(rows.body) == 2 * len(pretrained.PHENOMENA)
    assert rows.head == ("paradigm", "pairs", "ltg", "elc", "zero", "denseformer")
    assert rows.body[0][:2] == ("anaphor_agreement_1", "1,000")


# ---- pictures


def test_the_map_has_a_cell_for_every_edge_with_its_seeds_in_the_hover_text(found: PretrainingScores) -> None:
    alpha = found.weights["elc"]
    drawn = weight_map(alpha, alpha.mean, most=1.0, title="weights")
    assert drawn.count("<rect") == 8 * 9 // 2
    assert "layer 5 reads layer 1: " in drawn
    assert "elc/2: " in drawn
    assert 'fill="#8d919c"' in drawn, "the embedding is grey"


def test_negative_weights_are_frames_and_fuller_cells_weigh_more() -> None:
    rows = [row("alpha", "a/0", "1", str(source), value) for source, value in ((0, -0.5), (1, 1.0))]
    alpha = Alpha.of(rows)
    first, second = re.findall(r"<rect.*?(?=>)", weight_map(alpha, alpha.mean, most=1.0, title=""))
    assert 'fill="none"' in first
    assert 'fill-opacity="1"' in second


def test_a_deep_map_has_no_numbers_in_its_cells() -> None:
    rows = [row("alpha", "a/0", str(n), str(i), 0.1) for n in range(24) for i in range(n + 1)]
    alpha = Alpha.of(rows)
    assert 'class="value"' not in weight_map(alpha, alpha.mean, most=1.0, title="")


def test_arms_that_share_rows_stand_in_lanes_and_others_in_the_middle() -> None:
    score = row("blimp", "a", "all", "accuracy", 0.5, 0.1)
    shared = dots([DotArm("a", 0, {"x": score}), DotArm("b", 1, {"x": score})], across="")
    alone = dots([DotArm("a", 0, {"x": score}), DotArm("b", 1, {"y": score})], across="")
    assert len({trace["y"][0] for trace in shared.traces}) == 2
    assert [trace["y"][0] for trace in alone.traces] == [0.0, 1.0]


# ---- page


def test_every_chapter_is_written_once_in_order(html: str) -> None:
    assert chapters(html) == list(CHAPTERS)
    assert 'class="missing"' not in html


def test_every_figure_has_data_and_swaps_its_colours(html: str) -> None:
    drawn = figures(html)
    assert len(drawn) >= 12
    assert all(variant["data"] for figure in drawn.values() for variant in figure["variants"].values())


@pytest.mark.parametrize("left_out", MISSING)
def test_missing_rows_are_said_in_a_line(data: ReportData, left_out: tuple[str, ...]) -> None:
    assert MISSING[left_out] in render(pretrained.without(data, *left_out))


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        (("alpha", "masked_lm"), ["masked_lm", "alpha", "provenance"]),
        (("blimp",), ["pairs", "provenance"]),
        (("study",), ["study", "provenance"]),
        (("alpha", "edges"), ["alpha", "edges", "provenance"]),
    ],
)
def test_each_kind_of_run_has_its_own_chapters(
    data: ReportData, measures: tuple[str, ...], expected: list[str]
) -> None:
    assert chapters(render(pretrained.only(data, *measures))) == expected


def test_a_training_alone_is_still_that_of_another_run(data: ReportData) -> None:
    assert Evidence.of(pretrained.only(data, "training")).pretraining.measures == ()


def test_an_unfinished_training_is_announced(data: ReportData) -> None:
    cut = tuple(s for s in data.scores if (s.measure, s.metric, s.subject) != ("training", "steps", "elc/1"))
    assert "1 training (elc/1) is not complete" in render(replace(data, scores=cut))


def test_names_that_users_chose_are_escaped(data: ReportData) -> None:
    rows = [row("pairs <b>.jsonl", "<i>arm", "all", "accuracy", 0.6, 0.1), row("alpha", "<i>arm/0", "0", "0", 1.0)]
    html = render(replace(data, scores=tuple(rows)))
    assert "<i>arm" not in html.replace(read(html).json, "")
    assert "<b>.jsonl" not in html.replace(read(html).json, "")


def test_the_terminal_shows_a_table_and_the_verdicts(data: ReportData) -> None:
    lines = summary(data).splitlines()
    assert lines[0].startswith("arm")
    assert lines[1].startswith("ltg")
    assert any(line.startswith("- Is elc worth it against ltg, at equal tokens? Better") for line in lines)
    assert "robustness" not in summary(data)


def test_markdown_has_the_findings_and_the_tables(data: ReportData) -> None:
    text = markdown(data)
    for title in ("Arms", "Differences", "Cost", "BLiMP by phenomenon", "BLiMP by paradigm", "GLUE"):
        assert f"## {title}\n" in text
    assert "Who survives what" not in text
    assert "- **Is elc worth it against ltg, at equal tokens?** (resolved)" in text
