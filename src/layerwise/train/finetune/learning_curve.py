"""The learning curve of a fine-tuning: the score on its selection set by step, and the seconds of a step.

The steps at which it is taken stand evenly in the logarithm, from the first to the last: that is how costs are
compared (`layerwise.train.cost.frontier`), and most is learned early. The ends of epochs, at which the selection
set is answered in any case, are points too. An evaluation draws nothing at random and moves no weight, so the training
is the same bit for bit with and without a curve.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import TrainerCallback

from layerwise.stack.inputs import evaluating
from layerwise.train.monitoring.pace import Pace, figures_of


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The score on the selection set after so many steps."""

    step: int
    score: float


def curve_steps(steps: int, evals: int) -> frozenset[int]:
    """At most `evals` of `steps` steps, evenly in the logarithm, the first and the last among them.

    >>> sorted(curve_steps(64, 4))
    [1, 4, 16, 64]
    """
    return frozenset(int(step) for step in np.geomspace(1, max(steps, 1), evals).round())


class SelectionCurve(Pace):
    """Takes the curve of a training: `score` gives that of the model, in evaluation mode, or `None` if not finite."""

    def __init__(self, evals: int, metric: str, score: Callable[[Any], float | None]) -> None:
        super().__init__()
        self.evals = evals
        self.metric = metric
        self.score = score
        self.at: frozenset[int] = frozenset()
        self.points: dict[int, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Choose the steps."""
        super().on_train_begin(args, state, control, **kwargs)
        self.at = curve_steps(state.max_steps, self.evals)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time, and a point where one is due."""
        super().on_step_end(args, state, control, **kwargs)
        if state.global_step in self.at:
            with evaluating(kwargs["model"]):
                score = self.score(kwargs["model"])
            if score is not None:
                self.points[state.global_step] = score
            self.before = time.perf_counter()  # what was just computed is no part of the next step

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the pace beside what was logged."""
        state.log_history[-1].update(self.notes(args, state))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The end of an epoch is a point."""
        super().on_evaluate(args, state, control, **kwargs)
        self.points[state.global_step] = float(kwargs["metrics"][f"eval_{self.metric}"])


def learning_curve(
    followed: Sequence[TrainerCallback], history: Sequence[dict[str, Any]]
) -> tuple[tuple[CurvePoint, ...], float | None]:
    """The curve that was taken and the median seconds of a step; nothing where none was asked for."""
    for each in followed:
        if isinstance(each, SelectionCurve):
            points = tuple(CurvePoint(step, score) for step, score in sorted(each.points.items()))
            return points, figures_of(history).get("step_seconds")
    return (), None
