"""Hidden states under plans: cosines and variances compared with a plain loop, and zones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.activations.plan_states import PlanStates, plan_state_rows, plan_states, zone_rows
from layerwise.measure.activations.similarity import find_sinks
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from measure.activations.planted_states import TOKENS, zoned
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
def test_the_sums_are_those_of_a_plain_loop_over_tokens(stack: Stack, text: EvalData, text_of_plan: str) -> None:
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


def test_documents_of_two_tasks_that_are_called_alike_are_two(stack: Stack, text: EvalData) -> None:
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


def test_rows_carry_intervals_over_documents_and_few_states_have_no_zones(stack: Stack, text: EvalData) -> None:
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


def test_planted_zones_are_rows_with_their_borders_counted_from_one() -> None:
    states = planted(zoned(np.random.default_rng(0), (3, 6, 3)))
    rows = {(row.metric, row.state): row for row in zone_rows(states, Plan.identity(12))}
    assert {name: rows[name].value for name in (("zones", None), ("border", 4), ("border", 10))} == {
        ("zones", None): 3,
        ("border", 4): 4,
        ("border", 10): 10,
    }
    assert (rows["contrast", 4].low or 0.0) > 0.1
    assert 0.01 < rows["p", None].value <= 1
