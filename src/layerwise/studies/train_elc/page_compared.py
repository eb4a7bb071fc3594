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
    several = len(rows) > 1
    differences = "; ".join(
        f"{format_task(row.task)} {choose_format(row.task).text(row)}{f', {verdict}' if several else ''}"
        for row, verdict in zip(rows, verdicts, strict=True)
    )
    over = f" ({format_count(count, 'seed')})." if count else "."
    terms = f" {TERMS[first.unit]}" if first.unit in TERMS else ""
    question = f"Is {first.variant} better than {first.against}{terms}?"
    answer = to_sentence(f"{verdicts[0]}: {differences}{over}")
    return Finding(question, answer, effect_to_verdict(_effect(data, first)))


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
    clauses, is_any_known = [], False
    for slope in data.rows.where(measure=vocab.INITIAL_BIAS, metric="slope"):
        is_known = is_resolved(slope, data.level)
        is_any_known = is_any_known or is_known
        show = choose_format(slope.task)
        text = show.replace(unit=f"{show.unit} per unit").text(slope)
        clauses.append(f"{format_task(slope.task)} {text}{'' if is_known else ', inconclusive'}")
    if clauses:
        yield Finding(
            "Does the initial weight of the previous layer matter?", f"{'; '.join(clauses)}.", to_verdict(is_any_known)
        )


def share_findings(data: ReportData) -> Iterator[Finding]:
    for task, rows in data.rows.where(measure=vocab.DATA_SHARE).by("task").items():
        what, show = format_task(task), choose_format(task)
        clauses = [
            f"on {format_fixed(100 * (gap.share or 0.0), 1).removesuffix('.0')} % of the text {show.text(gap)}"
            for gap in rows.where(metric="difference")
        ]
        halving = rows.one(metric="by_halving")
        known = halving is not None and is_resolved(halving, data.level)
        if halving is not None:
            clauses.append(f"each halving adds {show.text(halving)}{'' if known else ', inconclusive'}")
        question = f"Do layer weights help more with less text ({what})?"
        yield Finding(
            question, f"{what} with layer weights minus that without: {'; '.join(clauses)}.", to_verdict(known)
        )


def convergence_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.CONVERGENCE)
    target = run.one(metric="loss", variant=None)
    reach = "" if target is None else f" (validation loss at least {format_fixed(target.value, 3)})"
    for cost, ratios in run.where(metric="ratio").by("unit").items():
        words = [_describe_ratio(data, ratio) for ratio in ratios]
        shown = "; ".join(f"{ratio.variant} {text}" for ratio, (text, _) in zip(ratios, words, strict=True))
        question = f"How many {cost} does it take to reach a loss that a variant and the backbone both reach{reach}?"
        answer = f"Relative to {find_baseline(data) or 'the backbone'}: {shown}."
        yield Finding(question, answer, to_verdict(all(known for _, known in words)))


def tuning_findings(data: ReportData) -> Iterator[Finding]:
    run = data.rows.where(measure=vocab.TUNING_CONVERGENCE)
    targets = run.where(metric="score", variant=None)
    task = vocab.ALL if len(targets) > 1 else "".join(targets.axis("task"))
    clauses, is_settled = [], []
    for variant, when in WEIGHTS_IN.items():
        ratios = run.where(metric="ratio", task=task, variant=variant, against=vocab.BACKBONE)
        if ratios.one(unit=vocab.STEPS) is None:
            continue
        words = [_describe_ratio(data, ratio) for ratio in ratios]
        costs = ", ".join(f"{ratio.unit} {text}" for ratio, (text, _) in zip(ratios, words, strict=True))
        clauses.append(f"weights in {when if when == 'both' else f'{when} only'}: {costs}")
        is_settled += [known for _, known in words]
    if clauses:
        reached = join_words([f"{row.task} {format_fixed(row.value, 3)}" for row in targets])
        answer = (
            f"Compared with weights in neither, to the selection score that both reach (at most {reached}): "
            f"{'; '.join(clauses)}."
        )
        yield Finding("Do layer weights speed up fine-tuning?", answer, to_verdict(all(is_settled)))


def _describe_ratio(data: ReportData, ratio: Score) -> tuple[str, bool]:
    known = is_resolved(ratio, data.level)
    p = "" if ratio.p_adjusted is None else f", p {format_adjusted_p(ratio)}"
    return f"×{NUMBER.text(ratio)}" + ("" if known else f" (not distinguishable{p})"), known


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
