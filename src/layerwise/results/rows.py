"""Rows of measurements, one observation per row.

A `Loss` is raw: one plan on one window of one document. A `Score` is derived: one number with its interval.
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
"""Prefix of the task of benchmark losses: `benchmark/NAME` scores a continuation, `benchmark/NAME/METRIC` a document
(`hits` of 1 token if it was answered right, `nll` 0)."""

CONTINUATION = "continuation"
"""Measure of the notes that hold continuations as JSON."""

UNIFORM = "uniform_nll"
"""Metric of measure `run`: the loss of a uniform guess over the vocabulary, in nats/token."""

MAIN = ("acc_norm", "acc", "exact_match")
"""Main metric of a benchmark: the first that exists. Public leaderboards use `acc_norm`."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one plan on one window of one document.

    `nll` is the summed negative log-likelihood of the scored `tokens` in nats; `hits` of them were the arg-max. A
    window with an answer is an exact match if `hits == tokens`.
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
    """One number with its interval and the columns that identify it; None if a column does not apply.

    `measure` is the measurement (`effect`, `similarity`, `benchmark`), `metric` the quantity. `low` and `high` bound
    the interval, `p` is two-sided, `p_adjusted` corrected over its family, `mde` the minimum detectable effect.

    Args:
        task: Part of the text or benchmark that was scored; "all" for the whole.
        claim: Published claim that a contrast tests.
        paper: Paper that states the claim.
        models: Number of models.
        variant: Training variant, model, or control of a search.
        seed: Seed of one training run or draw.
        tuning_seed: Seed of a fine-tuning of that model.
        plan: Text of the plan that ran.
        family: Family of plans.
        strategy: How the layers that run, or the models, were chosen and combined.
        affected: Number of layers that a plan skips, moves or changes.
        kept: Number of layers that remain.
        order: Order in which the layers run.
        layer: Layer; for an edge, the layer that reads.
        to_layer: Second layer of a pair, or last layer of a range.
        part: Part of the layer or the model: `attn`, `mlp`, a weight, the head.
        state: Hidden state; 0 is the state before the first layer.
        to_state: Second hidden state of a pair, or last one of a zone.
        percent: Percent of the depth.
        position: Position at which the layer ran.
        source: Source that a layer reads: 0 is the embedding, n + 1 the output of layer n.
        distance: Distance, in layers, between the two that are compared.
        condition: Experimental condition: an intervention, or the setting of a timing.
        strength: Strength of the intervention.
        phase: Phase of a training run.
        step: Training step; of a phase, the step before which it ends.
        round: Round of a search or of a timing.
        share: Share of the training text or budget.
        unit: Kind of cost that was counted, or that two compared variants have in common.
        cost: Amount of the cost named by `unit`.
        learning_rate: Learning rate that was tried.
        warmup: Warm-up that was tried, as a share of the training.
        batch_size: Examples in a step.
        nodes: Number of nodes.
        failed: Number of failed nodes.
        node: Failed node, by its first layer.
        layout: How layers are placed on nodes.
        example: Number of the example.
        kind: Kind of the task: phenomenon or paradigm, surface or linguistic.
        suite: Suite of minimal pairs.
        verdict: Verdict that follows from the numbers.
        margin: Difference that is tolerated.
        section: Section of the run that a time or a count belongs to.
        against: What the value is compared with: another variant, or a null.

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
        """Return everything but the numbers; unique within a measure."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("metric", *(item.name for item in fields(Score) if item.kw_only))
"""Columns that identify a number within a measure."""


def list_columns(kind: type) -> dict[str, tuple[type, bool]]:
    """Return the type of each column of a kind of row, and whether it may be empty.

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
    """Describe a row in a message by its non-empty columns.

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
    """Text generated greedily after `prompt` under `plan`; `same` of its `tokens` equal the original model's."""

    plan: str
    prompt: str
    text: str
    tokens: int
    same: int

    def note(self) -> Note:
        """Return the continuation as a note of its run.

        >>> Continuation("0-3", "a b", " c", 1, 1).note().text
        '{"plan":"0-3","prompt":"a b","text":" c","tokens":1,"same":1}'
        """
        return Note(CONTINUATION, msgspec.json.encode(self).decode())


def read_continuations(notes: Iterable[Note]) -> tuple[Continuation, ...]:
    """Return the continuations among the notes of a run; invalid notes are ignored."""
    continuations = []
    for note in notes:
        if note.measure == CONTINUATION:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
                continuations.append(msgspec.json.decode(note.text, type=Continuation))
    return tuple(continuations)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan of a sweep and its cost, unique per (family, plan).

    `strategy` names the curve that the plan belongs to (`skip`, `reverse`, ...), `affected` is the number of layers
    that it changes, and `draw` the seed of a random order. `evaluations` counts how many times any layer runs, `stages`
    how many layers run one after another, `weights` the distinct layers, and `slots` the KV-cache slots.
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
    """Return the metric that a benchmark is judged by, or None if there is no accuracy.

    >>> select_main_metric(["acc", "acc_norm"]), select_main_metric(["perplexity"])
    ('acc_norm', None)
    >>> select_main_metric(["exact_match/strict-match", "exact_match/flexible-extract"])
    'exact_match/strict-match'
    """
    present = tuple(metrics)
    return next((metric for name in MAIN for metric in present if metric.split("/")[0] == name), None)
