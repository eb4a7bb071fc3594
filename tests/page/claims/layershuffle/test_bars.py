"""Every threshold of the LayerShuffle findings is exact."""

from collections.abc import Iterator

import pytest

from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import FAR, NEAR, NEGATIVE, SUPPORTED_ABOVE, TWO_SIDED, Case, Interval, Rows
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NULL, SUPPORTED, judge_rows

GOOD: Interval = (0.6, 0.8)
SKILL = bars.place_around_bound(0.05)


def ordered(in_order: Interval = GOOD) -> tuple[Score, ...]:
    return bars.plant_rows("collapse", {"in_order": in_order, "random_order": (0.0, 0.02)})


def shuffled(random_order: Interval = GOOD) -> tuple[Score, ...]:
    return bars.plant_rows("position_informed", {"random_order": random_order})


def trainings() -> Iterator[Case]:
    cheap: Rows = {"cost": (0.1, 0.2), "gain_above@baseline": GOOD, "gain_above@sequential": GOOD}
    spared: Rows = {"lost": (0.3, 0.4), "spared_above@baseline": GOOD, "spared_above@sequential": GOOD}
    yield from bars.vary_metric("trained_order", cheap, "cost", bars.place_around_bound(0.25), NEGATIVE, ordered())
    for null in ("baseline", "sequential"):
        yield from bars.vary_metric(
            "trained_order", cheap, f"gain_above@{null}", bars.place_around_margin(0.05), TWO_SIDED, ordered()
        )
        yield from bars.vary_metric(
            "pruning", spared, f"spared_above@{null}", bars.place_around_margin(0.1), TWO_SIDED, ordered()
        )

    for rule, rows in (("trained_order", cheap), ("pruning", spared), ("collapse", {})):
        own = bars.plant_rows(rule, rows)
        yield from bars.vary_interval(
            rule, "in order", SKILL, SUPPORTED_ABOVE, lambda ends, own=own: (*own, *ordered(ends))
        )  # type: ignore[misc]
    # A model that learned nothing contradicts nothing.
    dear = bars.plant_rows("trained_order", {**cheap, "cost": (0.3, 0.4)})
    turned = {**SUPPORTED_ABOVE, "above": CONTRADICTED}
    yield from bars.vary_interval("trained_order", "dear", SKILL, turned, lambda ends: (*dear, *ordered(ends)))
    yield Case("trained_order", "no baseline in order", bars.plant_rows("trained_order", cheap), INCONCLUSIVE)
    yield from bars.vary_metric("collapse", {"in_order": GOOD, "random_order": GOOD}, "random_order", SKILL, NEGATIVE)


def merged() -> Iterator[Case]:
    rows: Rows = {"loss": (0.0, 0.01), "loss@baseline": (0.2, 0.3), "skill": GOOD, "skill@baseline": GOOD}
    yield from bars.vary_metric("merging", rows, "loss", SKILL, NEGATIVE)
    yield from bars.vary_metric("merging", rows, "loss@baseline", SKILL, {**SUPPORTED_ABOVE, "below": NULL})
    for skill in ("skill", "skill@baseline"):
        yield from bars.vary_metric("merging", rows, skill, SKILL, SUPPORTED_ABOVE)
    alone = {metric: ends for metric, ends in rows.items() if "@" not in metric}
    yield Case("merging", "no null", bars.plant_rows("merging", alone), INCONCLUSIVE)


def predicted() -> Iterator[Case]:
    rows: Rows = {"short": (0.0, 0.01), "short@baseline": (0.3, 0.4), "short@sequential": (0.3, 0.4)}
    inside = {
        "above": [(0.02 + NEAR, 0.5)],
        "below": bars.place_around_bound(0.02)["below"],
        "open": [(0.02 - NEAR, 0.5), (-0.01, 0.02 + NEAR)],
    }
    yield from bars.vary_metric("positions", rows, "short", inside, NEGATIVE)
    where = {"above": (0.02 + NEAR, FAR), "open": (0.02 - NEAR, FAR), "below": (-FAR, 0.02 - NEAR)}
    for first in where:
        for other in where:
            pair = {"short@baseline": where[first], "short@sequential": where[other]}
            verdict = NULL if "below" in (first, other) else SUPPORTED if first == other == "above" else INCONCLUSIVE
            yield Case("positions", f"probes {first} {other}", bars.plant_rows("positions", {**rows, **pair}), verdict)
    # With 12 layers chance is 1/12; six training steps gave no more.
    for chance, verdict in ((1 / 12 + NEAR, CONTRADICTED), (1 / 12 - NEAR, INCONCLUSIVE)):
        ends = (0.5, 0.9999 - chance)
        yield Case("positions", f"chance {verdict}", bars.plant_rows("positions", {**rows, "short": ends}), verdict)


CONTRADICTING: dict[str, tuple[tuple[Score, ...], str]] = {
    "trained_order": (
        (*bars.plant_rows("trained_order", {"cost": (0.3, 0.4), "gain_above@baseline": GOOD}), *ordered(), *shuffled()),
        "layershuffle",
    ),
    "pruning": (
        (*bars.plant_rows("pruning", {"lost": GOOD, "spared_above@baseline": (-0.6, -0.4)}), *ordered(), *shuffled()),
        "layershuffle",
    ),
    "positions": (bars.plant_rows("positions", {"short": (0.5, 0.6), "short@baseline": GOOD}), "layershuffle-predict"),
    "merging": (bars.plant_rows("merging", {"loss": (0.2, 0.3), "skill": GOOD}), "layershuffle"),
    "collapse": (bars.plant_rows("collapse", {"in_order": GOOD, "random_order": GOOD}), "baseline"),
}
"""Rows that contradict each claim, and the variant whose training it is about."""

test_an_unfinished_training_contradicts_nothing = bars.make_unfinished_test(CONTRADICTING)


@pytest.mark.parametrize("rule", ["trained_order", "pruning"])
@pytest.mark.parametrize(("skill", "verdict"), [((0.05 + NEAR, FAR), CONTRADICTED), ((0.05 - NEAR, FAR), INCONCLUSIVE)])
def test_a_variant_at_chance_contradicts_nothing(rule: str, skill: Interval, verdict: str) -> None:
    rows = tuple(row for row in CONTRADICTING[rule][0] if row.claim != "position_informed")
    assert judge_rows(rule, (*rows, *shuffled(skill)), 12).verdict == verdict


test_every_threshold_is_exact = bars.make_exact_test(trainings(), merged(), predicted())


collapsed = bars.plant_rows("collapse", {"in_order": GOOD, "random_order": (0.62, 1.08)})
WIDE: Interval = (-1.46, 2.46)


@pytest.mark.parametrize(
    ("rule", "rows", "shown"),
    [
        ("positions", bars.plant_rows("positions", {"short": (0.9999 - 0.4476, 0.9999 + 0.2654)}), "[55.2, 100.0]"),
        (
            "trained_order",
            (*bars.plant_rows("trained_order", {"cost": WIDE, "gain_above@baseline": (-1.55, 1.85)}), *ordered()),
            "50 [−100, 100] percentage points",
        ),
        (
            "collapse",
            (Score("robustness", "accuracy", 0.1, against="chance"), *collapsed),
            "85.0 [62.0, 90.0] points above chance",
        ),
        ("merging", bars.plant_rows("merging", {"loss": WIDE, "skill": GOOD, "loss@baseline": WIDE}), "50 [−100, 100]"),
    ],
)
def test_printed_intervals_are_limited_to_possible_values(rule: str, rows: tuple[Score, ...], shown: str) -> None:
    """Two seeds gave accuracies of -26.54 % and costs of 197 points."""
    finding = judge_rows(rule, rows, 12)
    assert shown in f"{finding.answer} {finding.number}"
