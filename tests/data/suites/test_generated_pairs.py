import re
from collections import Counter

import pytest

from layerwise.data.demo.python_stdlib import documents
from layerwise.data.suites.generated_pairs import PAIRS, PARADIGMS, generated_pairs
from layerwise.data.suites.probing import WORDS

RAREST = 20
"""Minimum occurrences of a word in the standard library's prose, on which models are trained."""


def words(sentence: str) -> list[str]:
    return re.findall(r"[a-z]+", sentence.lower())


@pytest.mark.parametrize("uid", PARADIGMS)
def test_a_pair_differs_as_its_paradigm_claims(uid: str) -> None:
    pairs = PARADIGMS[uid]
    assert len({(pair.good, pair.bad) for pair in pairs}) == PAIRS
    for pair in pairs:
        good, bad = words(pair.good), words(pair.bad)
        differing = [index for index, (one, other) in enumerate(zip(good, bad, strict=True)) if one != other]
        if pair.field == "morphology":
            assert len(differing) == 1
        else:
            assert Counter(good) == Counter(bad)
            assert len(differing) == 2
            assert differing[1] == differing[0] + 1
        assert pair.good[0].isupper()
        assert pair.good.endswith(".")
        assert (pair.paradigm, pair.term, pair.field) == (uid, pairs[0].term, pairs[0].field)


def test_the_pairs_are_the_same_on_every_day() -> None:
    # Frozen: earlier runs were evaluated on these sentences.
    assert generated_pairs().digest.startswith("29136114a894d96f")
    assert generated_pairs(4).pairs[:5] == (
        *PARADIGMS["determiner_singular_noun"][:4],
        next(iter(PARADIGMS["determiner_plural_noun"])),
    )


def test_the_good_sentence_is_the_grammatical_one() -> None:
    number = {noun: index for pair in WORDS["noun"] for index, noun in enumerate(pair.split("/"))}
    for pair in PARADIGMS["copula_across_attractor"][:100]:
        said = words(pair.good)
        assert said[5] == ("is", "are")[number[said[1]]]
        assert number[said[4]] != number[said[1]]
    for uid in ("article_noun", "article_adjective"):
        for pair in PARADIGMS[uid][:100]:
            said = words(pair.good)
            article = next(index for index, word in enumerate(said) if word in ("a", "an"))
            assert (said[article] == "an") == (said[article + 1][0] in "aeiou")
    for pair in PARADIGMS["subject_does_do"][:100]:
        said = words(pair.good)
        assert said[2] == ("does", "do")[number[said[1]]]
    for pair in PARADIGMS["determiner_plural_noun"][:100]:
        said = words(pair.good)
        index = next(index for index, word in enumerate(said) if word in ("these", "all", "several"))
        assert number[said[index + 1]] == 1


@pytest.mark.slow
def test_every_word_is_frequent_where_models_learn() -> None:
    counted = Counter(word for document in documents("train", "prose") for word in words(document.text))
    used = {word for pair in generated_pairs().pairs for text in (pair.good, pair.bad) for word in words(text)}
    assert used >= {form for kind in WORDS.values() for word in kind for form in word.split("/")}
    assert {word: counted[word] for word in used if counted[word] < RAREST} == {}
