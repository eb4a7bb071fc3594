"""Run half-precision models in float32, one block at a time, since rounding would hide differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from layerwise.errors import LayerwiseError
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.occupancy import inspecting
from layerwise.stack.placement import named_tensors
from layerwise.stack.rounding import HALF
from layerwise.stack.streaming.resident import hold

if TYPE_CHECKING:
    from layerwise.stack import Stack

Inputs = Mapping[str, Any]
Result = TypeVar("Result")


def in_float32(stack: Stack, inputs: Inputs, compute: Callable[[Inputs], Result], *others: Stack) -> Result:
    """Return `compute(inputs)`, with inputs and models in float32 or, if that fails, in their original dtype.

    Other threads that run plans or capture batches wait.
    """
    stacks = (stack, *stack.sources.values(), *others)
    models = {id(each.model): each for each in stacks}.values()
    with inspecting(stack.model, stack.path, stack.source.name), _exact_products():
        if not any(tensor.dtype in HALF for each in models for _, tensor in named_tensors(each.model)):
            return compute(inputs)
        try:
            with ExitStack() as wide:
                for each in models:
                    wide.enter_context(widened(each.model, each.path))
                return compute(_float32(inputs))
        except LayerwiseError:
            raise
        except Exception:
            return compute(inputs)


@contextmanager
def widened(model: nn.Module, path: str) -> Iterator[None]:
    """Make `model` compute in float32. Blocks are converted while they run, and all other modules until the end."""
    blocks = list(block_list(model, path))
    inside = {id(module) for block in blocks for module in block.modules()}
    with ExitStack() as undo:
        undo.enter_context(_attention_of_any_dtype(model))
        undo.enter_context(_held_in_float32(module for module in model.modules() if id(module) not in inside))
        for block in blocks:
            undo.enter_context(_in_float32_while_it_runs(block))
        yield


@contextmanager
def computing_as(state: Tensor, block: nn.Module) -> Iterator[None]:
    """Keep a block of a `widened` model in float32 between calls, unless `state` is in half precision."""
    hold(block)
    with _held_in_float32(() if state.dtype in HALF else block.modules()):
        yield


@contextmanager
def _in_float32_while_it_runs(block: nn.Module) -> Iterator[None]:
    calls: list[ExitStack] = []

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        hold(block)
        calls.append(ExitStack())
        calls[-1].enter_context(_held_in_float32(module.modules()))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls.pop().close()

    with (
        block.register_forward_pre_hook(before, prepend=True),
        block.register_forward_hook(after, always_call=True),
    ):
        try:
            yield
        finally:
            for call in calls:  # interrupted calls
                call.close()


@contextmanager
def _held_in_float32(modules: Iterable[nn.Module]) -> Iterator[None]:
    replaced: list[tuple[dict[str, Any], str, Tensor, Tensor]] = []
    copies: dict[int, Tensor] = {}
    try:
        for module in modules:
            holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for held in holders:
                for name, tensor in held.items():
                    if tensor is not None and tensor.dtype in HALF:
                        copy = copies[id(tensor)] = copies.get(id(tensor), tensor.detach().float())
                        replaced.append((held, name, tensor, copy))
                        held[name] = copy
        yield
    finally:
        for held, name, tensor, copy in replaced:
            if held.get(name) is copy:  # unless the module replaced it
                held[name] = tensor


@contextmanager
def _attention_of_any_dtype(model: nn.Module) -> Iterator[None]:
    configs = {
        id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None
    }
    before = [(config, getattr(config, "_attn_implementation", None)) for config in configs.values()]
    flash = [(config, name) for config, name in before if isinstance(name, str) and "flash" in name]
    try:
        for config, _ in flash:
            config._attn_implementation = "eager"
        yield
    finally:
        for config, name in flash:
            config._attn_implementation = name


@contextmanager
def _exact_products() -> Iterator[None]:
    backends: Any = torch.backends
    kernels: list[Any] = [backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv]
    before = [kernel.fp32_precision for kernel in kernels]
    try:
        for kernel in kernels:
            kernel.fp32_precision = "ieee"
        yield
    finally:
        for kernel, precision in zip(kernels, before, strict=True):
            kernel.fp32_precision = precision


def matmul_precision() -> str:
    """Return torch's float32 matmul precision. If it was set separately for each backend, return that of CUDA."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        backends: Any = torch.backends
        return {"tf32": "high", "bf16": "medium"}.get(backends.cuda.matmul.fp32_precision, "highest")


def _float32(inputs: Inputs) -> Inputs:
    return {
        name: value.float() if isinstance(value, Tensor) and value.dtype in HALF else value
        for name, value in inputs.items()
    }
