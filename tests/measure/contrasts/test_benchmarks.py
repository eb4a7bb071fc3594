"""Normalized scores and benchmark contrasts compared with plain loops."""

import math
from collections.abc import Iterable
from statistics import fmean, median

import numpy as np
import pytest
from scipy.stats import norm

from layerwise.measure.interventions.sweep import plan_records
from layerwise.plan import Plan, families
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Loss, Score
from layerwise.studies.sweep.benchmark_contrasts import BenchmarkAnswers, ScaledScores, contrast_benchmarks

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
def answers(rows: Rows) -> BenchmarkAnswers:
    return BenchmarkAnswers.from_rows(rows, PLANS, JUDGED)


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
def contrasts(answers: BenchmarkAnswers) -> Contrasts:
    found = contrast_benchmarks(
        ScaledScores.from_answers(answers, WHOLE, seed=0, resamples=RESAMPLES), plan_records(MEMBERS), DEPTH
    )
    return {
        (row.claim, row.task, " ".join(filter(None, (row.metric, row.strategy, row.against)))): row for row in found
    }


def test_scores_need_all_answers_of_the_original_model(rows: Rows) -> None:
    lost = {name: [row for row in own if (row.plan, row.document) != (WHOLE, "0")] for name, own in rows.items()}
    told = ScaledScores.from_answers(BenchmarkAnswers.from_rows(lost, PLANS, JUDGED), WHOLE, seed=0).unscaled()
    assert len(told) == len(JUDGED)
    assert all(sentence.endswith("the original model did not answer every question") for sentence in told)


def at(scores: Shares, strategy: str, size: int, name: str) -> float:
    drawn = [str(member.plan) for member in MEMBERS if (member.strategy, member.affected) == (strategy, size)]
    return fmean(scores[plan, name] for plan in drawn)


def fall(scores: Shares, strategy: str, name: str) -> float:
    lost = [1 - at(scores, strategy, size, name) for size in WINDOWS]
    (slope,) = np.linalg.lstsq(np.array(WINDOWS, dtype=float)[:, None], np.array(lost), rcond=None)[0]
    return float(slope) * DEPTH / 10


def test_scores_mean_and_median_are_normalized(answers: BenchmarkAnswers, scores: Shares) -> None:
    found = {
        (row.plan, row.task, row.metric): row
        for row in ScaledScores.from_answers(answers, WHOLE, seed=0).rows(answers.metrics)
    }
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


def study(count: int, *, lost: float, gained: float = 0.0, seed: int = 0, tasks: int = 1) -> ScaledScores:
    """The original model has 60 % right answers; a plan loses and gains these shares."""
    draw = np.random.default_rng(seed)
    right = {}
    for task in range(tasks):
        whole, changed = draw.random(count) < 0.6, draw.random(count)
        right[f"t{task}"] = np.stack([whole, np.where(whole, changed >= lost, changed < gained)]).astype(float)
    names = dict.fromkeys(right, "acc"), dict.fromkeys(right, 0.25)
    return ScaledScores.from_answers(BenchmarkAnswers(("full", "p"), right, *names), "full", seed=0, resamples=200)


def test_score_intervals_are_fiellers_with_two_added_documents() -> None:
    draw = np.random.default_rng(1)
    whole, plan = (draw.random(80) < 0.7).astype(float), (draw.random(80) < 0.5).astype(float)
    found = ScaledScores.from_answers(
        BenchmarkAnswers(("full", "p"), {"t": np.stack([whole, plan])}, {"t": "acc"}, {"t": 0.25}), "full", seed=0
    )
    row = next(row for row in found.rows({"t": "acc"}) if (row.plan, row.task) == ("p", "t"))
    first, second = np.append(whole, [1.0, 0.0]) - 0.25, np.append(plan, [0.0, 1.0]) - 0.25
    for end in (row.low, row.high):
        gaps = second - end * first
        assert abs(gaps.mean()) == pytest.approx(norm.ppf(0.975) * gaps.std() / math.sqrt(82))


@pytest.mark.parametrize("lost", [0.0, 1.0])
@pytest.mark.parametrize("count", [30, 200])
def test_intervals_have_a_width_if_all_answers_agree(count: int, lost: float) -> None:
    rows = list(study(count, lost=lost, tasks=3).rows(dict.fromkeys(("t0", "t1", "t2"), "acc")))
    own = {(row.task, row.metric): row for row in rows if row.plan == "p"}
    assert len(own) == 5
    assert all(row.low < row.value < row.high or row.value in (row.low, row.high) for row in own.values())
    assert all(row.high - row.low > 0.01 for row in own.values())
    single = [own[f"t{task}", "acc"] for task in range(3)]
    mean = own["all", "mean"]
    assert mean.high - mean.value == pytest.approx(math.hypot(*(row.high - row.value for row in single)) / 3)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("count", "lost", "gained"), [(30, 0.03, 0), (50, 0.03, 0), (100, 0.02, 0), (200, 0.01, 0), (200, 0.5, 0.3)]
)
def test_score_intervals_cover_the_truth(count: int, lost: float, gained: float) -> None:
    truth = (0.6 * (1 - lost) + 0.4 * gained - 0.25) / 0.35
    held = []
    for seed in range(400):
        rows = [row for row in study(count, lost=lost, gained=gained, seed=seed).rows({"t0": "acc"}) if row.plan == "p"]
        held += [row.low <= truth <= row.high for row in rows[:1]]
    assert len(held) > 350
    assert np.mean(held) >= 0.92


def test_a_benchmark_that_cannot_be_normalized_gives_the_reason(answers: BenchmarkAnswers) -> None:
    few, guessed = sorted(
        ScaledScores.from_answers(answers, WHOLE, seed=0).unscaled(),
        key=lambda sentence: sentence.startswith("guessed"),
    )
    assert few == "short cannot be normalized: it has only 5 questions, but an interval requires 8"
    assert guessed.startswith("guessed cannot be normalized: the original model answers 0.")
    assert guessed.endswith("which is not shown to exceed chance (0.500)")


def test_falls_are_slopes_over_all_windows(contrasts: Contrasts, scores: Shares) -> None:
    for strategy in PAINTERS_RANKING:
        each = [fall(scores, strategy, name) for name in SCALED]
        for name, value in zip(SCALED, each, strict=True):
            assert contrasts["benchmark_fall", name, f"slope {strategy}"].value == pytest.approx(value)
        assert contrasts["benchmark_fall", "all", f"slope {strategy}"].value == pytest.approx(fmean(each))


def test_order_is_compared_with_skipping(contrasts: Contrasts, scores: Shares) -> None:
    task, other = "arc_a and gsm8k", "hellaswag and winogrande"
    windows = [size for size in WINDOWS if all(at(scores, "skip", size, name) >= 0.25 for name in SCALED)]
    assert len(windows) >= 2
    assert contrasts["order_by_benchmark", task, f"windows {other}"].value == len(windows)

    def lost(strategies: tuple[str, ...], *names: str) -> float:
        return fmean(1 - at(scores, each, size, name) for each in strategies for size in windows for name in names)

    moved = ("reverse", "random", "parallel")
    ratio = {}
    for kind in (SCALED[:2], SCALED[2:]):
        ratio[kind] = math.log(lost(moved, *kind) / lost(("skip",), *kind))
    less = lost(moved, *SCALED[:2]) - lost(moved, *SCALED[2:])
    assert contrasts["order_by_benchmark", task, f"order_less {other}"].value == pytest.approx(less)
    assert contrasts["order_by_benchmark", task, f"log_ratio {other}"].value == pytest.approx(
        ratio[SCALED[:2]] - ratio[SCALED[2:]]
    )


def test_a_plan_with_missing_answers_is_excluded(rows: Rows) -> None:
    fewer = {**rows, "gsm8k": [row for row in rows["gsm8k"] if (row.plan, row.document) != (PLANS[3], "7")]}
    assert BenchmarkAnswers.from_rows(fewer, PLANS, JUDGED).plans == tuple(plan for plan in PLANS if plan != PLANS[3])


def test_difficulty_common_to_all_plans_cancels() -> None:
    draw = np.random.default_rng(0)
    right = (draw.random(40) < 0.7).astype(float)
    same = BenchmarkAnswers((WHOLE, "0"), {"arc": np.stack([right, right])}, {"arc": "acc"}, {"arc": 0.25})
    scaled = ScaledScores.from_answers(same, WHOLE, seed=0, resamples=100)
    assert np.all(scaled.scores.effects == 1.0)
    wrong = BenchmarkAnswers((WHOLE, "0"), {"arc": np.stack([right, 1 - right])}, {"arc": "acc"}, {"arc": 0.25})
    drawn = ScaledScores.from_answers(wrong, WHOLE, seed=0, resamples=100).scores.effects
    assert drawn[:, 0, 1].std() > 0.05


def test_without_benchmarks_or_windows_there_are_no_rows(answers: BenchmarkAnswers) -> None:
    for of in (BenchmarkAnswers((WHOLE,), {}, {}, {}), answers):
        assert contrast_benchmarks(ScaledScores.from_answers(of, WHOLE, seed=0, resamples=50), [], DEPTH) == []
