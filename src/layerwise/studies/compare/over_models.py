"""Judge published findings for several models together, and judge whether the curves of the models coincide.

A finding holds in every model if it holds in each one without correction (intersection-union test). "In any model" and
"does not hold" use Holm's correction over models.

Curves are compared over percent of depth, on a scale from 0 (original model) to 1 (chance). Two curves coincide if the
interval of their difference is inside +-`MARGIN` at all points. They differ if it is outside at some point, corrected
over points (Bonferroni) and pairs (Holm). Otherwise, or if both stay below `MIN_LOST`, the comparison is inconclusive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import stdtrit

from layerwise.page.data import ReportData, cached_per_run
from layerwise.page.finding import Verdict
from layerwise.page.kinds import group_by_paper, judge_published
from layerwise.plan import Plan
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.rows import UNIFORM, Score
from layerwise.results.selection import Rows
from layerwise.studies.compare.over_depth import find_own_task

Coincidence = Literal["coincide", "differ", "inconclusive"]
COINCIDE: Coincidence = "coincide"
DIFFER: Coincidence = "differ"
CURVES_OPEN: Coincidence = "inconclusive"

MARGIN = 0.05

MIN_LOST = 0.2
"""At least one curve of a pair must reach this value, because curves close to the original model always coincide."""

MIN_POINTS = 2
Shares = Mapping[float, Estimate]
"""Maps percent of the depth to the performance lost, from 0 (the original model) to 1 (chance)."""


@dataclass(frozen=True, slots=True)
class Pair:
    models: tuple[str, str]
    differences: Shares
    lost: float

    @property
    def greatest(self) -> tuple[float, Estimate]:
        return max(self.differences.items(), key=lambda each: abs(each[1].value))

    def verdict(self, comparisons: int = 1) -> Coincidence:
        if self.lost < MIN_LOST:
            return CURVES_OPEN
        everywhere, somewhere = compute_widening(comparisons), compute_widening(comparisons * len(self.differences))
        spans = self.differences.values()
        if all(each.widen(everywhere).is_within(MARGIN) for each in spans):
            return COINCIDE
        wide = [each.widen(somewhere) for each in spans]
        return DIFFER if any(each.low > MARGIN or each.high < -MARGIN for each in wide) else CURVES_OPEN


def compare_curves(data: ReportData) -> Iterator[Score]:
    """For each strategy, yield the verdict on all pairs of models together, then on each pair, corrected over pairs."""
    rows = data.rows.where(task=vocab.ALL)
    for scaled in (
        rows.where(measure=vocab.CURVE, metric=vocab.DELTA),
        *rows.where(measure=vocab.SCORE_CURVE).by("metric").values(),
    ):
        for key in dict.fromkeys((row.family, row.strategy) for row in scaled):
            own = scaled.where(family=key[0], strategy=key[1])
            yield from _judge_pairs(own[0], _make_pairs(data, own))


def _make_pairs(data: ReportData, rows: Rows) -> list[Pair]:
    curves = {
        name: lost for name, own in rows.by("variant").items() if (lost := compute_shares_lost(data.runs[name], own))
    }
    models = {name: identify_model(name, data.runs[name]) for name in curves}
    pairs = []
    for names in combinations(curves, 2):
        both = [curves[name] for name in names]
        gaps = subtract_curves(*both)
        if models[names[0]] != models[names[1]] and len(gaps) >= MIN_POINTS:
            pairs.append(
                Pair(names, gaps, max(_interpolate(curve, percent).value for curve in both for percent in gaps))
            )
    return pairs


def _judge_pairs(about: Score, pairs: Sequence[Pair]) -> Iterator[Score]:
    by_pair = {pair.models: cache(pair.verdict) for pair in pairs}
    coincide, differ = (correct_by_holm(by_pair, [verdict]) for verdict in (COINCIDE, DIFFER))
    task = vocab.ALL if about.measure == vocab.CURVE else about.metric
    columns: dict[str, Any] = {"family": about.family, "strategy": about.strategy, "task": task}
    if len(pairs) > 1:
        alone = {pair.verdict() for pair in pairs}
        verdict = COINCIDE if alone == {COINCIDE} else DIFFER if differ or alone == {DIFFER} else CURVES_OPEN
        yield Score(vocab.COINCIDENCE, verdict, float(len(pairs)), **columns)
    for pair in pairs:
        first, second = pair.models
        verdict = COINCIDE if pair.models in coincide else DIFFER if pair.models in differ else CURVES_OPEN
        percent, difference = pair.greatest
        yield Score(
            vocab.COINCIDENCE,
            verdict,
            difference.value,
            difference.low,
            difference.high,
            variant=first,
            against=second,
            percent=percent,
            **columns,
        )


def compute_shares_lost(run: ReportData, rows: Rows) -> Shares:
    """Return the performance lost at each point of a curve.

    The result is empty if the original model is no better than chance.
    """
    spans = {row.percent: bounds for row in rows if row.percent is not None and (bounds := Estimate.read_bounded(row))}
    if rows[0].measure == vocab.SCORE_CURVE:
        return {percent: Estimate(1 - each.value, 1 - each.high, 1 - each.low) for percent, each in spans.items()}
    guessed = run.rows.value(measure="run", metric=UNIFORM)
    whole = str(Plan.identity(run.depth)) if run.depth else ""
    trained = Estimate.read_bounded(run.effect(whole, find_own_task(run, vocab.ALL), vocab.NLL))
    if guessed is None or trained is None or trained.high >= guessed:
        return {}
    scale = guessed - trained.value
    widest = max(trained.value - trained.low, trained.high - trained.value)
    lost = {}
    for percent, effect in spans.items():
        share = effect.scale(1 / scale)
        reach = abs(share.value) * widest / scale
        lost[percent] = Estimate(share.value, share.low - reach, share.high + reach)
    return lost


def subtract_curves(first: Shares, second: Shares) -> Shares:
    low, high = max(min(first), min(second)), min(max(first), max(second))

    def inside(curve: Shares) -> list[float]:
        return [percent for percent in sorted(curve) if low <= percent <= high]

    coarser = min((first, second), key=lambda curve: (len(inside(curve)), len(curve)))
    return {percent: _interpolate(first, percent).minus(_interpolate(second, percent)) for percent in inside(coarser)}


def _interpolate(curve: Shares, percent: float) -> Estimate:
    percents = sorted(curve)
    ends = ([getattr(curve[at], end) for at in percents] for end in ("value", "low", "high"))
    value, low, high = (float(np.interp(percent, percents, each)) for each in ends)
    return Estimate(value, low, high)


HOLDS = (Verdict.SUPPORTED,)
HOLDS_NOT = (Verdict.CONTRADICTED, Verdict.NO_BETTER_THAN_NULL)
IT_HOLDS, IT_HOLDS_NOT, TOO_FEW = "holds", "does not hold", "fewer than two measured"
MIN_MODELS = 2

Key = TypeVar("Key")
Outcome = TypeVar("Outcome")
VerdictAt = Callable[[int], Verdict]
"""Returns the verdict on a model, given the number of comparisons that its intervals are corrected for."""


def identify_model(name: str, run: ReportData) -> str:
    """Return the hash of the model's weights, or its name if the run has no hash."""
    return str(run.manifest.get("weight_hash") or run.manifest.get("model") or name)


def judge_over_models(runs: Mapping[str, ReportData]) -> Iterator[Score]:
    """Yield the verdicts on every published finding, for each run and for all models together.

    A model whose runs disagree counts as inconclusive.
    """
    by_question = {finding.question: finding for run in runs.values() for finding in judge_published(run)}
    for paper, findings in group_by_paper(list(by_question.values())).items():
        for finding in findings:
            yield from _judge_over_models(paper.title, finding.question, runs)


@cached_per_run
def _judge_run(run: ReportData, comparisons: int) -> Mapping[str, Verdict | None]:
    return {finding.question: finding.verdict for finding in judge_published(widen_data(run, comparisons))}


def _judge_over_models(paper: str, question: str, runs: Mapping[str, ReportData]) -> Iterator[Score]:
    alone = {name: _judge_run(run, 1).get(question) or Verdict.NOT_MEASURED for name, run in runs.items()}
    models = {name: identify_model(name, run) for name, run in runs.items()}
    measured: dict[str, list[ReportData]] = defaultdict(list)
    for name, run in runs.items():
        if alone[name] != Verdict.NOT_MEASURED:
            measured[models[name]].append(run)
    agreed: dict[str, VerdictAt] = {model: partial(_combine_verdicts, question, own) for model, own in measured.items()}
    shown, refuted = correct_by_holm(agreed, HOLDS), correct_by_holm(agreed, HOLDS_NOT)
    columns: dict[str, Any] = {"paper": paper, "claim": question}
    for name, verdict in alone.items():
        is_measured = verdict != Verdict.NOT_MEASURED
        left = is_measured * ((models[name] in shown) - (models[name] in refuted))
        yield Score(vocab.CLAIM, verdict, float(left), variant=name, **columns)
    in_all, in_none = (all(verdict(1) in kind for verdict in agreed.values()) for kind in (HOLDS, HOLDS_NOT))
    for against, holds, holds_not in ((vocab.EVERY, in_all, in_none or refuted), (vocab.ANY, in_all or shown, in_none)):
        standing = IT_HOLDS if holds else IT_HOLDS_NOT if holds_not else Verdict.INCONCLUSIVE
        yield Score(
            vocab.CLAIM,
            standing if len(agreed) >= MIN_MODELS else TOO_FEW,
            float(len(agreed)),
            against=against,
            models=len(set(models.values())),
            **columns,
        )


def _combine_verdicts(question: str, runs: Sequence[ReportData], comparisons: int) -> Verdict:
    verdicts = [_judge_run(run, comparisons).get(question) or Verdict.NOT_MEASURED for run in runs]
    same = any(all(verdict in kind for verdict in verdicts) for kind in (HOLDS, HOLDS_NOT))
    return verdicts[0] if same else Verdict.INCONCLUSIVE


def correct_by_holm(verdicts: Mapping[Key, Callable[[int], Outcome]], accepted: Collection[Outcome]) -> tuple[Key, ...]:
    """Return the keys whose verdict is among `accepted` after Holm's correction over all of `verdicts`.

    >>> strong, weak = (lambda comparisons: "supported"), (lambda comparisons: "supported" if comparisons < 2 else "x")
    >>> correct_by_holm({"a": weak, "b": strong}, ["supported"]), correct_by_holm({"a": weak, "b": weak}, ["supported"])
    (('a', 'b'), ())
    """
    confirmed: set[Key] = set()
    alone = {name for name, verdict in verdicts.items() if verdict(1) in accepted}
    while waiting := alone - confirmed:
        comparisons = len(verdicts) - len(confirmed)
        more = {name for name in waiting if verdicts[name](comparisons) in accepted}
        if not more:
            break
        confirmed |= more
    return tuple(name for name in verdicts if name in confirmed)


def widen_data(data: ReportData, comparisons: int) -> ReportData:
    if comparisons == 1:
        return data
    factor, limit = compute_widening(comparisons), data.level / comparisons
    return replace(data, scores=tuple(_widen_score(score, factor, limit) for score in data.scores))


def compute_widening(comparisons: int) -> float:
    """Return the factor that widens a 95 % Student t interval, so that all intervals hold together (Bonferroni).

    >>> round(compute_widening(1), 3), round(compute_widening(3), 3), round(compute_widening(10), 3)
    (1.0, 1.323, 1.704)
    """
    degrees = vocab.MIN_UNITS - 1
    return float(stdtrit(degrees, 1 - 0.025 / comparisons) / stdtrit(degrees, 0.975))


def _widen_score(score: Score, factor: float, limit: float) -> Score:
    is_harm = score.measure in (vocab.VERDICT, vocab.RACING) and score.metric == "harmful"
    if is_harm and (score.value >= 0.0 or score.p_adjusted is None or score.p_adjusted >= limit):
        score = replace(score, metric="inconclusive")
    if score.low is None or score.high is None:
        return score
    bounds = Estimate.read(score).widen(factor)
    return replace(score, low=bounds.low, high=bounds.high)
