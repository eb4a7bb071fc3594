"""Check that a model can run plans, and that layers of several models can be combined.

Blocks of combined models must have the same class, shapes, configuration, dtype and device; embedding, norm and head
may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerwise.errors import ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.plan.checks import check_source, weight_type
from layerwise.plan.config_order import HOST_SETTINGS
from layerwise.stack.blocks import block_list
from layerwise.stack.configuration import setting, settings_of, text_config_of
from layerwise.stack.executors.clone import INDEX_NAMES, indices
from layerwise.stack.inputs import evaluating, main_tensor
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import Agreement, compare, same

if TYPE_CHECKING:
    from layerwise.stack import Capture, Stack


def check_compatible(sources: Mapping[str, Stack]) -> None:
    """Check that the first model can run the layers of all others. Raise `ModelError` with the first difference.

    Raises `PlanError` if a name cannot be used in plans.
    """
    if not sources:
        raise ModelError('sources must map names to stacks, as in Stack.with_sources({"a": stack, "b": stack})')
    for name in sources:
        check_source(name)
        if weight_type(name) is not None:
            raise PlanError(f"{name} is a quantization type and cannot name a model; rename it, as in run-{name}")
    (first, host), *others = sources.items()
    for name, stack in others:
        for what, own, other in _differences(host, stack):
            if own != other:
                fix = "models can be combined if they have the same configuration"
                if what in ("the dtype", "the device"):
                    fix = f"load {name} with {what.split()[1]}={str(own)!r}"
                raise ModelError(
                    f"layers of {name} ({stack.source.name}) cannot run in {first} ({host.source.name}): "
                    f"{what} is {other}, not {own}; {fix}"
                )


_SETTINGS = (bool, int, float, str, type(None))


def traits(block: nn.Module) -> dict[tuple[str, str], Any]:
    """Describe everything that must match between two blocks: classes, tensors and settings.

    The keys are (module path, name). A tensor is described by its shape, dtype and device.
    """
    collected: dict[tuple[str, str], Any] = {}
    for path, module in block.named_modules():
        collected[path, ""] = type(module)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            collected[path, name] = None if tensor is None else (tuple(tensor.shape), tensor.dtype, tensor.device)
        for name, value in vars(module).items():
            if type(value) in _SETTINGS and name not in INDEX_NAMES and not name.startswith("_"):
                collected[path, name] = value
    return collected


def _differences(host: Stack, stack: Stack) -> Iterator[tuple[str, Any, Any]]:
    yield "the number of layers", host.depth, stack.depth
    ours, theirs = (_configuration(each.model) for each in (host, stack))
    yield "hidden_size", ours.get("hidden_size"), theirs.get("hidden_size")
    blocks = [block_list(each.model, each.path) for each in (host, stack)]
    for layer, (mine, other) in enumerate(zip(*blocks, strict=True)):
        yield f"the class of layer {layer}", type(mine).__name__, type(other).__name__
        shapes = [
            {key: each[0] for key, each in traits(block).items() if isinstance(each, tuple)} for block in (mine, other)
        ]
        for key in sorted({*shapes[0], *shapes[1]}):
            name = ".".join(filter(None, key))
            yield f"the shape of {name} in layer {layer}", shapes[0].get(key), shapes[1].get(key)
    for name in sorted({*ours, *theirs}):
        yield f"{name} in its configuration", ours.get(name), theirs.get(name)
    yield "the dtype", host.dtype, stack.dtype
    yield "the device", host.device, stack.device


def _configuration(model: nn.Module) -> dict[str, Any]:
    entries = settings_of(text_config_of(model))
    return {name: value for name, value in entries.items() if HOST_SETTINGS.search(name) is None}


def refuse_loss_of_a_kind(model: nn.Module, path: str, plan: Plan) -> None:
    """Raise `PlanError` if `plan` skips all attention layers, or all recurrent layers, of a hybrid model.

    Such models read the length of the cache from their first attention layer and their last recurrent layer.
    """
    owner = model.get_submodule(path.rpartition(".")[0])
    types = setting(getattr(owner, "config", None), "layer_types")
    if not isinstance(types, list | tuple) or len(types) != len(model.get_submodule(path)):  # type: ignore[arg-type]
        return
    kinds = [_kind(str(name)) for name in types]
    kept = {kinds[layer] for layer in plan.layers()}
    for kind in ("attention", "recurrent"):
        if kind in kinds and kind not in kept:
            layers = ", ".join(str(layer) for layer, layer_kind in enumerate(kinds) if layer_kind == kind)
            raise PlanError(
                f"the plan must keep at least one {kind} layer, which determines the length of this model's cache: one "
                f"of the layers {layers}"
            )


def _kind(layer_type: str) -> str | None:
    if layer_type in ("moe", "mlp"):
        return None
    return "attention" if layer_type.endswith("attention") and layer_type != "linear_attention" else "recurrent"


def prove_repeatable(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    if not same(main_tensor(stack.model(**inputs)), own):
        raise UnsupportedModelError(
            f"{type(stack.model).__name__} gives different outputs for the same input in evaluation mode, "
            "so effects cannot be distinguished from chance"
        )


def prove_identity(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> None:
    ours = stack.logits(Plan.identity(stack.depth), **inputs)
    if not same(ours, own):
        raise UnsupportedModelError(
            f"{type(stack.model).__name__}: the identity plan over {stack.path} does not give the model's own output "
            f"(they differ by up to {(ours - own).abs().max().item():.3g}); "
            "the model does more with its layers than run them in order"
        )


def runs_in_place(stack: Stack, inputs: Mapping[str, Any]) -> bool:
    with evaluating(stack.model), torch.no_grad():
        own = main_tensor(stack.model(**inputs))
        with stack.under(Plan.identity(stack.depth)):
            return same(main_tensor(stack.model(**inputs)), own)


def prove_free_of_position(stack: Stack, inputs: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModelError` if the outputs of blocks depend on their position in the model.

    With the layers in descending order, and then the first one again, the model's own forward must give the same output
    as calling the blocks one by one.
    """
    sharing = stack.sharing
    descending = range(stack.depth - 1, -1, -1) if sharing is None else sharing.allowed_order(stack.depth)
    moved = Plan.of([*descending, 0])

    _, agreement = in_float32(stack, inputs, lambda inputs: both_ways(stack, moved, inputs))
    if not agreement.holds:
        raise UnsupportedModelError(
            f"{type(stack.model).__name__}: its blocks compute something else when their position changes "
            f"(outputs are {agreement}), so plans would differ in place and step by step" + numbering(stack.blocks)
        )


def numbering(blocks: Iterable[nn.Module]) -> str:
    numbers = [min(indices(block), default=position) for position, block in enumerate(blocks)]
    if numbers == [*range(len(numbers))] or len(set(numbers)) == 1:
        return ""
    return (
        f". Its blocks have layer_idx {', '.join(map(str, numbers))}. If their list was edited, update the "
        "configuration to match it"
    )


def both_ways(stack: Stack, plan: Plan, inputs: Mapping[str, Any]) -> tuple[Capture, Agreement]:
    captured = stack.capture(**inputs)
    stepwise = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
    with stack.under(plan):
        inside = main_tensor(stack.model(**inputs))
    return captured, compare(inside, stepwise, captured.state.shape[-1], len(plan.steps()))


def head_acts_by_token(stack: Stack, inputs: Mapping[str, Any], own: Tensor) -> bool:
    ids = inputs.get("input_ids")
    if ids is None or own.shape[:2] != ids.shape or own.ndim != 3 or ids.shape[1] < 3:
        return False

    def is_equal(inputs: Mapping[str, Any]) -> bool:
        captured = stack.capture(**inputs)
        state = stack.run(Plan.identity(stack.depth), captured)
        whole = main_tensor(stack.finish(state, captured.inputs))
        try:
            some = stack.changed(state, lambda each: each[:1, 1:-1])
            partial = main_tensor(stack.finish(some, {"input_ids": ids[:1, 1:-1]}))
        except (RuntimeError, ValueError, IndexError):
            return False
        return compare(partial, whole[:1, 1:-1], state.shape[-1], visits=1).holds

    return in_float32(stack, inputs, is_equal)
