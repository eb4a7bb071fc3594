"""Evaluate minimal pairs when edges, that is, learned layer weights, are removed from a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from layerwise.data.suites.minimal_pairs import MinimalPair
from layerwise.measure.language.minimal_pairs import mean_accuracies, paradigm_rows, score_margins
from layerwise.measure.stats.estimate import SampleEstimate, satterthwaite
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.plan import EdgeCut, LayerWeights
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, EDGES, ORIGINAL, RANDOM

DRAWS = 20
"""Number of random cuts that each cut is compared with. They remove as many edges as the cut."""


class EdgeModel(Protocol):
    """A model in which learned layer weights say how much each layer reads of every earlier output.

    Each layer weight is an edge. `renormalizes` is true if the weights with which a layer reads sum to 1, so that they
    must be rescaled when an edge is removed.
    """

    @property
    def renormalizes(self) -> bool: ...

    def edges(self) -> LayerWeights: ...

    def set_edges(self, edges: LayerWeights) -> None: ...

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


@contextmanager
def use_edges(wired: EdgeModel, edges: LayerWeights) -> Iterator[None]:
    before = copy.deepcopy(wired.state_dict())
    wired.set_edges(edges)
    try:
        yield
    finally:
        wired.load_state_dict(before)


def edge_cut_rows(
    suite: str,
    pairs: Sequence[MinimalPair],
    wired: EdgeModel,
    cuts: Sequence[EdgeCut],
    evaluate: Callable[[], Numbers],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Callable[[float], None] | None = None,
) -> list[Score]:
    """Evaluate minimal pairs under every cut, for each phenomenon and overall; return rows of measure `edges`.

        edges       number of remaining edges
        accuracy    fraction of correct pairs with the cut, and with all edges (`against` is `ORIGINAL`)
        margin      paired change of the mean margin in nats, Holm-adjusted over cuts and phenomena
        margin      (`against` is `RANDOM`) mean, minimum and maximum change over `draws` random cuts that remove as
                    many edges, and the two-sided p-value of the cut among them

    `evaluate` returns the margins (pairs,) of the model in its current state, which are differences in log-likelihood.
    Raises `PlanError` if a cut removes no edges.
    """
    wiring = wired.edges()
    remaining = [cut.apply(wiring, renormalize=wired.renormalizes) for cut in cuts]
    random = {len(each): _random_cuts(wired, wiring, len(wiring) - len(each), seed, draws) for each in remaining}
    every = dict.fromkeys([wiring, *remaining, *(edges for drawn in random.values() for edges in drawn)])
    margins: dict[LayerWeights, Numbers] = {}
    for edges in every:
        with use_edges(wired, edges):
            margins[edges] = evaluate()
        if progress is not None:
            progress(len(margins) / len(every))
    original = margins[wiring]
    groups = _group_pairs(pairs, ~np.isnan(original))
    rows = []
    for cut, edges in zip(cuts, remaining, strict=True):
        columns: dict[str, Any] = {"condition": cut.text, "suite": suite}
        counts = {"edges": len(edges), "edges_of_model": len(wiring)}
        rows += [Score(EDGES, metric, float(count), **columns) for metric, count in counts.items()]
        for against, values in ((ORIGINAL, original), (None, margins[edges])):
            rows += _accuracy_rows(pairs, values, groups, against=against, **columns)
    changes = np.stack([margins[edges] - original for edges in remaining])
    for name, group in groups.items():
        paradigms = [pair.paradigm for pair, is_member in zip(pairs, group, strict=True) if is_member]
        means = estimate_means(changes[:, group], paradigms)
        mde = means.detectable(len(cuts) * (1 if name == ALL else max(1, len(groups) - 1))).tolist()
        for at, (cut, each, p) in enumerate(zip(cuts, means.each(), means.p().tolist(), strict=True)):
            about: dict[str, Any] = {"task": name, "condition": cut.text, "suite": suite, "documents": int(group.sum())}
            rows.append(Score(EDGES, "margin", *each.row(), p, mde=mde[at], **about))
            drawn = np.stack([margins[edges] - original for edges in random[len(remaining[at])]])
            rows.append(_random_row(estimate_means(drawn[:, group], paradigms).value, each.value, about))
    return _adjust_p_values(rows)


def _random_cuts(wired: EdgeModel, wiring: LayerWeights, count: int, seed: int, draws: int) -> list[LayerWeights]:
    edges, chance = list(wiring), np.random.default_rng([seed, count])
    orders = ([edges[index] for index in chance.permutation(len(edges))] for _ in range(draws))
    return [wiring.without_first(order, count, renormalize=wired.renormalizes) for order in orders]


def _group_pairs(pairs: Sequence[MinimalPair], judged: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    names = np.array([pair.phenomenon for pair in pairs])
    phenomena = [name for name in dict.fromkeys(names.tolist()) if judged[names == name].any()]
    return {ALL: judged, **({name: judged & (names == name) for name in phenomena} if len(phenomena) > 1 else {})}


def _accuracy_rows(
    pairs: Sequence[MinimalPair], margins: Numbers, groups: Mapping[str, object], **of: Any
) -> Iterator[Score]:
    by_paradigm: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        by_paradigm.setdefault(pair.paradigm, []).append(at)
    paradigms = [
        row
        for members in by_paradigm.values()
        for row in paradigm_rows(EDGES, [pairs[at] for at in members], score_margins(margins[members]))
    ]
    for row in mean_accuracies(pairs, paradigms):
        if row.task in groups:
            yield replace(row, kind=None, **of)


def estimate_means(changes: Numbers, paradigms: Sequence[str]) -> SampleEstimate[Numbers]:
    """Average each row of `changes`, (rows, pairs), within each paradigm and then over paradigms.

    The degrees of freedom are Satterthwaite's. A paradigm with one pair gets the mean variance of the other paradigms.
    """
    names = np.array(paradigms)
    groups = [changes[:, names == name] for name in dict.fromkeys(paradigms)]
    means = np.stack([group.mean(axis=1) for group in groups])
    spreads = [group.var(axis=1, ddof=1) if group.shape[1] > 1 else None for group in groups]
    measured = [spread for spread in spreads if spread is not None]
    usual = np.mean(measured, axis=0) if measured else changes.var(axis=1, ddof=1)
    parts = np.stack(
        [(usual if spread is None else spread) / group.shape[1] for spread, group in zip(spreads, groups, strict=True)]
    )
    variance = parts.sum(axis=0) / len(groups) ** 2
    counts = np.array([max(1, group.shape[1] - 1) for group in groups])
    squares = (np.square(parts) / counts[:, None]).sum(axis=0) / len(groups) ** 4
    return SampleEstimate.student(means.mean(axis=0), np.sqrt(variance), satterthwaite(variance, squares))


def _random_row(drawn: Numbers, value: float, of: Mapping[str, Any]) -> Score:
    low, high = float(drawn.min()), float(drawn.max())
    least = min(int((drawn <= value).sum()), int((drawn >= value).sum()))
    p = min(1.0, 2 * (1 + least) / (1 + len(drawn)))
    return Score(EDGES, "margin", float(drawn.mean()), low, high, p, against=RANDOM, **of)


def _adjust_p_values(rows: Sequence[Score]) -> list[Score]:
    result = list(rows)
    for of_all in (True, False):
        tested = {
            at: row.p
            for at, row in enumerate(rows)
            if row.metric == "margin" and row.against is None and (row.task == ALL) == of_all
        }
        for at, p in holm_by_key(tested).items():
            result[at] = replace(rows[at], p_adjusted=p)
    return result
