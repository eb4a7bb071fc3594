"""LayerShuffle-position: every layer has its current position as input (Freiberger et al. 2024, section 3.3).

Before layer l runs at position p of the plan in place, its input z of shape (batch, seq, width) becomes

    z'' = Dropout(GELU(LN(concat(z, repeat(e)))  W)) + z        e = table_l[p], of shape (features,)

with a layer norm over width + features, W of shape (width + features, width), and a table, a norm and a projection of
its own for every layer. The position of a block is where it stands in its model's list of blocks at that moment, so
plans in place, twins of blocks and recomputed passes need nothing more.

The module is part of the model that it is attached to: it is trained, saved and counted with it, under names of its own
beside those of the plain model, and it is needed again when the model is run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from layerwise.errors import TrainError
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.state import read_state, with_state
from layerwise.train.methods.layershuffle import PositionOptions

NAME = "layer_positions"
"""The submodule's name in the model, and the beginning of its parameters' names."""


class PositionEncoding(nn.Module):
    """What gives `depth` layers of a stream of `width` features their position."""

    def __init__(self, depth: int, width: int, options: PositionOptions) -> None:
        super().__init__()
        wide = width + options.features
        tables = 1 if options.table == "shared" else depth
        self.options = options
        self.tables = nn.ParameterList(torch.randn(depth, options.features) for _ in range(tables))
        self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(depth))
        self.projections = nn.ModuleList(nn.Linear(wide, width) for _ in range(depth))
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, state: Tensor, layer: int, position: int) -> Tensor:
        """The state (batch, seq, width) as `layer` reads it at `position`."""
        table = self.tables[layer % len(self.tables)]
        embedding = table[position].to(state.dtype).expand(*state.shape[:-1], -1)
        mixed = self.projections[layer](self.norms[layer](torch.cat((state, embedding), dim=-1)))
        return state + self.dropout(self.activation(mixed))


def attach(stack: Stack, options: PositionOptions) -> PositionEncoding:
    """Make a new encoding part of the model of `stack`; from now on every run in place uses it.

    Step-by-step runs call blocks outside their list and cannot know a position: use `stack.under`. A plan may have as
    many visits as the model has layers.
    """
    width = stream_width(stack)
    encoding = PositionEncoding(stack.depth, width, options).to(stack.device, stack.dtype)
    stack.model.add_module(NAME, encoding)
    for layer, block in enumerate(block_list(stack.model, stack.path)):
        _add_position(stack, encoding, layer, block)
    return encoding


def stream_width(stack: Stack) -> int:
    """The features of the hidden state, from the configuration."""
    config = getattr(stack.model, "config", None)
    width = getattr(config, "hidden_size", None) or getattr(getattr(config, "text_config", None), "hidden_size", None)
    if not isinstance(width, int):
        raise TrainError(
            f"{type(stack.model).__name__} does not say how wide its hidden state is (config.hidden_size), which the "
            "variants of LayerShuffle need; use the plain method layershuffle"
        )
    return width


def position_of(stack: Stack, block: nn.Module) -> int | None:
    """Where `block`, or a twin of it, stands in its model's list at this moment; `None` while another model runs it."""
    return next(
        (position for position, entry in enumerate(block_list(stack.model, stack.path)) if entry is block), None
    )


def _add_position(stack: Stack, encoding: PositionEncoding, layer: int, block: nn.Module) -> RemovableHandle:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        position = position_of(stack, module)
        if position is None:
            raise TrainError(
                f"layer {layer} of {stack.source.name} reads its position from a part of its own model, and another "
                "model runs it: layers that were trained with a position encoding cannot be merged"
            )
        if position >= stack.depth:
            raise TrainError(
                f"visit {position + 1} of the plan has no position encoding: the model learned {stack.depth} "
                f"positions, so plans have at most {stack.depth} visits"
            )
        return with_state(args, kwargs, encoding(read_state(args, kwargs), layer, position))

    return block.register_forward_pre_hook(hook, with_kwargs=True)
