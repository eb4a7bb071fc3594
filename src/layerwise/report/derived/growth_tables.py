"""The tables of a growth run that are not of single rows: the headline, epochs, costs and phases."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from layerwise.report.data import ReportData
from layerwise.report.derived.growth import (
    TERMS,
    against,
    arms,
    epochs,
    of_training,
    percents,
    phases,
    saved_in_words,
    shares,
    step_shares,
    trainings,
    uniform_lengths,
)
from layerwise.report.page.number_format import between, fixed, large
from layerwise.report.page.table import Table
from layerwise.report.show import ABSENT
from layerwise.results.vocabulary import (
    BUDGET,
    EMBEDDING_PART,
    FLOPS,
    HEAD_PART,
    LOSS_RATIO,
    MEASURED,
    PREDICTED,
    TIME_SAVED,
    TOKENS,
    TRAINING,
    UNIFORM_TRAINING,
)
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
