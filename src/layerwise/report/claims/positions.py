"""Two claims of the LayerShuffle paper about places: that a layer knows where it stands, and what that is worth."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published, Span
from layerwise.report.claims.trained import (
    NULLS,
    TOO_FEW,
    against,
    contrast,
    hundredths,
    interval,
    more,
    nulls,
    told_from,
)
from layerwise.report.data import Evidence
from layerwise.report.notation import fixed, tidy
from layerwise.report.wording import listed

PUBLISHED, SHORT = 0.9999, 0.02
GAIN, NEAR_CHANCE = 0.03, 0.05
ARMS = ("layershuffle-position", "layershuffle-predict")

POSITIONS = Published(
    "positions",
    "Layers know where they stand",
    "A layer that was trained to tell its position from its output is right in 99.99 % of the cases.",
    "arXiv 2407.04513v1, section 4 (LayerShuffle-predict)",
    "The null is a linear probe of models that were trained in order, fitted to the positions of their layers after the"
    " training: what it reads takes no training for any order. Supported: the accuracy is within 2 points of 99.99 %,"
    " and that of every probe falls short of it by more. Explained by the null: it is within 2 points, and so is a"
    " probe. Contradicted: it falls short by more than 2 points. Each is read off a 95 % interval over seeds and"
    " batches of test examples.",
)


def positions(evidence: Evidence) -> Claim:
    """Can a layer tell its position, and does that take training for any order?

    - supported: it tells it as was published, and the probes of models trained in order do not.
    - explained by the null: it does, and so does a probe.
    - contradicted: it falls short of what was published by more than counts.
    - not resolvable: an interval holds both answers, or no model trained in order was probed.
    """
    score = contrast(evidence, POSITIONS.key, "short")
    short = interval(evidence, POSITIONS.key, "short")
    probes = nulls(evidence, POSITIONS.key, "short")
    if score is None:
        return POSITIONS.unmeasured("It needs the arm layershuffle-predict: layerwise robustness RUN --fresh.")
    if short is None:
        figures = f"Layers are right in {tidy(100 * (PUBLISHED - score.value))} % of the cases."
        return POSITIONS.claim("not resolvable", figures, TOO_FEW)
    told = listed([f"a probe of {NULLS[null]} in {_right(of)} %" for null, of in probes.items()])
    figures = f"Layers are right in {_right(short)} % of the cases{f', {told}' if told else ''}."
    power = told_from(score, SHORT, "points short of the published")
    if against(short, SHORT) == "above":
        return POSITIONS.claim("contradicted", figures, "They are wrong more often than was published.", power)
    if against(short, SHORT) == "open":
        return POSITIONS.claim("not resolvable", figures, f"The interval holds 97.99 %.{more(score, SHORT)}", power)
    sides = {against(of, SHORT) for of in probes.values()}
    if "below" in sides:
        why = "The states of a model trained in order tell it as well."
        return POSITIONS.claim("explained by the null", figures, why, power)
    if sides == {"above"}:
        why = "They tell it as was published; the states of models trained in order do not."
        return POSITIONS.claim("supported", figures, why, power)
    why = "The probes hold both answers." if sides else "No model trained in order was probed: train the arm baseline."
    return POSITIONS.claim("not resolvable", figures, why, power)


def _right(short: Span) -> str:
    """The accuracy that falls short by so much, in per cent."""
    ends = (PUBLISHED - short.value, PUBLISHED - short.high, min(1.0, PUBLISHED - short.low))
    value, low, high = (fixed(100 * end, 2) for end in ends)
    return f"{value} [{low}, {high}]"


PLACES = Published(
    "places",
    "Knowing the place adds little",
    "A layer that is told its position, or has to tell it, does about as well in any order as one that is not: 63.61"
    " and 61.18 against 62.77 %.",
    "arXiv 2407.04513v1, Table 1",
    "Supported: in any order layershuffle-position and layershuffle-predict, those of them that were trained, are both"
    " within 3 points of layershuffle. Explained by the null: layershuffle is within 5 points of chance, so that all"
    " are alike at nothing. Contradicted: one of them is more than 3 points above or below it. Each is read off a 95 %"
    " interval over seeds and images.",
)


def places(evidence: Evidence) -> Claim:
    """Do models for any order gain or lose by knowing where their layers stand?

    - supported: every such arm is within the margin of the one that knows nothing.
    - explained by the null: that one is near chance, so there is nothing to be equal in.
    - contradicted: an arm is outside the margin.
    - not resolvable: an interval holds both answers.
    """
    scores = {arm: score for arm in ARMS if (score := contrast(evidence, PLACES.key, "gain", arm)) is not None}
    skill = interval(evidence, PLACES.key, "any_order")
    if not scores:
        why = f"It needs layershuffle and {' or '.join(ARMS)}, on images: layerwise robustness RUN."
        return PLACES.unmeasured(why)
    gains = {arm: gain for arm in scores if (gain := interval(evidence, PLACES.key, "gain", arm)) is not None}
    if skill is None or len(gains) < len(scores):
        shown = listed([f"{arm} {tidy(100 * score.value, signed=True)}" for arm, score in scores.items()])
        return PLACES.claim("not resolvable", f"Against layershuffle in any order: {shown} points.", TOO_FEW)
    shown = listed([f"{arm} {hundredths(gain)}" for arm, gain in gains.items()])
    figures = f"Against layershuffle in any order: {shown} points."
    widest = max(scores.values(), key=lambda score: score.resolution or 0.0)
    power = told_from(widest, GAIN, "points")
    if skill.position(NEAR_CHANCE) == "within":
        why = "Layershuffle itself is near chance: all are alike at nothing."
        return PLACES.claim("explained by the null", figures, why, power)
    if any(against(gain, GAIN) == "above" or against(gain, -GAIN) == "below" for gain in gains.values()):
        return PLACES.claim("contradicted", figures, "Knowing the place makes a difference that counts.", power)
    if skill.low > NEAR_CHANCE and all(gain.position(GAIN) == "within" for gain in gains.values()):
        return PLACES.claim("supported", figures, "Knowing the place makes no difference that counts.", power)
    return PLACES.claim("not resolvable", figures, f"The intervals hold both answers.{more(widest, GAIN)}", power)
