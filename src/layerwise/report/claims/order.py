"""The claim that the order of layers matters more for reasoning than for text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.report.claims.claim import Claim, Published, Span, mean, on_tokens, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import WHOLE
from layerwise.report.wording import counted
from layerwise.results.rows import Score

DELTA = "delta_nll"
ANSWERED = "exact_match"  # a metric of tasks whose answers are right or wrong
Kind = Callable[[tuple[int, ...], int], bool]


ORDER = Published(
    "order",
    "Order matters more for reasoning",
    "Running layers in another order costs more on mathematics and reasoning than on text.",
    "arXiv 2407.09298, section 3.6",
    "",
)


def order(evidence: Evidence) -> Claim:
    """Does a wrong order of the layers cost more on reasoning tasks than on text?

    Read from the effects of plans that run every layer once in another order, averaged over the plans. Tasks
    with answers, those that have an exact match, count as reasoning and the others as text; each kind is averaged. A
    task may simply bear no damage at all, so the null is absence:
    the same two numbers for plans that leave layers out and keep the order.

    - supported: reasoning loses more than text, told apart from it, and by a greater factor than under absence, or
      absence was not measured.
    - explained by the null: it loses more, but by no greater factor than under absence: the task is fragile, whatever
      the damage.
    - contradicted: reasoning loses less than text, told apart from it.
    - not resolvable: the two are not told apart.
    """
    found = evidence.diagnosis
    rows = {task: dict(found.subjects("effect", DELTA, task)) for task in found.tasks("effect", DELTA)}
    answered = frozenset(found.tasks("effect", ANSWERED))
    moved = _averages(rows, answered, found.depth, _reordered)
    if moved is None:
        why = "It needs plans that reorder layers, on a text and on a task with answers."
        return ORDER.unmeasured(why)
    text, reasoning = moved
    plans = len({plan for scores in rows.values() for plan in scores if _is_kind(plan, found.depth, _reordered)})
    figures = (
        f"In another order ({counted(plans, 'plan')}) reasoning loses {reasoning.signed} nats per token and text"
        f" {text.signed}{on_tokens(score for scores in rows.values() for score in scores.values())}."
    )
    if text.above(reasoning):
        return ORDER.claim("contradicted", figures, "A wrong order costs more on text.")
    if not reasoning.above(text):
        return ORDER.claim("not resolvable", figures, "The two are not told apart.")
    absent = _averages(rows, answered, found.depth, _shortened)
    if absent is None:
        return ORDER.claim("supported", figures, "Reasoning loses more; no plan without layers to compare.")
    figures = f"{figures[:-1]}; with layers left out {absent[1].signed} and {absent[0].signed}."
    if reasoning.value * absent[0].value > text.value * absent[1].value:
        return ORDER.claim("supported", figures, "Order weighs more on reasoning than absence does.")
    why = "Reasoning loses at least as many times more when layers are left out: it is fragile, whatever the damage."
    return ORDER.claim("explained by the null", figures, why)


def _averages(
    rows: dict[str, dict[str, Score]], answered: frozenset[str], depth: int, kind: Kind
) -> tuple[Span, Span] | None:
    """The effect on text and on tasks with answers, averaged over plans of a kind; `None` where either is missing."""
    means: dict[str, Span] = {}
    for task, scores in rows.items():
        bounds = [span(score) for plan, score in scores.items() if _is_kind(plan, depth, kind)]
        known = [found for found in bounds if found is not None]
        if known:
            means[task] = mean(known)
    text = [bounds for task, bounds in means.items() if task not in answered and task != WHOLE]
    reasoning = [bounds for task, bounds in means.items() if task in answered and task != WHOLE]
    return (mean(text), mean(reasoning)) if text and reasoning else None


def _is_kind(text: str, depth: int, kind: Kind) -> bool:
    try:
        plan = Plan.parse(text)
    except PlanError:
        return False
    cost = plan.cost()
    return not plan.has_halves() and cost.stages == cost.evaluations and kind(plan.order(), depth)


def _reordered(visits: tuple[int, ...], depth: int) -> bool:
    return visits != tuple(range(depth)) and sorted(visits) == list(range(depth))


def _shortened(visits: tuple[int, ...], depth: int) -> bool:
    return len(visits) < depth and all(before < after for before, after in pairwise(visits))
