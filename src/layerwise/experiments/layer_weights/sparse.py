"""A sparse model, written: the edges that are left after a cut, alone or with the model that reads by them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from layerwise.errors import ModelError
from layerwise.experiments.layer_weights.models import WeightedModel, open_weighted
from layerwise.measure.interventions.edge_pruning import wired_as
from layerwise.plan import LayerWeights

EDGES = "edges.json"
"""The edges that are left, beside the weights of a model that was cut."""


def write_sparse(model: WeightedModel, edges: LayerWeights, output: Path) -> str:
    """Write the edges to a `.json` file, or the model with these edges alone to a folder; returns what was written.

    The folder is opened again and compared. Raises `ModelError` where it holds other edges.
    """
    if output.suffix == ".json":
        output.write_text(edges.to_json())
        return f"{output}: {len(edges)} edges"
    module: Any = model.stack.model
    ignored = shutil.ignore_patterns("*.safetensors*", "survey-*")
    shutil.copytree(model.folder, output, dirs_exist_ok=True, ignore=ignored)
    with wired_as(model.wired, edges):
        module.save_pretrained(output)
    (output / EDGES).write_text(edges.to_json())
    dtype = str(model.stack.dtype).removeprefix("torch.")
    again = open_weighted(output, device=model.stack.device.type, dtype=dtype)
    if set(again.wired.edges()) != set(edges):
        raise ModelError(f"{output} does not hold the edges that were written to it; write them elsewhere")
    return f"{output}: {len(edges)} edges, {edges.live_states()} live states; opened again and compared"
