"""Rows a little to either side of every threshold of the Painters' claims."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, product
from math import log

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import ALONE, BESIDE_NULL, EITHER, MORE, NEAR, NEEDED, Case, Ends, Rows
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED

CLEAR: Ends = (0.3, 0.5)
SAME: Ends = (-0.01, 0.01)
QUARTER = log(1.25)
PAIRED = {"above": SUPPORTED, "within": OPEN, "below": OPEN, "open": OPEN}
"""The other pairs are as published."""


def contrasts() -> Iterator[Case]:
    few = dict.fromkeys(("saved", "rise"), CLEAR)
    yield from bars.varied("all_needed", few, "saved", bars.around(0.25), EITHER)
    yield from bars.varied("all_needed", few, "rise", bars.around(0.01), NEEDED)

    repeat: Rows = {"middle_repeat:skip": CLEAR, "middle_repeat": CLEAR}
    yield from bars.varied("same_function", repeat, "middle_repeat:skip", bars.around(0.05), EITHER)
    alike = {**repeat, "middle_repeat:skip": SAME}
    yield from bars.varied("same_function", alike, "middle_repeat", bars.around(0.01), ALONE)

    orders = dict.fromkeys(("skip:reverse", "skip:random", "reverse", "random"), CLEAR)
    for metric in orders:
        verdicts = EITHER if metric.startswith("skip") else NEEDED
        yield from bars.varied("any_order", orders, metric, bars.around(0.05), verdicts)

    side = dict.fromkeys(("skip:parallel", "parallel:reverse"), CLEAR)
    yield from bars.varied("parallel", side, "skip:parallel", bars.around(0.05), EITHER)
    yield from bars.varied("parallel", side, "parallel:reverse", bars.around(0.05), NEEDED)

    loops = dict.fromkeys(("parallel:looped_parallel", "gain:looped_parallel"), CLEAR)
    yield from bars.varied("looping", loops, "parallel:looped_parallel", bars.around(0.05), NEEDED)
    yield from bars.varied("looping", loops, "gain:looped_parallel", bars.around(0.05), BESIDE_NULL)

    count: Rows = {"slope": CLEAR, "gain:loops": CLEAR, "at_end": 0.0}
    yield from bars.varied("loop_count", count, "slope", bars.around(0.1), NEEDED)
    yield from bars.varied("loop_count", count, "gain:loops", bars.around(0.05), BESIDE_NULL)
    ended = {**count, "at_end": 1.0}
    yield from bars.varied("loop_count", ended, "slope", bars.around(0.1), PAIRED)

    space = dict.fromkeys(("published", "beginning", "ending"), CLEAR)
    for metric in space:
        verdicts = NEEDED if metric == "published" else BESIDE_NULL
        yield from bars.varied("same_space", space, metric, bars.around(0.02), verdicts)

    chance: Rows = {"middle_repeat": SAME, "skip": CLEAR}
    at = {"within": SUPPORTED, "above": OPEN, "below": OPEN, "open": OPEN}
    near = {position: ends[:1] for position, ends in bars.around(0.1).items()}
    yield from bars.varied("repeat_at_chance", chance, "middle_repeat", near, at)
    more = {"above": CONTRADICTED, "open": OPEN}
    yield from bars.varied("repeat_at_chance", chance, "middle_repeat", bars.beside(0.1), more)
    yield from bars.varied("repeat_at_chance", chance, "skip", bars.around(0.1), BESIDE_NULL)

    states: Rows = {"log_ratio": (-0.5, -0.3), "beyond_twins": (-0.5, -0.3)}
    ratio = {"below": SUPPORTED, "within": CONTRADICTED, "above": CONTRADICTED, "open": OPEN}
    twins = {"below": SUPPORTED, "within": NULL, "above": NULL, "open": OPEN}
    yield from bars.varied("middle", states, "log_ratio", bars.around(QUARTER), ratio)
    yield from bars.varied("middle", states, "beyond_twins", bars.around(QUARTER), twins)


def by_kind() -> Iterator[Case]:
    rows: Rows = {"order_less": CLEAR, "log_ratio": CLEAR, "windows": 3.0}
    for rule, task, against, where, verdicts in (
        ("order_by_task", "sums", "text", bars.beside(0.0), MORE),
        ("order_by_benchmark", "arc", "winogrande", bars.around(0.05), NEEDED),
    ):
        yield from bars.varied(rule, rows, "order_less", where, verdicts, task=task, against=against)
        yield from bars.varied(rule, rows, "log_ratio", bars.around(QUARTER), BESIDE_NULL, task=task, against=against)


def benchmark_rows(**falls: Ends) -> tuple[Score, ...]:
    return tuple(
        row
        for task, ends in falls.items()
        for row in bars.planted("fragile", {"log_ratio": ends}, task, strategy="parallel")
    )


def fragile_cases() -> Iterator[Case]:
    where = bars.around(QUARTER)
    others = {"above": CONTRADICTED, "within": SUPPORTED, "below": SUPPORTED, "open": SUPPORTED}
    # Without GSM8K nothing is supported; another fragile benchmark contradicts.
    alone = {**PAIRED, "above": CONTRADICTED}
    yield from bars.each("fragile", "gsm8k", where, EITHER, lambda ends: benchmark_rows(gsm8k=ends, arc=SAME))
    yield from bars.each("fragile", "arc", where, others, lambda ends: benchmark_rows(gsm8k=CLEAR, arc=ends))
    yield from bars.each("fragile", "alone", where, alone, lambda ends: benchmark_rows(arc=ends, piqa=SAME))
    yield Case("fragile", "gsm8k no faster", benchmark_rows(gsm8k=SAME, arc=(-1.0, 1.0)), CONTRADICTED)


PAIRS = [f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2)]
STEPS = [f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING)]


def ranked(as_published: int, reversed_: int, **more: Ends) -> tuple[Score, ...]:
    ends = [CLEAR] * as_published + [(-0.5, -0.3)] * reversed_ + [(-1.0, 1.0)] * (15 - as_published - reversed_)
    costs = dict.fromkeys(PAINTERS_RANKING, 1.0)
    return bars.planted("ranking", {"tau": (0.5, 0.9), **costs, **dict(zip(PAIRS, ends, strict=True)), **more})


def rankings() -> Iterator[Case]:
    counts = [(13, 0, SUPPORTED), (13, 2, SUPPORTED), (12, 2, OPEN), (12, 0, OPEN), (12, 3, CONTRADICTED), (0, 2, OPEN)]
    for as_published, reversed_, verdict in [*counts, (0, 3, CONTRADICTED)]:
        yield Case("ranking", f"{as_published} and {reversed_}", ranked(as_published, reversed_), verdict)
    yield from bars.each("ranking", "pair", bars.around(0.05), PAIRED, lambda ends: ranked(13, 0, **{PAIRS[0]: ends}))
    same = dict.fromkeys(STEPS, (-0.05 + NEAR, 0.05 - NEAR))
    yield Case("ranking", "all neighbours alike", ranked(0, 0, **same), NULL)
    yield Case("ranking", "but one", ranked(0, 0, **{**same, STEPS[0]: (-0.05 - NEAR, 0.05 - NEAR)}), OPEN)


MILDEST = ("random", "looped_parallel")
SLOPES = [(harsher, milder) for milder, harsher in product(MILDEST, PAINTERS_RANKING) if harsher not in MILDEST]


def of_each(key: str, ends: Ends | float) -> list[Score]:
    return [row for name in PAINTERS_RANKING for row in bars.planted(key, {"slope": ends}, strategy=name)]


def slopes(rule: str) -> Iterator[Case]:
    falls = of_each("benchmark_fall", (0.1, 0.2))

    def rows(usual: Ends, *first: Ends) -> tuple[Score, ...]:
        ends = [*first, *[usual] * (len(SLOPES) - len(first))]
        pairs = [
            row
            for (harsher, milder), each in zip(SLOPES, ends, strict=True)
            for row in bars.planted(rule, {"relative": each}, strategy=harsher, against=milder)
        ]
        return (*of_each(rule, 1.0), *pairs, *falls)

    turned, little, alike = (-0.05 - NEAR, -NEAR), (-0.05 + NEAR, -NEAR), (-0.05 + NEAR, 0.05 - NEAR)
    yield Case(rule, "one turned", rows(CLEAR, turned), OPEN)
    yield Case(rule, "two turned", rows(CLEAR, turned, turned), CONTRADICTED)
    yield Case(rule, "two turned by less than counts", rows(CLEAR, little, little), OPEN)
    yield Case(rule, "all alike", rows(alike), NULL)
    yield Case(rule, "all but one alike", rows(alike, (-0.05 + NEAR, 0.05 + NEAR)), OPEN)
    yield from bars.each(rule, "pair", bars.around(0.05), PAIRED, lambda ends: rows(CLEAR, ends))


def stretched(end: float, half: float, way: float) -> Ends:
    """An interval of +-`half` that ends just beyond `end` when widened for 4 tests (two steps, two orders)."""
    value = end + way * (bars.wider(4) * half + NEAR)
    return value - half, value + half


def curve_rows(step: Ends = (-0.1, 0.1), wide: Ends = CLEAR, narrow: Ends = CLEAR) -> tuple[Score, ...]:
    steps = dict.fromkeys(product(("reverse", "random", "skip"), (3, 5)), (-0.1, 0.1)) | {("random", 5): step}
    less = dict.fromkeys(product(("reverse", "random"), (3, 5)), CLEAR) | {("random", 5): wide, ("random", 3): narrow}
    return (
        *(
            row
            for (name, size), ends in steps.items()
            for row in bars.planted("graceful", {"excess": ends}, strategy=name, affected=size)
        ),
        *(
            row
            for (name, size), ends in less.items()
            for row in bars.planted("graceful", {"less": ends}, strategy=name, affected=size, against="skip")
        ),
    )


def graces() -> Iterator[Case]:
    def case(name: str, verdict: str, *args: Ends) -> Case:
        return Case("graceful", name, curve_rows(*args), verdict)

    steady, still = (-0.1, 0.25 - NEAR), (-0.1, 0.25 + NEAR)
    inside, outside = (-0.05 + NEAR, 0.05 - NEAR), (-0.05 - NEAR, 0.05 - NEAR)
    abrupt, nearly = stretched(0.25, 0.1, 1.0), stretched(0.25 - 3 * NEAR, 0.1, 1.0)
    worse, not_worse = stretched(0.0, 0.1, -1.0), stretched(3 * NEAR, 0.1, -1.0)
    less, not_less = stretched(0.0, 0.1, 1.0), stretched(-3 * NEAR, 0.1, 1.0)
    yield from (case("steady", SUPPORTED, steady), case("not shown to be steady", OPEN, still))
    yield from (case("abrupt", CONTRADICTED, abrupt), case("not shown to be abrupt", OPEN, nearly))
    yield case("a window is worse", CONTRADICTED, (-0.1, 0.1), worse)
    yield case("a window is not shown to be worse", OPEN, (-0.1, 0.1), not_worse)
    yield from (case("alike", NULL, (-0.1, 0.1), inside, inside), case("not alike", OPEN, (-0.1, 0.1), outside, inside))
    yield case("less somewhere", SUPPORTED, (-0.1, 0.1), less, (-0.05 + NEAR, 0.3))
    yield case("not shown to be less", OPEN, (-0.1, 0.1), not_less, (-0.05 + NEAR, 0.3))
    yield case("perhaps more elsewhere", OPEN, (-0.1, 0.1), less, (-0.05 - NEAR, 0.3))


def zone_rows(borders: tuple[int, ...], contrast: Ends, walks: Ends = CLEAR) -> tuple[Score, ...]:
    plan = "0-11"
    count = len(borders) + 1.0
    least = {"least": contrast} if borders else {}
    return (
        *(Score("plan_states", "variance", 1.0, plan=plan, state=number) for number in range(1, 13)),
        Score("zones", "zones", count, plan=plan),
        *(Score("zones", "border", float(border), plan=plan, state=border) for border in borders),
        *(
            replace(row, measure="zones", claim=None, plan=plan, state=border)
            for border in borders
            for row in bars.planted("", {"contrast": contrast})
        ),
        *bars.planted("three_zones", {"zones": count, "beyond_walks": walks, **least}),
    )


def zones() -> Iterator[Case]:
    for rule, borders, verdict in (
        ("three_zones", (4, 10), SUPPORTED),
        ("three_zones", (6,), CONTRADICTED),
    ):
        borders_at = partial(zone_rows, borders)
        yield from bars.each(rule, f"zones {borders}", bars.around(0.02), {**PAIRED, "above": verdict}, borders_at)
    yield Case("three_zones", "four", zone_rows((4, 7, 10), CLEAR), CONTRADICTED)
    walks = {"above": OPEN, "below": NULL, "open": OPEN}
    yield from bars.each("three_zones", "one zone", bars.beside(0.05), walks, lambda ends: zone_rows((), CLEAR, ends))


test_every_bar_is_where_it_is = bars.exact(
    contrasts(),
    by_kind(),
    fragile_cases(),
    rankings(),
    slopes("shallowest"),
    slopes("shallowest_on_benchmarks"),
    graces(),
    zones(),
)
