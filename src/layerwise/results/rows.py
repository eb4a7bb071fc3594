"""The tidy rows that every measurement returns and the run store keeps: one row, one observation.

`Loss` is raw: one plan on one window of one document. `Score` is derived: one number with its interval. `PlanRecord`
says why a plan is in a sweep, a `Note` what was left out, and a `Continuation` is a text that a model wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]

BENCHMARK_TASK = "benchmark/"
"""How the task of a `Loss` begins that is no text but what a benchmark asks for: `benchmark/NAME` is how likely a
continuation is, `benchmark/NAME/METRIC` whether a document was answered right (`hits` of 1 token, `nll` 0)."""

CONTINUATION = "continuation"
"""The measure of the notes that hold continuations, each one line of JSON."""

UNIFORM = "uniform_nll"
"""The metric, of measure `run`, that says what guessing every token of the vocabulary alike loses: nats per token."""

MAIN = ("acc_norm", "acc", "exact_match")
"""The metric that a benchmark is judged by: the first of these that it has, with the first of its filters.

The paper does not say whether it drew `acc` or `acc_norm`; public leaderboards give `acc_norm` of ARC and HellaSwag.
"""


@dataclass(frozen=True, slots=True)
class Loss:
    """What one plan did on one window of one document.

    `nll` is the summed negative log-likelihood, in nats, of the `tokens` that were scored; `hits` of them were the
    arg-max. A window whose scored tokens are an answer is an exact match when `hits == tokens`: greedy decoding would
    have produced it.
    """

    plan: str
    task: str
    document: str
    window: int
    nll: Finite
    tokens: Annotated[int, Meta(ge=1)]
    hits: Count


@dataclass(frozen=True, slots=True)
class Score:
    """One number with the evidence beside it.

    `measure` is the noun of the measurement (`effect`, `similarity`, `benchmark`), `metric` the quantity with its unit
    in the name's documentation, `task` the part of the text ("all" for the whole). `low` and `high` bound the interval,
    `p` is two-sided, `p_adjusted` corrected over its family, `mde` the minimum detectable effect.

    What the number is about stands in columns of their own, so that no reader takes a text apart:
    `arm` the way of training or the model, `seed` the seed of one training or draw, `layer` the layer, `other` the
    second layer of a pair, or the position of the layer, `part` a half of a layer (`attn`, `mlp`) or a kind of weight,
    `plan` the plan's text, `condition` what was done or under which circumstances (an intervention, a setting, a
    phase), `amount` how much of it (layers skipped, a learning rate, steps), and `against` what the value is compared
    with: another arm, or a null. What does not apply is `None`.

    `claim` is the published claim that a contrast decides. All columns but the number and its interval are named:

    >>> Score("healing", "nll", 2.5, 2.4, 2.6, arm="lora", seed=1).arm
    'lora'
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
    arm: str | None = None
    seed: int | None = None
    layer: Count | None = None
    other: Count | None = None
    part: str | None = None
    plan: str | None = None
    condition: str | None = None
    amount: Finite | None = None
    against: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What no two rows of a measure share: everything but the numbers."""
        return tuple(getattr(self, name) for name in KEY)


KEY = ("claim", "task", "metric", "arm", "seed", "layer", "other", "part", "plan", "condition", "amount", "against")
"""The columns that tell one number of a measure from another."""


def row_name(kind: type, cells: Mapping[str, object]) -> str:
    """What an error calls the row of a kind with these cells: by the columns that are not empty.

    >>> row_name(Score, {"metric": "nll", "arm": "lora", "seed": 1, "task": "all"})
    "the score 'nll' of arm 'lora', seed 1 (task 'all')"
    """
    short = {name: repr(cell if not isinstance(cell, str) else cell[:60]) for name, cell in cells.items()}
    if kind is Loss:
        return "plan {plan} on window {window} of document {document} (task {task})".format_map(short)
    if kind is Score:
        named = (name for name in KEY if name not in ("task", "metric") and cells.get(name) not in (None, ""))
        columns = ", ".join(f"{name} {short[name]}" for name in named) or "all"
        return f"the score {short['metric']} of {columns[:200]} (task {short['task']})"
    return f"the record of plan {short['plan']}" if kind is PlanRecord else "a note"


@dataclass(frozen=True, slots=True)
class Note:
    """What `measure` had to leave out, and why, in a sentence a reader of the report understands."""

    measure: str
    text: str


@dataclass(frozen=True, slots=True)
class Continuation:
    """The text that greedy decoding under `plan` adds to `prompt`.

    `tokens` were generated, of which `same` are those that the model as trained generates there.
    """

    plan: str
    prompt: str
    text: str
    tokens: int
    same: int

    def note(self) -> Note:
        """The continuation as a note of its run.

        >>> Continuation("0-3", "a b", " c", 1, 1).note().text
        '{"plan":"0-3","prompt":"a b","text":" c","tokens":1,"same":1}'
        """
        return Note(CONTINUATION, msgspec.json.encode(self).decode())


def read_continuations(notes: Iterable[Note]) -> tuple[Continuation, ...]:
    """The continuations among the notes of a run; a note of another form is passed over."""
    kept = []
    for note in notes:
        if note.measure == CONTINUATION:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
                kept.append(msgspec.json.decode(note.text, type=Continuation))
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """Why a plan is in a sweep, and what it costs: one row per (family, plan) in the store.

    `strategy` is the curve it belongs to (`skip`, `reverse`, ...), `affected` its position on the axis (the number of
    layers the strategy touches), `draw` the seed of a random order. `evaluations` counts layer evaluations, `stages`
    sequential ones, `weights` distinct layers touched, `slots` KV slots.
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


def main_metric(metrics: Iterable[str]) -> str | None:
    """The one of `metrics`, in lm-eval's order, that the benchmark is judged by; `None` without a share of right
    answers.

    >>> main_metric(["acc", "acc_norm"]), main_metric(["exact_match/strict-match", "exact_match/flexible-extract"])
    ('acc_norm', 'exact_match/strict-match')
    >>> main_metric(["perplexity"]) is None
    True
    """
    present = tuple(metrics)
    return next((metric for name in MAIN for metric in present if metric.split("/")[0] == name), None)
