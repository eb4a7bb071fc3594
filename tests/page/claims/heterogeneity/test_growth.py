"""The finding on the loss of growth training, on studies with known answers."""

import random
from math import log

import pytest

from layerwise.results.rows import Score
from layerwise.studies.train_growth.findings import LOSS
from layerwise.studies.train_growth.rows import make_loss_ratio_row
from page.claims.truths import CONTRADICTED, SUPPORTED, WRONG, Truth, judge_rows, make_simulated_test

LEARNED = 5.5
"""Loss of the bigram baseline; uniform ends at about 4."""


def study(ratio: float, *, noise: float = 0.01) -> Truth:
    """`published` ends at a loss `ratio` times lower than uniform training."""

    def rows(run: int) -> list[Score]:
        chance = random.Random(f"study/{run}")
        ends = {seed: 4.0 + chance.gauss(0, 0.2) for seed in range(3)}
        losses = {seed: end / ratio * (1 + chance.gauss(0, noise)) for seed, end in ends.items()}
        return [*context(), make_loss_ratio_row("published", losses, ends, "tokens")]

    return rows


def context() -> list[Score]:
    return [
        Score("held_out", "nll", 4.0, 3.9, 4.1, variant="uniform"),
        Score("schedule", "share", 1.0, variant="published", phase="a", step=1, layer=0),
        Score("null", "nll", LEARNED, LEARNED - 0.05, LEARNED + 0.05, variant="bigrams"),
    ]


# At the published figure a 95 % interval lies below it in 2.5 % of draws.
test_a_planted_ratio_is_found_in_most_runs = make_simulated_test(
    {"growth_loss": {SUPPORTED: (study(LOSS.margin),), CONTRADICTED: (study(1.0),)}}, least=1 - WRONG, runs=200
)


def test_one_seed_is_inconclusive() -> None:
    claim = judge_rows("growth_loss", [*context(), make_loss_ratio_row("published", {0: 1.0}, {0: 4.0}, "tokens")], 12)
    assert claim.verdict == "inconclusive"
    assert claim.answer == "A single seed has no interval: train several seeds."


def test_a_ratio_is_paired_by_seed() -> None:
    row = make_loss_ratio_row("published", {0: 1.0, 1: 2.0}, {0: 4.0, 1: 12.5}, "tokens")
    reach = 12.7062 * log(6.25 / 4) / 2  # Student's quantile of one degree of freedom
    assert (log(row.value), log(row.low or 1), log(row.high or 1)) == pytest.approx(
        (log(5), log(5) - reach, log(5) + reach), rel=1e-5
    )
