"""The tables of a growth run, as rows of text: shared by the page, the Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from layerwise.plan.growth.layer_text import write_layers
from layerwise.report.accounts import in_nats
from layerwise.report.growth import DIFFERENCE, GROWTH, HELD_OUT, TERMS, TEST, TRAINING, UNIFORM, Growth
from layerwise.report.notation import between, fixed, probability, tidy
from layerwise.report.outlay import step_shares
from layerwise.report.tasks import Rows
from layerwise.report.tuning import tunings
from layerwise.results.rows import Score

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


def arm_rows(found: Growth, terms: Sequence[str] = tuple(TERMS), *, lengths: bool = True) -> Rows:
    """A row an arm: seeds, held-out loss, and the difference from uniform on each of the `terms` it was compared on.

    With `lengths` the other lengths of uniform stand below.
    """
    compared = [name for name in terms if found.subjects(GROWTH, DIFFERENCE, name)]
    losses = {
        arm: found.of_arm(HELD_OUT, "nll", arm, TEST) for arm in (*found.arms, *(found.lengths if lengths else ()))
    }
    body = []
    for arm, loss in losses.items():
        scores = [found.against(arm, terms=name) for name in compared]
        if loss is not None or any(scores):
            told = ("–" if s is None else between(s.value, s.low, s.high, signed=True) for s in scores)
            body.append((arm, str(len(found.seeds.get(arm, ())) or "–"), in_nats(loss), *told))
    return Rows(("arm", "seeds", "held-out loss (nats)", *(f"Δ {TERMS[name]}" for name in compared)), tuple(body))


def difference_rows(found: Growth) -> Rows:
    """A row for each difference of two arms on each term, with where it was taken, its interval, p and limit."""
    body = []
    for name, words in TERMS.items():
        for subject, score in found.subjects(GROWTH, DIFFERENCE, name).items():
            at = found.score(GROWTH, "at", subject, name)
            told = between(score.value, score.low, score.high, signed=True)
            limit = "–" if score.resolution is None else tidy(score.resolution)
            p = probability(score.p), probability(score.p_adjusted)
            body.append((subject, words, "–" if at is None else large(at.value), told, *p, limit))
    head = ("arms", "terms", "at", "difference (nats)", "p", "adjusted p", "detectable above (nats)")
    return Rows(head, tuple(body))


def cost_rows(found: Growth) -> Rows:
    """A row an arm: what its training took, the mean over seeds, its FLOPs also as a share of uniform's."""
    arms = (*found.arms, *found.lengths)
    costs = {metric: {arm: found.of_arm(TRAINING, metric, arm) for arm in arms} for metric in COSTS}
    shown = {metric: of for metric, of in costs.items() if any(of.values())}
    budget = costs["flops"].get(UNIFORM)
    body = []
    for arm in arms:
        cells = tuple(_spent(metric, of[arm], budget) for metric, of in shown.items())
        body += [(arm, *cells)] if set(cells) != {"–"} else []
    return Rows(("arm", *(COSTS[metric] for metric in shown)), tuple(body))


def phase_rows(found: Growth) -> Rows:
    """A row a phase: its steps, what learns in it, and what its step takes, predicted and measured."""
    body = []
    for arm in (*found.arms, *found.lengths):
        predicted, measured = (step_shares(found, arm, metric) for metric in ("predicted", "measured"))
        for phase in found.phases(arm):
            shares = [of.get(phase) for of in (predicted, measured)]
            told = ["–" if score is None else fixed(score.value, 3) for score in shares]
            off = (
                f"{fixed(100.0 * (shares[1].value / shares[0].value - 1.0), 1, signed=True)} %"
                if shares[0] is not None and shares[1] is not None and shares[0].value > 0.0
                else "–"
            )
            learns = learning(found.shares(arm, phase))
            body.append((arm, phase.name, f"{phase.first:,}–{phase.end - 1:,}", learns, *told, off))
    head = ("arm", "phase", "steps", "learns", "FLOPs of a step", "time of a step", "off by")
    return Rows(head, tuple(body))


def rate_rows(found: Growth) -> Rows:
    """A row for each learning rate that was tried."""
    body = tuple(
        (tuning.arm, f"{rate:g}", in_nats(score), "chosen" if rate == tuning.chosen else "")
        for tuning in tunings(found)
        for rate, score in tuning.losses.items()
    )
    return Rows(("arm", "learning rate", "validation loss (nats)", ""), body)


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
