"""Sets of sentences whose similarities are compared.

Sentences of one document are more alike than those of several, so a set holds both kinds: `DOCUMENTS` documents, drawn
from the seed, or more where they are short, are a cluster, and their sentences in turn, one of each, are cut into sets
of `SIZE`. What is left at the end of a cluster is not read. No document is in two clusters, so a cluster is resampled
as one document is elsewhere; it is called after its first document.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import paragraphs, sentences
from layerwise.data.text.tokens import Window
from layerwise.errors import DataError

SIZE = 32
"""Sentences of a set: 496 pairs."""

DOCUMENTS = 4
FEWEST_CLUSTERS = 8
"""Documents are cut into runs of a few sentences where they make fewer clusters than this."""

FEWEST_WORDS = 5
"""Words of a sentence, at least: headings and exclamations say little by themselves."""

Set = tuple[str, str, int, tuple[str, ...]]
"""A cluster and its task, which of its sets it is, and the sentences that are compared with each other."""


def sentence_windows(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, length: int, limit: int | None, seed: int
) -> tuple[Window, ...]:
    """The sentences of a corpus, set after set, each a window that is scored once; one longer than `length` is cut.

    At most `limit` sentences are read, one set of each cluster, then a second one, and so on. Raises `DataError` where
    the text, or the limit, is less than one set.
    """
    sets = [one for turn in zip_longest(*_clusters(corpus, seed)) for one in turn if one is not None]
    if not sets or (limit is not None and limit < SIZE):
        given = f"{limit} were asked for" if sets else f"{corpus.name} has fewer"
        wanted = f"--tokens {SIZE} or more, which counts sentences here" if sets else "a longer text"
        raise DataError(
            f"similarities are compared in sets of {SIZE} sentences of {FEWEST_WORDS} words or more, and {given}: give "
            + wanted
        )
    kept = sets if limit is None else sets[: limit // SIZE]
    ids = iter(
        tokenizer([text for *_, texts in kept for text in texts], truncation=True, max_length=length)["input_ids"]
    )
    return tuple(
        Window(cluster, task, SIZE * index + position, tuple(next(ids)), 0, 1)
        for cluster, task, index, _ in kept
        for position in range(SIZE)
    )


def _clusters(corpus: Corpus, seed: int) -> Iterator[list[Set]]:
    """The sets of every cluster, by task."""
    by_task: dict[str, list[tuple[str, Sequence[str]]]] = defaultdict(list)
    for document in corpus.documents:
        by_task[document.task].append((document.id, _sentences(document)))
    for task, texts in by_task.items():
        if len(texts) < FEWEST_CLUSTERS * DOCUMENTS:
            texts = [
                (f"{name}, from sentence {start}", every[start : start + SIZE // DOCUMENTS])
                for name, every in texts
                for start in range(0, len(every), SIZE // DOCUMENTS)
            ]
        order = random.Random(f"{seed}/{task}").sample(texts, len(texts))
        members: list[tuple[str, Sequence[str]]] = []
        for each in order:
            members.append(each)
            if len(members) >= DOCUMENTS and sum(len(every) for _, every in members) >= SIZE:
                mixed = [text for turn in zip_longest(*(every for _, every in members)) for text in turn if text]
                cut = (tuple(mixed[start : start + SIZE]) for start in range(0, len(mixed) - SIZE + 1, SIZE))
                yield [(members[0][0], task, index, one) for index, one in enumerate(cut)]
                members = []


def _sentences(document: Document) -> Sequence[str]:
    """The sentences of a document with words enough."""
    every = (sentence for block in paragraphs(document.text) for sentence in sentences(block))
    return [text for text in every if sum(any(map(str.isalnum, word)) for word in text.split()) >= FEWEST_WORDS]
