"""One round of a search: evaluate candidates on growing amounts of text (rungs), and eliminate the worse ones.

The rungs are the first T/16, T/4 and T tokens of the search text. A candidate is eliminated if its loss is
significantly above that of the leader, in a paired test at the level `alpha / (rungs * candidates)` (Bonferroni). The
best candidate is therefore eliminated by mistake with probability below `alpha`. If more than a quarter remain, the
worst are eliminated by rank, to bound the cost (successive halving, Jamieson and Talwalkar 2016, arXiv 1502.07943).
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
"""Number of tokens of a rung, relative to the previous one."""


class Evaluator(Protocol):
    """Evaluates plans on growing amounts of text (rungs), and never computes the same loss twice."""

    @property
    def tokens(self) -> Sequence[Numbers]:
        """For each rung, the number of scored tokens of every document that it adds to the previous rung."""
        ...

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        """Return the summed loss in nats of every plan on every document that this rung adds, `(plans, documents)`.

        `parent` is the plan from which `plans` were derived; its hidden states can be cached.
        """
        ...


@dataclass(frozen=True, slots=True)
class RungSettings:
    """Settings of a search round, which evaluates candidates on growing amounts of text (rungs).

    Args:
        share: Maximum share of the candidates that remain after a rung.
        min_survivors: Number of best candidates that the test cannot eliminate.
        alpha: Probability that the best candidate is eliminated by mistake.
        last: Maximum number of candidates that are evaluated on the last rung, which has most of the text.
    """

    share: float = 1 / GROWTH
    min_survivors: int = 4
    alpha: float = 0.05
    last: int = 3

    def max_survivors(self, candidates: int) -> int:
        """Return the maximum number of candidates that remain after a rung.

        >>> RungSettings().max_survivors(32), RungSettings().max_survivors(3)
        (8, 4)
        """
        return max(self.min_survivors, math.ceil(self.share * candidates))


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a search round.

    Attributes:
        losses: Mean loss in nats/token of the plans that were evaluated on all of the text, the best first.
        worse: Number of candidates that were eliminated by the test.
        ranked: Number of candidates that were eliminated by rank.
        runners_up: Plans that were eliminated by rank before the last rung.
    """

    losses: Mapping[Plan, float]
    candidates: int
    worse: int
    ranked: int
    runners_up: tuple[Plan, ...] = ()

    @property
    def best(self) -> Plan:
        return next(iter(self.losses))


def run_round(
    evaluator: Evaluator,
    candidates: Sequence[Plan],
    parent: Plan,
    *,
    base: Plan | None = None,
    scale: Mapping[Plan, float] | None = None,
    kept: Collection[Plan] = (),
    settings: RungSettings | None = None,
) -> Round:
    """Eliminate candidates on growing amounts of text, and return the losses of the best ones on all of it.

    Candidates are derived from `parent`, and those in `kept` are never eliminated. If `base` is given, candidates are
    ranked by their loss increase over `base`, multiplied by `scale`.
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
        beaten = _find_worse(rise, read, int(order[0]), settings.alpha / (rungs * total))
        # The minimum survives regardless of the test: a search continues from several plans.
        passed = [index for rank, index in enumerate(order) if rank < settings.min_survivors or not beaten[index]]
        survivors = sorted(int(index) for index in passed[: settings.max_survivors(len(plans))])
        worse, ranked = worse + len(plans) - len(passed), ranked + len(passed) - len(survivors)
        if rung == rungs - 2:
            by_rank = sorted(survivors, key=list(order).index)
            runners_up = tuple(plans[index] for index in by_rank[settings.last :] if plans[index] not in kept)
            survivors = sorted(by_rank[: settings.last])
        survivors = sorted({*survivors, *(index for index, plan in enumerate(plans) if plan in kept)})
        plans, factors, nll = [plans[index] for index in survivors], factors[survivors], nll[survivors]
    order = np.argsort(ratio((nll - origin) * factors[:, None], read), kind="stable")
    means = ratio(nll, read)
    return Round({plans[index]: float(means[index]) for index in order}, total, worse, ranked, runners_up)


def _find_worse(rise: Numbers, tokens: Numbers, leader: int, level: float) -> NDArray[np.bool_]:
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
"""Parts of the text and their shares of the documents.

If the text is short, `select` has 8 documents, and the other parts have half of the rest each.
"""

MAX_RUNGS = 3
"""Maximum number of rungs of the search text."""

MIN_SPLIT_DOCUMENTS = 3 * MIN_UNITS
"""Minimum number of documents; with fewer, the text is split into windows."""


def split_text(data: EvalData, seed: int) -> dict[str, EvalData]:
    """Split a text into the parts of `SHARES`, which have no document (or window, if documents are few) in common.

    Raises:
        DataError: If a part would have fewer than 8 documents or windows.
    """
    if len(SHARES) <= data.documents < MIN_SPLIT_DOCUMENTS:
        documents = shuffle_pieces(piece_lengths(data, min_documents=1), seed)
        half = max(1, round(SHARES["search"] * len(documents)))
        split = (documents[:half], documents[half:-half], documents[-half:])
        parts = {name: select_pieces(data, part) for name, part in zip(SHARES, split, strict=True)}
        if min(len(part.windows) for part in parts.values()) >= MIN_UNITS:
            return parts
    order = shuffle_pieces(piece_lengths(data, MIN_SPLIT_DOCUMENTS), seed)
    count = len(order)
    if count < MIN_SPLIT_DOCUMENTS:
        raise DataError(
            f"{data.name} must have at least {MIN_SPLIT_DOCUMENTS} documents or windows ({MIN_UNITS} in each of "
            f"the parts {', '.join(SHARES)}), got {data.documents} documents with {len(data.windows)} windows. Pass "
            "more documents, or a smaller --max-length."
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


def split_rungs(data: EvalData, seed: int, rungs: int = MAX_RUNGS) -> tuple[EvalData, ...]:
    """Split a text into the parts that successive rungs add, each with at least 8 documents or windows."""
    order = shuffle_pieces(piece_lengths(data, MIN_DOCUMENTS), seed)
    ends = [len(order) // GROWTH**rung for rung in range(rungs)]
    ends = [0, *sorted(end for end in ends if end >= MIN_UNITS or end == len(order))]
    return tuple(select_pieces(data, order[start:end]) for start, end in pairwise(ends))
