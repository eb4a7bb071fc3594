"""Every bar of the claims of LayerShuffle: rows a little to either side of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.results.rows import Score
from report.claims.bars import (
    CONTRADICTED,
    FAR,
    NEAR,
    NULL,
    OPEN,
    SUPPORTED,
    Case,
    Ends,
    Rows,
    around,
    beside,
    parametrized,
    planted,
    varied,
)
from report.claims.truths import claim_of

GOOD: Ends = (0.6, 0.8)
LEARNED = planted("collapse", {"in_order": GOOD, "random_order": (0.0, 0.02)})
"""A baseline that is far above chance in order."""
SHUFFLED = planted("position_informed", {"random_order": GOOD})
"""A layershuffle that is far above chance in random order."""
NOT_LEARNED = {"above": SUPPORTED, "below": OPEN, "open": OPEN}
"""What becomes of a claim that is supported, by where the skill lies beside 5 points above chance."""
WRONG_SIDE = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
PROBES = ("above", "open", "below")


def trainings() -> Iterator[Case]:
    """Random order, collapse and pruning, beside one arm trained in order or two."""
    cheap: Rows = {"cost": (0.1, 0.2), "gain_above@baseline": GOOD, "gain_above@sequential": GOOD}
    yield from varied("trained_order", cheap, "cost", beside(0.25), WRONG_SIDE, LEARNED)
    gain = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": OPEN}
    for null in ("baseline", "sequential"):
        yield from varied("trained_order", cheap, f"gain_above@{null}", around(0.05), gain, LEARNED)

    spared: Rows = {"lost": (0.3, 0.4), "spared_above@baseline": GOOD, "spared_above@sequential": GOOD}
    for null in ("baseline", "sequential"):
        yield from varied("pruning", spared, f"spared_above@{null}", around(0.1), gain, LEARNED)

    for position, verdict in NOT_LEARNED.items():
        for number, ends in enumerate(beside(0.05)[position]):
            skill = planted("collapse", {"in_order": ends, "random_order": (0.0, 0.02)})
            name = f"in order {position} {number}"
            yield Case("trained_order", name, (*planted("trained_order", cheap), *skill), verdict)
            yield Case("pruning", name, (*planted("pruning", spared), *skill), verdict)
            yield Case("collapse", name, skill, verdict)
            # What looks contradicted is not, where nothing has learned.
            dear = planted("trained_order", {**cheap, "cost": (0.3, 0.4)})
            turned = CONTRADICTED if verdict == SUPPORTED else OPEN
            yield Case("trained_order", f"dear {name}", (*dear, *skill), turned)
    yield Case("trained_order", "no baseline in order", planted("trained_order", cheap), OPEN)
    kept: Rows = {"in_order": GOOD, "random_order": GOOD}
    yield from varied("collapse", kept, "random_order", beside(0.05), WRONG_SIDE)


def merged() -> Iterator[Case]:
    """A loss of five points, of models that have something to lose."""
    rows: Rows = {"loss": (0.0, 0.01), "loss@baseline": (0.2, 0.3), "skill": GOOD, "skill@baseline": GOOD}
    yield from varied("merging", rows, "loss", beside(0.05), WRONG_SIDE)
    rival = {"above": SUPPORTED, "below": NULL, "open": OPEN}
    yield from varied("merging", rows, "loss@baseline", beside(0.05), rival)
    for skill in ("skill", "skill@baseline"):
        yield from varied("merging", rows, skill, beside(0.05), NOT_LEARNED)
    alone = {metric: ends for metric, ends in rows.items() if "@" not in metric}
    yield Case("merging", "no null", planted("merging", alone), OPEN)


def informed() -> Iterator[Case]:
    """Three points more or less, of models that have learned."""
    for position, verdict in NOT_LEARNED.items():
        for number, ends in enumerate(beside(0.05)[position]):
            rows = planted("position_informed", {"random_order": ends})
            gain = planted("position_informed", {"gain": (-0.01, 0.01)}, "layershuffle-predict")
            yield Case("position_informed", f"skill {position} {number}", (*rows, *gain), verdict)
    gains = [
        ((-0.03 + NEAR, 0.03 - NEAR), SUPPORTED), ((-0.03 - NEAR, 0.03 - NEAR), OPEN), ((0.0, 0.03 + NEAR), OPEN),
        ((0.03 + NEAR, FAR), CONTRADICTED), ((-FAR, -0.03 - NEAR), CONTRADICTED), ((0.03 - NEAR, FAR), OPEN),
    ]  # fmt: skip
    for arm in ("layershuffle-predict", "layershuffle-position"):
        for ends, verdict in gains:
            rows = planted("position_informed", {"gain": ends}, arm)
            yield Case("position_informed", f"{arm} {ends}", (*SHUFFLED, *rows), verdict)


def predicted() -> Iterator[Case]:
    """Two points short of the published accuracy; every probe must fall short, and the accuracy be above chance."""
    rows: Rows = {"short": (0.0, 0.01), "short@baseline": (0.3, 0.4), "short@sequential": (0.3, 0.4)}
    short = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
    inside = {position: list(beside(0.02)[position]) for position in short}
    inside["above"] = [(0.02 + NEAR, 0.5)]
    inside["open"] = [(0.02 - NEAR, 0.5), (-0.01, 0.02 + NEAR)]
    yield from varied("positions", rows, "short", inside, short)
    # All probes fall short, or one reaches it, or one is open: every pair of them.
    where = {"above": (0.02 + NEAR, FAR), "below": (-FAR, 0.02 - NEAR), "open": (0.02 - NEAR, FAR)}
    for first in PROBES:
        for other in PROBES:
            pair = {"short@baseline": where[first], "short@sequential": where[other]}
            verdict = NULL if "below" in (first, other) else SUPPORTED if first == other == "above" else OPEN
            yield Case("positions", f"probes {first} {other}", planted("positions", {**rows, **pair}), verdict)
    # Of 12 layers a guess is right in a twelfth of the cases; six steps of training showed no more.
    for chance, verdict in ((1 / 12 + NEAR, CONTRADICTED), (1 / 12 - NEAR, OPEN)):
        ends = (0.5, 0.9999 - chance)
        yield Case("positions", f"chance {verdict}", planted("positions", {**rows, "short": ends}), verdict)


def quiet() -> Iterator[Case]:
    """A relation of 0.3, a p-value of 0.05, and a tenth beside the worth of other layers."""
    rows: Rows = {"relation": GOOD, "above_other_layers": GOOD, "relation@baseline": (-0.1, 0.1)}

    def with_p(p: float | None, **more: Ends) -> tuple[Score, ...]:
        own = planted("switching_off", {**rows, **more})
        return (*(replace(row, p=p) if row.metric == "relation" else row for row in own), *SHUFFLED)

    def case(name: str, verdict: str, p: float | None = 0.01, **more: Ends) -> Case:
        return Case("switching_off", name, with_p(p, **more), verdict)

    yield from (case("p below", SUPPORTED, 0.05 - NEAR), case("p above", OPEN, 0.05 + NEAR), case("no p", OPEN, None))
    for position, verdict in {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN}.items():
        for number, ends in enumerate(beside(0.3)[position]):
            yield case(f"relation {position} {number}", verdict, relation=ends)
    for position, verdict in {"above": NULL, "below": SUPPORTED, "open": OPEN}.items():
        for number, ends in enumerate(beside(0.3)[position]):
            yield case(f"baseline {position} {number}", verdict, **{"relation@baseline": ends})
    other = [((NEAR, 0.1 + NEAR), SUPPORTED), ((-NEAR, 0.1 + NEAR), OPEN), ((NEAR, 0.1 - NEAR), NULL),
             ((-0.1 + NEAR, 0.1 - NEAR), NULL), ((-0.1 - NEAR, 0.1 - NEAR), OPEN), ((-0.2, -0.15), OPEN)]  # fmt: skip
    for ends, verdict in other:
        yield case(f"other layers {ends}", verdict, above_other_layers=ends)
    for position, verdict in NOT_LEARNED.items():
        for number, ends in enumerate(beside(0.05)[position]):
            skill = planted("position_informed", {"random_order": ends})
            own = tuple(row for row in with_p(0.01) if row.subject == "switching_off")
            yield Case("switching_off", f"skill {position} {number}", (*own, *skill), verdict)


@parametrized([*trainings(), *merged(), *informed(), *predicted(), *quiet()])
def test_every_bar_of_layershuffle_is_where_it_is(case: Case) -> None:
    case.check()


def test_no_interval_leaves_what_a_number_can_be() -> None:
    """Two seeds once gave "right in 9.11 [-26.54, 44.76] % of the cases" and rank correlations beyond -1 and 1."""
    six_steps = claim_of("positions", planted("positions", {"short": (0.9999 - 0.4476, 0.9999 + 0.2654)}), 12)
    assert "Layers are right in 9.11 [0.00, 44.76] % of the cases" in six_steps.figures
    assert six_steps.verdict == OPEN
    assert "what has not learned decides nothing" in six_steps.why
    relations = planted(
        "switching_off", {"relation": (-1.7, 0.9), "above_other_layers": GOOD, "relation@baseline": (-3.0, 3.0)}
    )
    said = claim_of("switching_off", (*relations, *SHUFFLED), 12).figures
    assert "is worth at −0.40 [−1.00, 0.90]," in said
    assert "the baseline 0.00 [−1.00, 1.00]." in said
