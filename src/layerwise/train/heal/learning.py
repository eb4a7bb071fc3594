"""Select, store and load the weights that healing trains, and restore the original model as the teacher.

With adapters (LoRA by peft, Hu et al. 2021, alpha = 2 rank), the teacher is the model with the adapters disabled.
Otherwise the trained weights are temporarily replaced by copies of the original tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from layerwise.errors import CheckpointError, TrainError
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating, example_inputs, main_tensor
from layerwise.train.heal.options import TAIL_LAYERS, HealingOptions

CONFIG = "adapter_config.json"
"""File that marks a folder of adapters."""

WEIGHTS = "healed.safetensors"
"""File of the trained tensors, unless they are adapters."""


class Learning:
    """Make the weights that `options` select trainable, and freeze all others; `handle` is the peft model, if any."""

    def __init__(self, stack: Stack, options: HealingOptions) -> None:
        self.stack = stack
        self.plan = Plan.parse(options.plan)
        self.handle: Any = None
        if options.method == "lora":
            self.handle = add_adapters(stack, self.plan.layers(), options.rank)
        else:
            names = (_list_all if options.method == "full" else _list_tail)(stack, self.plan)
            for name, parameter in stack.model.named_parameters():
                parameter.requires_grad_(name in names)
        copies = options.teacher == "self" and self.handle is None
        self._first = {name: weight.detach().clone() for name, weight in self.weights().items()} if copies else {}

    def weights(self) -> dict[str, nn.Parameter]:
        named = self.stack.model.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}

    def tensors(self) -> dict[str, Tensor]:
        return {name: weight.detach().cpu().contiguous() for name, weight in self.weights().items()}

    def write(self, folder: Path) -> None:
        """Write the trained weights to `folder`: adapters in peft's format, other weights as safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.handle is None:
            save_file(self.tensors(), folder / WEIGHTS)
        else:
            # The embedding is never adapted, and "auto" would query the hub.
            self.handle.save_pretrained(str(folder), save_embedding_layers=False)

    @contextmanager
    def original(self) -> Iterator[None]:
        """Restore the original model inside a `with` block."""
        learned: dict[str, Tensor] = {}
        if self.handle is not None:
            self.handle.base_model.disable_adapter_layers()
        else:
            # A Trainer can move the model to a device after the copies were made.
            self._first = {name: self._first[name].to(weight.device) for name, weight in self.weights().items()}
            learned = self._exchange(self._first)
        try:
            yield
        finally:
            if self.handle is not None:
                self.handle.base_model.enable_adapter_layers()
            else:
                self._exchange(learned)

    def _exchange(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        taken = {}
        for name, weight in self.weights().items():
            taken[name] = weight.data
            weight.data = values[name]
        return taken


def _list_all(stack: Stack, plan: Plan) -> set[str]:
    return {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in (None, *plan.layers())}


def _list_tail(stack: Stack, plan: Plan) -> set[str]:
    last = list(dict.fromkeys(reversed([step.layer for step in plan.steps()])))[:TAIL_LAYERS]
    outside = {name: each for name, each in stack.model.named_parameters() if _layer_of(stack, name) is None}
    after = _list_after_layers(stack, outside)
    return after | {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in last}


def _list_after_layers(stack: Stack, outside: dict[str, nn.Parameter]) -> set[str]:
    """Return the names of the parameters after the layers, which have a gradient even if the layers are bypassed."""
    inputs = example_inputs(stack.model)
    if inputs is None:
        raise TrainError(
            f"--method tail does not support {type(stack.model).__name__}: its head cannot be found. Pass --method "
            "lora or full."
        )
    with evaluating(stack.model):
        with torch.no_grad():
            captured = stack.capture(**inputs)
        output = main_tensor(stack.finish(captured.state.detach(), captured.inputs))
        if not output.requires_grad:  # nothing follows the layers
            return set()
        gradients = torch.autograd.grad(output.float().square().sum(), list(outside.values()), allow_unused=True)
    return {name for name, gradient in zip(outside, gradients, strict=True) if gradient is not None}


def _layer_of(stack: Stack, name: str) -> int | None:
    prefix = f"{stack.path}."
    return int(name.removeprefix(prefix).split(".")[0]) if name.startswith(prefix) else None


def import_peft() -> Any:
    try:
        return import_module("peft")
    except ImportError as error:
        raise TrainError(
            f"--method lora requires peft, which cannot be imported ({error}). Run pip install 'layerwise[heal]', or "
            "pass --method tail or full."
        ) from error


def linear_maps(stack: Stack, layers: Iterable[int]) -> dict[str, nn.Linear | Conv1D]:
    return {
        f"{stack.path}.{layer}.{name}": module
        for layer in sorted(set(layers))
        for name, module in stack.block(layer).named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }


def expert_weights(stack: Stack, layers: Iterable[int]) -> list[str]:
    """Return the names of the stacked expert matrices `(experts, out, in)` in `layers`."""
    return [
        f"{stack.path}.{layer}.{name}.{weight}"
        for layer in sorted(set(layers))
        for name, module in stack.block(layer).named_modules()
        for weight, values in module.named_parameters(recurse=False)
        if values.ndim == 3 and not type(module).__module__.startswith("torch.nn.")  # a convolution's kernel
    ]


def add_adapters(stack: Stack, layers: Iterable[int], rank: int) -> Any:
    """Add adapters to every linear layer and expert in `layers`, freeze everything else, and return the peft model.

    Raises:
        TrainError: If the layers have no linear layer.
    """
    library = import_peft()
    maps, experts = linear_maps(stack, layers), expert_weights(stack, layers)
    if not maps:
        raise TrainError(
            f"--method lora requires linear layers, but the blocks of {type(stack.model).__name__} have none. Pass "
            "--method full."
        )
    transposed = all(isinstance(module, Conv1D) for module in maps.values())
    config = library.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        bias="none",
        target_modules=list(maps),
        target_parameters=experts or None,
        fan_in_fan_out=transposed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        return library.get_peft_model(stack.model, config)


def load_healed(stack: Stack, folder: Path) -> Stack:
    """Load the healed weights in `folder` into `stack`, a new copy of the base model, and merge adapters.

    Raises:
        CheckpointError: If the folder has no healed weights, or those of another model.
    """
    if (folder / CONFIG).is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            handle = import_peft().PeftModel.from_pretrained(stack.model, str(folder))
        handle.merge_and_unload()
        if hasattr(handle.base_model.model, "peft_config"):
            del handle.base_model.model.peft_config
        stack.model.requires_grad_(True)
        return stack
    try:
        learned = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} has no healed weights ({error}). Run layerwise heal again.") from error
    parameters = dict(stack.model.named_parameters())
    for name, value in learned.items():
        if name not in parameters or parameters[name].shape != value.shape:
            raise CheckpointError(
                f"{folder} was healed from another model: {name} of shape {tuple(value.shape)} does not fit this one."
            )
        with torch.no_grad():
            parameters[name].copy_(value)
    return stack
