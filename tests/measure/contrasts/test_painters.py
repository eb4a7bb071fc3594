"""The contrasts of the Painters claims compared with plain loops."""

import random
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import kendalltau

from layerwise.measure.interventions.sweep import plan_records
from layerwise.plan import Member, Plan, families
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Loss, Score
from layerwise.studies.sweep.contrasts import contrast_painters

Found = dict[tuple[str, str], Score]
Costs = dict[tuple[str, str, int], float]

DEPTH = 8
WHOLE = str(Plan.identity(DEPTH))
TASKS = {"text": 20, "sums": 17, "rare": 3}  # documents of each


@pytest.fixture(scope="module")
def members() -> tuple[Member, ...]:
    return (*families.painters(DEPTH, seeds=(0, 1, 2)), *families.looped(DEPTH), *families.gain_sweep(DEPTH))


@pytest.fixture(scope="module")
def losses(members: tuple[Member, ...]) -> list[Loss]:
    draw = random.Random(0)
    found = []
    for plan in dict.fromkeys([WHOLE, *(str(member.plan) for member in members)]):
        worse = 0.0 if plan == WHOLE else draw.uniform(0.2, 2.0)
        for task, documents in TASKS.items():
            for document in range(documents):
                for window in range(1 + document % 2):
                    tokens = 5 + document
                    nll = tokens * (1.0 + worse * draw.uniform(0.5, 1.5))
                    found.append(Loss(plan, task, f"d{document}", window, nll, tokens, 0))
    return found


@pytest.fixture(scope="module")
def found(losses: list[Loss], members: tuple[Member, ...]) -> Found:
    scores = contrast_painters(losses, plan_records(members), DEPTH)
    assert {score.measure for score in scores} == {"contrast"}
    return {(score.claim, _named(score)): score for score in scores}


def _named(score: Score) -> str:
    columns = (score.metric, score.strategy, score.against, None if score.affected is None else str(score.affected))
    return " ".join(part for part in columns if part is not None)


@pytest.fixture(scope="module")
def costs(losses: list[Loss], members: tuple[Member, ...]) -> Costs:
    nll, tokens = dict.fromkeys({row.plan for row in losses}, 0.0), dict.fromkeys({row.plan for row in losses}, 0)
    for row in losses:
        nll[row.plan] += row.nll
        tokens[row.plan] += row.tokens
    loss = {plan: nll[plan] / tokens[plan] for plan in nll}
    drawn: dict[tuple[str, str, int], list[float]] = {}
    for member in members:
        if member.affected > 1:
            key = (member.family, member.strategy, member.affected)
            drawn.setdefault(key, []).append(loss[str(member.plan)] - loss[WHOLE])
    return {key: fmean(values) for key, values in drawn.items()}


def relative(first: float, second: float) -> float:
    return (first - second) / ((abs(first) + abs(second)) / 2)


def test_costs_are_means_over_windows_and_draws(found: Found, costs: Costs) -> None:
    mean = {name: fmean(costs["painters", name, size] for size in (3, 5, 7)) for name in PAINTERS_RANKING}
    for name, value in mean.items():
        assert found["ranking", name].value == pytest.approx(value)
    for claim, harsher, milder in (
        ("any_order", "skip", "reverse"),
        ("any_order", "skip", "random"),
        ("parallel", "skip", "parallel"),
        ("parallel", "parallel", "reverse"),
        ("same_function", "middle_repeat", "skip"),
        ("looping", "parallel", "looped_parallel"),
    ):
        assert found[claim, f"{harsher}:{milder}"].value == pytest.approx(relative(mean[harsher], mean[milder]))
    assert found["any_order", "random"].value == pytest.approx(2 * mean["random"] / (mean["random"] + mean["skip"]))
    tau = kendalltau(range(6), [mean[name] for name in PAINTERS_RANKING]).statistic
    assert found["ranking", "tau"].value == pytest.approx(tau)
    for milder, harsher in combinations(PAINTERS_RANKING, 2):
        pair = found["ranking", f"{harsher}:{milder}"]
        assert pair.value == pytest.approx(relative(mean[harsher], mean[milder]))


def test_the_saving_of_a_few_layers_is_over_all_middle_windows(found: Found, costs: Costs) -> None:
    few, whole = costs["painters", "skip", 3], costs["painters", "skip", 7]
    assert found["all_needed", "saved"].value == pytest.approx(1 - (few / 3) / (whole / 7))
    assert found["all_needed", "rise"].value == pytest.approx(whole - few)


def test_the_best_loop_counts_are_fitted_and_compared_with_the_best_gains(found: Found, costs: Costs) -> None:
    by_count = {size: [costs["looped", f"loops={count}", size] for count in range(1, 9)] for size in (3, 5, 7)}
    by_gain = {size: [costs["gain_sweep", f"gain={gain}", size] for gain in range(1, size + 1)] for size in (3, 5, 7)}
    best = [1 + int(np.argmin(by_count[size])) for size in (3, 5, 7)]
    assert found["loop_count", "slope"].value == pytest.approx(np.polyfit([3, 5, 7], best, 1)[0])
    assert found["loop_count", "at_end"].value == best.count(8)
    assert [found["loop_count", f"best_loops {size}"].value for size in (3, 5, 7)] == best
    gains = {size: 1 + int(np.argmin(values)) for size, values in by_gain.items()}
    assert {size: found["loop_count", f"best_gain {size}"].value for size in gains} == gains
    gain = fmean(costs["gain_sweep", "gain=3", size] for size in (3, 5, 7))
    looped = fmean(costs["painters", "looped_parallel", size] for size in (3, 5, 7))
    assert found["looping", "gain:looped_parallel"].value == pytest.approx(relative(gain, looped))


def test_windows_worse_than_a_unigram_model_are_excluded(
    losses: list[Loss], members: tuple[Member, ...], costs: Costs
) -> None:
    """Windows count up to the loss of the unigram model; the rows give the number of the others."""
    whole = [row for row in losses if row.plan == WHOLE]
    own = sum(row.nll for row in whole) / sum(row.tokens for row in whole)
    pairs = {size: max(costs["painters", name, size] for name in ("middle_repeat", "skip")) for size in (3, 5, 7)}
    harshest = max(pairs, key=pairs.__getitem__)
    edge = own + pairs[harshest]
    for unigram, expected in (
        (edge + 1e-9, (3, 5, 7)),
        (edge - 1e-9, tuple(size for size in pairs if size != harshest)),
    ):
        rows = contrast_painters(losses, plan_records(members), DEPTH, unigram=unigram)
        found = {row.metric: row.value for row in rows if row.claim == "same_function"}
        mean = {name: fmean(costs["painters", name, size] for size in expected) for name in ("middle_repeat", "skip")}
        assert found["middle_repeat:skip"] == pytest.approx(relative(mean["middle_repeat"], mean["skip"]))
        assert found["middle_repeat"] == pytest.approx(mean["middle_repeat"])
        counts = {} if len(expected) == 3 else {"excluded": 1.0, "windows": 2.0}
        assert {name: found[name] for name in ("excluded", "windows") if name in found} == counts
    nothing = contrast_painters(losses, plan_records(members), DEPTH, unigram=own)
    assert {row.metric for row in nothing if row.claim == "same_function"} == {"excluded", "windows"}


def test_contrasts_have_intervals_and_parts(found: Found, losses: list[Loss]) -> None:
    tokens = sum(row.tokens for row in losses if row.plan == WHOLE)
    once, ranked = found["parallel", "skip:parallel"], found["ranking", "skip:parallel"]
    assert (ranked.low or 0.0) < (once.low or 0.0) < (once.high or 0.0) < (ranked.high or 0.0)
    for score in found.values():
        assert score.low <= score.value <= score.high
        assert score.mde is not None
        assert score.documents == 40
        assert abs((score.tokens or 0) - tokens) <= 3  # the halves are rounded separately


def test_difficulty_common_to_all_plans_cancels(losses: list[Loss], members: tuple[Member, ...]) -> None:
    """A factor shared by all plans widens the costs but not their relative difference."""
    plain = [
        Loss(row.plan, "text", f"{row.task}{row.document}", 0, 1.0 + (row.plan != WHOLE), 1, 0)
        for row in losses
        if not row.window
    ]
    hard = {row.document: 0.2 + number % 7 for number, row in enumerate(plain)}
    scaled = [
        Loss(row.plan, row.task, row.document, 0, 1.0 + (row.nll - 1) * hard[row.document], 1, 0) for row in plain
    ]
    rows = {(s.claim, s.metric): s for s in contrast_painters(scaled, plan_records(members), DEPTH)}
    cost, difference = rows["ranking", "skip"], rows["parallel", "skip:parallel"]
    assert (cost.high or 0.0) - (cost.low or 0.0) > 0.5
    assert (difference.low, difference.high) == pytest.approx((0.0, 0.0))
