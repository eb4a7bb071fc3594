"""Our mixed signals: labels are what the definitions say, nothing else tells them apart, and no text ever changes."""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from random import Random

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from layerwise.data.suites.classification import Task
from layerwise.data.suites.generated_msgs import (
    LINGUISTIC,
    NAMES,
    WORDS,
    Sizes,
    feature_spans,
    features_of,
    mixed_signals,
)
from layerwise.data.suites.templates import drawn, filled
from layerwise.errors import DataError
from layerwise.results.vocabulary import AMBIGUOUS, CONTROLS

SIZES = Sizes(200, 40, 100)
DIGEST = "5142cb350d11deef"
RAISING = "seemed|appeared|happened|tended|was (likely|unlikely|certain|bound|sure|due)"
CONTROL = "tried|wanted|hoped|refused|was (eager|willing|afraid|ready|happy|proud)"
ADJECTIVES = "large|small|new|young|poor|strong|quiet|famous|nice|clever|modern|serious|strange|rich|tall|good"


def _main_verb(text: str) -> bool:
    """Without the grammar: a relative clause ends where a second verb begins, else it reaches to the end."""
    verb = r"(?:was \w+ing|\w+ed|met|paid|taught|slept|left|cried)"
    noun = r"(?:the|a|this|every) \w+"
    on_subject = re.search(rf"{noun} who {verb} {noun} ({verb})", text.lower())
    on_object = re.search(rf"{noun} ({verb}) {noun} who {verb}", text.lower())
    found = on_subject or on_object
    assert found
    return found[1].endswith("ing")


def _linguistic(feature: str, text: str) -> bool:
    """The linguistic feature found by an independent rule."""
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


def _task(name: str) -> Task:
    return mixed_signals([name], SIZES)[0]


def test_the_texts_are_the_same_on_every_day() -> None:
    # Written down: runs of other days were asked these very sentences.
    found = sha256("".join(task.digest for task in mixed_signals(seed=3)).encode()).hexdigest()
    assert found.startswith(DIGEST)
    assert (*CONTROLS, *AMBIGUOUS) == NAMES
    small = Sizes(10, 2, 4)
    (alone,) = mixed_signals([NAMES[3]], small, seed=1)
    assert alone == mixed_signals(None, small, seed=1)[3]
    assert alone.digest != mixed_signals([NAMES[3]], small, seed=2)[0].digest


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_what_the_definitions_say(name: str) -> None:
    """So an oracle of structure scores 1 on an ambiguous task, and an oracle of the surface -1."""
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
    """No length and no article tells the labels of structure apart, where the test set has other words."""
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


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="did you mean control main_verb"):
        mixed_signals(["control main_verbs"])
    with pytest.raises(DataError, match="5 train sentences were asked for; give an even number"):
        Sizes(train=5)
    with pytest.raises(DataError, match="unknown feature 'word_order'"):
        feature_spans("word_order", "A user slept.")


def _without(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [match.group() for match in re.finditer(r"[^\s.]+", text) if match.span() not in spans]


@pytest.mark.parametrize("feature", LINGUISTIC)
def test_what_changes_with_a_linguistic_feature_are_the_words_that_carry_it(feature: str) -> None:
    """Two sentences of the same drawings, one with the feature and one without, differ in those words and no others."""
    template = LINGUISTIC[feature]
    for seed in range(100):
        both = (drawn(template["draws"], WORDS, Random(seed), yes=value, half=seed % 2) for value in (True, False))
        yes, no = (filled(template["texts"][words.get("c", 0)], words) for words in both)
        assert yes != no
        spans = [feature_spans(feature, text) for text in (yes, no)]
        assert all(spans)
        assert _without(yes, spans[0]) == _without(no, spans[1])


def test_the_words_that_carry_a_surface_feature() -> None:
    text = "At home the judge met a driver."
    for feature, words in {"lexical_content_the": ["the"], "relative_position": ["the", "a"], "length": []}.items():
        assert [text[start:end] for start, end in feature_spans(feature, text)] == words
    assert feature_spans("lexical_content_the", "A user slept.") == ()
