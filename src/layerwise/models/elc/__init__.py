"""LTG-BERT, and ELC-BERT in the variants in which it was published: a masked language model whose layers choose what
they read.
"""

from layerwise.models.elc.configuration import ElcConfig
from layerwise.models.elc.convert import convert_elc
from layerwise.models.elc.encoder import ElcModel, ElcPreTrainedModel
from layerwise.models.elc.heads import (
    ElcForMaskedLM,
    ElcForMultipleChoice,
    ElcForQuestionAnswering,
    ElcForSequenceClassification,
    ElcForTokenClassification,
)
from layerwise.models.elc.variants import VARIANTS, ElcVariant

__all__ = [
    "VARIANTS",
    "ElcConfig",
    "ElcForMaskedLM",
    "ElcForMultipleChoice",
    "ElcForQuestionAnswering",
    "ElcForSequenceClassification",
    "ElcForTokenClassification",
    "ElcModel",
    "ElcPreTrainedModel",
    "ElcVariant",
    "convert_elc",
]
