"""Layers of several models in one: drawn assignments, ensembles, and plans written out as ordinary checkpoints."""

from layerwise.merge.assignment import assignments
from layerwise.merge.checkpoint import Origin, save
from layerwise.merge.ensemble import mean_logits

__all__ = ["Origin", "assignments", "mean_logits", "save"]
