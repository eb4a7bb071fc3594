"""Tidy rows with provenance: what every measurement returns, and the run folder that keeps it.

    rows       Loss, Score, PlanRecord, Note: the kinds of row
    manifest   which model, texts, settings and machine a run is
    store      the rows in SQLite: added once, never recomputed, read in one order
    run        the folder: created, resumed, locked, read
    exports    Parquet and CSV

Nothing here knows about models; `import layerwise.results` loads no torch.
"""

from __future__ import annotations

from layerwise.results.exports import export
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.run import Run, default_folder
from layerwise.results.store import Session, Store

__all__ = ["Loss", "Manifest", "Note", "PlanRecord", "Run", "Score", "Session", "Store", "default_folder", "export"]
