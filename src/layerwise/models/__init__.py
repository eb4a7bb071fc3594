"""Architectures of our own, made known to transformers.

This is the one place where an import does something: after `import layerwise.models`, `AutoConfig`, `AutoModel` and the
`AutoModelFor...` classes open folders of `layerwise-elc` models as any other. `convert_elc` makes such a model of a
published checkpoint's tensors.
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
