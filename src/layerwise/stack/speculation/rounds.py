"""The rounds of self-speculative decoding: draft, verify, keep, and cut the cache back to what was kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from layerwise.stack.speculation import shared_cache
from layerwise.stack.speculation.acceptance import Accepted, accept_greedy, accept_sampled
from layerwise.stack.speculation.draft_length import DraftLength
from layerwise.stack.speculation.drafting import Drafting

CACHE = "past_key_values"


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is known of the drafted tokens of a round: of each the largest probability that the draft gave any token, in
    a batch of the text where it is least, and in sampling the distributions (batch, vocabulary) they were drawn from.
    """

    confidences: list[float] = field(default_factory=list)
    drawn_from: list[Tensor] = field(default_factory=list)

    @property
    def distributions(self) -> Tensor | None:
        """Those of all tokens, (batch, k, vocabulary); `None` where nothing was drawn."""
        return torch.stack(self.drawn_from, dim=1) if self.drawn_from else None


class Rounds:
    """One generation. `ids` `(batch, length)` are the tokens so far, and the cache holds all of them but the last.

    `tokens` came after the first one, in `count` rounds with `drafted` draft passes; `accepted` drafts were kept.
    """

    def __init__(
        self,
        model: Any,
        draft: Drafting,
        length: DraftLength,
        processors: Any,
        criteria: Any,
        config: Any,
        streamer: Any | None,
        ids: Tensor,
        kwargs: dict[str, Any],
    ) -> None:
        self.model = model
        self.draft = draft
        self.length = length
        self.processors = processors
        self.criteria = criteria
        self.config = config
        self.streamer = streamer
        self.ids = ids
        self.kwargs = kwargs
        self.cache = kwargs[CACHE]
        self.pads = any(hasattr(each, "eos_token_id") for each in criteria)
        self.unfinished = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        self.layers = sorted({step.layer for step in draft.steps})
        self.scores: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.tokens = self.count = self.drafted = self.accepted = 0

    def run(self) -> None:
        """Generate until every text is finished."""
        model: Any = self.model
        output = model._prefill(self.ids, self.config, self.kwargs)
        self.kwargs = self._grown(self.kwargs, 1)
        shared_cache.refuse_unlike(self.cache, type(model).__name__)
        shared_cache.record_past(self.cache)
        logits = self._float(output.logits[:, -1:])
        self._append(self._verified(logits, None, None), logits)
        with model._optimize_model_for_decode():
            while self._unfinished():
                self._round()
        shared_cache.forget_past(self.cache)
        if self.streamer is not None:
            self.streamer.end()

    def _round(self) -> None:
        left = self.config.max_length - self.ids.shape[1] if self.config.max_length else self.length.longest + 1
        ids, kwargs, drafts = self._drafts(max(left - 1, 0))
        drafted = ids[:, self.ids.shape[1] :]
        length = drafted.shape[1]
        logits = self._target(ids, kwargs, length + 1)
        accepted = self._verified(logits, drafted, drafts.distributions)
        self.length.observe(drafts.confidences, accepted.count)
        kept = self._append(accepted, logits)
        shared_cache.cut(self.cache, None, length + 1 - kept)
        self.kwargs = self._grown(self.kwargs, kept)
        self.tokens += kept
        self.count += 1
        self.drafted += length
        self.accepted += min(kept, accepted.count)

    def _drafts(self, most: int) -> tuple[Tensor, dict[str, Any], Drafts]:
        """The tokens with at most `most` drafts behind them, the arguments for so many, and what is known of them.

        The slots of the drafted layers are as long afterwards as before.
        """
        ids, kwargs, drafts = self.ids, self.kwargs, Drafts()
        if not most or not self.length.goes_on(()):
            return ids, kwargs, drafts
        kwargs = {**kwargs, CACHE: self.draft.view(self.cache)}
        with self.draft.running():
            while len(drafts.confidences) < most and self.length.goes_on(drafts.confidences):
                inputs = self.model.prepare_inputs_for_generation(ids, next_sequence_length=1, **kwargs)
                logits = self._float(self.model(**inputs, return_dict=True).logits[:, -1])
                token = self._drafted(self.processors(ids, logits), drafts)
                ids = torch.cat([ids, token], dim=-1)
                kwargs = self._grown(kwargs, 1)
        shared_cache.cut(self.cache, self.layers, len(drafts.confidences))
        return ids, {**kwargs, CACHE: self.cache}, drafts

    def _drafted(self, scores: Tensor, drafts: Drafts) -> Tensor:
        """The next token of every text, (batch, 1), of which `drafts` notes what it was drawn from, and how surely."""
        needed = self.config.do_sample or self.length.adapts
        distribution = scores.softmax(dim=-1) if needed else scores
        sure = distribution[self.unfinished].amax(dim=-1).min() if self.length.adapts else 1.0
        drafts.confidences.append(float(sure))
        if not self.config.do_sample:
            return scores.argmax(dim=-1, keepdim=True)
        drafts.drawn_from.append(distribution)
        return torch.multinomial(distribution, num_samples=1)

    def _target(self, ids: Tensor, kwargs: dict[str, Any], tokens: int) -> Tensor:
        """The model's logits `(batch, tokens, vocabulary)` at the last `tokens` positions, which enter the cache."""
        inputs = self.model.prepare_inputs_for_generation(ids, next_sequence_length=tokens, **kwargs)
        if "logits_to_keep" in inputs:
            inputs["logits_to_keep"] = tokens
        return self._float(self.model(**inputs, return_dict=True).logits[:, -tokens:])

    def _verified(self, logits: Tensor, drafted: Tensor | None, probabilities: Tensor | None) -> Accepted:
        """The tokens that are kept, and the scores they are kept by, which replace `logits` where processors act."""
        if drafted is None:
            drafted = self.ids.new_empty((len(self.ids), 0))
        ids = torch.cat([self.ids, drafted], dim=-1)
        scores = logits
        if len(self.processors):
            start = self.ids.shape[1]
            scores = torch.stack(
                [self.processors(ids[:, : start + i], logits[:, i].clone()) for i in range(logits.shape[1])], dim=1
            )
        self._latest_scores = scores
        if not self.config.do_sample:
            return accept_greedy(drafted, scores, self.unfinished)
        if probabilities is None:
            probabilities = scores[:, :0]
        return accept_sampled(drafted, probabilities, scores, self.unfinished)

    def _append(self, accepted: Accepted, logits: Tensor) -> int:
        """Append tokens one by one, until all texts are finished; returns how many."""
        for position in range(accepted.tokens.shape[1]):
            token = accepted.tokens[:, position]
            if self.pads:
                token = torch.where(self.unfinished, token, self.config._pad_token_tensor)
            self.ids = torch.cat([self.ids, token[:, None]], dim=-1)
            if self.config.return_dict_in_generate:
                self.scores.append(self._latest_scores[:, position])
                self.logits.append(logits[:, position])
            if self.streamer is not None:
                self.streamer.put(token.cpu())
            self.unfinished = self.unfinished & ~self.criteria(self.ids, tuple(self.scores) or None)
            if not self._unfinished():
                return position + 1
        return accepted.tokens.shape[1]

    def _unfinished(self) -> bool:
        return bool(self.unfinished.any())

    def _grown(self, kwargs: dict[str, Any], tokens: int) -> dict[str, Any]:
        """The arguments for a text that is `tokens` longer: its mask, its positions."""
        grown: dict[str, Any] = self.model._update_model_kwargs_for_generation(
            ModelOutput(), dict(kwargs), num_new_tokens=tokens
        )
        return grown

    def _float(self, logits: Tensor) -> Tensor:
        """A copy in float32 on the device of the tokens, as `generate` makes one."""
        return logits.to(copy=True, dtype=torch.float32, device=self.ids.device)
