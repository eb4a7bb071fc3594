"""The tokenizer of the demo model, and its training windows, which mix text with skills.

The tokenizer is byte-level BPE with two additional rules: a digit is always a token, and a letter or a bracket after a
space is one token, so that skills consist of single tokens. `<|endoftext|>` (token 0) begins and ends each document.
`<|pad|>` (token 1) is separate, so that padding is never mistaken for an end.

A window depends only on the seed and its index, so that a resumed run reads the same windows. Text windows are slices
of the training modules, in which all tokens are scored. Skill windows contain complete examples, of which only the
answers and the end token after each are scored, since a random question has nothing to learn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from layerwise.data.demo import python_stdlib, skills

END = "<|endoftext|>"
PAD = "<|pad|>"
_WORDS = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TOKENIZER_EXAMPLES = 20_000  # of each skill: enough for every letter and bracket to become one token
_IGNORED = -100


def train_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer of `vocabulary` tokens on the training split of text and skills."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_tokenizer_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )


def _tokenizer_texts() -> Iterator[str]:
    for kind in python_stdlib.KINDS:
        yield from (document.text for document in python_stdlib.read_documents("train", kind))
    for task in skills.TASKS:
        yield from (example.text for example in skills.draw_examples(task, "train", _TOKENIZER_EXAMPLES))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Settings of training windows.

    A batch has `batch` windows of `window` tokens. Every `long_every`-th batch has text windows of `long_window`
    tokens, so that all positions are trained. Of the other windows, the fraction `skill_share` has skills, whose tasks
    are drawn with `skill_weights`. Of the text windows, the fraction `prose_share` has docstrings, and the rest has
    code.
    """

    batch: int
    window: int
    long_window: int
    long_every: int
    skill_share: float
    skill_weights: Mapping[str, float]
    prose_share: float

    def tokens(self, steps: int) -> int:
        """Return the number of tokens in `steps` batches, including padding."""
        long = steps // self.long_every
        return self.batch * (long * self.long_window + (steps - long) * self.window)


class Windows(Dataset[dict[str, torch.Tensor]]):
    """`count` training windows, each with `input_ids` and `labels`, both `(window,)`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, mixture: Mixture, seed: int, count: int) -> None:
        self.tokenizer = tokenizer
        self.mixture = mixture
        self.seed = seed
        self.count = count
        self.streams = {kind: self._stream(kind) for kind in python_stdlib.KINDS}

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        random = Random(f"window/{self.seed}/{index}")
        mixture = self.mixture
        if index // mixture.batch % mixture.long_every == mixture.long_every - 1:
            tokens, labels = self._text(random, mixture.long_window)
        elif random.random() < mixture.skill_share:
            tokens, labels = self._skills(random, mixture.window)
        else:
            tokens, labels = self._text(random, mixture.window)
        return {"input_ids": torch.tensor(tokens), "labels": torch.tensor(labels)}

    def _stream(self, kind: str) -> list[int]:
        """Tokenize all training documents of one kind, each followed by the end token."""
        texts = [document.text for document in python_stdlib.read_documents("train", kind)]
        encodings = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return list(chain.from_iterable([*tokens, self.tokenizer.eos_token_id] for tokens in encodings))

    def _text(self, random: Random, window: int) -> tuple[list[int], list[int]]:
        stream = self.streams["prose" if random.random() < self.mixture.prose_share else "code"]
        start = random.randrange(len(stream) - window)
        tokens = [self.tokenizer.bos_token_id, *stream[start : start + window - 1]]
        return tokens, tokens

    def _skills(self, random: Random, window: int) -> tuple[list[int], list[int]]:
        """Pack as many complete examples as fit, each between end tokens, and pad the rest."""
        end = self.tokenizer.eos_token_id
        tokens, labels = [end], [_IGNORED]
        while True:
            [task] = random.choices(*zip(*self.mixture.skill_weights.items(), strict=True))
            example = skills.draw_example(task, "train", random)
            prompt, answer = self.tokenizer(
                [example.prompt, example.answer], add_special_tokens=False, return_attention_mask=False
            )["input_ids"]
            if len(tokens) + len(prompt) + len(answer) + 1 > window:
                break
            tokens += [*prompt, *answer, end]
            labels += [_IGNORED] * len(prompt) + [*answer, end]
        padding = window - len(tokens)
        return tokens + [self.tokenizer.pad_token_id] * padding, labels + [_IGNORED] * padding
