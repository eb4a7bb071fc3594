"""What is put on top of the encoder: a masked-token head, and a head that classifies a text.

Both use one small network on the states they look at: norm, a layer with GELU, norm, dropout, and a projection to as
many numbers as the task needs. The masked-token head projects with the table of token vectors itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import can_return_tuple

from layerwise.models.elc.configuration import ElcConfig
from layerwise.models.elc.encoder import ElcModel, ElcPreTrainedModel

IGNORED = -100
"""The label of a position that is not to be predicted, as everywhere in transformers."""


class Head(nn.Module):
    """From states (..., width) to scores (..., outputs)."""

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
    """Predicts masked tokens; its output table is the token vectors' own."""

    accepts_loss_kwargs = True
    _tied_weights_keys = {"head.projection.weight": "encoder.embedding.words.weight"}  # noqa: RUF012

    def __init__(self, config: ElcConfig) -> None:
        super().__init__(config)
        self.encoder = ElcModel(config)
        self.head = Head(config, config.vocab_size, config.hidden_dropout_prob)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """The projection onto the vocabulary."""
        return self.head.projection

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Put another projection in its place."""
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
        """Return logits (batch, seq, vocabulary), and with `labels` the mean cross-entropy in nats per labeled token.

        Labels are -100 where nothing is predicted. In training `logits` are only the labeled rows, (labeled,
        vocabulary). The summed loss is divided by `num_items_in_batch` if given; without labels it is 0.
        """
        outputs = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        states = outputs.last_hidden_state
        # How many are labelled is not known when a graph is compiled.
        if labels is not None and self.training and not torch.compiler.is_compiling():
            labelled = labels != IGNORED
            states, labels = states[labelled], labels[labelled]
        logits = self.head(states)
        loss = None if labels is None else _masked_loss(logits, labels, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ElcForSequenceClassification(ElcPreTrainedModel):
    """Classifies a text by its first token: logits (batch, labels), and with `labels` the `config.problem_type` loss.

    Transformers' `GenericForSequenceClassification` reads the last token through one matrix instead.
    """

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
        """Logits (batch, labels), and with `labels` their loss."""
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
