"""Tidy rows with provenance: what every measurement returns, and the run folder that keeps it.

    rows       Loss, Score, PlanRecord, Note: the kinds of row; Rows: several of them
    manifest   which model, texts, settings and machine a run is
    store      the rows in SQLite: added once, never recomputed, read in one order; exports in Parquet and CSV
    run        the folder: created, resumed, locked, read

Nothing here knows about models; `import layerwise.results` loads no torch.
"""

from __future__ import annotations

from layerwise.results.exports import export
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.run import Run
from layerwise.results.selection import Rows
from layerwise.results.store import Store

__all__ = ["Loss", "Manifest", "Note", "PlanRecord", "Rows", "Run", "Score", "Store", "export"]
