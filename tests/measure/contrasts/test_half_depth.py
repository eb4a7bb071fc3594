"""Strategies at half the depth: differences of plain loops, with orders and documents as sources of variation."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from layerwise.plan import Plan
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import DELTA, STEP
from layerwise.studies.sweep.contrasts import contrast_at_half_depth

DEPTH, TOKENS = 6, 200
ORDERS = [" ".join(map(str, (0, *order, 5))) for order in permutations((1, 2, 3, 4)) if order != (1, 2, 3, 4)]
SKIP, NARROW = "0 5", "0 1 5"


def records(draws: int) -> list[PlanRecord]:
    orders = [PlanRecord(plan, "painters", "random", 4, at, 6, 6, 6, 6) for at, plan in enumerate(ORDERS[:draws])]
    skips = [PlanRecord(plan, "painters", "skip", size, None, 2, 2, 2, 2) for plan, size in ((SKIP, 4), (NARROW, 3))]
    return [*orders, *skips]


def study(
    rng: np.random.Generator, documents: int, draws: int, spread: float, gap: float = 0.0, tasks: Sequence[str] = ("a",)
) -> list[Loss]:
    """Skipping costs `gap` more than random orders do on average; orders differ by `spread`."""
    own = dict(zip(ORDERS[:draws], rng.normal(0, spread, draws), strict=True))
    rows = []
    for task in tasks:
        for document in range(documents):
            hard = rng.normal(0, 0.1)
            losses = {str(Plan.identity(DEPTH)): 3.0, NARROW: 4.0, SKIP: 5.0 + gap + hard}
            losses |= {plan: 5 + value + rng.normal(0, 0.05) for plan, value in own.items()}
            name = f"d{document:03}"
            rows += [Loss(plan, task, name, 0, TOKENS * loss, TOKENS, 0) for plan, loss in losses.items()]
    return rows


def contrasts(losses: list[Loss], draws: int, metric: str) -> list[Score]:
    return [row for row in contrast_at_half_depth(losses, records(draws), DEPTH, ()) if row.metric == metric]


def test_differences_are_differences_of_means() -> None:
    losses = study(np.random.default_rng(0), 12, 3, 0.1, tasks=("a", "b"))

    def cost(plans: Sequence[str], task: str | None = None) -> float:
        return float(
            np.mean([row.nll / TOKENS - 3 for row in losses if row.plan in plans and task in (None, row.task)])
        )

    (step,) = contrasts(losses, 3, STEP)
    drawn, skipped = cost(ORDERS[:3]), cost([SKIP])
    order = ("random", "skip") if drawn < skipped else ("skip", "random")
    assert (step.against, step.strategy, step.task, step.affected) == (*order, "all", 4)
    assert step.value == pytest.approx(abs(drawn - skipped))
    means = {row.task: row.value for row in contrasts(losses, 3, DELTA)}
    assert means == pytest.approx({task or "all": cost(ORDERS[:3], task) for task in (None, "a", "b")})


def width(losses: list[Loss], draws: int) -> float:
    (step,) = contrasts(losses, draws, STEP)
    return (step.high or 0.0) - (step.low or 0.0)


def test_orders_are_a_source_of_variation() -> None:
    """The interval over 40 documents is as wide as Student's over the draws, not over their documents."""
    losses = study(np.random.default_rng(1), 40, 10, 0.3)
    drawn = [np.mean([row.nll / TOKENS for row in losses if row.plan == plan]) for plan in ORDERS[:10]]
    student = 2 * 2.262 * float(np.std(drawn, ddof=1)) / 10**0.5
    assert width(losses, 10) == pytest.approx(student, rel=0.15)
    assert width(study(np.random.default_rng(1), 40, 1, 0.3), 1) < 0.1


def test_few_documents_or_no_baseline_have_no_interval() -> None:
    rows = contrast_at_half_depth(study(np.random.default_rng(2), 7, 2, 0.1), records(2), DEPTH, ())
    assert {(row.low, row.high) for row in rows} == {(None, None)}
    losses = study(np.random.default_rng(3), 40, 3, 1.0)
    assert contrast_at_half_depth([row for row in losses if row.plan != "0-5"], records(3), DEPTH, ()) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("documents", "draws", "spread"),
    [(8, 1, 0.0), (16, 1, 0.0), (40, 1, 0.0), (40, 2, 0.3), (40, 3, 0.3), (40, 10, 0.1), (40, 10, 0.3)],
)
def test_equal_strategies_rarely_differ(documents: int, draws: int, spread: float) -> None:
    rng, studies = np.random.default_rng(1), 400
    steps = [contrasts(study(rng, documents, draws, spread), draws, STEP)[0] for _ in range(studies)]
    false = sum(not (step.low or 0.0) <= 0.0 <= (step.high or 0.0) for step in steps)
    assert false <= 0.085 * studies  # 0.05, and three standard errors


def test_the_detectable_effect_ignores_the_tails_of_few_orders() -> None:
    (step,) = contrasts(study(np.random.default_rng(0), 40, 3, 0.3), 3, STEP)
    assert 2 * (step.mde or 9.0) / ((step.high or 0.0) - (step.low or 0.0)) == pytest.approx(1.356, abs=0.05)
