"""The plans of a frontier: every kind at every position, and the one of each that a text leaves."""

from __future__ import annotations

from collections import Counter

import pytest

from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.plan import Plan
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.latency_arms import ArmPlan, candidates, least, skip_sets, skip_sizes, spread
from layerwise.search.rungs import mean_losses
from layerwise.stack import load
from tiny_tokenizers import ALPHABET, character_tokenizer


@pytest.mark.parametrize("depth", [4, 6, 12, 31])
def test_every_plan_is_one_of_the_model_and_is_tried_once_in_its_kind(depth: int) -> None:
    plans = list(candidates(depth, 3))
    for each in plans:
        each.plan.check(depth)
        assert each.plan != Plan.identity(depth)
    counts = Counter((each.kind, each.size, each.plan) for each in plans)
    assert set(counts.values()) == {1}
    assert {each.arm for each in plans} == {"skip", "parallel", "looped"}


def test_kinds_cost_what_their_arm_says() -> None:
    for each in candidates(12, 6):
        evaluations, stages = each.plan.cost().evaluations, each.plan.cost().stages
        if each.arm == "skip":
            assert evaluations == 12 - each.size
        elif each.arm == "parallel":
            assert evaluations == 12
            assert stages < 12
        elif each.kind == "middle twice":
            assert evaluations == 12 - each.size + 2
        else:
            assert evaluations >= 12


def test_sizes_are_spread_and_hold_both_ends() -> None:
    assert skip_sizes(12, 6) == [1, 2, 3, 4, 5, 6]
    assert skip_sizes(80, 4) == [1, 14, 27, 40]
    assert spread([], 3) == []


def test_the_least_of_every_kind_and_size_is_left_and_a_plan_only_once() -> None:
    one, two, three = Plan.parse("1-5"), Plan.parse("0-4"), Plan.parse("0 2-5")
    tried = [
        ArmPlan("skip", "window", 1, one),
        ArmPlan("skip", "window", 1, two),
        ArmPlan("skip", "set", 1, two),
        ArmPlan("skip", "set", 2, three),
    ]
    kept = least(tried, {one: 2.0, two: 1.0, three: 3.0})
    assert [(each.kind, each.size, each.plan) for each in kept] == [("window", 1, two), ("set", 2, three)]


def test_sets_of_every_size_are_found_by_scores_and_by_removals() -> None:
    stack = load(tiny_llama(6, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())
    documents = tuple(Document(f"{number}", f"text number {number}") for number in range(12))
    text = tokenize(stack, Corpus("texts", documents))
    evaluator = GraphEvaluator(stack, [text])
    sets = list(skip_sets(stack, evaluator, text, [1, 3]))
    assert Counter(len(each.plan.steps()) for each in sets).keys() == {5, 3}
    losses = mean_losses(evaluator, [each.plan for each in sets], Plan.identity(6))
    singles = mean_losses(
        evaluator, [Plan.of([i for i in range(6) if i != gone]) for gone in range(6)], Plan.identity(6)
    )
    assert min(losses.values()) <= max(singles.values())
    assert min(losses[each.plan] for each in sets if each.size == 1) == pytest.approx(min(singles.values()))
