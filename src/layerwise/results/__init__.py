"""Rows of measurements, their provenance, and the run directory that stores them. Does not import torch."""

from __future__ import annotations

from layerwise.results.exports import export
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.run import Run
from layerwise.results.selection import Rows
from layerwise.results.store import Store

__all__ = ["Loss", "Manifest", "Note", "PlanRecord", "Rows", "Run", "Score", "Store", "export"]
