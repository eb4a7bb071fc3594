"""LayerShuffle-predict: every layer must say where it stands (Freiberger et al. 2024, section 3.4).

After layer l has run at position p of the plan in place, its output z gives logits u = LN_l(z) W_l over the L
positions, and the loss becomes

    L_out + sum_l L_l        L_l = -log softmax(u)[p], averaged over the batch

in training and in validation, so that the checkpoint that is kept is the best at what was optimised: judged by the task
alone it would be an early one, which knows no positions yet.

The paper reads "the layer's output" without saying of which token; by default it is the first, which is the class token
of a ViT. A mean is over the tokens that are no padding. The module is attached to the model as a `PositionEncoding` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from layerwise.measure.activations.padding import counted_tokens, token_mean
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.state import returned_state
from layerwise.train.methods.layershuffle import PredictionOptions
from layerwise.train.position import position_of, stream_width

NAME = "layer_predictions"
"""The submodule's name in the model, and the beginning of its parameters' names."""


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
        read = state[:, 0] if self.options.reads == "first" else token_mean(state, counted_tokens(self._inputs, state))
        return self.classifiers[layer](self.norms[layer](read))

    def loss(self) -> Tensor:
        """The cross-entropy of the last pass, in nats: summed over visits, or their mean."""
        losses = torch.stack(
            [cross_entropy(logits.float(), _target(logits, position)) for position, logits in self.predicted]
        )
        return losses.sum() if self.options.total == "sum" else losses.mean()

    def hits(self) -> dict[int, Tensor]:
        """Position to whether each example of the last pass was placed right there, booleans of shape (batch,)."""
        return {position: logits.argmax(-1) == position for position, logits in self.predicted}


def attach(stack: Stack, options: PredictionOptions) -> PositionPrediction:
    """Make a new prediction part of the model of `stack`; every pass in place then fills `predicted` anew."""
    prediction = PositionPrediction(stack.depth, stream_width(stack), options).to(stack.device, stack.dtype)
    stack.model.add_module(NAME, prediction)
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


def _target(logits: Tensor, position: int) -> Tensor:
    return torch.full((logits.shape[0],), position, device=logits.device)
