"""Score sentences in nats: pseudo-log-likelihood of masked language models, log-likelihood of causal ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.tokenizer import find_mask_id
from layerwise.data.text.tokens import Objective, encode_pairs, find_special_ids
from layerwise.errors import DataError, MeasureError
from layerwise.measure.language.loss import LanguageModelHead, find_head_behind
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.stack.max_length import longest_input

Numbers = NDArray[np.float64]
TooLong = Literal["refuse", "skip"]

BATCH_TOKENS = 8192

MAX_LOGITS = 1 << 25
"""Maximum number of logits in memory: 128 MiB as float32."""

MAX_COPIED_TOKENS = 1 << 22
"""Maximum number of tokens in masked copies of texts; removing duplicates among them takes 100 MiB."""

_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of which the first `start` characters are context that is not scored."""

    text: str
    start: int = 0


@dataclass(frozen=True, slots=True)
class EncodedPassage:
    """The token ids of a passage, and the positions that are scored."""

    ids: tuple[int, ...]
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceScorer:
    """A language model with its tokenizer and objective; a `head` computes logits only at masked positions."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    objective: Objective
    head: LanguageModelHead | None

    @classmethod
    def from_model(cls, model: nn.Module, tokenizer: PreTrainedTokenizerBase | None) -> SentenceScorer:
        name = type(model).__name__
        if tokenizer is None:
            raise MeasureError(f"{name} needs a tokenizer to score sentences. Pass one with --tokenizer PATH.")
        if name.endswith("ForMaskedLM"):
            find_mask_id(tokenizer)
            prefix = getattr(model, "base_model_prefix", "")
            head = find_head_behind(model, [prefix]) if prefix else None
            return cls(model, tokenizer, "masked_token", head)
        if name.endswith(("ForCausalLM", "LMHeadModel", "LMHead")):
            return cls(model, tokenizer, "next_token", None)
        raise MeasureError(
            f"The model must have a language model head to score sentences, got {name}. Use a ...ForMaskedLM or "
            "...ForCausalLM checkpoint."
        )

    @property
    def positions(self) -> int | None:
        limits = [longest_input(self.model), getattr(self.tokenizer, "model_max_length", None)]
        return min((each for each in limits if isinstance(each, int) and 0 < each < _UNLIMITED), default=None)

    @property
    def vocabulary(self) -> int:
        config: Any = self.model.config
        return int(config.get_text_config().vocab_size)


def log_likelihoods(
    scorer: SentenceScorer,
    passages: Sequence[Passage],
    *,
    temperature: float = 1.0,
    too_long: TooLong = "refuse",
    progress: Callable[[float], None] | None = None,
) -> Numbers:
    """Return the (pseudo-)log-likelihood in nats of every passage, without length normalization.

        masked   PLL(w) = sum_t log softmax(logits(w with w_t masked)_t / T)[w_t]
        causal   sum_t log softmax(logits(w_<t) / T)[w_t]

    T is the temperature (Wang and Cho 2019; Salazar et al. 2020). Special tokens are not scored. A causal model reads
    the start token first; if the tokenizer has none, the first token of the text is not scored.

    Raises:
        MeasureError: If likelihoods are not finite.
        DataError: If a passage is too long and `too_long` is not "skip" (which returns NaN), or if a token id is not in
            the model's vocabulary.
    """
    lines = encode_passages(scorer.tokenizer, passages, scorer.objective)
    fitting = _drop_too_long(lines, passages, scorer.positions, too_long)
    _check_vocabulary(fitting, scorer.vocabulary)
    score = _score_masked if scorer.objective == "masked_token" else _score_causal
    by_line: dict[EncodedPassage, float] = {}
    total = sum(len(line.ids) for line in fitting)
    with evaluating(scorer.model), torch.inference_mode():
        for group in _group_by_length(fitting):
            values = score(scorer, group, temperature)
            by_line |= dict(zip(group, values.tolist(), strict=True))
            if progress is not None:
                progress(sum(len(line.ids) for line in by_line) / total)
    values = np.array([by_line.get(line, np.nan) for line in lines])
    if np.isnan([by_line[line] for line in fitting]).any() or np.isinf(values).any():
        raise MeasureError("Likelihoods must be finite, got NaN or infinity. Run the model in float32.")
    return values


def encode_passages(
    tokenizer: PreTrainedTokenizerBase, passages: Sequence[Passage], objective: Objective
) -> tuple[EncodedPassage, ...]:
    """Encode passages, scoring every token that ends after the context; raise `DataError` if a passage has none."""
    is_masked = objective == "masked_token"
    texts = [(passage.text, passage.start) for passage in passages]
    pieces = encode_pairs(tokenizer, texts, wrapped=is_masked)
    start = () if is_masked else find_special_ids(tokenizer, objective)[0]
    lines = []
    for passage, (ids, scored) in zip(passages, pieces, strict=True):
        positions = tuple(position + len(start) for position in scored)
        line = EncodedPassage((*start, *ids), positions if is_masked else tuple(each for each in positions if each))
        if not line.scored:
            reason = "" if start or is_masked else " (the tokenizer has no start token)"
            raise DataError(
                f"Texts must have at least one token to score, got {passage.text!r}{reason}. Remove it or use a longer "
                "text."
            )
        lines.append(line)
    return tuple(lines)


def _drop_too_long(
    lines: Sequence[EncodedPassage], passages: Sequence[Passage], positions: int | None, too_long: TooLong
) -> tuple[EncodedPassage, ...]:
    beyond = [index for index, line in enumerate(lines) if positions is not None and len(line.ids) > positions]
    if beyond and too_long == "refuse":
        worst = max(beyond, key=lambda index: len(lines[index].ids))
        raise DataError(
            f"Sentences must have at most {positions} tokens (the model's positions), got {len(beyond):,} of "
            f"{len(lines):,} that are longer, up to {len(lines[worst].ids)} tokens ({passages[worst].text[:60]!r}...). "
            "Skip them (--too-long skip) or use a model with more positions."
        )
    skipped = set(beyond)
    return tuple(dict.fromkeys(line for index, line in enumerate(lines) if index not in skipped))


def _check_vocabulary(lines: Sequence[EncodedPassage], vocabulary: int) -> None:
    largest = max((max(line.ids) for line in lines), default=0)
    if largest >= vocabulary:
        raise DataError(
            f"Token ids must be below the model's vocabulary size {vocabulary}, got {largest}. Use the model's "
            "tokenizer."
        )


def _group_by_length(lines: Sequence[EncodedPassage]) -> Iterator[tuple[EncodedPassage, ...]]:
    groups: dict[int, list[EncodedPassage]] = defaultdict(list)
    for line in lines:
        groups[len(line.ids)].append(line)
    for length, group in sorted(groups.items()):
        most = max(2, MAX_COPIED_TOKENS // length**2 // 2 * 2)
        yield from (tuple(group[start : start + most]) for start in range(0, len(group), most))


def _count_rows(scorer: SentenceScorer, length: int, logits: int) -> int:
    return max(1, min(BATCH_TOKENS // length, MAX_LOGITS // (logits * scorer.vocabulary)))


def _compute_logits(model: nn.Module, ids: Tensor) -> Tensor:
    return main_tensor(model(**accepted(model, {"input_ids": ids})))


def _log_probabilities(logits: Tensor, rows: Tensor, targets: Tensor, temperature: float) -> Tensor:
    scaled = logits.float() / temperature if temperature != 1.0 else logits.float()
    log_norm = scaled.logsumexp(dim=-1)
    rows, targets = rows.to(scaled.device), targets.to(scaled.device)
    return to_float64_cpu(scaled[rows, targets] - log_norm[rows])


def _score_masked(scorer: SentenceScorer, lines: Sequence[EncodedPassage], temperature: float) -> Numbers:
    length = len(lines[0].ids)
    owners = np.repeat(np.arange(len(lines)), [len(line.scored) for line in lines])
    masked_at = np.concatenate([np.array(line.scored, dtype=np.int32) for line in lines])
    copies = np.array([line.ids for line in lines], dtype=np.int32)[owners]
    each = np.arange(len(owners))
    targets = copies[each, masked_at].copy()
    copies[each, masked_at] = find_mask_id(scorer.tokenizer)
    # The position is part of the key, because a text may contain the mask token.
    distinct, copy_of = np.unique(np.column_stack([copies, masked_at]), axis=0, return_inverse=True)
    order = np.argsort(copy_of, kind="stable")
    sorted_copies = copy_of[order]
    nats = np.empty(len(owners))
    step = _count_rows(scorer, length, length if scorer.head is None else 1)
    for start in range(0, len(distinct), step):
        batch = torch.from_numpy(distinct[start : start + step].astype(np.int64))
        here = slice(*np.searchsorted(sorted_copies, (start, start + len(batch))))
        logits = _logits_at(scorer, batch[:, :-1], batch[:, -1])
        rows = torch.from_numpy(sorted_copies[here] - start)
        tokens = torch.from_numpy(targets[order[here]].astype(np.int64))
        nats[order[here]] = _log_probabilities(logits, rows, tokens, temperature).numpy()
    sums = np.zeros(len(lines))
    np.add.at(sums, owners, nats)
    return sums


def _logits_at(scorer: SentenceScorer, ids: Tensor, positions: Tensor) -> Tensor:
    rows = torch.arange(len(ids), device="cpu")
    if scorer.head is None:
        return _compute_logits(scorer.model, ids)[rows, positions]
    states, output = scorer.head.states({"input_ids": ids})
    return scorer.head.logits(states[rows, positions], output, ids[rows, positions])


def _score_causal(scorer: SentenceScorer, lines: Sequence[EncodedPassage], temperature: float) -> Numbers:
    length = len(lines[0].ids)
    step = _count_rows(scorer, length, length)
    values = []
    for start in range(0, len(lines), step):
        batch = lines[start : start + step]
        ids = torch.tensor([line.ids for line in batch], device="cpu")
        rows = torch.tensor([row for row, line in enumerate(batch) for _ in line.scored], device="cpu")
        positions = torch.tensor([position for line in batch for position in line.scored], device="cpu")
        # The logits at a position predict the next token.
        flat = _compute_logits(scorer.model, ids).flatten(0, 1)
        nats = _log_probabilities(flat, rows * length + positions - 1, ids[rows, positions], temperature)
        values.append(torch.zeros(len(batch), dtype=torch.float64, device="cpu").index_add_(0, rows, nats))
    return torch.cat(values).numpy()
