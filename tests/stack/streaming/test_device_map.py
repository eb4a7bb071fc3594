"""A model that accelerate has spread runs plans in place as step by step, and as the same model on one device.

Only the CPU and the disk are there to spread over; the hooks are those of every device map.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor

from conftest import tiny_llama
from layerwise.errors import ModelError, UnsupportedModel
from layerwise.measure.interventions.sweep import sweep
from layerwise.plan import Reduction
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.executors.state import Merger
from layerwise.stack.inputs import main_tensor
from layerwise.stack.weights import layer_weights
from measure.interventions.test_sweep_pieces import text

PLANS = ("0-5", "0 2-5", "0 4 2 3 1 5", "0 1*3 5*2", "0 (1|2|3):gain=0.5 (2|4) 5", "3 5.attn 0 4.mlp")
IDS = torch.arange(3, 27).view(2, 12)
OUTSIDE = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
MAP = dict.fromkeys(OUTSIDE, "cpu") | {f"model.layers.{n}": "cpu" if n in (1, 4) else "disk" for n in range(6)}


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    """The model on one device, and spread."""
    folder: Path = tmp_path_factory.mktemp("spread")
    tiny_llama().save_pretrained(folder)
    return load(folder, device="cpu"), load(folder, device_map=MAP)


@torch.no_grad()
def outputs(stack: Stack, plan: str) -> list[Tensor]:
    captured = stack.capture(input_ids=IDS)
    stepwise = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
    with stack.under(plan):
        inside = main_tensor(stack.model(input_ids=IDS))
    assert torch.equal(inside, stepwise)
    return [stepwise, inside]


def hooks(stack: Stack) -> list[Any]:
    names = ("_hf_hook", "_old_forward", "forward")
    return [[vars(each).get(name) for name in names] for each in stack.model.modules()]


@pytest.mark.parametrize("plan", [*PLANS[:-1], pytest.param(PLANS[-1], marks=pytest.mark.slow)])
def test_in_place_is_step_by_step_and_the_model_on_one_device(stacks: tuple[Stack, Stack], plan: str) -> None:
    whole, spread = stacks
    before = hooks(spread)
    assert all(map(torch.equal, outputs(whole, plan), outputs(spread, plan)))
    assert hooks(spread) == before
    assert sum(each.is_meta for each in spread.model.parameters()) == 4 * 9


def test_generation_with_a_cache_is_recomputation(stacks: tuple[Stack, Stack]) -> None:
    written = []
    for stack in stacks:
        with stack.under("0 4 (1|2) 3*2 5"):
            for cached in (True, False):
                settings = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "use_cache": cached}
                written.append(stack.model.generate(IDS, **settings))
    assert all(torch.equal(written[0], each) for each in written[1:])


def test_rows_and_hash_are_those_of_the_model_on_one_device(stacks: tuple[Stack, Stack]) -> None:
    whole, spread = stacks
    assert sweep(spread, PLANS[:-1], text(1)) == sweep(whole, PLANS[:-1], text(1))
    assert weight_hash(spread.model) == weight_hash(whole.model)


def test_weights_that_are_not_there_are_refused(stacks: tuple[Stack, Stack]) -> None:
    _, spread = stacks
    assert len(layer_weights(spread, 1)) == 9
    with pytest.raises(UnsupportedModel, match="without a device map that offloads"):
        layer_weights(spread, 0)
    with pytest.raises(ModelError, match="give --resident-layers or --device-map"):
        load(spread.source.name, device_map=MAP, resident_layers=2)


def test_a_hook_of_any_kind_is_run_for_the_visit() -> None:
    called: list[object] = []

    class Noting(ModelHook):
        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            called.append(module.self_attn.layer_idx)
            return args, kwargs

    model = tiny_llama()
    add_hook_to_module(model.model.layers[1], Noting())
    stack = load(model)
    called.clear()
    with stack.under("0 3 1 2"), torch.no_grad():
        model(input_ids=IDS)
    assert called == [2]  # the visit's own slot, and not the block's


def test_branches_are_merged_where_their_group_began() -> None:
    base = torch.zeros(2, 3, device="meta")
    merger = Merger(base)
    merger.add(torch.ones(2, 3))
    assert merger.result(Reduction("mean")).device == base.device
