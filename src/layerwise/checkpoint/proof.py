"""The last proof of a written checkpoint: it is loaded again, and its logits are compared with those of the plan."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging

from layerwise.bounded import reason_of
from layerwise.checkpoint.compact import over_stored, written_layers
from layerwise.checkpoint.remote_code import MODULE
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import LayerwiseError, ModelError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.inputs import evaluating, example_inputs, main_tensor
from layerwise.stack.per_layer import per_layer_tensors
from layerwise.stack.placement import named_tensors
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import Agreement, compare


def proof_inputs(stack: Stack, inputs: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    """Return the batch that logits are compared on, by default a small seeded one, on the device of `stack`.

    Raises `ModelError` if there is none.
    """
    batch = example_inputs(stack.model) if inputs is None else inputs
    if batch is None:
        raise ModelError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up; pass a batch to check the "
            "checkpoint on: save(stack, plan, folder, inputs=...), or write a model from its folder with --no-prove"
        )
    return {name: each.to(stack.device) if isinstance(each, Tensor) else each for name, each in batch.items()}


def prove(stack: Stack, plan: Plan, draft: Path, inputs: Mapping[str, Tensor], *, compact: bool) -> float:
    """Return the relative difference between the logits of the folder and of the plan, or refuse more than rounding.

    The parameter counts must match, too. The code in the folder is tried as well. Half precision is compared in
    float32.
    """
    kind = type(stack.model).__name__
    stored = written_layers(plan, compact)
    with explained(kind, plan):
        loaded = _loaded(stack, stored, draft)
        agreements = [_agreement(stack, plan, loaded, inputs, over_stored(plan) if compact else None)]
        own_code = _class_beside(draft, kind) if compact else None
        if own_code is not None:
            agreements.append(_agreement(stack, plan, _loaded(stack, stored, draft, own_code), inputs))
    worst = max(agreements, key=lambda each: each.gap)
    if loaded.num_parameters() != parameters_of(stack, stored) or not worst.holds:
        raise UnsupportedModel(
            f"{kind} was written and loaded again, and its logits and the plan's are {worst}: its configuration cannot "
            "say what the plan does; run it in place with stack.under"
        )
    return worst.gap


def _agreement(
    stack: Stack, plan: Plan, loaded: PreTrainedModel, inputs: Mapping[str, Tensor], again: Plan | None = None
) -> Agreement:
    copy = Stack(loaded, stack.path)

    def both(inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, int]:
        actual = main_tensor(loaded(**inputs)) if again is None else copy.logits(again, **inputs)
        return actual, stack.logits(plan, **inputs), stack.capture(**inputs).state.shape[-1]

    with evaluating(stack.model), torch.inference_mode():
        actual, expected, width = in_float32(stack, inputs, both, copy)
    return compare(actual, expected, width, len(plan.steps()))


def _class_beside(draft: Path, name: str) -> Any | None:
    file = draft / f"{MODULE}.py"
    if not file.is_file():
        return None
    module = types.ModuleType(f"{MODULE}_{draft.name.strip('.')}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    return getattr(module, name)


def parameters_of(stack: Stack, plan: Plan) -> int:
    inside = {
        id(parameter) for block in stack.model.get_submodule(stack.path).children() for parameter in block.parameters()
    }
    outside = sum(each.numel() for each in stack.model.parameters() if id(each) not in inside)
    sizes = (sum(each.numel() for each in stack.block(s.layer, s.source).parameters()) for s in plan.steps())
    parameters = {name for name, _ in stack.model.named_parameters()}
    entries = per_layer_tensors(stack.model, stack.path).items()
    added = (each.added(len(plan.steps()), stack.depth) for name, each in entries if name in parameters)
    return outside + sum(added) + sum(sizes)


@contextmanager
def explained(kind: str, plan: Plan) -> Iterator[None]:
    try:
        yield
    except LayerwiseError:
        raise
    except Exception as error:  # a model may fail in any way under a configuration that nobody had in mind
        raise UnsupportedModel(
            f"{kind} was written, and does not run when it is loaded again ({reason_of(error, lines=2)}): its "
            f"configuration cannot say what {plan} does; run it in place with stack.under"
        ) from error


def _loaded(stack: Stack, plan: Plan, draft: Path, kind: Any = None) -> PreTrainedModel:
    parameters = [each.dtype for each in _tensors(stack, plan).values() if isinstance(each, nn.Parameter)]
    kind = kind or type(stack.model)
    with quiet_transformers():
        loaded: PreTrainedModel = from_pretrained(
            kind,
            draft,
            dtype=reduce(torch.promote_types, parameters),
            use_safetensors=True,
            attn_implementation=getattr(stack.model.config, "_attn_implementation", None),
        )
    stored = _tensors(stack, plan, loaded)
    for name, tensor in named_tensors(loaded):
        tensor.data = tensor.data.to(stored.get(name, tensor).dtype)
    return loaded.to(stack.device).eval()


def _tensors(stack: Stack, plan: Plan, loaded: nn.Module | None = None) -> dict[str, Tensor]:
    prefix, steps = f"{stack.path}.", plan.steps()
    slots = range(len(steps)) if loaded is None else block_list(loaded, stack.path)._modules
    modules = {
        f"{prefix}{slot}.": stack.block(each.layer, each.source) for slot, each in zip(slots, steps, strict=False)
    }
    outside = [(name, tensor) for name, tensor in named_tensors(stack.model) if not name.startswith(prefix)]
    inside = [(f"{slot}{name}", tensor) for slot, block in modules.items() for name, tensor in named_tensors(block)]
    return dict([*outside, *inside])


@contextmanager
def quiet_transformers() -> Iterator[None]:
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
