"""Confirm the selected plan on held-out text, and compare it with the controls.

The result rows have the measure `search`. Plans are found on the text `search`, selected on `select`, and confirmed on
the held-out text `report` and, if there is one, on the second corpus (`second`). Losses are in nats/token.

    delta_nll      loss of a plan minus that of the original model
    again          the same, with a 95 % prediction interval for another text with as many documents
    gap            delta_nll on the report text minus delta_nll on the search text
    above_chosen   loss of a control minus that of the selected plan, paired by document; random plans are averaged
    better         share of the random plans with a lower loss than the selected plan

The prediction interval is the confidence interval with each side multiplied by the square root of 2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from layerwise.measure.stats.effects import ConditionLosses, compare_conditions
from layerwise.measure.stats.grid import MIN_UNITS, Strata, arrange, combine_strata, stratum_parts, unit_pieces
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, BETTER, DELTA, GAP, REPORT, SEARCH
from layerwise.search.one_shot import RANDOM

LEVEL = 0.95
_MEAN_OF_RANDOM = "mean of the random sets"


def compute_loss_changes(losses: Iterable[Loss], whole: Plan, task: str, *, seed: int) -> list[Score]:
    rows = list(losses)
    plans = list(dict.fromkeys(row.plan for row in rows if row.plan != str(whole)))
    if not plans:
        return []
    conditions = [ConditionLosses(plan, DELTA, {"plan": plan}) for plan in plans]
    scores = [
        replace(score, task=task)
        for score in compare_conditions(SEARCH, rows, str(whole), conditions, seed=seed, by_task=False)
        if score.against is None
    ]
    again = [_again(row, row.low, row.high) for row in scores if row.low is not None and row.high is not None]
    return [*scores, *again]


def _again(score: Score, low: float, high: float) -> Score:
    low, high = (score.value + math.sqrt(2) * (bound - score.value) for bound in (low, high))
    return replace(score, metric=AGAIN, low=low, high=high, p=None, p_adjusted=None, mde=None)


def compute_selection_gap(search: Iterable[Loss], report: Iterable[Loss], whole: Plan, plan: Plan) -> list[Score]:
    """Return the selection bias of `plan`: how much larger its loss increase is on held-out text than on search text.

    Standard errors are added in quadrature; the interval is Student's t with Satterthwaite's degrees of freedom. The
    loss increase is relative to the plan `whole`. No row is returned if a text has too few documents.
    """
    parts, compared = [], {str(whole), str(plan)}
    for losses, sign in ((search, -1.0), (report, 1.0)):
        grid = arrange(row for row in losses if row.plan in compared)
        units = unit_pieces(grid)
        if len(units) < MIN_UNITS:
            return []
        own = stratum_parts(grid, str(whole), [str(plan)], Strata.from_lengths(units))
        parts += [replace(part, value=sign * part.value, third=sign * part.third) for part in own]
    gap = combine_strata(parts, LEVEL)[0]
    return [Score(SEARCH, GAP, gap.value, gap.low, gap.high, task=REPORT, plan=str(plan))]


def compare_controls(
    losses: Iterable[Loss],
    selected: Plan,
    controls: Mapping[str, Plan],
    random: Sequence[Plan],
    task: str,
    *,
    seed: int,
) -> list[Score]:
    """Compare each control and the mean of the random plans with the selected plan (result rows `above_chosen`).

    The row `better` is the share of random plans with a lower loss. A control that equals the selected plan has no row.
    """
    rows = list(losses)
    names = {name: str(plan) for name, plan in controls.items() if plan != selected}
    draws = [str(plan) for plan in random if plan != selected]
    rows += _mean_rows(rows, draws)
    compared = [*((plan, name) for name, plan in names.items()), *([(_MEAN_OF_RANDOM, RANDOM)] if draws else [])]
    # Controls can share a plan, and `differences` takes each plan once.
    groups: dict[str, list[str]] = defaultdict(list)
    for key, name in compared:
        groups[key].append(name)
    firsts = [ConditionLosses(key, ABOVE_CHOSEN, {"variant": sharing[0]}) for key, sharing in groups.items()]
    scores = [
        replace(score, task=task, variant=name)
        for score in compare_conditions(SEARCH, rows, str(selected), firsts, seed=seed, by_task=False)
        if score.against is None
        for sharing in groups.values()
        if sharing[0] == score.variant
        for name in sharing
    ]
    if draws:
        total: dict[str, float] = defaultdict(float)
        for row in rows:
            total[row.plan] += row.nll
        share = sum(total[plan] < total[str(selected)] for plan in draws) / len(draws)
        scores.append(Score(SEARCH, BETTER, share, task=task, variant=RANDOM))
    return scores


def _mean_rows(rows: Sequence[Loss], plans: Sequence[str]) -> list[Loss]:
    averaged, cells = set(plans), defaultdict(list)
    for row in rows:
        if row.plan in averaged:
            cells[row.task, row.document, row.window].append(row)
    return [
        replace(same[0], plan=_MEAN_OF_RANDOM, nll=sum(row.nll for row in same) / len(same), hits=0)
        for same in cells.values()
    ]
