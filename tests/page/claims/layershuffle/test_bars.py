"""Every threshold of the LayerShuffle findings is exact."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import EITHER, FAR, LEARNED, LESS, NEAR, Case, Ends, Rows
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED, claim_of

GOOD: Ends = (0.6, 0.8)
SKILL = bars.beside(0.05)


def ordered(in_order: Ends = GOOD) -> tuple[Score, ...]:
    return bars.planted("collapse", {"in_order": in_order, "random_order": (0.0, 0.02)})


def shuffled(random_order: Ends = GOOD) -> tuple[Score, ...]:
    return bars.planted("position_informed", {"random_order": random_order})


def trainings() -> Iterator[Case]:
    cheap: Rows = {"cost": (0.1, 0.2), "gain_above@baseline": GOOD, "gain_above@sequential": GOOD}
    spared: Rows = {"lost": (0.3, 0.4), "spared_above@baseline": GOOD, "spared_above@sequential": GOOD}
    yield from bars.varied("trained_order", cheap, "cost", bars.beside(0.25), LESS, ordered())
    for null in ("baseline", "sequential"):
        yield from bars.varied("trained_order", cheap, f"gain_above@{null}", bars.around(0.05), EITHER, ordered())
        yield from bars.varied("pruning", spared, f"spared_above@{null}", bars.around(0.1), EITHER, ordered())

    for rule, rows in (("trained_order", cheap), ("pruning", spared), ("collapse", {})):
        own = bars.planted(rule, rows)
        yield from bars.each(rule, "in order", SKILL, LEARNED, lambda ends, own=own: (*own, *ordered(ends)))  # type: ignore[misc]
    # A model that learned nothing contradicts nothing.
    dear = bars.planted("trained_order", {**cheap, "cost": (0.3, 0.4)})
    turned = {**LEARNED, "above": CONTRADICTED}
    yield from bars.each("trained_order", "dear", SKILL, turned, lambda ends: (*dear, *ordered(ends)))
    yield Case("trained_order", "no baseline in order", bars.planted("trained_order", cheap), OPEN)
    yield from bars.varied("collapse", {"in_order": GOOD, "random_order": GOOD}, "random_order", SKILL, LESS)


def merged() -> Iterator[Case]:
    rows: Rows = {"loss": (0.0, 0.01), "loss@baseline": (0.2, 0.3), "skill": GOOD, "skill@baseline": GOOD}
    yield from bars.varied("merging", rows, "loss", SKILL, LESS)
    yield from bars.varied("merging", rows, "loss@baseline", SKILL, {**LEARNED, "below": NULL})
    for skill in ("skill", "skill@baseline"):
        yield from bars.varied("merging", rows, skill, SKILL, LEARNED)
    alone = {metric: ends for metric, ends in rows.items() if "@" not in metric}
    yield Case("merging", "no null", bars.planted("merging", alone), OPEN)


def predicted() -> Iterator[Case]:
    rows: Rows = {"short": (0.0, 0.01), "short@baseline": (0.3, 0.4), "short@sequential": (0.3, 0.4)}
    inside = {
        "above": [(0.02 + NEAR, 0.5)],
        "below": bars.beside(0.02)["below"],
        "open": [(0.02 - NEAR, 0.5), (-0.01, 0.02 + NEAR)],
    }
    yield from bars.varied("positions", rows, "short", inside, LESS)
    where = {"above": (0.02 + NEAR, FAR), "open": (0.02 - NEAR, FAR), "below": (-FAR, 0.02 - NEAR)}
    for first in where:
        for other in where:
            pair = {"short@baseline": where[first], "short@sequential": where[other]}
            verdict = NULL if "below" in (first, other) else SUPPORTED if first == other == "above" else OPEN
            yield Case("positions", f"probes {first} {other}", bars.planted("positions", {**rows, **pair}), verdict)
    # With 12 layers chance is 1/12; six training steps gave no more.
    for chance, verdict in ((1 / 12 + NEAR, CONTRADICTED), (1 / 12 - NEAR, OPEN)):
        ends = (0.5, 0.9999 - chance)
        yield Case("positions", f"chance {verdict}", bars.planted("positions", {**rows, "short": ends}), verdict)


CONTRADICTING: dict[str, tuple[tuple[Score, ...], str]] = {
    "trained_order": (
        (*bars.planted("trained_order", {"cost": (0.3, 0.4), "gain_above@baseline": GOOD}), *ordered(), *shuffled()),
        "layershuffle",
    ),
    "pruning": (
        (*bars.planted("pruning", {"lost": GOOD, "spared_above@baseline": (-0.6, -0.4)}), *ordered(), *shuffled()),
        "layershuffle",
    ),
    "positions": (bars.planted("positions", {"short": (0.5, 0.6), "short@baseline": GOOD}), "layershuffle-predict"),
    "merging": (bars.planted("merging", {"loss": (0.2, 0.3), "skill": GOOD}), "layershuffle"),
    "collapse": (bars.planted("collapse", {"in_order": GOOD, "random_order": GOOD}), "baseline"),
}
"""Rows that contradict each claim, and the variant whose training it is about."""

test_an_unfinished_training_contradicts_nothing = bars.unfinished(CONTRADICTING)


@pytest.mark.parametrize("rule", ["trained_order", "pruning"])
@pytest.mark.parametrize(("skill", "verdict"), [((0.05 + NEAR, FAR), CONTRADICTED), ((0.05 - NEAR, FAR), OPEN)])
def test_a_variant_at_chance_contradicts_nothing(rule: str, skill: Ends, verdict: str) -> None:
    rows = tuple(row for row in CONTRADICTING[rule][0] if row.claim != "position_informed")
    assert claim_of(rule, (*rows, *shuffled(skill)), 12).verdict == verdict


test_every_threshold_is_exact = bars.exact(trainings(), merged(), predicted())


collapsed = bars.planted("collapse", {"in_order": GOOD, "random_order": (0.62, 1.08)})
WIDE: Ends = (-1.46, 2.46)


@pytest.mark.parametrize(
    ("rule", "rows", "shown"),
    [
        ("positions", bars.planted("positions", {"short": (0.9999 - 0.4476, 0.9999 + 0.2654)}), "[55.2, 100.0]"),
        (
            "trained_order",
            (*bars.planted("trained_order", {"cost": WIDE, "gain_above@baseline": (-1.55, 1.85)}), *ordered()),
            "50 [−100, 100] percentage points",
        ),
        (
            "collapse",
            (Score("robustness", "accuracy", 0.1, against="chance"), *collapsed),
            "85.0 [62.0, 90.0] points above chance",
        ),
        ("merging", bars.planted("merging", {"loss": WIDE, "skill": GOOD, "loss@baseline": WIDE}), "50 [−100, 100]"),
    ],
)
def test_printed_intervals_are_limited_to_possible_values(rule: str, rows: tuple[Score, ...], shown: str) -> None:
    """Two seeds gave accuracies of -26.54 % and costs of 197 points."""
    finding = claim_of(rule, rows, 12)
    assert shown in f"{finding.answer} {finding.number}"


def test_an_inconclusive_answer_states_what_would_decide() -> None:
    six_steps = claim_of("positions", bars.planted("positions", {"short": (0.9999 - 0.4476, 0.9999 + 0.2654)}), 12)
    assert six_steps.verdict == OPEN
    assert "an untrained model decides nothing" in six_steps.answer
    undecided = (*bars.planted("trained_order", {"cost": WIDE, "gain_above@baseline": GOOD}), *ordered())
    finding = claim_of("trained_order", tuple(replace(row, mde=2.04) for row in undecided), 12)
    assert "Not even 100 times the seeds" in finding.answer
