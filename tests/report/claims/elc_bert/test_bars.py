"""Every bar of the claims of ELC-BERT: rows a little to either side of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.results.rows import Score
from layerwise.results.vocabulary import BEYOND_START
from report.claims.bars import (
    CONTRADICTED,
    NEAR,
    NULL,
    OPEN,
    SUPPORTED,
    Case,
    Ends,
    around,
    parametrized,
    planted,
)
from report.claims.truths import claim_of

CLEAR: Ends = (0.3, 0.5)
GOOD: Ends = (0.6, 0.8)
SKILLS: tuple[tuple[Ends, bool], ...] = (((0.5 + NEAR, 0.6), True), ((0.5 - NEAR, 0.6), False), ((0.2, 0.4), False))


def skilled(arm: str, right: Ends = GOOD) -> tuple[Score, ...]:
    """An arm that is right on so many of the minimal pairs."""
    return columned(planted("", {"accuracy": right}, measure="pairs"), arm=arm)


def columned(rows: tuple[Score, ...], **columns: str) -> tuple[Score, ...]:
    """Rows with columns of their own."""
    return tuple(replace(row, **columns) for row in rows)


def turned(ends: Ends) -> Ends:
    return -ends[1], -ends[0]


def gains() -> Iterator[Case]:
    """A gain on the backbone and on weights that are held: 0.01 nats of a loss, half a point of accuracy."""
    for rule, task, terms, margin, better in (
        ("worth", "masked_lm", "seconds", 0.01, turned),
        ("grammar", "pairs", "tokens", 0.005, lambda ends: ends),
    ):

        def study(
            gain: Ends, learned: Ends | None = CLEAR, right: Ends = GOOD, task=task, terms=terms, better=better
        ) -> tuple[Score, ...]:  # type: ignore[no-untyped-def]
            own = planted("", {"difference": better(gain)}, task, "study")
            rows = columned(own, arm="elc", against="ltg", condition=terms)
            if learned is not None:
                held = planted("", {"difference": better(learned)}, task, "study")
                rows += columned(held, arm="elc", against="elc-frozen", condition="tokens")
            return (*rows, *skilled("ltg", right))

        own_verdicts = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": OPEN}
        held_verdicts = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": OPEN}
        for position, ends_of in around(margin).items():
            for number, ends in enumerate(ends_of):
                yield Case(rule, f"gain {position} {number}", study(ends), own_verdicts[position])
                yield Case(rule, f"learned {position} {number}", study(CLEAR, ends), held_verdicts[position])
        yield Case(rule, "elc-frozen was not trained", study(CLEAR, None), OPEN)
        for right, is_learned in SKILLS:
            yield Case(rule, f"ltg {right}", study(CLEAR, right=right), SUPPORTED if is_learned else OPEN)
            yield Case(
                rule, f"ltg {right}, worse", study(turned(CLEAR), right=right), CONTRADICTED if is_learned else OPEN
            )
        unknown = tuple(row for row in study(CLEAR) if row.measure != "pairs")
        yield Case(rule, "no minimal pairs", unknown, OPEN)


def masses() -> Iterator[Case]:
    """Five points above equal shares, and above the start."""
    equal_verdicts = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": OPEN}
    start_verdicts = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": OPEN}

    def case(name: str, verdict: str, equal: Ends = CLEAR, learned: Ends = CLEAR, right: Ends = GOOD) -> Case:
        rows = planted("pattern", {"above_equal": equal, "learned": learned}, "elc")
        return Case("pattern", name, (*rows, *skilled("elc", right)), verdict)

    for position, ends_of in around(0.05).items():
        for number, ends in enumerate(ends_of):
            yield case(f"equal {position} {number}", equal_verdicts[position], equal=ends)
            yield case(f"start {position} {number}", start_verdicts[position], learned=ends)
    for right, is_learned in SKILLS:
        yield case(f"elc {right}", SUPPORTED if is_learned else OPEN, right=right)


def agreement(value: float, half: float, condition: str | None) -> tuple[Score, ...]:
    """A rank correlation `value` above a chance of 0.1, whose permutations have a band of +-`half`."""
    return (
        Score.of("seed_agreement", "correlation", 0.1 + value, arm="elc", condition=condition),
        Score.of(
            "seed_agreement",
            "correlation",
            0.1,
            0.1 - half,
            0.1 + half,
            arm="elc",
            condition=condition,
            against="shuffled",
        ),
    )


def agreements() -> Iterator[Case]:
    """0.2 above chance, by a band that is one and a quarter times that of the permutations."""

    def case(name: str, verdict: str, beyond: Ends, raw: Ends = CLEAR, right: Ends = GOOD) -> Case:
        rows = [
            row
            for condition, (low, high) in ((BEYOND_START, beyond), (None, raw))
            for row in agreement((low + high) / 2, (high - low) / 2 / 1.25, condition)
        ]
        return Case("alike", name, (*rows, *skilled("elc", right)), verdict)

    beyond = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": OPEN}
    raw = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": CONTRADICTED}
    for position, ends_of in around(0.2).items():
        for number, (low, high) in enumerate(ends_of):
            ends = (max(-0.5, low), min(0.5, high))
            yield case(f"beyond {position} {number}", beyond[position], ends)
            yield case(f"raw {position} {number}", raw[position], (-0.01, 0.01), ends)
    for right, is_learned in SKILLS:
        yield case(f"elc {right}", SUPPORTED if is_learned else OPEN, CLEAR, right=right)


@parametrized([*gains(), *masses(), *agreements()])
def test_every_bar_of_elc_bert_is_where_it_is(case: Case) -> None:
    case.check()


def test_the_agreement_has_the_widened_band_and_stays_a_rank_correlation() -> None:
    rows = (*agreement(0.5, 0.2, BEYOND_START), *agreement(0.5, 2.0, None), *skilled("elc"))
    said = claim_of("alike", rows, 12)
    assert "+0.500 [+0.250, +0.750] beyond the start" in said.figures
    assert "+0.50 [−1.10, +0.90] above chance" in said.figures
    assert replace(said, figures="").verdict == SUPPORTED
