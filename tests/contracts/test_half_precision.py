"""Half precision decides as float32 does on the same weights; wrong models are off by 1% of a layer's update."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts import specimen
from contracts.specimen import Specimen
from contracts.tiers import NIGHTLY, every_type
from contracts.zoo import REFUSED
from layerwise.checkpoint import proof, save, write
from layerwise.errors import LayerwiseError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, branches, load, verify
from layerwise.stack.checks import compatibility
from layerwise.stack.executors import in_place
from layerwise.stack.executors.capture import read_state, returned_state, with_returned_state

laws = import_module("layerwise.stack.verify")  # `layerwise.stack` has the function by that name

# Recurrence with attention, experts, sliding windows, an encoder, sound; other types are tested nightly.
SLOW = ("bamba", "mixtral", "gemma2", "bert", "wav2vec2")
# And for the promises that say nothing of how a type keeps its cache or chooses its mask.
FEW = ("bamba", "bert")

OFF = 0.01
# Layers of every kind: some caches count tokens by an attention layer.
GROUPED = Plan.parse("4 (1|0)")
READERS_GROUPED = Plan.parse("0 1 4 (3|2)")
HALVED = Plan.parse("4.attn (1|0)")
SHORTER = Plan.parse("0 2 4")


_OF_A_KIND = {refusal.specimen.kind: refusal for refusal in reversed(REFUSED)}
REFUSED_BY_TIER = [
    pytest.param(refusal, marks=pytest.mark.slow if refusal in _OF_A_KIND.values() else NIGHTLY, id=str(refusal))
    for refusal in REFUSED
]

HALVES = pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=NIGHTLY)], ids=["bfloat16", "float16"]
)


@dataclass(frozen=True)
class Twins:
    half: nn.Module
    whole: nn.Module
    batches: tuple[dict[str, Tensor], dict[str, Tensor]]

    def each(self, decide: Callable[[nn.Module, dict[str, Tensor]], Any]) -> tuple[Any, Any]:
        found = []
        for model, batch in zip((self.half, self.whole), self.batches, strict=True):
            try:
                found.append(decide(model, batch))
            except LayerwiseError as refused:
                found.append(_without_numbers(str(refused)))
        return found[0], found[1]


def twins(one: Specimen, dtype: torch.dtype, rounded_buffers: bool = True) -> Twins:
    """Return the model in half precision and in float32; a checkpoint's buffers are recomputed at loading."""
    half, whole = specimen.build(one).to(dtype), specimen.build(one)
    with torch.no_grad():
        for own, rounded in zip(whole.parameters(), half.parameters(), strict=True):
            own.copy_(rounded)
        for own, rounded in zip(whole.buffers(), half.buffers(), strict=True) if rounded_buffers else ():
            own.copy_(rounded)
    batch = specimen.inputs(one, half)
    rounded = {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}
    wide = {name: value.float() if value.is_floating_point() else value for name, value in rounded.items()}
    try:
        with torch.no_grad():
            half(**rounded)
    except RuntimeError as error:  # a Fourier transform, for one
        pytest.skip(f"{one} itself does not run in {dtype}: {error}")
    return Twins(half, whole, (rounded, wide))


@pytest.fixture(autouse=True)
def _no_type_is_judged_by_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every type of the zoo can run in float32; decoding is checked on few tokens."""
    for module in (compatibility, branches, laws, proof):
        monkeypatch.setattr(module, "in_float32", _computing_once(module.in_float32))
    monkeypatch.setattr(laws, "NEW_TOKENS", 3)


def _computing_once(in_float32: Any) -> Any:
    def compute_once(stack: Stack, inputs: Any, compute: Any, *others: Stack) -> Any:
        seen = []

        def counted(inputs: Any) -> Any:
            seen.append(inputs)
            return compute(inputs)

        answer = in_float32(stack, inputs, counted, *others)
        assert len(seen) == 1, f"{type(stack.model).__name__} cannot run in float32"
        return answer

    return compute_once


def loaded(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Any, ...]:
    stack = load(model)
    before = [(id(tensor), tensor.clone()) for tensor in (*model.parameters(), *model.buffers())]
    stack.inspect(**batch)
    try:
        with torch.no_grad():
            paths = [dict(pair) for pair in stack.branches(stack.capture(**batch)).paths]
    except UnsupportedModelError as refused:
        paths = str(refused)
    after = [*model.parameters(), *model.buffers()]
    assert [number for number, _ in before] == [id(tensor) for tensor in after]
    assert all(torch.equal(left, right) for (_, left), right in zip(before, after, strict=True))
    return stack.path, stack.head_by_token, paths


def verified(model: nn.Module, batch: dict[str, Tensor]) -> list[tuple[str, bool | None]]:
    stack = load(model)
    inputs = {name: value for name, value in batch.items() if name != "attention_mask"}
    try:
        stack.branches(stack.capture(**inputs))
        plan = HALVED
    except UnsupportedModelError:
        plan = GROUPED if stack.sharing is None else READERS_GROUPED
    return [(law.name, law.holds) for law in verify(stack, plan, inputs)]


def saved(model: nn.Module, batch: dict[str, Tensor]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return save(load(model), SHORTER, f"{folder}/model", inputs=batch).plan


def _without_numbers(reason: str) -> str:
    return re.sub(r"\d[\d.e-]*", "N", reason)


def _scaled_by_position(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    before, after = read_state(args, kwargs), returned_state(output)
    return with_returned_state(output, before + (after - before) * (1 + OFF * module.layer_num))


def _bent(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    before, after = read_state(args, kwargs), returned_state(output)
    added = after - before
    return with_returned_state(output, before + added * (1 + OFF * torch.tanh(added.abs())))


@HALVES
@every_type(fast=("gpt2", "vit"), slow=SLOW)
def test_right_models_are_loaded_and_split_alike(one: Specimen, dtype: torch.dtype) -> None:
    half, whole = twins(one, dtype).each(loaded)
    assert half == whole
    assert whole[0] == one.layers


@HALVES
@pytest.mark.parametrize("refusal", REFUSED_BY_TIER)
def test_half_precision_refuses_what_float32_refuses(refusal: Any, dtype: torch.dtype) -> None:
    half, whole = twins(refusal.specimen, dtype).each(loaded)
    assert half == whole
    assert _without_numbers(refusal.reason) in half


WRONG_BLOCKS = {
    "its blocks compute something else when their position changes": _scaled_by_position,
    "cannot be split into attn and mlp": _bent,
}


@HALVES
@pytest.mark.parametrize("reason", WRONG_BLOCKS)
@every_type(fast=("vit",), slow=FEW)
def test_blocks_that_are_a_percent_off_are_refused_alike(one: Specimen, reason: str, dtype: torch.dtype) -> None:
    pair = twins(one, dtype)
    for model in (pair.half, pair.whole):
        for position, block in enumerate(model.get_submodule(one.layers)):
            block.layer_num = position
            block.register_forward_hook(WRONG_BLOCKS[reason], with_kwargs=True)
    half, whole = pair.each(loaded)
    assert reason in str(half)
    assert half == whole


@HALVES
@every_type(fast=("vit",), slow=FEW)
def test_right_plans_are_verified_alike(one: Specimen, dtype: torch.dtype) -> None:
    half, whole = twins(one, dtype).each(verified)
    assert half == whole
    assert ("plan in place = plan step by step", True) in half


@HALVES
@every_type(fast=("vit",), slow=FEW)
def test_a_merge_that_is_off_is_found(one: Specimen, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = twins(one, dtype)
    follow = in_place.follow
    for model in (pair.half, pair.whole):  # the original model keeps its promises
        load(model)

    def follow_off(*arguments: Any) -> Tensor:
        state = follow(*arguments)
        # Every other entry: a norm would not notice if all of them grew alike.
        return state * (1 + OFF * (torch.arange(state.shape[-1]) % 2)).to(state.dtype)

    monkeypatch.setattr(in_place, "follow", follow_off)
    monkeypatch.setattr(compatibility, "prove_free_of_position", lambda *arguments: None)
    monkeypatch.setattr(laws, "_decoding_laws", lambda *arguments: ())
    half, whole = pair.each(verified)
    assert half == whole
    assert ("plan in place = plan step by step", False) in half


@HALVES
@every_type(fast=("gpt2", "vit"), slow=SLOW)
def test_checkpoints_are_written_alike(one: Specimen, dtype: torch.dtype) -> None:
    half, whole = twins(one, dtype, rounded_buffers=False).each(saved)
    assert half == whole


@HALVES
@pytest.mark.parametrize("wrong", ["another order", "one layer off"])
@every_type(fast=("vit",), slow=FEW)
def test_wrong_checkpoints_are_refused(
    one: Specimen, wrong: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = write._weights
    order = Plan.parse("2 0 4") if wrong == "another order" else SHORTER
    scale = OFF if wrong == "one layer off" else 0.0

    def written(stack: Stack, plan: Plan) -> dict[str, Tensor]:
        prefix = f"{stack.path}.1."
        return {
            name: value * (1 + scale) if name.startswith(prefix) and value.is_floating_point() else value
            for name, value in weights(stack, order).items()
        }

    monkeypatch.setattr(write, "_weights", written)
    half, whole = twins(one, dtype, rounded_buffers=False).each(saved)
    assert half == whole
    assert half != str(SHORTER)
