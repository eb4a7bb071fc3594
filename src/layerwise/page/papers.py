"""The founding papers whose statements findings compare with."""

from __future__ import annotations

from layerwise.page.finding import Paper

PAINTERS = Paper("Transformer Layers as Painters", "Sun et al., AAAI 2025, arXiv 2407.09298")
LAYERSHUFFLE = Paper(
    "LayerShuffle: Enhancing Robustness in Vision Transformers by Randomizing Layer Execution Order",
    "Freiberger et al., 2024, arXiv 2407.04513",
)
