"""What layers add beside what they read, and what sinks draw: against loops, and on planted layers and sinks."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, MambaConfig, MambaForCausalLM

from layerwise.measure.activations import structure as module
from layerwise.measure.activations.residual_updates import split
from layerwise.measure.activations.similarity import sink_tokens
from layerwise.measure.activations.structure import activations, output_ratios, sinks
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.results.rows import Score
from layerwise.stack import Stack, load
from measure.by_layer import by_layer
from measure.planted_models import idle_stack, own_text, planted


@cache
def reading() -> EvalData:
    return own_text(idle_stack(), length=12)


@cache
def scores_of_planted() -> list[Score]:
    return activations(idle_stack(), reading())


def loop(stack: Stack, layer: int) -> dict[str | None, float]:
    """The ratios of one layer of a Llama, by hand from its own parts."""
    block = stack.model.model.layers[layer]
    sums: dict[str | None, float] = dict.fromkeys((None, "attn", "mlp"), 0.0)
    tokens = 0
    for batch in reading().batches:
        with torch.no_grad():
            captured = stack.capture(**batch.inputs)
            states = [captured.state]
            for each in range(stack.depth):
                states.append(stack.apply(each, states[-1], captured))
            before, after = states[layer], states[layer + 1]
            call = captured.calls[layer]
            attended = block.self_attn(hidden_states=block.input_layernorm(before), **call.kwargs)[0]
            middle = before + attended
            fed = block.mlp(block.post_attention_layernorm(middle))
        kept = ~sink_tokens(states, torch.ones_like(batch.input_ids, dtype=torch.bool))
        pairs = {None: (after - before, before), "attn": (attended, before), "mlp": (fed, middle)}
        for name, (added, stream) in pairs.items():
            sums[name] += float((added.double().norm(dim=2) / stream.double().norm(dim=2))[kept].sum())
        tokens += int(kept.sum())
    return {name: total / tokens for name, total in sums.items()}


@pytest.mark.parametrize("layer", [0, 3])
def test_the_ratios_equal_a_computation_by_hand(layer: int) -> None:
    found = by_layer(scores_of_planted(), "output_ratio")
    for name, expected in loop(idle_stack(), layer).items():
        score = found[layer if name is None else (layer, name)]
        assert score.value == pytest.approx(expected, rel=1e-5)
        assert score.low < score.value < score.high


def test_a_planted_identity_layer_adds_nothing() -> None:
    found = by_layer(scores_of_planted(), "output_ratio")
    for about in (2, (2, "attn"), (2, "mlp")):
        assert found[about].value == 0.0
    assert by_layer(scores_of_planted(), "output_ratio", against="random_twin")[2].value > 0.0


def test_parallel_branches_join_one_after_the_other() -> None:
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        initializer_range=0.2,
        use_parallel_residual=True,
    )
    stack = load(GPTNeoXForCausalLM(config).eval())
    found = by_layer(output_ratios(stack, reading(), split(stack, reading())), "output_ratio")
    block, sums, tokens = stack.model.gpt_neox.layers[0], [0.0, 0.0], 0
    for batch in reading().batches:
        with torch.no_grad():
            captured = stack.capture(**batch.inputs)
            before = captured.state
            fed = block.mlp(block.post_attention_layernorm(before))
            attended = stack.apply(0, before, captured) - before - fed
            states = [before, *(torch.zeros_like(before) for _ in range(2))]
        kept = ~sink_tokens(states, torch.ones_like(batch.input_ids, dtype=torch.bool))
        for index, (added, stream) in enumerate([(attended, before), (fed, before + attended)]):
            sums[index] += float((added.double().norm(dim=2) / stream.double().norm(dim=2))[kept].sum())
        tokens += int(kept.sum())
    assert found[0, "attn"].value == pytest.approx(sums[0] / tokens, rel=1e-4)
    assert found[0, "mlp"].value == pytest.approx(sums[1] / tokens, rel=1e-4)


def test_a_planted_sink_draws_the_attention() -> None:
    """Every key looks alike but the first one, to which all queries are drawn."""
    model = planted()
    plain = by_layer(sinks(load(model), reading()), "sink_strength")
    for score in plain.values():
        assert 0 < score.value < 1
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    even, chance = (
        by_layer(sinks(load(model), reading()), "sink_strength", against=against) for against in (None, "uniform")
    )
    for layer, score in even.items():
        # Queries of zeros look at all keys alike, which is what the null says.
        assert score.value == pytest.approx(chance[layer].value, rel=1e-5)
    assert abs(plain[3].value - chance[3].value) > 1e-3


def test_uniform_attention_on_one_sink_is_the_mean_of_one_by_position() -> None:
    found = by_layer(scores_of_planted(), "sink_strength", against="uniform")[0]
    states = [torch.ones(1, 12, 4)] * 3
    assert sink_tokens(states, torch.ones(1, 12, dtype=torch.bool)).sum() == 1
    # Twelve tokens, the first a sink: the t-th token after it sees t + 1 keys, one of them the sink.
    assert found.value == pytest.approx(sum(1 / (t + 1) for t in range(1, 12)) / 11, rel=1e-2)


def test_windows_together_or_alone_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    together = sinks(idle_stack(), reading())
    monkeypatch.setattr(module, "ATTENTION", 1)
    alone = sinks(idle_stack(), reading())
    for left, right in zip(together, alone, strict=True):
        assert left.value == pytest.approx(right.value, rel=1e-5)


def test_a_model_without_attention_has_the_norm_of_its_first_token() -> None:
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=4, state_size=4, pad_token_id=0)
    stack = load(MambaForCausalLM(config).eval())
    found = activations(stack, reading())
    norms = by_layer(found, "sink_norm")
    assert set(norms) == {0, 1, 2, 3}
    assert all(score.value > 0 for score in norms.values())
    assert not by_layer(found, "sink_strength")
    assert set(by_layer(found, "output_ratio")) == {0, 1, 2, 3}


def test_the_norm_of_the_first_token_is_by_the_median_of_the_real_ones() -> None:
    norms = torch.tensor([[8.0, 2.0, 4.0, 99.0, 99.0]])
    counted = torch.tensor([[True, True, True, False, False]])
    assert module._first_to_median(norms, counted).tolist() == [2.0]


def test_the_first_token_is_that_of_its_own_window() -> None:
    norms = torch.tensor([[6.0, 1.0, 2.0], [9.0, 8.0, 4.0]])
    counted = torch.tensor([[True, True, True], [False, True, True]])
    assert module._first_to_median(norms, counted).tolist() == [3.0, 2.0]
