"""Options of every run: its folder, whether it starts anew, its seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.experiments.option import option

SEEDS = 2**32
"""Seeds are below this, as numpy's are."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where the rows go, and what the random draws start from."""

    run: Path | None = option(None, "Run folder; by default one named by what is computed.", metavar="PATH")
    overwrite: bool = option(False)
    seed: int = option(0, "Seed of every random draw.", metavar="N", least=0, most=SEEDS - 1)
