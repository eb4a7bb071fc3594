"""Published claims over several models: where each holds, and whether it does in all of them or in any.

In one run a claim *holds* (supported), *does not hold* (contradicted, or explained by the null) or is not resolvable,
by the rule of the claim and the intervals of the run. Over K models that were measured:

    holds in every model    it holds in each of them, at the level of a single run (intersection-union: the null, that
                            some model is without it, is rejected where each model rejects its own; no correction)
    holds in any model      it holds in at least one of them after Holm's correction over the K models, or in every one
    not in any, not in every model    the same of "does not hold", which is corrected apart: it is the other end of the
                            intervals, and each end errs in 2.5 %

Claims have intervals and no p-values, so Holm's steps are levels of the intervals: `widened` has every stored interval
wider about its value by t[1 - .025 / K] / t[.975] of as few degrees of freedom as an interval can have. Those over more
units would need less, so that none is too narrow. A verdict stands at a step only if the rule gives the same at 95 %:
wide intervals may move a contrast from "shown to be small" to "above zero", and that shows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from scipy.special import stdtrit

from layerwise.report.claims import PAPERS, Published, Verdict
from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_MEASURED, OPEN, SUPPORTED
from layerwise.report.data import ReportData
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ANY, CLAIM, EVERY, FEWEST_UNITS, RACING, VERDICT

HOLDS: tuple[Verdict, ...] = (SUPPORTED,)
HOLDS_NOT: tuple[Verdict, ...] = (CONTRADICTED, BY_NULL)
IT_HOLDS, IT_HOLDS_NOT, TOO_FEW = "holds", "does not hold", "fewer than two measured"
FEWEST_MODELS = 2

Key = TypeVar("Key")
Outcome = TypeVar("Outcome")
VerdictAt = Callable[[int], Verdict]
"""From a number of comparisons to the verdict of a run whose intervals are widened for so many."""


def model_of(name: str, run: ReportData) -> str:
    """What is one model: its weights; where a run did not note them, the model as it was named to the run."""
    return str(run.manifest.get("weight_hash") or run.manifest.get("model") or name)


def over_models(runs: Mapping[str, ReportData]) -> Iterator[Score]:
    """The verdicts on every claim of the papers of which some run has the rows, in each run and over the models.

    Runs of one model are one: a claim holds there where each of them says so.
    """
    widened = {name: _levels(run) for name, run in runs.items()}
    models = {name: model_of(name, run) for name, run in runs.items()}
    for paper in PAPERS:
        rows = [row for claim in paper.claims for row in _over_models(paper.key, claim, widened, models)]
        if any(row.arm and row.metric != NOT_MEASURED for row in rows):
            yield from rows


def _levels(run: ReportData) -> Callable[[int], ReportData]:
    """The rows of a run with their intervals widened for any number of comparisons, each looked up once."""
    return cache(lambda comparisons: widened(run, comparisons))


def _over_models(
    paper: str, claim: Published, levels: Mapping[str, Callable[[int], ReportData]], models: Mapping[str, str]
) -> Iterator[Score]:
    """The claim in each run, and then in every model and in any."""
    by_run = {name: _verdict_at(claim, run_at) for name, run_at in levels.items()}
    by_model: dict[str, list[VerdictAt]] = defaultdict(list)
    for name, verdict in by_run.items():
        if verdict(1) != NOT_MEASURED:
            by_model[models[name]].append(verdict)
    agreed = {model: _agreed(runs) for model, runs in by_model.items()}
    shown, refuted = holm(agreed, HOLDS), holm(agreed, HOLDS_NOT)
    columns: dict[str, Any] = {"part": paper, "condition": claim.key}
    for name, verdict in by_run.items():
        counted = verdict(1) != NOT_MEASURED
        left = counted * ((models[name] in shown) - (models[name] in refuted))
        yield Score(CLAIM, verdict(1), float(left), arm=name, **columns)
    alone = [verdict(1) for verdict in agreed.values()]
    in_all, in_none = (all(verdict in kind for verdict in alone) for kind in (HOLDS, HOLDS_NOT))
    for against, holds, holds_not in ((EVERY, in_all, in_none or refuted), (ANY, in_all or shown, in_none)):
        standing = IT_HOLDS if holds else IT_HOLDS_NOT if holds_not else OPEN
        yield Score(
            CLAIM, standing if len(agreed) >= FEWEST_MODELS else TOO_FEW, float(len(agreed)), against=against,
            amount=float(len(set(models.values()))), **columns,
        )  # fmt: skip


def _verdict_at(claim: Published, run_at: Callable[[int], ReportData]) -> VerdictAt:
    return cache(lambda comparisons: claim.decide(run_at(comparisons)).verdict)


def _agreed(runs: Sequence[VerdictAt]) -> VerdictAt:
    """The verdict on a model of one run or more: that of its runs where all of them hold, or none does."""

    def at(comparisons: int) -> Verdict:
        verdicts = [verdict(comparisons) for verdict in runs]
        same = any(all(verdict in kind for verdict in verdicts) for kind in (HOLDS, HOLDS_NOT))
        return verdicts[0] if same else OPEN

    return cache(at)


def holm(verdicts: Mapping[Key, Callable[[int], Outcome]], wanted: Collection[Outcome]) -> tuple[Key, ...]:
    """The models, or pairs of them, whose verdict is among `wanted` after Holm's correction over all of `verdicts`.

    >>> strong, weak = (lambda comparisons: "supported"), (lambda comparisons: "supported" if comparisons < 2 else "x")
    >>> holm({"a": weak, "b": strong}, ["supported"]), holm({"a": weak, "b": weak}, ["supported"])
    (('a', 'b'), ())
    """
    confirmed: set[Key] = set()
    alone = {name for name, verdict in verdicts.items() if verdict(1) in wanted}
    while waiting := alone - confirmed:
        comparisons = len(verdicts) - len(confirmed)
        more = {name for name in waiting if verdicts[name](comparisons) in wanted}
        if not more:
            break
        confirmed |= more
    return tuple(name for name in verdicts if name in confirmed)


def widened(data: ReportData, comparisons: int) -> ReportData:
    """The rows with every 95 % interval widened to 1 - .05 / `comparisons`, see the module."""
    if comparisons == 1:
        return data
    factor, limit = widening(comparisons), data.level / comparisons
    return replace(data, scores=tuple(_widened(score, factor, limit) for score in data.scores))


def widening(comparisons: int) -> float:
    """By how much the arms of a 95 % interval grow.

    >>> round(widening(1), 3), round(widening(3), 3), round(widening(10), 3)
    (1.0, 1.323, 1.704)
    """
    degrees = FEWEST_UNITS - 1
    return float(stdtrit(degrees, 1 - 0.025 / comparisons) / stdtrit(degrees, 0.975))


def _widened(score: Score, factor: float, limit: float) -> Score:
    if _is_weak_harm(score, limit):
        score = replace(score, metric="unresolved")
    if score.low is None or score.high is None:
        return score
    low, high = (score.value + factor * (bound - score.value) for bound in (score.low, score.high))
    return replace(score, low=low, high=high)


def _is_weak_harm(score: Score, limit: float) -> bool:
    """Whether a layer is called harmful at 5 % whose corrected p, over all of the text, is not below `limit`."""
    if score.measure not in (VERDICT, RACING) or score.metric != "harmful":
        return False
    return score.value >= 0.0 or score.p_adjusted is None or score.p_adjusted >= limit
