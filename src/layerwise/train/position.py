"""What the variants of LayerShuffle (Freiberger et al. 2024) add: layers that know or predict their position.

    position (section 3.3)   z'' = Dropout(GELU(LN(concat(z, repeat(e))) W)) + z     e = table_l[p], of (features,)
    predict (section 3.4)    L_out + sum_l -log softmax(LN_l(z) W_l)[p], averaged over the batch

z is the input, or output, (batch, seq, width) of layer l at position p of the plan in place. Every layer has a table, a
norm and a projection of its own. The prediction reads the first token by default, or the mean over tokens without
padding. Either module is part of the model that it is attached to, and is trained, saved and counted with it.
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
    """Make a new encoding part of the model of `stack`; from now on every run in place uses it.

    Step-by-step runs call blocks outside their list and cannot know a position: use `stack.under`. A plan may have as
    many visits as the model has layers.
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


class PositionPrediction(nn.Module):
    """A layer norm and a linear classifier over positions for each of `depth` layers.

    After a forward pass `predicted` holds what each visit predicted: its position, and logits of shape (batch, depth).
    """

    def __init__(self, depth: int, width: int, options: PredictionOptions) -> None:
        super().__init__()
        self.options = options
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.classifiers = nn.ModuleList(nn.Linear(width, depth) for _ in range(depth))
        self.predicted: list[tuple[int, Tensor]] = []
        self._inputs: Mapping[str, Any] = {}

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Forget the last pass; the next one is over the model's `inputs`."""
        self.predicted.clear()
        self._inputs = {name: value for name, value in inputs.items() if name == "attention_mask"}

    def forward(self, state: Tensor, layer: int) -> Tensor:
        """Logits over positions, (batch, depth), from the output (batch, seq, width) of `layer`."""
        read = state[:, 0] if self.options.reads == "first" else token_mean(state, token_mask(self._inputs, state))
        return self.classifiers[layer](self.norms[layer](read))

    def loss(self) -> Tensor:
        """The cross-entropy of the last pass, in nats: summed over visits, or their mean."""
        losses = torch.stack(
            [
                cross_entropy(logits.float(), torch.full(logits.shape[:1], position, device=logits.device))
                for position, logits in self.predicted
            ]
        )
        return losses.sum() if self.options.total == "sum" else losses.mean()

    def hits(self) -> dict[int, Tensor]:
        """Position to whether each example of the last pass was placed right there, booleans of shape (batch,)."""
        return {position: logits.argmax(-1) == position for position, logits in self.predicted}


def attach_prediction(stack: Stack, options: PredictionOptions) -> PositionPrediction:
    """Make a new prediction part of the model of `stack`; every pass in place then fills `predicted` anew."""
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
            return  # another model runs the layer, and predicts nothing
        # A pass that is recomputed for its gradient says the same again: what it said first is what counts.
        if position < stack.depth and all(position != earlier for earlier, _ in prediction.predicted):
            prediction.predicted.append((position, prediction(returned_state(output), layer)))

    block.register_forward_hook(hook)
