"""LTG-BERT and ELC-BERT.

`import layerwise.models` registers them with transformers, so that `AutoConfig`, `AutoModel` and the `AutoModelFor...`
classes can load `layerwise-elc` models. `convert_elc` converts published checkpoints.
"""

from __future__ import annotations

from layerwise.data.auto_classes import register
from layerwise.models.elc.configuration import VARIANTS, ElcConfig
from layerwise.models.elc.convert import convert_elc
from layerwise.models.elc.encoder import ElcForMaskedLM, ElcForSequenceClassification, ElcModel

__all__ = ["VARIANTS", "ElcConfig", "ElcForMaskedLM", "ElcForSequenceClassification", "ElcModel", "convert_elc"]

register(
    ElcConfig,
    AutoModel=ElcModel,
    AutoModelForMaskedLM=ElcForMaskedLM,
    AutoModelForSequenceClassification=ElcForSequenceClassification,
)
