"""The forecast of a diagnosis: a few interventions, of layers all over the model, price all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from layerwise.experiments.diagnosis import run as works
from layerwise.measure.interventions import ablation
from layerwise.measure.interventions.intervention import Intervention
from layerwise.measure.interventions.sweep_pieces import head_in_layers
from layerwise.stack import load
from train.tiny_models import tiny_llama

CLEAN, OF_A_LAYER = 3.0, 0.5


@pytest.mark.parametrize("seconds", [0.0, 1e3])
def test_interventions_whose_price_is_the_layers_behind_them_are_forecast_exactly(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted clock: the clean pass takes `CLEAN`, and an intervention `OF_A_LAYER` a layer that it runs."""
    stack = load(tiny_llama(6))
    head = head_in_layers(stack)
    now = 0.0

    def takes(stack: Any, chosen: Sequence[Intervention], data: Any) -> None:
        nonlocal now
        now += CLEAN + sum(OF_A_LAYER * (stack.depth - each.layer + head) for each in chosen)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(works, "intervention_losses", takes)
    every = ablation.interventions(stack)
    every = [each for each in every if each.name != "neighbour_average"]  # inner layers alone have it

    def of_layer(layer: int) -> list[Intervention]:
        return [each for each in every if each.layer == layer]

    work = works._interventions_work("ablation", stack, of_layer, None, len(every))  # type: ignore[arg-type]
    real = CLEAN + sum(OF_A_LAYER * (stack.depth - each.layer + head) for each in every)
    assert work.measure(seconds).seconds == pytest.approx(real)
