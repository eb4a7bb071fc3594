"""What the figures and tables of a growth run show where that is no stored row: from rows to rows, and to cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from layerwise.plan.schedule.serialization import write_layers
from layerwise.report.data import ReportData
from layerwise.report.derived import growth
from layerwise.report.derived.growth_findings import budget_shares
from layerwise.report.derived.training_cost import loss_by_cost
from layerwise.report.kind import Column
from layerwise.report.show import ABSENT, PERCENT
from layerwise.report.text.number_format import fixed
from layerwise.report.text.table import Table
from layerwise.report.trained import cost_columns, with_ratios
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

COSTS: Mapping[str, tuple[str, float]] = {
    "steps": ("steps", 1.0),
    vocab.TOKENS: ("tokens", 1.0),
    vocab.FLOPS: ("FLOPs", 1.0),
    "seconds": ("seconds, all", 1.0),
    "step_seconds": ("step (ms)", 1000.0),
    "peak_bytes": ("peak memory (MiB)", 2.0**-20),
    "parameters": ("parameters", 1.0),
}
FULL = 0.999
"""A share from here on is the full cost: sums of floats are not exact."""
STATES: Mapping[float, str] = {
    1.0: "learns",
    2 / 3: "frozen, above something that learns",
    1 / 3: "frozen, nothing below it learns",
    0.0: "absent",
}
"""What a layer does in a phase, by the share of its full cost: forward 1, input gradient 1, weight gradient 1."""
SIGHT = ("the second half", "the whole course")


def differences(data: ReportData, metric: str = vocab.DIFFERENCE) -> Iterator[Score]:
    """Every difference of two arms, what decides first; the `part` is the name of the training."""
    for terms in growth.TERMS:
        for row in data.rows.where(measure=vocab.GROWTH, metric=metric, condition=terms):
            yield replace(row, part=growth.Training(str(row.arm), row.amount).name)


def differences_with_costs(data: ReportData) -> Iterator[Score]:
    """The same, each with the cost at which it was taken."""
    costs = Rows(differences(data, vocab.AT))
    for row in differences(data):
        yield row
        yield from costs.where(part=row.part, against=row.against, condition=row.condition)


def from_uniform(data: ReportData) -> Rows:
    """The differences from uniform."""
    return Rows(differences(data)).where(against=vocab.UNIFORM_TRAINING)


def from_controls(data: ReportData) -> Iterator[Score]:
    """The differences from other arms, each in the colour of that arm; the `part` names both."""
    for row in differences(data):
        if row.against != vocab.UNIFORM_TRAINING:
            yield replace(row, part=f"{row.part} - {row.against}", arm=row.against)


def held_out_losses(data: ReportData) -> Iterator[Score]:
    """The loss of every arm on held-out text, and of each of its seeds where there are several."""
    for arm in growth.arms(data):
        score, own = (
            growth.held_out(data, growth.Training(arm)),
            growth.by_seed(data, vocab.HELD_OUT, "nll", growth.Training(arm)),
        )
        if score is not None:
            yield score
            yield from own.values() if len(own) > 1 else ()


def of_every_training(data: ReportData) -> Iterator[Score]:
    """Of every training how many seeds, its loss, and its rows against uniform; the `part` is its name."""
    for training in growth.trainings(data):
        loss, rows = growth.held_out(data, training), growth.compared_rows(data, training)
        if loss is not None or rows.where(metric=vocab.DIFFERENCE):
            count = len(growth.seeds(data, training))
            counts = [Score(vocab.HELD_OUT, "seeds", float(count))] if count else []
            shown = (*counts, *filter(None, (loss,)), *rows)
            yield from (replace(row, part=training.name) for row in shown)


def headline(data: ReportData) -> Iterator[Score]:
    """What every arm saves of each cost to reach uniform's loss, of uniform's own lengths nothing."""
    uniform = {training.name for training in growth.uniform_lengths(data)}
    for training in growth.trainings(data):
        rows = growth.compared_rows(data, training, (*growth.TERMS, vocab.BUDGET))
        if training.name not in uniform and any(column.cell(rows) != ABSENT for column in HEADLINE):
            yield from (replace(row, part=training.name) for row in rows)


HEADLINE = (
    *(
        Column(f"{head} saved", text=growth.saving_text, where={"condition": terms})
        for terms, head in {vocab.FLOPS: "FLOPs", vocab.TOKENS: "tokens", vocab.SECONDS: "seconds"}.items()
    ),
    Column("time saved, same steps", vocab.TIME_SAVED, PERCENT, {"condition": vocab.TOKENS}),
    Column("loss ratio, same tokens", vocab.LOSS_RATIO, where={"condition": vocab.TOKENS}),
    Column("loss ratio, whole budget", vocab.LOSS_RATIO, where={"condition": vocab.BUDGET}),
)


def late_and_whole(data: ReportData) -> Iterator[Score]:
    """Losses by cost, as they are drawn: late alone, and whole; the `part` is which."""
    rows = tuple(loss_by_cost(data))
    yield from (replace(row, part=sight) for sight in SIGHT for row in rows)


def budgets(data: ReportData) -> Iterator[Score]:
    """The FLOPs of every training in percent of uniform's, and of every arm their mean with its range.

    A budget is kept by each training, not on average.
    """
    spent = Rows(
        Score(vocab.TRAINING, vocab.FLOPS, 100.0 * share, arm=arm, seed=seed)
        for (arm, seed), share in budget_shares(data).items()
    )
    for arm, own in spent.by("arm").items():
        values = [row.value for row in own]
        yield Score(vocab.TRAINING, vocab.FLOPS, fmean(values), min(values), max(values), arm=arm)
        yield from own


def drawn_schedules(data: ReportData) -> Iterator[Score]:
    """The shares of every arm, in reading order."""
    yield from (row for arm in growth.arms(data) for row in data.rows.where(measure=vocab.SCHEDULE, arm=arm))


def accounted(data: ReportData) -> Iterator[Score]:
    """The measured steps of every arm whose prediction is known, in reading order."""
    for arm in growth.arms(data):
        predicted = growth.step_shares(data, arm, vocab.PREDICTED)
        yield from (row for phase, row in growth.step_shares(data, arm, vocab.MEASURED).items() if phase in predicted)


def every_epoch(data: ReportData) -> Iterator[Score]:
    """How often the text was read while each layer learned, the `part` is the name of the training."""
    for training in growth.trainings(data):
        yield from (replace(row, part=training.name) for row in growth.epochs(data, training))


def epochs_of(end: Callable[..., float], words: str) -> tuple[Column, Column]:
    """The most or the least epochs of any layer, and the layers that have as many."""

    def layers(rows: Rows) -> str:
        value = end(row.value for row in rows)
        own = [str(row.layer) for row in rows if row.value == value]
        return "all" if len(own) == len(rows) else ", ".join(own)

    most = Column(f"{words} epochs", text=lambda rows: fixed(end(row.value for row in rows), 2))
    return most, Column("layers", text=layers)


def costs(data: ReportData) -> Iterator[Score]:
    """What each training took, the mean over seeds, its FLOPs also as a share of uniform's."""
    budget = growth.of_training(data, vocab.TRAINING, vocab.FLOPS, growth.UNIFORM)
    for training in growth.trainings(data):
        spent = (growth.of_training(data, vocab.TRAINING, metric, training) for metric in COSTS)
        named = (replace(row, part=training.name) for row in spent if row is not None)
        yield from with_ratios(named, {} if budget is None else {vocab.FLOPS: budget})


COST_COLUMNS = cost_columns(COSTS, lambda share: f"{fixed(100.0 * share, 1)} %")


def phase_table(data: ReportData) -> Table:
    """A row a phase: its steps, what learns in it, and what its step takes, predicted and measured."""
    body = []
    for arm in growth.arms(data):
        predicted, measured = (growth.step_shares(data, arm, metric) for metric in (vocab.PREDICTED, vocab.MEASURED))
        for phase in growth.phases(data, arm):
            both = [of.get(phase) for of in (predicted, measured)]
            shown = [ABSENT if row is None else fixed(row.value, 3) for row in both]
            off = ABSENT
            if both[0] is not None and both[1] is not None and both[0].value > 0.0:
                off = f"{fixed(100.0 * (both[1].value / both[0].value - 1.0), 1, signed=True)} %"
            steps = f"{phase.first:,}–{phase.end - 1:,}"
            body.append((arm, phase.name, steps, learning(growth.shares(data, arm, phase)), *shown, off))
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
    ends = (part for part in (vocab.EMBEDDING_PART, vocab.HEAD_PART) if spent.get(part, 0.0) >= FULL)
    return ", ".join([*named, *ends]) or "nothing"


def state_of(share: float) -> str | None:
    """What a share of the full cost means, `None` where it is an average over drawn layers.

    >>> state_of(2 / 3), state_of(0.8)
    ('frozen, above something that learns', None)
    """
    return next((words for known, words in STATES.items() if abs(share - known) < 1.0 - FULL), None)
