"""Which weights learn in a healing, the model as it was before they did, and what learned written and read.

The teacher is the same stack in its own order, before healing: adapters (LoRA by peft, Hu et al. 2021, alpha 2 rank)
are switched off for it; where weights of the model itself learn, copies of those tensors replace them.
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
"""The file by which a folder is known as that of adapters."""

WEIGHTS = "healed.safetensors"
"""The tensors that learned, where they are no adapters."""


class Learning:
    """The weights of a stack that learn, all others being frozen.

    `handle` is peft's, if adapters learn. With a teacher, `before` restores the original model for it.
    """

    def __init__(self, stack: Stack, options: HealingOptions) -> None:
        self.stack = stack
        self.plan = Plan.parse(options.plan)
        self.handle: Any = None
        if options.method == "lora":
            self.handle = add_adapters(stack, self.plan.layers(), options.rank)
        else:
            names = _in_full(stack, self.plan) if options.method == "full" else _in_tail(stack, self.plan)
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
        """Write what learned to `folder`: adapters in peft's format, or the tensors by name."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.handle is None:
            save_file(self.tensors(), folder / WEIGHTS)
        else:
            # The embedding is never adapted; "auto" would look for the base model on the hub to find that out.
            self.handle.save_pretrained(str(folder), save_embedding_layers=False)

    @contextmanager
    def before(self) -> Iterator[None]:
        """Within the context the model is what it was before healing; nothing may be learned meanwhile."""
        learned: dict[str, Tensor] = {}
        if self.handle is not None:
            self.handle.base_model.disable_adapter_layers()
        else:
            # A Trainer may have moved the model since: the copies follow it once.
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


def _in_full(stack: Stack, plan: Plan) -> set[str]:
    return {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in (None, *plan.layers())}


def _in_tail(stack: Stack, plan: Plan) -> set[str]:
    last = list(dict.fromkeys(reversed([step.layer for step in plan.steps()])))[:TAIL_LAYERS]
    outside = {name: each for name, each in stack.model.named_parameters() if _layer_of(stack, name) is None}
    after = _after_layers(stack, outside)
    return after | {name for name, _ in stack.model.named_parameters() if _layer_of(stack, name) in last}


def _after_layers(stack: Stack, outside: dict[str, nn.Parameter]) -> set[str]:
    """The parameters among those `outside` the layers that act behind them: they have a gradient when all layers are
    passed by."""
    inputs = example_inputs(stack.model)
    if inputs is None:
        raise TrainError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up, so its head is not known; heal "
            "with --method lora or --method full"
        )
    with evaluating(stack.model):
        with torch.no_grad():
            captured = stack.capture(**inputs)
        output = main_tensor(stack.finish(captured.state.detach(), captured.inputs))
        if not output.requires_grad:  # the model ends with its layers
            return set()
        gradients = torch.autograd.grad(output.float().square().sum(), list(outside.values()), allow_unused=True)
    return {name for name, gradient in zip(outside, gradients, strict=True) if gradient is not None}


def _layer_of(stack: Stack, name: str) -> int | None:
    prefix = f"{stack.path}."
    return int(name.removeprefix(prefix).split(".")[0]) if name.startswith(prefix) else None


def peft() -> Any:
    """The library. Raises `TrainError` where it is not installed."""
    try:
        return import_module("peft")
    except ImportError as error:
        raise TrainError(
            f"healing with LoRA needs the library peft, which cannot be imported ({error}); install it with "
            "pip install 'layerwise[heal]', or heal with --method tail or --method full, which do without"
        ) from error


def linear_maps(stack: Stack, layers: Iterable[int]) -> dict[str, nn.Linear | Conv1D]:
    return {
        f"{stack.path}.{layer}.{name}": module
        for layer in sorted(set(layers))
        for name, module in stack.block(layer).named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }


def expert_weights(stack: Stack, layers: Iterable[int]) -> list[str]:
    """The stacked matrices `(experts, out, in)` of some layers, by their names in the model."""
    return [
        f"{stack.path}.{layer}.{name}.{weight}"
        for layer in sorted(set(layers))
        for name, module in stack.block(layer).named_modules()
        for weight, values in module.named_parameters(recurse=False)
        if values.ndim == 3 and not type(module).__module__.startswith("torch.nn.")  # a convolution's kernel
    ]


def add_adapters(stack: Stack, layers: Iterable[int], rank: int) -> Any:
    """Add new adapters to every linear map and expert in `layers`, and freeze everything else; returns peft's handle.

    Raises `TrainError` for layers without a linear map.
    """
    library = peft()
    maps, experts = linear_maps(stack, layers), expert_weights(stack, layers)
    if not maps:
        raise TrainError(
            f"the layers of {type(stack.model).__name__} have no linear map that an adapter could be put on; heal with "
            "--method full"
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
        warnings.simplefilter("ignore", FutureWarning)  # peft reads a name that transformers renames
        return library.get_peft_model(stack.model, config)


def load_healed(stack: Stack, folder: Path) -> Stack:
    """Load the healed weights in `folder` into `stack`, a new copy of its base; adapters are merged.

    Raises `CheckpointError` if the folder has no adapters or weights, or those of another model.
    """
    if (folder / CONFIG).is_file():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            handle = peft().PeftModel.from_pretrained(stack.model, str(folder))
        handle.merge_and_unload()
        if hasattr(handle.base_model.model, "peft_config"):
            del handle.base_model.model.peft_config
        stack.model.requires_grad_(True)
        return stack
    try:
        learned = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds nothing that a healing left ({error}); heal the model again") from error
    own = dict(stack.model.named_parameters())
    for name, value in learned.items():
        if name not in own or own[name].shape != value.shape:
            raise CheckpointError(f"{folder} holds {name} of shape {tuple(value.shape)}, which this model has not")
        with torch.no_grad():
            own[name].copy_(value)
    return stack
