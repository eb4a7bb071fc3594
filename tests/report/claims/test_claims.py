"""Every verdict of every claim, each from rows that were planted for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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


def ablation(
    metric: str, high: Iterable[int], half: float = 0.1, value: float = 2.0, rest: float = 0.2
) -> Iterator[Score]:
    """One intervention whose effect is great in some layers."""
    top = set(high)
    for layer in range(DEPTH):
        yield row("ablation", str(layer), metric, value + 0.01 * layer if layer in top else rest, half, tokens=5000)


CORE = range(8, 12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        ([*ablation("skip", CORE)], "supported"),
        ([*ablation("skip", range(9, 13))], "supported"),  # near is near enough
        ([*ablation("skip", range(14, 18))], "contradicted"),
        ([*ablation("skip", [0])], "contradicted"),
        ([*ablation("skip", CORE, half=1.5)], "not resolvable"),
        ([*ablation("skip", CORE), row("ablation", "10", "skip", 0.35, 0.1)], "not resolvable"),  # one is not apart
        ([*ablation("skip", [8, 9, 11, 13])], "not resolvable"),  # the greatest effects, yet no core
        (
            [*ablation("skip", [0]), *ablation("neighbour_average", CORE), *ablation("random", CORE)],
            "explained by the null",
        ),
        (
            [*ablation("skip", [0]), *ablation("neighbour_average", CORE), *ablation("random", [], rest=0.5)],
            "contradicted",
        ),
    ],
)
def test_core_layers(rows: Rows, expected: str) -> None:
    assert verdict("Core layers", rows) == expected


def test_a_core_by_average_needs_no_average_at_the_ends() -> None:
    ends = {"0", str(DEPTH - 1)}
    average = [score for score in ablation("neighbour_average", CORE) if score.subject not in ends]
    rows = [*ablation("skip", [0]), *average, *ablation("random", CORE)]
    assert verdict("Core layers", rows) == "explained by the null"


def verdicts(harmful: Iterable[int] = (), silent: Iterable[int] = (), limit: float = 0.02) -> Iterator[Score]:
    for layer in range(DEPTH):
        name = "harmful" if layer in set(harmful) else "no_effect" if layer in set(silent) else "matters"
        value = {"harmful": -0.05, "no_effect": 0.0, "matters": 0.3}[name]
        yield row("verdict", str(layer), name, value, 0.01, resolution=limit, tokens=5000)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*ablation("skip", [14], value=-0.5)], "not measured"),  # an effect is no verdict
        ([*verdicts(harmful=[14])], "supported"),
        ([*verdicts(silent=[14]), *ablation("skip", [14], value=-0.5)], "explained by the null"),
        ([*verdicts(silent=[14], limit=0.004)], "contradicted"),
        ([*verdicts()], "contradicted"),  # every layer matters
        ([*verdicts(silent=[14])], "not resolvable"),
        ([*verdicts(silent=[14]), *ablation("skip", [14], value=-0.15)], "not resolvable"),  # it never looked harmful
    ],
)
def test_anti_layers(rows: Rows, expected: str) -> None:
    assert verdict("Anti-layers", rows) == expected


def test_the_verdict_of_the_race_serves_where_there_is_no_other() -> None:
    race = [row("racing", str(layer), "harmful" if layer == 3 else "matters", 0.1, 0.01) for layer in range(DEPTH)]
    assert verdict("Anti-layers", race) == "supported"
    assert verdict("Anti-layers", [*race, *verdicts()]) == "contradicted"


def lag_one(value: float, half: float | None, shuffled: float = 0.01) -> list[Score]:
    return [
        row("deltas", "1", "correlation", value, half),
        row("deltas", "1", "correlation@shuffled", -0.5, shuffled),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        (lag_one(-0.668, 0.002), "supported"),
        (lag_one(-0.501, 0.002), "explained by the null"),
        (lag_one(-0.249, 0.002), "contradicted"),
        (lag_one(-0.6, 0.4), "not resolvable"),
        (lag_one(-0.5, None), "not resolvable"),
        (lag_one(-0.52, 0.01, shuffled=0.05), "not resolvable"),  # the shuffled order does as much
    ],
)
def test_weights_oscillate(rows: Rows, expected: str) -> None:
    assert verdict("Weights oscillate", rows) == expected


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


def influence(
    middle: float, ends: float, half: float = 0.01, twin: tuple[float, float] | None = (0.2, 0.21)
) -> list[Score]:
    rows = []
    for layer in range(DEPTH):
        inside = DEPTH // 4 <= layer < DEPTH - DEPTH // 4
        rows.append(row("proxies", str(layer), "block_influence", middle if inside else ends, half))
        if twin is not None:
            value = twin[0] if inside else twin[1]
            rows.append(row("proxies", str(layer), "block_influence@random_twin", value, 0.005))
    return rows


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        (influence(0.1, 0.3), "supported"),
        ([*influence(0.1, 0.1), row("proxies", "0", "block_influence", 9.0, 0.01)], "not resolvable"),  # one layer
        (influence(0.1, 0.3, twin=(0.1, 0.3)), "explained by the null"),
        (influence(0.3, 0.1), "contradicted"),
        (influence(0.2, 0.21, half=0.1), "not resolvable"),
        (influence(0.1, 0.3, twin=None), "not resolvable"),
    ],
)
def test_middle_layers_are_alike(rows: Rows, expected: str) -> None:
    assert verdict("Middle layers are alike", rows) == expected


def moved(text: float, arithmetic: float, absent: tuple[float, float] | None = None, half: float = 0.05) -> list[Score]:
    """Effects of the reversed model on two tasks, one of them with answers, and of leaving layers out."""
    plans = {"29-0": (text, arithmetic), **({"0-4 20-29": absent} if absent else {})}
    effects = [
        row("effect", plan, "delta_nll", value, half, task=task, tokens=5000)
        for plan, values in plans.items()
        for task, value in zip(("stdlib", "arithmetic"), values, strict=True)
    ]
    return [*effects, row("effect", "29-0", "exact_match", 0.1, task="arithmetic")]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "not measured"),
        ([row for row in moved(0.5, 1.5) if row.task == "stdlib"], "not measured"),
        ([row for row in moved(0.5, 1.5) if row.metric != "exact_match"], "not measured"),  # two texts
        (moved(0.5, 1.5), "supported"),
        (moved(0.5, 1.5, absent=(0.4, 0.5)), "supported"),
        (moved(0.5, 1.5, absent=(0.4, 2.0)), "explained by the null"),
        (moved(1.5, 0.5), "contradicted"),
        (moved(0.5, 0.55), "not resolvable"),
    ],
)
def test_order_matters_more_for_reasoning(rows: Rows, expected: str) -> None:
    assert verdict("Order matters more for reasoning", rows) == expected


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
    told = told_of(diagnosed.scores(depth), depth)
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
    assert any(line.startswith("Core layers: contradicted. Skipping costs most at layer 0, +2.") for line in lines)
    assert "\n" not in "".join(lines)
    assert claim_lines(synthetic.run(6)) == ()


@pytest.mark.parametrize("order", [reversed, list])
def test_claims_do_not_depend_on_the_order_of_the_rows(order: Callable[[list[Score]], Iterable[Score]]) -> None:
    rows = diagnosed.scores(12)
    assert told_of(order(list(rows)), 12) == told_of(rows, 12)
