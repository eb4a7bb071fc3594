"""Bundled suites have frozen texts and correct pairs and labels."""

import re
from collections import Counter
from hashlib import sha256

import pytest

from layerwise.data.demo.python_stdlib import read_documents
from layerwise.data.suites.generated import PAIRS, PARADIGMS, generate_mixed_signals, generate_pairs
from layerwise.data.suites.probing import WORDS
from layerwise.results.vocabulary import AMBIGUOUS, CONTROLS

RAREST = 20
"""Minimum occurrences of a word in the standard library's prose, on which models are trained."""


def words(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+", sentence.lower())


def test_the_texts_are_frozen() -> None:
    # Frozen: earlier runs were evaluated on these sentences.
    digests = "".join(task.digest for task in generate_mixed_signals().values())
    assert sha256(digests.encode()).hexdigest().startswith("b17e6402a647ef65")
    assert (*CONTROLS, *AMBIGUOUS) == tuple(generate_mixed_signals())
    assert generate_pairs().digest.startswith("29136114a894d96f")
    assert generate_pairs(4).pairs[:4] == PARADIGMS["determiner_singular_noun"][:4]


@pytest.mark.parametrize("name", [*CONTROLS, *AMBIGUOUS])
def test_labels_are_balanced_and_follow_the_article(name: str) -> None:
    task = generate_mixed_signals()[name]
    for split, rows in task.sets.items():
        assert Counter(row.label for row in rows) == {0: len(rows) // 2, 1: len(rows) // 2}
        if name.endswith("lexical_content_the"):
            agrees = name.startswith("control") or split != "test"
            assert all((("the" in words(row.text)) == bool(row.label)) is agrees for row in rows)
    texts = [row.text for rows in task.sets.values() for row in rows]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("uid", PARADIGMS)
def test_pairs_differ_as_their_paradigm_claims(uid: str) -> None:
    pairs = PARADIGMS[uid]
    assert len({(pair.good, pair.bad) for pair in pairs}) == PAIRS
    for pair in pairs:
        good, bad = words(pair.good), words(pair.bad)
        differing = [index for index, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other]
        if pair.field == "morphology":
            assert len(differing) == 1
        else:
            assert Counter(good) == Counter(bad)
            assert differing == [differing[0], differing[0] + 1]


@pytest.mark.slow
def test_skill_words_are_frequent_in_training() -> None:
    counted = Counter(word for document in read_documents("train", "prose") for word in words(document.text))
    used = {word for pair in generate_pairs().pairs for text in (pair.good, pair.bad) for word in words(text)}
    assert used >= {form for kind in WORDS.values() for word in kind for form in word.split("/")}
    assert {word: counted[word] for word in used if counted[word] < RAREST} == {}
