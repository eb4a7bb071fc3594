"""What is put on top of the encoder: a masked-token head, and heads for the four usual kinds of labelled tasks.

All use one small network on the states they look at: norm, a layer with GELU, norm, dropout, and a projection to as
many numbers as the task needs. The masked-token head projects with the table of token vectors itself.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

from layerwise.models.elc.configuration import ElcConfig
from layerwise.models.elc.encoder import ElcModel, ElcPreTrainedModel

IGNORED = -100
"""The label of a position that is not to be predicted, as everywhere in transformers."""

LabelledOutput: TypeAlias = SequenceClassifierOutput | TokenClassifierOutput | MultipleChoiceModelOutput


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
        """The scores of each state."""
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
        """Logits (batch, seq, vocabulary), and with `labels` the mean cross-entropy in nats per labelled token.

        Labels are -100 where nothing is to be predicted. In training only the labelled positions are projected onto the
        vocabulary, and `logits` are those rows, (labelled, vocabulary), in order. The sum of the losses is divided by
        `num_items_in_batch` where it is given (several batches to a step); a batch without a label has a loss of 0.
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


class ElcLabelled(ElcPreTrainedModel):
    """What the heads of labelled tasks share: an encoder, and on it as many scores as the task has labels.

    The mixins of transformers (`GenericForSequenceClassification` and its like) read the last token of a text through
    one matrix; these read the first one, or all of them (`every_token`), through a `Head`.
    """

    outputs: int | None = None
    """Scores where the task says how many; `None` where there is one for each label."""
    every_token = False
    result: type[SequenceClassifierOutput | TokenClassifierOutput | MultipleChoiceModelOutput] = (
        SequenceClassifierOutput
    )

    def __init__(self, config: ElcConfig) -> None:
        super().__init__(config)
        self.encoder = ElcModel(config)
        self.classifier = Head(config, self.outputs or config.num_labels, config.classifier_dropout)
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
    ) -> LabelledOutput:
        """Logits of the shape that the class names, and with `labels` their loss."""
        logits, recorded = self._scores(input_ids, attention_mask, inputs_embeds, **kwargs)
        loss = None if labels is None else self._loss(logits, labels)
        return self.result(loss=loss, logits=logits, **recorded)

    def _scores(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """The scores (batch, outputs) or (batch, seq, outputs), and what was recorded on the way."""
        outputs = self.encoder(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        states = outputs.last_hidden_state
        scores = self.classifier(states if self.every_token else states[:, 0])
        return scores, {"hidden_states": outputs.hidden_states, "attentions": outputs.attentions}

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError


class ElcForSequenceClassification(ElcLabelled):
    """Scores a whole text by its first token: logits (batch, labels), and with `labels` (batch,) the loss that
    `config.problem_type` names; regression with one label, or several labels at once.
    """

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.loss_function(labels=labels, pooled_logits=logits, config=self.config)


class ElcForTokenClassification(ElcLabelled):
    """Scores every token: logits (batch, seq, labels), and their cross-entropy with `labels` (batch, seq), -100 where
    there is none.
    """

    every_token = True
    result = TokenClassifierOutput

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.loss_function(logits, labels, self.config)


class ElcForMultipleChoice(ElcLabelled):
    """Scores several texts against each other, each by its first token: logits (batch, choices) of token ids (batch,
    choices, seq), and with `labels` (batch,) their cross-entropy.
    """

    outputs = 1
    result = MultipleChoiceModelOutput

    def _scores(self, *given: Tensor | None, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        choices = next(each.shape[1] for each in given if each is not None)
        scores, recorded = super()._scores(*(each if each is None else each.flatten(0, 1) for each in given), **kwargs)
        return scores.reshape(-1, choices), recorded

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)


class ElcForQuestionAnswering(ElcLabelled):
    """Finds where an answer begins and ends in a text."""

    outputs = 2
    every_token = True

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Logits (batch, seq) of the first and the last token, and with both positions (batch,) their mean loss."""
        scores, recorded = self._scores(input_ids, attention_mask, inputs_embeds, **kwargs)
        start, end = scores.unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start, end, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end, **recorded)


def _masked_loss(logits: Tensor, labels: Tensor, items: Tensor | int | None) -> Tensor:
    total = functional.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / ((labels != IGNORED).sum().clamp(min=1) if items is None else items)
