"""Every verdict of every claim, each from rows that were planted for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from layerwise.report import Evidence, ReportData
from layerwise.report.claims import Claim, claim_lines, claims
from layerwise.results.rows import Score
from report import diagnosed, synthetic
from report.diagnosed import row

DEPTH = 30
Rows = Iterable[Score]


def verdict(name: str, rows: Rows, depth: int = DEPTH) -> str:
    return found(name, rows, depth).verdict


def found(name: str, rows: Rows, depth: int = DEPTH) -> Claim:
    return {claim.name: claim for claim in told_of(rows, depth)}[name]


def told_of(rows: Rows, depth: int = DEPTH) -> tuple[Claim, ...]:
    return claims(Evidence.of(ReportData({"depth": depth}, (), tuple(rows))))


def predicted(inside: float, held_out: float, half: float = 0.02, null: float = -0.1) -> list[Score]:
    rows = [row("predictability", "all", "in_sample_r2", inside, 0.01)]
    for metric in ("heldout_rows_r2", "heldout_layers_r2"):
        rows.append(row("predictability", "all", metric, held_out, half))
        rows.append(row("predictability", "all", f"{metric}@random_twin", null, 0.02))
    return rows


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        (predicted(0.91, 0.88), "supported"),
        (predicted(0.91, 0.88, null=0.87), "explained by the null"),  # the untrained twin is as predictable
        (predicted(0.91, -0.3), "explained by the null"),
        (predicted(0.3, 0.05), "contradicted"),
        (predicted(0.91, 0.5, half=0.3), "not resolvable"),
    ],
)
def test_weights_are_predictable(rows: Rows, expected: str) -> None:
    assert verdict("Weights are predictable", rows) == expected


def recovered(raw: float, given: float | None, half: float | None = 0.1, band: float | None = None) -> list[Score]:
    rows = [row("recovery", "ablation", "spearman", raw, half, task="noise_50/layer")]
    if given is not None:
        rows.append(row("recovery", "ablation", "spearman_given_damage", given, half, task="noise_50/layer"))
    if band is not None:
        for metric in ("spearman", "spearman_given_damage"):
            rows.append(row("recovery", "ablation", f"{metric}@shuffled_layers", 0.0, band, task="noise_50/layer"))
    return rows


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        (recovered(0.8, 0.6), "supported"),
        (recovered(0.8, 0.05), "explained by the null"),
        (recovered(-0.5, 0.0), "contradicted"),
        (recovered(0.05, 0.05), "not resolvable"),
        (recovered(0.8, None), "not resolvable"),
        (recovered(0.8, 0.6, half=None), "not resolvable"),
        (recovered(0.8, 0.7, half=None, band=0.5), "supported"),
        (recovered(0.8, 0.3, half=None, band=0.5), "explained by the null"),
        (recovered(-0.8, 0.3, half=None, band=0.5), "contradicted"),
        (recovered(0.4, 0.4, half=None, band=0.5), "not resolvable"),
    ],
)
def test_recovery_follows_importance(rows: Rows, expected: str) -> None:
    assert verdict("Recovery follows importance", rows) == expected


def test_the_published_damage_decides_where_it_was_run() -> None:
    other = [row("recovery", "ablation", "spearman", -0.9, 0.05, task="reinitialise/model")]
    assert verdict("Recovery follows importance", [*other, *recovered(0.8, 0.6)]) == "supported"
    assert verdict("Recovery follows importance", other) == "contradicted"


@pytest.mark.parametrize(("equal", "expected"), [(0.7, "supported"), (0.05, "not resolvable")])
def test_where_damage_was_made_equal_the_relation_must_hold_too(equal: float, expected: str) -> None:
    control = row("recovery", "ablation", "spearman", equal, 0.1, task="equal_damage/layer")
    assert verdict("Recovery follows importance", [*recovered(0.8, 0.6), control]) == expected


def changed(costs: dict[str, float], half: float = 0.01) -> list[Score]:
    """The same cost in every layer for each `strategy:size`."""
    return [
        row("manipulation", str(layer), metric, cost, half, tokens=5000)
        for metric, cost in costs.items()
        for layer in range(DEPTH)
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        (changed({"scale:0.1": 0.1, "gate:0.9": 0.1}), "not measured"),  # a gate has no size
        (changed({"scale:0.1": 0.1, "noise:1": 5.0}), "not measured"),  # no common size
        (changed({"scale:0.1": 0.1, "noise:0.1": 0.5, "copy:0.1": 0.4}), "supported"),
        (changed({"scale:0.1": 0.1, "noise:0.1": 0.1, "noise:1": 5.0}), "explained by the null"),
        (changed({"scale:0.1": 0.5, "noise:0.1": 0.1}), "contradicted"),
        (changed({"scale:0.1": 0.1, "noise:0.1": 0.11}), "not resolvable"),
        (changed({"scale:0.1": 0.1, "noise:0.1": 0.5, "copy:0.1": 0.11}), "not resolvable"),  # it is not the only one
    ],
)
def test_only_scaling_survives(rows: Rows, expected: str) -> None:
    assert verdict("Only scaling survives", rows) == expected


PLANTED = {
    "Core layers": "contradicted",
    "Anti-layers": "supported",
    "Weights oscillate": "explained by the null",
    "Weights are predictable": "explained by the null",
    "Recovery follows importance": "explained by the null",
    "Only scaling survives": "explained by the null",
    "Middle layers are alike": "supported",
    "Order matters more for reasoning": "supported",
}


@pytest.mark.parametrize("depth", [12, 30])
def test_a_whole_diagnosis_decides_every_claim_with_figures(depth: int) -> None:
    told = [claim for claim in told_of(diagnosed.scores(depth), depth) if claim.verdict != "not measured"]
    assert {claim.name: claim.verdict for claim in told} == PLANTED
    assert all(any(letter.isdigit() for letter in claim.figures) and "[" in claim.figures for claim in told[:-4])
    assert all(claim.why.endswith(".") and claim.figures.endswith(".") for claim in told)


def test_tokens_stand_beside_losses() -> None:
    told = {claim.name: claim.figures for claim in told_of(diagnosed.scores(12), 12)}
    for name in ("Core layers", "Anti-layers", "Only scaling survives", "Order matters more for reasoning"):
        assert "tokens)" in told[name]


def test_values_that_are_not_finite_are_not_measured() -> None:
    broken = [row("deltas", "1", "correlation", float("nan"), 0.1)]
    assert verdict("Weights oscillate", broken) == "not measured"


def test_lines_for_the_terminal() -> None:
    lines = claim_lines(diagnosed.diagnosis(12))
    assert len(lines) == len(PLANTED)
    assert any(
        line.startswith("Core layers: contradicted. At layers 1–4 skipping a layer costs −0.90") for line in lines
    )
    assert "\n" not in "".join(lines)
    assert claim_lines(synthetic.run(6)) == ()


@pytest.mark.parametrize("order", [reversed, list])
def test_claims_do_not_depend_on_the_order_of_the_rows(order: Callable[[list[Score]], Iterable[Score]]) -> None:
    rows = diagnosed.scores(12)
    assert told_of(order(list(rows)), 12) == told_of(rows, 12)
