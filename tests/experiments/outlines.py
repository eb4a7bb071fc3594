"""What an experiment says of itself when its model and data are open, before anything is computed."""

from __future__ import annotations

from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Experiment, Inputs
from layerwise.experiments.reporter import Silent


def outline_of(config: Experiment, inputs: Inputs | None = None) -> Outline:
    """The outline of an experiment; nothing is computed behind it."""
    outline = next(config.begin(Silent(), inputs or Inputs()))
    assert isinstance(outline, Outline)
    return outline
