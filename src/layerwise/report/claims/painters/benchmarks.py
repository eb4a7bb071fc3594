"""Two claims about which benchmarks suffer: one is fragile, and mathematics and reasoning need the order more."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.report.claims.claim import (
    BY_NULL,
    CONTRADICTED,
    NOT_ABOVE,
    OPEN,
    SUPPORTED,
    Claim,
    Position,
    Published,
    Span,
)
from layerwise.report.claims.contrasts import CONTRAST, Contrasts, contrasts
from layerwise.report.claims.power import more, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between, tidy
from layerwise.report.page.wording import listed
from layerwise.results.rows import Score

BENCHMARKS = (
    "It needs benchmarks that the model answers better than chance, under windows of several sizes: layerwise sweep"
    " MODEL --families painters --tasks arc_challenge,hellaswag,gsm8k,winogrande,lambada_openai."
)
FASTER = math.log(1.25)
"""A benchmark that falls less than a quarter faster, or slower, than the others falls as they do."""

QUESTIONS = "the questions"
EVERY = "all"
"""The metric of the contrasts that are taken over all strategies."""

FRAGILE = Published(
    "fragile",
    "Graceful for all benchmarks but GSM8K",
    "With the middle layers side by side, quality degrades gradually on every benchmark but GSM8K.",
    "arXiv 2407.09298, section 3.5, figure 8",
    "Scores are on the scale from 0, chance, to 1, the model as trained. The fall of a benchmark is the slope, over all"
    " windows of parallel layers, of the line from the model as trained. A benchmark is fragile where it is shown to"
    " fall faster than the others do on average; less than a quarter of their fall, either way, is no difference."
    " Intervals are corrected over the benchmarks. Supported: GSM8K is fragile, and no other benchmark is shown to be."
    " Explained by the null: every benchmark, GSM8K among them, is shown to fall as the others do. Contradicted:"
    " another one is fragile, or GSM8K is shown to fall no faster than the others. Without GSM8K it is not resolvable,"
    " unless another one is fragile.",
    BENCHMARKS,
)
EXPECTED = "gsm8k"


def fragile(evidence: Evidence) -> Claim:
    """Is one benchmark fragile under parallel layers, and is it GSM8K?"""
    scores = fragility(evidence, "parallel")
    if len(scores) < 2:
        return FRAGILE.unmeasured()
    rows = Contrasts(scores)
    positions = rows.positions(*scores, margin=FASTER)
    named = [name for name, position in positions.items() if position == "above"]
    expected = [name for name in scores if name.startswith(EXPECTED)]
    others = [name for name in named if name not in expected]
    slowest = all(positions[name] in NOT_ABOVE for name in expected)
    alike = set(positions.values()) == {"within"}
    unknown = more(widest(scores.values()), FASTER, QUESTIONS)
    fallen = f"{listed(named)} {'falls' if len(named) == 1 else 'fall'} faster than the other benchmarks."
    return FRAGILE.decided(
        f"Under parallel layers {_falls(scores)} of what the others lose on average.",
        rows.seen(*scores, margin=FASTER, unit="between the logarithms of two falls", together=1),
        (bool(others), CONTRADICTED, fallen),
        (not expected, OPEN, "GSM8K, the benchmark that is said to be fragile, was not run."),
        (alike, BY_NULL, "Every benchmark falls as the others do."),
        (slowest, CONTRADICTED, f"{listed(expected)} falls no faster than the others."),
        (bool(named), SUPPORTED, fallen),
        otherwise=f"No benchmark is distinguished from the others.{unknown}",
    )


def fragility(evidence: Evidence, strategy: str) -> dict[str, Score]:
    """By benchmark, the logarithm of its fall over the mean fall of the others, under a strategy or under all."""
    return {
        task: by_claim[FRAGILE.key]
        for (measure, metric, task), by_claim in evidence.diagnosis.rows.items()
        if (measure, metric) == (CONTRAST, strategy) and FRAGILE.key in by_claim
    }


def _falls(scores: Mapping[str, Score]) -> str:
    return listed([f"{name} loses {factor(score)} times" for name, score in scores.items()])


def factor(score: Score) -> str:
    """The logarithm of a ratio as the ratio, with its interval."""
    if score.low is None or score.high is None:
        return tidy(_ratio(score.value))
    return between(_ratio(score.value), _ratio(score.low), _ratio(score.high))


def _ratio(logarithm: float) -> float:
    return math.exp(min(logarithm, 50.0))


ORDER = Published(
    "order_by_benchmark",
    "Mathematics and reasoning need the order more",
    "Mathematical and reasoning benchmarks (GSM8K, ARC) depend more on the order of the layers than semantic ones"
    " (WinoGrande, HellaSwag) do.",
    "arXiv 2407.09298, section 3.6",
    "Order is what reverse, random order and parallel cost, in equal parts, on the scale from chance to the model as"
    " trained, and absence what skipping the same windows costs; a window counts only where skipping leaves each of"
    " them a quarter of its scale, since beyond it nothing is left to lose. Two contrasts: the cost of order on"
    " reasoning less that on semantic benchmarks, and the ratio of order to absence on reasoning by that on semantic"
    " ones. Supported: both lie above their nulls, 0 and 1. Explained by the null: the first does, and the ratio lies"
    " inside 1/1.25 to 1.25, or below 1: the benchmarks are fragile, whatever the damage. Contradicted: order costs"
    " less on reasoning, or the costs are shown to be alike, within a twentieth of the scale.",
    BENCHMARKS,
)
ALIKE_ON_SCALE = 0.05


def order_by_benchmark(evidence: Evidence) -> Claim:
    """Do mathematics and reasoning need the order of the layers more than semantic benchmarks do?"""
    tasks = [task for task in evidence.diagnosis.tasks(CONTRAST, "windows") if " | " in task]
    rows = contrasts(evidence, ORDER.key, "windows", task=tasks[0]) if tasks else None
    if rows is None:
        return ORDER.unmeasured()
    less, ratio = rows.span("order_less"), rows.span("log_ratio")
    if less is None or ratio is None:
        return ORDER.undecided("", "Absence leaves a quarter of every scale at fewer than two windows.")
    reasoning, _, semantic = (listed(part.split()) for part in tasks[0].partition(" | "))
    first, beside = less.position(ALIKE_ON_SCALE), ratio.position(FASTER)
    return ORDER.decided(
        f"Other orders cost {reasoning} {less.signed} of the scale more than {semantic}; of what absence costs, order"
        f" costs {factor(rows['log_ratio'])} times as much on them ({_windows(rows)}). Order over absence:"
        f" {_by_benchmark(evidence)}.",
        rows.seen("order_less", margin=ALIKE_ON_SCALE, unit="of the scale between the two kinds", together=1),
        (first in NOT_ABOVE, CONTRADICTED, _less(first)),
        (first == beside == "above", SUPPORTED, "Order weighs more on them than absence does."),
        (first == "above" and beside in NOT_ABOVE, BY_NULL, "Absence costs them as many times more: they are fragile."),
        otherwise=_open(rows, less),
    )


def _less(position: Position) -> str:
    return "Order costs less on reasoning." if position == "below" else "Order costs both kinds the same."


def _open(rows: Contrasts, less: Span) -> str:
    if less.position(ALIKE_ON_SCALE) != "above":
        return f"The two kinds are not distinguished.{more(rows['order_less'], ALIKE_ON_SCALE, QUESTIONS)}"
    return f"Whether reasoning is just fragile is not resolved.{more(rows['log_ratio'], FASTER, QUESTIONS)}"


def _windows(rows: Contrasts) -> str:
    return f"{rows.value('windows'):.0f} windows"


def _by_benchmark(evidence: Evidence) -> str:
    """What order costs over what absence costs, benchmark by benchmark, corrected over them."""
    ratios = {
        task: by_claim[ORDER.key]
        for (measure, metric, task), by_claim in evidence.diagnosis.rows.items()
        if (measure, metric) == (CONTRAST, "log_ratio") and ORDER.key in by_claim and " | " not in task
    }
    return listed([f"{task} {factor(score)}" for task, score in ratios.items()])
