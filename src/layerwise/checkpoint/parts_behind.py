"""The parts of a model used only after its last layer (norm, head), which merges may take from another model.

A tied embedding is also used before, and does not count.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.proof import proof_inputs
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.auto_classes import on_meta
from layerwise.errors import LayerwiseError, UnsupportedModel
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list, find_blocks
from layerwise.stack.inputs import accepted, evaluating, example_inputs
from layerwise.stack.load import model_class


def parts_behind(model: nn.Module, path: str, inputs: Mapping[str, Tensor] | None = None) -> frozenset[str]:
    """The parameters and buffers of `model` used only after the last block at `path`; nothing is computed on `meta`.

    Raises `UnsupportedModel` for a model that does not run.
    """
    batch = example_inputs(model) if inputs is None else dict(inputs)
    blocks = block_list(model, path)
    inside = {id(module) for module in blocks.modules()}
    called: dict[bool, list[tuple[str, nn.Module]]] = {False: [], True: []}
    passed = False

    def note(name: str, module: nn.Module) -> None:
        called[passed].append((name, module))

    def pass_on(*_: Any) -> None:
        nonlocal passed
        passed = True

    if batch is None:
        raise UnsupportedModel(f"{type(model).__name__} takes inputs that layerwise cannot make up")
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if id(module) not in inside:
                hooks.enter_context(module.register_forward_pre_hook(lambda module, _, name=name: note(name, module)))
        hooks.enter_context(blocks[-1].register_forward_hook(pass_on))
        try:
            with evaluating(model), torch.no_grad(), _WithoutContent():  # type: ignore[no-untyped-call]
                model(**accepted(model, batch))
        except LayerwiseError:
            raise
        except Exception as error:  # a model may fail in any way where nothing is computed
            raise UnsupportedModel(f"{type(model).__name__} does not run ({type(error).__name__})") from error
    before = {id(tensor) for _, module in called[False] for tensor in _own(module).values()}
    return frozenset(
        f"{name}.{leaf}" if name else leaf
        for name, module in called[True]
        for leaf, tensor in _own(module).items()
        if id(tensor) not in before
    )


def stored_parts_behind(model: StoredModel, path: str | None) -> frozenset[str]:
    """The stored names of what follows the layers. Raises `UnresolvedNames` if they cannot be found."""
    try:
        config = CONFIG_MAPPING[model.settings["model_type"]].from_dict(dict(model.settings))
        drawn: Any = on_meta(model_class(config, False), config)
        drawn.tie_weights()
        names = parts_behind(drawn, find_blocks(drawn, path)) & drawn.state_dict().keys()
    except Exception as error:  # whoever opens the model in memory says why in its own words
        raise UnresolvedNames(
            f"what lies behind the layers of {model.name} is not seen without its weights ({type(error).__name__})"
        ) from error
    unknown = sorted(names - model.tensors.keys())
    if unknown:
        raise UnresolvedNames(f"{model.name} has no tensor {unknown[0]}, which lies behind its layers")
    return names


def with_head(stack: Stack, name: str, inputs: Mapping[str, Tensor] | None = None) -> Stack:
    """Return `stack` with the parts after the layers from the model `name`; nothing is copied or changed."""
    host, other = next(iter(stack.sources.values())), stack.sources[name]
    shared = {id(tensor): tensor for tensor in chain(host.model.parameters(), host.model.buffers())}
    model = copy.deepcopy(host.model, shared)
    batch = None if inputs is None else proof_inputs(host, inputs)
    for each in parts_behind(host.model, host.path, batch):
        module, _, leaf = each.rpartition(".")
        setattr(model.get_submodule(module), leaf, getattr(other.model.get_submodule(module), leaf))
    merged = Stack(model, host.path, tokenizer=host.tokenizer, source=stack.source)
    merged.sources = stack.sources
    return merged


class _WithoutContent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return True if args[0].dtype == torch.bool else 1
        return func(*args, **(kwargs or {}))


def _own(module: nn.Module) -> dict[str, Tensor]:
    return dict(chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)))
