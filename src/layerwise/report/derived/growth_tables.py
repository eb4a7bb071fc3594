"""What the figures and tables of a growth run show where that is no stored row: from rows to rows, and to tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from layerwise.report.data import ReportData
from layerwise.report.derived.growth import (
    TERMS,
    Training,
    against,
    arms,
    by_seed,
    epochs,
    held_out,
    of_training,
    percents,
    phases,
    saved_in_words,
    seeds,
    shares,
    step_shares,
    trainings,
    uniform_lengths,
)  # fmt: skip
from layerwise.report.derived.growth_findings import budget_shares
from layerwise.report.derived.training_cost import loss_by_cost
from layerwise.report.page.number_format import between, fixed, large
from layerwise.report.page.table import Table
from layerwise.report.show import ABSENT
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    AT,
    BUDGET,
    DIFFERENCE,
    EMBEDDING_PART,
    FLOPS,
    GROWTH,
    HEAD_PART,
    HELD_OUT,
    LOSS_RATIO,
    MEASURED,
    PREDICTED,
    SCHEDULE,
    TIME_SAVED,
    TOKENS,
    TRAINING,
    UNIFORM_TRAINING,
)  # fmt: skip
from layerwise.schedule.layer_text import write_layers

COSTS: Mapping[str, tuple[str, float]] = {
    "steps": ("steps", 1.0), TOKENS: ("tokens", 1.0), FLOPS: ("FLOPs", 1.0), "seconds": ("seconds, all", 1.0),
    "step_seconds": ("step (ms)", 1000.0), "peak_bytes": ("peak memory (MiB)", 2.0**-20),
    "parameters": ("parameters", 1.0),
}  # fmt: skip
FULL = 0.999
"""A share from here on is the full cost: sums of floats are not exact."""
STATES: Mapping[float, str] = {
    1.0: "learns",
    2 / 3: "frozen, above something that learns",
    1 / 3: "frozen, nothing below it learns",
    0.0: "absent, or its states are cached",
}
"""What a layer does in a phase, by the share of its full cost: forward 1, input gradient 1, weight gradient 1."""


SIGHT = ("the second half", "the whole course")


def compared(data: ReportData, *, with_uniform: bool) -> Iterator[Score]:
    """The differences from uniform, or from other arms, what decides first; the `part` is their name in a figure.

    A difference from a control is drawn in the colour of that control.
    """
    rows = data.rows.where(measure=GROWTH, metric=DIFFERENCE)
    for terms in TERMS:
        for row in rows.where(condition=terms):
            name = Training(str(row.arm), row.amount).name
            if with_uniform and row.against == UNIFORM_TRAINING:
                yield replace(row, part=name)
            elif not with_uniform and row.against != UNIFORM_TRAINING:
                yield replace(row, part=f"{name} - {row.against}", arm=row.against)


def held_out_losses(data: ReportData) -> Iterator[Score]:
    """The loss of every arm on held-out text, and of each of its seeds where there are several."""
    for arm in arms(data):
        score, own = held_out(data, Training(arm)), by_seed(data, HELD_OUT, "nll", Training(arm))
        if score is not None:
            yield replace(score, seed=None)
            yield from own.values() if len(own) > 1 else ()


def compared_arms(data: ReportData) -> Iterator[Score]:
    """Of every training with a loss or a difference: how many seeds, the loss, and what it differs by."""
    for training in trainings(data):
        loss = held_out(data, training)
        differences = (against(data, training, terms=terms) for terms in TERMS)
        rows = [row for row in (loss, *differences) if row is not None]
        if rows and (trained := seeds(data, training)):
            yield Score.of(HELD_OUT, "seeds", float(len(trained)), part=training.name)
        yield from (replace(row, part=training.name, seed=None) for row in rows)


def every_difference(data: ReportData) -> Iterator[Score]:
    """Every difference of two arms, and where it was taken; the `part` is the name of the training."""
    rows = data.rows.where(measure=GROWTH)
    for terms in TERMS:
        for row in rows.where(metric=DIFFERENCE, condition=terms):
            at = rows.one(metric=AT, arm=row.arm, amount=row.amount, against=row.against, condition=terms)
            name = Training(str(row.arm), row.amount).name
            yield from (replace(each, part=name) for each in (row, at) if each is not None)


def late_and_whole(data: ReportData) -> Iterator[Score]:
    """Losses by cost, as they are drawn: late alone, and whole; the `part` is which."""
    rows = tuple(loss_by_cost(data))
    yield from (replace(row, part=sight) for sight in SIGHT for row in rows)


def budgets(data: ReportData) -> Iterator[Score]:
    """The FLOPs of every training in percent of uniform's, and of every arm their mean with its range.

    A budget is kept by each training, not on average.
    """
    spent: dict[str, dict[int, float]] = {}
    for (arm, seed), share in budget_shares(data).items():
        spent.setdefault(arm, {})[seed] = 100.0 * share
    for arm, own in spent.items():
        values = list(own.values())
        yield Score.of(TRAINING, FLOPS, fmean(values), min(values), max(values), arm=arm)
        yield from (Score.of(TRAINING, FLOPS, value, arm=arm, seed=seed) for seed, value in own.items())


def drawn_schedules(data: ReportData) -> Iterator[Score]:
    """The shares of every arm, in reading order."""
    yield from (row for arm in arms(data) for row in data.rows.where(measure=SCHEDULE, arm=arm))


def accounted(data: ReportData) -> Iterator[Score]:
    """The measured steps of every arm whose prediction is known, in reading order."""
    for arm in arms(data):
        predicted = step_shares(data, arm, PREDICTED)
        yield from (row for phase, row in step_shares(data, arm, MEASURED).items() if phase in predicted)


def headline_table(data: ReportData) -> Table:
    """A row an arm: what it saves of each cost to reach uniform's loss, the time of as many steps, the loss ratio."""
    body = []
    for training in (each for each in trainings(data) if each not in uniform_lengths(data)):
        time = against(data, training, terms=TOKENS, metric=TIME_SAVED)
        ratios = (against(data, training, terms=terms, metric=LOSS_RATIO) for terms in (TOKENS, BUDGET))
        cells = (
            *(saved_in_words(data, training, terms) for terms in TERMS),
            ABSENT if time is None else f"{percents(time)} %",
            *(ABSENT if row is None else between(row.value, row.low, row.high) for row in ratios),
        )
        body += [(training.name, *cells)] if set(cells) != {ABSENT} else []
    head = ("arm", "FLOPs saved", "tokens saved", "seconds saved", "time saved, same steps", "loss ratio, same tokens",
            "loss ratio, whole budget")  # fmt: skip
    return Table(head, tuple(body))


def epoch_table(data: ReportData) -> Table:
    """A row a training: how often it read the text while its layers learned, the most and the least of them."""
    body = []
    for training in trainings(data):
        if own := epochs(data, training):
            ends = [(of(own.values()), [layer for layer in own if own[layer] == of(own.values())]) for of in (max, min)]
            cells = ((fixed(end, 2), "all" if len(of) == len(own) else ", ".join(map(str, of))) for end, of in ends)
            body.append((training.name, *(text for pair in cells for text in pair)))
    return Table(("arm", "most epochs", "layers", "least epochs", "layers"), tuple(body))


def cost_table(data: ReportData) -> Table:
    """A row a training: what it took, the mean over seeds, its FLOPs also as a share of uniform's."""
    spent = {
        each.name: {metric: of_training(data, TRAINING, metric, each) for metric in COSTS} for each in trainings(data)
    }
    shown = [metric for metric in COSTS if any(of[metric] for of in spent.values())]
    budget = spent.get(UNIFORM_TRAINING, {}).get(FLOPS)
    body = []
    for name, of in spent.items():
        cells = [ABSENT if (row := of[metric]) is None else large(COSTS[metric][1] * row.value) for metric in shown]
        own = of[FLOPS]
        if own is not None and budget is not None and budget.value > 0.0:
            cells[shown.index(FLOPS)] += f" [{fixed(100.0 * own.value / budget.value, 1)} %]"
        body += [(name, *cells)] if set(cells) != {ABSENT} else []
    return Table(("arm", *(COSTS[metric][0] for metric in shown)), tuple(body))


def phase_table(data: ReportData) -> Table:
    """A row a phase: its steps, what learns in it, and what its step takes, predicted and measured."""
    body = []
    for arm in arms(data):
        predicted, measured = (step_shares(data, arm, metric) for metric in (PREDICTED, MEASURED))
        for phase in phases(data, arm):
            both = [of.get(phase) for of in (predicted, measured)]
            shown = [ABSENT if row is None else fixed(row.value, 3) for row in both]
            off = ABSENT
            if both[0] is not None and both[1] is not None and both[0].value > 0.0:
                off = f"{fixed(100.0 * (both[1].value / both[0].value - 1.0), 1, signed=True)} %"
            steps = f"{phase.first:,}–{phase.end - 1:,}"
            body.append((arm, phase.name, steps, learning(shares(data, arm, phase)), *shown, off))
    head = ("arm", "phase", "steps", "learns", "FLOPs of a step", "time of a step", "off by")
    return Table(head, tuple(body), numeric_from=4)


def learning(spent: Mapping[int | str, float]) -> str:
    """What learns in a phase, from the shares of its parts; where layers are drawn at random, what they cost on
    average.

    >>> learning({0: 2 / 3, 1: 1.0, 2: 1.0, 3: 1.0, "embedding": 1.0, "head": 1.0})
    'layers 1-3, embedding, head'
    >>> learning({0: 0.9, 1: 0.7})
    'layers at random, 0.80 of their full cost'
    """
    layers = {part: share for part, share in spent.items() if isinstance(part, int)}
    learns = tuple(layer for layer, share in sorted(layers.items()) if share >= FULL)
    named = [f"layers {write_layers(learns)}"] if learns else []
    if any(state_of(share) is None for share in layers.values()):
        named = [f"layers at random, {fixed(fmean(layers.values()), 2)} of their full cost"]
    ends = (part for part in (EMBEDDING_PART, HEAD_PART) if spent.get(part, 0.0) >= FULL)
    return ", ".join([*named, *ends]) or "nothing"


def state_of(share: float) -> str | None:
    """What a share of the full cost means, `None` where it is an average over drawn layers.

    >>> state_of(2 / 3), state_of(0.8)
    ('frozen, above something that learns', None)
    """
    return next((words for known, words in STATES.items() if abs(share - known) < 1.0 - FULL), None)
