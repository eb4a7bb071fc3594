"""Every threshold of the Painters findings is exact."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise
from math import log

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import (
    CONTRADICTED_BY_NULL,
    NEAR,
    ONE_SIDED,
    POSITIVE,
    SUPPORT_IS_NULL,
    TWO_SIDED,
    Case,
    Interval,
    Rows,
)
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NULL, SUPPORTED

CLEAR: Interval = (0.3, 0.5)
SAME: Interval = (-0.01, 0.01)
PAIRED = {"above": SUPPORTED, "within": INCONCLUSIVE, "below": INCONCLUSIVE, "open": INCONCLUSIVE}
"""The other pairs are as published."""


def contrasts() -> Iterator[Case]:
    few = dict.fromkeys(("saved", "rise"), CLEAR)
    yield from bars.vary_metric("all_needed", few, "saved", bars.place_around_margin(0.25), TWO_SIDED)
    yield from bars.vary_metric("all_needed", few, "rise", bars.place_around_margin(0.01), CONTRADICTED_BY_NULL)

    repeat: Rows = {"middle_repeat:skip": CLEAR, "middle_repeat": CLEAR}
    yield from bars.vary_metric(
        "same_function", repeat, "middle_repeat:skip", bars.place_around_margin(0.05), TWO_SIDED
    )
    alike = {**repeat, "middle_repeat:skip": SAME}
    yield from bars.vary_metric(
        "same_function", alike, "middle_repeat", bars.place_around_margin(0.01), SUPPORT_IS_NULL
    )

    orders = dict.fromkeys(("skip:reverse", "skip:random", "reverse", "random"), CLEAR)
    for metric in orders:
        verdicts = TWO_SIDED if metric.startswith("skip") else CONTRADICTED_BY_NULL
        yield from bars.vary_metric("any_order", orders, metric, bars.place_around_margin(0.05), verdicts)

    side = dict.fromkeys(("skip:parallel", "parallel:reverse"), CLEAR)
    yield from bars.vary_metric("parallel", side, "skip:parallel", bars.place_around_margin(0.05), TWO_SIDED)
    yield from bars.vary_metric(
        "parallel", side, "parallel:reverse", bars.place_around_margin(0.05), CONTRADICTED_BY_NULL
    )

    loops = dict.fromkeys(("parallel:looped_parallel", "gain:looped_parallel"), CLEAR)
    yield from bars.vary_metric(
        "looping", loops, "parallel:looped_parallel", bars.place_around_margin(0.05), CONTRADICTED_BY_NULL
    )
    yield from bars.vary_metric("looping", loops, "gain:looped_parallel", bars.place_around_margin(0.05), ONE_SIDED)

    space = dict.fromkeys(("published", "beginning", "ending"), CLEAR)
    for metric in space:
        verdicts = CONTRADICTED_BY_NULL if metric == "published" else ONE_SIDED
        yield from bars.vary_metric("same_space", space, metric, bars.place_around_margin(0.02), verdicts)


def by_kind() -> Iterator[Case]:
    rows: Rows = {"order_less": CLEAR, "log_ratio": CLEAR, "windows": 3.0}
    for claim, task, against, where, verdicts in (
        ("order_by_task", "sums", "text", bars.place_around_bound(0.0), POSITIVE),
        ("order_by_benchmark", "arc", "winogrande", bars.place_around_margin(0.05), CONTRADICTED_BY_NULL),
    ):
        for metric, at, right in (
            ("order_less", where, verdicts),
            ("log_ratio", bars.place_around_margin(log(1.25)), ONE_SIDED),
        ):

            def planted(ends: Interval, claim: str = claim, metric: str = metric, **columns: str) -> tuple[Score, ...]:
                return bars.plant_rows(claim, {**rows, metric: ends}, **columns)

            own = partial(planted, task=task, against=against)
            yield from bars.vary_interval("order_by_task", f"{claim} {metric}", at, right, own)


PAIRS = [f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2)]
STEPS = [f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING)]


def ranked(as_published: int, reversed_: int, **more: Interval) -> tuple[Score, ...]:
    ends = [CLEAR] * as_published + [(-0.5, -0.3)] * reversed_ + [(-1.0, 1.0)] * (15 - as_published - reversed_)
    costs = dict.fromkeys(PAINTERS_RANKING, 1.0)
    return bars.plant_rows("ranking", {"tau": (0.5, 0.9), **costs, **dict(zip(PAIRS, ends, strict=True)), **more})


def rankings() -> Iterator[Case]:
    counts = [
        (13, 0, SUPPORTED),
        (13, 2, SUPPORTED),
        (12, 2, INCONCLUSIVE),
        (12, 0, INCONCLUSIVE),
        (12, 3, CONTRADICTED),
        (0, 2, INCONCLUSIVE),
    ]
    for as_published, reversed_, verdict in [*counts, (0, 3, CONTRADICTED)]:
        yield Case("ranking", f"{as_published} and {reversed_}", ranked(as_published, reversed_), verdict)
    yield from bars.vary_interval(
        "ranking", "pair", bars.place_around_margin(0.05), PAIRED, lambda ends: ranked(13, 0, **{PAIRS[0]: ends})
    )
    same = dict.fromkeys(STEPS, (-0.05 + NEAR, 0.05 - NEAR))
    yield Case("ranking", "all neighbors alike", ranked(0, 0, **same), NULL)
    yield Case("ranking", "but one", ranked(0, 0, **{**same, STEPS[0]: (-0.05 - NEAR, 0.05 - NEAR)}), INCONCLUSIVE)


test_every_threshold_is_exact = bars.make_exact_test(contrasts(), by_kind(), rankings())
