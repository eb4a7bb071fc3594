"""The corpus of the demo: text and skills that the demo model has not seen, on every machine with Python.

`stdlib` are short excerpts of the standard library, scored throughout; `arithmetic`, `copy`, `sort` and `brackets` are
generated questions scored on their answers. The digest differs between Python versions; a manifest keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from layerwise.data.demo import python_stdlib, skills
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division, divided
from layerwise.data.text.documents import Document, excerpt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from layerwise.data.splits import Splits

DEMO_TEXTS, DEMO_QUESTIONS = 300, 300
"""Excerpts of the standard library, and questions of each skill, that the demo is trained on."""


def demo_corpus(
    split: str = "heldout", *, texts: int = 20, characters: int = 400, questions: int = 32, seed: int = 0
) -> Corpus:
    """`texts` excerpts of at most `characters` characters, and `questions` of each skill, from `split`.

    At most one excerpt is taken of a module's documentation and one of its source, so there may be fewer than
    `texts`. The same arguments give the same corpus on machines with the same Python.

    Raises `DataError` for a split other than `train` and `heldout`.
    """
    excerpts = _excerpts(split, characters, Random(seed))
    chosen = Random(seed).sample(excerpts, min(texts, len(excerpts)))
    answer_tasks = [document for task in skills.TASKS for document in _questions(task, split, questions, seed)]
    return Corpus(f"demo-{split}", (*sorted(chosen, key=lambda each: each.id), *answer_tasks))


def demo_text_splits(tokenizer: PreTrainedTokenizerBase, seed: int = 0, *, length: int = 256) -> Splits:
    """Split the demo's text and skills: 9 of 10 training documents train, the rest select, the held-out half reports.

    Training documents are drawn from `seed`; the reported set is always `demo_corpus()`.
    """
    from layerwise.data.text.language_modelling import splits_of  # torch, which documents alone do not need

    seen = demo_corpus("train", texts=DEMO_TEXTS, questions=DEMO_QUESTIONS, seed=seed)
    train, validation = divided(seen, (0.9, 0.1), seed)
    parts = {"train": train, "validation": validation, "test": demo_corpus().documents}
    return splits_of(tokenizer, Division("demo", parts), length=length)


def _excerpts(split: str, characters: int, draw: Random) -> list[Document]:
    whole = [
        Document(f"stdlib/{kind}/{text.module}", text.text, "stdlib")
        for kind in python_stdlib.KINDS
        for text in python_stdlib.documents(split, kind)
    ]
    return [cut for cut in (excerpt(document, characters, draw) for document in whole) if cut.text.strip()]


def _questions(task: str, split: str, count: int, seed: int) -> Iterator[Document]:
    for number, example in enumerate(skills.examples(task, split, count, seed)):
        yield Document(f"{task}/{number}", example.text, task, len(example.prompt))
