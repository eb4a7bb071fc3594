"""Find the list of repeated blocks in a model of any architecture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from layerwise.errors import UnsupportedModelError, near_matches
from layerwise.plan.config_order import COUNTS
from layerwise.stack.configuration import is_of_transformers, setting

BlockList: TypeAlias = nn.ModuleList | nn.Sequential
"""Container of blocks, which the model iterates over or calls."""


def find_blocks(model: nn.Module, path: str | None = None) -> str:
    """Find the list of blocks in `model` and return its dotted path, or check the given `path`.

    The list is the outermost one whose items are all `GradientCheckpointingLayer`. If there are several such lists, the
    one in the decoder of a generative model is chosen, or else the one whose length is the configured depth. If there
    is none, the list of modules of one class with the most weights is chosen. An `nn.Sequential` counts as a list if
    its items have one class and submodules. Raises `UnsupportedModelError` if there is no list, or if the choice is
    ambiguous.
    """
    if path is not None:
        return _check_path(model, path)
    marked = [name for name, blocks in _lists(model) if all(isinstance(b, GradientCheckpointingLayer) for b in blocks)]
    stacks = _outermost(marked)
    if not stacks:
        unlike = _outermost([name for name, blocks in _lists(model) if _have_one_type(blocks)])
        # One repeated block (ALBERT).
        unlike = unlike or _outermost([name for name, each in _lists(model) if isinstance(each, nn.ModuleList)])
        sizes = {name: _size(model.get_submodule(name)) for name in unlike}
        stacks = [max(sizes, key=sizes.__getitem__)] if sizes else []
    if not stacks:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no nn.ModuleList or nn.Sequential of repeated blocks; "
            "name the list with layers='path.to.blocks' if it has one"
        )
    if len(stacks) > 1:
        stacks = _lists_of_text_model(model, stacks) or _lists_of_configured_depth(model, stacks) or stacks
    if len(stacks) > 1:
        listing = ", ".join(f"{name} ({len(block_list(model, name))} blocks)" for name in stacks)
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(stacks)} block lists: {listing}; choose one with layers='{stacks[-1]}'"
        )
    return stacks[0]


def block_list(model: nn.Module, path: str) -> BlockList:
    blocks = model.get_submodule(path)
    if not isinstance(blocks, BlockList):
        raise UnsupportedModelError(
            f"{path} is a {type(blocks).__name__}, not an nn.ModuleList or nn.Sequential of blocks"
        )
    return blocks


def lists_inside(model: nn.Module, blocks: Sequence[nn.Module]) -> list[str]:
    inside = {id(module) for block in blocks for module in block.modules()}
    return _outermost([name for name, each in _lists(model) if id(each) in inside and _have_one_type(each)])


def _lists_of_text_model(model: nn.Module, names: list[str]) -> list[str]:
    config: Any = getattr(model, "config", None)
    generates = getattr(model, "can_generate", None) if is_of_transformers(config) else None
    text = config.get_text_config(decoder=True) if generates is not None and generates() else None
    if text is None or text is config:
        return []
    owners = {name: model.get_submodule(name.rpartition(".")[0]) for name in names}
    fitting = [name for name in names if getattr(owners[name], "config", None) is text]
    return fitting if len(fitting) == 1 else []


def _lists_of_configured_depth(model: nn.Module, names: list[str]) -> list[str]:
    config = getattr(model, "config", None)
    depths = {setting(config, name) for name in ("num_hidden_layers", *([] if is_of_transformers(config) else COUNTS))}
    fitting = [name for name in names if len(block_list(model, name)) in depths]
    return fitting if len(fitting) == 1 else []


def _check_path(model: nn.Module, path: str) -> str:
    names = [name for name, _ in _lists(model)]
    try:
        blocks = block_list(model, path)
    except AttributeError as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} has nothing at layers={path!r}; {near_matches(path, names)}"
        ) from error
    if len(blocks) == 0:
        raise UnsupportedModelError(f"the list at layers={path!r} is empty; {near_matches(path, names)}")
    return path


def _lists(model: nn.Module) -> Iterator[tuple[str, BlockList]]:
    for name, module in model.named_modules():
        listed = isinstance(module, nn.ModuleList) and len(module) > 0
        if listed or (name and isinstance(module, nn.Sequential) and _have_one_type(module) and _have_children(module)):
            yield name, module


def _outermost(names: list[str]) -> list[str]:
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]


def _have_one_type(blocks: BlockList) -> bool:
    return len(blocks) > 1 and len({type(block) for block in blocks}) == 1


def _have_children(blocks: BlockList) -> bool:
    return all(next(block.children(), None) is not None for block in blocks)


def _size(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
