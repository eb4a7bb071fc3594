"""Words: a text in pieces that byte-level tokenizers encode one by one, so that each is encoded once.

Byte-level tokenizers end a token before every space that stands between two other characters: none reads over it. So
the ids of a text are those of its words one after another, each with the space before it, and a text of 100 million
words asks for about a million of them. Only spaces between visible characters of ASCII count, about which every
definition of white space agrees; other texts are longer words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int32]
Counts = NDArray[np.int64]

_BETWEEN_WORDS = re.compile(r" (?=[!-~])(?<=[!-~] )")
_BATCH = 4_096
_MOST_WORDS = 2**20
"""Words whose ids are kept; a text with more of them begins anew."""


def split_words(text: str) -> list[str]:
    """The words of a text; joined by single spaces they are the text.

    >>> split_words("The dog  ran.\\nHe hid!")
    ['The', 'dog  ran.\\nHe', 'hid!']
    """
    return _BETWEEN_WORDS.split(text)


def counted_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs in the texts; all but the first of a text with the space before it."""
    first, others = Counter[str](), Counter[str]()
    for text in texts:
        word, *rest = split_words(text)
        first[word] += 1
        others.update(rest)
    for word, count in others.items():
        first[f" {word}"] += count
    return first


def encodes_words(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the ids of every text are those of its words, by what the tokenizer says of itself."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    parts = json.loads(backend.to_str())
    cutter = parts["pre_tokenizer"] or {"type": None}
    first = cutter["pretokenizers"][0] if cutter["type"] == "Sequence" else cutter
    return (
        first["type"] == "ByteLevel"
        and first.get("use_regex", True)
        and parts["normalizer"] is None
        and not parts["model"].get("dropout")
        and all(each["special"] for each in parts["added_tokens"])
    )


class TextEncoder:
    """Encodes texts without special tokens; what only looks like one is text.

    The words of byte-level tokenizers are encoded once each; other tokenizers encode every text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._by_word = encodes_words(tokenizer)
        if self._by_word:
            # A copy, which reads special tokens as text; transformers' own call takes ten times as long a word.
            self._words_alone = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
            self._words_alone.encode_special_tokens = True
            self._words_alone.no_truncation()
            self._words_alone.no_padding()
        self._forget()

    def __call__(self, texts: Sequence[str]) -> tuple[Ids, Counts]:
        """The ids of all texts one after another (tokens,), and how many each has (texts,)."""
        if not self._by_word:
            return self._encoded(texts)
        if len(self._words) > _MOST_WORDS:
            self._forget()
        numbers: list[int] = []
        counts = np.empty(len(texts), dtype=np.int64)
        for row, text in enumerate(texts):
            word, *rest = split_words(text)
            numbers.append(self._first[word])
            numbers += map(self._others.__getitem__, rest)
            counts[row] = 1 + len(rest)
        self._learn()
        flat = np.array(numbers, dtype=np.int64)
        lengths = np.diff(self._ends)[flat]
        ids = self._ids[_ranges(self._ends[flat], lengths)]
        owners = np.repeat(np.arange(len(texts)), counts)
        return ids, np.bincount(owners, weights=lengths, minlength=len(texts)).astype(np.int64)

    def _forget(self) -> None:
        """Begin with no word."""
        self._words: list[str] = []
        self._first, self._others = _Numbers(self._words, ""), _Numbers(self._words, " ")
        self._ids, self._ends = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)

    def _learn(self) -> None:
        """Encode the words that have no ids yet."""
        new = self._words[len(self._ends) - 1 :]
        if new:
            ids, lengths = self._encoded(new)
            self._ids = np.concatenate([self._ids, ids])
            self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum(lengths)])

    def _encoded(self, texts: Sequence[str]) -> tuple[Ids, Counts]:
        rows: list[list[int]] = []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            if self._by_word:
                rows += (each.ids for each in self._words_alone.encode_batch_fast(batch, add_special_tokens=False))
            else:
                options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
                rows += self._tokenizer(batch, **options)["input_ids"]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        flat = np.fromiter((number for row in rows for number in row), dtype=np.int32, count=int(lengths.sum()))
        return flat, lengths


class _Numbers(dict[str, int]):
    """The number of every word that was asked for; a new one is added to `words` behind what stands `before` it."""

    def __init__(self, words: list[str], before: str) -> None:
        super().__init__()
        self._words = words
        self._before = before

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self._words)
        self._words.append(self._before + word)
        return number


def _ranges(starts: Counts, lengths: Counts) -> Counts:
    """The numbers from each start on, as many as its length says, one range after another.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return np.asarray(np.repeat(starts, lengths) + within, dtype=np.int64)
