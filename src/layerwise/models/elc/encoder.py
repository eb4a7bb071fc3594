"""ELC-BERT encoder and its heads for masked language modeling and classification."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from layerwise.errors import ModelError
from layerwise.models.elc.configuration import ElcConfig
from layerwise.models.elc.layers import (
    DeepLinear,
    Layer,
    MixingLayer,
    MixingWeights,
    SelfAttention,
    bucket,
    bucket_table,
    padded,
)
from layerwise.stack.history import DepthHistory


class Embedding(nn.Module):
    """Normalized token embeddings, and the table of position embeddings that all layers share."""

    def __init__(self, config: ElcConfig) -> None:
        super().__init__()
        self.config = config
        width, eps = config.hidden_size, config.layer_norm_eps
        self.words = nn.Embedding(config.vocab_size, width)
        self.norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.positions = nn.Parameter(torch.empty(2 * config.position_buckets - 1, width))
        self.position_norm = nn.LayerNorm(width, eps=eps)
        self.bucket_of: Tensor
        self.register_buffer("bucket_of", bucket_table(config), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.dropout(self.norm(vectors))

    def distances(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the distance embeddings `(rows, width)`, and the row of each pair of tokens `(seq, seq)`."""
        config = self.config
        first = bucket(1 - length, config.position_buckets, config.max_position_embeddings)
        last = bucket(length - 1, config.position_buckets, config.max_position_embeddings)
        positions = torch.arange(length, device=self.bucket_of.device)
        buckets = self.bucket_of[positions[:, None] - positions + config.max_position_embeddings - 1]
        return self.position_norm(self.positions[first : last + 1]), buckets - first


class ElcPreTrainedModel(PreTrainedModel):
    """Base class with the configuration and weight initialization.

    Matrices and tables are drawn from a normal distribution with the standard deviation s = sqrt(2 / (5 width)),
    truncated at -2 s and 2 s. Feed-forward matrices are scaled by sqrt(1 / (2 (1 + layer))). Biases start at 0.
    """

    config: ElcConfig
    config_class = ElcConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Layer", "MixingLayer"]  # noqa: RUF012
    # True if the loss is divided by the labels of all batches of a step.
    accepts_loss_kwargs = False
    _can_record_outputs = {"hidden_states": [Layer, MixingLayer], "attentions": SelfAttention}  # noqa: RUF012

    def layer_weights(self) -> Tensor | None:
        """Return the layer weights as a lower triangular matrix `(readers, layers + 1)`, or None for `ltg`.

        Row n has the weights that layer n reads with: column 0 for the embedding, and column k + 1 for layer k. If the
        variant mixes its output, the last row has the weights of the output.
        """
        readers = self.base_model.readers()
        if not readers:
            return None
        columns = self.config.num_hidden_layers + 1
        rows = [reader() for reader in readers]
        device = rows[-1].device
        return torch.stack([nn.functional.pad(row.to(device), (0, columns - len(row))) for row in rows])

    def activation_checkpointing_enable(
        self, activation_checkpointing_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> None:
        if (activation_checkpointing_kwargs or {}).get("use_reentrant") and self.config.reading.mixes:
            raise ModelError(
                f"reentrant checkpointing does not support the mixed states of {self.config.variant}; "
                'pass {"use_reentrant": False}, the default'
            )
        super().activation_checkpointing_enable(activation_checkpointing_kwargs, **options)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        std = math.sqrt(2 / (5 * self.config.hidden_size))
        if isinstance(module, nn.Linear | nn.Embedding):
            std *= module.scale if isinstance(module, DeepLinear) else 1
            init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm) and module.elementwise_affine:
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, Embedding):
            init.trunc_normal_(module.positions, std=std, a=-2 * std, b=2 * std)
            init.copy_(module.bucket_of, bucket_table(self.config))
        elif isinstance(module, MixingWeights):
            init.copy_(module.scalars, module.beginning())


class ElcModel(ElcPreTrainedModel):
    """Encoder of LTG-BERT or ELC-BERT without a head, from token ids to hidden states `(batch, seq, width)`.

    If `padding_free` is set, training skips padding tokens everywhere except in attention, and their output is zero.
    """

    padding_free = False

    def __init__(self, config: ElcConfig) -> None:
        super().__init__(config)
        variant = config.reading
        depth = config.num_hidden_layers
        kind = MixingLayer if variant.mixes else Layer
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(kind(config, number) for number in range(depth))
        self.output_weights = MixingWeights(config, depth + 1) if variant.mixes_output else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding.words

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embedding.words = value

    @merge_with_config_defaults  # type: ignore[untyped-decorator]
    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encode `input_ids` of shape `(batch, seq)`, or `inputs_embeds`.

        `attention_mask` is 1 for tokens that are read and has the shape `(batch, seq)` or, for a mask per token,
        `(batch, seq, seq)`. `token_type_ids` are ignored.
        """
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None or (input_ids is not None and inputs_embeds is not None):
            raise ModelError("pass either input_ids or inputs_embeds")
        batch, length = tokens.shape[:2]
        if length > self.config.max_position_embeddings:
            raise ModelError(
                f"a sequence must have at most max_position_embeddings = {self.config.max_position_embeddings} tokens, "
                f"got {length}; truncate the texts (truncation=True, max_length=...)"
            )
        if attention_mask is None and self.training:
            # One compiled graph for batches with and without a mask.
            attention_mask = torch.ones((batch, length), dtype=torch.long, device=tokens.device)
        token_indices = self._token_indices(attention_mask)
        if token_indices is not None:
            tokens = tokens.flatten(0, 1).index_select(0, token_indices)
        vectors = self.embedding.words(tokens) if inputs_embeds is None else tokens
        context = (_broadcast_mask(attention_mask), *self.embedding.distances(length), token_indices)
        hidden = self._through_layers(self.embedding(vectors), context)
        if token_indices is not None:
            hidden = padded(hidden, token_indices, batch, length)
        return BaseModelOutput(last_hidden_state=hidden)

    def _token_indices(self, attention_mask: Tensor | None) -> Tensor | None:
        if not (self.padding_free and self.training) or attention_mask is None or attention_mask.dim() != 2:
            return None
        return attention_mask.flatten().nonzero().squeeze(-1)

    def _through_layers(self, hidden: Tensor, context: tuple[Any, ...]) -> Tensor:
        if not self.config.reading.mixes:
            for layer in self.layers:
                hidden = layer(hidden, *context)
            return hidden
        record, last_readers = DepthHistory.of(hidden), self._last_readers()
        for layer in cast(Iterable[MixingLayer], self.layers):
            hidden = layer(hidden, *context, record=record)
            record = record.then(layer.number, hidden)
            if last_readers is not None:
                record = record.select([source for source in record.sources if last_readers[source] > layer.number])
        if self.output_weights is None:
            return hidden
        return record.read(self.output_weights(), self.config.missing)

    def readers(self) -> list[MixingWeights]:
        """Return the layer weights of each layer, followed by those of the output if it is mixed."""
        if not self.config.reading.mixes:
            return []
        readers = [layer.layer_weights for layer in cast(Iterable[MixingLayer], self.layers)]
        return readers if self.output_weights is None else [*readers, self.output_weights]

    def _last_readers(self) -> list[int] | None:
        """Return the last reader of each state, or None if all states are kept (in training, or in another order)."""
        readers = self.readers()
        scalars = [reader.scalars for reader in readers]
        learns = torch.is_grad_enabled() and any(each.requires_grad for each in scalars)
        is_sharded = any(hasattr(each, "full_tensor") for each in scalars)
        in_order = [reader.sources for reader in readers] == list(range(1, len(readers) + 1))
        if self.training or learns or is_sharded or not in_order or torch.compiler.is_compiling():
            return None
        weights = cast(Tensor, self.layer_weights())
        last = [-1] * weights.shape[1]
        for reader, row in enumerate(weights.tolist()):
            last = [reader if weight else before for before, weight in zip(last, row, strict=True)]
        return last


def _broadcast_mask(attention_mask: Tensor | None) -> Tensor | None:
    if attention_mask is None:
        return None
    if attention_mask.dim() not in (2, 3):
        raise ModelError(
            f"attention_mask must have the shape (batch, seq) or (batch, seq, seq), got {tuple(attention_mask.shape)}"
        )
    mask = attention_mask.bool()
    return mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]


IGNORED = -100
"""Label of tokens that are not predicted."""


class Head(nn.Module):
    """Maps states `(..., width)` to scores `(..., outputs)`."""

    def __init__(self, config: ElcConfig, outputs: int, dropout: float) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False)
        self.dense = nn.Linear(width, width)
        self.dense_norm = nn.LayerNorm(width, eps=eps, elementwise_affine=False)
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(width, outputs)

    def forward(self, states: Tensor) -> Tensor:
        hidden = functional.gelu(self.dense(self.norm(states)))
        return self.projection(self.dropout(self.dense_norm(hidden)))


class ElcForMaskedLM(ElcPreTrainedModel):
    """Masked language model with tied embeddings."""

    accepts_loss_kwargs = True
    _tied_weights_keys = {"head.projection.weight": "encoder.embedding.words.weight"}  # noqa: RUF012

    def __init__(self, config: ElcConfig) -> None:
        super().__init__(config)
        self.encoder = ElcModel(config)
        self.head = Head(config, config.vocab_size, config.hidden_dropout_prob)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.head.projection

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.head.projection = new_embeddings

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Return logits `(batch, seq, vocabulary)`, and the loss if `labels` are given.

        The loss is the summed cross-entropy in nats, divided by `num_items_in_batch` or, by default, by the number of
        labeled tokens. Labels of -100 are ignored. In training, `logits` has only labeled tokens.
        """
        outputs = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        states = outputs.last_hidden_state
        # The number of labels is unknown when a graph is compiled.
        if labels is not None and self.training and not torch.compiler.is_compiling():
            is_labeled = labels != IGNORED
            states, labels = states[is_labeled], labels[is_labeled]
        logits = self.head(states)
        loss = None if labels is None else _masked_loss(logits, labels, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ElcForSequenceClassification(ElcPreTrainedModel):
    """Text classifier that reads the hidden state of the first token."""

    def __init__(self, config: ElcConfig) -> None:
        super().__init__(config)
        self.encoder = ElcModel(config)
        self.classifier = Head(config, config.num_labels, config.classifier_dropout)
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Return logits `(batch, labels)`, and the loss of `config.problem_type` if `labels` are given."""
        outputs = self.encoder(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        logits = self.classifier(outputs.last_hidden_state[:, 0])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def _masked_loss(logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
    total = functional.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / ((labels != IGNORED).sum().clamp(min=1) if items is None else items)
