"""Models of a run whose layer weights are held or added in fine-tuning, beside those that learn all weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.measure.contrasts.variants import ADDED, KEPT
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.wiring import rewired
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import BACKBONE, LAYER_WEIGHTS
from layerwise.runner.finetuned_tasks import FineTunedModel

HELD = (".scalars",)
"""The ending of the parameters that are layer weights."""

REWIRED = "rewired"
"""The folder of models that were given layer weights after their pretraining."""


def hold_frozen(model: FineTunedModel) -> FineTunedModel:
    """Hold the layer weights of a model in fine-tuning, if its pretraining held them."""
    record = TrainingRecord.read(Path(model.location))
    settings = {} if record is None else record.recipe.get("pretraining", {})
    return replace(model, frozen=HELD) if settings.get("frozen_layer_weights") else model


def with_weight_conditions(
    models: Sequence[FineTunedModel], names: Collection[str], run: Path
) -> Iterator[FineTunedModel]:
    """Yield the models, and those of `elc` with weights `held` and of `ltg` with weights `added`, as named."""
    for model in models:
        yield model
        if model.arm == LAYER_WEIGHTS and "held" in names:
            yield replace(model, arm=KEPT, frozen=HELD)
        if model.arm == BACKBONE and "added" in names:
            yield replace(model, arm=ADDED, location=_add_weights(Path(model.location), run, model.seed))


def _add_weights(model: Path, run: Path, seed: int) -> Path:
    folder = run / REWIRED / f"{BACKBONE}-{seed}"
    if not (folder / "tokenizer.json").is_file():
        rewired(ElcForMaskedLM.from_pretrained(model)).save_pretrained(folder)
        load_tokenizer(model).save_pretrained(folder)
    return folder
