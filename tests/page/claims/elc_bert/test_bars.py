"""Every threshold of the ELC-BERT findings is exact."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from layerwise.results.rows import Score
from layerwise.results.vocabulary import BEYOND_START
from page.claims import bars
from page.claims.bars import BESIDE_NULL, EITHER, NEAR, Case, Ends
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED, claim_of

CLEAR: Ends = (0.3, 0.5)
GOOD: Ends = (0.6, 0.8)
SKILLS: tuple[tuple[Ends, bool], ...] = (((0.5 + NEAR, 0.6), True), ((0.5 - NEAR, 0.6), False), ((0.2, 0.4), False))


def skilled(arm: str, right: Ends = GOOD) -> tuple[Score, ...]:
    return bars.planted("", {"accuracy": right}, measure="pairs", arm=arm)


def turned(ends: Ends) -> Ends:
    return -ends[1], -ends[0]


def gains(rule: str, task: str, terms: str, margin: float, better: Callable[[Ends], Ends]) -> Iterator[Case]:
    def study(gain: Ends, learned: Ends = CLEAR, right: Ends = GOOD) -> tuple[Score, ...]:
        return (
            *bars.planted("", {"difference": better(gain)}, task, "study", arm="elc", against="ltg", unit=terms),
            *bars.planted(
                "", {"difference": better(learned)}, task, "study", arm="elc", against="elc-frozen", unit="tokens"
            ),
            *skilled("ltg", right),
        )

    yield from bars.each(rule, "gain", bars.around(margin), EITHER, study)
    yield from bars.each(rule, "learned", bars.around(margin), BESIDE_NULL, lambda ends: study(CLEAR, ends))
    alone = tuple(row for row in study(CLEAR) if row.against != "elc-frozen")
    yield Case(rule, "elc-frozen was not trained", alone, OPEN)
    for right, is_learned in SKILLS:
        yield Case(rule, f"ltg {right}", study(CLEAR, right=right), SUPPORTED if is_learned else OPEN)
        worse = study(turned(CLEAR), right=right)
        yield Case(rule, f"ltg {right}, worse", worse, CONTRADICTED if is_learned else OPEN)
    unknown = tuple(row for row in study(CLEAR) if row.measure != "pairs")
    yield Case(rule, "no minimal pairs", unknown, OPEN)


def masses() -> Iterator[Case]:
    def rows(equal: Ends = CLEAR, learned: Ends = CLEAR, right: Ends = GOOD) -> tuple[Score, ...]:
        return (*bars.planted("pattern", {"above_equal": equal, "learned": learned}, "elc"), *skilled("elc", right))

    yield from bars.each("pattern", "equal", bars.around(0.05), EITHER, rows)
    yield from bars.each("pattern", "start", bars.around(0.05), BESIDE_NULL, lambda ends: rows(learned=ends))
    for right, is_learned in SKILLS:
        yield Case("pattern", f"elc {right}", rows(right=right), SUPPORTED if is_learned else OPEN)


def agreement(value: float, half: float, condition: str | None) -> tuple[Score, ...]:
    own = Score("seed_agreement", "correlation", 0.1 + value, arm="elc", condition=condition)
    return own, replace(own, value=0.1, low=0.1 - half, high=0.1 + half, against="shuffled")


def agreements() -> Iterator[Case]:
    def rows(beyond: Ends, raw: Ends = CLEAR, right: Ends = GOOD) -> tuple[Score, ...]:
        ends = (
            (condition, max(-0.5, low), min(0.5, high))
            for condition, (low, high) in ((BEYOND_START, beyond), (None, raw))
        )
        found = (agreement((low + high) / 2, (high - low) / 2 / 1.25, condition) for condition, low, high in ends)
        return (*(row for rows in found for row in rows), *skilled("elc", right))

    raw = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": CONTRADICTED}
    yield from bars.each("alike", "beyond", bars.around(0.2), BESIDE_NULL, rows)
    yield from bars.each("alike", "raw", bars.around(0.2), raw, lambda ends: rows((-0.01, 0.01), ends))
    for right, is_learned in SKILLS:
        yield Case("alike", f"elc {right}", rows(CLEAR, right=right), SUPPORTED if is_learned else OPEN)


test_every_bar_is_where_it_is = bars.exact(
    gains("worth", "masked_lm", "seconds", 0.01, turned),
    gains("grammar", "pairs", "tokens", 0.005, lambda ends: ends),
    masses(),
    agreements(),
)


def behind(task: str, terms: str, ends: Ends) -> tuple[tuple[Score, ...], str]:
    difference = bars.planted("", {"difference": ends}, task, "study", arm="elc", against="ltg", unit=terms)
    return (*difference, *skilled("ltg")), "elc"


test_a_training_that_is_not_over_contradicts_nothing = bars.unfinished(
    {
        "worth": behind("masked_lm", "seconds", CLEAR),
        "grammar": behind("pairs", "tokens", turned(CLEAR)),
        "pattern": (
            (*bars.planted("pattern", {"above_equal": turned(CLEAR), "learned": CLEAR}, "elc"), *skilled("elc")),
            "elc",
        ),
        "alike": ((*agreement(0.0, 0.01, BEYOND_START), *agreement(0.0, 0.01, None), *skilled("elc")), "elc"),
    }
)


def uniformity() -> Iterator[Case]:
    def rows(distance: Ends, learned: Ends = CLEAR, right: Ends = GOOD) -> tuple[Score, ...]:
        own = bars.planted("", {"distance": distance, "learned": learned}, measure="uniformity", arm="elc")
        return (*own, *skilled("elc", right))

    verdicts = {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN}
    yield from bars.each("uniform", "distance", bars.beside(0.05), verdicts, rows)
    yield from bars.each("uniform", "learned", bars.around(0.05), BESIDE_NULL, lambda ends: rows(CLEAR, ends))
    for right, is_learned in SKILLS:
        yield Case("uniform", f"elc {right}", rows(CLEAR, right=right), SUPPORTED if is_learned else OPEN)


test_distances_from_equal_shares_are_judged_at_their_bounds = bars.exact(uniformity())


def test_the_agreement_has_the_widened_band_and_stays_a_rank_correlation() -> None:
    rows = (*agreement(0.5, 0.2, BEYOND_START), *agreement(0.5, 2.0, None), *skilled("elc"))
    finding = claim_of("alike", rows, 12)
    assert finding.number == "0.500 [0.250, 0.750] of rank correlation above chance, beyond the start"
    assert "+0.50 [−1.10, +0.90] above chance" in finding.answer
    assert finding.verdict == SUPPORTED
