"""All commands, one per line. Importing one registers it for the command line, YAML files and Python.

The package of a command lists its report pages and the functions that test published statements. In Python,
`layerwise.save` is not the command but the function of `layerwise.checkpoint`, which also accepts models in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from layerwise.runner.verb import VERBS

# isort: off
from layerwise.studies.play.verb import play as play
from layerwise.studies.verify.verb import verify as verify
from layerwise.studies.time.verb import time as time
from layerwise.studies.sweep.verb import sweep as sweep
from layerwise.studies.diagnose.verb import diagnose as diagnose
from layerwise.studies.evaluate.verb import evaluate as evaluate
from layerwise.studies.robustness import merge as merge, robustness as robustness
from layerwise.studies.search.verb import search as search
from layerwise.studies.heal.verb import heal as heal
from layerwise.studies.save.verb import save_convert as save_convert
from layerwise.studies import train_elc as train_elc
from layerwise.studies import train_growth as train_growth
from layerwise.studies.serve import serve as serve
from layerwise.studies.compare.verb import compare as compare
# isort: on

STUDIES = tuple(dict.fromkeys(verb.function.__module__.rpartition(".")[0] for verb in VERBS.values()))

PAGES: Mapping[str, str] = {
    "training": "layerwise.page.sections.training:TRAINED",
    "wiring": "layerwise.page.sections.wiring:WIRING",
    **{
        name: f"{study}.{path}"
        for study in STUDIES
        for name, path in getattr(import_module(study), "PAGES", {}).items()
    },
}
"""Module and definition of every kind of report page."""

FINDINGS: Sequence[str] = [
    f"{study}.{path}" for study in STUDIES for path in getattr(import_module(study), "FINDINGS", ())
]
"""Functions that test published statements: for each command, a module and the name of a tuple in it."""
