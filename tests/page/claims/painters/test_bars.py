"""Every threshold of the Painters findings is exact."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations, pairwise
from math import log

from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import ALONE, BESIDE_NULL, EITHER, MORE, NEAR, NEEDED, Case, Ends, Rows
from page.claims.truths import CONTRADICTED, NULL, OPEN, SUPPORTED

CLEAR: Ends = (0.3, 0.5)
SAME: Ends = (-0.01, 0.01)
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

    space = dict.fromkeys(("published", "beginning", "ending"), CLEAR)
    for metric in space:
        verdicts = NEEDED if metric == "published" else BESIDE_NULL
        yield from bars.varied("same_space", space, metric, bars.around(0.02), verdicts)


def by_kind() -> Iterator[Case]:
    rows: Rows = {"order_less": CLEAR, "log_ratio": CLEAR, "windows": 3.0}
    for claim, task, against, where, verdicts in (
        ("order_by_task", "sums", "text", bars.beside(0.0), MORE),
        ("order_by_benchmark", "arc", "winogrande", bars.around(0.05), NEEDED),
    ):
        for metric, at, right in (("order_less", where, verdicts), ("log_ratio", bars.around(log(1.25)), BESIDE_NULL)):

            def planted(ends: Ends, claim: str = claim, metric: str = metric, **columns: str) -> tuple[Score, ...]:
                return bars.planted(claim, {**rows, metric: ends}, **columns)

            own = partial(planted, task=task, against=against)
            yield from bars.each("order_by_task", f"{claim} {metric}", at, right, own)


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
    yield Case("ranking", "all neighbors alike", ranked(0, 0, **same), NULL)
    yield Case("ranking", "but one", ranked(0, 0, **{**same, STEPS[0]: (-0.05 - NEAR, 0.05 - NEAR)}), OPEN)


test_every_threshold_is_exact = bars.exact(contrasts(), by_kind(), rankings())
