"""Findings of a sweep.

An answer is supported if its interval excludes zero. If the answer selects one of many effects, such as the largest,
the interval is corrected for this selection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from layerwise.page.data import ReportData, cached_per_run
from layerwise.page.derived.curves import read_half_depth, read_single_changes
from layerwise.page.derived.power import DEFAULT_EFFECT, describe_tokens_needed
from layerwise.page.derived.zones import bound_contrast, compute_contrast, find_clearest_zone, read_similarities
from layerwise.page.finding import Finding, describe_loss_change, to_verdict
from layerwise.page.formatting import (
    NUMBER,
    SIGNED,
    excludes_zero,
    format_count,
    format_interval,
    format_number,
    format_perplexity,
    is_resolved,
    join_words,
    label,
    name_layers,
)
from layerwise.plan.painters import GIVEN, half_window
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import BITS, CONTRAST, DELTA, EXCESS, MIN_UNITS, STANDS_OUT, STEP, STRATEGIES
from layerwise.studies.sweep.page_rows import select_ranked

MAX_NAMED = 4
"""Maximum number of plans that the answer names."""

NO_INTERVALS = f"Intervals need at least {MIN_UNITS} documents or text windows that were evaluated under every plan."
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that remain without the sink token


@cached_per_run
def list_findings(data: ReportData) -> tuple[Finding, ...]:
    answers = (
        _judge_plans(data),
        _judge_layers(data),
        _judge_quantization(data),
        _judge_ranking(data, read_half_depth(data)),
        _judge_sink(data),
    )
    return tuple(finding for finding in answers if finding is not None)


def _answer(question: str, answer: str, is_decided: bool | None) -> Finding:
    return Finding(question, NO_INTERVALS if is_decided is None else answer, to_verdict(is_decided))


def _have_intervals(rows: Iterable[Score]) -> bool:
    return all(row.low is not None and row.high is not None for row in rows)


def _judge_plans(data: ReportData) -> Finding | None:
    plans = [record.plan for record in data.records.values() if record.family == GIVEN]
    effects = [data.effect(plan, data.tasks[0], DELTA) for plan in plans] if data.tasks else []
    rows = [row for row in effects if row is not None and math.isfinite(row.value)]
    if not rows:
        return None
    clauses = [
        f"plan {row.plan} {describe_loss_change(row)} nats/token (perplexity {format_perplexity(row.value)})"
        for row in rows[:MAX_NAMED]
    ]
    more = f"; {format_count(len(rows) - MAX_NAMED, 'more plan')} in the table" if len(rows) > MAX_NAMED else ""
    is_decided = any(is_resolved(row, data.level) for row in rows) if _have_intervals(rows) else None
    return _answer("What do the plans cost?", f"P{'; '.join(clauses)[1:]}{more}.", is_decided)


def _judge_layers(data: ReportData) -> Finding | None:
    rows = [row for row in read_single_changes(data).where(task=data.tasks[:1]) if math.isfinite(row.value)]
    if len(rows) < 2:
        return None
    most, least = max(rows, key=lambda row: row.value), min(rows, key=lambda row: abs(row.value))
    helped = [row for row in rows if is_resolved(row, data.level) and row.value < 0]
    is_complete = len(rows) == data.depth
    skipped = f"{len(rows)} of {format_count(data.depth, 'layer')}"
    few = "" if is_complete else f"Inconclusive, because only {skipped} were skipped: "
    lowers = f"; skipping {name_layers(row.layer for row in helped)} lowers the loss" if helped else ""
    answer = (
        f"{few}{'layer' if few else 'Layer'} {most.layer} {_describe_cost(most)} nats/token when skipped; layer"
        f" {least.layer} has the smallest effect, {SIGNED.text(least)}{lowers}."
        f" {_describe_inconclusive(rows, data.level)}"
    )
    is_decided = (is_complete and is_resolved(most, data.level)) if _have_intervals(rows) else None
    return _answer("Which layer matters most, and which least?", answer, is_decided)


def _describe_cost(row: Score | None) -> str:
    return f"costs {NUMBER.text(row)}" if row is None or row.value >= 0.0 else f"changes the loss by {SIGNED.text(row)}"


def _describe_inconclusive(rows: Sequence[Score], level: float) -> str:
    inconclusive = [row for row in rows if not is_resolved(row, level)]
    layers = format_count(len(rows), "layer")
    if not inconclusive:
        return f"The effects of all {layers} differ significantly from zero after correction."
    within = [row for row in inconclusive if not excludes_zero(row)]
    limits = [row.mde for row in within if row.mde is not None]
    limits += [abs(bound) for row in within if limits for bound in (row.low, row.high) if bound is not None]
    if len(inconclusive) == len(rows):
        without = f"none of the {layers} has a significant effect"
    else:
        have = "has" if len(inconclusive) == 1 else "have"
        without = f"{name_layers(row.layer for row in inconclusive)} {have} no significant effect"
    even = "" if len(within) == len(inconclusive) else ", even where the interval excludes zero"
    answer = f"After correction for {len(rows):,} comparisons, {without}{even}"
    if limits:
        missed = f"; effects up to {format_number(max(limits))} nats/token could have been missed"
        contain = "interval contains" if len(within) == 1 else "intervals contain"
        where = even and f" in {name_layers(row.layer for row in within)}, whose {contain} zero"
        answer += f"{describe_tokens_needed(within, DEFAULT_EFFECT) or missed}{where}"
    return f"{answer}."


def _judge_quantization(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=CONTRAST, claim=BITS)
    costs = rows.where(metric=DELTA)
    if not costs:
        return None
    sentences = []
    for kind in costs.axis("condition"):
        own = costs.where(condition=kind)
        mean, layers = own.one(layer=None), own.where(layer=PRESENT)
        apart = _list_apart(data, rows.where(metric=STANDS_OUT, condition=kind))
        begins = f"At {kind}, quantizing a single layer {_describe_cost(mean)} nats/token on average; "
        if not any(row.value for row in layers):
            sentences.append(f"{kind} changes nothing: the weights already have this type.")
        elif apart:
            needs = layers.one(layer=apart[0].layer)
            others = f", followed by {name_layers(row.layer for row in apart[1:])}" if apart[1:] else ""
            sentences.append(f"{begins}layer {apart[0].layer} costs most, {NUMBER.text(needs)}{others}.")
        else:
            sentences.append(f"{begins}no layer costs significantly more than the mean of the others.")
    beyond = [row for row in rows.where(metric=EXCESS, layer=None) if row.value]
    if beyond:
        spans = join_words([f"{SIGNED.text(row)} at {row.condition}" for row in beyond])
        sentences.append(
            f"Compared with noise of the same norm, the quantization error changes the loss by {spans} (nats/token)."
        )
    is_decided = bool(_list_apart(data, rows.where(metric=STANDS_OUT)))
    return Finding("Which layer is hurt most by quantization?", " ".join(sentences), to_verdict(is_decided))


def _list_apart(data: ReportData, rows: Rows) -> list[Score]:
    clear = (row for row in rows if row.value > 0 and is_resolved(row, data.level))
    return sorted(clear, key=lambda row: -row.value)


def _judge_ranking(data: ReportData, rows: Rows) -> Finding | None:
    order = select_ranked(rows.where(task=data.tasks[:1]), next(iter(data.tasks), None))
    if len(order) < 2:
        return None
    window = half_window(data.swept, data.depth)
    compared = Rows() if window is None else data.rows.where(family=window.family, affected=window.affected)
    compared = compared.where(measure=CONTRAST, claim=STRATEGIES, metric=STEP, task=data.tasks[0])
    steps = [compared.one(strategy=harsher.strategy, against=milder.strategy) for milder, harsher in pairwise(order)]
    apart = [step is not None and excludes_zero(step) for step in steps]
    names = [label(str(row.strategy)) for row in order]
    pairs = [
        f"{milder} and {harsher}" for clear, (milder, harsher) in zip(apart, pairwise(names), strict=True) if clear
    ]
    differing = "No two neighbors in this ranking differ significantly"
    if pairs:
        differing = f"These neighbors in the ranking differ significantly: {'; '.join(pairs)}"
    if all(apart):
        differing = "All neighbors in the ranking differ significantly"
    names[0] += f" ({_describe_cost(order[0])} nats/token)"
    names[-1] += f" ({_describe_cost(order[-1])} nats/token)"
    answer = (
        f"With {order[0].affected} of {data.depth} layers affected, the strategies rank as follows, least harmful"
        f" first: {join_words(names)}. {differing} ({format_count(len(steps), 'comparison')})."
    )
    is_decided = any(apart) if all(step is not None and step.low is not None for step in steps) else None
    return _answer("Which change hurts least?", answer, is_decided)


def _judge_sink(data: ReportData) -> Finding | None:
    with_sink, without, null = (read_similarities(data, name) for name in ("cosine", "cosine_no_sink", "cosine_null"))
    zone = None if with_sink is None else find_clearest_zone(with_sink)
    if with_sink is None or without is None or zone is None or (whole := compute_contrast(with_sink, *zone)) <= 0.0:
        return None
    question = "Do the similarity zones survive without the sink token?"
    whole_bounds, left_bounds = (bound_contrast(data, name, *zone) for name in ("cosine", "cosine_no_sink"))
    if whole_bounds is None or left_bounds is None:
        return Finding(question, NO_INTERVALS)
    left, apart = compute_contrast(without, *zone), 0.0 if null is None else compute_contrast(null, *zone)
    if whole_bounds[0] <= apart:
        return None
    words, (low, high) = _describe_share(left / whole), whole_bounds
    ends = {_describe_share(left_bounds[0] / high), _describe_share(left_bounds[1] / low)} if low > 0.0 else set()
    is_decided = ends == {words}
    of_null = "" if null is None else f" (tokens of different documents: {format_number(apart)})"
    answer = (
        f"{words if is_decided else 'Inconclusive'}: the cosine contrast of the clearest zone, states"
        f" {zone[0]}–{zone[1]} of {len(without) - 1}, is {format_interval(left, *left_bounds)} without the sink token"
        f" and {format_interval(whole, *whole_bounds)} with it{of_null}."
    )
    return Finding(question, answer, to_verdict(is_decided))


def _describe_share(share: float) -> str:
    return "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"
