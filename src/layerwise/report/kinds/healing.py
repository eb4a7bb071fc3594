"""Healing: what a plan loses, what training brings back, and what the same training gives the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.kind import Column, Kind, Pivot, Says, Section
from layerwise.report.marks import Dots, Lines
from layerwise.report.page.number_format import between, is_resolved, probability, tidy
from layerwise.report.page.wording import listed
from layerwise.report.show import COUNT, DIFFERENCE, NATS, NUMBER, PERCENT
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ALL,
    BEFORE,
    CHANCE,
    HEALED,
    HEALING,
    HEALING_CONTRAST,
    HEALING_COST,
    HEALING_RATE,
    HEALING_TASK,
    HEALING_WINDOW,
    PRUNED,
    RANDOM,
    SKIP,
    UNTOUCHED,
    WHOLE,
)  # fmt: skip

SLOTS = (0, 1, 2, 3, 7, 8, 9, 10, 11)
CONTROLS = {PRUNED: 5, WHOLE: 4, RANDOM: 6}
ABOVE = DIFFERENCE.but(axis="nats a token above the untouched whole model")
SHARE = PERCENT.but(unit="")
POINTS = SHARE.but(signed=True)
COSTS = {
    "steps": "steps", "tokens": "tokens", "learning_weights": "weights that learn", "seconds": "seconds",
    "peak_bytes": "peak bytes",
}  # fmt: skip


def arms(data: ReportData) -> tuple[str, ...]:
    """The arms that were trained, without those of the windows: the healing that was asked for first."""
    trained = data.rows.where(measure=HEALING, metric="above_whole").axis("arm")
    return tuple(arm for arm in trained if not arm.startswith(SKIP))


def healings(data: ReportData) -> list[str]:
    """The arms without the controls."""
    return [arm for arm in arms(data) if arm not in (WHOLE, RANDOM)]


def above_whole(data: ReportData) -> Iterator[Score]:
    """Nats above the untouched model: of the pruned one, of every arm, and of each of its seeds."""
    run = data.rows.where(measure=HEALING, condition=None)
    yield from run.where(arm=PRUNED, metric="lost")
    shown = arms(data)
    yield from run.where(arm=shown, metric="above_whole")
    for row in run.where(arm=shown, metric="nll", seed=PRESENT):
        whole = run.value(arm=UNTOUCHED, metric="nll", task=row.task)
        if whole is not None:
            yield replace(row, metric="above_whole", value=row.value - whole)


def models(data: ReportData) -> Rows:
    """The rows of the table: of each model as it is, in reading order, without single seeds and windows."""
    run = data.rows.where(measure=HEALING, seed=None, condition=None)
    return Rows(row for arm in (UNTOUCHED, PRUNED, *arms(data)) for row in run.where(arm=arm))


def benchmarks(data: ReportData) -> Rows:
    """The rows of the table of benchmarks: of each model, in reading order, without single seeds and windows."""
    run = data.rows.where(measure=HEALING_TASK, seed=None)
    return Rows(row for arm in (UNTOUCHED, PRUNED, *arms(data)) for row in run.where(arm=arm))


def answers_by_window(data: ReportData) -> Iterator[Score]:
    """What is answered right by the number of middle layers skipped, before and after healing, and by guessing.

    At 0 the untouched model stands before, and the whole one that was trained as long after.
    """
    run = data.rows.where(measure=HEALING_TASK, metric="accuracy", seed=None)
    skipping = run.where(amount=PRESENT)
    for task in skipping.axis("task"):
        yield from skipping.where(task=task)
        for arm, condition in ((UNTOUCHED, BEFORE), (WHOLE, HEALED)):
            row = run.one(arm=arm, task=task, against=None)
            if row is not None:
                yield replace(row, condition=condition, amount=0.0)
        guessed = run.one(against=CHANCE, task=task)
        if guessed is not None:
            yield from (replace(guessed, amount=count) for count in (0.0, *skipping.axis("amount")))


def mean_costs(data: ReportData) -> Iterator[Score]:
    """What the trainings of each arm took, on the mean over seeds."""
    costs = data.rows.where(measure=HEALING_COST)
    for arm in arms(data):
        for metric, rows in costs.where(arm=arm, metric=tuple(COSTS)).by("metric").items():
            yield Score.of(HEALING_COST, metric, sum(row.value for row in rows) / len(rows), arm=arm)


def findings(data: ReportData) -> Iterator[str]:
    """What was lost and came back, who did better, where healing stops to make up, and which sweeps are not tuned."""
    run = data.rows.where(measure=HEALING, task=ALL, seed=None, condition=None)
    lost = run.one(arm=PRUNED, metric="lost")
    if lost is not None:
        yield f"The plan loses {NUMBER.text(lost)} nats a token (interval over documents)."
    for arm in healings(data):
        net, share = (run.one(arm=arm, metric=metric) for metric in ("net_share", "regained_share"))
        if share is None:
            yield f"{arm}: nothing was resolvably lost, so there is no share of it to regain."
            continue
        text = f"{arm} regains {SHARE.text(share)} % of it"
        yield text + ("." if net is None else f", {SHARE.text(net)} % net of what the whole model gains.")
    yield from map(_contrast, data.rows.where(measure=HEALING_CONTRAST))
    yield from _windows(data.rows.where(measure=HEALING_WINDOW, condition=HEALED))
    yield from _benchmarks(data)
    rates = data.rows.where(measure=HEALING_RATE)
    for row in rates.where(metric="chosen_at_end"):
        if len(rates.where(arm=row.arm, metric="validation_nll")) > 1:
            yield f"The best learning rate of {row.arm}, {row.amount:g}, is at the end of those tried: it is not tuned."


def _contrast(row: Score) -> str:
    value = f"{between(row.value, row.low, row.high, signed=True)} nats a token"
    who = "a random plan healed as long" if row.against == RANDOM else row.against
    if is_resolved(row, 0.05):
        verdict = "better" if row.value < 0 else "worse"
        return f"{row.arm} is {verdict} than {who}: {value}, adjusted p {probability(row.p_adjusted)}."
    seeds = f"{row.documents} seed{'s' * (row.documents != 1)}"
    above = "" if row.mde is None else f"; above {tidy(row.mde)} it would have been seen"
    return f"{row.arm} against {who}: not resolvable in {seeds}, {value}{above}."


def _windows(run: Rows) -> Iterator[str]:
    """Which numbers of skipped layers help and hurt, each by its interval, and up to how many healing makes up."""
    against = WHOLE if WHOLE in run.axis("against") else None
    healed = sorted((row for row in run.where(metric="above_whole", against=against) if row.amount), key=_amount)
    if not healed:
        return
    whole = "the whole model trained as long" if against else "the untouched whole model"
    crossing = run.one(metric="layers", against=against)
    if crossing is None:
        most = max(row.amount or 0 for row in healed)
        yield f"In some seed a healed model is no worse than {whole} at all of up to {most:g} layers skipped."
    else:
        yield (
            f"A healed model is no worse than {whole} up to {NUMBER.text(crossing)} middle layers skipped (interval "
            "over seeds)."
        )
    control = "" if against else " What the text alone gives is not taken off."
    yield f"Beside {whole} {_pattern(healed, better=-1)}.{control}"


def _benchmarks(data: ReportData) -> Iterator[str]:
    """What healing changes on each benchmark, and which numbers of skipped layers help and hurt there."""
    differences = data.rows.where(measure=HEALING_TASK, metric="difference", seed=None)
    for task in differences.axis("task"):
        for arm in healings(data):
            for against, words in ((UNTOUCHED, "the untouched model"), (WHOLE, "the whole model trained as long")):
                row = differences.one(task=task, arm=arm, against=against)
                if row is not None:
                    text = f"{POINTS.text(row)} points of accuracy beside {words}"
                    yield f"On {task} {arm} has {text}{'' if is_resolved(row, 0.05) else ', not resolvable'}."
        against = WHOLE if differences.where(task=task, amount=PRESENT, against=WHOLE) else UNTOUCHED
        healed = differences.where(task=task, condition=HEALED, against=against)
        if healed:
            whole = "the whole model trained as long" if against == WHOLE else "the untouched whole model"
            yield f"On {task}, beside {whole}, {_pattern(sorted(healed, key=_amount), better=1)}."


def _pattern(healed: Sequence[Score], better: int) -> str:
    """Which numbers of skipped layers help and which hurt, each by its interval; `better` is the sign of a gain."""
    sides: dict[str, list[Score]] = {"helps": [], "hurts": [], "is not resolvable": []}
    for row in healed:
        above, below = row.low is not None and row.low > 0.0, row.high is not None and row.high < 0.0
        gains, loses = (above, below) if better > 0 else (below, above)
        sides["helps" if gains else "hurts" if loses else "is not resolvable"].append(row)
    helped, hurt, unknown = sides.values()
    clauses = [f"skipping {listed([f'{row.amount:g}' for row in rows])} {what}" for what, rows in sides.items() if rows]
    ordered = helped and hurt and not unknown and _amount(helped[-1]) < _amount(hurt[0])
    return listed(clauses) + (": few help, many hurt" if ordered else "")


def _amount(row: Score) -> float:
    return row.amount or 0.0


def _slots(names: Sequence[str]) -> Mapping[str, int]:
    own = dict(zip((name for name in names if name not in CONTROLS), SLOTS, strict=False))
    return {name: {**own, **CONTROLS}[name] for name in names}


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(arms(data)):,}", "arms"
    run = data.rows.where(measure=HEALING, task=ALL, seed=None, arm=tuple(healings(data))[:1])
    share = run.one(metric="net_share") or run.one(metric="regained_share")
    if share is not None:
        yield PERCENT.number(share.value), "regained"


def _rate(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _chosen(rows: Rows) -> str:
    return "chosen" if {"chosen", "chosen_at_end"} & set(rows.axis("metric")) else ""


HEALING_KIND = Kind(
    name="healing",
    measures=(HEALING,),
    tiles=_tiles,
    answer=lambda data: " ".join(list(findings(data))[:2]),
    sections=(
        Section(
            anchor=HEALING,
            title="What healing brings back",
            short="Healing",
            missing="No model was healed: layerwise heal does.",
            parts=(
                Dots(
                    name="healing-nats", title="Nats a token above the untouched whole model", derive=above_whole,
                    series="arm", slots=_slots, legend="Models", words=str, show=ABOVE, from_zero=True, note="nats",
                ),
                Says(findings),
                Pivot(
                    title="By task", derive=models, rows={"task": "task", "model": "arm"},
                    columns=(
                        Column("nats a token", "nll", NATS),
                        Column("right (%)", "accuracy", SHARE.but(bounds=False)),
                        Column("above the whole model", ("above_whole", "lost"), ABOVE),
                        Column("regained (%)", "regained_share", SHARE),
                        Column("net (%)", "net_share", SHARE),
                    ),
                ),
                Lines(
                    name="healing-windows", title="Few layers skipped, and many", x="amount", series="condition",
                    where={"measure": HEALING_WINDOW, "metric": "above_whole", "against": None},
                    slots=lambda names: {BEFORE: 5, HEALED: 0}, across="middle layers skipped", at="{} layers skipped",
                    show=ABOVE.but(axis="nats a token above the whole model"), height=400, named=True, note="windows",
                ),
                Pivot(
                    title="Benchmarks", derive=benchmarks, rows={"benchmark": "task", "model": "arm"},
                    columns=(
                        Column("right (%)", "accuracy", SHARE),
                        Column("beside the untouched model", "difference", POINTS, {"against": UNTOUCHED}),
                        Column("beside the whole model trained as long", "difference", POINTS, {"against": WHOLE}),
                    ),
                ),
                Pivot(
                    title="Benchmarks by the number of middle layers skipped, right (%)", derive=answers_by_window,
                    where={"against": None}, rows={"benchmark": "task", "skipped": "amount"}, across="condition",
                    show=SHARE, words=_rate, folded=True,
                ),
                Lines(
                    name="healing-benchmarks", title="Benchmarks: few layers skipped, and many", x="amount",
                    series="condition", derive=answers_by_window, slots=lambda names: {BEFORE: 5, HEALED: 0},
                    choices={"benchmark": "task"}, nulls=lambda name: "guessing", across="middle layers skipped",
                    at="{} layers skipped", show=PERCENT.but(axis="right answers (%)"), height=400, named=True,
                    note="benchmarks",
                ),
                Pivot(
                    title="Learning rates", where={"measure": HEALING_RATE}, folded=True, terminal=False,
                    rows={"arm": "arm", "learning rate": "amount"}, words=_rate,
                    columns=(
                        Column("validation loss", "validation_nll", NATS), Column("", text=_chosen),
                    ),
                ),
                Pivot(
                    title="Cost", derive=mean_costs, folded=True, terminal=False, rows={"arm": "arm"},
                    columns=tuple(Column(head, metric, COUNT) for metric, head in COSTS.items()),
                ),
            ),
        ),
    ),
)  # fmt: skip
