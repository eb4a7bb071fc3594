"""Samplers train and heal every model type: layers that run get gradients, skipped ones none, and the result loads."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import set_seed

from contracts import specimen
from contracts.specimen import DEPTH, VOCABULARY, WIDTH, Specimen
from contracts.tiers import NIGHTLY
from contracts.zoo import SUPPORTED
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Fixed, Sampler, SeededSampler, Shuffle
from layerwise.stack import Stack, load
from layerwise.stack.rounding import compare
from layerwise.train.heal.learning import load_healed
from layerwise.train.heal.options import HealingOptions, Method
from layerwise.train.heal.trainer import HealingTrainer
from layerwise.train.trainer import PlanTrainer
from train.tiny_models import arguments

TYPES = (
    *("llama", "gpt2", "gpt_neox", "mixtral", "gemma2", "gemma3_text", "qwen3"),
    *("bert", "modernbert", "vit", "dinov2", "beit"),
)
SPECIMENS = tuple(one for one in SUPPORTED if one.model_type in TYPES)
# A decoder with experts, an encoder and a transformer for images; the rest takes seconds each, at night.
FAST = ("mixtral", "bert", "vit")
EVERY_SPECIMEN = [pytest.param(one, id=str(one), marks=() if one.model_type in FAST else NIGHTLY) for one in SPECIMENS]

SAMPLERS: dict[str, Sampler] = {
    "shuffle": Shuffle(),
    "drop": Drop(0.5),
    "drop preserve": Drop(0.5, of=Shuffle(), preserve=True),
}
STEPS = 3
SILENT = "gain=0"

# Gradients that are zero by mathematics: a bias of keys adds the same to every score of a softmax.
_ZERO_BY_NATURE = ("key.bias", "k_proj.bias")


class Watched(PlanTrainer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.passes: list[tuple[Plan, float, dict[str, Tensor | None]]] = []

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        plan = self.draws.at(self.state.global_step, 0)
        loss = super().training_step(*args, **kwargs)
        found = {
            name: None if weight.grad is None else weight.grad.clone()
            for name, weight in self.stack.model.named_parameters()
        }
        self.passes.append((plan, loss.item(), found))
        return loss


def _examples(one: Specimen, model: Any) -> list[dict[str, Tensor]]:
    batch = specimen.inputs(one, model, batch=12)
    if "input_ids" in batch:
        chance = torch.Generator().manual_seed(0)
        ids = batch["input_ids"]
        other = torch.randint(3, VOCABULARY, ids.shape, generator=chance)
        batch["labels"] = ids if one.kind == "decoder" else other
    else:
        batch["labels"] = torch.arange(12) % 7
    return [{name: tensor[index] for name, tensor in batch.items()} for index in range(12)]


def _collate(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([example[name] for example in examples]) for name in examples[0]}


def _trained(one: Specimen, sampler: Sampler, folder: Path) -> Watched:
    model: Any = specimen.build(one)
    model.config.use_cache = False
    stack = load(model)
    set_seed(1)
    trainer = Watched(
        stack=stack,
        draws=SeededSampler(sampler, stack.depth, 1),
        validation=SeededSampler(Fixed(), stack.depth, 0),
        args=arguments(folder, max_steps=STEPS, learning_rate=1e-3),
        data_collator=_collate,
        train_dataset=_examples(one, model),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("one", EVERY_SPECIMEN)
def test_layers_that_ran_get_gradients_and_others_none(one: Specimen, name: str, tmp_path: Path) -> None:
    trainer = _trained(one, SAMPLERS[name], tmp_path)
    assert len(trainer.passes) == STEPS
    assert len({str(plan) for plan, _, _ in trainer.passes}) > 1
    own = _outside(_own_gradients(one), one)
    assert own
    for plan, loss, gradients in trainer.passes:
        assert math.isfinite(loss)
        assert _outside(gradients, one) == own, f"outside the layers, under {plan}"
        running = _running(plan)
        for weight, gradient in gradients.items():
            layer = _layer_of(weight, one.layers)
            if layer is None:
                continue
            if layer in running:
                assert gradient is not None, f"{weight} ran under {plan}"
                assert gradient.any() or weight.endswith(_ZERO_BY_NATURE), f"{weight} ran under {plan}"
            elif name == "drop preserve":
                assert gradient is not None, f"{weight} was silent under {plan}"
                assert not gradient.any(), f"{weight} was silent under {plan}"
            else:
                assert gradient is None, f"{weight} was left out of {plan}"


def _own_gradients(one: Specimen) -> dict[str, Tensor | None]:
    model: Any = specimen.build(one)
    model(**_collate(_examples(one, model))).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def _outside(gradients: dict[str, Tensor | None], one: Specimen) -> set[str]:
    found = (name for name, gradient in gradients.items() if gradient is not None and gradient.any())
    return {name for name in found if _layer_of(name, one.layers) is None}


def _running(plan: Plan) -> set[int]:
    layers = set(range(DEPTH))
    silent = {int(part.split(")")[0].strip("(")) for part in str(plan).split() if SILENT in part}
    return (layers & set(plan.order())) - silent


def _layer_of(weight: str, path: str) -> int | None:
    rest = weight.removeprefix(f"{path}.")
    return None if rest == weight else int(rest.split(".")[0])


PLAN = Plan.parse("0 2 4")
HEALING_STEPS = 2


def opened(one: Specimen) -> Stack:
    model: Any = specimen.build(one)
    model.config.use_cache = False
    return load(model)


def healed(one: Specimen, method: Method, folder: Path) -> HealingTrainer:
    set_seed(1)
    stack = opened(one)
    draws = SeededSampler(Fixed(PLAN), stack.depth, 0)
    trainer = HealingTrainer(
        options=HealingOptions(plan=str(PLAN), method=method, rank=2),
        stack=stack,
        draws=draws,
        validation=draws,
        args=arguments(folder, max_steps=HEALING_STEPS),
        data_collator=_collate,
        train_dataset=_examples(one, stack.model),
    )
    trainer.train()
    stack.model.eval()  # some of the types have dropout
    return trainer


@pytest.mark.parametrize("method", ["lora", "tail"])
@pytest.mark.parametrize("one", EVERY_SPECIMEN)
def test_healed_checkpoints_open_as_trained(one: Specimen, method: Method, tmp_path: Path) -> None:
    trainer = healed(one, method, tmp_path)
    before = dict(opened(one).model.named_parameters())
    changed = set()
    for name, weight in trainer.stack.model.named_parameters():
        plain = name.replace(".base_layer", "")
        if plain in before and not torch.equal(weight, before[plain]):
            changed.add(plain)
    left_out = tuple(f"{one.layers}.{layer}." for layer in (1, 3))
    assert not [name for name in changed if name.startswith(left_out)]
    assert (not changed) == (method == "lora")
    trainer.write(tmp_path / "written")
    again = load_healed(opened(one), tmp_path / "written")
    assert list(again.model.state_dict()) == list(opened(one).model.state_dict())
    batch = specimen.inputs(one, again.model)
    with torch.no_grad():
        trained = trainer.stack.logits(PLAN, **batch)
        assert compare(again.logits(PLAN, **batch), trained, WIDTH, len(PLAN.steps())).holds
        untrained = opened(one)
        assert not compare(untrained.logits(PLAN, **batch), trained, WIDTH, len(PLAN.steps())).holds
        identity = Plan.identity(untrained.depth)
        with trainer.learning.original():
            assert torch.equal(trainer.stack.logits(identity, **batch), untrained.logits(identity, **batch))
