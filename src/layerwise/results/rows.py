"""Rows of measurements, with one observation per row.

A `Loss` is raw data: the loss of one plan on one window of one document. A `Score` is a result with its interval.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields
from types import NoneType
from typing import Annotated, get_args, get_type_hints

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]

BENCHMARK_TASK = "benchmark/"
"""Prefix of the task in the losses of benchmarks.

A loss with the task `benchmark/NAME` is the loss of an answer. A loss with the task `benchmark/NAME/METRIC` only tells
whether a document was answered right: `tokens` is 1, `hits` is 1 or 0, and `nll` is 0.
"""

CONTINUATION = "continuation"
"""Measure of notes that contain a continuation as JSON."""

UNIFORM = "uniform_nll"
"""Metric of measure `run`: the loss of a uniform guess over the vocabulary, in nats/token."""

MAIN = ("acc_norm", "acc", "exact_match")
"""Metrics of a benchmark in order of preference. Public leaderboards use `acc_norm`."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one plan on one window of one document.

    `nll` is the sum of the negative log-likelihoods of the scored tokens in nats. `tokens` is their number, and `hits`
    is the number of them that the model considered most likely. The answer to a question is an exact match if
    `hits == tokens`.
    """

    plan: str
    task: str
    document: str
    window: int
    nll: Finite
    tokens: Annotated[int, Meta(ge=1)]
    hits: Count


@dataclass(frozen=True, slots=True, repr=False)
class Score:
    """One number with its interval, and the columns that identify it. A column that does not apply is None.

    `measure` names the measurement (such as `effect` or `similarity`), and `metric` the quantity. `low` and `high` are
    the bounds of the interval. `p` is a two-sided p-value, and `p_adjusted` is corrected for multiple tests. `mde` is
    the minimum detectable effect.

    Args:
        task: Group of documents or benchmark that was scored ("all" for all documents).
        claim: Published claim that a contrast tests.
        paper: Paper that states the claim.
        models: Number of models.
        variant: Training variant, model, or control of a search.
        seed: Seed of a training run or of a random draw.
        tuning_seed: Seed of a fine-tuning run; `seed` is then that of the pretrained model.
        plan: Text of the plan that ran.
        family: Family of plans.
        strategy: Rule by which layers or models were chosen or combined.
        affected: Number of layers that a plan skips, moves or changes.
        kept: Number of layers that remain.
        order: Order in which the layers run.
        layer: Layer; for learned layer weights, the layer that reads.
        to_layer: Second layer of a pair, or last layer of a range.
        part: Part of the layer or the model, such as `attn`, `mlp`, a weight or the head.
        state: Hidden state; 0 is the state before the first layer.
        to_state: Second hidden state of a pair, or last hidden state of a zone.
        percent: Percent of the depth.
        position: Position in the plan at which the layer ran.
        source: What a layer reads: 0 is the embedding, n + 1 the output of layer n.
        distance: Number of layers between the two layers that are compared.
        condition: Experimental condition, such as an intervention or the setting of a timing.
        strength: Strength of the intervention.
        phase: Phase of a training run.
        step: Training step; for a phase, the first step after it.
        round: Round of a search or of a timing.
        share: Share of the training text or budget.
        unit: Unit of `cost`, or the cost that two compared variants have in common.
        cost: Cost in units of `unit`.
        learning_rate: Learning rate that was tried.
        warmup: Warm-up that was tried, as a share of the training steps.
        batch_size: Number of examples in a training step.
        nodes: Number of nodes.
        failed: Number of failed nodes.
        node: First layer on the failed node.
        layout: Assignment of layers to nodes.
        example: Number of the example.
        kind: Kind of minimal pairs or task, such as phenomenon, paradigm, surface or linguistic.
        suite: Suite of minimal pairs.
        verdict: Verdict that follows from the numbers.
        margin: Largest difference that is tolerated.
        section: Section of the run to which a time or a count belongs.
        against: Variant or baseline with which the value is compared.

    >>> Score("healing", "nll", 2.5, 2.4, 2.6, variant="lora", seed=1)
    Score(measure='healing', metric='nll', value=2.5, low=2.4, high=2.6, variant='lora', seed=1)
    """

    measure: str
    metric: str
    value: Finite
    low: Finite | None = None
    high: Finite | None = None
    p: Finite | None = None
    p_adjusted: Finite | None = None
    mde: Finite | None = None
    documents: Count | None = None
    tokens: Count | None = None
    _: KW_ONLY
    task: str = "all"
    claim: str | None = None
    paper: str | None = None
    models: Count | None = None
    variant: str | None = None
    seed: int | None = None
    tuning_seed: int | None = None
    plan: str | None = None
    family: str | None = None
    strategy: str | None = None
    affected: Count | None = None
    kept: Count | None = None
    order: str | None = None
    layer: Count | None = None
    to_layer: Count | None = None
    part: str | None = None
    state: Count | None = None
    to_state: Count | None = None
    percent: Finite | None = None
    position: Count | None = None
    source: Count | None = None
    distance: Count | None = None
    condition: str | None = None
    strength: Finite | None = None
    phase: str | None = None
    step: Count | None = None
    round: Count | None = None
    share: Finite | None = None
    unit: str | None = None
    cost: Finite | None = None
    learning_rate: Finite | None = None
    warmup: Finite | None = None
    batch_size: Count | None = None
    nodes: Count | None = None
    failed: Count | None = None
    node: Count | None = None
    layout: str | None = None
    example: Count | None = None
    kind: str | None = None
    suite: str | None = None
    verdict: str | None = None
    margin: Finite | None = None
    section: str | None = None
    against: str | None = None

    def __repr__(self) -> str:
        values = ((item, getattr(self, item.name)) for item in fields(self))
        return f"Score({', '.join(f'{item.name}={value!r}' for item, value in values if value != item.default)})"

    @property
    def key(self) -> tuple[object, ...]:
        """Return the columns that identify this score among the scores of its measure."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("metric", *(item.name for item in fields(Score) if item.kw_only))
"""Columns that identify a score among the scores of its measure."""


def list_columns(kind: type) -> dict[str, tuple[type, bool]]:
    """Return the type of each column of a row class, and whether the column may be empty.

    >>> list_columns(Score)["step"], list_columns(Loss)["nll"]
    ((<class 'int'>, True), (<class 'float'>, False))
    """
    hints = get_type_hints(kind)
    columns = {}
    for item in fields(kind):
        options = get_args(hints[item.name]) or (hints[item.name],)
        (base,) = (option for option in options if option is not NoneType)
        columns[item.name] = (base, NoneType in options)
    return columns


def describe_row(kind: type, cells: Mapping[str, object]) -> str:
    """Describe a row by its non-empty columns, for error messages.

    >>> describe_row(Score, {"metric": "nll", "variant": "lora", "seed": 1, "task": "all"})
    "the score 'nll' of variant 'lora', seed 1 (task 'all')"
    """
    short = {name: repr(cell if not isinstance(cell, str) else cell[:60]) for name, cell in cells.items()}
    if kind is Loss:
        return "plan {plan} on window {window} of document {document} (task {task})".format_map(short)
    if kind is Score:
        non_empty = (name for name in KEY if name not in ("task", "metric") and cells.get(name) not in (None, ""))
        columns = ", ".join(f"{name} {short[name]}" for name in non_empty) or "all"
        return f"the score {short['metric']} of {columns[:200]} (task {short['task']})"
    return f"the record of plan {short['plan']}" if kind is PlanRecord else "a note"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark of a measurement, such as what it skipped and why."""

    measure: str
    text: str


@dataclass(frozen=True, slots=True)
class Continuation:
    """Text that a plan generated greedily after `prompt`.

    `tokens` is its length, and `same` is the number of tokens that equal those of the original model.
    """

    plan: str
    prompt: str
    text: str
    tokens: int
    same: int

    def note(self) -> Note:
        """Return the continuation as a note that can be stored in a run.

        >>> Continuation("0-3", "a b", " c", 1, 1).note().text
        '{"plan":"0-3","prompt":"a b","text":" c","tokens":1,"same":1}'
        """
        return Note(CONTINUATION, msgspec.json.encode(self).decode())


def read_continuations(notes: Iterable[Note]) -> tuple[Continuation, ...]:
    """Return the continuations among the notes of a run. Invalid notes are ignored."""
    continuations = []
    for note in notes:
        if note.measure == CONTINUATION:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
                continuations.append(msgspec.json.decode(note.text, type=Continuation))
    return tuple(continuations)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan of a sweep and its cost. A family has one record for each of its plans.

    `strategy` names the curve that the plan belongs to (`skip`, `reverse`, ...). `affected` is the number of layers
    that the plan changes, and `draw` the seed of a random order. `evaluations` is the number of layer evaluations,
    `stages` the number of layers that run one after another, `weights` the number of distinct layers, and `slots` the
    number of KV-cache slots.
    """

    plan: str
    family: str
    strategy: str
    affected: Count
    draw: int | None
    evaluations: Count
    stages: Count
    weights: Count
    slots: Count


def select_main_metric(metrics: Iterable[str]) -> str | None:
    """Return the metric that represents a benchmark, or None if none of its metrics is an accuracy.

    >>> select_main_metric(["acc", "acc_norm"]), select_main_metric(["perplexity"])
    ('acc_norm', None)
    >>> select_main_metric(["exact_match/strict-match", "exact_match/flexible-extract"])
    'exact_match/strict-match'
    """
    present = tuple(metrics)
    return next((metric for name in MAIN for metric in present if metric.split("/")[0] == name), None)
