"""Growth: whether training where layers need it helps, whether layer roles are why, and whether the test was fair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from layerwise.report.arms import arm_slots
from layerwise.report.data import ReportData
from layerwise.report.derived.growth import (
    PUBLISHED,
    TERMS,
    PhaseSteps,
    Training,
    against,
    arms,
    headline_arm,
    how_read,
    is_growth,
    nulls_in_words,
    phases,
    planned,
    seeds,
    shares,
    step_shares,
    token_pairs,
    trainings,
    tunings,
)  # fmt: skip
from layerwise.report.derived.growth_findings import (
    BUDGET_BAR,
    STEP_BAR,
    growth_findings,
    judged,
    verdict,
)  # fmt: skip
from layerwise.report.derived.growth_tables import (
    SIGHT,
    accounted,
    budgets,
    compared,
    compared_arms,
    cost_table,
    drawn_schedules,
    epoch_table,
    every_difference,
    headline_table,
    held_out_losses,
    late_and_whole,
    phase_table,
    state_of,
)
from layerwise.report.derived.training_cost import AXES, loss_by_cost
from layerwise.report.figures.figure import Figure, heatmap
from layerwise.report.figures.frame import colour_scale, framed, limits
from layerwise.report.figures.loss_vs_cost import FRONTIER, costed
from layerwise.report.figures.scatter import phase_scatter
from layerwise.report.finding import Finding
from layerwise.report.kind import Beside, Column, Kind, Part, Pivot, Says, Section, Tabled
from layerwise.report.marks import Dots, Lines, Mark, Slots
from layerwise.report.page.group import arm_tiles, incomplete
from layerwise.report.page.number_format import fixed, large, probability, tidy
from layerwise.report.page.palette import VIRIDIS
from layerwise.report.page.wording import listed
from layerwise.report.show import ABSENT, COUNT, NATS, NUMBER, Show
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ACCOUNTING,
    AT,
    DIFFERENCE,
    EMBEDDING_PART,
    FLOPS,
    GROWTH,
    HEAD_PART,
    HELD_OUT,
    IMPORTANCE,
    LEARNING_RATE,
    PREDICTED,
    RATES,
    SCHEDULE,
    TRAIN_LOSS,
    TRAINING,
    UNIFORM_TRAINING,
    VALIDATION_LOSS,
)  # fmt: skip

VALIDATION = "validation loss (nats per token)"
LOSS = NATS.but(axis="nats per token", decimals=3)
TITLES = {terms: words[0].upper() + words[1:] for terms, words in TERMS.items()}
THIRDS = {0.0: "0", 1 / 3: "⅓", 2 / 3: "⅔", 1.0: "1"}
HEIGHT, THICKEST, AROUND, LEGIBLE = 168, 16, 70, 11
"""Of a drawn schedule: its rows at most, one of them, the axis, and units between two numbers of layers."""


# -- marks of its own ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LossByCost(Mark):
    """Every arm's loss by its cost, and uniform's frontier of decayed trainings."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The courses on the terms of the rows."""
        curves = {arm: {row.amount or 0.0: row for row in own} for arm, own in rows.by("arm").items()}
        frontier = curves.pop(FRONTIER, {})
        axis, late = AXES[str(rows[0].condition)], rows[0].part == SIGHT[0]
        return costed(curves, frontier, slots, across=axis, upwards=VALIDATION, late=late)


@dataclass(frozen=True, kw_only=True)
class StepTimes(Mark):
    """The time of each phase's step against its prediction."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """A mark a phase, over the band that is allowed."""
        pairs = {}
        for arm, own in rows.by("arm").items():
            predicted = {phase.name: row for phase, row in step_shares(data, arm, PREDICTED).items()}
            pairs[arm] = {str(row.condition): (predicted[str(row.condition)], row) for row in own}
        return phase_scatter(pairs, slots, bar=STEP_BAR)


@dataclass(frozen=True, kw_only=True)
class DepthByTime(Mark):
    """A schedule: for each part of the model and each phase, the share of its full cost that is spent there.

    All schedules have one scale of steps, so two of equal FLOPs hold about as much colour.
    """

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The embedding above, the layers downwards, the head below; steps to the right."""
        arm = str(rows[0].arm)
        spent = {phase: shares(data, arm, phase) for phase in phases(data, arm)}
        layers = sorted({row.layer for row in rows if row.layer is not None})
        named = set(rows.axis("part"))
        head, tail = ([part] if part in named else [] for part in (EMBEDDING_PART, HEAD_PART))
        parts: list[int | str] = [*head, *layers, *tail]
        thick = min(THICKEST, HEIGHT / len(parts))
        step = next(each for each in count(1) if each * thick >= LEGIBLE or each >= len(parts))
        ticks = [at for at, part in enumerate(parts) if isinstance(part, str) or part % step == 0]
        grid = heatmap(
            x=[0, *(phase.end for phase in spent)], y=list(range(len(parts))), zmin=0, zmax=1, xgap=1, ygap=1,
            z=[[of.get(part) for of in spent.values()] for part in parts],
            text=[[_hover(phase, part, of.get(part)) for phase, of in spent.items()] for part in parts],
            colorscale=colour_scale(VIRIDIS),
            colorbar={"thickness": 9, "outlinewidth": 0, "tickvals": list(THIRDS), "ticktext": list(THIRDS.values())},
        )  # fmt: skip
        return framed(
            round(AROUND + thick * len(parts)), [grid], showlegend=False,
            x={"title": "step", "range": [0, max(row.amount or 0 for row in all_rows)], "showgrid": False},
            y={"tickvals": ticks, "ticktext": [str(parts[at]) for at in ticks], "showgrid": False,
               "range": [len(parts) - 0.5, -0.5]},
            margin={"l": 64, "r": 8, "t": 8, "b": 44},
        )  # fmt: skip


def _hover(phase: PhaseSteps, part: int | str, share: float | None) -> str:
    if share is None:
        return ""
    name = f"the {part}" if isinstance(part, str) else f"layer {part}"
    does = state_of(share) or "drawn at random"
    return f"{phase.name}, steps {phase.first:,} to {phase.end - 1:,}: {name} {does}, {fixed(share, 2)} of its cost"


# -- sentences ----------------------------------------------------------------------------------------------------


def answer(data: ReportData) -> str:
    """The verdict, or that there is nothing to compare."""
    first = verdict(data)
    return NOT_COMPARED if first is None else first.text


def following(data: ReportData) -> Iterator[str]:
    """What would tell more: a comparison, further rates, the controls."""
    arm = planned(data)
    if arm is None:
        yield "Train uniform, the controls and other schedules beside it: layerwise train growth-study"
        return
    at_end = [(tuning, tuning.chosen) for tuning in tunings(data) if tuning.at_end and tuning.chosen is not None]
    if at_end:
        further = sorted({rate * (0.5 if rate == min(tuning.losses) else 2.0) for tuning, rate in at_end})
        who, rates = listed([tuning.arm for tuning, _ in at_end]), ",".join(f"{rate:g}" for rate in further)
        yield f"Try further rates for {who}: layerwise train growth-study --learning-rates {rates}"
    score = against(data, Training(arm))
    if score is not None and judged(score, data.level) == "better" and arm == PUBLISHED:
        yield "Find out whether layer roles are why: layerwise train growth-study --arms importance,permuted"


def _readings(data: ReportData) -> Iterator[str]:
    arm = headline_arm(data)
    if arm is not None:
        yield f"What {arm} needs is {how_read(data, arm)}."
    yield from filter(None, (nulls_in_words(data),))


def _sides(data: ReportData) -> Iterator[str]:
    tuned = [tuning.arm for tuning in tunings(data)]
    if UNIFORM_TRAINING in tuned and len(tuned) > 1:
        yield "Both sides were tuned, by loss on validation text."
    else:
        yield f"Only {listed(tuned)} {'was' if len(tuned) == 1 else 'were'} tuned."
    if not any(row.low is not None for tuning in tunings(data) for row in tuning.losses.values()):
        yield "One seed chose, so there is no interval: the sweep chooses and proves nothing."


def _frontier(data: ReportData) -> Iterator[str]:
    if Rows(loss_by_cost(data)).where(arm=FRONTIER):
        yield f"The dashed line joins the ends of {FRONTIER}: what uniform training reaches when it is given that cost."
    else:
        yield "Uniform was trained for one length, or not at all: there is no frontier to judge the ends by."


def _verdict(data: ReportData) -> Iterator[Finding | str]:
    first = verdict(data)
    yield NOT_COMPARED if first is None else first


def _unfinished(data: ReportData) -> str | None:
    """Trainings that were begun and have no end."""
    run = data.rows.where(measure=TRAINING, seed=PRESENT)
    begun, ended = (
        {(row.arm, row.condition, row.seed) for row in run.where(metric=metrics)}
        for metrics in ((TRAIN_LOSS, VALIDATION_LOSS), "steps")
    )
    names = sorted(f"{arm}{f', {length}' if length else ''}/{seed}" for arm, length, seed in begun - ended)
    return incomplete((names, "training"))


# -- the page -----------------------------------------------------------------------------------------------------


def _span(data: ReportData) -> tuple[float, float] | None:
    """One scale for all differences."""
    rows = data.rows.where(measure=GROWTH, metric=DIFFERENCE, condition=tuple(TERMS))
    return limits(bound for row in rows for bound in (row.value, row.low, row.high))


def _differences(data: ReportData, *, with_uniform: bool) -> Iterator[Dots]:
    """A figure for each of the terms, all with the same rows and on the same scale."""
    rows = Rows(compared(data, with_uniform=with_uniform))
    names = [name for name in (each.name for each in trainings(data)) if name in rows.axis("part")]
    titles = {
        terms: title if with_uniform else f"Against its controls, {TERMS[terms]}" for terms, title in TITLES.items()
    }
    for terms in rows.axis("condition")[:1]:
        yield Dots(
            name="differences" if with_uniform else "controls", title=titles[terms], each="condition", y="part",
            derive=lambda run: compared(run, with_uniform=with_uniform), series="arm", slots=_slots(data),
            words=lambda value: titles.get(value, str(value)), rows_named=(lambda run: names) if with_uniform else None,
            show=Show(axis="nats per token; left is better", signed=True, reference=0.0, span=_span(data)),
        )  # fmt: skip


def _slots(data: ReportData) -> Slots:
    """The colours of arms, the same in every figure of a run."""
    of = arm_slots(
        [*arms(data), *data.rows.where(measure=GROWTH).axis("arm"), *data.rows.where(measure=RATES).axis("arm")]
    )
    return lambda names: {name: of.get(name, 0) for name in names}


def _decides(data: ReportData) -> str:
    """The terms that decide: the first on which arms were compared with uniform."""
    rows = data.rows.where(measure=GROWTH, metric=DIFFERENCE, against=UNIFORM_TRAINING)
    return next((terms for terms in TERMS if rows.where(condition=terms)), FLOPS)


def _verdict_parts(data: ReportData) -> Iterable[Part]:
    terms = _decides(data)
    yield from _differences(data, with_uniform=True)
    yield Says(_verdict, terminal=False)
    yield Pivot(
        title="Schedules compared", rows={"arm": "part"}, derive=compared_arms, note="terms",
        columns=(
            Column("seeds", "seeds", COUNT), Column("held-out loss (nats)", "nll", LOSS),
            *(Column(f"Δ {words}", DIFFERENCE, NUMBER.but(signed=True), {"condition": each})
              for each, words in TERMS.items() if each == terms),
        ),
    )  # fmt: skip
    yield Says(lambda run: (each for each in growth_findings(run) if each != verdict(run)))


def _held_out_parts(data: ReportData) -> Iterable[Part]:
    null = token_pairs(data)
    show = LOSS.but(decimals=None, reference=None if null is None else null.value)
    yield Beside((
        Dots(
            name="held-out", title="Loss on held-out text, all arms", y="arm", series="arm", derive=held_out_losses,
            slots=_slots(data), words=str, show=show,
        ),
        *_differences(data, with_uniform=False),
    ))  # fmt: skip
    yield Pivot(
        title="Every difference", derive=every_difference, folded=True, terminal=False, note="differences",
        rows={"arm": "part", "against": "against", "terms": "condition"},
        words=lambda value: TERMS.get(value, str(value)),
        columns=(
            Column("at", text=lambda rows: "" if (row := rows.one(metric=AT)) is None else large(row.value)),
            Column("difference (nats)", DIFFERENCE, NUMBER.but(signed=True)),
            Column("p", text=lambda rows: probability(rows.where(metric=DIFFERENCE)[0].p)),
            Column("adjusted p", text=lambda rows: probability(rows.where(metric=DIFFERENCE)[0].p_adjusted)),
            Column("detectable above (nats)", text=_detectable),
        ),
    )  # fmt: skip


def _detectable(rows: Rows) -> str:
    limit = rows.where(metric=DIFFERENCE)[0].mde
    return ABSENT if limit is None else tidy(limit)


def _loss_parts(data: ReportData) -> Iterable[Part]:
    yield LossByCost(
        name="courses", title="Validation loss of every arm against what it cost", derive=late_and_whole, series="arm",
        slots=lambda names: {each: slot for each, slot in _slots(data)(names).items() if each != FRONTIER},
        legend="Arms", choices={"Against": "condition", "Shown": "part"}, note="courses",
        words=lambda value: AXES.get(value, str(value)),
    )  # fmt: skip
    yield Says(_frontier, terminal=False)


def _schedule_parts(data: ReportData) -> Iterable[Part]:
    numbered = {
        arm: "; ".join(f"{at} {phase.name}" for at, phase in enumerate(phases(data, arm), start=1))
        for arm in arms(data)
    }
    drawn = [arm for arm in arms(data) if data.rows.where(measure=SCHEDULE, arm=arm)]
    yield DepthByTime(
        name="schedules", title=f"{drawn[0]}: {numbered[drawn[0]]}", derive=drawn_schedules, each="arm",
        words=lambda arm: f"{arm}: {numbered.get(arm, '')}", wide=False, note="shades",
    )  # fmt: skip
    yield Lines(
        name="importance", title="What the schedule by importance was made from: the pilot's loss without each layer",
        where={"measure": IMPORTANCE, "metric": "skip"}, height=300, rooted=True, bent=True, nats=True,
        show=NATS.but(axis="nats per token, when skipped", reference=0.0),
    )  # fmt: skip
    yield Tabled(title="Every phase", table=phase_table, folded=True, terminal=False)


def _rate_parts(data: ReportData) -> Iterable[Part]:
    chosen = {(tuning.arm, tuning.chosen) for tuning in tunings(data)}
    rates = {"measure": RATES, "condition": LEARNING_RATE}
    yield Says(_sides, terminal=False)
    yield Lines(
        name="rates", title="Validation loss by learning rate", where={**rates, "metric": "nll"}, x="amount",
        series="arm", slots=_slots(data), legend="Arms", words=str, across="learning rate", at="learning rate {}",
        show=NATS.but(axis=VALIDATION), sizes=True, note="rates",
        hollow=lambda row: (row.arm, row.amount) not in chosen,
    )  # fmt: skip
    yield Pivot(
        title="Learning rates", where=rates, terminal=False, folded=True,
        rows={"arm": "arm", "learning rate": "amount"},
        words=lambda value: f"{value:g}" if isinstance(value, float) else str(value),
        columns=(
            Column("validation loss (nats)", "nll", LOSS),
            Column("", text=lambda rows: "chosen" if (rows[0].arm, rows[0].amount) in chosen else ""),
        ),
    )  # fmt: skip


def _cost_parts(data: ReportData) -> Iterable[Part]:
    rows = tuple(budgets(data))
    edge = max([200.0 * BUDGET_BAR, *(abs(row.value - 100.0) for row in rows if row.seed is not None)])
    yield Beside((
        StepTimes(
            name="forecast", title="A step's time against its prediction", derive=accounted, series="arm",
            slots=_slots(data), legend="Arms", words=str,
        ),
        Dots(
            name="budgets", title="FLOPs against uniform's budget; the band is 1 %", derive=lambda run: rows, y="arm",
            series="arm", slots=_slots(data), words=str, allowed=(100 * (1 - BUDGET_BAR), 100 * (1 + BUDGET_BAR)),
            show=Show(axis="% of uniform's FLOPs", reference=100.0, span=(100.0 - 1.1 * edge, 100.0 + 1.1 * edge)),
        ),
    ))  # fmt: skip
    yield Tabled(title="Cost", table=cost_table, terminal=False, note="costs")


NOT_COMPARED = (
    "No arms were compared in this run (growth): one schedule alone says nothing of another. layerwise train"
    " growth-study trains uniform, the controls and the other schedules beside it."
)

GROWTH_KIND = Kind(
    name="growth",
    measures=(GROWTH,),
    present=is_growth,
    answer=answer,
    tiles=lambda data: arm_tiles(arms(data), {arm: seeds(data, Training(arm)) for arm in arms(data)}),
    unfinished=_unfinished,
    following=following,
    claims=True,
    sections=(
        Section(
            anchor=GROWTH, title="Does training where layers need it help", short="Verdict", missing=NOT_COMPARED,
            needs=is_growth, parts=_verdict_parts,
        ),
        Section(
            anchor="cost_to_loss", title="What it costs to reach uniform's loss", short="Cost of a loss",
            missing="No arm was trained beside uniform in this run (growth), so nothing says what its loss costs"
            " another.",
            needs=lambda data: bool(headline_table(data).body),
            parts=(
                Says(_readings, terminal=False),
                Tabled(table=headline_table, terminal=False),
                Tabled(
                    title="How often layers learned", table=epoch_table, terminal=False, folded=True, note="savings",
                ),
            ),
        ),
        Section(
            anchor=TRAINING, title="Loss against what it cost", short="Courses", parts=_loss_parts,
            missing="No finished training noted its losses (training): there is no course to draw.",
            needs=lambda data: next(loss_by_cost(data), None) is not None,
        ),
        Section(
            anchor=HELD_OUT, title="Losses, and differences from controls", short="Differences", parts=_held_out_parts,
            missing="Nothing was measured on held-out text (held_out), and no arms were compared (growth).",
            needs=lambda data: bool(tuple(held_out_losses(data)) or data.rows.where(measure=GROWTH, metric=DIFFERENCE)),
        ),
        Section(
            anchor=SCHEDULE, title="What learned when", short="Schedules", parts=_schedule_parts,
            missing="No schedule was written into this run (schedule).",
        ),
        Section(
            anchor=RATES, title="The learning rates that were tried", short="Rates", parts=_rate_parts,
            needs=lambda data: bool(tunings(data)),
            missing="No learning rates were swept in this run (rates): a difference between arms may be one of their"
            " rates. layerwise train growth-study sweeps them for both sides.",
        ),
        Section(
            anchor=ACCOUNTING, title="What it cost", short="Cost", parts=_cost_parts,
            missing="Neither the cost of the phases (accounting) nor that of the trainings (training) was noted.",
            needs=lambda data: len(cost_table(data).head) > 1 or bool(tuple(accounted(data))),
        ),
    ),
)  # fmt: skip
