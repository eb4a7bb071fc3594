"""Every threshold of the ELC-BERT findings is exact."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from layerwise.results.rows import Score
from layerwise.results.vocabulary import BEYOND_START
from page.claims import bars
from page.claims.bars import NEAR, ONE_SIDED, TWO_SIDED, Case, Interval
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NULL, SUPPORTED

CLEAR: Interval = (0.3, 0.5)
GOOD: Interval = (0.6, 0.8)
SKILLS: tuple[tuple[Interval, bool], ...] = (((0.5 + NEAR, 0.6), True), ((0.5 - NEAR, 0.6), False), ((0.2, 0.4), False))


def skilled(variant: str, right: Interval = GOOD) -> tuple[Score, ...]:
    return bars.plant_rows("", {"accuracy": right}, measure="pairs", variant=variant)


def turned(ends: Interval) -> Interval:
    return -ends[1], -ends[0]


def gains(rule: str, task: str, terms: str, margin: float, better: Callable[[Interval], Interval]) -> Iterator[Case]:
    def study(gain: Interval, learned: Interval = CLEAR, right: Interval = GOOD) -> tuple[Score, ...]:
        return (
            *bars.plant_rows("", {"difference": better(gain)}, task, "study", variant="elc", against="ltg", unit=terms),
            *bars.plant_rows(
                "", {"difference": better(learned)}, task, "study", variant="elc", against="elc-frozen", unit="tokens"
            ),
            *skilled("ltg", right),
        )

    yield from bars.vary_interval(rule, "gain", bars.place_around_margin(margin), TWO_SIDED, study)
    yield from bars.vary_interval(
        rule, "learned", bars.place_around_margin(margin), ONE_SIDED, lambda ends: study(CLEAR, ends)
    )
    alone = tuple(row for row in study(CLEAR) if row.against != "elc-frozen")
    yield Case(rule, "elc-frozen was not trained", alone, INCONCLUSIVE)
    for right, is_learned in SKILLS:
        yield Case(rule, f"ltg {right}", study(CLEAR, right=right), SUPPORTED if is_learned else INCONCLUSIVE)
        worse = study(turned(CLEAR), right=right)
        yield Case(rule, f"ltg {right}, worse", worse, CONTRADICTED if is_learned else INCONCLUSIVE)
    unknown = tuple(row for row in study(CLEAR) if row.measure != "pairs")
    yield Case(rule, "no minimal pairs", unknown, INCONCLUSIVE)


def masses() -> Iterator[Case]:
    def rows(equal: Interval = CLEAR, learned: Interval = CLEAR, right: Interval = GOOD) -> tuple[Score, ...]:
        return (*bars.plant_rows("pattern", {"above_equal": equal, "learned": learned}, "elc"), *skilled("elc", right))

    yield from bars.vary_interval("pattern", "equal", bars.place_around_margin(0.05), TWO_SIDED, rows)
    yield from bars.vary_interval(
        "pattern", "start", bars.place_around_margin(0.05), ONE_SIDED, lambda ends: rows(learned=ends)
    )
    for right, is_learned in SKILLS:
        yield Case("pattern", f"elc {right}", rows(right=right), SUPPORTED if is_learned else INCONCLUSIVE)


def agreement(value: float, half: float, condition: str | None) -> tuple[Score, ...]:
    own = Score("seed_agreement", "correlation", 0.1 + value, variant="elc", condition=condition)
    return own, replace(own, value=0.1, low=0.1 - half, high=0.1 + half, against="shuffled")


def agreements() -> Iterator[Case]:
    def rows(beyond: Interval, raw: Interval = CLEAR, right: Interval = GOOD) -> tuple[Score, ...]:
        ends = (
            (condition, max(-0.5, low), min(0.5, high))
            for condition, (low, high) in ((BEYOND_START, beyond), (None, raw))
        )
        found = (agreement((low + high) / 2, (high - low) / 2 / 1.25, condition) for condition, low, high in ends)
        return (*(row for rows in found for row in rows), *skilled("elc", right))

    raw = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": CONTRADICTED}
    yield from bars.vary_interval("alike", "beyond", bars.place_around_margin(0.2), ONE_SIDED, rows)
    yield from bars.vary_interval(
        "alike", "raw", bars.place_around_margin(0.2), raw, lambda ends: rows((-0.01, 0.01), ends)
    )
    for right, is_learned in SKILLS:
        yield Case("alike", f"elc {right}", rows(CLEAR, right=right), SUPPORTED if is_learned else INCONCLUSIVE)


test_every_bar_is_where_it_is = bars.make_exact_test(
    gains("worth", "masked_lm", "seconds", 0.01, turned),
    gains("grammar", "pairs", "tokens", 0.005, lambda ends: ends),
    masses(),
    agreements(),
)


def behind(task: str, terms: str, ends: Interval) -> tuple[tuple[Score, ...], str]:
    difference = bars.plant_rows("", {"difference": ends}, task, "study", variant="elc", against="ltg", unit=terms)
    return (*difference, *skilled("ltg")), "elc"


test_a_training_that_is_not_over_contradicts_nothing = bars.make_unfinished_test(
    {
        "worth": behind("masked_lm", "seconds", CLEAR),
        "grammar": behind("pairs", "tokens", turned(CLEAR)),
        "pattern": (
            (*bars.plant_rows("pattern", {"above_equal": turned(CLEAR), "learned": CLEAR}, "elc"), *skilled("elc")),
            "elc",
        ),
        "alike": ((*agreement(0.0, 0.01, BEYOND_START), *agreement(0.0, 0.01, None), *skilled("elc")), "elc"),
    }
)


def uniformity() -> Iterator[Case]:
    def rows(distance: Interval, learned: Interval = CLEAR, right: Interval = GOOD) -> tuple[Score, ...]:
        own = bars.plant_rows("", {"distance": distance, "learned": learned}, measure="uniformity", variant="elc")
        return (*own, *skilled("elc", right))

    verdicts = {"above": SUPPORTED, "below": CONTRADICTED, "open": INCONCLUSIVE}
    yield from bars.vary_interval("uniform", "distance", bars.place_around_bound(0.05), verdicts, rows)
    yield from bars.vary_interval(
        "uniform", "learned", bars.place_around_margin(0.05), ONE_SIDED, lambda ends: rows(CLEAR, ends)
    )
    for right, is_learned in SKILLS:
        yield Case("uniform", f"elc {right}", rows(CLEAR, right=right), SUPPORTED if is_learned else INCONCLUSIVE)


test_distances_from_equal_shares_are_judged_at_their_bounds = bars.make_exact_test(uniformity())
