"""A model that is saved, moved, trained, extended or copied under a plan works as usual, or refuses."""

import copy
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, Trainer

from conftest import tiny_llama
from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from stack.makers import bart
from tier import first_fast
from train.tiny_models import arguments

IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
PLANS = ("(5|4|3) 2-0", "5-0", "0 1*3", "2.mlp 0")


@pytest.fixture
def stack() -> Stack:
    return load(tiny_llama())


def logits(model: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(IDS).logits
        return found


@pytest.mark.parametrize("text", first_fast(PLANS, 2))
def test_the_model_itself_is_saved(stack: Stack, text: str, tmp_path: Path) -> None:
    model = stack.model
    own, weights = logits(model), {name: value.clone() for name, value in model.state_dict().items()}
    with stack.under(Plan.parse(text)):
        assert list(model.state_dict()) == list(weights)
        assert [name for name, _ in model.named_parameters()] == list(weights)
        model.save_pretrained(tmp_path / "inside")
    model.save_pretrained(tmp_path / "outside")
    described = [json.loads((tmp_path / side / "config.json").read_text()) for side in ("inside", "outside")]
    assert described[0] == described[1]
    inside, outside = (load_file(tmp_path / side / "model.safetensors") for side in ("inside", "outside"))
    assert inside.keys() == outside.keys()
    assert all(torch.equal(inside[name], outside[name]) for name in inside)
    opened = LlamaForCausalLM.from_pretrained(tmp_path / "inside").eval()
    torch.testing.assert_close(logits(opened), own, rtol=1e-5, atol=1e-5)


def test_a_trainers_checkpoint_is_the_model_after_exit(stack: Stack, tmp_path: Path) -> None:
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    options = arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    before = {name: value.clone() for name, value in stack.model.state_dict().items()}
    with stack.under(Plan.parse("5-0")):
        Trainer(stack.model, options, train_dataset=rows).train()
    kept = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    after = stack.model.state_dict()
    assert all(torch.equal(kept[name], after[name]) for name in kept)
    assert not any(torch.equal(before[name], after[name]) for name in before if "proj" in name)
    assert json.loads((tmp_path / "checkpoint-2" / "config.json").read_text())["num_hidden_layers"] == 6


def load_other_weights(model: nn.Module, assign: bool) -> None:
    model.load_state_dict({name: value + 0.01 for name, value in model.state_dict().items()}, assign=assign)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "weights loaded": partial(load_other_weights, assign=False),
    "weights assigned": partial(load_other_weights, assign=True),
    "to float64": lambda model: model.to(torch.float64),
    "a layer is changed": lambda model: nn.init.normal_(model.get_submodule("model.layers.2.mlp.up_proj").weight),
    "a hook is added": lambda model: model.get_submodule("model.layers.2").register_forward_hook(
        lambda module, args, output: output * 1.5
    ),
    "a submodule is exchanged": lambda model: setattr(
        model.get_submodule("model.layers.2.mlp"), "up_proj", nn.Linear(32, 64, bias=False)
    ),
    "adapters": lambda model: add_adapters(model),
}


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 1, bias=False), nn.Linear(1, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def add_adapters(model: nn.Module) -> None:
    for name, module in list(model.named_modules()):
        if name.endswith("q_proj"):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, Adapter(module))  # type: ignore[arg-type]


@pytest.mark.parametrize("single_pass", first_fast([False, True]))
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_inside_counts_at_once_and_stays(stack: Stack, change: str, single_pass: bool) -> None:
    plan = Plan.parse("1*2 (2|3) 2 0")
    before = logits(stack.model)
    torch.manual_seed(4)
    with stack.under(plan, single_pass=single_pass):
        untouched = logits(stack.model)
        CHANGES[change](stack.model)
        inside = logits(stack.model)
    with torch.inference_mode():
        afterwards = stack.logits(plan, input_ids=IDS)
    assert (inside - untouched).abs().max() > 1e-9
    torch.testing.assert_close(inside, afterwards, rtol=1e-5, atol=1e-5)
    assert inside.dtype == afterwards.dtype == next(stack.model.parameters()).dtype
    assert (logits(stack.model) - before).abs().max() > 1e-9


@pytest.mark.parametrize("single_pass", [True, False])
def test_the_mode_of_training_and_checkpointing_reach_every_visit(stack: Stack, single_pass: bool) -> None:
    model = stack.model
    seen: list[bool] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda module, *_: seen.append(module.training))
    with stack.under(Plan.parse("0*2 (1|2) 3"), single_pass=single_pass):
        model.train()
        model(IDS)
        model.eval()
        model(IDS)
        assert seen == [True] * 5 + [False] * 5
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model(IDS, labels=IDS).loss.backward()
        assert len(seen) == 20, "five visits, and five recomputed"
    assert model.training
    assert model.model.layers[0].gradient_checkpointing


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "a visit is copied": lambda model: copy.deepcopy(model.model.layers[0]),
    "a visit is pickled": lambda model: pickle.dumps(model.model.layers[0]),
    "a layer is added": lambda model: model.model.layers.append(nn.Identity()),
}


@pytest.mark.parametrize("attempt", COPIES)
def test_copies_are_refused_with_what_to_do_instead(stack: Stack, attempt: str) -> None:
    with stack.under(Plan.parse("5 (0|1)")), pytest.raises(ModelError, match=r"[Ll]eave `with"):
        COPIES[attempt](stack.model)
    assert torch.equal(logits(copy.deepcopy(stack.model)), logits(stack.model))


def test_models_built_from_the_classes_of_a_running_model_are_ordinary(stack: Stack, tmp_path: Path) -> None:
    body: Any = load(stack.model.model)  # its own class is exchanged, not only those of its modules
    model, config = body.model, stack.model.config
    model.save_pretrained(tmp_path / "whole")
    with body.under("5 0"):
        made = [type(model)(config), type(model).from_pretrained(tmp_path / "whole"), type(model)(model.config)]
        layer, blocks = type(model.layers[0])(config, 0), type(model.layers)([nn.Identity()])
    assert {type(each) for each in made} == {LlamaModel}
    assert [len(each.layers) for each in made] == [each.config.num_hidden_layers for each in made] == [6, 6, 2]
    assert [type(layer), type(blocks)] == [type(model.layers[0]), nn.ModuleList]
    for each in made:
        each.eval().save_pretrained(tmp_path / "again")
        copies = [copy.deepcopy(each), pickle.loads(pickle.dumps(each)), LlamaModel.from_pretrained(tmp_path / "again")]
        with torch.inference_mode(), load(each).under("1 0*3"):
            expected = each(IDS).last_hidden_state
        for other in copies:
            assert type(other.config) is LlamaConfig
            with torch.inference_mode():
                assert torch.equal(load(other.eval()).output("1 0*3", input_ids=IDS).last_hidden_state, expected)


def test_an_encoder_decoders_cache_is_as_deep_as_the_plan() -> None:
    model = bart()
    stack = Stack(model, "model.decoder.layers")
    asked = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}
    with stack.under(Plan.parse("2 0*3 (1|0)")):
        assert model.config.get_text_config(decoder=True).num_hidden_layers == 6
        cached = model.generate(IDS, use_cache=True, **asked)
        recomputed = model.generate(IDS, use_cache=False, **asked)
    assert torch.equal(cached, recomputed)


HOOKED = ("0 (1|2 3) 4 5", "0 (1 2|3):sum 4", "[(1|3)*2 1]*2 5", "3 1")


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize("text", first_fast(HOOKED, 2))
def test_hooks_see_in_place_what_they_see_step_by_step(stack: Stack, text: str, single_pass: bool) -> None:
    plan = Plan.parse(text)
    seen: list[tuple[str, torch.Tensor]] = []
    for layer in (1, 3):
        block = stack.block(layer)
        block.register_forward_pre_hook(lambda module, args, layer=layer: seen.append((f"into {layer}", args[0])))
        block.register_forward_hook(lambda module, args, output, layer=layer: seen.append((f"from {layer}", output)))
    with torch.inference_mode():
        captured = stack.capture(input_ids=IDS)
        seen.clear()
        stack.run(plan, captured)
        stepwise = list(seen)
        seen.clear()
        with stack.under(plan, single_pass=single_pass):
            stack.model(IDS)
    assert [name for name, _ in seen] == [name for name, _ in stepwise]
    for (name, inside), (_, reference) in zip(seen, stepwise, strict=True):
        torch.testing.assert_close(inside, reference, rtol=1e-5, atol=1e-5, msg=name)


def test_what_a_hook_returns_is_what_is_merged(stack: Stack) -> None:
    plan = Plan.parse("0 (1|2 3) 4 5")
    stack.block(1).register_forward_hook(lambda module, args, output: output * 2)
    stack.block(3).register_forward_pre_hook(lambda module, args: (args[0] / 2, *args[1:]))
    with torch.inference_mode():
        stepwise = stack.logits(plan, input_ids=IDS)
        with stack.under(plan):
            torch.testing.assert_close(stack.model(IDS).logits, stepwise, rtol=1e-5, atol=1e-5)


def test_forwards_replaced_or_called_alone_under_a_plan_are_refused(stack: Stack) -> None:
    block = stack.block(2)
    with stack.under(Plan.parse("2 0")):
        block.forward = partial(type(block).forward, block)
        with pytest.raises(ModelError, match="was replaced while"):
            stack.model(IDS)

    with stack.under(Plan.parse("(0|1) 2")), pytest.raises(ModelError, match="called outside a forward pass"):
        next(iter(stack.model.model.layers))(torch.zeros(1, 2, 32), position_embeddings=(torch.ones(1, 2, 8),) * 2)


def test_a_forward_that_was_replaced_before_is_run_at_the_position_of_the_visit(stack: Stack) -> None:
    expected = {}
    plan = Plan.parse("5 0*2 (1|2)")
    ask = {"max_new_tokens": 4, "do_sample": False, "min_new_tokens": 4}
    with stack.under(plan):
        expected["tokens"] = stack.model.generate(IDS, **ask)
    for module in stack.model.model.layers.modules():
        if hasattr(module, "layer_idx") or module in list(stack.model.model.layers):
            module._old_forward = module.forward
            module.forward = partial(lambda self, *args, **kwargs: self._old_forward(*args, **kwargs), module)
    with stack.under(plan):
        assert torch.equal(stack.model.generate(IDS, **ask), expected["tokens"])


def test_a_single_pass_refuses_a_cache(stack: Stack) -> None:
    ask = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    plan = Plan.parse("5 0 1")
    with stack.under(plan):
        expected = stack.model.generate(IDS, **ask)
    with stack.under(plan, single_pass=True):
        with pytest.raises(ModelError, match="caches are not supported with single_pass=True"):
            stack.model.generate(IDS, **ask)
        assert torch.equal(stack.model.generate(IDS, use_cache=False, **ask), expected)
