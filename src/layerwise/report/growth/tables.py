"""The tables of a growth run, as rows of text: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from layerwise.report.growth.learning_rates import tunings
from layerwise.report.growth.lookup import DIFFERENCE, GROWTH, HELD_OUT, TERMS, TEST, TRAINING, UNIFORM, GrowthScores
from layerwise.report.growth.training_cost import step_shares
from layerwise.report.kinds.pretraining import LOSS
from layerwise.report.page.number_format import between, fixed, probability, tidy
from layerwise.report.page.table import Table
from layerwise.results.rows import Score
from layerwise.schedule.layer_text import write_layers

COSTS: dict[str, str] = {
    "steps": "steps",
    "tokens": "tokens",
    "flops": "FLOPs",
    "seconds": "seconds, all",
    "step_seconds": "step (ms)",
    "peak_bytes": "peak memory (MiB)",
    "parameters": "parameters",
}
SCALES = {"step_seconds": 1000.0, "peak_bytes": 1 / 2**20}
FULL = 0.999  # a share from here on is the full cost: sums of floats are not exact
PARTS = ("embedding", "head")
STATES: dict[float, str] = {
    1.0: "learns",
    2 / 3: "frozen, above something that learns",
    1 / 3: "frozen, nothing below it learns",
    0.0: "absent, or its states are cached",
}
"""What a layer does in a phase, by the share of its full cost: forward 1, input gradient 1, weight gradient 1."""


def arm_rows(run: GrowthScores, terms: Sequence[str] = tuple(TERMS), *, lengths: bool = True) -> Table:
    """A row an arm: seeds, held-out loss, and the difference from uniform on each of the `terms` it was compared on.

    With `lengths` the other lengths of uniform and of an arm stand below.
    """
    compared = [name for name in terms if run.subjects(GROWTH, DIFFERENCE, name)]
    losses = {arm: run.of_arm(HELD_OUT, "nll", arm, TEST) for arm in (*run.arms, *(run.lengths if lengths else ()))}
    body = []
    for arm, loss in losses.items():
        scores = [run.against(arm, terms=name) for name in compared]
        if loss is not None or any(scores):
            shown = ("–" if s is None else between(s.value, s.low, s.high, signed=True) for s in scores)
            body.append((arm, str(len(run.seeds.get(arm, ())) or "–"), LOSS.text(loss), *shown))
    return Table(("arm", "seeds", "held-out loss (nats)", *(f"Δ {TERMS[name]}" for name in compared)), tuple(body))


def difference_rows(run: GrowthScores) -> Table:
    """A row for each difference of two arms on each term, with where it was taken, its interval, p and limit."""
    body = []
    for name, words in TERMS.items():
        for subject, score in run.subjects(GROWTH, DIFFERENCE, name).items():
            at = run.score(GROWTH, "at", subject, name)
            shown = between(score.value, score.low, score.high, signed=True)
            limit = "–" if score.mde is None else tidy(score.mde)
            p = probability(score.p), probability(score.p_adjusted)
            body.append((subject, words, "–" if at is None else large(at.value), shown, *p, limit))
    head = ("arms", "terms", "at", "difference (nats)", "p", "adjusted p", "detectable above (nats)")
    return Table(head, tuple(body), numeric_from=2)


def cost_rows(run: GrowthScores) -> Table:
    """A row an arm: what its training took, the mean over seeds, its FLOPs also as a share of uniform's."""
    arms = (*run.arms, *run.lengths)
    costs = {metric: {arm: run.of_arm(TRAINING, metric, arm) for arm in arms} for metric in COSTS}
    shown = {metric: of for metric, of in costs.items() if any(of.values())}
    budget = costs["flops"].get(UNIFORM)
    body = []
    for arm in arms:
        cells = tuple(_spent(metric, of[arm], budget) for metric, of in shown.items())
        body += [(arm, *cells)] if set(cells) != {"–"} else []
    return Table(("arm", *(COSTS[metric] for metric in shown)), tuple(body))


def phase_rows(run: GrowthScores) -> Table:
    """A row a phase: its steps, what learns in it, and what its step takes, predicted and measured."""
    body = []
    for arm in (*run.arms, *run.lengths):
        predicted, measured = (step_shares(run, arm, metric) for metric in ("predicted", "measured"))
        for phase in run.phases(arm):
            shares = [of.get(phase) for of in (predicted, measured)]
            shown = ["–" if score is None else fixed(score.value, 3) for score in shares]
            off = (
                f"{fixed(100.0 * (shares[1].value / shares[0].value - 1.0), 1, signed=True)} %"
                if shares[0] is not None and shares[1] is not None and shares[0].value > 0.0
                else "–"
            )
            learns = learning(run.shares(arm, phase))
            body.append((arm, phase.name, f"{phase.first:,}–{phase.end - 1:,}", learns, *shown, off))
    head = ("arm", "phase", "steps", "learns", "FLOPs of a step", "time of a step", "off by")
    return Table(head, tuple(body), numeric_from=4)


def rate_rows(run: GrowthScores) -> Table:
    """A row for each learning rate that was tried."""
    body = tuple(
        (tuning.arm, f"{rate:g}", LOSS.text(score), "chosen" if rate == tuning.chosen else "")
        for tuning in tunings(run)
        for rate, score in tuning.losses.items()
    )
    return Table(("arm", "learning rate", "validation loss (nats)", ""), body, numeric_from=4)


def learning(shares: Mapping[str, float]) -> str:
    """What learns in a phase, from the shares of its parts; where layers are drawn at random, what they cost on
    average.

    >>> learning({"0": 2 / 3, "1": 1.0, "2": 1.0, "3": 1.0, "embedding": 1.0, "head": 1.0})
    'layers 1-3, embedding, head'
    >>> learning({"0": 0.9, "1": 0.7})
    'layers at random, 0.80 of their full cost'
    """
    layers = {int(part): share for part, share in shares.items() if part.isdecimal()}
    learns = tuple(layer for layer, share in sorted(layers.items()) if share >= FULL)
    named = [f"layers {write_layers(learns)}"] if learns else []
    if any(state_of(share) is None for share in layers.values()):
        named = [f"layers at random, {fixed(fmean(layers.values()), 2)} of their full cost"]
    return ", ".join([*named, *(part for part in PARTS if shares.get(part, 0.0) >= FULL)]) or "nothing"


def state_of(share: float) -> str | None:
    """What a share of the full cost means, `None` where it is an average over drawn layers.

    >>> state_of(2 / 3), state_of(0.8)
    ('frozen, above something that learns', None)
    """
    return next((words for known, words in STATES.items() if abs(share - known) < 1.0 - FULL), None)


def large(value: float) -> str:
    """A number that may be astronomical: from a thousand million on with a power of ten.

    >>> large(2764800.0), large(3.21e13), large(0.125)
    ('2,764,800', '3.21×10^13', '0.125')
    """
    if abs(value) < 1e9:
        return tidy(value)
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10^{int(exponent)}".replace("-", "−")


def _spent(metric: str, score: Score | None, budget: Score | None) -> str:
    """A cost in the unit of its column, FLOPs also as a share of uniform's."""
    if score is None:
        return "–"
    shown = large(SCALES.get(metric, 1.0) * score.value)
    if metric != "flops" or budget is None or budget.value <= 0.0:
        return shown
    return f"{shown} [{fixed(100.0 * score.value / budget.value, 1)} %]"
