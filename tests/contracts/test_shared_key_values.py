"""Layers that share keys and values, in sweeps, interventions and with foreign states."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AlbertConfig, AlbertModel

from contracts import checks, specimen
from contracts.zoo import named
from layerwise.checkpoint import save
from layerwise.data.batches import make_batches
from layerwise.data.text.tokens import Window
from layerwise.errors import UnsupportedModelError
from layerwise.measure.interventions.sweep import filter_runnable, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.plan import Plan, families
from layerwise.stack import Stack, load
from layerwise.stack.weights import apply_with, layer_weights

PLANS = (
    "0-4",
    "1 0 2-4",
    "0 1 0 2-4",
    "0 1 4-2",
    "0*2 1 (2|3|4)",
    "0 1 (2 3|4):sum*2 2",
    "0 1 (2|3):gain=0.5 1 3 4",
    "1 3",
)
"""Each plan writes what is read on another path, or twice."""


def text() -> EvalData:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, specimen.VOCABULARY, (4, 12), generator=draw)
    windows = [Window(f"d{row}", "own", 0, tuple(each.tolist()), 1, 12) for row, each in enumerate(ids)]
    return EvalData("own", "0", 12, "next_token", make_batches(windows, 4 * 12, 0))


@pytest.mark.parametrize("model_type", ["gemma4_text", "gemma3n_text"])
def test_a_sweep_shares_states_and_not_the_keys_and_values_of_other_plans(model_type: str) -> None:
    stack = load(specimen.build(named(model_type)))
    data, plans = text(), [*map(Plan.parse, PLANS)]
    rows = sweep(stack, plans, data)
    (batch,) = data.batches
    for plan in plans:
        with torch.inference_mode():
            alone = window_losses(stack, stack.run(plan, stack.capture(**batch.inputs)), batch)
        assert [row.nll for row in rows if row.plan == str(plan)] == [each.nll for each in alone]
    assert len({row.nll for row in rows if row.document == "d0"}) == len(plans)


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(specimen.build(named("gemma4_text")))


def test_a_family_leaves_out_what_breaks_the_constraint_and_says_so(stack: Stack) -> None:
    members = families.leave_one_out(stack.depth)
    kept, left_out = filter_runnable(stack, members)
    assert [str(member.plan) for member in kept] == ["0 1 3 4", "0-2 4", "0-3"]
    assert left_out == (
        "2 plans of leave_one_out omitted: 1-4 cannot be run: in Gemma4ForCausalLM layer 0 must run before layer 2, "
        "which reads its keys and values. It runs layer 2 before layer 0; write 0 before it, or omit 2",
    )
    with pytest.raises(UnsupportedModelError, match=r"layers 3, 4, which read its keys .* write 1 before"):
        stack.check("0 (1|2) 3 4")


@pytest.mark.parametrize("model_type", ["gemma4_text", "gemma3n_text"])
def test_a_layer_that_writes_again_or_elsewhere_keeps_its_slot(model_type: str) -> None:
    """Caches behind other writers, and slot shapes where heads differ by kind."""
    subject = checks.subject(named(model_type))
    with torch.inference_mode(), subject.stack.under("1 0 1 2-4"):
        tokens, logits = checks.recompute(subject, "greedy")
        ways: tuple[checks.Way, ...] = ("greedy", "static")
        for way in ways:
            found, close = checks.decode(subject, way)
            assert torch.equal(found, tokens)
            assert checks.distance(close, logits) < checks.ROUNDING_OF_A_CACHE


def test_the_configuration_of_every_layer_is_in_visit_order(stack: Stack) -> None:
    model: Any = stack.model
    with stack.under("1 0 1 2-4"):
        assert [each.head_dim for each in model.config.per_layer_config] == [16, 8, 16, 8, 16, 16]
        assert set(model.config.to_dict()["per_layer_config"]) == {"1", "3", "4"}
    assert [each.head_dim for each in model.config.per_layer_config] == [8, 16, 8, 16, 16]


def test_a_state_from_elsewhere_is_refused_by_the_layers_that_read(stack: Stack) -> None:
    inputs = specimen.inputs(named("gemma4_text"), stack.model)
    captured = stack.capture(**inputs)
    state = stack.run("0 1", captured)
    assert torch.equal(stack.apply(3, state, captured), stack.run("0 1 3", captured))
    with pytest.raises(
        UnsupportedModelError, match="layer 3 of Gemma4ForCausalLM reads the keys and values of layer 1,"
    ):
        stack.apply(3, state.clone(), captured)


def test_changed_weights_of_a_layer_that_writes_change_what_is_read(stack: Stack) -> None:
    inputs = specimen.inputs(named("gemma4_text"), stack.model)
    captured = stack.capture(**inputs)
    name = "self_attn.v_proj.weight"
    weights = {name: 2 * layer_weights(stack, 1)[name]}
    before = stack.run("0", captured)
    changed = stack.apply(3, apply_with(stack, 1, weights, before, captured), captured)
    own = specimen.build(named("gemma4_text"))
    with torch.no_grad():
        own.get_submodule("model.layers.1").self_attn.v_proj.weight *= 2  # type: ignore[union-attr]
    doubled = load(own)
    assert torch.equal(changed, doubled.run("0 1 3", doubled.capture(**inputs)))
    assert not torch.equal(changed, stack.run("0 1 3", captured))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["gemma4_text", "gemma3n_text"])
def test_checkpoints_are_written_where_the_configuration_can_say_the_plan(model_type: str, tmp_path: Path) -> None:
    one = named(model_type)
    model: Any = specimen.build(one)
    model.save_pretrained(tmp_path / "model")
    written = save(tmp_path / "model", "1 0 4", tmp_path / "shorter")
    assert (written.plan, written.proof) == ("1 0 4", "logits")
    found = getattr(transformers, one.model_class).from_pretrained(tmp_path / "shorter")
    stack, inputs = load(model), specimen.inputs(one, model)
    with torch.no_grad():
        torch.testing.assert_close(found(**inputs).logits, stack.logits("1 0 4", **inputs))
    with pytest.raises(UnsupportedModelError, match="cannot express"):
        save(stack, "0 1 2 0 1 2", tmp_path / "deeper")


def test_layers_of_two_models_share_what_the_models_share() -> None:
    one = named("gemma4_text")
    first, second = specimen.build(one), specimen.build(one)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter *= 0.9
    merged, inputs = Stack.with_sources({"a": load(first), "b": load(second)}), specimen.inputs(one, first)
    with torch.no_grad():
        stepwise = merged.logits("a:0 b:1 a:2 b:3-4", **inputs)
        with merged.under("a:0 b:1 a:2 b:3-4"):
            torch.testing.assert_close(first(**inputs).logits, stepwise)


def test_states_of_several_streams_have_batch_and_tokens_first() -> None:
    one = named("gemma3n_text")
    stack = load(specimen.build(one))
    inputs = specimen.inputs(one, stack.model, batch=3)
    assert stack.capture(**inputs).state.shape == (3, 12, 2, specimen.WIDTH)
    whole = stack.run("0-4", stack.capture(**inputs))
    alone = stack.run("0-4", stack.capture(**{name: value[1:2] for name, value in inputs.items()}))
    torch.testing.assert_close(whole[1:2], alone)


def test_one_layer_run_many_times_is_a_plan_over_one() -> None:
    settings: dict[str, Any] = {
        "vocab_size": 80,
        "embedding_size": 16,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    torch.manual_seed(0)
    model = AlbertModel(AlbertConfig(num_hidden_layers=5, **settings)).eval()
    with pytest.raises(UnsupportedModelError, match=r"its 1 block 5 times, .* num_hidden_layers=1, .* the plan 0\*5"):
        load(model)
    single = AlbertModel(AlbertConfig(num_hidden_layers=1, **settings)).eval()
    single.load_state_dict(model.state_dict())
    one, ids = load(single), torch.arange(3, 15)[None]
    with torch.no_grad():
        own = model(ids).last_hidden_state
        assert torch.equal(one.logits("0*5", input_ids=ids), own)
        with one.under("0*5"):
            assert torch.equal(single(ids).last_hidden_state, own)
