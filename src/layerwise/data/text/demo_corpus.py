"""The corpus of the demo: text and skills that the demo model has not seen, on every machine with Python.

The Painters ask whether the order of layers matters more for some tasks than for others. So there are five:
`stdlib`, short excerpts of the standard library's documentation and source, scored throughout; and
`arithmetic`, `copy`, `sort` and `brackets`, generated questions scored on their answers alone. The texts are
those of the running Python, so the digest differs between Python versions; a run's manifest keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from layerwise.data.text import python_stdlib, skills
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, excerpt


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
