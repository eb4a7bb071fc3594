"""One layer of LTG-BERT, and the two ways to connect it: to the layer before, or to all layers below.

Both halves normalise what they read and what they computed, without learned scales except one (NormFormer). What
differs between the variants is the arithmetic of three lines, in `MixingLayer._respond`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_layers import GradientCheckpointingLayer

from layerwise.models.elc.attention import SelfAttention
from layerwise.models.elc.configuration import ElcConfig, first_values
from layerwise.stack.history.depth_history import DepthHistory


class DeepLinear(nn.Linear):
    """A projection whose weights begin smaller the deeper it is: by the factor `scale`, sqrt(1 / (2 (1 + layer)))."""

    def __init__(self, inputs: int, outputs: int, layer: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.scale = math.sqrt(1 / (2 * (1 + layer)))


class FeedForward(nn.Module):
    """The feed-forward half: norm, projection, `value * gelu(gate)` (tanh approximation), norm, projection, dropout."""

    def __init__(self, config: ElcConfig, number: int) -> None:
        super().__init__()
        width, hidden, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False)
        self.up = DeepLinear(width, 2 * hidden, number)
        self.hidden_norm = nn.LayerNorm(hidden, eps=eps, elementwise_affine=False)
        self.down = DeepLinear(hidden, width, number)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor) -> Tensor:
        value, gate = self.up(self.norm(states)).chunk(2, dim=-1)
        # On a CPU the function of a half that is copied out takes half the time of the half in place.
        opened = functional.gelu(gate.contiguous(), approximate="tanh")
        return self.dropout(self.down(self.hidden_norm(value * opened)))


class MixingWeights(nn.Module):
    """How much a reader takes of each of the `sources` states before it: one scalar each, for all tokens and channels.

    Under a softmax the weights are positive and sum to one, and `scalars` are what is learned before it; without one
    they are the scalars themselves. A reader of one source without a softmax has nothing to learn: it takes it whole.
    """

    def __init__(self, config: ElcConfig, sources: int) -> None:
        super().__init__()
        self.sources = sources
        self.softmax = config.reading.mixture == "softmax"
        self.initialisation = config.initialisation or config.reading.initialisation
        self.scalars: Tensor
        if self.softmax or sources > 1:
            self.register_parameter("scalars", nn.Parameter(torch.empty(sources)))
        else:
            self.register_buffer("scalars", torch.ones(1), persistent=False)

    def forward(self) -> Tensor:
        return self.scalars.softmax(dim=0) if self.softmax else self.scalars

    def beginning(self) -> Tensor:
        values = first_values(self.initialisation, self.sources, softmax=self.softmax)
        return torch.tensor(values, device=self.scalars.device)


class Layer(GradientCheckpointingLayer):
    """A layer that reads the state before it: y = x + attention(x), output y + ffn(y).

    `number` is the layer's own, from 0, wherever a plan puts it.
    """

    compiled_method = "transform"

    def __init__(self, config: ElcConfig, number: int) -> None:
        super().__init__()
        self.number = number
        self.attention = SelfAttention(config)
        self.feed_forward = FeedForward(config, number)

    def forward(self, states: Tensor, *context: Tensor | None) -> Tensor:
        return self.transform(states, *context)

    def transform(self, states: Tensor, *context: Tensor | None) -> Tensor:
        attended, _ = self.attention(states, *context)
        states = states + attended
        return states + self.feed_forward(states)


class MixingLayer(GradientCheckpointingLayer):
    """A layer that reads a learned mixture of the states in `record`; only what follows the mixture is compiled."""

    compiled_method = "transform"

    def __init__(self, config: ElcConfig, number: int) -> None:
        super().__init__()
        self.number = number
        self.block = config.reading.block
        self.missing = config.missing
        self.layer_weights = MixingWeights(config, number + 1)
        self.attention = SelfAttention(config)
        self.feed_forward = FeedForward(config, number)
        width, eps = config.hidden_size, config.layer_norm_eps
        self.norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False) if config.reading.normalised else None

    def forward(self, states: Tensor, *context: Tensor | None, record: DepthHistory) -> Tensor:
        """The layer's output (batch, seq, width). What is read comes from `record`, and `states`, the last one left
        behind, is not looked at.
        """
        return self.transform(record.read(self.layer_weights(), self.missing), *context)

    def transform(self, mixed: Tensor, *context: Tensor | None) -> Tensor:
        attended, _ = self.attention(mixed, *context)
        output = self._respond(mixed, attended)
        return output if self.norm is None else self.norm(output)

    def _respond(self, mixed: Tensor, attended: Tensor) -> Tensor:
        if self.block == "attention":
            return attended + self.feed_forward(attended)
        total = mixed + attended
        kept = total if self.block == "residual" else attended
        return kept + self.feed_forward(total)
