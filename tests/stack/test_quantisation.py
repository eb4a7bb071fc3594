"""Quantised models run plans, sweeps and generation as they are; what needs weights themselves is refused.

Each library is asked where it is installed. `[dev]` has optimum-quanto; torchao, which warns whenever it is imported,
and bitsandbytes are installed by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from conftest import tiny_llama
from layerwise.errors import UnsupportedModel
from layerwise.experiments.opening import base_model
from layerwise.experiments.options.common import BaseModelOptions
from layerwise.measure.gradients.backward import differentiable
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.weights.deltas import deltas
from layerwise.plan import Plan
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.inputs import main_tensor
from layerwise.stack.quantisation import quantisation_of
from layerwise.stack.weights import random_twin
from measure.interventions.test_sweep_pieces import text

PLANS = ("0-5", "0 2-5", "0 4 2 3 1 5", "0 1*3 2-5", "0 (1|2|3):gain=0.5 (2|4) 5")
IDS = torch.arange(3, 27).view(2, 12)


def _torchao() -> Any:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.quantization import Int8WeightOnlyConfig

    return transformers.TorchAoConfig(Int8WeightOnlyConfig())


def _quanto(weights: str) -> Any:
    pytest.importorskip("optimum.quanto", reason="optimum-quanto is not installed")
    return transformers.QuantoConfig(weights=weights)


def _four_bits() -> Any:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )


def _eight_bits() -> Any:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    return transformers.BitsAndBytesConfig(load_in_8bit=True)


WAYS: dict[str, Callable[[], Any]] = {
    **{f"quanto {weights}": partial(_quanto, weights) for weights in ("int8", "float8")},
    "torchao int8": _torchao, "bitsandbytes nf4": _four_bits, "bitsandbytes int8": _eight_bits,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    tiny_llama().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in WAYS])
def stack(request: pytest.FixtureRequest, folder: Path) -> Stack:
    """A quantised model, opened."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=WAYS[request.param](), device_map={"": "cpu"}, dtype=torch.float32
    )
    return load(model.eval())


@torch.no_grad()
def test_plans_in_place_are_plans_step_by_step(stack: Stack) -> None:
    outputs = []
    for plan in PLANS:
        captured = stack.capture(input_ids=IDS)
        stepwise = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
        with stack.under(plan):
            inside = main_tensor(stack.model(input_ids=IDS))
        assert torch.equal(inside, stepwise)
        outputs.append(inside)
    assert torch.equal(outputs[0], main_tensor(stack.model(input_ids=IDS)))
    assert not any(torch.equal(outputs[0], other) for other in outputs[1:])


@torch.no_grad()
def test_generation_with_a_cache_is_recomputation(stack: Stack) -> None:
    for plan in PLANS:
        with stack.under(plan):
            cached = stack.model.generate(IDS, max_new_tokens=4, do_sample=False, eos_token_id=None)
            again = stack.model.generate(IDS, max_new_tokens=4, do_sample=False, eos_token_id=None, use_cache=False)
        assert torch.equal(cached, again)


def test_a_sweep_is_one_plan_at_a_time(stack: Stack) -> None:
    rows = sweep(stack, PLANS, text(1))
    assert {row.plan for row in rows} == {str(Plan.parse(plan)) for plan in PLANS}
    alone = sweep(stack, PLANS[2:3], text(1))
    assert [row for row in rows if row.plan == PLANS[2]] == [row for row in alone if row.plan == PLANS[2]]


def test_what_needs_weights_is_refused(stack: Stack) -> None:
    assert len(weight_hash(stack.model)) == 64
    for asks in (lambda: deltas(stack, seed=0), lambda: random_twin(stack, 0), lambda: _differentiate(stack)):
        with pytest.raises(UnsupportedModel, match=r"is quantised \(\w+.*use the checkpoint before it was quantised"):
            asks()
    with pytest.raises(UnsupportedModel, match=r"cannot train: .* is quantised"):
        base_model("", BaseModelOptions(model=""), stack)


def _differentiate(stack: Stack) -> None:
    with differentiable(stack):
        pass


def test_a_quantised_checkpoint_opens_as_it_was_saved(tmp_path: Path, folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=_torchao(), device_map={"": "cpu"}, dtype=torch.float32
    )
    model.save_pretrained(tmp_path)
    opened = load(tmp_path, device="cpu")
    assert quantisation_of(opened.model) == "torchao"
    with torch.no_grad():
        assert torch.equal(main_tensor(opened.model(input_ids=IDS)), main_tensor(model(input_ids=IDS)))
    with pytest.raises(
        UnsupportedModel, match="is quantised, and the layers of such a model cannot be read one by one"
    ):
        load(tmp_path, resident_layers=2)


def test_a_model_of_plain_numbers_is_not_quantised() -> None:
    assert quantisation_of(tiny_llama()) is None
