"""Quantized layers have the weights of a GGUF file of that type; the model is unchanged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from checkpoint.gguf_models import CAUSAL, write_causal
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import LayerwiseError, ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.plan.checks import TYPES, weight_type
from layerwise.stack import Stack, load, quantization
from layerwise.stack.load import weight_hash
from layerwise.swarm.supply import Supply
from stack.makers import IDS, stack_of
from tier import TIER

gguf: Any = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'layerwise[gguf]'")

FAST = [*(("llama", kind) for kind in TYPES[:4]), ("gpt2", "Q8_0"), ("qwen2", "MXFP4")]
EVERY = [(architecture, kind) for architecture in CAUSAL for kind in TYPES]


def norm(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float((each.double() - others[name].double()).norm()) for name, each in weights.items()}


def weights_of(stack: Stack, layer: int, source: str | None = None) -> dict[str, torch.Tensor]:
    return {name: each.detach() for name, each in stack.block(layer, source).named_parameters()}


@pytest.mark.parametrize(("architecture", "kind"), EVERY if TIER == "nightly" else FAST)
def test_a_layer_at_a_type_has_the_weights_of_a_file_of_that_type(architecture: str, kind: str, tmp_path: Path) -> None:
    exact = load(write_causal(tmp_path / "exact.gguf", architecture, "F32"))
    stored = load(write_causal(tmp_path / "stored.gguf", architecture, kind))
    for layer in range(exact.depth):
        own, other = weights_of(exact, layer, kind), weights_of(stored, layer)
        assert own.keys() == other.keys()
        assert all(torch.equal(own[name], other[name]) for name in own), layer
        assert any(not torch.equal(each, weights_of(exact, layer)[name]) for name, each in own.items())
    reader = gguf.GGUFReader(tmp_path / "stored.gguf")
    (tensor,) = [each for each in reader.tensors if each.name == "blk.1.ffn_down.weight"]
    module = next(m for name, m in exact.blocks[1].named_modules() if name in ("mlp.down_proj", "mlp.c_proj"))
    rows: Any = module.weight.T if architecture == "gpt2" else module.weight
    if kind in ("Q4_0", "Q8_0", "MXFP4"):
        assert np.array_equal(quantization.quantize(rows, kind), tensor.data)


def test_noise_has_the_norm_of_the_error_matrix_by_matrix_and_a_seed() -> None:
    stack = stack_of("gpt2")
    own, error, noise = (weights_of(stack, 2, source) for source in (None, "Q4_0", "Q4_0-noise0"))
    size, other = norm(error, own), norm(noise, own)
    matrices = [name for name, each in own.items() if each.ndim == 2]
    assert [name for name in size if size[name]] == matrices
    for name in matrices:
        assert other[name] == pytest.approx(size[name], rel=1e-5)
        direction, along = (noise[name] - own[name]).flatten(), (error[name] - own[name]).flatten()
        assert abs(torch.cosine_similarity(direction, along, dim=0)) < 0.1
    again = weights_of(stack_of("gpt2"), 2, "Q4_0-noise0")
    assert all(torch.equal(again[name], noise[name]) for name in noise)
    for source, layer in (("Q4_0-noise1", 2), ("Q4_1-noise0", 2), ("Q4_0-noise0", 3)):
        apart = weights_of(stack, layer, source)[matrices[0]] - weights_of(stack, layer)[matrices[0]]
        assert abs(torch.cosine_similarity(apart.flatten(), (noise[matrices[0]] - own[matrices[0]]).flatten(), 0)) < 0.1


def test_a_matrix_whose_rows_are_no_whole_blocks_is_rounded_to_f16() -> None:
    stack = stack_of("gemma")
    own, changed = (weights_of(stack, 1, source) for source in (None, "Q4_0"))
    ragged = [name for name, each in own.items() if each.ndim == 2 and each.shape[1] % 32]
    whole = [name for name, each in own.items() if each.ndim == 2 and not each.shape[1] % 32]
    assert ragged
    assert whole
    for name in ragged:
        assert torch.equal(changed[name], own[name].half().float()), name
    assert all((changed[name] - own[name]).norm() > 0.01 * own[name].norm() for name in whole)
    block, name = stack.block(1), "Q4_0"
    sizes = [each.numel() * (2 if key in ragged else 18 / 32 if key in whole else 4) for key, each in own.items()]
    assert quantization.bytes_at_type(block, name) == sum(sizes)


@pytest.mark.parametrize("inference", [False, True])
def test_changed_weights_are_quantized_again_and_the_cache_is_bounded(
    monkeypatch: pytest.MonkeyPatch, inference: bool
) -> None:
    model = tiny_llama()
    stack, plan = load(model), Plan.parse("Q4_0:0-5")
    with torch.inference_mode():
        before = stack.logits(plan, input_ids=IDS)
        assert torch.equal(stack.logits(plan, input_ids=IDS), before)
    with torch.inference_mode(inference), torch.no_grad():
        model.model.layers[3].mlp.up_proj.weight.mul_(-1)
    with torch.inference_mode():
        after = stack.logits(plan, input_ids=IDS)
        assert not torch.equal(after, before)
        assert torch.equal(load(model).logits(plan, input_ids=IDS), after)
        assert len(stack._quantized._cache) == 7, "six layers, and one as it was"
        monkeypatch.setattr(quantization, "MAX_CACHED_BYTES", 1)
        assert torch.equal(stack.logits(plan, input_ids=IDS), after)
    assert len(stack._quantized._cache) == 1


def test_the_model_stays_as_it_is_and_gradients_of_other_layers_do_not() -> None:
    model = tiny_llama()
    stack = load(model)
    before, own = weight_hash(model), model(IDS).logits
    with torch.inference_mode():
        stack.logits("0 Q8_0:1 2-5", input_ids=IDS)  # what is kept of it serves outside as well
    with stack.under("0 Q8_0:1 2-5"):
        loss = model(IDS, labels=IDS).loss
        loss.backward()
    assert model.model.layers[1].mlp.up_proj.weight.grad is None
    assert model.model.layers[0].mlp.up_proj.weight.grad.any()
    assert weight_hash(model) == before
    assert torch.equal(model(IDS).logits, own)


def test_a_half_at_a_type_is_that_half_of_the_layer_at_the_type() -> None:
    stack = stack_of("llama")
    with torch.inference_mode():
        captured = stack.capture(input_ids=IDS)
        state = captured.state
        whole = stack.apply(2, state, captured, source="Q4_0")
        in_turn = stack.apply(2, stack.apply(2, state, captured, "attn", "Q4_0"), captured, "mlp", "Q4_0")
        mixed = stack.apply(2, stack.apply(2, state, captured, "attn", "Q4_0"), captured, "mlp")
    torch.testing.assert_close(in_turn, whole, rtol=1e-5, atol=1e-5)
    assert (mixed - whole).abs().max() > 1e-2


def with_extra() -> Stack:
    stack = load(tiny_llama())
    stack.blocks[1].register_parameter("extra", nn.Parameter(torch.ones(2, 32)))
    return stack


def enter(stack: Stack) -> None:
    with stack.under("0 Q4_0:1"):
        pass


REFUSED: dict[str, tuple[Callable[[Path], object], type[LayerwiseError], str]] = {
    "other": (lambda _: with_extra().check("Q4_0:1"), UnsupportedModelError, r"its extra of shape \(2, 32\) does not"),
    "training": (lambda _: enter(load(tiny_llama().train())), PlanError, "cannot train .* with Q4_0:1"),
    "name": (
        lambda _: Stack.with_sources({"Q4_0": stack_of("llama")}),
        PlanError,
        "Q4_0 is a quantization type and cannot name a model",
    ),
    "save": (lambda path: save(stack_of("llama"), "0 Q4_0:1", path / "m"), PlanError, "cannot save a model under"),
    "swarm": (lambda _: Supply(stack_of("llama"), Plan.parse("0 Q4_0:1"), []), PlanError, "cannot serve a model under"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_plans_at_types_that_cannot_run_are_refused(name: str, tmp_path: Path) -> None:
    carry_out, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        carry_out(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_types_without_the_package_or_on_the_disk_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"requires the package gguf: pip install 'layerwise\[gguf\]'") as caught:
        stack_of("llama").check("0 Q4_0:1")
    assert not isinstance(caught.value, UnsupportedModelError), "which would leave plans of a sweep out"
    monkeypatch.undo()

    path = write_causal(tmp_path / "m.gguf", "llama", "F32")
    with pytest.raises(UnsupportedModelError, match=r"cannot run layer 1 at Q4_0: .* without --resident-layers"):
        load(path, resident_layers=2).check("0 Q4_0:1")


@pytest.mark.parametrize("name", ["Q4_0-noise", "Q4_0-noise01", "q4_0", "Q4_0-noise-1", "Q6_K", "a", None])
def test_names_of_types_are_spelled_in_one_way(name: str | None) -> None:
    assert weight_type(name) is None
