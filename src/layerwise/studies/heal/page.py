"""Healing: what a plan loses, what training brings back, and what the same training gives the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from layerwise.page.data import ReportData
from layerwise.page.finding import judge_effect
from layerwise.page.formatting import (
    COUNT,
    DIFFERENCE,
    NATS,
    NUMBER,
    PERCENT,
    SIGNED,
    format_adjusted_p,
    format_count,
    format_mde,
    format_value,
    join_words,
)
from layerwise.page.kind import Column, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Dots, Lines
from layerwise.page.trained import average_seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SLOTS = (0, 1, 2, 3, 7, 8, 9, 10, 11)
CONTROLS = {vocab.PRUNED: 5, vocab.WHOLE: 4, vocab.RANDOM: 6}
ABOVE = DIFFERENCE.replace(axis="nats/token above the untouched whole model")
SHARE = PERCENT.replace(unit="")
POINTS = SHARE.replace(signed=True)
COSTS = {
    "steps": "steps",
    "tokens": "tokens",
    "learning_weights": "weights that learn",
    "seconds": "seconds",
    "peak_bytes": "peak bytes",
}


def arms(data: ReportData) -> tuple[str, ...]:
    trained = data.rows.where(measure=vocab.HEALING, metric="above_whole").axis("arm")
    return tuple(arm for arm in trained if not arm.startswith(vocab.SKIP))


def healings(data: ReportData) -> list[str]:
    return [arm for arm in arms(data) if arm not in (vocab.WHOLE, vocab.RANDOM)]


def above_whole(data: ReportData) -> Iterator[Score]:
    run = data.rows.where(measure=vocab.HEALING, condition=None)
    yield from run.where(arm=vocab.PRUNED, metric="lost")
    shown = arms(data)
    yield from run.where(arm=shown, metric="above_whole")
    for row in run.where(arm=shown, metric="nll", seed=PRESENT):
        whole = run.value(arm=vocab.UNTOUCHED, metric="nll", task=row.task)
        if whole is not None:
            yield replace(row, metric="above_whole", value=row.value - whole)


def models(data: ReportData, measure: str = vocab.HEALING) -> Rows:
    run = data.rows.where(measure=measure, seed=None, condition=None)
    return Rows(row for arm in (vocab.UNTOUCHED, vocab.PRUNED, *arms(data)) for row in run.where(arm=arm))


def answers_by_window(data: ReportData) -> Iterator[Score]:
    """Return accuracy by the number of middle layers skipped, before and after healing, and by guessing.

    At 0 are the original model and the control, the full model trained as long.
    """
    run = data.rows.where(measure=vocab.HEALING_TASK, metric="accuracy", seed=None)
    skipping = run.where(affected=PRESENT)
    for task in skipping.axis("task"):
        for arm, condition in ((vocab.UNTOUCHED, vocab.BEFORE), (vocab.WHOLE, vocab.HEALED)):
            row = run.one(arm=arm, task=task, against=None)
            if row is not None:
                yield replace(row, condition=condition, affected=0)
        yield from sorted(skipping.where(task=task), key=_affected)
        guessed = run.one(against=vocab.CHANCE, task=task)
        if guessed is not None:
            yield from (replace(guessed, affected=count) for count in (0, *skipping.axis("affected")))


def mean_costs(data: ReportData) -> Iterator[Score]:
    costs = data.rows.where(measure=vocab.HEALING_COST)
    for arm in arms(data):
        for rows in costs.where(arm=arm, metric=tuple(COSTS)).by("metric").values():
            yield average_seeds(rows)


def findings(data: ReportData) -> Iterator[str]:
    """What was lost and came back, who did better, where healing stops to make up, and which sweeps are not tuned."""
    run = data.rows.where(measure=vocab.HEALING, task=vocab.ALL, seed=None, condition=None)
    lost = run.one(arm=vocab.PRUNED, metric="lost")
    if lost is not None:
        yield f"The plan loses {NUMBER.text(lost)} nats/token."
    for arm in healings(data):
        net, share = (run.one(arm=arm, metric=metric) for metric in ("net_share", "regained_share"))
        if lost is None:
            gain = run.one(arm=arm, metric="regained")
            yield f"{arm} gains {SIGNED.text(gain)} nats/token over the untouched model."
            continue
        if share is None:
            yield f"{arm}: nothing was resolvably lost, so there is no share of it to regain."
            continue
        text = f"{arm} regains {SHARE.text(share)} % of it"
        yield text + ("." if net is None else f", {SHARE.text(net)} % net of what the whole model gains.")
    yield from _sources(data)
    yield from map(_contrast, data.rows.where(measure=vocab.HEALING_CONTRAST))
    yield from _windows(data.rows.where(measure=vocab.HEALING_WINDOW, condition=vocab.HEALED))
    yield from _benchmarks(data.rows.where(measure=vocab.HEALING_TASK, metric="difference", seed=None), healings(data))
    rates = data.rows.where(measure=vocab.HEALING_RATE)
    for row in rates.where(metric="chosen_at_end"):
        if len(rates.where(arm=row.arm, metric="validation_nll")) > 1:
            rate = f"The best learning rate of {row.arm}, {row.learning_rate:g},"
            yield f"{rate} is at the end of those tried: it is not tuned."


def _sources(data: ReportData) -> Iterator[str]:
    run = data.rows.where(measure=vocab.HEALING, metric="nll", task=vocab.ALL)
    seeds, documents = len(run.axis("seed")), max(run.axis("documents"), default=0)
    if not seeds or not documents:
        return
    few = vocab.resampling_unit(documents) == "window"
    units = f"the windows of {format_count(documents, 'document')}" if few else format_count(documents, "document")
    yield (
        f"Intervals of what was trained are over {seeds} seeds and {units}."
        if seeds > 1
        else f"One seed was trained: the intervals are over {units} alone, and another seed may differ by more."
    )


def _contrast(row: Score) -> str:
    value = f"{SIGNED.text(row)} nats/token"
    who = "a random plan healed as long" if row.against == vocab.RANDOM else row.against
    effect = judge_effect(row, 0.05)
    if effect in ("better", "worse"):
        return f"{row.arm} is {effect} than {who}: {value}, adjusted p {format_adjusted_p(row)}."
    seeds = f"{row.documents} seed{'s' * (row.documents != 1)}"
    above = "" if row.mde is None else f"; above {format_mde(row)} it would have been seen"
    return f"{row.arm} against {who}: inconclusive in {seeds}, {value}{above}."


def _windows(run: Rows) -> Iterator[str]:
    against = vocab.WHOLE if vocab.WHOLE in run.axis("against") else None
    healed = sorted((row for row in run.where(metric="above_whole", against=against) if row.affected), key=_affected)
    if not healed:
        return
    whole = "the whole model trained as long" if against else "the untouched whole model"
    crossing = run.one(metric="layers", against=against)
    if crossing is None:
        most = max(row.affected or 0 for row in healed)
        yield f"In some seed a healed model is no worse than {whole} at all of up to {most:g} layers skipped."
    else:
        yield f"A healed model is no worse than {whole} up to {NUMBER.text(crossing)} middle layers skipped."
    control = "" if against else " What the text alone gives is not taken off."
    yield f"Beside {whole} {_pattern(healed)}.{control}"


def _benchmarks(differences: Rows, arms: Sequence[str]) -> Iterator[str]:
    beside = {vocab.UNTOUCHED: "the untouched model", vocab.WHOLE: "the whole model trained as long"}
    for task in differences.axis("task"):
        of_task = differences.where(task=task)
        for row in of_task.where(arm=tuple(arms), against=tuple(beside)):
            text = f"{POINTS.text(row)} points of accuracy beside {beside[str(row.against)]}"
            yield f"On {task} {row.arm} has {text}{', inconclusive' if judge_effect(row, 0.05) == 'open' else ''}."
        healed = of_task.where(condition=vocab.HEALED)
        against = vocab.WHOLE if vocab.WHOLE in healed.axis("against") else vocab.UNTOUCHED
        if healed:
            rows = sorted(healed.where(against=against), key=_affected)
            yield f"On {task}, beside {beside[against]}, {_pattern(rows, more_is_better=True)}."


def _pattern(healed: Sequence[Score], *, more_is_better: bool = False) -> str:
    effects = {row.affected: judge_effect(row, 0.05, more_is_better=more_is_better) for row in healed}
    helped, hurt = ([row for row in healed if effects[row.affected] == each] for each in ("better", "worse"))
    unknown = [row for row in healed if row not in helped and row not in hurt]
    sides = (("helps", helped), ("hurts", hurt), ("is inconclusive", unknown))
    clauses = [f"skipping {join_words([f'{row.affected:g}' for row in rows])} {what}" for what, rows in sides if rows]
    ordered = helped and hurt and not unknown and _affected(helped[-1]) < _affected(hurt[0])
    return f"{join_words(clauses)}{': few help, many hurt' if ordered else ''}"


def _affected(row: Score) -> int:
    return row.affected or 0


def _slots(names: Sequence[str]) -> Mapping[str, int]:
    own = dict(zip((name for name in names if name not in CONTROLS), SLOTS, strict=False))
    return {name: {**own, **CONTROLS}[name] for name in names}


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(arms(data)):,}", "arms"
    run = data.rows.where(measure=vocab.HEALING, task=vocab.ALL, seed=None, arm=tuple(healings(data))[:1])
    share = run.one(metric="net_share") or run.one(metric="regained_share")
    if share is not None:
        yield PERCENT.number(share.value), "regained"


def _chosen(rows: Rows) -> str:
    return "chosen" if {"chosen", "chosen_at_end"} & set(rows.axis("metric")) else ""


HEALING_KIND = Kind(
    name="healing",
    measures=(vocab.HEALING,),
    tiles=_tiles,
    answer=join_statements(findings, 2),
    sections=(
        Section(
            anchor=vocab.HEALING,
            parts=(
                Dots(
                    name="healing-nats",
                    derive=above_whole,
                    series="arm",
                    slots=_slots,
                    legend="Models",
                    words=str,
                    show=ABOVE,
                    from_zero=True,
                ),
                Text(findings),
                Pivot(
                    name="by-task",
                    derive=models,
                    rows={"task": "task", "model": "arm"},
                    columns=(
                        Column("nats/token", "nll", NATS),
                        Column("right (%)", "accuracy", SHARE.replace(bounds=False)),
                        Column("above the whole model", ("above_whole", "lost"), ABOVE),
                        Column("regained (%)", "regained_share", SHARE),
                        Column("net (%)", "net_share", SHARE),
                    ),
                ),
                Lines(
                    name="healing-windows",
                    x="affected",
                    series="condition",
                    where={"measure": vocab.HEALING_WINDOW, "metric": "above_whole", "against": None},
                    slots={vocab.BEFORE: 5, vocab.HEALED: 0},
                    across="middle layers skipped",
                    at="{} layers skipped",
                    show=ABOVE.replace(axis="nats/token above the whole model"),
                    height=400,
                    named=True,
                ),
                Pivot(
                    name="benchmarks",
                    derive=partial(models, measure=vocab.HEALING_TASK),
                    rows={"benchmark": "task", "model": "arm"},
                    columns=(
                        Column("right (%)", "accuracy", SHARE),
                        Column("beside the untouched model", "difference", POINTS, {"against": vocab.UNTOUCHED}),
                        Column("beside the control", "difference", POINTS, {"against": vocab.WHOLE}),
                    ),
                ),
                Pivot(
                    name="benchmarks-by-window",
                    derive=answers_by_window,
                    where={"against": None},
                    across="condition",
                    rows={"benchmark": "task", "skipped": "affected"},
                    show=SHARE,
                    words=format_value,
                    folded=True,
                ),
                Lines(
                    name="healing-benchmarks",
                    x="affected",
                    series="condition",
                    derive=answers_by_window,
                    slots={vocab.BEFORE: 5, vocab.HEALED: 0},
                    choices={"benchmark": "task"},
                    nulls=lambda name: "guessing",
                    across="middle layers skipped",
                    at="{} layers skipped",
                    show=PERCENT.replace(axis="right answers (%)"),
                    height=400,
                    named=True,
                ),
                Pivot(
                    name="learning-rates",
                    where={"measure": vocab.HEALING_RATE},
                    folded=True,
                    terminal=False,
                    rows={"arm": "arm", "learning rate": "learning_rate"},
                    words=format_value,
                    columns=(
                        Column("validation loss", "validation_nll", NATS),
                        Column("", text=_chosen),
                    ),
                ),
                Pivot(
                    name="cost",
                    derive=mean_costs,
                    folded=True,
                    terminal=False,
                    rows={"arm": "arm"},
                    columns=tuple(Column(head, metric, COUNT) for metric, head in COSTS.items()),
                ),
            ),
        ),
    ),
)
