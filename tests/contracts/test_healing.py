"""Healing of every model type: only the plan's layers learn, adapters merge exactly, and the result loads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import set_seed

from contracts import specimen
from contracts.specimen import WIDTH, Specimen
from contracts.test_training import EVERY_SPECIMEN, _collate, _examples
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed, SeededSampler
from layerwise.stack import Stack, load
from layerwise.stack.rounding import compare
from layerwise.train.heal.learning import load_healed
from layerwise.train.heal.options import HealingOptions, Method
from layerwise.train.heal.trainer import HealingTrainer
from train.tiny_models import arguments

PLAN = Plan.parse("0 2 4")
STEPS = 2


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
        args=arguments(folder, max_steps=STEPS),
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
