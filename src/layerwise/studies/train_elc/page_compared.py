"""Sections of the page that compare variants with the backbone, the model without layer weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.figures.palette import assign_colors
from layerwise.page.finding import Effect, Finding, effect_to_verdict, judge_effect, to_verdict
from layerwise.page.formatting import (
    NUMBER,
    Format,
    format_adjusted_p,
    format_count,
    format_fixed,
    format_p,
    is_resolved,
    join_words,
    to_sentence,
)
from layerwise.page.kind import Column, Pivot, Section, SideBySide, Text
from layerwise.page.marks import Dots
from layerwise.page.trained import find_baseline, format_suite, list_seeds, list_variants
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

TERMS = {vocab.TOKENS: "at equal tokens", vocab.SECONDS: "at equal seconds"}
WEIGHTS_IN = {
    vocab.BACKBONE: "neither",
    "elc-kept": "pretraining",
    "ltg-rewired": "fine-tuning",
    vocab.LAYER_WEIGHTS: "both",
}
"""Labels of the variants: the phases in which layer weights are trained."""

NATS = Format(axis="nats/token; left is better", unit=" nats/token", signed=True, reference=0.0)
POINTS = Format(axis="points; right is better", scale=100.0, unit=" points", signed=True, reference=0.0)
RATIO = Format(axis="ratio; left is faster", reference=1.0)


def format_task(task: str) -> str:
    """Format the name of a compared task.

    >>> format_task("masked_lm"), format_task("control tasks")
    ('held-out loss', 'control tasks')
    """
    return "held-out loss" if task == vocab.MASKED_LM else format_suite(task)


def choose_format(task: str) -> Format:
    return NATS if task == vocab.MASKED_LM else POINTS


def difference_findings(data: ReportData) -> Iterator[Finding]:
    rows = data.rows.where(measure=vocab.STUDY, metric="difference")
    pairs = dict.fromkeys((row.variant, row.against, row.unit) for row in rows)
    for variant, other, terms in sorted(pairs, key=lambda pair: pair[:2] != (vocab.LAYER_WEIGHTS, vocab.BACKBONE)):
        yield _judge_pair(data, rows.where(variant=variant, against=other, unit=terms))


def _judge_pair(data: ReportData, rows: Rows) -> Finding:
    first = rows[0]
    count = min(len(list_seeds(data, str(variant))) for variant in (first.variant, first.against))
    verdicts = [_describe_effect(data, row) for row in rows]
    shown: dict[str, list[str]] = {verdicts[0]: []}
    undecided = []
    for row, verdict in zip(rows, verdicts, strict=True):
        if row is first or verdict in ("better", "worse"):
            shown.setdefault(verdict, []).append(f"{format_task(row.task)} ({choose_format(row.task).text(row)})")
        else:
            undecided.append(format_task(row.task))
    decided = "; ".join(f"{verdict} in {join_words(tasks)}" for verdict, tasks in shown.items())
    over = f", over {format_count(count, 'seed')}" if count else ""
    others = f" There is no clear difference in {join_words(undecided)}." if undecided else ""
    terms = f" {TERMS[first.unit]}" if first.unit in TERMS else ""
    question = f"Is {first.variant} better than {first.against}{terms}?"
    return Finding(question, f"{to_sentence(f'{decided}{over}')}{others}", effect_to_verdict(_effect(data, first)))


def _effect(data: ReportData, row: Score) -> Effect:
    return judge_effect(row, data.level, more_is_better=row.task != vocab.MASKED_LM)


def _describe_effect(data: ReportData, row: Score) -> str:
    effect = _effect(data, row)
    alone = effect == "open" and row.p is not None and row.p < data.level
    corrected = f" after correction for the number of variants (p {format_adjusted_p(row)})" if alone else ""
    return {"bare": "no interval", "open": "inconclusive"}.get(effect, effect) + corrected


def derive_comparisons(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=vocab.STUDY):
        kind = "nats" if row.task == vocab.MASKED_LM else "points"
        task = " ".join(filter(None, (format_task(row.task), TERMS.get(row.unit or ""))))
        yield replace(row, task=task, variant=f"{row.variant} - {row.against}", against=None, metric=kind)


def _compared_mark(kind: str, show: Format, data: ReportData) -> Dots:
    end = f" - {find_baseline(data)}"

    def slots(names: Sequence[str]) -> Mapping[str, int]:
        colors = assign_colors([*list_variants(data), *(each.removesuffix(end) for each in names)])
        return {name: colors[name.removesuffix(end)] for name in names}

    return Dots(
        name=f"study-{kind}",
        derive=derive_comparisons,
        where={"metric": kind},
        series="variant",
        words=str,
        slots=slots,
        legend="Differences",
        show=show,
    )


def derive_differences(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=vocab.STUDY):
        yield replace(row, variant=f"{row.variant} - {row.against}")


def bias_findings(data: ReportData) -> Iterator[Finding]:
    slopes = data.rows.where(measure=vocab.INITIAL_BIAS, metric="slope")
    known = [slope for slope in slopes if is_resolved(slope, data.level)]
    shown = known or list(slopes)[:1]
    others = [format_task(slope.task) for slope in slopes if slope not in shown]
    if shown:
        clauses = [f"{choose_format(slope.task).text(slope)} in {format_task(slope.task)}" for slope in shown]
        answer = f"Per unit of initial weight, the change is {join_words(clauses)}."
        unclear = f" There is no clear change in {join_words(others)}." if others else ""
        yield Finding(
            "Does the initial weight of the previous layer matter?", f"{answer}{unclear}", to_verdict(bool(known))
        )


def share_findings(data: ReportData) -> Iterator[Finding]:
    for task, rows in data.rows.where(measure=vocab.DATA_SHARE).by("task").items():
        what, show = format_task(task), choose_format(task)
        clauses = [
            f"{show.text(gap)} on {format_fixed(100 * (gap.share or 0.0), 1).removesuffix('.0')} % of the text"
            for gap in rows.where(metric="difference")
        ]
        halving = rows.one(metric="by_halving")
        known = halving is not None and is_resolved(halving, data.level)
        answer = f"With layer weights, the change in {what} is {join_words(clauses)}."
        if halving is not None:
            unclear = "" if known else ", which is inconclusive"
            answer += f" Each halving of the text adds {show.text(halving)}{unclear}."
        yield Finding(f"Do layer weights help more with less text ({what})?", answer, to_verdict(known))


def convergence_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.CONVERGENCE)
    target = run.one(metric="loss", variant=None)
    reach = "" if target is None else f" (validation loss {format_fixed(target.value, 3)} or more)"
    base = find_baseline(data) or "the backbone"
    for cost, ratios in run.where(metric="ratio").by("unit").items():
        sides: dict[bool, list[str]] = {True: [], False: []}
        for ratio in ratios:
            sides[is_resolved(ratio, data.level)].append(f"{ratio.variant} {_format_ratio(ratio)}")
        sentences = [f"Relative to {base}: {', '.join(sides[True])}."] if sides[True] else []
        sentences += [f"Not distinguishable from {base}: {', '.join(sides[False])}."] if sides[False] else []
        question = f"How many {cost} does a variant need to reach a loss that {base} reaches, too{reach}?"
        yield Finding(question, " ".join(sentences), to_verdict(not sides[False]))


def tuning_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.TUNING_CONVERGENCE)
    targets = run.where(metric="score", variant=None)
    task = vocab.ALL if len(targets) > 1 else "".join(targets.axis("task"))
    clear, unclear = [], []
    for variant, when in WEIGHTS_IN.items():
        ratios = run.where(metric="ratio", task=task, variant=variant, against=vocab.BACKBONE)
        if ratios.one(unit=vocab.STEPS) is None:
            continue
        phases = "both phases" if when == "both" else f"{when} only"
        if all(is_resolved(ratio, data.level) for ratio in ratios):
            costs = join_words([f"{_format_ratio(ratio)} {ratio.unit}" for ratio in ratios])
            clear.append(f"takes {costs} with layer weights in {phases}")
        else:
            unclear.append(phases)
    if clear or unclear:
        reached = join_words([f"{row.task} {format_fixed(row.value, 3)}" for row in targets])
        target = f"fine-tuning to a selection score that both models reach (at most {reached})"
        sentences = [f"Compared with a model without layer weights, {target} {join_words(clear)}."] if clear else []
        if unclear:
            what = "In this cost, there" if clear else f"In the cost of {target}, there"
            sentences.append(f"{what} is no clear difference for layer weights in {join_words(unclear, 'or')}.")
        yield Finding("Do layer weights speed up fine-tuning?", " ".join(sentences), to_verdict(not unclear))


def _format_ratio(ratio: Score) -> str:
    p = "" if ratio.p_adjusted is None else f" (p {format_adjusted_p(ratio)})"
    return f"×{NUMBER.text(ratio)}{p}"


def dynamics_findings(data: ReportData) -> Iterator[Finding]:
    yield from bias_findings(data)
    yield from share_findings(data)
    yield from convergence_findings(data)
    yield from tuning_findings(data)


def _cost_table(name: str, measure: str) -> Pivot:
    def costs(data: ReportData) -> Iterable[Score]:
        return (row for row in data.rows.where(measure=measure) if row.variant is not None)

    columns = (
        column
        for cost in (vocab.STEPS, vocab.SECONDS)
        for column in (
            Column(cost, "cost", where={"unit": cost}),
            Column(f"× {cost}", "ratio", where={"unit": cost}),
        )
    )
    rows = {"task": "task", "variant": "variant"} if measure == vocab.TUNING_CONVERGENCE else {"variant": "variant"}
    return Pivot(name=name, derive=costs, rows=rows, columns=tuple(columns), folded=True)


COMPARED = Section(
    anchor=vocab.STUDY,
    parts=lambda data: (
        SideBySide((_compared_mark("nats", NATS, data), _compared_mark("points", POINTS, data))),
        Text(difference_findings, note="terms"),
        Pivot(
            name="differences",
            derive=derive_differences,
            folded=True,
            rows={"variants": "variant", "quantity": "task", "compared": "unit"},
            words=lambda name: TERMS.get(name) or format_task(name),
            columns=(
                Column("difference", show=lambda row: choose_format(row.task).text(row)),
                Column("p", show=format_p),
            ),
        ),
    ),
)

DYNAMICS = Section(
    anchor="dynamics",
    needs={"measure": (vocab.INITIAL_BIAS, vocab.DATA_SHARE, vocab.CONVERGENCE, vocab.TUNING_CONVERGENCE)},
    parts=(
        Dots(
            name="convergence",
            y="unit",
            where={"measure": vocab.CONVERGENCE, "metric": "ratio"},
            series="variant",
            known_series=list_variants,
            words=str,
            show=RATIO,
        ),
        Text(dynamics_findings),
        _cost_table("pretraining-costs", vocab.CONVERGENCE),
        _cost_table("tuning-costs", vocab.TUNING_CONVERGENCE),
    ),
)
