"""Published claims over several models: where each holds, and whether it does in all of them or in any.

In one run a claim *holds* (supported), *does not hold* (contradicted, or explained by the null) or is not resolvable,
by the rule of the claim and the intervals of the run. Over K models that were measured:

    holds in every model    it holds in each of them, at the level of a single run (intersection-union: the null, that
                            some model is without it, is rejected where each model rejects its own; no correction)
    holds in any model      it holds in at least one of them after Holm's correction over the K models, or in every one
    not in any model        it does not hold in each of them, again at the level of a single run
    not in every model      it does not hold in at least one after Holm's correction

Claims have intervals and no p-values, so Holm's steps are levels of the intervals. At the first step every interval is
widened from 95 % to 1 - .05 / K; the models that then still show the claim are counted as shown, and the others are
looked at again with K less the number of those shown, until a step shows no more. "Holds" and "does not hold" are
corrected apart: each is one end of the intervals, which errs in 2.5 %, and 5 % together. All of this is valid however
much the models have in common, such as the text.

A stored interval is widened by t[1 - .025 / K] / t[.975] about its value, each arm by itself, of as few degrees of
freedom as an interval of layerwise can have: `FEWEST_UNITS` - 1. Intervals over more units, and those that are wider
than 95 % already, would need less, so that no interval is too narrow. A verdict stands at a step only if the rule gives
the same answer as at 95 %: wide intervals may move a contrast from "shown to be small" to "above zero", and that shows
nothing. A layer that a diagnosis calls harmful was confirmed at 5 % on a part of the text; at a step it counts if its
effect on all of the text, Bonferroni-corrected over the layers, has a p below .05 / K.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeVar

from scipy.special import stdtrit

from layerwise.report.claims import PAPERS, Claim, Paper, Published, Verdict
from layerwise.report.comparison.compared import Compared
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.results.rows import Score
from layerwise.results.vocabulary import FEWEST_UNITS

Standing = Literal["holds", "does not hold", "not resolvable"]
HOLDS: tuple[Verdict, ...] = ("supported",)
HOLDS_NOT: tuple[Verdict, ...] = ("contradicted", "explained by the null")
FEWEST_MODELS = 2

ByPaper = Sequence[tuple[Paper, Sequence["OverModels"]]]
"""The claims of each paper over several models."""
Key = TypeVar("Key")
Outcome = TypeVar("Outcome")
VerdictAt = Callable[[int], Verdict]
"""From a number of comparisons to the verdict of a run whose intervals are widened for so many."""


@dataclass(frozen=True, slots=True)
class OverModels:
    """What became of one claim over several models.

    `claims` holds its verdict in each run by itself, by model. `shown` are the models in which it holds, and `refuted`
    those in which it does not, after Holm's correction over the models that were measured. `in_every` and `in_any` say
    whether it holds in every one and in at least one of those; `None` where fewer than two were measured. Runs of one
    model are one: it holds there where each of them says so.
    """

    published: Published
    claims: Mapping[str, Claim]
    shown: tuple[str, ...]
    refuted: tuple[str, ...]
    in_every: Standing | None
    in_any: Standing | None
    models: Mapping[str, str]
    """The model of each run, which several runs may share."""

    @property
    def measured(self) -> tuple[str, ...]:
        """The runs that have the rows which the rule reads."""
        return tuple(name for name, claim in self.claims.items() if claim.verdict != "not measured")

    @property
    def counts(self) -> tuple[int, int]:
        """How many models were measured, and how many there are."""
        return len({self.models[name] for name in self.measured}), len(set(self.models.values()))


def over_models(compared: Compared) -> ByPaper:
    """Every claim of every paper of which some run has the rows, those that none has among them."""
    widened = {run.name: _levels(run.evidence) for run in compared.runs}
    models = {run.name: run.model for run in compared.runs}
    papers = []
    for paper in PAPERS:
        claims = tuple(_over_models(each, widened, models) for each in paper.claims)
        if any(claim.measured for claim in claims):
            papers.append((paper, claims))
    return tuple(papers)


def _levels(evidence: Evidence) -> Callable[[int], Evidence]:
    """The rows of a run with their intervals widened for any number of comparisons, each looked up once."""

    @cache
    def at(comparisons: int) -> Evidence:
        return evidence if comparisons == 1 else Evidence.of(widened(evidence.data, comparisons))

    return at


def _over_models(
    published: Published, levels: Mapping[str, Callable[[int], Evidence]], models: Mapping[str, str]
) -> OverModels:
    """The claim over the models, each named by its runs that measured it."""
    claims = {name: published.decide(evidence_at(1)) for name, evidence_at in levels.items()}
    verdicts = {
        name: _verdict_at(published, evidence_at)
        for name, evidence_at in levels.items()
        if claims[name].verdict != "not measured"
    }
    by_model: dict[str, list[VerdictAt]] = defaultdict(list)
    for name, verdict in verdicts.items():
        by_model[models[name]].append(verdict)
    agreed = {model: _agreed(runs) for model, runs in by_model.items()}
    shown, refuted = (
        tuple(name for name in verdicts if models[name] in decided)
        for decided in (holm(agreed, HOLDS), holm(agreed, HOLDS_NOT))
    )
    if len(agreed) < FEWEST_MODELS:
        return OverModels(published, claims, shown, refuted, None, None, models)
    alone = {model: verdict(1) for model, verdict in agreed.items()}
    in_all = all(verdict in HOLDS for verdict in alone.values())
    in_none = all(verdict in HOLDS_NOT for verdict in alone.values())
    return OverModels(
        published, claims, shown, refuted,
        in_every=_standing(in_all, in_none or bool(refuted)), in_any=_standing(in_all or bool(shown), in_none),
        models=models,
    )  # fmt: skip


def _verdict_at(published: Published, evidence_at: Callable[[int], Evidence]) -> VerdictAt:
    return cache(lambda comparisons: published.decide(evidence_at(comparisons)).verdict)


def _agreed(runs: Sequence[VerdictAt]) -> VerdictAt:
    """The verdict on a model of one run or more: that of its runs where all of them hold, or none does."""

    def at(comparisons: int) -> Verdict:
        verdicts = [verdict(comparisons) for verdict in runs]
        same = any(all(verdict in kind for verdict in verdicts) for kind in (HOLDS, HOLDS_NOT))
        return verdicts[0] if same else "not resolvable"

    return cache(at)


def _standing(holds: bool, holds_not: bool) -> Standing:
    return "holds" if holds else "does not hold" if holds_not else "not resolvable"


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
    factor = widening(comparisons)
    limit = data.level / comparisons
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
    if score.measure not in ("verdict", "racing") or score.metric != "harmful":
        return False
    return score.value >= 0.0 or score.p_adjusted is None or score.p_adjusted >= limit
