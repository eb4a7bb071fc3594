"""Normalized scores and benchmark contrasts compared with plain loops."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, median

import numpy as np
import pytest

from layerwise.measure.contrasts.benchmark_scores import Answers, Scaled
from layerwise.measure.contrasts.benchmarks import benchmark_contrasts
from layerwise.measure.interventions.sweep import plan_records
from layerwise.plan import Plan, families
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Loss, Score

Contrasts = dict[tuple[str, str, str], Score]
Shares = dict[tuple[str, str], float]
Rows = dict[str, list[Loss]]

DEPTH = 8
WHOLE = str(Plan.identity(DEPTH))
WINDOWS = (3, 5, 7)
MEMBERS = families.painters(DEPTH, seeds=(0, 1, 2))
PLANS = list(dict.fromkeys([WHOLE, *(str(member.plan) for member in MEMBERS)]))
JUDGED = {
    "arc_a": ("acc_norm", 0.25),
    "gsm8k": ("exact_match/strict-match", 0.0),
    "hellaswag": ("acc_norm", 0.25),
    "winogrande": ("acc", 0.5),
    "guessed": ("acc", 0.5),
    "short": ("acc", 0.25),
}
SIZES = {"arc_a": 120, "gsm8k": 90, "hellaswag": 100, "winogrande": 110, "guessed": 60, "short": 5}
SCALED = ("arc_a", "gsm8k", "hellaswag", "winogrande")
RESAMPLES = 400


def answers_of(plans: Iterable[str], seed: int = 0) -> Rows:
    draw = np.random.default_rng(seed)
    rows: Rows = {name: [] for name in JUDGED}
    for name, count in SIZES.items():
        hard = draw.random(count)
        for plan in plans:
            share = 0.5 if name == "guessed" else 0.9 if plan == WHOLE else draw.uniform(0.55, 0.85)
            for document, each in enumerate(hard):
                rows[name].append(Loss(plan, f"benchmark/{name}", str(document), 0, 0.0, 1, int(each < share)))
    return rows


@pytest.fixture(scope="module")
def rows() -> Rows:
    return answers_of(PLANS)


@pytest.fixture(scope="module")
def answers(rows: Rows) -> Answers:
    return Answers.of(rows, PLANS, JUDGED)


@pytest.fixture(scope="module")
def scores(rows: Rows) -> Shares:
    share: Shares = {}
    for name, given in rows.items():
        for plan in PLANS:
            share[plan, name] = fmean(row.hits for row in given if row.plan == plan)
    return {
        (plan, name): (value - JUDGED[name][1]) / (share[WHOLE, name] - JUDGED[name][1])
        for (plan, name), value in share.items()
        if name in SCALED
    }


@pytest.fixture(scope="module")
def contrasts(answers: Answers) -> Contrasts:
    found = benchmark_contrasts(Scaled.of(answers, WHOLE, seed=0, resamples=RESAMPLES), plan_records(MEMBERS), DEPTH)
    return {
        (row.claim, row.task, " ".join(filter(None, (row.metric, row.condition, row.against)))): row for row in found
    }


def test_without_all_answers_of_the_model_as_trained_there_is_no_scale_and_the_reason_says_so(
    rows: Rows,
) -> None:
    lost = {name: [row for row in own if (row.plan, row.document) != (WHOLE, "0")] for name, own in rows.items()}
    told = Scaled.of(Answers.of(lost, PLANS, JUDGED), WHOLE, seed=0).unscaled()
    assert len(told) == len(JUDGED)
    assert all(sentence.endswith("the model as trained has not answered every document") for sentence in told)


def at(scores: Shares, strategy: str, size: int, name: str) -> float:
    drawn = [str(member.plan) for member in MEMBERS if (member.strategy, member.affected) == (strategy, size)]
    return fmean(scores[plan, name] for plan in drawn)


def fall(scores: Shares, strategy: str, name: str) -> float:
    lost = [1 - at(scores, strategy, size, name) for size in WINDOWS]
    (slope,) = np.linalg.lstsq(np.array(WINDOWS, dtype=float)[:, None], np.array(lost), rcond=None)[0]
    return float(slope) * DEPTH / 10


def test_scores_mean_and_median_stand_on_the_scale(answers: Answers, scores: Shares) -> None:
    found = {(row.plan, row.task, row.metric): row for row in Scaled.of(answers, WHOLE, seed=0).rows(answers.metrics)}
    for plan in PLANS:
        for name in SCALED:
            row = found[plan, name, JUDGED[name][0]]
            assert row.value == pytest.approx(scores[plan, name])
            assert (row.low or 0) <= row.value <= (row.high or 0)
            assert row.documents == SIZES[name]
        single = [scores[plan, name] for name in SCALED]
        assert found[plan, "all", "mean"].value == pytest.approx(fmean(single))
        assert found[plan, "all", "median"].value == pytest.approx(median(single))
    whole = found[WHOLE, "gsm8k", "exact_match/strict-match"]
    assert (whole.low, whole.value, whole.high) == (1.0, 1.0, 1.0)
    assert len(found) == len(PLANS) * (len(SCALED) + 2)


def test_a_benchmark_without_a_scale_says_why(answers: Answers) -> None:
    few, guessed = sorted(
        Scaled.of(answers, WHOLE, seed=0).unscaled(), key=lambda sentence: sentence.startswith("guessed")
    )
    assert few == "short has no scale from chance to the model as trained: it has 5 documents, and an interval needs 8"
    assert guessed.startswith(
        "guessed has no scale from chance to the model as trained: the model as trained answers 0."
    )
    assert guessed.endswith("which is not above the 0.500 of guessing")


def test_falls_are_slopes_over_all_windows(contrasts: Contrasts, scores: Shares) -> None:
    for strategy in PAINTERS_RANKING:
        each = [fall(scores, strategy, name) for name in SCALED]
        for name, value in zip(SCALED, each, strict=True):
            assert contrasts["benchmark_fall", name, f"slope {strategy}"].value == pytest.approx(value)
        assert contrasts["benchmark_fall", "all", f"slope {strategy}"].value == pytest.approx(fmean(each))
    harsher, milder = (fmean(fall(scores, each, name) for name in SCALED) for each in ("skip", "random"))
    pair = contrasts["shallowest_on_benchmarks", "all", "relative skip random"]
    assert pair.value == pytest.approx((harsher - milder) / fmean([harsher, milder]))
    assert len([key for key in contrasts if key[0] == "shallowest_on_benchmarks"]) == 8


def test_fragility_is_a_fall_over_that_of_the_others(contrasts: Contrasts, scores: Shares) -> None:
    for metric, strategies in {"log_ratio": PAINTERS_RANKING, "log_ratio parallel": ("parallel",)}.items():
        falls = {name: fmean(fall(scores, each, name) for each in strategies) for name in SCALED}
        for name in SCALED:
            others = fmean(value for other, value in falls.items() if other != name)
            assert contrasts["fragile", name, metric].value == pytest.approx(math.log(falls[name] / others))
    once, corrected = contrasts["fragile", "gsm8k", "log_ratio"], contrasts["fragile", "gsm8k", "log_ratio parallel"]
    assert (corrected.high or 0) - (corrected.low or 0) > (once.high or 0) - (once.low or 0)


def test_order_is_held_against_absence(contrasts: Contrasts, scores: Shares) -> None:
    task, other = "arc_a and gsm8k", "hellaswag and winogrande"
    windows = [size for size in WINDOWS if all(at(scores, "skip", size, name) >= 0.25 for name in SCALED)]
    assert len(windows) >= 2
    assert contrasts["order_by_benchmark", task, f"windows {other}"].value == len(windows)

    def lost(strategies: tuple[str, ...], *names: str) -> float:
        return fmean(1 - at(scores, each, size, name) for each in strategies for size in windows for name in names)

    moved = ("reverse", "random", "parallel")
    ratio = {}
    for kind in (SCALED[:2], SCALED[2:], *((name,) for name in SCALED)):
        ratio[kind] = math.log(lost(moved, *kind) / lost(("skip",), *kind))
    less = lost(moved, *SCALED[:2]) - lost(moved, *SCALED[2:])
    assert contrasts["order_by_benchmark", task, f"order_less {other}"].value == pytest.approx(less)
    assert contrasts["order_by_benchmark", task, f"log_ratio {other}"].value == pytest.approx(
        ratio[SCALED[:2]] - ratio[SCALED[2:]]
    )
    for name in SCALED:
        assert contrasts["order_by_benchmark", name, "log_ratio"].value == pytest.approx(ratio[name,])


def test_repeating_is_averaged_over_wide_windows(contrasts: Contrasts, scores: Shares) -> None:
    for strategy in ("middle_repeat", "skip"):
        left = fmean(at(scores, strategy, size, name) for size in (5, 7) for name in SCALED)
        assert contrasts["repeat_at_chance", "all", strategy].value == pytest.approx(left)


def test_a_plan_that_did_not_answer_everything_is_left_out(rows: Rows) -> None:
    fewer = {**rows, "gsm8k": [row for row in rows["gsm8k"] if (row.plan, row.document) != (PLANS[3], "7")]}
    assert Answers.of(fewer, PLANS, JUDGED).plans == tuple(plan for plan in PLANS if plan != PLANS[3])


def test_what_is_hard_for_every_plan_cancels() -> None:
    draw = np.random.default_rng(0)
    right = (draw.random(40) < 0.7).astype(float)
    same = Answers((WHOLE, "0"), {"arc": np.stack([right, right])}, {"arc": "acc"}, {"arc": 0.25})
    scaled = Scaled.of(same, WHOLE, seed=0, resamples=100)
    assert np.all(scaled.scores.effects == 1.0)
    wrong = Answers((WHOLE, "0"), {"arc": np.stack([right, 1 - right])}, {"arc": "acc"}, {"arc": 0.25})
    drawn = Scaled.of(wrong, WHOLE, seed=0, resamples=100).scores.effects
    assert drawn[:, 0, 1].std() > 0.05


def test_no_benchmark_and_no_windows_make_no_rows(answers: Answers) -> None:
    for of in (Answers((WHOLE,), {}, {}, {}), answers):
        assert benchmark_contrasts(Scaled.of(of, WHOLE, seed=0, resamples=50), [], DEPTH) == []
