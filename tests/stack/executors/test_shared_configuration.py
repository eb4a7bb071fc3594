"""Models that share a configuration object, and models made, copied and compiled while a plan runs."""

from __future__ import annotations

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaModel, OPTConfig

from layerwise.errors import ModelError
from layerwise.stack import load
from tier import by_tier

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
}
PLANS = ("0-3", "3-0", "0-1", "0 1*3 2 3", "(0|1) 2", "2")
IDS = torch.arange(3, 19).view(2, 8)


def llama() -> LlamaConfig:
    return LlamaConfig(**SIZES, pad_token_id=0)


def gemma() -> Gemma3TextConfig:
    return Gemma3TextConfig(
        **SIZES,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )


def models(config: Any, count: int = 2) -> list[Any]:
    torch.manual_seed(0)
    return [AutoModelForCausalLM.from_config(config).eval() for _ in range(count)]


def outputs(model: Any) -> list[Tensor]:
    with torch.no_grad():
        output = model(IDS, output_hidden_states=True)
    return [output.logits, *output.hidden_states]


def alone(model: Any, plan: str | None) -> list[Tensor]:
    with ExitStack() as entered:
        if plan is not None:
            entered.enter_context(load(model).under(plan))
        return outputs(model)


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


@pytest.mark.parametrize("make", [llama, gemma])
def test_models_of_one_configuration_run_their_plans_as_each_does_alone(make: Any) -> None:
    config = make()
    shared = models(config)
    expected = {(at, plan): alone(shared[at], plan) for at in range(2) for plan in (*PLANS, None)}
    random, stacks = Random(make.__name__), [load(model) for model in shared]
    for _ in range(by_tier(fast=8, nightly=250)):
        running: dict[int, tuple[str, ExitStack]] = {}
        for _ in range(8):
            at = random.randrange(2)
            if at in running:
                running.pop(at)[1].close()
            else:
                plan, entered = random.choice(PLANS), ExitStack()
                entered.enter_context(stacks[at].under(plan))
                running[at] = plan, entered
            if random.random() < 0.2:
                gc.collect()
            for each in range(2):
                assert equal(outputs(shared[each]), expected[each, running[each][0] if each in running else None])
        for _, entered in running.values():
            entered.close()
    assert all(model.config is config for model in shared)


def test_models_of_one_configuration_run_plans_in_two_threads() -> None:
    shared = models(llama())
    plans = ("3-0", "0 1*3 2 3")
    expected = [alone(model, plan) for model, plan in zip(shared, plans, strict=True)]

    def run(at: int) -> bool:
        return all(equal(alone(shared[at], plans[at]), expected[at]) for _ in range(10))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(run, range(2)))


def test_a_configuration_under_a_plan_equals_its_copies() -> None:
    (model,) = models(llama(), 1)
    config, written = model.config, model.config.to_dict()
    with load(model).under("0-1"):
        assert model.config.num_hidden_layers == 2
        assert config.num_hidden_layers == 4
        for other in (copy.deepcopy(model.config), copy.copy(model.config), pickle.loads(pickle.dumps(model.config))):
            assert type(other) is LlamaConfig
            assert other.num_hidden_layers == 4
            assert model.config == other
            assert other == model.config
        assert model.config.to_dict() == written
        model.config.use_cache = False
        assert config.use_cache is False, "a setting that is changed under a plan is changed"
        with load(models(config, 1)[0]).under("3-0"):
            assert model.config.num_hidden_layers == 2
    assert model.config is config


def test_copies_of_the_configuration_inside_a_pass_read_as_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = models(llama(), 1)
    seen: list[int] = []
    forward = LlamaModel.forward

    def copying(self: Any, *args: Any, **kwargs: Any) -> Any:
        copies = (copy.deepcopy(self.config), copy.copy(self.config))
        seen.extend((*(each.num_hidden_layers for each in copies), self.config.to_dict()["num_hidden_layers"]))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", copying)
    stack = load(model)
    seen.clear()
    with stack.under("0 1*3 2"):
        model(IDS)
    assert seen == [5, 5, 5]


def test_a_model_made_inside_a_plan_by_the_class_of_the_running_one_is_an_ordinary_model() -> None:
    model: Any = LlamaModel(llama()).eval()
    with load(model).under("1 0 2 3"):
        other = type(model)(llama())
        block = type(model.layers[0])(other.config, 0)
        listed = type(model.layers)([block])
        with pytest.raises(ModelError, match="cannot copy or pickle the model"):
            copy.deepcopy(model)
    assert type(other) is LlamaModel
    assert type(listed) is type(model.layers)
    assert type(copy.deepcopy(block)) is type(model.layers[0])
    assert pickle.loads(pickle.dumps(other)).config.num_hidden_layers == 4
    assert load(other.eval()).depth == 4


@pytest.mark.parametrize("plan", ["0-3", "0 (1|2) 1.mlp 3*2"])
def test_a_whole_model_is_compiled_under_a_plan(plan: str) -> None:
    (model,) = models(llama(), 1)
    torch._dynamo.reset()
    with torch.no_grad(), load(model).under(plan):
        expected = model(IDS, use_cache=False).logits
        compiled: Any = torch.compile(model, fullgraph=True, backend="eager")
        assert torch.equal(compiled(IDS, use_cache=False).logits, expected)


def test_passes_that_drop_layers_on_purpose_are_run_and_refused_inside_a_group() -> None:
    sizes = {"ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 64, "layerdrop": 0.5}
    model = models(OPTConfig(**{**SIZES, **sizes}), 1)[0]
    stack = load(model)
    model.train()
    with stack.under("3-0"):
        assert [model(IDS).logits.shape for _ in range(4)] == [(2, 8, 97)] * 4
    with stack.under("(0|1|2|3)*4"), pytest.raises(ModelError, match="drops layers or exits early, inside a parallel"):
        model(IDS)
