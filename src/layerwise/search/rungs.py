"""A round of a search: candidates leave on growing text until one is left, with an error rate that all rungs share.

The text of a search is cut into parts that grow fourfold: T/16, T/4 and T tokens. Every candidate reads the first rung;
what a rung adds is read only by those that are still in, so that no one reads a token twice. After each rung

    a candidate leaves as worse    where its paired difference to the leader is above 0 at `alpha / (rungs *
                                   candidates)`, so the chance that any rung sends the best away as worse stays below
                                   `alpha` (Bonferroni over candidates and rungs, as in the race of single layers,
                                   `layerwise.measure.stats.racing`)
    and by rank                    where more are left than a quarter of those that came (successive halving, Jamieson
                                   and Talwalkar 2016, arXiv 1502.07943): this bounds the cost, and promises nothing

Plans that have read the text already take part, and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.stats.estimate import student
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
        """The summed loss in nats of every plan on every unit that the rung adds: (plans, units).

        `parent` is the plan that the others were made from; its states may be held, so that others pay what differs.
        """
        ...


@dataclass(frozen=True, slots=True)
class RungSettings:
    """How a round is run: the share that goes on after a rung, the fewest that do, and the error rate of all rungs.

    The last rung, which holds three quarters of the text, is read by `last` candidates at most.
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
    """How a round ended: those that read all of the text, the best first, with their mean losses in nats per token.

    Of the `candidates`, `worse` left by the test and `ranked` by rank. `runners_up` came as far as the last rung and
    did not read it, the best first.
    """

    losses: Mapping[Plan, float]
    candidates: int
    worse: int
    ranked: int
    runners_up: tuple[Plan, ...] = ()

    @property
    def best(self) -> Plan:
        """The plan that won."""
        return next(iter(self.losses))


def contest(
    evaluator: Evaluator,
    candidates: Sequence[Plan],
    parent: Plan,
    *,
    base: Plan | None = None,
    scale: Mapping[Plan, float] | None = None,
    settings: RungSettings | None = None,
) -> Round:
    """Which candidates lose least on all of the text.

    With `base` and `scale` they are ranked by their rise above the loss of `base` times their own factor: one over what
    they save, say. `parent` is the plan whose states they share.
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
            runners_up = tuple(plans[index] for index in by_rank[settings.last :])
            going = sorted(by_rank[: settings.last])
        plans, factors, nll = [plans[index] for index in going], factors[going], nll[going]
    order = np.argsort(ratio((nll - origin) * factors[:, None], read), kind="stable")
    means = ratio(nll, read)
    return Round({plans[index]: float(means[index]) for index in order}, total, worse, ranked, runners_up)


def _worse(rise: Numbers, tokens: Numbers, leader: int, level: float) -> NDArray[np.bool_]:
    """Whether each candidate is worse than the leader at an error rate of `level`, by Student's one-sided test."""
    if level == 0:
        return np.zeros(len(rise), dtype=bool)
    above = rise - rise[leader]
    reach = student(1 - level, tokens.size - 1.0) * standard_error(above, tokens)
    return np.asarray(ratio(above, tokens) > reach)


def mean_losses(evaluator: Evaluator, plans: Sequence[Plan], parent: Plan) -> dict[Plan, float]:
    """The mean loss of every plan on all of the text, in nats per token."""
    values = [evaluator.evaluate(plans, rung, parent) for rung in range(len(evaluator.tokens))]
    means = ratio(np.concatenate(values, axis=1), np.concatenate(list(evaluator.tokens)))
    return dict(zip(plans, means.tolist(), strict=True))
