"""Beginnings: the first tokens of one window per document, with the losses of the whole window."""

import pytest

from layerwise.data.demo.corpus import demo_corpus
from layerwise.measure.interventions.racing import cut_beginnings
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, tokenize
from layerwise.stack import Stack, load


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load("demo")


@pytest.fixture(scope="module")
def reading(stack: Stack) -> EvalData:
    return tokenize(stack, demo_corpus(texts=20, questions=8), length=64)


def test_every_document_has_one_short_window(reading: EvalData) -> None:
    short, whole = cut_beginnings(reading, 24)
    assert short.documents == reading.documents == len(short.windows)
    texts = [window for window in short.windows if window.task == "stdlib"]
    assert max(window.scored for window in texts) == 24
    assert any(window.document.endswith(", windows of 24") for window in texts)
    assert piece_lengths(short).keys() == whole.keys()
    assert sum(whole.values()) == reading.tokens


def test_answers_stay_whole_and_keep_their_names(reading: EvalData) -> None:
    short, _ = cut_beginnings(reading, 2)
    before = {window for window in reading.windows if window.task != "stdlib"}
    assert before == {window for window in short.windows if window.task != "stdlib"}


def test_the_window_is_drawn_from_the_seed(reading: EvalData) -> None:
    drawn = [[window.index for window in cut_beginnings(reading, 24, seed)[0].windows] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert max(drawn[0]) > 0
