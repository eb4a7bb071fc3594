"""Simulated benchmark answers drawn from planted scores, put through the real measure."""

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

from layerwise.plan import Plan
from layerwise.results.rows import PlanRecord, Score
from layerwise.studies.sweep.benchmark_contrasts import BenchmarkAnswers, ScaledScores, contrast_benchmarks
from page.claims.swept import DEPTH, WIDEST, list_plans
from page.claims.truths import Truth
from page.synthetic import plan_records

WHOLE = str(Plan.identity(DEPTH))
RESAMPLES = 1_000

BENCHMARKS = {
    "arc_challenge": (0.25, 0.6),
    "gsm8k": (0.0, 0.4),
    "hellaswag": (0.25, 0.75),
    "lambada_openai": (0.0, 0.7),
    "winogrande": (0.5, 0.8),
}
"""Benchmark to chance score and the original model's score."""

Measure = Callable[..., list[Score]]
Planted = Callable[[PlanRecord, str], float]
"""The normalized score of a plan on a benchmark, before the draw of a random order."""


def simulate_benchmarks(
    planted: Planted,
    *,
    documents: int = 500,
    draws: float = 0.1,
    shared: float = 0.8,
    measure: Measure = contrast_benchmarks,
    resamples: int = RESAMPLES,
) -> Truth:
    """`draws` is the relative spread of random orders, `shared` the correlation of two plans on a document."""
    plans, records = list_plans(("painters",), DEPTH)
    # One in six random orders of three layers is the trained one and loses nothing.
    changed = tuple(record for record in plan_records(DEPTH, ("painters",)) if record.plan != WHOLE)

    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng(run)
        own = 1 + draws * draw.standard_normal(len(plans))
        right = {}
        for name, (chance, top) in BENCHMARKS.items():
            lost = np.array([1 - planted(records[plan], name) if plan in records else 0.0 for plan in plans])
            drawn = np.array([plan in records and records[plan].draw is not None for plan in plans])
            score = 1 - lost * np.where(drawn, own, 1.0)
            share = np.clip(chance + score * (top - chance), 0.0, 1.0)
            hard = shared**0.5 * draw.standard_normal(documents)
            noise = (1 - shared) ** 0.5 * draw.standard_normal((len(plans), documents))
            right[name] = (norm.cdf(hard + noise) < share[:, None]).astype(float)
        answers = BenchmarkAnswers(
            plans, right, dict.fromkeys(right, "acc"), {name: BENCHMARKS[name][0] for name in right}
        )
        return measure(
            ScaledScores.from_answers(answers, WHOLE, seed=run, resamples=resamples), changed, DEPTH, seed=run
        )

    return truth


def fall_linearly(record: PlanRecord, steepness: float = 1.0) -> float:
    return max(0.0, 1 - steepness * record.affected / WIDEST)
