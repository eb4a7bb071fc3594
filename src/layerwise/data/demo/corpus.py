"""The demo corpus: excerpts of the standard library, and generated questions.

All tokens of the task `stdlib` are scored. Of `arithmetic`, `copy`, `sort` and `brackets`, only the answers are scored.
The digest depends on the Python version.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from layerwise.data.demo import python_stdlib, skills
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division, divide_corpus
from layerwise.data.text.documents import Document, format_excerpt
from layerwise.data.text.language_modeling import build_text_splits

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from layerwise.data.splits import Splits

DEMO_TEXTS, DEMO_QUESTIONS = 300, 300
"""Numbers of excerpts, and of questions per skill, on which the demo model was trained."""


def demo_corpus(
    split: str = "heldout", *, texts: int = 20, characters: int = 400, questions: int = 32, seed: int = 0
) -> Corpus:
    """Build the demo corpus, which needs no files.

    Args:
        split: `heldout`, which the demo model has not seen, or `train`.
        texts: Number of excerpts; at most one from a module's docstrings and one from its source.
        characters: Maximum characters of an excerpt.
        questions: Number of questions per skill.
        seed: Seed of the excerpts and questions.

    Raises:
        DataError: If the split is unknown.

    Example:
        >>> len(demo_corpus(texts=2, questions=1).documents)
        6
    """
    excerpts = _excerpts(split, characters, Random(seed))
    sample = Random(seed).sample(excerpts, min(texts, len(excerpts)))
    answer_tasks = [document for task in skills.TASKS for document in _questions(task, split, questions, seed)]
    return Corpus(f"demo-{split}", (*sorted(sample, key=lambda each: each.id), *answer_tasks))


def build_demo_splits(tokenizer: PreTrainedTokenizerBase, seed: int = 0, *, length: int = 256) -> Splits:
    """Build splits from the demo corpus. A tenth of its training documents are the validation split."""
    seen = demo_corpus("train", texts=DEMO_TEXTS, questions=DEMO_QUESTIONS, seed=seed)
    train, validation = divide_corpus(seen, (0.9, 0.1), seed)
    parts = {"train": train, "validation": validation, "test": demo_corpus().documents}
    return build_text_splits(tokenizer, Division("demo", parts), length=length)


def _excerpts(split: str, characters: int, draw: Random) -> list[Document]:
    documents = [
        Document(f"stdlib/{kind}/{text.module}", text.text, "stdlib")
        for kind in python_stdlib.KINDS
        for text in python_stdlib.read_documents(split, kind)
    ]
    return [cut for cut in (format_excerpt(document, characters, draw) for document in documents) if cut.text.strip()]


def _questions(task: str, split: str, count: int, seed: int) -> Iterator[Document]:
    for number, example in enumerate(skills.draw_examples(task, split, count, seed)):
        yield Document(f"{task}/{number}", example.text, task, len(example.prompt))
