"""Models that share a configuration object run plans as if alone; copies of it are those of the model or the plan."""

import copy
import gc
import pickle
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedModel

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from stack.makers import IDS, bart, gemma, gpt2, llama
from stack.test_blocks import Residual
from tier import by_tier

PLANS = ("0-5", "5-0", "0-1", "0*3 4", "(1|2) 3-5", "0-2 4.mlp 5", "3 1*8 0")
KINDS: dict[str, Callable[[], PreTrainedModel]] = {"llama": llama, "gemma": gemma, "gpt2": gpt2}
Result = tuple[Tensor, ...]


@cache
def models(kind: str) -> tuple[Any, list[Stack], list[PreTrainedModel]]:
    """A configuration object, three models that share it, and a copy of each with its own configuration."""
    first: Any = KINDS[kind]()
    config = first.config
    sharing = [first.eval(), *(type(first)(config).eval() for _ in range(2))]
    return config, [load(model) for model in sharing], [copy.deepcopy(model) for model in sharing]


def results(model: Any, *, generates: bool) -> Result:
    with torch.inference_mode():
        output = model(IDS, output_hidden_states=True)
        asked = {"max_new_tokens": 2, "min_new_tokens": 2, "do_sample": False, "pad_token_id": 0}
        return output.logits, *output.hidden_states, *([model.generate(IDS, **asked)] if generates else [])


@cache
def alone(kind: str, number: int, plan: Plan | None, generates: bool) -> Result:
    stack = load(copy.deepcopy(models(kind)[2][number]))
    if plan is not None:
        stack.enter(plan)
    return results(stack.model, generates=generates)


def abandon(config: Any, kind: type[PreTrainedModel], plan: Plan) -> None:
    load(kind(config).eval()).enter(plan)  # type: ignore[arg-type]
    gc.collect()


@pytest.mark.parametrize("seed", range(by_tier(fast=2, nightly=500)))
def test_interleaved_plans_equal_each_model_alone(seed: int) -> None:
    draw = random.Random(seed)
    kind = draw.choice(list(KINDS))
    config, stacks, _ = models(kind)
    described = config.to_dict()
    try:
        for action in draw.choices(("enter", "leave", "collect"), (3, 1, 1), k=6):
            stack, plan = draw.choice(stacks), Plan.parse(draw.choice(PLANS))
            stack.leave()
            if action == "enter":
                stack.enter(plan)
            elif action == "collect":
                abandon(config, type(stack.model), plan)
            generates = draw.random() < 0.3
            for number, each in enumerate(stacks):
                found, expected = results(each.model, generates=generates), alone(kind, number, each.plan, generates)
                assert len(found) == len(expected)
                assert all(map(torch.equal, found, expected))
                assert each.running == each.plan
    finally:
        for stack in stacks:
            stack.leave()
    held = [vars(module).get("config", config) for stack in stacks for module in stack.model.modules()]
    assert all(each is config for each in held)
    assert config.to_dict() == described


def test_threads_run_plans_of_models_that_share_a_configuration() -> None:
    _, stacks, _ = models("gemma")
    plans = [Plan.parse(text) for text in PLANS[1:4]]
    expected = {(number, plan): alone("gemma", number, plan, True) for number in range(3) for plan in plans}
    together = threading.Barrier(3, timeout=60)  # all three run a plan at once

    def work(number: int) -> list[Result]:
        found = []
        for plan in plans:
            with stacks[number].under(plan):
                together.wait()
                found.append(results(stacks[number].model, generates=True))
                together.wait()
        return found

    with ThreadPoolExecutor(3) as pool:
        for number, found in enumerate(pool.map(work, range(3))):
            for plan, once in zip(plans, found, strict=True):
                assert all(map(torch.equal, once, expected[number, plan]))


def test_models_around_one_body_run_its_plan_and_only_one() -> None:
    policy: Any = llama().eval()
    reward: Any = LlamaForSequenceClassification(policy.config).eval()
    reward.model = policy.model
    with torch.inference_mode():
        expected = reward.score(load(copy.deepcopy(policy.model)).output("5 0", input_ids=IDS).last_hidden_state)[:, -1]
        with load(policy).under("5 0"):
            with pytest.raises(ModelError, match="running 5 0 in place"), load(reward).under("0"):
                pass
            assert torch.equal(reward(IDS).logits, expected)


def test_the_two_sides_of_a_model_leave_their_plans_in_any_order() -> None:
    model: Any = bart()
    config = model.config
    encoder, decoder = Stack(model, "model.encoder.layers"), Stack(model.model, "decoder.layers")
    encoder.enter("2 0*3")
    decoder.enter("1")
    assert (model.config.encoder_layers, model.config.decoder_layers) == (4, 3)
    assert (model.model.config.encoder_layers, model.model.config.decoder_layers) == (4, 1)
    encoder.leave()
    assert model.config is config
    assert (model.model.config.encoder_layers, model.model.config.decoder_layers) == (3, 1)
    decoder.leave()
    assert model.model.config is config


@pytest.mark.parametrize("plan", ["0-5", "5 0", "0*8"])
def test_a_copy_of_a_configuration_equals_it_and_is_the_models(plan: str) -> None:
    model: Any = gemma()
    own, described, text = model.config, model.config.to_dict(), repr(model.config)
    with load(model).under(plan):
        config = model.config
        assert config.num_hidden_layers == len(config.layer_types) == len(Plan.parse(plan).order())
        for made in (copy.deepcopy(config), copy.copy(config), pickle.loads(pickle.dumps(config)), own):
            assert made == config
            assert config == made
            assert type(made) is type(own)
            assert made.num_hidden_layers == 6
        assert config.to_dict() == described
        assert repr(config) == text
        assert type(type(config)(num_hidden_layers=6)) is type(own)
        config.use_cache = False
        config.num_hidden_layers = 3
        assert config.num_hidden_layers == 3
    assert model.config is own
    assert (own.use_cache, own.num_hidden_layers) == (False, 6)


@dataclass
class Mutable:
    n_layer: int = 4
    layer_types: tuple[str, ...] = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Frozen:
    n_layer: int = 4
    layer_types: tuple[str, ...] = ("a", "b", "c", "d")


class Settings:
    """An object with a `config` attribute that is not itself a configuration."""

    def __init__(self, config: Any) -> None:
        self.config = config


class Copying(nn.Module):
    """A model that copies its configuration in its forward, and keeps it under several names."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.copies = config, []  # type: ignore[var-annotated]
        self.body = nn.Module()
        self.body.settings = Settings(config)
        self.body.layers = nn.ModuleList(Residual() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        self.copies = [copy.deepcopy(self.config), copy.copy(self.config), pickle.loads(pickle.dumps(self.config))]
        self.same = self.config == self.copies[0]
        for layer in self.body.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("kind", [Mutable, Frozen])
def test_a_copy_made_in_a_forward_reads_as_the_plan(kind: type[Any]) -> None:
    config = kind()
    model, other = Copying(config), Copying(config)
    with Stack(model, "body.layers").under("3 0"):
        model(torch.zeros(1, 4))
        assert copy.deepcopy(model.config) == model.config == config
        assert model.body.settings.config.n_layer == 2
        other(torch.zeros(1, 4))
        if kind is Frozen:
            assert hash(model.config) == hash(config)
    assert model.same
    assert [type(made) for made in model.copies] == [kind] * 3
    assert [asdict(made) for made in model.copies] == [{"n_layer": 2, "layer_types": ("d", "a")}] * 3
    assert other.copies == [config] * 3
    assert model.body.settings.config is config


class Headed(LlamaForCausalLM):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        cache = DynamicCache(config=type(self.config).from_dict(self.config.to_dict()))
        self.depths = [len(cache), copy.deepcopy(self.config).num_hidden_layers]
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("plan", ["5 0", "0*8"])
def test_a_copy_made_in_the_forward_of_a_head_reads_as_the_plan(plan: str) -> None:
    model = Headed(llama().config).eval()
    with torch.no_grad(), load(model).under(plan):
        model(IDS)
        assert copy.deepcopy(model.config).num_hidden_layers == 6
    assert model.depths == [len(Plan.parse(plan).order())] * 2
