"""The questions of "Transformer Layers as Painters" that a sweep with benchmarks answers.

Scores are on the scale from 0, chance, to 1, the original model.
"""

from __future__ import annotations

from layerwise.page.data import ReportData
from layerwise.page.evidence import describe_data_needed, read_estimates, select_widest
from layerwise.page.finding import Finding, Published, Question, Verdict, format_estimate
from layerwise.page.papers import PAINTERS
from layerwise.page.text.wording import listed
from layerwise.results.estimate import Estimate
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, LOG_RATIO
from layerwise.studies.sweep.painters import (
    ALIKE,
    LOG_FACTOR,
    SHALLOWEST_RULE,
    SHALLOWEST_STATEMENT,
    compare_slopes,
)

NEAR_CHANCE, MIN_SCORE = 0.1, 0.05
FRAGILE_BENCHMARK = "gsm8k"

REPEAT_AT_CHANCE = Question(
    "Does repeating the middle layer fall to chance?",
    "The mean score over the benchmarks and the windows of half the depth and more counts as chance within a tenth of"
    " the scale. The null is to skip the same layers.",
    Published(
        PAINTERS,
        "With copies of the center layer in place of the middle layers, quality falls to the random baseline.",
        "the random baseline",
        "sections 3.3 and 3.8, figure 5",
    ),
    "of the scale",
    NEAR_CHANCE,
)
FRAGILE = Question(
    "Does quality fall gradually on every benchmark but GSM8K?",
    "The fall is the slope over all windows of parallel layers. A benchmark is fragile if it is shown to fall more than"
    " 1.25 times as fast as the others on average; intervals are corrected over the benchmarks.",
    Published(
        PAINTERS,
        "With the middle layers side by side, quality degrades gradually on every benchmark but GSM8K.",
        "GSM8K alone",
        "section 3.5, figure 8",
    ),
    "times the fall of the others, at the fastest",
    1.25,
)
ORDER_BY_BENCHMARK = Question(
    "Do mathematics and reasoning need the order more?",
    "Order is what reverse, random and parallel order cost, in equal parts, at windows where skipping leaves a quarter"
    " of every scale. The null is that they are fragile: relative to skipping, order costs them less than 1.25 times"
    " as much.",
    Published(
        PAINTERS,
        "GSM8K and ARC depend more on the order of the layers than WinoGrande and HellaSwag.",
        "",
        "section 3.6",
    ),
    "of the scale more on reasoning",
    MIN_SCORE,
)
SHALLOWEST = Question(
    "Do random order and looped parallel degrade least steeply (benchmarks)?",
    SHALLOWEST_RULE,
    SHALLOWEST_STATEMENT,
    "of the mean of two slopes, at the closest pair",
    ALIKE,
)


def judge_repeat_falls_to_chance(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "repeat_at_chance", "middle_repeat", "skip")
    if estimates is None:
        return None
    repeat, skip = estimates
    at_chance = repeat.locate(NEAR_CHANCE) == "within"
    if repeat.is_above(NEAR_CHANCE):
        verdict, answer = Verdict.CONTRADICTED, "No: repeating leaves more than chance."
    elif at_chance and skip.locate(NEAR_CHANCE) in ("within", "below"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Yes, but skipping the same layers falls to chance too."
    elif at_chance and skip.locate(NEAR_CHANCE) == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: repeating leaves chance, and skipping more than that."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = f"An interval allows both answers.{describe_data_needed(repeat, NEAR_CHANCE, 'the questions')}"
    return REPEAT_AT_CHANCE.answer(verdict, f"{answer} Skipping leaves {format_estimate(skip)} of the scale.", repeat)


def judge_benchmarks_fall_alike(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=CONTRAST, claim="fragile", metric=LOG_RATIO, strategy="parallel")
    falls = {row.task: Estimate.read(row) for row in rows}
    if len(falls) < 2:
        return None
    at = {name: fall.locate(LOG_FACTOR) for name, fall in falls.items()}
    fragile = [name for name in falls if at[name] == "above"]
    expected = [name for name in falls if name.startswith(FRAGILE_BENCHMARK)]
    if set(fragile) - set(expected):
        verdict, answer = Verdict.CONTRADICTED, f"No: {listed(fragile)} fall faster than the others."
    elif not expected:
        verdict, answer = Verdict.INCONCLUSIVE, "GSM8K, which is said to be fragile, was not measured."
    elif set(at.values()) == {"within"}:
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Every benchmark falls as the others do."
    elif {at[name] for name in expected} <= {"within", "below"}:
        verdict, answer = Verdict.CONTRADICTED, f"No: {listed(expected)} falls no faster than the others."
    elif fragile:
        verdict, answer = Verdict.SUPPORTED, f"Yes: only {listed(fragile)} falls faster than the others."
    else:
        needed = describe_data_needed(select_widest(falls.values()), LOG_FACTOR, "the questions")
        verdict, answer = Verdict.INCONCLUSIVE, f"No benchmark is distinguished from the others.{needed}"
    numbers = listed([f"{name} {format_estimate(fall.exponentiate())}" for name, fall in falls.items()])
    fastest = max(falls.values(), key=lambda fall: fall.value)
    return FRAGILE.answer(verdict, f"{answer} Times the fall of the others: {numbers}.", fastest.exponentiate())


def judge_order_by_benchmark(data: ReportData) -> Finding | None:
    own = data.rows.where(measure=CONTRAST, claim="order_by_benchmark", against=PRESENT)
    rows = {row.metric: row for row in own}
    if "windows" not in rows:
        return None
    less, ratio = (Estimate.read_bounded(rows.get(metric)) for metric in ("order_less", LOG_RATIO))
    if less is None or ratio is None:
        answer = "Skipping leaves a quarter of every scale at fewer than two windows."
        return ORDER_BY_BENCHMARK.answer(Verdict.INCONCLUSIVE, answer)
    at, at_ratio = less.locate(MIN_SCORE), ratio.locate(LOG_FACTOR)
    if at == "below":
        verdict, answer = Verdict.CONTRADICTED, "No: order costs less on reasoning."
    elif at == "within":
        verdict, answer = Verdict.CONTRADICTED, "No: order costs both kinds the same."
    elif at == at_ratio == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: order matters more for them than skipping does."
    elif at == "above" and at_ratio in ("within", "below"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "They are fragile: skipping costs them as many times more."
    elif at == "open":
        needed = describe_data_needed(less, MIN_SCORE, "the questions")
        verdict, answer = Verdict.INCONCLUSIVE, f"The two kinds are not distinguished.{needed}"
    else:
        needed = describe_data_needed(ratio, LOG_FACTOR, "the questions")
        verdict, answer = Verdict.INCONCLUSIVE, f"Whether they are just fragile is inconclusive.{needed}"
    times = f"Relative to skipping, order costs {format_estimate(ratio.exponentiate())} times as much on them."
    return ORDER_BY_BENCHMARK.answer(verdict, f"{answer} {times}", less)


def judge_shallowest_on_benchmarks(data: ReportData) -> Finding | None:
    return compare_slopes(
        data, SHALLOWEST, "shallowest_on_benchmarks", "benchmark_fall", "Of the scale per tenth of the depth"
    )


BENCHMARK_FINDINGS = (
    judge_repeat_falls_to_chance,
    judge_benchmarks_fall_alike,
    judge_order_by_benchmark,
    judge_shallowest_on_benchmarks,
)
