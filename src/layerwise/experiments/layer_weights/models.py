"""Models with learned layer weights, wherever they keep them.

A model keeps its layer weights in a wiring that was attached to it (`layerwise train robust wiring-identity`) or in its
own architecture (ELC-BERT); both are opened alike.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.errors import ModelError, RunError
from layerwise.experiments.opening import quiet_transformers
from layerwise.experiments.training_runs import TrainedModel, finished_models
from layerwise.measure.interventions.edge_pruning import Wired, wired_as
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import LayerWeights
from layerwise.results.training_record import TrainingRecord
from layerwise.stack import Stack, load
from layerwise.stack.checks.checkpoint_files import CONFIG, read_config
from layerwise.train.load_trained import open_trained

ORIGIN = (
    "train some into a model with `layerwise train robust wiring-identity --model MODEL`, or give an ELC-BERT other "
    "than the variant ltg"
)
"""How a model comes by layer weights."""


@dataclass(frozen=True, slots=True)
class WeightedModel:
    """A model with learned layer weights: its arm and seed, where it lies, and its weights as a `Wired`."""

    arm: str
    seed: int | None
    folder: Path
    stack: Stack
    wired: Wired
    record: TrainingRecord | None


def has_layer_weights(folder: Path) -> bool:
    """Whether the model in `folder` has layer weights, as far as its files say."""
    if _is_elc(folder):
        return read_config(folder).get("variant") != "ltg"
    record = TrainingRecord.read(folder)
    return record is not None and record.recipe.get("variant") == "wiring"


def weighted_models(run: Path) -> dict[str, TrainedModel]:
    """The finished models with layer weights in a run, by label. Raises `RunError` where there is none."""
    models = {each.label: each for each in finished_models(run) if has_layer_weights(each.folder)}
    if not models:
        raise RunError(f"{run} holds no finished model with learned layer weights; {ORIGIN}")
    return models


def open_weighted(folder: Path, *, device: str, dtype: str) -> WeightedModel:
    """The model in `folder` with its layer weights; one without a record of a training goes by the folder's name.

    Raises `ModelError` for a model without layer weights, and where there is none.
    """
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}; {ORIGIN}")
    if not has_layer_weights(folder):
        raise ModelError(f"{folder} has no learned layer weights; {ORIGIN}")
    quiet_transformers()
    record = TrainingRecord.read(folder)
    arm, seed = (folder.name, None) if record is None else (record.arm, record.seed)
    if _is_elc(folder):
        stack = load(str(folder), device=device, dtype=dtype)
        assert isinstance(stack.model, ElcPreTrainedModel)
        return WeightedModel(arm, seed, folder, stack, ElcWiring(stack.model), record)
    trained = open_trained(folder, device=device, dtype=dtype)
    assert trained.wiring is not None, "its record names a wiring"
    return WeightedModel(arm, seed, folder, trained.stack, trained.wiring, record)


def _is_elc(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and read_config(folder).get("model_type") == "layerwise-elc"


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
