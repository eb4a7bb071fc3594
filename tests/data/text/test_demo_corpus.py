from __future__ import annotations

from collections import Counter

import pytest

from layerwise.data.text import python_stdlib, skills
from layerwise.data.text.demo_corpus import demo_corpus
from layerwise.errors import DataError


def test_the_demo_asks_text_and_every_skill() -> None:
    corpus = demo_corpus(texts=10, questions=3)
    assert Counter(document.task for document in corpus.documents) == {
        "stdlib": 10,
        **dict.fromkeys(skills.TASKS, 3),
    }


def test_skills_are_scored_on_their_answers() -> None:
    corpus = demo_corpus(texts=0, questions=4)
    shown = {(document.task, document.prompt, document.answer) for document in corpus.documents}
    asked = {
        (example.task, example.prompt, example.answer)
        for task in skills.TASKS
        for example in skills.examples(task, "heldout", 4)
    }
    assert shown == asked


def test_excerpts_are_short_and_come_from_the_split() -> None:
    heldout = {
        f"stdlib/{kind}/{text.module}": text.text
        for kind in python_stdlib.KINDS
        for text in python_stdlib.documents("heldout", kind)
    }
    for document in demo_corpus(texts=20, characters=200, questions=1).documents:
        if document.task == "stdlib":
            assert document.answer_start is None
            assert len(document.text) <= 200
            assert document.text in heldout[document.id]


def test_the_demo_is_decided_by_its_arguments() -> None:
    digests = [demo_corpus(texts=5, questions=2, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(DataError, match="unknown split 'test'"):
        demo_corpus("test")
