"""Findings of a playground follow from corrected p-values and intervals."""

from typing import Any

import pytest

from layerwise import Corpus
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.results.rows import Score
from layerwise.studies.play.findings import state_difference, state_layers
from studies.play.playing import demo

DETECTED, UNDETECTED = {"p": 0.001, "p_adjusted": 0.002}, {"p": 0.02, "p_adjusted": 0.2}


def effect(value: float, half: float, **more: Any) -> Score:
    return Score("effect", "delta_nll", value, value - half, value + half, **more)


LARGE = effect(5.0, 0.5, **DETECTED)
LAYERS: list[tuple[list[Score], str]] = [
    (
        [LARGE, effect(0.02, 0.01, **UNDETECTED), effect(1.0, 0.1, **DETECTED), effect(0.0, 0.01, **UNDETECTED)],
        "Layers 1 and 3 make no detected difference when skipped; layer 0 costs most: +5.00 [+4.50, +5.50] nats/token.",
    ),
    (
        [LARGE, effect(0.02, 0.01, **UNDETECTED), effect(4.8, 0.1, **DETECTED)],
        "Layer 1 makes no detected difference when skipped; layer 0 has the highest estimate: +5.00 [+4.50, +5.50] "
        "nats/token.",
    ),
    (
        [effect(0.02, 0.01, **UNDETECTED), effect(0.1, 0.2, **UNDETECTED)],
        "No layer makes a detected difference when skipped; layer 1 has the highest estimate: +0.100 [−0.100, +0.300] "
        "nats/token.",
    ),
    (
        [LARGE, effect(1.0, 0.1, **DETECTED)],
        "Layer 1 has the lowest estimate when skipped: +1.00 [+0.90, +1.10] nats/token; layer 0 costs most: +5.00 "
        "[+4.50, +5.50] nats/token.",
    ),
    (
        [LARGE, effect(-0.2, 0.1, **DETECTED), effect(0.0, 0.01, **UNDETECTED)],
        "Skipping layer 1 reduces the loss: −0.200 [−0.300, −0.100] nats/token; layer 0 costs most: +5.00 "
        "[+4.50, +5.50] nats/token.",
    ),
    (
        [LARGE, *(effect(0.02, 0.01, **UNDETECTED) for _ in range(9))],
        "9 of 10 layers make no detected difference when skipped; layer 0 costs most: +5.00 [+4.50, +5.50] nats/token.",
    ),
]


@pytest.mark.parametrize(("scores", "expected"), LAYERS)
def test_layers_are_named_as_far_as_the_data_show(scores: list[Score], expected: str) -> None:
    """A layer costs most only if it is detected and its interval overlaps no other; intervals alone detect nothing."""
    assert state_layers(dict(enumerate(scores)), is_final=True) == expected


def test_interim_estimates_are_no_findings() -> None:
    """Before all of the text has been read, intervals do not hold for the best of several looks."""
    finding = state_layers({0: LARGE, 1: effect(0.02, 0.01, **DETECTED)}, is_final=False)
    assert finding == (
        "So far, layer 1 has the lowest estimate when skipped: +0.0200 [+0.0100, +0.0300] nats/token; layer 0 has the "
        "highest: +5.00 [+4.50, +5.50] nats/token."
    )


def test_a_difference_is_concluded_only_from_its_test() -> None:
    data = tokenize(demo(), Corpus.of(["the cat sat on the mat"] * 3))
    tokens = {"tokens": 1000, "mde": 0.3}
    assert state_difference(effect(0.0, 0.0), data) == "The plan computes the same losses."
    assert state_difference(effect(0.2, 0.1, p=0.01, **tokens), data) == (
        "The plan increases the loss: +0.200 [+0.100, +0.300] nats/token."
    )
    assert state_difference(effect(-0.2, 0.1, p=0.01, **tokens), data).startswith("The plan reduces the loss: −0.200")
    assert state_difference(effect(0.1, 0.2, p=0.3, **tokens), data) == (
        "Inconclusive: +0.100 [−0.100, +0.300] nats/token; about 9,000 tokens would be needed to detect this "
        "difference."
    )
    assert "too short to tell: an interval needs 8 paragraphs" in state_difference(
        Score("effect", "delta_nll", 0.1), data
    )
