"""The verbs and the pages, each named once with the module below `layerwise.studies` that has it.

A verb that has kinds takes one as its first word: `train elc` is a kind of `train`, and `save convert` one of `save`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CATALOGUE: Mapping[str, Mapping[str, str]] = {
    "Plans": {
        "verify": "verify.verb:verify",
        "time": "time.verb:time",
    },
    "Measuring": {
        "sweep": "sweep.verb:sweep",
        "diagnose": "diagnose.verb:diagnose",
        "evaluate": "evaluate.verb:evaluate",
        "robustness": "robustness.verb:robustness",
        "robustness merge": "robustness.merge_verb:merge",
    },
    "Changing": {
        "search": "search.verb:search",
        "heal": "heal.verb:heal",
        "save": "save.verb:save",
        "save convert": "save.verb:save_convert",
    },
    "Training": {
        "train robust": "robustness.training_verb:train_robust",
        "train elc": "train_elc.verb:elc",
        "train growth": "train_growth.verb:growth",
        "train schedule": "train_growth.importance:schedule",
    },
    "Serving": {
        "serve": "serve.verb:serve",
        "serve status": "serve.status:serve_status",
    },
    "Results": {
        "compare": "compare.verb:compare",
    },
}
"""From the heading of a group to its verbs, each with the module and the class of its configuration."""

VERBS: Mapping[str, str] = {verb: path for members in CATALOGUE.values() for verb, path in members.items()}
"""Every verb, kinds included, with its module and class."""

PAGES: Mapping[str, str] = {
    "sweep": "studies.sweep.page:SWEEP",
    "diagnosis": "studies.diagnose.page:DIAGNOSIS",
    "growth": "studies.train_growth.page:GROWTH_KIND",
    "robustness": "studies.robustness.page:ROBUSTNESS_KIND",
    "training": "page.sections.training:TRAINED",
    "pretraining": "studies.train_elc.page:PRETRAINING",
    "evaluation": "studies.evaluate.page:EVALUATION",
    "wiring": "page.sections.wiring:WIRING",
    "search": "studies.search.page:SEARCH_KIND",
    "healing": "studies.heal.page:HEALING_KIND",
    "timing": "studies.time.page:TIMING",
    "probing": "studies.evaluate.probing:PROBING_KIND",
    "comparison": "studies.compare.page:COMPARISON",
    "paired": "studies.compare.paired:PAIRED_KIND",
}
"""Every kind of page with its module and definition, in the order in which a run of several kinds shows them."""

FINDINGS: Sequence[str] = (
    "studies.train_elc.findings:ELC_FINDINGS",
    "studies.robustness.findings:LAYERSHUFFLE_FINDINGS",
    "studies.sweep.painters:PAINTERS_FINDINGS",
    "studies.sweep.painters_benchmarks:BENCHMARK_FINDINGS",
    "studies.diagnose.painters:PAINTERS_FINDINGS",
    "studies.diagnose.findings:DIAGNOSIS_FINDINGS",
    "studies.train_growth.published:GROWTH_FINDINGS",
)
"""The functions that judge published statements, a tuple of each study, in the order in which a page lists them."""
