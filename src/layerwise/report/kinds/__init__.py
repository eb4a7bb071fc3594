"""The kinds of run, listed once in `KINDS`, each as data in its own file with its text in `NAME.md`."""

from __future__ import annotations

from layerwise.report.data import ReportData
from layerwise.report.kind import Kind
from layerwise.report.kinds.comparison import COMPARISON
from layerwise.report.kinds.diagnosis import DIAGNOSIS
from layerwise.report.kinds.evaluation import EVALUATION
from layerwise.report.kinds.growth import GROWTH_KIND
from layerwise.report.kinds.healing import HEALING_KIND
from layerwise.report.kinds.layer_weights_study import STUDY_KIND
from layerwise.report.kinds.paired import PAIRED_KIND
from layerwise.report.kinds.pretraining import PRETRAINING
from layerwise.report.kinds.probing import PROBING_KIND
from layerwise.report.kinds.robustness import ROBUSTNESS_KIND
from layerwise.report.kinds.search import SEARCH_KIND
from layerwise.report.kinds.sweep import SWEEP
from layerwise.report.kinds.timing import TIMING
from layerwise.report.kinds.training import TRAINED
from layerwise.report.kinds.wiring import WIRING

KINDS: tuple[Kind, ...] = (
    SWEEP,
    DIAGNOSIS,
    GROWTH_KIND,
    ROBUSTNESS_KIND,
    TRAINED,
    STUDY_KIND,
    PRETRAINING,
    EVALUATION,
    WIRING,
    SEARCH_KIND,
    HEALING_KIND,
    TIMING,
    PROBING_KIND,
    COMPARISON,
    PAIRED_KIND,
)


def present_kinds(data: ReportData) -> tuple[Kind, ...]:
    """The kinds of run that this one is; a run without any rows is shown as the sweep it may become."""
    return tuple(kind for kind in KINDS if kind.is_of(data)) or (SWEEP,)
