"""Generated suites: labels follow the definitions, nothing else predicts them, and texts are frozen."""

import re
from collections import Counter
from hashlib import sha256

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from layerwise.data.demo.python_stdlib import documents
from layerwise.data.suites.classification import ClassificationTask
from layerwise.data.suites.generated_msgs import LINGUISTIC, NAMES, Sizes, feature_spans, features_of, mixed_signals
from layerwise.data.suites.generated_pairs import PAIRS, PARADIGMS, generated_pairs
from layerwise.data.suites.probing import WORDS
from layerwise.errors import DataError
from layerwise.results.vocabulary import AMBIGUOUS, CONTROLS

SIZES = Sizes(200, 40, 100)
DIGEST = "b17e6402a647ef65"
RAISING = "seemed|appeared|happened|tended|was (likely|unlikely|certain|bound|sure|due)"
CONTROL = "tried|wanted|hoped|refused|was (eager|willing|afraid|ready|happy|proud)"
ADJECTIVES = "large|small|new|young|poor|strong|quiet|famous|nice|clever|modern|serious|strange|rich|tall|good"


def _main_verb(text: str) -> bool:
    verb = r"(?:was \w+ing|\w+ed|met|paid|taught|slept|left|cried)"
    noun = r"(?:the|a|this|every) \w+"
    on_subject = re.search(rf"{noun} who {verb} {noun} ({verb})", text.lower())
    on_object = re.search(rf"{noun} ({verb}) {noun} who {verb}", text.lower())
    found = on_subject or on_object
    assert found
    return found[1].endswith("ing")


def _linguistic(feature: str, text: str) -> bool:
    if feature == "main_verb":
        return _main_verb(text)
    if feature == "control_raising":
        control, raising = (re.search(rf"\b({words}) to\b", text) for words in (CONTROL, RAISING))
        assert (control is None) != (raising is None)
        return control is not None
    return re.search(rf"\b({ADJECTIVES})\b", text) is not None


def _surface(feature: str, text: str) -> bool:
    words = re.findall(r"\w+", text.lower())
    if feature == "lexical_content_the":
        return "the" in words
    if feature == "length":
        return len(words) > 10
    assert Counter(words)["the"] == Counter(words)["a"] == 1
    return words.index("the") < words.index("a")


def _task(name: str) -> ClassificationTask:
    return mixed_signals([name], SIZES)[0]


def test_the_texts_are_the_same_on_every_day() -> None:
    # Frozen: earlier runs were evaluated on these sentences.
    every = mixed_signals()
    assert sha256("".join(task.digest for task in every).encode()).hexdigest().startswith(DIGEST)
    assert (*CONTROLS, *AMBIGUOUS) == NAMES == tuple(task.name for task in every)
    (alone,) = mixed_signals([NAMES[3]], Sizes(10, 2, 4))
    assert [alone.train, alone.selection, alone.test] == [
        every[3].train[:10],
        every[3].selection[:2],
        every[3].test[:4],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_what_the_definitions_say(name: str) -> None:
    task = _task(name)
    linguistic, surface = features_of(name)
    assert name in (f"control {linguistic or surface}", f"ambiguous {linguistic}_{surface}")
    assert [len(rows) for rows in task.sets.values()] == [200, 40, 100]
    for split, rows in task.sets.items():
        assert Counter(row.label for row in rows) == {0: len(rows) // 2, 1: len(rows) // 2}
        for row in rows:
            right = bool(row.label)
            if linguistic is not None:
                assert _linguistic(linguistic, row.text) == right, row
            if surface is not None:
                agrees = linguistic is None or split != "test"
                assert (_surface(surface, row.text) == right) is agrees, row
    texts = [row.text for rows in task.sets.values() for row in rows]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("feature", LINGUISTIC)
def test_the_words_that_carry_a_feature_are_new_in_the_test_set(feature: str) -> None:
    task = _task(f"control {feature}")
    carrying = {
        "main_verb": r"\b(\w+ing)\b",
        "control_raising": rf"\b({CONTROL}|{RAISING}) to\b",
        "syntactic_category": rf"\b({ADJECTIVES})\b",
    }[feature]
    taught, asked = (
        {found[1] for row in rows if (found := re.search(carrying, row.text))} for rows in (task.train, task.test)
    )
    assert len(taught) > 4
    assert len(asked) > 4
    assert not taught & asked


@pytest.mark.parametrize("linguistic", LINGUISTIC)
def test_a_bag_of_words_learns_the_word_and_no_structure(linguistic: str) -> None:
    sizes = Sizes(1000, 2, 500)
    structure, both = mixed_signals([f"control {linguistic}", f"ambiguous {linguistic}_lexical_content_the"], sizes)
    scores = []
    for task in (structure, both):
        counts = CountVectorizer(token_pattern=r"(?u)\b\w+\b", binary=True)
        texts, asked = ([row.text for row in rows] for rows in (task.train, task.test))
        learner = LogisticRegression().fit(counts.fit_transform(texts), [row.label for row in task.train])
        answers = learner.predict(counts.transform(asked))
        scores.append(matthews_corrcoef([row.label for row in task.test], answers))
    assert abs(scores[0]) < 4 / np.sqrt(500)
    assert scores[1] < -0.8


def test_unknown_names_are_refused() -> None:
    with pytest.raises(DataError, match="did you mean control main_verb"):
        mixed_signals(["control main_verbs"])
    with pytest.raises(DataError, match="unknown feature 'word_order'"):
        feature_spans("word_order", "A user slept.")


def test_the_words_that_carry_a_linguistic_feature() -> None:
    for feature, text, words in (
        ("main_verb", "A user who helped the doctor was sleeping.", ["helped", "was", "sleeping"]),
        ("main_verb", "The judge paid a worker who was crying.", ["paid", "was", "crying"]),
        ("control_raising", "At home the student tried to read a book.", ["tried"]),
        ("control_raising", "The student was likely to read a book at home.", ["was", "likely"]),
        ("syntactic_category", "The famous driver sold this house.", ["famous"]),
        ("syntactic_category", "Every driver sold this school book.", ["school"]),
    ):
        assert [text[start:end] for start, end in feature_spans(feature, text)] == words
    for task in mixed_signals([f"control {feature}" for feature in LINGUISTIC]):
        feature = task.name.removeprefix("control ")
        assert all(feature_spans(feature, example.text) for example in (*task.train, *task.test))


def test_the_words_that_carry_a_surface_feature() -> None:
    text = "At home the judge met a driver."
    for feature, words in {"lexical_content_the": ["the"], "relative_position": ["the", "a"], "length": []}.items():
        assert [text[start:end] for start, end in feature_spans(feature, text)] == words
    assert feature_spans("lexical_content_the", "A user slept.") == ()


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
