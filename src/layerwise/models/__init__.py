"""Architectures of our own, made known to transformers.

This is the one place where an import does something: after `import layerwise.models`, `AutoConfig`, `AutoModel` and the
`AutoModelFor...` classes open folders of `layerwise-elc` models as any other. `convert_elc` makes such a model of a
published checkpoint's tensors.
"""

from __future__ import annotations

from layerwise.data.auto_classes import register
from layerwise.models.elc import (
    VARIANTS,
    ElcConfig,
    ElcForMaskedLM,
    ElcForMultipleChoice,
    ElcForQuestionAnswering,
    ElcForSequenceClassification,
    ElcForTokenClassification,
    ElcModel,
    convert_elc,
)

__all__ = [
    "VARIANTS",
    "ElcConfig",
    "ElcForMaskedLM",
    "ElcForMultipleChoice",
    "ElcForQuestionAnswering",
    "ElcForSequenceClassification",
    "ElcForTokenClassification",
    "ElcModel",
    "convert_elc",
]

register(
    ElcConfig,
    AutoModel=ElcModel,
    AutoModelForMaskedLM=ElcForMaskedLM,
    AutoModelForSequenceClassification=ElcForSequenceClassification,
    AutoModelForTokenClassification=ElcForTokenClassification,
    AutoModelForQuestionAnswering=ElcForQuestionAnswering,
    AutoModelForMultipleChoice=ElcForMultipleChoice,
)
