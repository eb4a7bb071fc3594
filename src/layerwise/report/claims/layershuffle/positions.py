"""Two claims of the LayerShuffle paper about positions: that a layer knows where it stands, and what that is worth."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, Span, unlearned
from layerwise.report.claims.contrasts import NULLS, contrasts
from layerwise.report.claims.layershuffle.shares import (
    NOT_LEARNED,
    TOO_FEW,
    not_above_chance,
    points,
    undecided,
)
from layerwise.report.claims.power import beside_bound, more, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import fixed, tidy
from layerwise.report.page.wording import listed

PUBLISHED, SHORT = 0.9999, 0.02
GAIN = 0.03
ARMS = ("layershuffle-position", "layershuffle-predict")

POSITIONS = Published(
    "positions",
    "Layers know where they stand",
    "A layer that was trained to predict its position from its output is right in 99.99 % of the cases.",
    "arXiv 2407.04513v1, section 4 (LayerShuffle-predict)",
    "The null is a linear probe of models that were trained in order, fitted to the positions of their layers after the"
    " training: what it reads takes no training for any order. Supported: the accuracy is within 2 points of 99.99 %,"
    " and that of every probe falls short of it by more. Explained by the null: it is within 2 points, and so is a"
    " probe. Contradicted: it falls short by more than 2 points. Each is read off a 95 % interval over seeds and"
    " batches of test examples. Not resolvable where the accuracy is not shown to be above chance, one in as many as"
    " there are layers: nothing has been learned.",
    "It needs the arm layershuffle-predict: layerwise robustness RUN --overwrite.",
)


def positions(evidence: Evidence) -> Claim:
    """Can a layer predict its position, and does that take training for any order?"""
    rows = contrasts(evidence, POSITIONS.key, "short")
    if rows is None:
        return POSITIONS.unmeasured()
    short, probes = rows.span("short"), rows.nulls("short")
    if short is None:
        figures = f"Layers are right in {tidy(100 * (PUBLISHED - rows.value('short')))} % of the cases."
        return POSITIONS.undecided(figures, TOO_FEW)
    beside = listed([f"a probe of {NULLS[null]} in {_right(share)} %" for null, share in probes.items()])
    side, sides = short.against(SHORT), {share.against(SHORT) for share in probes.values()}
    if side == "open":
        otherwise = f"The interval holds 97.99 %.{more(rows['short'], SHORT)}"
    elif sides:
        otherwise = "The probes hold both answers."
    else:
        otherwise = "No model trained in order was probed: train the arm baseline."
    learned = "They predict it as was published; the states of models trained in order do not."
    return POSITIONS.decided(
        f"Layers are right in {_right(short)} % of the cases{f', {beside}' if beside else ''}.",
        beside_bound(rows["short"], SHORT, "points short of the published"),
        unlearned(_above_chance(short, evidence.depth), "The prediction", "chance, one in as many as there are layers"),
        (side == "above", CONTRADICTED, "They are wrong more often than was published."),
        (side == "below" and "below" in sides, BY_NULL, "The states of a model trained in order predict it as well."),
        (side == "below" and sides == {"above"}, SUPPORTED, learned),
        otherwise=otherwise,
    )


def _right(short: Span) -> str:
    """The accuracy that falls short by so much, in per cent."""
    right = Span(PUBLISHED - short.value, PUBLISHED - short.high, PUBLISHED - short.low).inside(0.0, 1.0)
    value, low, high = (fixed(100 * end, 2) for end in (right.value, right.low, right.high))
    return f"{value} [{low}, {high}]"


def _above_chance(short: Span, layers: int) -> Span | None:
    """How far an accuracy that falls short by so much is above that of a guess among the layers."""
    if not layers:
        return None
    most = PUBLISHED - 1 / layers
    return Span(most - short.value, most - short.high, most - short.low)


POSITION_INFORMED = Published(
    "position_informed",
    "Knowing the position adds little",
    "A layer that has its position as input, or has to predict it, does about as well in random order as one that is"
    " not: 63.61 and 61.18 against 62.77 %.",
    "arXiv 2407.04513v1, Table 1",
    "Supported: in random order layershuffle-position and layershuffle-predict, those of them that were trained, are"
    " both within 3 points of layershuffle. Contradicted: one of them is more than 3 points above or below it. Each is"
    " read off a 95 % interval over seeds and images." + NOT_LEARNED.format("layershuffle in random order"),
    f"It needs layershuffle and {' or '.join(ARMS)}, on images: layerwise robustness RUN.",
)


def position_informed(evidence: Evidence) -> Claim:
    """Do models for any order gain or lose by knowing where their layers stand?"""
    arms = {
        arm: rows for arm in ARMS if (rows := contrasts(evidence, POSITION_INFORMED.key, "gain", task=arm)) is not None
    }
    if not arms:
        return POSITION_INFORMED.unmeasured()
    own = contrasts(evidence, POSITION_INFORMED.key)
    skill = own.span("random_order") if own else None
    gains = {arm: gain for arm, rows in arms.items() if (gain := rows.span("gain")) is not None}
    if skill is None or len(gains) < len(arms):
        shown = listed([f"{arm} {tidy(100 * rows.value('gain'), signed=True)}" for arm, rows in arms.items()])
        return POSITION_INFORMED.undecided(f"Against layershuffle in random order: {shown} points.", TOO_FEW)
    shown = listed([f"{arm} {points(gain)}" for arm, gain in gains.items()])
    least_known = widest(rows["gain"] for rows in arms.values())
    differs = any(gain.against(GAIN) == "above" or gain.against(-GAIN) == "below" for gain in gains.values())
    same = all(gain.position(GAIN) == "within" for gain in gains.values())
    return POSITION_INFORMED.decided(
        f"Against layershuffle in random order: {shown} points.",
        beside_bound(least_known, GAIN, "points"),
        not_above_chance(skill, "Layershuffle in random order"),
        (differs, CONTRADICTED, "Knowing the position makes a difference that counts."),
        (same, SUPPORTED, "Knowing the position makes no difference that counts."),
        otherwise=undecided(least_known, GAIN),
    )
