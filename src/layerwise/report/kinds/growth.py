"""Growth: whether training where layers need it helps, whether layer roles are why, and whether the test was fair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import count
from typing import Any

from layerwise.report.data import ReportData
from layerwise.report.derived import growth
from layerwise.report.derived import growth_tables as tables
from layerwise.report.derived.growth_findings import BUDGET_BAR, STEP_BAR, growth_findings, verdict
from layerwise.report.derived.training_cost import AXES, FRONTIER, loss_by_cost
from layerwise.report.figures import frame
from layerwise.report.figures.frame import Figure, Trace
from layerwise.report.figures.palette import VIRIDIS, faded, light
from layerwise.report.finding import Finding, judged
from layerwise.report.kind import Beside, Column, Kind, Part, Pivot, Says, Section, Tabled, prose
from layerwise.report.kinds.training import training_stopped
from layerwise.report.marks import Dots, Lines, Mark
from layerwise.report.marks.lines import area
from layerwise.report.show import COUNT, NATS, SIGNED, Show, adjusted_p, detectable, named, p_value, plain
from layerwise.report.text.number_format import fixed, large
from layerwise.report.text.wording import arm_tiles, listed
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

VALIDATION = "validation loss (nats per token)"
LOSS = NATS.but(axis="nats per token", decimals=3)
THIRDS = {0.0: "0", 1 / 3: "⅓", 2 / 3: "⅔", 1.0: "1"}
LATE = 0.5  # the share of the dearest arm's cost from which on the ends are shown
AIR = 0.06
HEIGHT, THICKEST, AROUND, LEGIBLE = 168, 16, 70, 11
"""Of a drawn schedule: its rows at most, one of them, the axis, and units between two numbers of layers."""


@dataclass(frozen=True, kw_only=True)
class LossByCost(Mark):
    """Every arm's loss by its cost, its last point marked, and uniform's frontier of decayed trainings."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The courses on the terms of the rows; late, only the second half of the dearest arm is in sight."""
        axis, late = AXES[str(rows[0].condition)], rows[0].part == tables.SIGHT[0]
        most = max((row.amount or 0.0 for row in rows if not (late and row.arm == FRONTIER)), default=1.0)
        costs = (LATE * most if late else 0.0, most * (1 + AIR / 2))
        traces = [
            trace
            for arm, own in rows.by("arm").items()
            if arm != FRONTIER
            for trace in _loss_curve(own, slots[arm], axis)
        ]
        frontier = rows.where(arm=FRONTIER)
        return frame.framed(
            460,
            [*traces, *(_ends(frontier, axis) if frontier else ())],
            x={"title": axis, "range": costs, "exponentformat": "SI" if axis == vocab.TOKENS else "power"},
            y={"title": VALIDATION, "range": _in_sight(rows, costs) if late else None, "zeroline": False},
            margin={"l": 48, "r": 16, "t": 8, "b": 44},
        )

    def colours(self, rows: Rows, data: ReportData) -> Mapping[str, int]:
        """Those of the arms; the frontier is grey."""
        return {arm: slot for arm, slot in Mark.colours(self, rows, data).items() if arm != FRONTIER}


def _in_sight(rows: Rows, costs: tuple[float, float]) -> list[float] | None:
    """The losses at these costs, ranges of seeds with them."""
    seen = [row for row in rows if costs[0] <= (row.amount or 0.0) <= costs[1]]
    bounds = [bound for row in seen for bound in (row.value, row.low, row.high) if bound is not None]
    air = AIR * (max(bounds) - min(bounds)) or 0.1 if bounds else 0.0
    return [min(bounds) - air, max(bounds) + air] if bounds else None


def _loss_curve(rows: Rows, slot: int, across: str) -> list[Trace]:
    """The line of an arm over the range of its seeds, which stands at the end as a bar: before, the band shows it."""
    arm, (colour, ribbon, symbol) = str(rows[0].arm), frame.series_style(slot)
    ends = [*(replace(row, low=None, high=None) for row in rows[:-1]), rows[-1]]
    sizes = [*(3 for _ in rows[:-1]), 9]
    line = _line(rows, across, {"color": colour, "width": 2}, {"color": colour, "symbol": symbol, "size": sizes})
    return [*area(_by_cost(rows), ribbon, arm), {**line, "error_y": frame.whiskers(ends, colour)}]


def _ends(rows: Rows, across: str) -> list[Trace]:
    """The frontier, dashed."""
    marker = {"color": light("ink"), "symbol": "line-ew-open", "size": 9, "line": {"width": 2}}
    line = _line(rows, across, {"color": light("ink"), "width": 1.5, "dash": "dash"}, marker)
    return [*area(_by_cost(rows), faded(light("muted"), 0.18), FRONTIER), line]


def _by_cost(rows: Rows) -> dict[float, Score]:
    return {row.amount or 0.0: row for row in rows}


def _line(rows: Rows, across: str, line: Mapping[str, Any], marker: Mapping[str, Any]) -> Trace:
    arm = escape(str(rows[0].arm))
    seeds = ["" if row.low is None else ", mean and range of the seeds" for row in rows]
    return frame.scatter(
        x=[row.amount or 0.0 for row in rows],
        y=[row.value for row in rows],
        mode="lines+markers",
        line=line,
        marker=marker,
        legendgroup=str(rows[0].arm),
        name=arm,
        text=[
            f"<b>{arm}</b>, {large(row.amount or 0.0)} {across}<br>{frame.interval(row)}{more}"
            for row, more in zip(rows, seeds, strict=True)
        ],
    )


@dataclass(frozen=True, kw_only=True)
class StepTimes(Mark):
    """The time of each phase's step against its prediction, as shares of a uniform step."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """A mark a phase, over the band that is allowed."""
        predicted = {
            (arm, phase.name): row
            for arm in rows.axis("arm")
            for phase, row in growth.step_shares(data, arm, vocab.PREDICTED).items()
        }
        pairs = [(predicted[str(row.arm), str(row.condition)].value, row) for row in rows]
        top = max((x for x, _ in pairs), default=1.0) * 1.1
        low, high = ([0.0, (1 + way * STEP_BAR) * top] for way in (-1, 1))
        allowed = frame.filled([0.0, top], low, high, faded(light("muted"), 0.16), name=f"within {100 * STEP_BAR:g} %")
        arms = [_phases([pair for pair in pairs if pair[1].arm == arm], slots[arm]) for arm in rows.axis("arm")]
        reach = frame.limits(x for x, _ in pairs)
        return frame.framed(
            380,
            [allowed, frame.diagonal(0.0, top, "as predicted"), *arms],
            x={"title": "predicted, FLOPs of a step as a share of uniform's", "range": reach},
            y={"title": "measured, time of a step", "range": frame.common_span(row for _, row in pairs)},
            margin={"l": 48, "r": 16, "t": 8, "b": 44},
        )


def _phases(pairs: Sequence[tuple[float, Score]], slot: int) -> Trace:
    (colour, _, symbol), arm = frame.series_style(slot), str(pairs[0][1].arm)
    return frame.scatter(
        x=[x for x, _ in pairs],
        y=[row.value for _, row in pairs],
        mode="markers",
        error_y=frame.whiskers((row for _, row in pairs), colour, thickness=1.5),
        marker={"color": colour, "symbol": symbol, "size": 9},
        legendgroup=arm,
        name=escape(arm),
        text=[
            f"<b>{escape(arm)}</b>, {escape(str(row.condition))}<br>predicted {fixed(x, 3)},"
            f" measured {frame.interval(row)}"
            for x, row in pairs
        ],
    )


@dataclass(frozen=True, kw_only=True)
class DepthByTime(Mark):
    """A schedule: for each part of the model and each phase, the share of its full cost that is spent there.

    All schedules have one scale of steps, so two of equal FLOPs hold about as much colour.
    """

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The embedding above, the layers downwards, the head below; steps to the right."""
        arm = str(rows[0].arm)
        spent = {phase: growth.shares(data, arm, phase) for phase in growth.phases(data, arm)}
        layers = sorted({row.layer for row in rows if row.layer is not None})
        named = set(rows.axis("part"))
        head, tail = ([part] if part in named else [] for part in (vocab.EMBEDDING_PART, vocab.HEAD_PART))
        parts: list[int | str] = [*head, *layers, *tail]
        thick = min(THICKEST, HEIGHT / len(parts))
        step = next(each for each in count(1) if each * thick >= LEGIBLE or each >= len(parts))
        ticks = [at for at, part in enumerate(parts) if isinstance(part, str) or part % step == 0]
        grid = frame.heatmap(
            x=[0, *(phase.end for phase in spent)],
            y=list(range(len(parts))),
            zmin=0,
            zmax=1,
            xgap=1,
            ygap=1,
            z=[[of.get(part) for of in spent.values()] for part in parts],
            text=[[_hover(phase, part, of.get(part)) for phase, of in spent.items()] for part in parts],
            colorscale=frame.colour_scale(VIRIDIS),
            colorbar={"thickness": 9, "outlinewidth": 0, "tickvals": list(THIRDS), "ticktext": list(THIRDS.values())},
        )
        return frame.framed(
            round(AROUND + thick * len(parts)),
            [grid],
            showlegend=False,
            x={"title": "step", "range": [0, max(row.amount or 0 for row in all_rows)], "showgrid": False},
            y={
                "tickvals": ticks,
                "ticktext": [str(parts[at]) for at in ticks],
                "showgrid": False,
                "range": [len(parts) - 0.5, -0.5],
            },
            margin={"l": 64, "r": 8, "t": 8, "b": 44},
        )


def _hover(phase: growth.PhaseSteps, part: int | str, share: float | None) -> str:
    if share is None:
        return ""
    name = f"the {part}" if isinstance(part, str) else f"layer {part}"
    does = tables.state_of(share) or "drawn at random"
    return f"{phase.name}, steps {phase.first:,} to {phase.end - 1:,}: {name} {does}, {fixed(share, 2)} of its cost"


def _verdict(data: ReportData) -> Iterator[Finding | str]:
    """The verdict, or that there is nothing to compare."""
    yield verdict(data) or prose("growth")["growth/missing"]


def following(data: ReportData) -> Iterator[str]:
    """What would tell more: a comparison, further rates, the controls."""
    arm = growth.planned(data)
    if arm is None:
        yield "Train uniform, the controls and other schedules beside it: layerwise train growth-study"
        return
    at_end = [(tuning, tuning.chosen) for tuning in growth.tunings(data) if tuning.at_end and tuning.chosen is not None]
    if at_end:
        further = sorted({rate * (0.5 if rate == min(tuning.losses) else 2.0) for tuning, rate in at_end})
        who, rates = listed([tuning.arm for tuning, _ in at_end]), ",".join(f"{rate:g}" for rate in further)
        yield f"Try further rates for {who}: layerwise train growth-study --learning-rates {rates}"
    score = growth.against(data, growth.Training(arm))
    if score is not None and judged(score, data.level) == "better" and arm == growth.PUBLISHED:
        yield "Find out whether layer roles are why: layerwise train growth-study --arms importance,permuted"


def _readings(data: ReportData) -> Iterator[str]:
    arm = growth.headline_arm(data)
    if arm is not None:
        yield f"What {arm} needs is {growth.how_read(data, arm)}."
    yield from filter(None, (growth.nulls_in_words(data),))


def _sides(data: ReportData) -> Iterator[str]:
    tuned = [tuning.arm for tuning in growth.tunings(data)]
    if vocab.UNIFORM_TRAINING in tuned and len(tuned) > 1:
        yield "Both sides were tuned, by loss on validation text."
    else:
        yield f"Only {listed(tuned)} {'was' if len(tuned) == 1 else 'were'} tuned."
    if not any(row.low is not None for tuning in growth.tunings(data) for row in tuning.losses.values()):
        yield "One seed chose, so there is no interval: the sweep chooses and proves nothing."


def _frontier(data: ReportData) -> Iterator[str]:
    if Rows(loss_by_cost(data)).where(arm=FRONTIER):
        yield f"The dashed line joins the ends of {FRONTIER}: what uniform training reaches when it is given that cost."
    else:
        yield "Uniform was trained for one length, or not at all: there is no frontier to judge the ends by."


def _all_arms(data: ReportData) -> tuple[str, ...]:
    """The arms whose colours are the same in every figure of a run."""
    return (*growth.arms(data), *data.rows.where(measure=(vocab.GROWTH, vocab.RATES)).axis("arm"))


OF_ARMS: Mapping[str, Any] = {"series": "arm", "arms": _all_arms, "words": str}


def _difference_show(data: ReportData) -> Show:
    """One scale for all differences."""
    rows = data.rows.where(measure=vocab.GROWTH, metric=vocab.DIFFERENCE, condition=tuple(growth.TERMS))
    return Show(axis="nats per token; left is better", signed=True, reference=0.0, span=frame.common_span(rows))


def _differing(data: ReportData) -> list[str]:
    named = tables.from_uniform(data).axis("part")
    return [each.name for each in growth.trainings(data) if each.name in named]


def _verdict_parts(data: ReportData) -> Iterable[Part]:
    terms = next(iter(tables.from_uniform(data).axis("condition")), vocab.FLOPS)
    yield Dots(
        name="differences",
        each="condition",
        y="part",
        derive=tables.from_uniform,
        series="arm",
        arms=_all_arms,
        words=named({terms: words[0].upper() + words[1:] for terms, words in growth.TERMS.items()}),
        rows_named=_differing,
        show=_difference_show(data),
    )
    yield Says(_verdict, terminal=False)
    yield Pivot(
        name="terms",
        rows={"arm": "part"},
        derive=tables.of_every_training,
        columns=(
            Column("seeds", "seeds", COUNT),
            Column("held-out loss (nats)", "nll", LOSS),
            Column(f"Δ {growth.TERMS[terms]}", vocab.DIFFERENCE, SIGNED, {"condition": terms}),
        ),
    )
    yield Says(lambda run: (each for each in growth_findings(run) if each != verdict(run)))


def _held_out_parts(data: ReportData) -> Iterable[Part]:
    null = growth.token_pairs(data)
    show = LOSS.but(decimals=None, reference=None if null is None else null.value)
    yield Beside(
        (
            Dots(name="held-out", y="arm", derive=tables.held_out_losses, show=show, **OF_ARMS),
            Dots(
                name="controls",
                each="condition",
                y="part",
                derive=tables.from_controls,
                series="arm",
                arms=_all_arms,
                words=named({terms: f"Against its controls, {words}" for terms, words in growth.TERMS.items()}),
                show=_difference_show(data),
            ),
        )
    )
    yield Pivot(
        name="every-difference",
        derive=tables.differences_with_costs,
        folded=True,
        terminal=False,
        rows={"arm": "part", "against": "against", "terms": "condition"},
        words=named(growth.TERMS),
        columns=(
            Column("at", vocab.AT, lambda row: large(row.value)),
            Column("difference (nats)", vocab.DIFFERENCE, SIGNED),
            Column("p", vocab.DIFFERENCE, p_value),
            Column("adjusted p", vocab.DIFFERENCE, adjusted_p),
            Column("detectable above (nats)", vocab.DIFFERENCE, detectable),
        ),
    )


def _schedule_parts(data: ReportData) -> Iterable[Part]:
    def numbered(arm: str) -> str:
        named = (f"{at} {phase.name}" for at, phase in enumerate(growth.phases(data, arm), start=1))
        return f"{arm}: {'; '.join(named)}"

    yield DepthByTime(name="schedules", derive=tables.drawn_schedules, each="arm", words=numbered, wide=False)
    yield Lines(
        name="importance",
        where={"measure": vocab.IMPORTANCE, "metric": "skip"},
        height=300,
        rooted=True,
        bent=True,
        nats=True,
        show=NATS.but(axis="nats per token, when skipped", reference=0.0),
    )
    yield Tabled(name="phases", table=tables.phase_table, folded=True, terminal=False)


def _rate_parts(data: ReportData) -> Iterable[Part]:
    chosen = {(tuning.arm, tuning.chosen) for tuning in growth.tunings(data)}
    rates = {"measure": vocab.RATES, "condition": vocab.LEARNING_RATE}

    def taken(row: Score) -> bool:
        return (row.arm, row.amount) in chosen

    yield Says(_sides, terminal=False)
    yield Lines(
        name="rates",
        where={**rates, "metric": "nll"},
        x="amount",
        legend="Arms",
        across="learning rate",
        at="learning rate {}",
        show=NATS.but(axis=VALIDATION),
        sizes=True,
        hollow=lambda row: not taken(row),
        **OF_ARMS,
    )
    yield Pivot(
        name="every-rate",
        where=rates,
        terminal=False,
        folded=True,
        rows={"arm": "arm", "learning rate": "amount"},
        words=plain,
        columns=(
            Column("validation loss (nats)", "nll", LOSS),
            Column("", show=lambda row: "chosen" if taken(row) else ""),
        ),
    )


def _cost_parts(data: ReportData) -> Iterable[Part]:
    edge = max([200.0 * BUDGET_BAR, *(abs(row.value - 100.0) for row in tables.budgets(data) if row.seed is not None)])
    yield Beside(
        (
            StepTimes(name="step-times", derive=tables.accounted, legend="Arms", **OF_ARMS),
            Dots(
                name="budgets",
                derive=tables.budgets,
                y="arm",
                allowed=(100 * (1 - BUDGET_BAR), 100 * (1 + BUDGET_BAR)),
                show=Show(axis="% of uniform's FLOPs", reference=100.0, span=(100.0 - 1.1 * edge, 100.0 + 1.1 * edge)),
                **OF_ARMS,
            ),
        )
    )
    yield Pivot(name="costs", derive=tables.costs, rows={"arm": "part"}, columns=tables.COST_COLUMNS, terminal=False)


def _tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    arms = growth.arms(data)
    return arm_tiles(arms, {arm: growth.seeds(data, growth.Training(arm)) for arm in arms})


GROWTH_KIND = Kind(
    name="growth",
    measures=(vocab.GROWTH,),
    present=growth.is_growth,
    answer=lambda data: "".join(each if isinstance(each, str) else each.text for each in _verdict(data)),
    tiles=_tiles,
    unfinished=training_stopped,
    following=following,
    claims=True,
    sections=(
        Section(anchor=vocab.GROWTH, needs=growth.is_growth, parts=_verdict_parts),
        Section(
            anchor="cost_to_loss",
            needs=lambda data: any(tables.headline(data)),
            parts=(
                Says(_readings, terminal=False),
                Pivot(derive=tables.headline, rows={"arm": "part"}, columns=tables.HEADLINE, terminal=False),
                Pivot(
                    name="epochs",
                    derive=tables.every_epoch,
                    rows={"arm": "part"},
                    terminal=False,
                    folded=True,
                    columns=(*tables.epochs_of(max, "most"), *tables.epochs_of(min, "least")),
                ),
            ),
        ),
        Section(
            anchor=vocab.TRAINING,
            needs=lambda data: any(loss_by_cost(data)),
            parts=(
                LossByCost(
                    name="courses",
                    derive=tables.late_and_whole,
                    series="arm",
                    arms=_all_arms,
                    legend="Arms",
                    choices={"Against": "condition", "Shown": "part"},
                    words=named(AXES),
                ),
                Says(_frontier, terminal=False),
            ),
        ),
        Section(
            anchor=vocab.HELD_OUT,
            parts=_held_out_parts,
            needs=lambda data: any(tables.held_out_losses(data)) or any(tables.differences(data)),
        ),
        Section(anchor=vocab.SCHEDULE, parts=_schedule_parts),
        Section(anchor=vocab.RATES, parts=_rate_parts, needs=lambda data: bool(growth.tunings(data))),
        Section(
            anchor=vocab.ACCOUNTING,
            parts=_cost_parts,
            needs=lambda data: any(tables.costs(data)) or any(tables.accounted(data)),
        ),
    ),
)
