import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.activations.plan_states import (
    PlanStates,
    _log_distances,
    _ZoneDistances,
    best_borders,
    border_contrasts,
    contrast_weights,
    find_zones,
    plan_state_rows,
    plan_states,
    zone_rows,
)
from layerwise.measure.activations.similarity import find_sinks
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from measure.activations.planted_states import TOKENS, cosines, redrawn, untrained, walked, zoned
from tier import by_tier
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4
PLANS = ["0-3", "0 3", "0 1*3 3", "0 (1|2)*2 3", "0 [(1|2 3) 1]*2"]
STATES = {"0-3": 4, "0 3": 2, "0 1*3 3": 5, "0 (1|2)*2 3": 4, "0 [(1|2 3) 1]*2": 5}


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(DEPTH, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())


@pytest.fixture(scope="module")
def text(stack: Stack) -> EvalData:
    words = "sphinx of black quartz judge my vow "
    documents = tuple(Document(f"{number}", words[number:] * (1 + number % 3)) for number in range(9))
    return tokenize(stack, Corpus("texts", documents), length=48, batch_tokens=96)


@pytest.mark.parametrize("text_of_plan", PLANS)
def test_sums_match_a_loop_over_tokens(stack: Stack, text: EvalData, text_of_plan: str) -> None:
    plan = Plan.parse(text_of_plan)
    found = plan_states(stack, plan, text.batches)
    whole: list[Plan] = [Plan(_unrolled(plan)[: stop + 1]) for stop in range(len(_unrolled(plan)))]
    assert found.cosine.shape == (9, STATES[text_of_plan], STATES[text_of_plan])
    cosine, variance, tokens = 0.0, 0.0, 0
    for batch in text.batches:
        captured = stack.capture(**batch.inputs)
        states = [captured.state, *(stack.run(part, captured) for part in whole)]
        counted = batch.inputs["attention_mask"].bool()
        chosen = counted & ~find_sinks(states, counted)
        vectors = torch.stack([state[chosen] for state in states[1:]]).detach().double()
        units = torch.nn.functional.normalize(vectors, dim=2)
        cosine = cosine + torch.einsum("itw,jtw->ij", units, units).numpy()
        variance = variance + vectors.var(dim=2, unbiased=False).sum(dim=1).numpy()
        tokens += int(chosen.sum())
    assert found.tokens.sum() == tokens
    assert np.allclose(found.mean_cosine, cosine / tokens, atol=1e-6)
    assert np.allclose(found.variance.sum(axis=0) / tokens, variance / tokens, rtol=1e-5)


def test_documents_with_equal_names_in_two_tasks_are_separate(stack: Stack, text: EvalData) -> None:
    plan = Plan.identity(DEPTH)
    others = [
        replace(batch, windows=tuple(replace(window, task="other") for window in batch.windows))
        for batch in text.batches
    ]
    once, twice = (plan_states(stack, plan, batches) for batches in (text.batches, [*text.batches, *others]))
    assert twice.documents == 2 * once.documents
    assert twice.tokens.sum() == 2 * once.tokens.sum()
    assert np.allclose(twice.mean_cosine, once.mean_cosine)


def _unrolled(plan: Plan) -> tuple:  # type: ignore[type-arg]
    from layerwise.plan.plan import Block

    stages = []
    for stage in plan.stages:
        for _ in range(stage.times):
            if isinstance(stage, Block):
                stages += list(_unrolled(stage.plan))
            else:
                stages.append(replace(stage, times=1))
    return tuple(stages)


def test_rows_have_intervals_over_documents(stack: Stack, text: EvalData) -> None:
    plan = Plan.parse("0 1*3 3")
    states = plan_states(stack, plan, text.batches)
    rows = {(row.metric, row.state, row.to_state): row for row in plan_state_rows(states, plan)}
    assert set(rows) == {("variance", j, None) for j in range(1, 6)} | {
        ("cosine", i, j) for i in range(1, 6) for j in range(i + 1, 6)
    }
    for row in rows.values():
        assert row.plan == "0 1*3 3"
        assert (row.low or 0.0) <= row.value <= (row.high or 0.0)
        assert row.documents == 9
    assert zone_rows(states, plan) == []


def planted(states: np.ndarray, documents: int = 20) -> PlanStates:  # type: ignore[type-arg]
    units = states / np.linalg.norm(states, axis=2, keepdims=True)
    each = np.einsum("tiw,tjw->tij", units, units).reshape(documents, TOKENS // documents, *2 * [states.shape[1]])
    variance = states.var(axis=2).reshape(documents, -1, states.shape[1]).sum(axis=1)
    return PlanStates(each.sum(axis=1), variance, np.full(documents, TOKENS / documents), documents)


def test_planted_zones_are_rows_with_borders() -> None:
    states = planted(zoned(np.random.default_rng(0), (3, 6, 3)))
    rows = {(row.metric, row.state): row for row in zone_rows(states, Plan.identity(12))}
    assert {name: rows[name].value for name in (("zones", None), ("border", 4), ("border", 10))} == {
        ("zones", None): 3,
        ("border", 4): 4,
        ("border", 10): 10,
    }
    assert (rows["contrast", 4].low or 0.0) > 0.1
    assert 0.01 < rows["p", None].value <= 1


SHALLOW = 12


def runs_of(states: int) -> int:
    return by_tier(fast=1, nightly=100 if states <= SHALLOW else 15)


def fewest_right(runs: int) -> int:
    return math.floor(0.95 * runs)


PLANTED = [(6, 6), (3, 6, 3), (2, 8, 2), (4, 4, 4), (3, 18, 3), (6, 6, 6, 6), (2, 21, 1)]
WITHOUT: dict[str, tuple[int, Callable[[np.random.Generator, int], Numbers]]] = {
    "walk": (12, walked),
    "deep walk": (32, walked),
    "growing steps": (32, lambda draw, states: walked(draw, states, growth=0.15)),
    "uneven steps": (24, lambda draw, states: walked(draw, states, uneven=0.2)),
    "redrawn": (24, lambda draw, states: redrawn(draw, states, 0.9)),
    "untrained": (12, untrained),
}


@pytest.mark.simulated
@pytest.mark.parametrize("sizes", PLANTED, ids=str)
def test_planted_zones_are_found_in_95_of_100(sizes: tuple[int, ...]) -> None:
    borders = tuple(int(border) for border in np.cumsum(sizes)[:-1])
    runs = runs_of(sum(sizes))
    right = sum(
        find_zones(cosines(zoned(np.random.default_rng(run), sizes)), seed=run, walks=500).borders == borders
        for run in range(runs)
    )
    assert right >= fewest_right(runs), right


@pytest.mark.simulated
@pytest.mark.parametrize("kind", WITHOUT)
def test_no_zones_are_found_without_zones_in_95_of_100(kind: str) -> None:
    states, world = WITHOUT[kind]
    runs = runs_of(states)
    one = sum(
        find_zones(cosines(world(np.random.default_rng(run), states)), seed=run, walks=500).count == 1
        for run in range(runs)
    )
    assert one >= fewest_right(runs), one


@given(st.integers(0, 2**32 - 1), st.integers(6, 9), st.integers(2, 4))
def test_partition_matches_exhaustive_search(seed: int, states: int, count: int) -> None:
    excess = np.random.default_rng(seed).standard_normal((states, states))
    excess = excess + excess.T

    def inside(borders: tuple[int, ...]) -> float:
        edges = (0, *borders, states)
        parts = [excess[a:b, a:b] for a, b in pairwise(edges)]
        return sum(float(np.triu(part, 1).sum()) for part in parts)

    allowed = [
        borders
        for borders in combinations(range(1, states), count - 1)
        if all(later - earlier >= 2 for earlier, later in pairwise(borders))
    ]
    found = best_borders(excess, count)
    assert found in allowed
    assert inside(found) == pytest.approx(min(map(inside, allowed)))


def test_impossible_partitions_are_none() -> None:
    assert best_borders(np.zeros((4, 4)), 4) is None


def test_distances_are_detrended() -> None:
    places = np.arange(16)
    even = np.exp(-0.05 * np.abs(places[:, None] - places))
    growing = np.sqrt(np.minimum(places[:, None], places) + 1.0) / np.sqrt(np.maximum(places[:, None], places) + 1.0)
    for cosine in (even, growing):
        measured = _ZoneDistances.from_logs(_log_distances(cosine)[None])
        assert np.abs(measured.excess).max() < 0.12
        assert find_zones(cosine).count == 1


@given(st.integers(0, 2**32 - 1))
def test_contrast_compares_pairs_at_equal_distance(seed: int) -> None:
    cosine = np.random.default_rng(seed).uniform(-1, 1, (9, 9))
    cosine = (cosine + cosine.T) / 2
    first, border, stop = 2, 5, 9
    gaps = []
    for distance in range(1, stop - first):
        pairs = [(i, i + distance) for i in range(first, stop - distance)]
        inside = [cosine[i, j] for i, j in pairs if (i < border) == (j < border)]
        across = [cosine[i, j] for i, j in pairs if (i < border) != (j < border)]
        if inside and across:
            gaps.append(np.mean(inside) - np.mean(across))
    assert border_contrasts(cosine, (first, border))[1] == pytest.approx(np.mean(gaps))
    assert all(abs(weights.sum()) < 1e-12 for weights in contrast_weights(9, (first, border)))


def test_few_states_are_one_zone() -> None:
    zones = find_zones(cosines(zoned(np.random.default_rng(0), (4, 5))))
    assert (zones.count, zones.ranges, zones.p) == (1, ((0, 8),), None)


def test_border_below_the_margin_is_dropped() -> None:
    places = np.arange(20)
    alike = places[:, None] // 10 == places // 10
    assert find_zones(0.98 - 0.015 * ~alike + 0.02 * np.eye(20)).count == 1
    assert find_zones(0.95 - 0.03 * ~alike + 0.05 * np.eye(20)).borders == (10,)
