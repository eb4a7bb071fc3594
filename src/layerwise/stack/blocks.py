"""Find the list of repeated blocks in a model of any architecture; `forward_trace.trace_blocks` then proves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from layerwise.errors import UnsupportedModel, near_matches


def find_blocks(model: nn.Module, path: str | None = None) -> str:
    """Return the dotted path of the `nn.ModuleList` that holds the blocks of `model`; `path` names it outright.

    It is the outermost list whose items are all `GradientCheckpointingLayer` (of several, the decoder's of a generative
    model, else the one with the configured depth), or else the list of like modules with the most weights. Raises
    `UnsupportedModel` if there is none, or several to choose from.
    """
    if path is not None:
        return _named(model, path)
    marked = [name for name, blocks in _lists(model) if all(isinstance(b, GradientCheckpointingLayer) for b in blocks)]
    stacks = _outermost(marked)
    if not stacks:
        unlike = _outermost([name for name, blocks in _lists(model) if _alike(blocks)])
        unlike = unlike or _outermost([name for name, _ in _lists(model)])  # one block, run again and again (ALBERT)
        sizes = {name: _size(model.get_submodule(name)) for name in unlike}
        stacks = [max(sizes, key=lambda name: sizes[name])] if sizes else []
    if not stacks:
        raise UnsupportedModel(
            f"{type(model).__name__} has no nn.ModuleList of repeated blocks; "
            "name the list with layers='path.to.blocks' if it has one"
        )
    if len(stacks) > 1:
        stacks = _of_the_text(model, stacks) or _as_deep_as_configured(model, stacks) or stacks
    if len(stacks) > 1:
        listing = ", ".join(f"{name} ({len(block_list(model, name))} blocks)" for name in stacks)
        raise UnsupportedModel(
            f"{type(model).__name__} has {len(stacks)} stacks: {listing}; choose one with layers='{stacks[-1]}'"
        )
    return stacks[0]


def block_list(model: nn.Module, path: str) -> nn.ModuleList:
    """The `nn.ModuleList` at `path`."""
    blocks = model.get_submodule(path)
    if not isinstance(blocks, nn.ModuleList):
        raise UnsupportedModel(f"{path} is a {type(blocks).__name__}, not an nn.ModuleList of blocks")
    return blocks


def _of_the_text(model: nn.Module, names: list[str]) -> list[str]:
    config: Any = getattr(model, "config", None)
    generates = getattr(model, "can_generate", None)
    text = config.get_text_config(decoder=True) if generates is not None and generates() else None
    if text is None or text is config:
        return []
    owners = {name: model.get_submodule(name.rpartition(".")[0]) for name in names}
    fitting = [name for name in names if getattr(owners[name], "config", None) is text]
    return fitting if len(fitting) == 1 else []


def _as_deep_as_configured(model: nn.Module, names: list[str]) -> list[str]:
    depth = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    fitting = [name for name in names if len(block_list(model, name)) == depth]
    return fitting if len(fitting) == 1 else []


def _named(model: nn.Module, path: str) -> str:
    names = [name for name, _ in _lists(model)]
    try:
        blocks = block_list(model, path)
    except AttributeError as error:
        raise UnsupportedModel(
            f"{type(model).__name__} has nothing at layers={path!r}; {near_matches(path, names)}"
        ) from error
    if len(blocks) == 0:
        raise UnsupportedModel(f"the list at layers={path!r} is empty; {near_matches(path, names)}")
    return path


def _lists(model: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > 0:
            yield name, module


def _outermost(names: list[str]) -> list[str]:
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]


def _alike(blocks: nn.ModuleList) -> bool:
    return len(blocks) > 1 and len({type(block) for block in blocks}) == 1


def _size(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
