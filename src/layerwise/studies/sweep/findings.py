"""Findings of a sweep, each the answer to one question.

An answer is supported if its interval (corrected if one of many was picked) excludes zero. Every interval is a row of
the run (`layerwise.studies.sweep.half_depth`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from layerwise.page.data import ReportData, cached_per_run
from layerwise.page.derived.curves import read_half_depth, read_single_changes
from layerwise.page.derived.power import DEFAULT_EFFECT, describe_tokens_needed
from layerwise.page.derived.zones import bound_contrast, compute_contrast, find_clearest_zone, read_similarities
from layerwise.page.finding import Finding, Verdict, describe_loss_change, to_verdict
from layerwise.page.formatting import (
    SIGNED,
    excludes_zero,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_perplexity,
    is_resolved,
    join_words,
    label,
)
from layerwise.plan.painters import GIVEN, half_window
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import BITS, CONTRAST, DELTA, EXCESS, MIN_UNITS, STANDS_OUT, STEP, STRATEGIES
from layerwise.studies.sweep.page_rows import ranked

MAX_NAMED = 4
"""Plans whose costs are said by name, at most."""

BARE = (
    f"Nothing is concluded: these rows carry no intervals, which take {MIN_UNITS} documents or windows on which all"
    " plans were measured."
)
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that is left without the sink token


@cached_per_run
def findings(data: ReportData) -> tuple[Finding, ...]:
    """Every finding that the rows support, in reading order; none at all for an empty run."""
    answers = (
        _own_plans(data),
        _layers(data),
        _bits(data),
        _ranking(data, read_half_depth(data)),
        _sink(data),
    )
    return tuple(finding for finding in answers if finding is not None)


def _finding(question: str, answer: str, known: bool | None) -> Finding:
    return Finding(question, BARE if known is None else answer, to_verdict(known))


def _bounded(rows: Iterable[Score]) -> bool:
    return all(row.low is not None and row.high is not None for row in rows)


def _own_plans(data: ReportData) -> Finding | None:
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
    known = any(is_resolved(row, data.level) for row in rows) if _bounded(rows) else None
    return _finding("What do the plans cost?", f"P{'; '.join(clauses)[1:]}{more}.", known)


def _layers(data: ReportData) -> Finding | None:
    rows = [row for row in read_single_changes(data).where(task=data.tasks[:1]) if math.isfinite(row.value)]
    if len(rows) < 2:
        return None
    most, least = max(rows, key=lambda row: row.value), min(rows, key=lambda row: abs(row.value))
    helped = [row for row in rows if is_resolved(row, data.level) and row.value < 0]
    whole = len(rows) == data.depth
    few = "" if whole else f"Inconclusive: {len(rows)} of {format_count(data.depth, 'layer')} were left out. Of these "
    answer = (
        f"{few}{'layer' if few else 'Layer'} {most.layer}: dropping it costs {SIGNED.text(most)} nats per token; layer"
        f" {least.layer} has the smallest effect, {SIGNED.text(least)}. {_silence(rows, data.level)}"
    )
    if helped:
        answer += f" Dropping layer {_named(helped)} lowers the loss."
    known = (whole and is_resolved(most, data.level)) if _bounded(rows) else None
    return _finding("Which layer matters most, and which least?", answer, known)


def _named(rows: Iterable[Score]) -> str:
    return join_words([str(row.layer) for row in rows])


def _silence(rows: Sequence[Score], level: float) -> str:
    silent = [row for row in rows if not is_resolved(row, level)]
    layers = format_count(len(rows), "layer")
    if not silent:
        return f"All {layers} are distinguished from zero after correction."
    clear, within = [row for row in silent if excludes_zero(row)], [row for row in silent if not excludes_zero(row)]
    limits = [row.mde for row in within if row.mde is not None]
    limits += [abs(bound) for row in within if limits for bound in (row.low, row.high) if bound is not None]
    above = (
        f" above {format_number(max(limits))} nats{describe_tokens_needed(within, DEFAULT_EFFECT)}" if limits else ""
    )
    sentences = {
        f"the loss change is not significant after correction for {len(rows):,} comparisons.": clear,
        f"no effect is detectable{above}.": within,
    }
    return " ".join(
        f"For {f'all {layers}' if len(of) == len(rows) else f'{len(of)} of {layers} ({_named(of)})'} {words}"
        for words, of in sentences.items()
        if of
    )


def _bits(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=CONTRAST, claim=BITS)
    costs = rows.where(metric=DELTA)
    if not costs:
        return None
    sentences = []
    for kind in costs.axis("condition"):
        own = costs.where(condition=kind)
        mean, layers = own.one(layer=None), own.where(layer=PRESENT)
        apart = _list_apart(data, rows.where(metric=STANDS_OUT, condition=kind))
        begins = f"At {kind} a layer alone costs {SIGNED.text(mean)} nats per token on average; "
        if not any(row.value for row in layers):
            sentences.append(f"{kind} changes nothing: the weights are at it already.")
        elif apart:
            needs = layers.one(layer=apart[0].layer)
            others = f", then {_named(apart[1:])}" if apart[1:] else ""
            sentences.append(f"{begins}layer {apart[0].layer} needs most, {SIGNED.text(needs)}{others}.")
        else:
            sentences.append(f"{begins}no layer is shown to need more than the mean of the others.")
    beyond = [row for row in rows.where(metric=EXCESS, layer=None) if row.value]
    if beyond:
        spans = join_words([f"{SIGNED.text(row)} at {row.condition}" for row in beyond])
        sentences.append(f"Beyond noise of the same norm the error costs {spans}.")
    is_known = bool(_list_apart(data, rows.where(metric=STANDS_OUT)))
    return Finding("Which layer needs its bits most?", " ".join(sentences), to_verdict(is_known))


def _list_apart(data: ReportData, rows: Rows) -> list[Score]:
    clear = (row for row in rows if row.value > 0 and is_resolved(row, data.level))
    return sorted(clear, key=lambda row: -row.value)


def _compared(data: ReportData, metric: str, **columns: Any) -> Rows:
    window = half_window(data.swept, data.depth)
    if window is None:
        return Rows()
    of = {"family": window.family, "affected": window.affected, **columns}
    return data.rows.where(measure=CONTRAST, claim=STRATEGIES, metric=metric, **of)


def _ranking(data: ReportData, rows: Rows) -> Finding | None:
    order = ranked(rows.where(task=data.tasks[:1]), next(iter(data.tasks), None))
    if len(order) < 2:
        return None
    steps = [
        _compared(data, STEP, task=data.tasks[0], strategy=harsher.strategy).one(against=milder.strategy)
        for milder, harsher in pairwise(order)
    ]
    apart = [step is not None and excludes_zero(step) for step in steps]
    least, *others = (label(str(row.strategy)) for row in order)
    chain = least + "".join(f" {'<' if clear else '≈'} {name}" for clear, name in zip(apart, others, strict=True))
    answer = (
        f"With {order[0].affected} of {data.depth} layers affected, {least} costs least, {SIGNED.text(order[0])} nats"
        f" per token, and {others[-1]} most, {SIGNED.text(order[-1])}. In order of harm: {chain}. {sum(apart)} of"
        f" {format_count(len(steps), 'step')} are distinguished (<, corrected for {len(steps)} comparisons); where "
        "they are"
        " not (≈), the order is inconclusive."
    )
    known = any(apart) if all(step is not None and step.low is not None for step in steps) else None
    return _finding("Which change hurts least?", answer, known)


def _sink(data: ReportData) -> Finding | None:
    """Judge whether the clearest zone keeps its contrast without the sink tokens, by the share that is left.

    Return None if it is no clearer than between tokens of different documents.
    """
    with_sink, without, null = (read_similarities(data, name) for name in ("cosine", "cosine_no_sink", "cosine_null"))
    zone = None if with_sink is None else find_clearest_zone(with_sink)
    if with_sink is None or without is None or zone is None or (whole := compute_contrast(with_sink, *zone)) <= 0.0:
        return None
    question = "Do the similarity zones survive without the sink token?"
    whole_bounds, left_bounds = (bound_contrast(data, name, *zone) for name in ("cosine", "cosine_no_sink"))
    if whole_bounds is None or left_bounds is None:
        return Finding(question, BARE)
    left, apart = compute_contrast(without, *zone), 0.0 if null is None else compute_contrast(null, *zone)
    if whole_bounds[0] <= apart:
        return None
    state, words = _survival(left / whole, whole_bounds, left_bounds)
    of_null = "" if null is None else f"; between tokens of different documents it is {format_number(apart)}"
    answer = (
        f"{words}. Of hidden states 1–{len(without) - 1} the run {zone[0]}–{zone[1]} is the clearest zone; its"
        f" cosine contrast with the others is {format_interval(whole, *whole_bounds)} with the sink token and"
        f" {format_interval(left, *left_bounds)} without, {format_percent(left / whole)} of it{of_null}. The sink "
        "token is one,"
        " mostly the first, whose state is huge and the same in all layers."
    )
    return Finding(question, answer, state)


def _survival(share: float, whole: tuple[float, float], left: tuple[float, float]) -> tuple[Verdict | None, str]:
    words = _survives(share)
    known = whole[0] > 0.0 and {_survives(left[0] / whole[1]), _survives(left[1] / whole[0])} == {words}
    return to_verdict(known), words if known else "Inconclusive"


def _survives(share: float) -> str:
    return "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"
