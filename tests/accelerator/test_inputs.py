"""Inputs, copies, generators and clocks follow the device of the model."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

from conftest import tiny_llama
from layerwise.errors import ModelError
from layerwise.measure.cost.pass_time import PassClock
from layerwise.measure.language.benchmarks import seeded_generators
from layerwise.stack import Stack, load
from layerwise.stack.inputs import on_device
from layerwise.stack.weights import make_random_init
from layerwise.train.heal.options import HealingOptions
from layerwise.train.new_head import with_new_head
from train.heal.healing_models import PLAN, opened, trainer_of
from train.tiny_models import tiny_vit

PLANS = pytest.mark.parametrize("plan", ["0-5", "0 2 1 3-5", "0 (1|2)*2 5"])
IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def stack(device: torch.device) -> Stack:
    return load(tiny_llama().to(device))


@PLANS
def test_cpu_inputs_follow_the_stack(plan: str, stack: Stack) -> None:
    inputs = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    there = {name: value.to(stack.device) for name, value in inputs.items()}
    expected = stack.logits(plan, **there)
    assert torch.equal(stack.logits(plan, **inputs), expected)
    captured = stack.capture(**inputs)
    assert torch.equal(stack.finish(stack.run(plan, captured), inputs).logits, expected)
    with stack.under(plan):
        assert torch.equal(stack.model(**inputs).logits, stack.model(**there).logits)
        assert torch.equal(stack.model(IDS).logits, stack.model(IDS.to(stack.device)).logits)
    with torch.no_grad(), pytest.raises(RuntimeError, match="same device"):
        stack.model(**inputs)


@PLANS
@pytest.mark.filterwarnings("ignore:You are calling .generate")
def test_a_cpu_prompt_is_continued(plan: str, stack: Stack) -> None:
    with stack.under(plan):
        found, expected = (
            stack.model.generate(ids, max_new_tokens=4, do_sample=False) for ids in (IDS, IDS.to(stack.device))
        )
    assert torch.equal(found.cpu(), expected.cpu())


def test_nested_tensors_are_moved(device: torch.device) -> None:
    own = BatchEncoding({"input_ids": IDS})
    given = {"own": own, "list": [IDS, (IDS, None)], "output": BaseModelOutput(IDS.float()), "word": "text", "count": 3}
    found = on_device(given, device)
    assert isinstance(found["output"], BaseModelOutput)
    moved = [found["own"]["input_ids"], found["list"][0], found["list"][1][0], found["output"].last_hidden_state]
    assert all(isinstance(each, Tensor) and each.device.type == device.type for each in moved)
    assert (found["word"], found["count"], found["list"][1][1]) == ("text", 3, None)
    assert own["input_ids"] is IDS
    assert given["list"][0] is IDS


def test_a_new_head_is_on_the_requested_device(device: torch.device, tmp_path: Path) -> None:
    tiny_vit().save_pretrained(tmp_path)
    places = {name: with_new_head(str(tmp_path), ("a", "b"), device=name).device for name in (device.type, "cpu")}
    assert {name: place.type for name, place in places.items()} == {device.type: device.type, "cpu": "cpu"}


def test_models_on_different_devices_are_rejected(stack: Stack) -> None:
    with pytest.raises(
        ModelError, match=rf"the device is cpu, not {stack.device}; load b with device='{stack.device}'"
    ):
        Stack.with_sources({"a": stack, "b": load(tiny_llama())})


def test_healing_moves_its_copies_to_the_device_once(device: torch.device, tmp_path: Path) -> None:
    trainer = trainer_of(
        opened("llama"), "llama", tmp_path, HealingOptions(plan=str(PLAN), method="full"), use_cpu=False
    )
    assert trainer.stack.device.type == device.type
    held = []
    for _ in range(2):
        with trainer.learning.original():
            held.append([weight.data_ptr() for weight in trainer.stack.model.parameters()])
    assert held[0] == held[1]


def test_random_state_is_restored(stack: Stack, device: torch.device) -> None:
    module = torch.get_device_module(device)
    before = module.get_rng_state(), torch.get_rng_state()
    drawn = [make_random_init(stack, 3) for _ in range(2)]
    with seeded_generators(3):
        first = torch.rand(3, device=device)
    with seeded_generators(3):
        assert torch.equal(first, torch.rand(3, device=device))
    assert torch.equal(module.get_rng_state(), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert all(torch.equal(*pair) for pair in zip(*(each.model.parameters() for each in drawn), strict=True))


def test_timing_uses_the_device_of_the_model(device: torch.device) -> None:
    if torch.accelerator.device_count() < 2:
        pytest.skip("one device")
    for current, own in itertools.product(range(2), repeat=2):
        with torch.get_device_module(device).device(current):
            clock = PassClock(torch.device(device.type, own))
            mark = clock.mark()
            assert mark.device.index == own
            assert clock.seconds(lambda: None) >= 0
