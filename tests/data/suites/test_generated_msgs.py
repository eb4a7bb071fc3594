"""Our mixed signals: labels are what the definitions say, nothing else tells them apart, and planted learners score."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.generated_msgs import (
    LINGUISTIC,
    NAMES,
    SURFACE,
    Sizes,
    feature_spans,
    mixed_signals,
    surface_feature,
)
from layerwise.errors import DataError
from layerwise.results.vocabulary import AMBIGUOUS, CONTROLS

SIZES = Sizes(200, 40, 100)
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


def _features(name: str) -> tuple[str | None, str | None]:
    return (
        next((feature for feature in LINGUISTIC if feature in name), None),
        next((feature for feature in SURFACE if feature in name), None),
    )


def _task(name: str, seed: int = 0) -> Task:
    return mixed_signals([name], SIZES, seed=seed)[0]


def test_rows_and_the_suite_know_the_same_tasks() -> None:
    assert (*CONTROLS, *AMBIGUOUS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_what_the_definitions_say(name: str) -> None:
    task = _task(name)
    linguistic, surface = _features(name)
    assert name in (f"control {linguistic or surface}", f"ambiguous {linguistic}_{surface}")
    for split, rows in task.sets.items():
        for row in rows:
            agree = split != "test"
            if linguistic is not None:
                assert _linguistic(linguistic, row.text) == bool(row.label), row
                if surface is not None:
                    assert (_surface(surface, row.text) == bool(row.label)) is agree, row
            else:
                assert _surface(str(surface), row.text) == bool(row.label), row
            if surface is not None:
                assert surface_feature(surface, row.text) is _surface(surface, row.text)


@pytest.mark.parametrize("name", NAMES)
def test_sets_are_balanced_disjoint_and_as_long_as_asked(name: str) -> None:
    task = _task(name)
    assert [len(rows) for rows in task.sets.values()] == [200, 40, 100]
    for rows in task.sets.values():
        assert Counter(row.label for row in rows) == {0: len(rows) // 2, 1: len(rows) // 2}
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


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(NAMES))
def test_a_task_is_decided_by_its_name_and_seed(seed: int, name: str) -> None:
    small = Sizes(10, 2, 4)
    alone = mixed_signals([name], small, seed=seed)[0]
    assert alone == next(task for task in mixed_signals(None, small, seed=seed) if task.name == name)
    assert alone.digest != mixed_signals([name], small, seed=seed + 1)[0].digest


def _score(task: Task, answers: list[bool]) -> float:
    return float(matthews_corrcoef([row.label for row in task.test], answers))


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_oracle_of_structure_scores_one_and_an_oracle_of_the_surface_minus_one(name: str) -> None:
    task = _task(name)
    linguistic, surface = _features(name)
    assert _score(task, [_linguistic(str(linguistic), row.text) for row in task.test]) == 1.0
    assert _score(task, [_surface(str(surface), row.text) for row in task.test]) == -1.0


def _bag_of_words(task: Task) -> float:
    counts = CountVectorizer(token_pattern=r"(?u)\b\w+\b", binary=True)
    learner = LogisticRegression().fit(counts.fit_transform([row.text for row in task.train]), _labels(task.train))
    return _score(task, list(learner.predict(counts.transform([row.text for row in task.test]))))


def _labels(rows: tuple[Labelled, ...]) -> list[int]:
    return [row.label for row in rows]


@pytest.mark.parametrize("linguistic", LINGUISTIC)
def test_a_bag_of_words_takes_the_label_to_mean_the_word(linguistic: str) -> None:
    sizes = Sizes(1000, 2, 200)
    (task,) = mixed_signals([f"ambiguous {linguistic}_lexical_content_the"], sizes)
    assert _bag_of_words(task) < -0.8
    (surface,) = mixed_signals(["control lexical_content_the"], sizes)
    assert _bag_of_words(surface) > 0.95


@pytest.mark.parametrize("feature", LINGUISTIC)
def test_a_bag_of_words_cannot_learn_a_linguistic_feature(feature: str) -> None:
    """Nothing but structure, or what pre-training knows of new words, tells the labels apart: no length, no article."""
    (task,) = mixed_signals([f"control {feature}"], Sizes(1000, 2, 500))
    assert abs(_bag_of_words(task)) < 4 / np.sqrt(500)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="did you mean control main_verb"):
        mixed_signals(["control main_verbs"])
    with pytest.raises(DataError, match="5 train sentences were asked for; give an even number"):
        Sizes(train=5)
    with pytest.raises(DataError, match="did you mean length"):
        surface_feature("lenght", "A user slept.")


def _without(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [match.group() for match in re.finditer(r"[^\s.]+", text) if match.span() not in spans]


@pytest.mark.parametrize("feature", LINGUISTIC)
def test_what_changes_with_a_linguistic_feature_are_the_words_that_carry_it(feature: str) -> None:
    """Two sentences of the same drawings, one with the feature and one without, differ in those words and no others."""
    for seed in range(100):
        yes, no = (" ".join(LINGUISTIC[feature](Random(seed), value, seed % 2)) for value in (True, False))
        assert yes != no
        spans = [feature_spans(feature, text) for text in (yes, no)]
        assert all(spans)
        assert _without(yes, spans[0]) == _without(no, spans[1])


def test_the_words_that_carry_a_surface_feature() -> None:
    text = "At home the judge met a driver."
    for feature, words in {"lexical_content_the": ["the"], "relative_position": ["the", "a"], "length": []}.items():
        assert [text[start:end] for start, end in feature_spans(feature, text)] == words
    assert feature_spans("lexical_content_the", "A user slept.") == ()
    with pytest.raises(DataError, match="unknown feature 'word_order'"):
        feature_spans("word_order", text)


def test_both_features_of_an_attributed_task_have_words_of_their_own() -> None:
    (task,) = mixed_signals(["ambiguous main_verb_relative_position"], Sizes(20, 4, 100))
    for example in task.test:
        verbs, articles = (set(feature_spans(name, example.text)) for name in ("main_verb", "relative_position"))
        assert len(articles) == 2
        assert len(verbs) == 3, "one verb has an auxiliary"
        assert not verbs & articles
