"""Evaluation of the demo model on held-out data: nats/token on text, exact match on skills.

Every window and every example follows one beginning-of-text token, as in training. An answer is an exact match if the
argmax is correct at each of its tokens under teacher forcing, since greedy decoding from the prompt would then generate
the same tokens. `generated` checks this with `generate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from layerwise.data.demo.python_stdlib import PythonText
from layerwise.data.demo.skills import Example
from layerwise.errors import DataError

_IGNORED = -100
_ROWS = 32


@dataclass(frozen=True, slots=True)
class TextGrade:
    """Loss on text in `nats`/token, over `tokens` scored tokens that are `bytes` bytes of UTF-8."""

    nats: float
    tokens: int
    bytes: int

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """The loss in bits/byte, which does not depend on the tokenizer."""
        return self.nats * self.tokens / self.bytes / math.log(2.0)


@torch.inference_mode()
def text_grade(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    documents: Sequence[PythonText],
    window: int,
    most_windows: int,
) -> TextGrade:
    """Compute the mean loss over the first `most_windows` windows of each document.

    Each window begins with the `bos` token and has `window - 1` scored tokens. Incomplete windows are excluded, so that
    all scored tokens have comparable contexts. Raises `DataError` if every document is shorter than a window.
    """
    scored = window - 1
    rows = []
    for document in documents:
        tokens = tokenizer.encode(document.text, add_special_tokens=False)
        starts = range(0, len(tokens) - scored + 1, scored)[:most_windows]
        rows += [[tokenizer.bos_token_id, *tokens[start : start + scored]] for start in starts]
    if not rows:
        raise DataError(f"none of {len(documents)} documents fills a window of {window} tokens; use a shorter window")
    model.eval()
    nats = 0.0
    for first in range(0, len(rows), _ROWS):
        tokens = torch.tensor(rows[first : first + _ROWS], device=model.device)
        logits = model(input_ids=tokens, use_cache=False).logits[:, :-1].float()
        nats += float(functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"))
    count = len(rows) * scored
    size = sum(len(tokenizer.decode(row[1:]).encode()) for row in rows)
    return TextGrade(nats / count, count, size)


@torch.inference_mode()
def exact_matches(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]
) -> list[bool]:
    """Return, for each example, True if the argmax is correct at every token of its answer (teacher-forced)."""
    model.eval()
    matches: list[bool] = []
    for first in range(0, len(examples), _ROWS):
        tokens, labels = _rows(tokenizer, examples[first : first + _ROWS])
        logits = model(input_ids=tokens.to(model.device), use_cache=False).logits[:, :-1]
        targets = labels[:, 1:].to(model.device)
        right = (logits.argmax(-1) == targets) | (targets == _IGNORED)
        matches += right.all(-1).tolist()
    return matches


def _rows(tokenizer: PreTrainedTokenizerFast, examples: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and labels `(examples, longest)`, padded on the right; only answers are labeled.

    A causal model needs no attention mask for padding on the right.
    """
    prompts = [tokenizer.encode(example.prompt, add_special_tokens=False) for example in examples]
    answers = [tokenizer.encode(example.answer, add_special_tokens=False) for example in examples]
    longest = 1 + max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True))
    tokens = torch.full((len(examples), longest), tokenizer.pad_token_id)
    labels = torch.full((len(examples), longest), _IGNORED)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = 1 + len(prompt) + len(answer)
        tokens[row, :end] = torch.tensor([tokenizer.bos_token_id, *prompt, *answer])
        labels[row, 1 + len(prompt) : end] = torch.tensor(answer)
    return tokens, labels


@torch.inference_mode()
def generated(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, example: Example) -> str:
    prompt = [tokenizer.bos_token_id, *tokenizer.encode(example.prompt, add_special_tokens=False)]
    length = len(tokenizer.encode(example.answer, add_special_tokens=False))
    tokens = torch.tensor([prompt], device=model.device)
    written = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=length, do_sample=False)
    return str(tokenizer.decode(written[0, len(prompt) :]))
