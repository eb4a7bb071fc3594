import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from layerwise.measure.stats.estimate import SampleEstimate
from layerwise.measure.stats.paired_metrics import (
    AGGREGATIONS,
    PairedMetric,
    find_aggregation,
    mcnemar_detectable,
    mcnemar_needed,
    mcnemar_p,
    mcnemar_power,
    paired_rows,
)
from tier import by_tier, first_fast

MEAN, LOG, WEIGHTED, BITS, F1 = AGGREGATIONS


def pair(baseline: object, other: object, aggregation: object = MEAN, **more: object) -> PairedMetric:
    before, after = (np.atleast_2d(np.array(values, dtype=float).T).T for values in (baseline, other))
    return PairedMetric("task", "metric", "B", "A", aggregation, True, before, after, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (1, 0), (8, 0), (3, 3), (10, 27), (40, 41), (500, 610), (0, 2_000)]
)
def test_mcnemar_matches_the_exact_binomial_test(gained: int, lost: int) -> None:
    exact = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar_p(gained, lost) == mcnemar_p(lost, gained) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(
    ("trials", "rate", "loss", "alpha"), [(30, 0.05, 0.15, 0.05), (12, 0.0, 0.5, 0.05), (40, 0.1, 0.0, 0.3)]
)
def test_mcnemar_power_matches_enumeration(trials: int, rate: float, loss: float, alpha: float) -> None:
    counts = [(up, down) for up in range(trials + 1) for down in range(trials + 1 - up) if mcnemar_p(up, down) < alpha]
    changed = stats.multinomial(trials, [rate, rate + loss, 1 - 2 * rate - loss])
    least = sum(changed.pmf([up, down, trials - up - down]) for up, down in counts if down > up)
    assert mcnemar_power(loss, rate, trials, alpha) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("comparisons", [1, 11])
@pytest.mark.parametrize(
    ("gained", "lost", "trials"), [(1, 0, 100), (2, 1, 200), (6, 4, 1000), (0, 0, 50), (400, 300, 9_000)]
)
def test_resolution_of_answers_matches_mcnemar(gained: int, lost: int, trials: int, comparisons: int) -> None:
    size = mcnemar_detectable(gained, lost, trials, comparisons)
    rate = (gained + lost) / (2 * trials)
    assert mcnemar_power(size, rate, trials, 0.05 / comparisons) == pytest.approx(0.8, abs=1e-3)
    assert mcnemar_detectable(lost, gained, trials, comparisons) == size
    assert mcnemar_detectable(gained, lost, 8, 1_000) == pytest.approx(1 - (gained + lost) / 8 if gained < 5 else 0)


@pytest.mark.parametrize(("changed", "margin"), [(0, 0.05), (4, 0.02), (30, 0.01)])
def test_count_needed_detects_the_margin(changed: int, margin: float) -> None:
    needed = mcnemar_needed(changed // 2, changed - changed // 2, 300, margin, 4)
    assert needed is not None
    for count, found in ((needed, True), (needed - 1, False)):
        assert (mcnemar_power(margin, changed / 600, count, 0.05 / 4) >= 0.8) is found
    assert mcnemar_needed(150, 150, 300, margin, 4) is None, "no more answers can change"
    before, after = np.ones((2, 300))
    after[:changed] = 0
    (row,) = (row for row in paired_rows([pair(before, after)], margin) if row.measure == "needed")
    assert row.value == mcnemar_needed(0, changed, 300, margin, 1)


def test_perfect_answers_have_wilsons_interval() -> None:
    rows = [row for row in paired_rows([pair([1] * 20, [1] * 19 + [0])], 0.01) if row.measure == "evaluated"]
    bounds = [stats.binomtest(right, 20).proportion_ci(0.95, method="wilson") for right in (20, 19)]
    assert [(row.low, row.high) for row in rows] == [pytest.approx((each.low, each.high)) for each in bounds]
    numbers = [row for row in paired_rows([pair([0.5] * 20, [0.25] * 20)], 0.01) if row.measure == "evaluated"]
    assert [row.low for row in numbers] == [None, None]


@pytest.mark.parametrize(("both", "gained", "lost"), [(133, 27, 10), (110, 30, 12), (205, 8, 0)])
def test_paired_lm_eval_example_is_significant(both: int, gained: int, lost: int) -> None:
    """lm-eval issue 3831 and PR 3868: n = 220, p = 0.080 unpaired, 0.008 paired; only these counts give both."""
    documents = 220
    right = [1] * both + [0] * gained + [1] * lost, [1] * both + [1] * gained + [0] * lost
    first, second = ([*each, *[0] * (documents - len(each))] for each in right)
    shares = np.mean([first, second], axis=1)
    error = math.hypot(*np.sqrt(shares * (1 - shares) / (documents - 1)))
    assert round(2 * stats.norm.sf(abs(shares[1] - shares[0]) / error), 3) == 0.080
    (row,) = (row for row in paired_rows([pair(first, second)], 0.01) if row.measure == "paired")
    assert row.p is not None
    assert (round(row.p, 3), row.verdict) == (0.008, "better")


def test_aggregation_matches_the_stored_score() -> None:
    ones, pairs = [[1.0], [0.0], [0.5]], [[-10.0, 4.0], [-20.0, 6.0]]
    answers = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    assert find_aggregation(ones, 0.5) is MEAN
    assert find_aggregation([[-1.0], [-2.0]], math.exp(1.5)) is LOG
    assert find_aggregation(pairs, math.exp(3.0)) is WEIGHTED
    assert find_aggregation(pairs, 3.0 / math.log(2)) is BITS
    assert find_aggregation(answers, 2 * 2 / (3 + 3)) is F1
    for values, score in (
        (ones, 0.51),
        (ones, math.nan),
        (pairs, 3.0),
        ([[1.0], None], 1.0),
        ([[1.0], [1.0, 2.0]], 1.0),
    ):
        assert find_aggregation(values, score) is None  # type: ignore[arg-type]


def test_differences_match_the_scores() -> None:
    answers = [[1, 1], [1, 0], [0, 1], [1, 1]], [[1, 1], [1, 1], [0, 0], [1, 0]]
    first, second = (2 * hits / below for hits, below in ((2, 6), (2, 5)))
    above, below = pair(*answers, F1).changes()
    assert above.sum() / below.sum() == pytest.approx(second - first)
    bytes_ = [[-3, 2], [-9, 8]], [[-4, 2], [-8, 8]]
    assert pair(*bytes_, BITS).changes()[0].sum() == pytest.approx(0.0)
    assert list(pair(*bytes_, WEIGHTED).changes()[1]) == [2, 8]


Drawn = Callable[[np.random.Generator], tuple[object, object]]


def accuracy(draw: np.random.Generator) -> tuple[object, object]:
    chance = np.repeat([0.45, 0.85], 100)
    ease = draw.random((2, 200))
    return ease[0] < chance, np.where(draw.random(200) < 0.6, ease[0], ease[1]) < chance + 0.05


def answer_f1(draw: np.random.Generator) -> tuple[object, object]:
    share = draw.beta(0.4, 0.3, (3, 100))
    return np.where(share[0] > 0.9, 1, share[0]), np.clip(0.7 * share[0] + 0.3 * share[1] + 0.02, 0, 1)


def corpus_f1(draw: np.random.Generator) -> tuple[object, object]:
    label = draw.random(300) < 0.4
    wrong = draw.random((2, 300)) < [[0.25], [0.2]]
    return np.stack([label, label ^ wrong[0]], axis=1), np.stack([label, label ^ wrong[1]], axis=1)


def bits_per_byte(draw: np.random.Generator) -> tuple[object, object]:
    size = np.ceil(draw.lognormal(9, 0.6, 62))
    rate = draw.normal(0.6, 0.1, 62)
    changed = rate + draw.normal(0.01, 0.02, 62)
    return np.stack([-size * rate, size], axis=1), np.stack([-size * changed, size], axis=1)


WORLDS: dict[str, tuple[Drawn, object, float]] = {
    "accuracy": (accuracy, MEAN, 0.05),
    "F1 of answers": (answer_f1, MEAN, math.nan),
    "F1": (corpus_f1, F1, math.nan),
    "bits per byte": (bits_per_byte, BITS, 0.01 / math.log(2)),
}


def truth(world: str) -> float:
    drawn, aggregation, known = WORLDS[world]
    if not math.isnan(known):
        return known
    draw = np.random.default_rng(1)
    sides = zip(*(drawn(draw) for _ in range(by_tier(fast=200, nightly=2_000))), strict=True)
    return float(np.divide(*(part.sum() for part in pair(*map(np.concatenate, sides), aggregation).changes())))


@pytest.mark.simulated
@pytest.mark.parametrize("world", first_fast(sorted(WORLDS, key=lambda name: math.isnan(WORLDS[name][2])), 3, slow=0))
def test_intervals_have_their_coverage(world: str) -> None:
    drawn, aggregation, _ = WORLDS[world]
    true, draw, runs = truth(world), np.random.default_rng(0), by_tier(fast=60, nightly=1_000)
    covered = 0
    for _ in range(runs):
        own, _ = pair(*drawn(draw), aggregation).test(1)
        covered += own.low <= true <= own.high
    print(f"{world}: {covered / runs:.3f} of {runs}")
    assert 0.93 <= covered / runs <= 0.97 if runs == 1_000 else covered / runs >= 0.86


@pytest.mark.parametrize(
    ("value", "p", "decision"),
    [
        (-0.03, 0.049, "worse"),
        (-0.03, 0.051, "inconclusive"),
        (0.03, 0.049, "better"),
        (-0.0078, 0.001, "alike"),
        (-0.0080, 0.3, "inconclusive"),
        (0.0078, 0.9, "alike"),
    ],
)
def test_decisions_match_their_thresholds(value: float, p: float, decision: str) -> None:
    own, estimate = pair([1], [1]), SampleEstimate(value, 0.0, 0.0, 0.0021 / 2.2414, 1e9)
    assert own.decide(estimate, p, 0.01, 2) == decision
    mirrored = {"worse": "better", "better": "worse"}.get(decision, decision)
    assert replace(own, more_is_better=False).decide(estimate, p, 0.01, 2) == mirrored


def tolerances(lost: int, tolerated: float, gained: int = 0, comparisons: int = 1) -> list[str | None]:
    documents = 1_000
    first, second = [1] * lost + [0] * (documents - lost), [0] * lost + [1] * gained + [0] * (documents - lost - gained)
    pairs = [replace(pair(first, second), metric=f"m{number}") for number in range(comparisons)]
    return [row.verdict for row in paired_rows(pairs, 0.01, tolerated) if row.measure == "tolerance"]


def test_loss_above_its_tolerance_is_exceeded() -> None:
    """A loss of 40 of 1,000 has standard error 0.0063; the bound is 1.645 of them, or 2.81 for 20 comparisons."""
    assert tolerances(40, 0.0293) == ["exceeded"]
    assert tolerances(40, 0.0299) == ["inconclusive"]
    assert tolerances(40, 0.0293, comparisons=20) == ["inconclusive"] * 20
    assert tolerances(40, 0.0) == ["exceeded"]
    assert tolerances(40, 0.052) == ["kept"]
    assert tolerances(40, 0.050) == ["inconclusive"]
    assert tolerances(5, 0.0, gained=40) == ["kept"], "better"
    assert tolerances(5, 0.0) == ["inconclusive"], "McNemar's exact p is .0625, whatever the normal bound says"


def test_tasks_of_one_metric_are_pooled_as_strata() -> None:
    easy = replace(pair(np.full(40, 0.9), np.linspace(0.90, 0.92, 40)), task="easy")
    hard = replace(pair(np.full(60, 0.1), np.linspace(0.10, 0.12, 60)), task="hard")
    rows = [row for row in paired_rows([easy, hard], 0.001) if row.measure == "paired"]
    assert [row.task for row in rows] == ["easy", "hard", "all"]
    whole = rows[2]
    assert (whole.documents, whole.value, whole.verdict) == (100, pytest.approx(0.01), "better")
    unlike = replace(hard, more_is_better=False)
    assert [row.task for row in paired_rows([easy, unlike], 0.001) if row.measure == "paired"] == ["easy", "hard"]


def test_p_values_are_adjusted_over_all_differences() -> None:
    first, second = [0] * 100, [1] * 8 + [0] * 92
    pairs = [replace(pair(first, second), metric=name) for name in "abc"]
    rows = [row for row in paired_rows(pairs, 0.01) if row.measure == "paired"]
    assert [row.p for row in rows] == [0.0078125] * 3
    assert [row.p_adjusted for row in rows] == [3 * 0.0078125] * 3


def test_few_documents_have_a_difference_without_interval() -> None:
    (row, loss, *scores) = paired_rows([pair([1, 0, 1], [1, 1, 1])], 0.01, 0.02)
    assert (row.value, row.low, row.p, row.p_adjusted, row.mde, row.verdict) == (
        pytest.approx(1 / 3),
        None,
        None,
        None,
        None,
        "inconclusive",
    )
    assert (loss.verdict, loss.high) == ("inconclusive", None)
    assert [(score.variant, score.low) for score in scores] == [("A", None), ("B", None)]
