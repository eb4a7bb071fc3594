"""Whether layers of several models can run in one.

Blocks must have the same class, parameter shapes, configuration, dtype and device. Embedding, norm and head may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from layerwise.errors import ModelError, PlanError
from layerwise.plan import Plan
from layerwise.plan.checks import check_source
from layerwise.plan.config_order import OF_THE_HOST
from layerwise.plan.quantized import weight_type
from layerwise.stack.blocks import block_list
from layerwise.stack.configuration import setting, settings_of, text_config_of
from layerwise.stack.executors.clone import INDEX_NAMES

if TYPE_CHECKING:
    from layerwise.stack import Stack


def check_compatible(sources: Mapping[str, Stack]) -> None:
    """Raise `ModelError`, naming the first difference, unless the layers of all `sources` can run in the first.

    Raises `PlanError` for a name that no plan could write, and for a type of GGUF.
    """
    if not sources:
        raise ModelError('a plan over several models needs them by name: Stack.with_sources({"a": stack, "b": stack})')
    for name in sources:
        check_source(name)
        if weight_type(name) is not None:
            raise PlanError(f"{name} is a type of GGUF and names no model; call it otherwise, as in run-{name}")
    (first, host), *others = sources.items()
    for name, stack in others:
        for what, own, other in _differences(host, stack):
            if own != other:
                fix = "layers of two models can be combined when both have the same configuration"
                if what in ("the dtype", "the device"):
                    fix = f"load {name} with {what.split()[1]}={str(own)!r}"
                raise ModelError(
                    f"layers of {name} ({stack.source.name}) cannot run in {first} ({host.source.name}): "
                    f"{what} is {other}, not {own}; {fix}"
                )


_SETTINGS = (bool, int, float, str, type(None))


def traits(block: nn.Module) -> dict[tuple[str, str], Any]:
    """What a block is built of, by the path of a module inside it and a name there: under no name the class of the
    module, else the shape, dtype and device of a tensor, as a tuple, or a plain setting that is no position."""
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
    ours, result = (_configuration(each.model) for each in (host, stack))
    yield "hidden_size", ours.get("hidden_size"), result.get("hidden_size")
    blocks = [block_list(each.model, each.path) for each in (host, stack)]
    for layer, (mine, other) in enumerate(zip(*blocks, strict=True)):
        yield f"the class of layer {layer}", type(mine).__name__, type(other).__name__
        shapes = [
            {key: each[0] for key, each in traits(block).items() if isinstance(each, tuple)} for block in (mine, other)
        ]
        for key in sorted({*shapes[0], *shapes[1]}):
            name = ".".join(filter(None, key))
            yield f"the shape of {name} in layer {layer}", shapes[0].get(key), shapes[1].get(key)
    for name in sorted({*ours, *result}):
        yield f"{name} in its configuration", ours.get(name), result.get(name)
    yield "the dtype", host.dtype, stack.dtype
    yield "the device", host.device, stack.device


def _configuration(model: nn.Module) -> dict[str, Any]:
    entries = settings_of(text_config_of(model))
    return {name: value for name, value in entries.items() if OF_THE_HOST.search(name) is None}


def refuse_loss_of_a_kind(model: nn.Module, path: str, plan: Plan) -> None:
    """Raise `PlanError` when the stack mixes kinds of layers and `plan` keeps none of one kind.

    Hybrids ask the first attention layer and the last linear layer for the length of the cache.
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
                f"the plan keeps no {kind} layer, and this model's cache takes its length from one: "
                f"keep at least one of layers {layers}"
            )


def _kind(layer_type: str) -> str | None:
    if layer_type in ("moe", "mlp"):
        return None
    return "attention" if layer_type.endswith("attention") and layer_type != "linear_attention" else "recurrent"
