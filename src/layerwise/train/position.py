"""Variants of LayerShuffle (Freiberger et al. 2024) in which layers receive or predict their position.

    position (section 3.3)   z'' = Dropout(GELU(LN(concat(z, repeat(e))) W)) + z     e = table_l[p], `(features,)`
    predict (section 3.4)    L_out + sum_l -log softmax(LN_l(z) W_l)[p], averaged over the batch

z `(batch, seq, width)` is the input (in the prediction: the output) of layer l at position p of the current plan. Every
layer has a separate table, norm and projection. The position is predicted from the first token, or from the mean over
all tokens except padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle

from layerwise.errors import TrainError
from layerwise.measure.activations.padding import token_mask, token_mean
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.capture import read_state, returned_state, with_state
from layerwise.train.methods import PositionOptions, PredictionOptions


class PositionEncoding(nn.Module):
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
        table = self.tables[layer % len(self.tables)]
        embedding = table[position].to(state.dtype).expand(*state.shape[:-1], -1)
        mixed = self.projections[layer](self.norms[layer](torch.cat((state, embedding), dim=-1)))
        return state + self.dropout(self.activation(mixed))


def attach_encoding(stack: Stack, options: PositionOptions) -> PositionEncoding:
    """Add a newly initialized position encoding to the model of `stack`.

    The model must be run with `stack.under`. A plan may run at most as many layers as the model has, counting repeats.
    """
    width = stream_width(stack)
    encoding = PositionEncoding(stack.depth, width, options).to(stack.device, stack.dtype)
    stack.model.add_module(str(options.MODULE), encoding)
    for layer, block in enumerate(block_list(stack.model, stack.path)):
        _add_position(stack, encoding, layer, block)
    return encoding


def stream_width(stack: Stack) -> int:
    config = getattr(stack.model, "config", None)
    width = getattr(config, "hidden_size", None) or getattr(getattr(config, "text_config", None), "hidden_size", None)
    if not isinstance(width, int):
        raise TrainError(
            "the methods layershuffle-position and layershuffle-predict require config.hidden_size, which "
            f"{type(stack.model).__name__} lacks. Use the method layershuffle."
        )
    return width


def position_of(stack: Stack, block: nn.Module) -> int | None:
    """Return the position of `block` in the current plan, or None if the model of `stack` does not run it."""
    return next(
        (position for position, entry in enumerate(block_list(stack.model, stack.path)) if entry is block), None
    )


def _add_position(stack: Stack, encoding: PositionEncoding, layer: int, block: nn.Module) -> RemovableHandle:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        position = position_of(stack, module)
        if position is None:
            raise TrainError(
                f"layer {layer} of {stack.source.name} was trained with a position encoding, so it cannot be merged "
                "into another model. Merge a model without one."
            )
        if position >= stack.depth:
            raise TrainError(
                f"a plan of a model with a position encoding must run at most {stack.depth} layers, counting repeats, "
                f"got {position + 1} or more. Shorten the plan."
            )
        return with_state(args, kwargs, encoding(read_state(args, kwargs), layer, position))

    return block.register_forward_pre_hook(hook, with_kwargs=True)


class PositionPrediction(nn.Module):
    """A layer norm and a linear classifier over positions for each of `depth` layers.

    After a forward pass, `predicted` has the position and the logits `(batch, depth)` of every layer that ran.
    """

    def __init__(self, depth: int, width: int, options: PredictionOptions) -> None:
        super().__init__()
        self.options = options
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.classifiers = nn.ModuleList(nn.Linear(width, depth) for _ in range(depth))
        self.predicted: list[tuple[int, Tensor]] = []
        self._inputs: Mapping[str, Any] = {}

    def begin(self, inputs: Mapping[str, Any]) -> None:
        self.predicted.clear()
        self._inputs = {name: value for name, value in inputs.items() if name == "attention_mask"}

    def forward(self, state: Tensor, layer: int) -> Tensor:
        """Compute logits over positions `(batch, depth)` from the output `(batch, seq, width)` of `layer`."""
        read = state[:, 0] if self.options.reads == "first" else token_mean(state, token_mask(self._inputs, state))
        return self.classifiers[layer](self.norms[layer](read))

    def loss(self) -> Tensor:
        """Return the cross-entropy of the last pass in nats, summed or averaged over layers (`options.total`)."""
        losses = torch.stack(
            [
                cross_entropy(logits.float(), torch.full(logits.shape[:1], position, device=logits.device))
                for position, logits in self.predicted
            ]
        )
        return losses.sum() if self.options.total == "sum" else losses.mean()

    def hits(self) -> dict[int, Tensor]:
        """Map each position to a mask `(batch,)` of the examples for which the last pass predicted it correctly."""
        return {position: logits.argmax(-1) == position for position, logits in self.predicted}


def attach_prediction(stack: Stack, options: PredictionOptions) -> PositionPrediction:
    """Add a newly initialized position prediction to the model of `stack`."""
    prediction = PositionPrediction(stack.depth, stream_width(stack), options).to(stack.device, stack.dtype)
    stack.model.add_module(str(options.MODULE), prediction)
    stack.model.register_forward_pre_hook(lambda model, args, inputs: prediction.begin(inputs), with_kwargs=True)
    for layer, block in enumerate(block_list(stack.model, stack.path)):
        _add_prediction(stack, prediction, layer, block)
    return prediction


def _add_prediction(stack: Stack, prediction: PositionPrediction, layer: int, block: nn.Module) -> None:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        position = position_of(stack, module)
        if position is None:
            return  # another model runs the layer
        # Gradient checkpointing repeats a pass, so only the first prediction counts.
        if position < stack.depth and all(position != earlier for earlier, _ in prediction.predicted):
            prediction.predicted.append((position, prediction(returned_state(output), layer)))

    block.register_forward_hook(hook)
