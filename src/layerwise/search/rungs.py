"""A round of a search: candidates leave on growing text until one is left, with one error rate for all rungs.

The rungs are T/16, T/4 and T tokens, read only by remaining candidates. A candidate leaves as worse if its paired
difference to the leader is above 0 at `alpha / (rungs * candidates)` (Bonferroni), so the best one leaves by mistake
with probability below `alpha`. If more than a quarter remain, others leave by rank (successive halving, Jamieson and
Talwalkar 2016, arXiv 1502.07943), to bound the cost.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import DataError
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, select_pieces
from layerwise.measure.stats.estimate import student_quantile
from layerwise.measure.stats.grid import MIN_DOCUMENTS, MIN_UNITS, shuffle_pieces
from layerwise.measure.stats.statistics import Numbers, ratio, standard_error
from layerwise.plan import Plan

GROWTH = 4
"""How many times the text of a rung is that of the one before it."""


class Evaluator(Protocol):
    """Measures plans on the parts of a text; the same plan on the same part is never computed twice."""

    @property
    def tokens(self) -> Sequence[Numbers]:
        """For each rung, the scored tokens of every unit (document) that it adds: shapes (units,)."""
        ...

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        """Return the summed loss in nats of every plan on every unit that the rung adds: (plans, units).

        The states of `parent`, from which the plans were made, may be cached.
        """
        ...


@dataclass(frozen=True, slots=True)
class RungSettings:
    """The settings of a round: the share and minimum that continue after a rung, and the error rate.

    At most `last` candidates read the last rung, three quarters of the text.
    """

    share: float = 1 / GROWTH
    fewest: int = 4
    alpha: float = 0.05
    last: int = 3

    def survivors(self, candidates: int) -> int:
        """How many candidates may go on after a rung at most.

        >>> RungSettings().survivors(32), RungSettings().survivors(3)
        (8, 4)
        """
        return max(self.fewest, math.ceil(self.share * candidates))


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round: plans that read all of the text, the best first, with mean losses in nats per token.

    Of the `candidates`, `worse` left by the test, `ranked` by rank; `runners_up` reached the last rung without reading
    it.
    """

    losses: Mapping[Plan, float]
    candidates: int
    worse: int
    ranked: int
    runners_up: tuple[Plan, ...] = ()

    @property
    def best(self) -> Plan:
        return next(iter(self.losses))


def contest(
    evaluator: Evaluator,
    candidates: Sequence[Plan],
    parent: Plan,
    *,
    base: Plan | None = None,
    scale: Mapping[Plan, float] | None = None,
    kept: Collection[Plan] = (),
    settings: RungSettings | None = None,
) -> Round:
    """Find the candidates that lose least on all of the text.

    With `base` and `scale` they are ranked by `scale` times their rise above `base`'s loss. `parent`'s states are
    shared.
    """
    settings = settings or RungSettings()
    plans = list(dict.fromkeys(candidates))
    factors = np.array([1.0 if scale is None else scale[plan] for plan in plans])
    total, worse, ranked = len(plans), 0, 0
    read, origin, nll = np.zeros(0), np.zeros(0), np.zeros((len(plans), 0))
    rungs = len(evaluator.tokens)
    runners_up: tuple[Plan, ...] = ()
    for rung, added in enumerate(evaluator.tokens):
        values = evaluator.evaluate(plans if base is None else [*plans, base], rung, parent)
        read = np.concatenate([read, added])
        origin = np.concatenate([origin, np.zeros(added.size) if base is None else values[-1]])
        nll = np.concatenate([nll, values[: len(plans)]], axis=1)
        if rung == rungs - 1:
            continue
        rise = (nll - origin) * factors[:, None]
        order = np.argsort(ratio(rise, read), kind="stable")
        beaten = _worse(rise, read, int(order[0]), settings.alpha / (rungs * total))
        # The fewest go on whatever the test says: a search keeps several plans to go on from.
        left = [index for rank, index in enumerate(order) if rank < settings.fewest or not beaten[index]]
        going = sorted(int(index) for index in left[: settings.survivors(len(plans))])
        worse, ranked = worse + len(plans) - len(left), ranked + len(left) - len(going)
        if rung == rungs - 2:
            by_rank = sorted(going, key=list(order).index)
            runners_up = tuple(plans[index] for index in by_rank[settings.last :] if plans[index] not in kept)
            going = sorted(by_rank[: settings.last])
        going = sorted({*going, *(index for index, plan in enumerate(plans) if plan in kept)})
        plans, factors, nll = [plans[index] for index in going], factors[going], nll[going]
    order = np.argsort(ratio((nll - origin) * factors[:, None], read), kind="stable")
    means = ratio(nll, read)
    return Round({plans[index]: float(means[index]) for index in order}, total, worse, ranked, runners_up)


def _worse(rise: Numbers, tokens: Numbers, leader: int, level: float) -> NDArray[np.bool_]:
    if level == 0:
        return np.zeros(len(rise), dtype=bool)
    above = rise - rise[leader]
    reach = student_quantile(1 - level, tokens.size - 1.0) * standard_error(above, tokens)
    return np.asarray(ratio(above, tokens) > reach)


def mean_losses(evaluator: Evaluator, plans: Sequence[Plan], parent: Plan) -> dict[Plan, float]:
    tokens = evaluator.tokens
    values = [evaluator.evaluate(plans, rung, parent) for rung in range(len(tokens))]
    means = ratio(np.concatenate(values, axis=1), np.concatenate(tokens))
    return dict(zip(plans, means.tolist(), strict=True))


SHARES: Mapping[str, float] = {"search": 0.4, "select": 0.2, "report": 0.4}
"""The parts, and their shares of the documents; a short text leaves `select` 8 of them and halves the rest."""

RUNGS = 3
"""Rungs of the search text, at most: T/16, T/4 and T tokens."""

FEWEST = 3 * MIN_UNITS
"""Documents below which parts need 8 windows instead of 8 documents."""


def divided_text(data: EvalData, seed: int) -> dict[str, EvalData]:
    """Split `data` into named parts that share no document, or no window if 8 windows a part are not had otherwise.

    Raises `DataError` if a part would have fewer than 8 documents or windows.
    """
    if len(SHARES) <= data.documents < FEWEST:
        whole = shuffle_pieces(piece_lengths(data, fewest=1), seed)
        half = max(1, round(SHARES["search"] * len(whole)))
        few = dict(zip(SHARES, (whole[:half], whole[half:-half], whole[-half:]), strict=True))
        parts = {name: select_pieces(data, own) for name, own in few.items()}
        if min(len(part.windows) for part in parts.values()) >= MIN_UNITS:
            return parts
    order = shuffle_pieces(piece_lengths(data, FEWEST), seed)
    count = len(order)
    if count < FEWEST:
        raise DataError(
            f"{data.name} has {data.documents} documents in {len(data.windows)} windows, and they are divided into "
            f"{len(SHARES)} parts of at least {MIN_UNITS}: give {FEWEST} documents or more, or shorter windows "
            "with --max-length"
        )
    ends = [round(sum(list(SHARES.values())[:number]) * count) for number in range(len(SHARES) + 1)]
    if ends[2] - ends[1] < MIN_UNITS:
        half = (count - MIN_UNITS) // 2
        ends = [0, half, half + MIN_UNITS, count]
    return {
        name: select_pieces(data, order[start:end]) for name, (start, end) in zip(SHARES, pairwise(ends), strict=True)
    }


def share_no_document(parts: Iterable[EvalData]) -> bool:
    documents = [each for part in parts for each in {(window.task, window.document) for window in part.windows}]
    return len(documents) == len(set(documents))


def grown(data: EvalData, seed: int, rungs: int = RUNGS) -> tuple[EvalData, ...]:
    """What each rung adds to the one before it: together they are the whole text, and the first has 8 units or more."""
    order = shuffle_pieces(piece_lengths(data, MIN_DOCUMENTS), seed)
    ends = [len(order) // GROWTH**rung for rung in range(rungs)]
    ends = [0, *sorted(end for end in ends if end >= MIN_UNITS or end == len(order))]
    return tuple(select_pieces(data, order[start:end]) for start, end in pairwise(ends))
