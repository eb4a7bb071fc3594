"""Claims over models: right over many simulated sets of models, and rarely wrong where no model has an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from layerwise.measure.contrasts.contrast import Contrast, Part, contrast
from layerwise.report.comparison.tables import claim_sentence
from layerwise.report.comparison.verdicts import OverModels, Standing, VerdictAt, holm, over_models, widening
from layerwise.report.evidence import Evidence
from layerwise.results.rows import Score
from report.claims.swept import by_strategy, swept
from report.comparison.several import of_rows
from tier import by_tier

RUNS = by_tier(fast=20, full=100)
RIGHT = 0.95
WRONG = 0.05
SKIP, REPEAT = 1.0, 1.5
HOLDS = by_strategy(skip=SKIP, middle_repeat=REPEAT)
HOLDS_NOT = by_strategy(skip=REPEAT, middle_repeat=SKIP)
TRUTHS = {
    "all": ((HOLDS, HOLDS, HOLDS), ("holds", "holds")),
    "some": ((HOLDS, HOLDS_NOT, HOLDS_NOT), ("does not hold", "holds")),
    "none": ((HOLDS_NOT, HOLDS_NOT, HOLDS_NOT), ("does not hold", "does not hold")),
}

SAME_FUNCTION = "same_function"


def about(rows: Sequence[Sequence[Score]], key: str = SAME_FUNCTION, models: str = "01234567") -> OverModels:
    """What becomes of one claim over models that have these rows."""
    claims = (claim for _, claims in over_models(of_rows(*rows, models=models)) for claim in claims)
    return next(claim for claim in claims if claim.published.key == key)


@pytest.mark.simulated
@pytest.mark.parametrize("truth", TRUTHS)
def test_what_holds_in_all_in_some_and_in_none_is_found(truth: str) -> None:
    costs, right = TRUTHS[truth]
    worlds = [swept([SAME_FUNCTION], cost) for cost in costs]
    found: Counter[tuple[Standing | None, Standing | None]] = Counter()
    for run in range(RUNS):
        claim = about([list(world(1000 * number + run)) for number, world in enumerate(worlds)])
        found[claim.in_every, claim.in_any] += 1
    assert found[right] >= RIGHT * RUNS, found


MODELS = 5
DOCUMENTS = 24


def skewed(draw: np.random.Generator) -> np.ndarray:
    """What the documents do, as skewed as the costs of the simulated sweeps; nothing in the mean."""
    return draw.gamma(2.0, 0.5, DOCUMENTS) - 1.0


def without_effect(draw: np.random.Generator, text: np.ndarray) -> list[Score]:
    """The rows of a model on whose documents repeating costs as much as skipping.

    `text` is what the documents do to every model.
    """
    effects = 0.5 * (text + skewed(draw)) / np.sqrt(2.0)
    part = Part(effects[None], np.ones(DOCUMENTS), DOCUMENTS, 100 * DOCUMENTS)
    row = contrast([part], lambda each: each[..., 0], seed=int(draw.integers(2**31)))
    harm = Score("contrast", SAME_FUNCTION, "all", "middle_repeat", 1.0, 0.9, 1.1, documents=DOCUMENTS)
    return [row.row(SAME_FUNCTION, "middle_repeat:skip"), harm]


@pytest.mark.slow
def test_of_models_without_effect_few_are_shown_to_have_one() -> None:
    """Five models at the border, on one text: uncorrected, some model would show an effect in more than 5 %."""
    runs = 400
    wrong = uncorrected = 0
    for run in range(runs):
        draw = np.random.default_rng(run)
        text = skewed(draw)
        claim = about([without_effect(draw, text) for _ in range(MODELS)])
        wrong += bool(claim.shown or claim.refuted or claim.in_every == "holds")
        uncorrected += any(each.verdict in ("supported", "contradicted") for each in claim.claims.values())
    assert wrong <= WRONG * runs, (wrong, uncorrected)
    assert uncorrected > 3 * WRONG * runs


def row(value: float, half: float) -> list[Score]:
    harm = Score("contrast", SAME_FUNCTION, "all", "middle_repeat", 1.0, 0.9, 1.1)
    return [Score("contrast", SAME_FUNCTION, "all", "middle_repeat:skip", value, value - half, value + half), harm]


def test_one_model_of_many_has_to_show_more() -> None:
    weak, clear, open_ = row(0.5, 0.45), row(0.5, 0.2), row(0.1, 0.4)
    assert about([weak, weak]).in_every == about([weak, weak]).in_any == "holds"
    assert about([weak, weak]).shown == ()
    assert about([weak, open_]).in_any == "not resolvable"
    assert about([clear, open_]).shown == ("m0",)
    # Of three models one is clear, so that the next step has one comparison less.
    assert about([clear, clear, row(0.5, 0.5 / widening(1) - 0.01)]).shown == ("m0", "m1", "m2")


def test_two_runs_of_one_model_are_one_model() -> None:
    clear, against, open_ = row(0.5, 0.2), row(-0.5, 0.2), row(0.1, 0.4)
    alone = about([clear, clear], models="aa")
    assert (alone.in_every, alone.in_any, alone.counts) == (None, None, (1, 1))
    assert claim_sentence(alone).startswith("Measured in one model: nothing can be said over models.")
    assert about([clear, clear, clear], models="aab").in_every == "holds"
    assert about([clear, open_, clear], models="aab").in_every == "not resolvable"  # one model, whose runs disagree
    assert about([clear, against, against], models="aab").refuted == ("mb",)
    weak = row(0.5, 0.35)  # enough for two models, not for three
    assert about([weak, weak, against], models="aab").shown != about([weak, weak, against]).shown


def test_what_is_shown_against_a_claim_is_corrected_too() -> None:
    weak, clear = row(-0.5, 0.45), row(-0.5, 0.2)
    assert about([weak, row(0.5, 0.45)]).in_every == "not resolvable"
    assert about([clear, row(0.5, 0.2)]).in_every == "does not hold"
    assert about([clear, row(0.5, 0.2)]).in_any == "holds"
    assert about([weak, weak]).in_any == "does not hold"


def test_a_small_contrast_does_not_become_an_effect_because_its_interval_grows() -> None:
    """At 95 % it is shown to be within the margin; widened it lies above zero and beyond the margin."""
    small = row(0.03, 0.0195)
    claim = about([small, row(0.1, 0.5), row(0.1, 0.5)])
    assert claim.claims["m0"].verdict == "explained by the null"
    assert claim.shown == ()


def test_models_without_the_rows_are_not_counted() -> None:
    claim = about([row(0.5, 0.2), row(0.5, 0.2), []])
    assert claim.measured == ("m0", "m1")
    assert claim.in_every == "holds"
    lone = about([row(0.5, 0.2), [], []])
    assert (lone.in_every, lone.in_any) == (None, None)


def test_a_harmful_layer_counts_by_its_corrected_p() -> None:
    def rows(p: float, called: str = "harmful") -> list[Score]:
        names = ["no_effect"] * 3 + [called] + ["no_effect"] * 4
        return [
            Score.of("verdict", name, -0.1, -0.2, -0.05, layer=layer, p_adjusted=p) for layer, name in enumerate(names)
        ]

    none = rows(0.001, "unresolved")
    assert about([rows(0.001), none, none], "anti_layers").shown == ("m0",)
    assert about([rows(0.02), none, none], "anti_layers").shown == ()
    assert about([rows(0.001), rows(0.02), none], "anti_layers").shown == ("m0", "m1")
    assert about([rows(0.001), rows(0.04), none], "anti_layers").shown == ("m0",)


def test_holm_ends_where_a_step_shows_no_more() -> None:
    def until(most: int) -> VerdictAt:
        return lambda comparisons: "supported" if comparisons <= most else "not resolvable"

    verdicts = {"a": until(4), "b": until(2), "c": until(1), "d": until(0)}
    assert holm(verdicts, ["supported"]) == ("a",)
    assert holm({**verdicts, "b": until(3)}, ["supported"]) == ("a", "b")
    assert holm({**verdicts, "b": until(3), "c": until(2)}, ["supported"]) == ("a", "b", "c")


def width(of: Contrast) -> float:
    assert of.low is not None
    assert of.high is not None
    return of.high - of.low


@pytest.mark.simulated
def test_a_widened_interval_is_no_narrower_than_the_bootstrap_at_that_level() -> None:
    """Over skewed documents it is wider in the mean, of which a percentile interval at a high level has need."""
    draw = np.random.default_rng(0)
    ratios = []
    for seed in range(by_tier(fast=20, full=100)):
        part = Part(draw.gamma(1.0, 1.0, (1, DOCUMENTS)), np.ones(DOCUMENTS), DOCUMENTS, DOCUMENTS)
        near, far = (
            contrast([part], lambda each: each[..., 0], seed=seed, level=level) for level in (0.95, 1 - 0.05 / MODELS)
        )
        ratios.append(widening(MODELS) * width(near) / width(far))
    assert np.mean(ratios) >= 1.0


def test_evidence_of_a_claim_is_the_claim_of_the_run() -> None:
    compared = of_rows(row(0.5, 0.2), row(-0.5, 0.2))
    claim = about([row(0.5, 0.2), row(-0.5, 0.2)])
    assert [each.verdict for each in claim.claims.values()] == ["supported", "contradicted"]
    assert all(isinstance(run.evidence, Evidence) for run in compared.runs)
