"""The probe of positions: it finds what layers leave of their position, and nothing where they leave nothing."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from layerwise.measure.activations.by_position import probed
from layerwise.measure.interventions.survey import EvaluationGrid
from layerwise.stack import Stack
from measure.planted_classifiers import CLASSES, Idle, classifier, splits

QUESTIONS = EvaluationGrid(draws=8)
DEPTH = 4
IMAGES = splits(64)


class Counter(nn.Module):
    """A layer that raises one more feature than were raised before it: how many are tells where it stands."""

    def forward(self, state: Tensor) -> Tensor:
        raised = (state[:, 0, CLASSES:] > 1.0).sum(dim=1)
        state = state.clone()
        for image, count in enumerate(raised):
            state[image, 0, CLASSES + int(count)] = 5.0
        return state


def accuracy(stack: Stack) -> float:
    found = probed(stack, IMAGES.validation, IMAGES.test, IMAGES.collate, QUESTIONS.batch_size, QUESTIONS.seed)
    assert sorted(found) == list(range(DEPTH))
    assert all(answers.shape == (2, 8) for answers in found.values())
    right, asked = np.sum(list(found.values()), axis=(0, 2))
    assert asked == DEPTH * 64
    return float(right / asked)


def test_a_position_that_is_in_the_state_is_read() -> None:
    assert accuracy(classifier([Counter() for _ in range(DEPTH)])) == 1.0


def test_states_without_a_position_give_chance() -> None:
    # Of 64 images a share within .15 of a quarter: three standard deviations.
    assert abs(accuracy(classifier([Idle() for _ in range(DEPTH)])) - 1 / DEPTH) < 0.15
