"""Models with learned layer weights, wherever they keep them.

A model keeps its layer weights in a wiring that was attached to it (`layerwise train robust wiring-identity`) or in its
own architecture (ELC-BERT); both are opened alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.errors import ModelError, RunError
from layerwise.experiments.opening import quiet_transformers
from layerwise.experiments.trainings import TrainedModel, finished_models
from layerwise.measure.interventions.edge_pruning import Wired
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
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

    Raises `ModelError` for a model without layer weights.
    """
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
