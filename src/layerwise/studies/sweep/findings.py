"""Findings of a sweep, each the answer to one question.

`resolved`: the interval (corrected if one of many was picked) excludes zero; `unresolved`: the run was too small;
`described`: there is no interval. Every interval is a row of the run (`layerwise.studies.sweep.half_depth`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from layerwise.page.claims.claim import Position, span
from layerwise.page.claims.contrasts import ALIKE, OF_COSTS, Fact
from layerwise.page.claims.painters import FASTER, fragility
from layerwise.page.data import ReportData, computed_once
from layerwise.page.derived.bits import bits_finding
from layerwise.page.derived.curves import at_half, order_strategy, single
from layerwise.page.derived.power import WANTED, needed_in_words
from layerwise.page.derived.swept import ABSENCE, by_window, over_windows, ranked
from layerwise.page.derived.zones import Runs, matrix, trained_zones
from layerwise.page.finding import Finding, Verdict, describe_loss_change, settle
from layerwise.page.show import SIGNED
from layerwise.page.text.number_format import between, excludes_zero, in_perplexity, is_resolved, percent, tidy
from layerwise.page.text.wording import counted, label, listed
from layerwise.plan.painters import GIVEN
from layerwise.plan.windows import half_window
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import CONTRAST, DELTA, DIFFERENCE, FEWEST_UNITS, STEP, STRATEGIES, TASK_GAP

MAX_NAMED = 4
"""Plans whose costs are said by name, at most."""

BARE = (
    f"Nothing is concluded: these rows carry no intervals, which take {FEWEST_UNITS} documents or windows on which all"
    " plans were measured."
)
SURVIVES, FADES = 0.75, 0.25  # shares of the contrast that is left without the sink token


@computed_once
def findings(data: ReportData) -> tuple[Finding, ...]:
    """Every finding that the rows support, in reading order; none at all for an empty run."""
    rows, order = at_half(data), order_strategy(data)
    answers = (
        _own_plans(data),
        _layers(data),
        bits_finding(data),
        _ranking(data, rows),
        _order_by_task(data, rows, order),
        _order_or_absence(data, rows, order),
        _fragile(data),
        _loops(data),
        _zones(data),
        _sink(data),
    )
    return tuple(finding for finding in answers if finding is not None)


def _finding(question: str, answer: str, known: bool | None) -> Finding:
    return Finding(question, BARE if known is None else answer, settle(known))


def _bounded(rows: Iterable[Score]) -> bool:
    return all(row.low is not None and row.high is not None for row in rows)


def _own_plans(data: ReportData) -> Finding | None:
    plans = [record.plan for record in data.records.values() if record.family == GIVEN]
    effects = [data.effect(plan, data.tasks[0], DELTA) for plan in plans] if data.tasks else []
    rows = [row for row in effects if row is not None and math.isfinite(row.value)]
    if not rows:
        return None
    clauses = [
        f"plan {row.plan} {describe_loss_change(row)} nats/token (perplexity {in_perplexity(row.value)})"
        for row in rows[:MAX_NAMED]
    ]
    more = f"; {counted(len(rows) - MAX_NAMED, 'more plan')} in the table" if len(rows) > MAX_NAMED else ""
    known = any(is_resolved(row, data.level) for row in rows) if _bounded(rows) else None
    return _finding("What do the plans cost?", f"P{'; '.join(clauses)[1:]}{more}.", known)


def _layers(data: ReportData) -> Finding | None:
    rows = [row for row in single(data).where(task=data.tasks[:1]) if math.isfinite(row.value)]
    if len(rows) < 2:
        return None
    most, least = max(rows, key=lambda row: row.value), min(rows, key=lambda row: abs(row.value))
    helped = [row for row in rows if is_resolved(row, data.level) and row.value < 0]
    whole = len(rows) == data.depth
    few = "" if whole else f"Inconclusive: {len(rows)} of {counted(data.depth, 'layer')} were left out. Of these "
    answer = (
        f"{few}{'layer' if few else 'Layer'} {most.layer}: dropping it costs {SIGNED.text(most)} nats per token; layer"
        f" {least.layer} has the smallest effect, {SIGNED.text(least)}. {_silence(rows, data.level)}"
    )
    if helped:
        answer += f" Dropping layer {_named(helped)} lowers the loss."
    known = (whole and is_resolved(most, data.level)) if _bounded(rows) else None
    return _finding("Which layer matters most, and which least?", answer, known)


def _named(rows: Iterable[Score]) -> str:
    return listed([str(row.layer) for row in rows])


def _silence(rows: Sequence[Score], level: float) -> str:
    silent = [row for row in rows if not is_resolved(row, level)]
    layers = counted(len(rows), "layer")
    if not silent:
        return f"All {layers} are distinguished from zero after correction."
    clear, within = [row for row in silent if excludes_zero(row)], [row for row in silent if not excludes_zero(row)]
    limits = [row.mde for row in within if row.mde is not None]
    limits += [abs(bound) for row in within if limits for bound in (row.low, row.high) if bound is not None]
    above = f" above {tidy(max(limits))} nats{needed_in_words(within, WANTED)}" if limits else ""
    sentences = {
        f"the loss change is not significant after correction for {len(rows):,} comparisons.": clear,
        f"no effect is detectable{above}.": within,
    }
    return " ".join(
        f"For {f'all {layers}' if len(of) == len(rows) else f'{len(of)} of {layers} ({_named(of)})'} {words}"
        for words, of in sentences.items()
        if of
    )


def _compared(data: ReportData, metric: str, **columns: Any) -> Rows:
    window = half_window(data.swept, data.depth)
    if window is None:
        return Rows()
    of = {"part": window.family, "amount": float(window.affected), **columns}
    return data.rows.where(measure=CONTRAST, claim=STRATEGIES, metric=metric, **of)


def _ranking(data: ReportData, rows: Rows) -> Finding | None:
    order = ranked(rows.where(task=data.tasks[:1]), next(iter(data.tasks), None))
    if len(order) < 2:
        return None
    steps = [
        _compared(data, STEP, task=data.tasks[0], condition=harsher.condition).one(against=milder.condition)
        for milder, harsher in pairwise(order)
    ]
    apart = [step is not None and excludes_zero(step) for step in steps]
    least, *others = (label(str(row.condition)) for row in order)
    chain = least + "".join(f" {'<' if clear else '≈'} {name}" for clear, name in zip(apart, others, strict=True))
    answer = (
        f"With {order[0].amount:g} of {data.depth} layers affected, {least} costs least, {SIGNED.text(order[0])} nats"
        f" per token, and {others[-1]} most, {SIGNED.text(order[-1])}. In order of harm: {chain}. {sum(apart)} of"
        f" {counted(len(steps), 'step')} are distinguished (<, corrected for {len(steps)} comparisons); where they are"
        " not (≈), the order is inconclusive."
    )
    known = any(apart) if all(step is not None and step.low is not None for step in steps) else None
    return _finding("Which change hurts least?", answer, known)


def _on_tasks(data: ReportData, rows: Rows, strategy: str) -> dict[str, Rows]:
    by_task = {task: rows.where(task=task, condition=strategy) for task in data.named_tasks}
    return {task: own for task, own in by_task.items() if own}


def _order_by_task(data: ReportData, rows: Rows, strategy: str | None) -> Finding | None:
    tasks = _on_tasks(data, rows, strategy) if strategy else {}
    means = {row.task: row for own in tasks.values() for row in own.where(seed=None)}
    gap = next(iter(_compared(data, TASK_GAP, condition=strategy)), None)
    if strategy is None or gap is None or not {gap.task, gap.against} <= set(means):
        return None
    most, least, pairs = means[gap.task], means[str(gap.against)], math.comb(len(means), 2)
    corrected = f" (corrected for picking the extreme pair of {pairs})." if pairs > 1 else "."
    answer = (
        f"{'Yes' if excludes_zero(gap) else 'Inconclusive'}. With {most.amount:g} layers under {label(strategy)},"
        f" {most.task} loses {SIGNED.text(most)} nats per token and {least.task} {SIGNED.text(least)}; they differ by"
        f" {SIGNED.text(gap)}{corrected}"
    )
    question = "Does order matter more for some tasks than for others?"
    return _finding(question, answer, None if gap.low is None else excludes_zero(gap))


def _order_or_absence(data: ReportData, rows: Rows, strategy: str | None) -> Finding | None:
    gaps = _compared(data, DIFFERENCE, task=data.named_tasks, against=ABSENCE, condition=strategy).along("task")
    judged = {str(task): gap for task, gap in gaps.items() if gap.low is not None}
    if strategy is None or not judged:
        return None
    groups = {
        "costs more on": [task for task, gap in judged.items() if excludes_zero(gap) and gap.value > 0.0],
        "costs less on": [task for task, gap in judged.items() if excludes_zero(gap) and gap.value < 0.0],
        "is inconclusive on": [task for task, gap in judged.items() if not excludes_zero(gap)],
    }
    spread = "; it ".join(f"{words} {_spread(judged, tasks)}" for words, tasks in groups.items() if tasks)
    answer = (
        f"Running {rows[0].amount:g} layers under {label(strategy)} instead of skipping them {spread} nats per token."
        f" Documents and draws are resampled; intervals are corrected over {counted(len(gaps), 'task')}."
    )
    return _finding("Is a wrong order worse than no layers?", answer, any(map(excludes_zero, judged.values())))


def _spread(gaps: dict[str, Score], tasks: list[str]) -> str:
    shown = {task: f"{task} {SIGNED.text(gaps[task])}" for task in tasks}
    if len(tasks) <= 2:
        return " and ".join(shown.values())
    first, last = (shown[pick(tasks, key=lambda task: gaps[task].value)] for pick in (min, max))
    return f"{'all ' if len(tasks) == len(gaps) else ''}{len(tasks)} tasks, from {first} to {last}"


def fragile(data: ReportData, strategy: str | None = None) -> dict[str, Fact]:
    return {name: Fact(row, FASTER) for name, row in fragility(data, strategy).items()}


def faster(facts: dict[str, Fact]) -> list[str]:
    return [name for name, fact in facts.items() if fact.position == "above"]


def _fragile(data: ReportData) -> Finding | None:
    facts = fragile(data)
    if len(facts) < 2:
        return None
    fallen, alike = faster(facts), {fact.position for fact in facts.values()} == {"within"}
    begins = f"{listed(fallen)}. " if fallen else "Inconclusive. "
    under = {strategy: faster(fragile(data, strategy)) for strategy in data.strategies}
    phrases = [f"{label(strategy)} ({listed(names)})" for strategy, names in under.items() if names]
    alone = f" Under one strategy alone, corrected over them as well: {listed(phrases)}." if phrases else ""
    answer = (
        f"{'None: each falls as the others do, within a quarter. ' if alike else begins}Over all windows and"
        f" strategies, in times the mean fall of the others:"
        f" {', '.join(f'{name} {fact:factor}' for name, fact in facts.items())} (corrected over {len(facts)}"
        f" benchmarks).{alone}"
    )
    return _finding("Which benchmark falls faster than the others?", answer, bool(fallen) or alike)


def _loops(data: ReportData) -> Finding | None:
    slope, relative, nats = (over_windows(data, metric) for metric in ("slope", "gain:loops", "gain-loops"))
    if slope is None or relative is None or nats is None:
        return None
    bounds = span(relative)
    position: Position = "open" if bounds is None else bounds.position(ALIKE)
    answer = (
        f"{_LOOPS[position]} Over {counted(len(by_window(data, 'gain-loops')), 'window')}, on the half of the text that"
        f" did not choose them, the best gain in one pass costs {SIGNED.text(nats)} nats per token more than the best"
        f" number of loops, {SIGNED.text(relative)} {OF_COSTS}. A layer more in parallel takes {SIGNED.text(slope)}"
        " loops more."
    )
    state = settle(None if bounds is None else position != "open")
    return Finding("Is a loop of parallel layers more than a gain?", answer, state)


_LOOPS: dict[Position, str] = {
    "above": "Yes.",
    "within": "No: a gain does as well.",
    "below": "No: a gain does better.",
    "open": "Inconclusive.",
}


def _zones(data: ReportData) -> Finding | None:
    own = trained_zones(data)
    if own is None:
        return None
    one = len(own.ranges) == 1
    undivided = own.by_margin or f"No border between hidden states 1–{own.states} beats the random-walk null."
    answer = (
        f"No division is shown. {undivided}"
        if one
        else f"{counted(len(own.ranges), 'zone')}: states {own.in_words}. At equal distance the states across the"
        f" {'border' if len(own.contrasts) == 1 else 'borders'} are less alike than those inside by"
        f" {own.borders_in_words} of cosine. {own.by_margin}"
    )
    clear = not one and all(score.low is not None and score.low > 0.0 for score in own.contrasts)
    return Finding("Into how many zones does the depth fall?", answer.rstrip(), settle(clear))


def _sink(data: ReportData) -> Finding | None:
    """Judge whether the clearest zone keeps its contrast without the sink tokens, by the share that is left.

    Return None if it is no clearer than between tokens of different documents.
    """
    names = ("cosine", "cosine_no_sink", "cosine_null")
    with_sink, without, null = (Runs(values) if (values := matrix(data, name)) else None for name in names)
    zone = with_sink.clearest() if with_sink else None
    if zone is None or without is None or zone.contrast <= 0.0:
        return None
    question, run = "Do the similarity zones survive without the sink token?", (zone.first, zone.last)
    whole_bounds, left_bounds = (Runs.bounds(data, name, *run) for name in names[:2])
    if whole_bounds is None or left_bounds is None:
        return Finding(question, BARE)
    left, apart = without.contrast(*run), null.contrast(*run) if null else 0.0
    if whole_bounds[0] <= apart:
        return None
    state, words = _survival(left / zone.contrast, whole_bounds, left_bounds)
    beside = f"; between tokens of different documents it is {tidy(apart)}" if null else ""
    answer = (
        f"{words}. Of hidden states 1–{without.size - 1} the run {zone.first}–{zone.last} is the clearest zone; its"
        f" cosine contrast with the others is {between(zone.contrast, *whole_bounds)} with the sink token and"
        f" {between(left, *left_bounds)} without, {percent(left / zone.contrast)} of it{beside}. The sink token is one,"
        " mostly the first, whose state is huge and the same in all layers."
    )
    return Finding(question, answer, state)


def _survival(share: float, whole: tuple[float, float], left: tuple[float, float]) -> tuple[Verdict | None, str]:
    words = _survives(share)
    known = whole[0] > 0.0 and {_survives(left[0] / whole[1]), _survives(left[1] / whole[0])} == {words}
    return settle(known), words if known else "Inconclusive"


def _survives(share: float) -> str:
    return "They survive" if share >= SURVIVES else "They fade" if share >= FADES else "They mostly vanish"
