"""A layer of LTG-BERT, which reads the previous state or, in ELC-BERT, a mixture of all earlier states.

Both sublayers normalize their input and output. Only the last norm of the attention has learned parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_layers import GradientCheckpointingLayer

from layerwise.models.elc.configuration import ElcConfig, first_values
from layerwise.stack.history import DepthHistory


class DeepLinear(nn.Linear):
    """A linear layer whose initial weights are multiplied by `scale`, sqrt(1 / (2 (1 + layer)))."""

    def __init__(self, inputs: int, outputs: int, layer: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.scale = math.sqrt(1 / (2 * (1 + layer)))


class FeedForward(nn.Module):
    """Feed-forward sublayer: norm, projection, `value * gelu(gate)` (tanh approximation), norm, projection, dropout."""

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
        # On a CPU a contiguous copy halves the time.
        opened = functional.gelu(gate.contiguous(), approximate="tanh")
        return self.dropout(self.down(self.hidden_norm(value * opened)))


class MixingWeights(nn.Module):
    """Weights of the `sources` earlier states that a layer reads, shared by all tokens and channels.

    With softmax, `scalars` are the logits; otherwise, they are the weights themselves.
    """

    def __init__(self, config: ElcConfig, sources: int) -> None:
        super().__init__()
        self.sources = sources
        self.softmax = config.reading.mixture == "softmax"
        self.initialization = config.initialization or config.reading.initialization
        self.scalars: Tensor
        if self.softmax or sources > 1:
            self.register_parameter("scalars", nn.Parameter(torch.empty(sources)))
        else:
            self.register_buffer("scalars", torch.ones(1), persistent=False)

    def forward(self) -> Tensor:
        return self.scalars.softmax(dim=0) if self.softmax else self.scalars

    def beginning(self) -> Tensor:
        values = first_values(self.initialization, self.sources, softmax=self.softmax)
        return torch.tensor(values, device=self.scalars.device)


class Layer(GradientCheckpointingLayer):
    """A layer that reads the previous state: y = x + attention(x), and the output is y + ffn(y).

    `number` is its position in the original model, wherever a plan runs it.
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
    """A layer that reads a learned mixture of earlier states. Only the part after the mixture is compiled."""

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
        self.norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False) if config.reading.normalized else None

    def forward(self, states: Tensor, *context: Tensor | None, record: DepthHistory) -> Tensor:
        """Return the output `(batch, seq, width)`, computed from `record`. `states` is ignored."""
        return self.transform(record.read(self.layer_weights(), self.missing), *context)

    def transform(self, mixed: Tensor, *context: Tensor | None) -> Tensor:
        attended, _ = self.attention(mixed, *context)
        output = self._add_feed_forward(mixed, attended)
        return output if self.norm is None else self.norm(output)

    def _add_feed_forward(self, mixed: Tensor, attended: Tensor) -> Tensor:
        if self.block == "attention":
            return attended + self.feed_forward(attended)
        total = mixed + attended
        kept = total if self.block == "residual" else attended
        return kept + self.feed_forward(total)


def bucket(distance: int, buckets: int, longest: int) -> int:
    """Return the row of the position table for a distance i - j between two tokens.

    Distances up to `buckets` / 2 have a row each. Larger ones share rows on a logarithmic scale up to `longest` - 1.

    >>> [bucket(distance, buckets=32, longest=512) - 31 for distance in (-511, -16, 0, 16, 17, 511)]
    [-31, -16, 0, 16, 17, 31]
    """
    middle = buckets // 2
    size = min(abs(distance), longest - 1)
    if size > middle:
        share = math.log(size / middle) / math.log((longest - 1) / middle)
        size = middle + math.ceil(share * (middle - 1))
    return buckets - 1 + (size if distance >= 0 else -size)


def bucket_table(config: ElcConfig, device: str | None = None) -> Tensor:
    """Return the bucket of every distance from 1 - L to L - 1, `(2 L - 1,)`, for L = `max_position_embeddings`."""
    longest = config.max_position_embeddings
    distances = range(1 - longest, longest)
    buckets = [bucket(distance, config.position_buckets, longest) for distance in distances]
    return torch.tensor(buckets, device=device)


def padded(tokens: Tensor, token_indices: Tensor, batch: int, length: int) -> Tensor:
    """Copy tokens `(tokens, width)` to the positions `token_indices` of states `(batch, seq, width)`; padding is 0.

    >>> padded(torch.ones(2, 1), torch.tensor([0, 2]), 2, 2).flatten()
    tensor([1., 0., 1., 0.])
    """
    rows = tokens.new_zeros(batch * length, tokens.shape[-1])
    return rows.index_copy(0, token_indices, tokens).reshape(batch, length, -1)


class SelfAttention(nn.Module):
    """Attention sublayer: norm, attention with relative positions, projection, norm, dropout.

    The input has the shape `(batch, seq, width)` or, without padding (`token_indices`), `(tokens, width)`. The result
    is the update and, if the attention is `eager`, the probabilities `(batch, heads, seq, seq)`; otherwise None.
    """

    def __init__(self, config: ElcConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.scale = 1 / math.sqrt(3 * (width // self.heads))
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, elementwise_affine=False)
        self.query_key = nn.Linear(width, 2 * width)
        self.value = nn.Linear(width, width)
        self.projection = nn.Linear(width, width)
        self.post_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        states: Tensor,
        mask: Tensor | None,
        positions: Tensor,
        buckets: Tensor,
        token_indices: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the update of the attention.

        Args:
            states: Input states.
            mask: True for keys that may be read, `(batch, 1, 1 or seq, seq)`.
            positions: Embeddings of the distances, `(<= 2C - 1, width)`.
            buckets: Row of `positions` for each pair of tokens, `(seq, seq)`.
            token_indices: Positions of the tokens in the flattened batch, without padding.
        """
        states = self.norm(states)
        query_key, value = self.query_key(states), self.value(states)
        if mask is not None and token_indices is not None:
            batch, length = mask.shape[0], mask.shape[-1]
            query_key, value = (padded(part, token_indices, batch, length) for part in (query_key, value))
        query, key = (self._split(part) for part in query_key.chunk(2, dim=-1))
        value = self._split(value)
        bias = self._position_bias(query, key, positions, buckets)
        if mask is not None:
            # Not minus infinity, which would make rows without readable keys NaN.
            bias = bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
        mixed, probabilities = self._attend(query, key, value, bias)
        if mask is not None:
            # Zero the rows without readable keys.
            mixed = mixed * mask.any(dim=-1, keepdim=True)
        mixed = mixed.transpose(1, 2).flatten(2)
        if token_indices is not None:
            mixed = mixed.flatten(0, 1).index_select(0, token_indices)
        return self.dropout(self.post_norm(self.projection(mixed))), probabilities

    def _split(self, states: Tensor) -> Tensor:
        return states.reshape(*states.shape[:-1], self.heads, -1).transpose(-3, -2)

    def _position_bias(self, query: Tensor, key: Tensor, positions: Tensor, buckets: Tensor) -> Tensor:
        rows = self.query_key(self.dropout(positions)) * self.scale
        position_query, position_key = (self._split(part) for part in rows.chunk(2, dim=-1))
        by_query = self._by_distance(query, position_key, buckets)
        offered = self._by_distance(key, position_query, buckets.transpose(0, 1))
        return (by_query + offered.transpose(-1, -2)).transpose(0, 1)

    @staticmethod
    def _by_distance(states: Tensor, rows: Tensor, buckets: Tensor) -> Tensor:
        """Return states_i . rows_{b(i, j)} as `(heads, batch, seq, seq)`. Heads come first to avoid copies."""
        batch, heads, length, _ = states.shape
        products = torch.bmm(states.transpose(0, 1).flatten(1, 2), rows.transpose(1, 2))
        return products.reshape(heads, batch, length, -1).gather(-1, buckets.expand(heads, batch, -1, -1))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor | None]:
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        if self.config._attn_implementation == "sdpa":
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=bias, dropout_p=dropout, scale=self.scale
            )
            return mixed, None
        scores = torch.matmul(query, key.transpose(-1, -2)) * self.scale + bias
        probabilities = functional.dropout(scores.softmax(dim=-1), dropout)
        return torch.matmul(probabilities, value), probabilities
