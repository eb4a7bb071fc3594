"""Every bar of the claims that are often repeated: rows a little to either side of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from statistics import NormalDist

from layerwise.report.claims.painters import MILD_PAIRS
from layerwise.results.rows import Score
from report.claims import bars
from report.claims.bars import NEAR, Case, Ends
from report.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED

BAND = NormalDist().inv_cdf(0.975) / sqrt(11)
"""Where the rank correlations of random orders of 12 layers lie."""
CLEAR: Ends = (0.3, 0.5)
ONE = {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN}
COSTS = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
ALSO = {"above": SUPPORTED, "below": NULL, "open": OPEN}
"""What else must cost more than the bound, where the claim is about costing less."""
LOW, HIGH = (-0.02, 0.005), (0.3, 0.5)


def vital_rows(skip: Ends, average: Ends | None = None, random: Ends = (-0.2, -0.1)) -> tuple[Score, ...]:
    changed = {} if average is None else {"average_excess": average, "average_over_random": random}
    elsewhere = bars.planted("core", {"skip_excess": CLEAR}, layer=2, other=3)
    return (*elsewhere, *bars.planted("core", {"skip_excess": skip, **changed}, layer=3, other=4))


def vital() -> Iterator[Case]:
    """The very range decides, and the published change is damage where random weights do as much."""
    zero, below = bars.beside(0.0), (-0.5, -0.3)
    yield from bars.each("vital", "skip", zero, ONE, vital_rows)
    yield Case("vital", "a little more", vital_rows((NEAR, 0.1)), SUPPORTED)
    yield Case("vital", "a little less", vital_rows((-0.1, -NEAR)), CONTRADICTED)
    damaged = {"above": NULL, "below": CONTRADICTED, "open": CONTRADICTED}
    yield from bars.each("vital", "average", zero, damaged, lambda ends: vital_rows(below, ends))
    nearly = {"above": CONTRADICTED, "below": NULL, "open": CONTRADICTED}
    yield from bars.each("vital", "random", zero, nearly, lambda ends: vital_rows(below, CLEAR, ends))
    yield Case("vital", "another depth", vital_rows(CLEAR), "not measured", depth=30)


def superfluous_rows(one: Ends, other: Ends = LOW, typical: Ends = HIGH) -> tuple[Score, ...]:
    return (
        *bars.planted("superfluous", {"delta_nll": one}, layer=5),
        *bars.planted("superfluous", {"delta_nll": other}, layer=6),
        *bars.planted("superfluous", {"typical": typical}),
    )


def repeats_rows(claim: str, least: Ends, confirmed: int, *less: Ends) -> tuple[Score, ...]:
    about = {"best": (-0.05, -0.01), "least": least, "confirmed": float(confirmed)}
    spared = {"less": less[0]} if less else {}
    plans = bars.planted(claim, {**about, "plans": 78.0, **spared})
    return tuple(replace(row, plan="0-10 11*2") if row.metric in ("best", "least") else row for row in plans)


def repeats() -> Iterator[Case]:
    """A gain of 0.01 nats is excluded or not; a gain is confirmed or not."""
    costly, excluded, possible = (NEAR, 0.1), (-0.01 + NEAR, 0.1), (-0.01 - NEAR, 0.1)
    for name, least, confirmed, verdict, damped in (
        ("all cost something", costly, 0, CONTRADICTED, NULL),
        ("one may cost nothing", (-NEAR, 0.1), 0, NULL, NULL),
        ("excluded", excluded, 0, NULL, NULL),
        ("excluded, though less is confirmed", excluded, 1, NULL, NULL),
        ("confirmed", possible, 1, SUPPORTED, SUPPORTED),
        ("possible", possible, 0, OPEN, OPEN),
    ):
        yield Case("some_repeat", name, repeats_rows("some_repeat", least, confirmed), verdict)
        yield Case("damping", name, repeats_rows("damping", least, confirmed, CLEAR), damped)
    spared = {"above": SUPPORTED, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}
    yield from bars.each(
        "damping", "less", bars.around(0.05), spared, lambda ends: repeats_rows("damping", possible, 1, ends)
    )


def below_bounds() -> Iterator[Case]:
    """What must cost little, beside what must not."""
    little, survives = bars.beside(0.05), bars.beside(0.2)
    yield from bars.each("superfluous", "one", little, COSTS, superfluous_rows)
    yield from bars.each("superfluous", "other", little, COSTS, lambda ends: superfluous_rows(LOW, ends))
    yield from bars.each("superfluous", "typical", little, ALSO, lambda ends: superfluous_rows(LOW, LOW, ends))
    halves = {"first": HIGH, "second": LOW}
    yield from bars.varied("second_half", halves, "second", little, COSTS)
    yield from bars.varied("second_half", halves, "first", little, ALSO)
    orders = {"random": LOW, "reverse": LOW, "skip": HIGH, "layers": 5.0}
    yield from bars.varied("permuted", orders, "random", survives, COSTS)
    yield from bars.varied("permuted", orders, "skip", survives, ALSO)


def searched(one: Ends, others: Ends = CLEAR, random: Ends = CLEAR, same: bool = False) -> tuple[Score, ...]:
    """Three scores and random sets; the intervals are drawn together so that they have these ends once widened."""
    wide, names = bars.wider(3), ("block_influence", "angular_distance", "sweep_effect")
    above = zip((*names, "random"), (one, others, others, random), strict=True)
    rows = []
    for name, (low, high) in above:
        middle, half = (low + high) / 2, (high - low) / 2 / (1.0 if name == "random" else wide)
        ends = (middle - half, middle + half)
        rows += bars.planted("", {"above_chosen": ends}, "report", "search", arm=name, claim=None)
    plans = {name: "0-9" if same and name == names[0] else f"0-8 {number}" for number, name in enumerate(names, 9)}
    return (
        *(row for row in rows if not (same and row.arm == names[0])),
        *(Score("search", "arm", 1.0, plan=plan, arm=name) for name, plan in plans.items()),
        Score("search", "chosen", 1.0, plan="0-9", condition="layers", against="layers=10"),
    )


def searches() -> Iterator[Case]:
    """Some score is as good, or all are worse, by 0.01 nats."""
    bound = bars.beside(0.01)
    yield from bars.each("one_shot", "one", bound, {**COSTS}, searched)
    yield from bars.each("one_shot", "random", bound, ALSO, lambda ends: searched(LOW, random=ends))
    yield Case("one_shot", "the same plan", searched(CLEAR, same=True), SUPPORTED)
    unsure = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
    yield from bars.each("one_shot", "others", bound, unsure, lambda ends: searched(CLEAR, ends))


def agreeing(*ends: Ends) -> tuple[Score, ...]:
    """The removal of each layer beside types, and beside another change that decides nothing."""
    types = ("Q4_0", "Q5_0")
    return (
        *bars.planted("layer_agreement", {"corrected": (-0.9, -0.8)}, arm="removed", against="run twice"),
        *(
            row
            for name, each in zip(types, ends, strict=False)
            for row in bars.planted("layer_agreement", {"corrected": each}, arm=f"at {name}", against="removed")
        ),
    )


def of_bits() -> Iterator[Case]:
    """Beyond what random orders of the layers give, at every type."""
    strong, weak = (0.8, 0.9), (-0.1, 0.1)
    at = bars.beside(BAND)
    yield from bars.each("few_bits", "one type", at, ALSO, agreeing)
    yield from bars.each("few_bits", "a second", at, {**ALSO, "below": OPEN}, lambda ends: agreeing(strong, ends))
    yield from bars.each(
        "few_bits", "a weak second", at, {"below": NULL, "open": OPEN}, lambda ends: agreeing(weak, ends)
    )
    low = -BAND - NEAR
    together = (low - 0.2, low)
    widened = (low - 0.1 - 0.1 / bars.wider(2), low - 0.1 + 0.1 / bars.wider(2))
    yield Case("few_bits", "reversed", agreeing(strong, widened), CONTRADICTED)
    yield Case("few_bits", "reversed by itself", agreeing(strong, together), OPEN)
    yield Case("few_bits", "no type", agreeing(), "not measured")


def ranked(loss: list[Ends], score: list[Ends]) -> tuple[Score, ...]:
    return tuple(
        row
        for claim, ends in (("shallowest", loss), ("shallowest_on_benchmarks", score))
        for (harsher, milder), each in zip(MILD_PAIRS.values(), ends, strict=False)
        for row in bars.planted(claim, {"relative": each}, condition=harsher, against=milder)
    )


def rankings() -> Iterator[Case]:
    """All eight pairs the same, one the opposite, all alike on the benchmarks."""
    above, turned, alike = [CLEAR] * 8, [(-0.05 - NEAR, -NEAR)], (-0.05 + NEAR, 0.05 - NEAR)
    rule = "loss_and_reasoning"
    yield Case(rule, "the same", ranked(above, above), SUPPORTED)
    yield Case(rule, "the same the other way", ranked(turned + above[1:], turned + above[1:]), SUPPORTED)
    yield Case(rule, "the opposite", ranked(above, turned + above[1:]), CONTRADICTED)
    yield Case(rule, "alike", ranked(above, [alike] * 8), NULL)
    yield Case(rule, "one alike", ranked(above, [alike, *above[1:]]), OPEN)
    yield Case(rule, "one open", ranked([(-NEAR, 0.5), *above[1:]], above), OPEN)
    yield Case(rule, "seven pairs", ranked(above, above[1:]), "not measured")


def routed(fixed: Ends, dealt: Ends = CLEAR, decision: str = "above") -> tuple[Score, ...]:
    gain = "accuracy_gain"
    return (
        Score("route_verdict", "margin", 0.02, condition="accuracy"),
        *bars.planted("", {decision: fixed}, "arc", "route_verdict", arm="router", claim=None),
        *bars.planted("", {gain: fixed}, "arc", "route", arm="fixed", claim=None),
        *bars.planted("", {gain: dealt}, "arc", "route", arm="permuted", claim=None),
    )


def routings() -> Iterator[Case]:
    """The gain over fixed plans counts from the margin on, and that over the plans dealt out is needed."""
    margin = bars.around(0.02)
    gain = {"above": SUPPORTED, "within": CONTRADICTED, "below": CONTRADICTED}
    yield from bars.each("each_prompt", "fixed", margin, gain, routed)
    dealt = {"within": NULL, "below": NULL, "open": OPEN, "above": OPEN}
    yield from bars.each("each_prompt", "dealt", margin, dealt, lambda ends: routed(CLEAR, ends, "unresolved"))
    unsure = {"open": OPEN}
    yield from bars.each("each_prompt", "open", margin, unsure, lambda ends: routed(ends, CLEAR, "unresolved"))


test_every_bar_is_where_it_is = bars.exact(
    vital(), below_bounds(), repeats(), searches(), of_bits(), rankings(), routings()
)
