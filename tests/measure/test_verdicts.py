"""Verdicts on simulated models: no layer is called harmful by chance, a truly harmful one is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from layerwise.errors import MeasureError
from layerwise.measure.ablation import skip_keys
from layerwise.measure.reading import shuffled
from layerwise.measure.rule import Rule
from layerwise.measure.strata import Effect
from layerwise.measure.verdicts import verdicts
from layerwise.results import Loss, Score
from measure.simulated import SimulatedModel

MODELS = 200
DEPTH = 12


def judged(model: SimulatedModel, seed: int = 0) -> dict[int, Score]:
    found = verdicts(model.whole(), model.baseline, skip_keys(model.depth), seed=seed)
    return {int(score.subject): score for score in found}


def mildly_useful(seed: int) -> SimulatedModel:
    """Every layer worth a little: effects of the size of their own standard errors, where the minimum misleads."""
    effects = np.random.default_rng([seed, 1]).uniform(0.0, 0.01, size=DEPTH)
    return SimulatedModel(effects.tolist(), seed=seed)


@pytest.mark.slow
def test_false_alarms_stay_below_their_rate() -> None:
    words = [{score.metric for score in judged(mildly_useful(seed)).values()} for seed in range(MODELS)]
    alarmed = sum("harmful" in found for found in words)
    print(f"{alarmed} of {MODELS} models with a false alarm")
    assert alarmed <= 0.05 * MODELS


def test_the_smallest_score_is_negative_in_most_of_those_models() -> None:
    """What the confirmation protects from: taken at face value, nearly every model has a layer better removed."""
    negative = sum(min(score.value for score in judged(mildly_useful(seed)).values()) < 0 for seed in range(20))
    assert negative >= 10


@pytest.mark.slow
def test_a_truly_harmful_layer_is_found() -> None:
    """One layer at minus twice the minimum detectable effect, in at least 80 % of the models."""
    detectable = float(np.median([score.resolution or 0.0 for score in judged(mildly_useful(0)).values()]))
    found = 0
    for seed in range(MODELS):
        effects = np.random.default_rng([seed, 1]).uniform(0.0, 0.01, size=DEPTH)
        planted = int(np.random.default_rng([seed, 2]).integers(DEPTH))
        effects[planted] = -2 * detectable
        scores = judged(SimulatedModel(effects.tolist(), seed=seed))
        harmful = {layer for layer, score in scores.items() if score.metric == "harmful"}
        assert harmful <= {planted}
        found += harmful == {planted}
    print(f"found in {found} of {MODELS} models")
    assert found >= 0.8 * MODELS


def test_a_layer_found_on_one_half_alone_is_not_called_harmful() -> None:
    """Noise that is negative on the first half and positive on the second would be an alarm without confirmation."""
    model = SimulatedModel([0.0] * 4, documents=64, noise=0.001, seed=3)
    first = {document for _, document, _ in shuffled(model.lengths, 0)[::2]}
    key = skip_keys(4)[2]
    losses = [
        row if row.plan != key else _shifted(row, -0.5 if row.document in first else 0.4) for row in model.whole()
    ]
    scores = {score.subject: score for score in verdicts(losses, model.baseline, skip_keys(4), seed=0)}
    assert scores["2"].metric == "no_effect"


def test_the_three_words() -> None:
    model = SimulatedModel([0.5, 0.0, -0.5, 0.05], documents=160, noise=0.02)
    scores = judged(model)
    assert [scores[layer].metric for layer in range(4)] == ["matters", "no_effect", "harmful", "matters"]
    nothing = scores[1]
    assert nothing.resolution == Rule().margin
    assert (nothing.low or 0.0) < 0 < (nothing.high or 0.0)
    assert scores[0].p_adjusted == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_coverage_of_the_simultaneous_intervals() -> None:
    """All twelve intervals hold their effects in at least 93 of 100 models (nominally 95)."""
    held = 0
    for seed in range(100):
        model = mildly_useful(seed)
        scores = judged(model)
        held += all(
            score.low is not None and score.high is not None and score.low <= model.effects[layer] <= score.high
            for layer, score in scores.items()
        )
    assert held >= 93


def test_verdicts_depend_on_the_seed_alone() -> None:
    model = mildly_useful(5)
    assert judged(model, seed=1) == judged(model, seed=1)


def test_too_little_text_says_how_to_get_enough() -> None:
    model = SimulatedModel([0.1] * 4, documents=5)
    with pytest.raises(MeasureError, match=r"the text makes 5 windows .* fewer than 8: give a longer text"):
        verdicts(model.whole(), model.baseline, skip_keys(4))


def test_few_documents_are_judged_but_never_harmful() -> None:
    """With 10 documents each half has too few for an interval, so nothing can be confirmed."""
    model = SimulatedModel([-0.5, 0.5, 0.5, 0.5], documents=10, noise=0.01)
    assert Counter(score.metric for score in judged(model).values()) == {"no_effect": 1, "matters": 3}


@pytest.mark.parametrize(("low", "high", "word"), [
    (-0.2, -0.1, "harmful"), (-0.009, 0.009, "no_effect"), (0.001, 0.009, "no_effect"), (0.1, 0.2, "matters"),
    (-0.2, 0.2, None), (-0.001, 0.02, None),
])  # fmt: skip
def test_what_an_interval_settles(low: float, high: float, word: str | None) -> None:
    assert Rule().settles(Effect((low + high) / 2, low, high, 0.01, 50)) == word


@pytest.mark.parametrize("settings", [{"margin": 0.0}, {"margin": -1.0}, {"alpha": 0.0}, {"alpha": 1.0}])
def test_impossible_rules_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(MeasureError, match="asked for; use"):
        Rule(**settings)


def _shifted(row: Loss, per_token: float) -> Loss:
    return replace(row, nll=row.nll + per_token * row.tokens)
