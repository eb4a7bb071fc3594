"""The tidy rows that every measurement returns and the run store keeps: one row, one observation.

`Loss` is raw: one plan on one window of one document. `Score` is derived: one number with its interval.
`PlanRecord` says why a plan is in a sweep; a `Note` says in words what a measurement had to leave out.
A `Continuation` is a text that a model wrote. All of them are
frozen values of plain Python types, so they cross process and disk boundaries as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BENCHMARK_TASK = "benchmark/"
"""How the task of a `Loss` begins that is no text but what a benchmark asks for: `benchmark/NAME` is how likely a
continuation is, `benchmark/NAME/METRIC` whether a document was answered right (`hits` of 1 token, `nll` 0)."""


UNIFORM = "uniform_nll"
"""The metric, of measure `run`, that says what guessing every token of the vocabulary alike loses: nats per token."""

NORMALISED = "normalised_"
"""How the metrics begin on the scale from chance, 0, to the model as trained, 1."""

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
    nll: float
    tokens: int
    hits: int


@dataclass(frozen=True, slots=True)
class Score:
    """One number with the evidence beside it.

    `measure` is the noun of the measurement (`effect`, `similarity`, `benchmark`), `subject` what it is about (a plan,
    a layer, a pair of layers `3,7`), `metric` the quantity with its unit in the name's documentation. `low` and `high`
    bound the interval, `p` is two-sided, `p_adjusted` corrected over its family, `mde` the minimum detectable
    effect. What does not apply is `None`.
    """

    measure: str
    subject: str
    task: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    mde: float | None = None
    documents: int | None = None
    tokens: int | None = None


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
    affected: int
    draw: int | None
    evaluations: int
    stages: int
    weights: int
    slots: int


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
