"""The edges of a learned wiring: what each is worth, and what is left when most of them are cut.

Every edge is ranked by measured ablation: it alone is cut, its row renormalised (where rows are means; of free rows it
is only taken out), and the rise of the loss is taken on the same examples, in nats for each scored label. Its weight is
ranked beside it, because a large weight is no proof of an effect, nor a small one of none: a state may be small itself,
or may say what another says.

Then edges are cut, least effect first, to a budget or until a tolerated rise, in one go or in rounds that rank anew.
Effects of single edges do not add up, so what is left is measured jointly, on examples that did not choose the edges,
against two nulls: as many edges cut at random, and as many cut by size.

    of an edge              weight, effect (interval, p, p corrected over edges)
    of the whole wiring     rank_correlation of size with effect (interval, permutation p), nll
    of the pruned one       edges, kept (their share), difference (nats, interval, p), against `RANDOM` the mean of the
                            draws, the least and the most of n of them, between which another falls in
                            (n - 1) / (n + 1) cases, 90 % of 20 (p: the share of draws that lose no more), against
                            `SIZE` as many cut by size, less_than_by_size (what the ranking spares; interval, p),
                            live_before, live_after (states a runner holds), unheard (layers that need not run)

An edge is a reader, `layer`, and a source, `other` (see `layerwise.results.vocabulary`). Of several models the rows
have the `arm` and the `seed` too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from layerwise.errors import MeasureError, PlanError
from layerwise.measure.stats.estimate import Estimate
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.ranks import rank_correlation
from layerwise.measure.stats.statistics import Numbers, holm, paired_bootstrap, ratio, sign_flips
from layerwise.plan import Edge, LayerWeights
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALPHA, EDGES, OUTPUT, PRUNED, RANDOM, SIZE

DRAWS = 20
"""Random cuts that the chosen one is compared with."""


class Wired(Protocol):
    """The layer weights of a model, wherever it keeps them: read as a value, and replaced by one.

    `renormalises` says whether its rows are means, so that a row that loses an edge must be scaled.
    """

    @property
    def renormalises(self) -> bool: ...

    def edges(self) -> LayerWeights: ...

    def set_edges(self, edges: LayerWeights) -> None: ...

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """What a model lost on each unit (a document, an image): `nll` in nats over `counted` labels, both (units,)."""

    nll: Numbers
    counted: Numbers


LossEvaluation = Callable[[], Losses]
"""Asks the model, wired as it is now, for its losses on examples that are always the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """Every edge that can be cut, with its weight and the `effect` of cutting it; in nats, arrays of shape (edges,)."""

    edges: tuple[Edge, ...]
    weights: Numbers
    effect: Estimate[Numbers]
    p: Numbers
    p_adjusted: Numbers

    def by_effect(self) -> tuple[Edge, ...]:
        """The edges, least effect first."""
        return tuple(self.edges[index] for index in np.argsort(self.effect.value, kind="stable"))

    def by_size(self) -> tuple[Edge, ...]:
        """The edges, least absolute weight first."""
        return tuple(self.edges[index] for index in np.argsort(np.abs(self.weights), kind="stable"))


@contextmanager
def wired_as(wired: Wired, edges: LayerWeights) -> Iterator[None]:
    """Within the context the model reads by `edges`; afterwards by what it read before, to the bit."""
    before = copy.deepcopy(wired.state_dict())
    wired.set_edges(edges)
    try:
        yield
    finally:
        wired.load_state_dict(before)


def losses_as(wired: Wired, edges: LayerWeights, evaluate: LossEvaluation) -> Losses:
    """The losses of the model with another wiring."""
    with wired_as(wired, edges):
        return evaluate()


def rank(
    wired: Wired, evaluate: LossEvaluation, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Ranked:
    """Cut each edge alone and measure the rise; an edge that is all its reader reads stays.

    Raises `MeasureError` where no edge can be cut, and for fewer units than an interval needs.
    """
    wiring = wired.edges()
    cuts = dict(_single_cuts(wiring, wired.renormalises))
    if not cuts:
        raise MeasureError(f"every reader of this wiring reads one state ({len(wiring)} edges): there is none to cut")
    whole = evaluate()
    refuse_too_few(whole)
    rises = []
    for done, cut in enumerate(cuts.values()):
        rises.append(losses_as(wired, cut, evaluate).nll - whole.nll)
        if progress is not None:
            progress(done + 1, len(cuts))
    risen = np.stack(rises)
    effect = paired_bootstrap(risen, whole.counted, seed=seed)
    p = sign_flips(risen, seed=seed).p
    weights = np.array([wiring.weight(edge) for edge in cuts])
    return Ranked(tuple(cuts), weights, effect, p, np.asarray(holm(p)))


def refuse_too_few(losses: Losses) -> None:
    """Raise `MeasureError` for losses of fewer documents or images than an interval needs."""
    if len(losses.nll) < FEWEST_UNITS:
        raise MeasureError(
            f"edges would be judged on {len(losses.nll)} documents or images, and an interval, and so any ranking, "
            f"needs at least {FEWEST_UNITS}: give a text of more documents, or more images (--limit)"
        )


def cut(wiring: LayerWeights, order: Sequence[Edge], count: int, *, renormalise: bool) -> LayerWeights:
    """The wiring without the first `count` edges of `order` that can be spared: no reader is left with nothing.

    >>> cut(LayerWeights.of([[1, 0], [0.5, 0.5]], depth=2), [Edge(1, 0), Edge(1, 1)], 2, renormalise=True).rows[1]
    ((1, 1.0),)
    """
    left = wiring
    for edge in order:
        if len(wiring) - len(left) == count:
            break
        try:
            left = left.without(edge, renormalise=renormalise)
        except PlanError:
            continue  # the last of its row, or one that the rest cannot be scaled for
    return left


def prune(
    wired: Wired,
    evaluate: LossEvaluation,
    *,
    keep: float | None = None,
    tolerance: float | None = None,
    rounds: int = 1,
    ranked: Ranked | None = None,
    seed: int = 0,
) -> LayerWeights:
    """The wiring with edges cut, least measured effect first, to a share of the edges or until a rise is reached.

    `keep` is the share of edges that may stay (a reader keeps one in any case), `tolerance` the largest rise of the
    loss on the examples of `evaluate`, in nats for each label; with both, whichever stops first. With several `rounds`
    the edges that are left are ranked anew in each; `ranked` spares the first ranking. Raises `MeasureError` for
    neither.
    """
    if keep is None and tolerance is None:
        raise MeasureError("pruning needs an end: give the share of edges to keep, or a tolerated rise in nats")
    if keep is not None and not 0 < keep <= 1:
        raise MeasureError(f"the share of edges to keep is between 0 and 1, not {keep}")
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise MeasureError(f"the rise that is tolerated is in nats, 0 or more, not {tolerance}")
    wiring = wired.edges()
    base = evaluate()
    goal = max(len(wiring.rows), math.ceil(len(wiring) * (keep or 0.0) - 1e-9))
    for left in range(rounds, 0, -1):
        count = math.ceil((len(wiring) - goal) / left)
        if count <= 0:
            break
        with wired_as(wired, wiring):
            order = (ranked if ranked is not None and left == rounds else rank(wired, evaluate, seed=seed)).by_effect()
        allowed = count if tolerance is None else _most(wired, wiring, order, count, evaluate, base, tolerance)
        wiring = cut(wiring, order, allowed, renormalise=wired.renormalises)
        if allowed < count:
            break
    return wiring


def _most(
    wired: Wired,
    wiring: LayerWeights,
    order: Sequence[Edge],
    count: int,
    evaluate: LossEvaluation,
    base: Losses,
    tolerance: float,
) -> int:
    """The most cuts, `count` at most, whose joint rise is tolerated: by bisection, as if more cuts never lost less."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        losses = losses_as(wired, cut(wiring, order, middle, renormalise=wired.renormalises), evaluate)
        if float((losses.nll - base.nll).sum() / base.counted.sum()) <= tolerance:
            low = middle
        else:
            high = middle - 1
    return low


def edge_columns(edge: Edge, depth: int) -> dict[str, Any]:
    """The columns of a row that is about an edge of a wiring of so many layers.

    >>> edge_columns(Edge(3, 0), 12), edge_columns(Edge(12, 5), 12)
    ({'layer': 3, 'other': 0}, {'part': 'output', 'other': 5})
    """
    reader = {"part": OUTPUT} if edge.reader == depth else {"layer": edge.reader}
    return {**reader, "other": edge.source}


def ranking_rows(ranked: Ranked, whole: Losses, *, seed: int = 0, depth: int) -> list[Score]:
    """Rows of every edge, and how far size and effect agree about them."""
    rows = []
    units = len(whole.nll)
    tests = zip(ranked.p.tolist(), ranked.p_adjusted.tolist(), strict=True)
    for edge, weight, effect, test in zip(ranked.edges, ranked.weights, ranked.effect.each(), tests, strict=True):
        of = edge_columns(edge, depth)
        rows.append(Score(EDGES, "weight", float(weight), **of))
        rows.append(Score(EDGES, "effect", *effect.row(), *test, documents=units, **of))
    agreed = rank_correlation(np.abs(ranked.weights), ranked.effect.value, seed=seed)
    if agreed is not None:
        rows.append(Score(EDGES, "rank_correlation", agreed.value, agreed.low, agreed.high, agreed.p))
    return [*rows, Score(EDGES, "nll", float(whole.nll.sum() / whole.counted.sum()), documents=units)]


def pruned_rows(
    wired: Wired,
    pruned: LayerWeights,
    ranked: Ranked,
    evaluate: LossEvaluation,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Score]:
    """What the pruned wiring loses on the examples of `evaluate`, beside as many edges cut at random and by size.

    Raises `MeasureError` for fewer units than an interval needs.
    """
    wiring, scale = wired.edges(), wired.renormalises
    count = len(wiring) - len(pruned)
    base = evaluate()
    refuse_too_few(base)
    done = 0

    def rise(edges: LayerWeights) -> Numbers:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, draws + 2)
        return losses_as(wired, edges, evaluate).nll - base.nll

    mine = rise(pruned)
    sized = rise(cut(wiring, ranked.by_size(), count, renormalise=scale))
    chance = np.random.default_rng([seed, count])
    random = [
        rise(cut(wiring, [ranked.edges[index] for index in drawn], count, renormalise=scale))
        for drawn in (chance.permutation(len(ranked.edges)) for _ in range(draws))
    ]
    rows = [
        Score(EDGES, metric, float(value), condition=PRUNED)
        for metric, value in {
            "edges": len(pruned),
            "kept": len(pruned) / len(wiring),
            "live_before": wiring.live_states(),
            "live_after": pruned.live_states(),
            "unheard": len(pruned.unheard()),
        }.items()
    ]
    differences: dict[tuple[str, str | None], Numbers] = {
        ("difference", None): mine,
        ("difference", SIZE): sized,
        ("less_than_by_size", None): sized - mine,
    }
    stacked = np.stack(list(differences.values()))
    intervals = paired_bootstrap(stacked, base.counted, seed=seed).each()
    p = sign_flips(stacked, seed=seed).p.tolist()
    rows += [
        Score(EDGES, metric, *own.row(), each, condition=PRUNED, against=against, documents=len(mine))
        for (metric, against), own, each in zip(differences, intervals, p, strict=True)
    ]
    return [*rows, _random_row(ratio(np.stack(random), base.counted), intervals[0].value)]


def _random_row(losses: Numbers, mine: float) -> Score:
    low, high = float(losses.min()), float(losses.max())
    p = (1 + int((losses <= mine).sum())) / (1 + len(losses))
    return Score(EDGES, "difference", float(losses.mean()), low, high, p, condition=PRUNED, against=RANDOM)


def alpha_rows(arm: str, seed: int | None, edges: LayerWeights) -> list[Score]:
    """Rows of measure `alpha`, of every edge its effective `weight`.

    Every pair that can be is there, also those that are not read, with weight 0.
    """
    return [
        Score(ALPHA, "weight", weight, arm=arm, seed=seed, **edge_columns(Edge(reader, source), edges.depth))
        for reader, row in enumerate(edges.matrix())
        for source, weight in enumerate(row[: reader + 1])
    ]


def _single_cuts(wiring: LayerWeights, renormalise: bool) -> Iterator[tuple[Edge, LayerWeights]]:
    for edge in wiring:
        left = cut(wiring, (edge,), 1, renormalise=renormalise)
        if len(left) < len(wiring):
            yield edge, left
