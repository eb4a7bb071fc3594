"""Architectures of our own, made known to transformers.

This is the one place where an import does something: after `import layerwise.models`, `AutoConfig`, `AutoModel` and the
`AutoModelFor...` classes open folders of `layerwise-elc` models as any other. `convert_elc` makes such a model of a
published checkpoint's tensors.
"""

from __future__ import annotations

import transformers

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

transformers.AutoConfig.register(ElcConfig.model_type, ElcConfig, exist_ok=True)
for _automatic, _model in (
    (transformers.AutoModel, ElcModel),
    (transformers.AutoModelForMaskedLM, ElcForMaskedLM),
    (transformers.AutoModelForSequenceClassification, ElcForSequenceClassification),
    (transformers.AutoModelForTokenClassification, ElcForTokenClassification),
    (transformers.AutoModelForQuestionAnswering, ElcForQuestionAnswering),
    (transformers.AutoModelForMultipleChoice, ElcForMultipleChoice),
):
    _automatic.register(ElcConfig, _model, exist_ok=True)
