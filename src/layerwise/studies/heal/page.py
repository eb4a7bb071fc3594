"""The page of `layerwise heal`."""

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
    lookup_format,
)
from layerwise.page.kind import Column, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Dots, Lines
from layerwise.page.trained import average_seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SLOTS = (0, 1, 2, 3, 7, 8, 9, 10, 11)
CONTROLS = {vocab.PRUNED: 5, vocab.IDENTITY_CONTROL: 4, vocab.RANDOM: 6}
LABELS = {vocab.ORIGINAL: "original model", vocab.IDENTITY_CONTROL: "control", vocab.RANDOM: "random plans"}
REFERENCES = {vocab.ORIGINAL: "the original model", vocab.IDENTITY_CONTROL: "the control"}
ABOVE = DIFFERENCE.replace(axis="nats/token above the original model")
SHARE = PERCENT.replace(unit="")
POINTS = SHARE.replace(signed=True)
COSTS = {
    "steps": "steps",
    "tokens": "tokens",
    "learning_weights": "trainable weights",
    "seconds": "seconds",
    "peak_bytes": "peak bytes",
}


def list_trained(data: ReportData) -> tuple[str, ...]:
    trained = data.rows.where(measure=vocab.HEALING, metric="above_original").axis("variant")
    return tuple(name for name in trained if not name.startswith(vocab.SKIP))


def list_variants(data: ReportData) -> list[str]:
    return [name for name in list_trained(data) if name not in (vocab.IDENTITY_CONTROL, vocab.RANDOM)]


def derive_losses(data: ReportData) -> Iterator[Score]:
    run = data.rows.where(measure=vocab.HEALING, condition=None)
    yield from run.where(variant=vocab.PRUNED, metric="lost")
    trained = list_trained(data)
    yield from run.where(variant=trained, metric="above_original")
    for row in run.where(variant=trained, metric="nll", seed=PRESENT):
        original = run.value(variant=vocab.ORIGINAL, metric="nll", task=row.task)
        if original is not None:
            yield replace(row, metric="above_original", value=row.value - original)


def derive_models(data: ReportData, measure: str = vocab.HEALING) -> Rows:
    run = data.rows.where(measure=measure, seed=None, condition=None)
    return Rows(row for name in (vocab.ORIGINAL, vocab.PRUNED, *list_trained(data)) for row in run.where(variant=name))


def derive_window_accuracy(data: ReportData) -> Iterator[Score]:
    """Yield the accuracy for each number of skipped middle layers, before and after healing, and the chance accuracy.

    The values at 0 are those of the original model and the control.
    """
    run = data.rows.where(measure=vocab.HEALING_TASK, metric="accuracy", seed=None)
    skipping = run.where(affected=PRESENT)
    for task in skipping.axis("task"):
        for variant, condition in ((vocab.ORIGINAL, vocab.BEFORE), (vocab.IDENTITY_CONTROL, vocab.HEALED)):
            row = run.one(variant=variant, task=task, against=None)
            if row is not None:
                yield replace(row, condition=condition, affected=0)
        yield from sorted(skipping.where(task=task), key=_affected)
        guessed = run.one(against=vocab.CHANCE, task=task)
        if guessed is not None:
            yield from (replace(guessed, affected=count) for count in (0, *skipping.axis("affected")))


def derive_costs(data: ReportData) -> Iterator[Score]:
    costs = data.rows.where(measure=vocab.HEALING_COST)
    for name in list_trained(data):
        for rows in costs.where(variant=name, metric=tuple(COSTS)).by("metric").values():
            yield average_seeds(rows)


def write_findings(data: ReportData) -> Iterator[str]:
    run = data.rows.where(measure=vocab.HEALING, task=vocab.ALL, seed=None, condition=None)
    lost = run.one(variant=vocab.PRUNED, metric="lost")
    if lost is not None:
        yield f"The plan increases the loss by {NUMBER.text(lost)} nats/token."
    for variant in list_variants(data):
        net, share = (run.one(variant=variant, metric=metric) for metric in ("net_share", "regained_share"))
        if lost is None:
            gain = run.one(variant=variant, metric="regained")
            yield f"{variant} gains {SIGNED.text(gain)} nats/token over the original model."
            continue
        if share is None:
            yield f"The loss increase of the plan is inconclusive, so the share that {variant} recovers is not given."
            continue
        text = f"{variant} recovers {SHARE.text(share)} % of the loss increase"
        yield text + ("." if net is None else f", or {SHARE.text(net)} % if the gain of the control is subtracted.")
    yield from _describe_intervals(data)
    yield from map(_describe_contrast, data.rows.where(measure=vocab.HEALING_CONTRAST))
    yield from _describe_windows(data.rows.where(measure=vocab.HEALING_WINDOW, condition=vocab.HEALED))
    differences = data.rows.where(measure=vocab.HEALING_TASK, metric="difference", seed=None)
    yield from _describe_benchmarks(differences, list_variants(data))
    rates = data.rows.where(measure=vocab.HEALING_RATE)
    for row in rates.where(metric="chosen_at_end"):
        if len(rates.where(variant=row.variant, metric="validation_nll")) > 1:
            rate = f"{row.learning_rate:g}"
            yield f"The learning rate of {row.variant} is not tuned: the best one, {rate}, is at the edge of the grid."


def _describe_intervals(data: ReportData) -> Iterator[str]:
    run = data.rows.where(measure=vocab.HEALING, metric="nll", task=vocab.ALL)
    seeds, documents = len(run.axis("seed")), max(run.axis("documents"), default=0)
    if not seeds or not documents:
        return
    few = vocab.resampling_unit(documents) == "window"
    units = f"the text windows of {format_count(documents, 'document')}" if few else format_count(documents, "document")
    yield (
        f"Intervals of trained models are over {seeds} seeds and {units}."
        if seeds > 1
        else f"With one seed, intervals are over {units} only. Another seed may differ by more."
    )


def _describe_contrast(row: Score) -> str:
    value = f"{SIGNED.text(row)} nats/token"
    other = "random plans" if row.against == vocab.RANDOM else row.against
    effect = judge_effect(row, 0.05)
    if effect in ("better", "worse"):
        return f"{row.variant} is {effect} than {other}: {value}, adjusted p {format_adjusted_p(row)}."
    seeds = f"{row.documents} seed{'s' * (row.documents != 1)}"
    detected = "" if row.mde is None else f" (minimum detectable effect {format_mde(row)})"
    return f"{row.variant} differs from {other} by {value}, which is inconclusive with {seeds}{detected}."


def _describe_windows(run: Rows) -> Iterator[str]:
    against = vocab.IDENTITY_CONTROL if vocab.IDENTITY_CONTROL in run.axis("against") else None
    healed = sorted((row for row in run.where(metric="above_original", against=against) if row.affected), key=_affected)
    if not healed:
        return
    reference = REFERENCES[against or vocab.ORIGINAL]
    crossing = run.one(metric="layers", against=against)
    if crossing is None:
        most = max(row.affected or 0 for row in healed)
        yield (
            f"With at least one seed, a healed model is no worse than {reference} for any number of skipped layers up"
            f" to {most:g}."
        )
    else:
        yield (
            f"By interpolation, a healed model is no worse than {reference} up to {NUMBER.text(crossing)} skipped"
            " middle"
            " layers."
        )
    caveat = "" if against else " This includes the gain from training on this text."
    yield f"Compared with {reference}, {_describe_pattern(healed)}.{caveat}"


def _describe_benchmarks(differences: Rows, variants: Sequence[str]) -> Iterator[str]:
    for task in differences.axis("task"):
        of_task = differences.where(task=task)
        for row in of_task.where(variant=tuple(variants), against=tuple(REFERENCES)):
            text = f"{POINTS.text(row)} points of accuracy compared with {REFERENCES[str(row.against)]}"
            yield f"On {task} {row.variant} has {text}{' (inconclusive)' if judge_effect(row, 0.05) == 'open' else ''}."
        healed = of_task.where(condition=vocab.HEALED)
        against = vocab.IDENTITY_CONTROL if vocab.IDENTITY_CONTROL in healed.axis("against") else vocab.ORIGINAL
        if healed:
            rows = sorted(healed.where(against=against), key=_affected)
            yield f"On {task}, compared with {REFERENCES[against]}, {_describe_pattern(rows, more_is_better=True)}."


def _describe_pattern(healed: Sequence[Score], *, more_is_better: bool = False) -> str:
    effects = {row.affected: judge_effect(row, 0.05, more_is_better=more_is_better) for row in healed}
    helped, hurt = ([row for row in healed if effects[row.affected] == each] for each in ("better", "worse"))
    unclear = [row for row in healed if row not in helped and row not in hurt]
    sides = (("helps", helped), ("hurts", hurt), ("is inconclusive", unclear))
    clauses = [f"skipping {_count_layers(rows)} {what}" for what, rows in sides if rows]
    ordered = helped and hurt and not unclear and _affected(helped[-1]) < _affected(hurt[0])
    return f"{join_words(clauses)}{', so only a few layers can be skipped' if ordered else ''}"


def _count_layers(rows: Sequence[Score]) -> str:
    counts = join_words([f"{row.affected:g}" for row in rows])
    return f"{counts} layer{'s' * (counts != '1')}"


def _affected(row: Score) -> int:
    return row.affected or 0


def _slots(names: Sequence[str]) -> Mapping[str, int]:
    slots = dict(zip((name for name in names if name not in CONTROLS), SLOTS, strict=False))
    return {name: {**slots, **CONTROLS}[name] for name in names}


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(list_trained(data)):,}", "trained variants"
    run = data.rows.where(measure=vocab.HEALING, task=vocab.ALL, seed=None, variant=tuple(list_variants(data))[:1])
    for metric, words in (("net_share", "recovered, net of the control"), ("regained_share", "recovered")):
        share = run.one(metric=metric)
        if share is not None:
            yield PERCENT.number(share.value), words
            return


def _mark_best(rows: Rows) -> str:
    return "best" if {"chosen", "chosen_at_end"} & set(rows.axis("metric")) else ""


HEALING_KIND = Kind(
    name="healing",
    measures=(vocab.HEALING,),
    tiles=_tiles,
    answer=join_statements(write_findings, 2),
    sections=(
        Section(
            anchor=vocab.HEALING,
            parts=(
                Dots(
                    name="healing-nats",
                    derive=derive_losses,
                    series="variant",
                    slots=_slots,
                    legend="Models",
                    words=lookup_format(LABELS),
                    show=ABOVE,
                    from_zero=True,
                ),
                Text(write_findings),
                Pivot(
                    name="by-task",
                    derive=derive_models,
                    rows={"task": "task", "model": "variant"},
                    words=lookup_format(LABELS),
                    columns=(
                        Column("nats/token", "nll", NATS),
                        Column("accuracy (%)", "accuracy", SHARE.replace(bounds=False)),
                        Column("above the original model", ("above_original", "lost"), ABOVE),
                        Column("recovered (%)", "regained_share", SHARE),
                        Column("recovered, net of the control (%)", "net_share", SHARE),
                    ),
                ),
                Lines(
                    name="healing-windows",
                    x="affected",
                    series="condition",
                    where={"measure": vocab.HEALING_WINDOW, "metric": "above_original", "against": None},
                    slots={vocab.BEFORE: 5, vocab.HEALED: 0},
                    across="middle layers skipped",
                    at="{} layers skipped",
                    show=ABOVE,
                    height=400,
                    named=True,
                ),
                Pivot(
                    name="benchmarks",
                    derive=partial(derive_models, measure=vocab.HEALING_TASK),
                    rows={"benchmark": "task", "model": "variant"},
                    words=lookup_format(LABELS),
                    columns=(
                        Column("accuracy (%)", "accuracy", SHARE),
                        Column("minus the original model", "difference", POINTS, {"against": vocab.ORIGINAL}),
                        Column("minus the control", "difference", POINTS, {"against": vocab.IDENTITY_CONTROL}),
                    ),
                ),
                Pivot(
                    name="benchmarks-by-window",
                    derive=derive_window_accuracy,
                    where={"against": None},
                    across="condition",
                    rows={"benchmark": "task", "skipped": "affected"},
                    show=SHARE,
                    words=format_value,
                    folded=True,
                    terminal=True,
                ),
                Lines(
                    name="healing-benchmarks",
                    x="affected",
                    series="condition",
                    derive=derive_window_accuracy,
                    slots={vocab.BEFORE: 5, vocab.HEALED: 0},
                    choices={"benchmark": "task"},
                    nulls=lambda name: "guessing",
                    across="middle layers skipped",
                    at="{} layers skipped",
                    show=PERCENT.replace(axis="accuracy (%)"),
                    height=400,
                    named=True,
                ),
                Pivot(
                    name="learning-rates",
                    where={"measure": vocab.HEALING_RATE},
                    folded=True,
                    rows={"variant": "variant", "learning rate": "learning_rate"},
                    words=lookup_format(LABELS),
                    columns=(
                        Column("validation loss", "validation_nll", NATS),
                        Column("", text=_mark_best),
                    ),
                ),
                Pivot(
                    name="cost",
                    derive=derive_costs,
                    folded=True,
                    rows={"variant": "variant"},
                    words=lookup_format(LABELS),
                    columns=tuple(Column(head, metric, COUNT) for metric, head in COSTS.items()),
                ),
            ),
        ),
    ),
)
