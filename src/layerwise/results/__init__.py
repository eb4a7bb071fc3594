"""Rows of measurements with their provenance, and the run directory that keeps them. Loads no torch.

rows       Loss, Score, PlanRecord, Note: the kinds of row; Rows: several of them
manifest   which model, texts, settings and machine a run is
store      the rows in SQLite: added once, never recomputed; exports in Parquet and CSV
run        the directory: created, resumed, locked, read
"""

from __future__ import annotations

from layerwise.results.exports import export
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.run import Run
from layerwise.results.selection import Rows
from layerwise.results.store import Store

__all__ = ["Loss", "Manifest", "Note", "PlanRecord", "Rows", "Run", "Score", "Store", "export"]
