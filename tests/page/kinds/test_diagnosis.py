"""A diagnosis: answers and recommendations; tests/golden/diagnosis-planted freezes its texts."""

import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from layerwise.page import ReportData, render
from layerwise.page.data import read_layer_verdicts
from layerwise.page.formatting import SIGNED
from layerwise.results.rows import Score
from layerwise.studies.diagnose.page import DIAGNOSIS
from layerwise.studies.diagnose.page_layers import VERDICT_SLOTS, describe_verdict, list_layer_effects, recommend_proxy
from page import planted
from page.page.test_render import read
from page.planted import row
from tools.golden.comparable import visible_text
from tools.golden.outputs import stored


def figures(data: ReportData) -> dict[str, Any]:
    return dict(json.loads(read(render(data)).json)["figures"])


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in figure["data"] if each.get("name") == name and "markers" in each.get("mode", ""))


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        (
            [row("ablation", "skip", 0.4, 0.1, layer=0)],
            "Layer 0 is the most important: skipping it costs 0.400",
        ),
        ([row("ablation", "skip", 0.4, 0.5, layer=0)], "No layer is shown to matter. The largest effect is +0.400"),
        ([row("ablation", "skip", 0.4, layer=0)], "No layer is shown to matter. The largest effect is +0.400"),
        ([row("deltas", "correlation", -0.5, distance=1)], ""),
    ],
    ids=["resolved", "holds zero", "no interval", "weights alone"],
)
def test_answers_agree_with_their_intervals(rows: list[Score], answer: str) -> None:
    given = DIAGNOSIS.answer(ReportData({}, (), tuple(rows)))
    assert given.startswith(answer)
    assert bool(given) == bool(answer)


def test_a_skipped_layer_has_the_same_interval_everywhere() -> None:
    data = stored("diagnosis")
    number = re.escape(SIGNED.number(list_layer_effects(data)[0].value))
    assert len(set(re.findall(rf"{number} (\[[^]]*\])", visible_text(render(data))))) == 1


def test_verdicts_have_the_colors_of_their_badges() -> None:
    style = files("layerwise.page").joinpath("style.css").read_text(encoding="utf-8")
    slots = dict(re.findall(r"\.badge\.(\w+) \{ color: var\(--series-(\d+)\); \}", style))
    like = {"supported": "matters", "inconclusive": "inconclusive", "null": "no_effect", "contradicted": "harmful"}
    assert slots == {badge: str(VERDICT_SLOTS[verdict]) for badge, verdict in like.items()}


def test_recommendations_are_plans_or_more_text() -> None:
    def following(*metrics: str) -> list[str]:
        rows = tuple(row("verdict", metric, 0.0, 0.1, layer=layer) for layer, metric in enumerate(metrics))
        return list(map(str, DIAGNOSIS.following(ReportData({"model": "m", "depth": 3}, (), rows))))

    assert following("matters", "no_effect", "matters")[0].endswith('layerwise sweep m --text PATH --plan "0 2"')
    assert "Use more text" in following("inconclusive", "inconclusive", "inconclusive")[0]
    assert following("matters", "matters", "matters") == following("harmful", "harmful", "no_effect") == []


def test_a_confirmed_verdict_takes_precedence_over_the_screening() -> None:
    given = (
        row("verdict", "no_effect", 0.0, layer=1),
        row("racing", "matters", 0.1, layer=1),
        row("racing", "matters", 1.0, layer=0),
        row("racing", "matters", float("inf"), layer=2),
    )
    rows = ReportData({}, (), given).rows
    assert {layer: each.metric for layer, each in read_layer_verdicts(rows).items()} == {0: "matters", 1: "no_effect"}
    assert describe_verdict(row("verdict", "harmful", -0.1, layer=0, mde=0.2)) == "harmful"


def test_very_low_values_of_r2_are_drawn_at_the_floor() -> None:
    rows = (
        replace(each, value=-30.0, low=-40.0, high=-20.0) if each.metric == "heldout_layers_r2" else each
        for each in planted.DIAGNOSIS.scores
        if each.measure == "predictability"
    )
    marks = trace(figures(planted.of(*rows))["predictability-r2"]["variants"]["1"], "held-out layers")
    assert set(marks["x"]) == {-1.0}
    assert all("−30" in text for text in marks["text"])


def test_an_interrupted_diagnosis_names_its_missing_parts() -> None:
    def banner(data: ReportData, *finished: str) -> str | None:
        done = (row("part", "done", 1.0, section=part) for part in finished)
        return DIAGNOSIS.unfinished(replace(data, scores=(*data.scores, *done)))

    parts = [part for part in planted.DIAGNOSIS.manifest["families"] if ":" not in part]  # type: ignore[attr-defined]
    part = banner(planted.without(planted.DIAGNOSIS, "recovery", "manipulation"), *parts[:5])
    assert "(manipulation and recovery) are incomplete" in str(part)
    assert banner(planted.DIAGNOSIS, *parts) is None


def recommended(**correlations: tuple[float, float | None, float]) -> str:
    rows = tuple(
        Score("agreement", "spearman", value, low, 0.95, p, condition=name)
        for name, (value, low, p) in correlations.items()
    )
    return " ".join(recommend_proxy(ReportData({}, (), rows)))


def test_the_recommended_proxy_agrees_with_skipping() -> None:
    text = recommended(
        gate_gradient=(-0.15, -0.7, 0.6),
        angular=(0.7, 0.2, 0.01),
        gate_sensitivity=(0.74, 0.3, 0.004),
        block_influence=(0.5, 0.1, 0.03),
    )
    assert text.startswith("Recommended proxy for this model: gate sensitivity 0.740 [0.300, 0.950].")
    assert "Other proxies that rank layers as skipping does: angular distance 0.700" in text
    # Holm's correction asks the third of four for p below 0.05 / 2.
    others = "Proxies not shown to be better than chance: Block Influence 0.500 [0.100, 0.950] and gate gradient −0.150"
    assert others in text


@pytest.mark.parametrize("angular", [(0.8, None, 0.01), (0.8, -0.1, 0.01), (0.8, 0.2, 0.2)])
def test_no_proxy_is_recommended_without_evidence(angular: tuple[float, float | None, float]) -> None:
    """The correlation has no interval, contains zero, or does not exceed chance."""
    assert recommended(angular=angular).startswith("No proxy is recommended: none ranks layers as skipping does")
    assert recommended() == ""
