from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from layerwise.errors import MeasureError
from layerwise.measure.interventions.ablation import skip_keys
from layerwise.measure.interventions.racing import race
from layerwise.measure.interventions.racing import race_rows as rows_of_race
from layerwise.measure.stats.estimate import SampleEstimate
from layerwise.measure.stats.grid import Strata, arrange, shuffle_pieces, unit_pieces
from layerwise.measure.stats.statistics import minimum_detectable_effect
from layerwise.measure.stats.verdicts import (
    SELECTION,
    HarmTest,
    _split_documents,
    compute_verdicts,
    confirm_harm,
    detectable_effect,
    settle,
)
from layerwise.results import Loss, Score
from measure.simulated import SimulatedModel
from tier import by_tier

MODELS = by_tier(fast=100, nightly=200)
DEPTH = 12


def judged(model: SimulatedModel, seed: int = 0) -> dict[int, Score]:
    found = compute_verdicts(model.whole(), model.baseline, skip_keys(model.depth), seed=seed)
    return {score.layer or 0: score for score in found}


@pytest.mark.parametrize("depth", [2, 12])
def test_intervals_and_p_values_match_bonferroni_students_t(depth: int) -> None:
    model = SimulatedModel([0.01 * layer for layer in range(depth)], documents=24)
    model.lengths = dict.fromkeys(model.lengths, 10)
    half = np.random.default_rng(depth).normal(0.0, 0.05, (depth, 12))
    draws = 0.02 + np.concatenate([half, -half], axis=1)  # not skewed
    model.draw(draws)
    for layer, score in judged(model).items():
        error, mean = stats.sem(draws[layer]), draws[layer].mean()
        reach = stats.t.ppf(1 - 0.05 / depth / 2, 23) * error
        assert (score.low, score.high) == pytest.approx((mean - reach, mean + reach))
        assert score.p_adjusted == pytest.approx(min(1.0, depth * stats.ttest_1samp(draws[layer], 0.0).pvalue))
        effect = SampleEstimate(mean, mean - reach, mean + reach, error, 23)
        expected = minimum_detectable_effect(error, 24, comparisons=depth)
        assert detectable_effect(effect, depth) == pytest.approx(expected)


@pytest.mark.parametrize("candidates", [(), (0,), (1,), (0, 2), tuple(range(1, 12))])
def test_detectable_harm_matches_its_formula(candidates: tuple[int, ...]) -> None:
    """Layer 1 is chosen on one half at 5%, then confirmed on the other at 5% over all candidates."""
    errors, freedoms = (0.03, 0.05), (15.0, 11.0)
    first, second = (
        {layer: SampleEstimate(0.0, 0.0, 0.0, error, freedom) for layer in range(12)}
        for error, freedom in zip(errors, freedoms, strict=True)
    )
    size = HarmTest(first, second, candidates, frozenset(), 12).detectable(1)
    levels = (0.05, 0.05 / len({*candidates, 1}))
    chosen, confirmed = (
        stats.t.cdf(size / error - stats.t.ppf(1 - level, freedom), freedom)
        for error, freedom, level in zip(errors, freedoms, levels, strict=True)
    )
    assert chosen * confirmed == pytest.approx(0.8)


WORLDS = {
    "worth nothing": (0.0, 0.02, {"matters", "harmful"}),
    "at the margin": (0.01, 0.02, {"no_effect", "harmful"}),
    "harm at the margin": (-0.01, 0.02, {"no_effect", "matters"}),
    "worth nothing, on little text": (0.0, 1.0, {"matters", "no_effect", "harmful"}),
    "worth much, on little text": (0.3, 1.0, {"no_effect", "harmful"}),
}
"""Effects by layer, the noise of documents, and the verdicts that would be wrong."""


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_familywise_error_of_verdicts_is_at_most_5_percent(world: str) -> None:
    effect, noise, wrong = WORLDS[world]
    models = (SimulatedModel([effect] * DEPTH, noise=noise, seed=seed) for seed in range(MODELS))
    counts = Counter(bool(wrong & {score.metric for score in judged(model).values()}) for model in models)
    print(f"{world}: {counts[True]} of {MODELS} models with a wrong verdict")
    assert counts[True] <= 0.05 * MODELS


def test_harm_requires_both_halves() -> None:
    """Noise that is negative on the first half and positive on the second is not confirmed."""
    model = SimulatedModel([0.0] * 4, documents=64, noise=0.001, seed=3)
    first = {document for _, document, _ in shuffle_pieces(model.lengths, 0)[::2]}
    key = skip_keys(4)[2]
    losses = [
        row if row.plan != key else _shifted(row, -0.5 if row.document in first else 0.4) for row in model.whole()
    ]
    scores = {score.layer: score for score in compute_verdicts(losses, model.baseline, skip_keys(4), seed=0)}
    assert scores[2].metric == "inconclusive"


def test_verdicts_match_their_definition() -> None:
    model = SimulatedModel([0.5, 0.0, -0.5, 0.05, 0.0], documents=160, noise=0.02)
    model.blur(4, noise=1.0)
    scores = judged(model)
    words = [scores[layer].metric for layer in range(5)]
    assert words == ["matters", "no_effect", "harmful", "matters", "inconclusive"]
    assert scores[0].p_adjusted == pytest.approx(0.0, abs=1e-6)
    assert (scores[4].mde or 0.0) > 0.3


def test_no_effect_states_the_excluded_effect() -> None:
    scores = judged(SimulatedModel([0.0, 0.0, 0.5, 0.5], documents=160, noise=0.002))
    for layer in (0, 1):
        assert scores[layer].metric == "no_effect"
        assert scores[layer].mde == max(-(scores[layer].low or 0.0), scores[layer].high or 0.0) < 0.001
    exact = judged(SimulatedModel([0.0] * 4, documents=160, noise=0.0))
    assert {(score.metric, score.mde) for score in exact.values()} == {("no_effect", 0.0)}


@pytest.mark.parametrize(
    ("p", "layers"), [((0.0499,), {0}), ((0.0501,), set()), ((0.2, 0.0249), {1}), ((0.2, 0.0251), set())]
)
def test_harm_is_confirmed_at_alpha_divided_by_candidates(p: tuple[float, ...], layers: set[int]) -> None:
    effects = (SampleEstimate.student(float(stats.t.ppf(each, 20)), 1.0, 20.0) for each in p)
    assert confirm_harm(dict(enumerate(effects))) == layers


def test_too_little_text_is_rejected_with_a_fix() -> None:
    model = SimulatedModel([0.1] * 4, documents=5)
    with pytest.raises(MeasureError, match=r"at least 8 windows for a verdict, got 5\. Use a longer text"):
        compute_verdicts(model.whole(), model.baseline, skip_keys(4))


@pytest.mark.parametrize(
    ("documents", "word"), [(3, "inconclusive"), (8, "inconclusive"), (15, "inconclusive"), (16, "harmful")]
)
def test_harm_requires_sixteen_documents(documents: int, word: str) -> None:
    model = SimulatedModel([-0.5, 0.5, 0.5, 0.5], documents=documents, noise=0.01)
    rows = [replace(row, window=window) for row in model.whole() for window in range(8)]
    found = compute_verdicts(rows, model.baseline, skip_keys(4))
    assert [score.metric for score in found] == [word, "matters", "matters", "matters"]
    grid = arrange(rows)
    first, second = ({cell[1] for cell in half.cells} for half in _split_documents(grid, 0))
    assert not first & second
    assert len(first | second) == documents
    found = rows_of_race(race(lambda *_: rows, skip_keys(4), unit_pieces(grid)))
    assert (found[0].metric == "harmful") <= (word == "harmful")


@pytest.mark.parametrize(("share", "chosen"), [(0.999, ()), (1.001, (0,))])
def test_candidates_are_below_zero_at_the_selection_level(share: float, chosen: tuple[int, ...]) -> None:
    """Student's bound by hand on the half that selects, whose effects are not skewed."""
    pattern = np.array([-1.0, 1.0] * 8)
    t = share * stats.t.ppf(1 - SELECTION, 15)
    grids = []
    for values in (pattern - t * stats.sem(pattern), pattern / 1000 - 5.0):
        rows = [
            Loss(plan, "t", f"{document:02}", 0, 50.0 + (plan != "b") * float(value), 10, 0)
            for document, value in enumerate(values)
            for plan in ("b", "p")
        ]
        grids.append(arrange(rows))
    test = HarmTest.from_halves(*grids, "b", {0: "p"}, Strata.from_lengths(unit_pieces(grids[0])))
    assert (test.candidates, test.harmful) == (chosen, frozenset(chosen))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.2, -0.1, None),
        (-0.009, 0.009, "no_effect"),
        (0.001, 0.009, "no_effect"),
        (0.1, 0.2, "matters"),
        (0.005, 0.015, "matters"),
        (0.005, 0.0149, None),
        (-0.2, 0.2, None),
        (-0.001, 0.02, None),
    ],
)
def test_interval_decides_the_verdict(low: float, high: float, word: str | None) -> None:
    assert settle(SampleEstimate((low + high) / 2, low, high, 0.01, 50), 0.01) == word


def _shifted(row: Loss, per_token: float) -> Loss:
    return replace(row, nll=row.nll + per_token * row.tokens)
