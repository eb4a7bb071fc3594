"""Fine-tuning settings of published models, by task.

ELC-BERT's are those of its authors' model card (lgcharpe/ELC_BERT_baby_100M). The card does not name the task of MSGS
that opposes control raising and relative position; it gets the values of most tasks.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from layerwise.data.suites.classification import ClassificationTask
from layerwise.train.fine_tuning import FineTuningConfig

_COMMON: dict[str, Any] = {"warmup": 0.1, "weight_decay": 0.1, "schedule": "cosine", "epochs": 10, "patience": 10}
_GLUE = {**_COMMON, "learning_rates": (5e-5,), "batch_size": 64}
_EVAL_STEPS = {"sst2": 200, "qnli": 200, "mnli": 500, "mnli-mm": 500, "qqp": 500}
"""Steps between evaluations on large tasks, which stop after 100 evaluations without improvement."""

_MSGS_CHANGES: dict[tuple[str, ...], dict[str, Any]] = {
    ("lexical_content",): {"learning_rates": (1.5e-5,), "epochs": 3, "patience": 3},
    ("syntactic_category", "relative"): {"learning_rates": (1e-5,)},
    ("main_verb", "lexical_content"): {"learning_rates": (8e-6,), "epochs": 5, "patience": 5},
    ("main_verb",): {"learning_rates": (5e-6,)},
    ("control_raising", "lexical_content"): {"learning_rates": (5e-7,)},
}
_FEATURES = ("control_raising", "main_verb", "syntactic_category", "lexical_content", "relative")


def elc_bert_settings(task: ClassificationTask) -> dict[str, Any]:
    if not task.name.startswith(("control ", "ambiguous ")):
        steps = _EVAL_STEPS.get(task.name)
        return _GLUE if steps is None else {**_GLUE, "eval_steps": steps, "patience": 100}
    features = tuple(name for name in _FEATURES if name in task.name)
    return {**_COMMON, "learning_rates": (5e-5,), "batch_size": 32, **_MSGS_CHANGES.get(features, {})}


def settings_for(task: ClassificationTask, settings: FineTuningConfig) -> FineTuningConfig:
    if settings.published == "none":
        return settings
    defaults = {each.name: each.default for each in fields(FineTuningConfig)}
    published = elc_bert_settings(task)
    return replace(
        settings, **{name: value for name, value in published.items() if getattr(settings, name) == defaults[name]}
    )
