"""Fine-tuning: a pre-trained model is given a new head and taught one task; its test answers are kept.

All weights move, or only those of the head, with AdamW and a schedule with warm-up. After every epoch the model
answers the selection set; the best epoch is kept, and training ends after `patience` epochs without improvement. The
same seed draws the same head and order of examples under every plan, which is in place in every pass. A learning curve
is evaluated at steps that are evenly spaced in the logarithm, without changing the training. The test set is answered
once, by the epoch that was kept.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import DataCollatorWithPadding, EarlyStoppingCallback, TrainerCallback, set_seed

from layerwise.data.suites.classification import ClassificationTask, Labelled
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import TrainError
from layerwise.measure.language.task_summary import task_value
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.stack.inputs import evaluating
from layerwise.stack.max_length import longest_input
from layerwise.train.arguments import MeasuredArguments, common_arguments
from layerwise.train.measured import MeasuredTrainer
from layerwise.train.new_head import classifier, head_parameters
from layerwise.train.training_log import Pace, figures_of

Progress = Callable[[int, int], None]
"""Told the step, and how many there are at most: teaching may end early."""

Inspection = Callable[[Any, Any], None]
"""Looks at a fine-tuned model and its tokenizer."""

Encoded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FineTuningConfig:
    """How a task is taught.

    Of several `learning_rates` the one with the best selection score is kept, for every seed and model separately.
    `epochs` is the maximum, `patience` stops early. Texts or pairs are cut to `length` tokens; `warmup` is a share of
    all steps. `training_limit` and `test_limit` bound the examples, so results do not compare with published ones.
    Weights ending in one of `frozen` do not learn, nor, with `train` "head", all but the new head's
    (`head_parameters`). `evals` adds evaluations of the selection set, for the learning curve alone. With `eval_steps`
    the selection set is answered every so many steps instead of every epoch, and `patience` counts these. `published`
    names a model whose settings replace every default (`settings_for`).
    """

    learning_rates: tuple[float, ...] = (5e-5,)
    batch_size: int = 32
    epochs: int = 10
    patience: int = 3
    length: int = 128
    warmup: float = 0.06
    weight_decay: float = 0.01
    training_limit: int | None = None
    test_limit: int | None = None
    frozen: tuple[str, ...] = ()
    train: Literal["all", "head"] = "all"
    evals: int = 0
    schedule: Literal["linear", "cosine"] = "linear"
    eval_steps: int | None = None
    published: Literal["none", "elc-bert"] = "none"

    def __post_init__(self) -> None:
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise TrainError(f"learning rates {self.learning_rates} were asked for; give at least one, each above 0")
        for name in ("batch_size", "epochs", "patience", "length"):
            if getattr(self, name) < 1:
                raise TrainError(f"fine-tuning with {name} = {getattr(self, name)} was asked for; it must be 1 or more")
        if self.evals < 0:
            raise TrainError(f"a learning curve of {self.evals} evaluations was asked for; give 0 for none, or more")
        if not 0 <= self.warmup < 1:
            raise TrainError(f"a warm-up over {self.warmup} of all steps was asked for; give a share from 0 to below 1")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The score on the selection set after so many steps."""

    step: int
    score: float


@dataclass(frozen=True, slots=True)
class FineTuningResult:
    """What one model answered to the test examples, in order: `predictions` and `labels` (label numbers, or scores).

    `selection` is the metric on the selection set at the kept `epoch` (from 1), `seconds` the time of all learning
    rates. A learning curve adds, of the kept rate, `curve` (metric by step) and `step_seconds`, the median step without
    evaluations.
    """

    predictions: tuple[float, ...]
    labels: tuple[float, ...]
    selection: float
    learning_rate: float
    epoch: int
    seconds: float
    curve: tuple[CurvePoint, ...] = ()
    step_seconds: float | None = None


def fine_tune(
    location: str | Path,
    task: ClassificationTask,
    settings: FineTuningConfig,
    seed: int,
    *,
    plan: Plan | None = None,
    progress: Progress | None = None,
    device: str = "auto",
    inspect_model: Inspection | None = None,
) -> FineTuningResult:
    """Teach `task` to the model at `location` (a folder or a hub id); `seed` draws the head and the order of examples.

    The model runs `plan`, if given, in every pass. `device` is "auto" or "cpu". `inspect_model` receives the model,
    under the plan, at the kept epoch of each rate. Raises `CheckpointError` if the model cannot have a classification
    head, `TrainError` for a loss, gradient or answer that is not finite, `ModelError` for a plan that it cannot run.
    """
    begun = time.perf_counter()
    tried = len(settings.learning_rates)
    results = []
    for number, rate in enumerate(settings.learning_rates):
        shifted = None if progress is None else _shifted(progress, number, tried)
        results.append(_trained(str(location), task, settings, rate, seed, plan, shifted, device, inspect_model))
    best = max(results, key=lambda result: result.selection)  # the first of equals
    return replace(best, seconds=time.perf_counter() - begun)


def _shifted(progress: Progress, before: int, tried: int) -> Progress:
    return lambda step, steps: progress(before * steps + step, tried * steps)


def _trained(
    location: str,
    task: ClassificationTask,
    settings: FineTuningConfig,
    rate: float,
    seed: int,
    plan: Plan | None,
    progress: Progress | None,
    device: str,
    inspect_model: Inspection | None,
) -> FineTuningResult:
    set_seed(seed)
    model, tokenizer, drawn = _with_head(location, task)
    learns = head_parameters(model, drawn) if settings.train == "head" else dict(model.named_parameters())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in learns and not name.endswith(settings.frozen))
    subject = f"{location} taught {task.name} at a learning rate of {rate:g} (seed {seed})"
    subject += "" if plan is None else f" under {plan}"
    sets = {split: _encoded(examples, model, tokenizer, settings) for split, examples in task.sets.items()}
    collate = DataCollatorWithPadding(tokenizer)
    with tempfile.TemporaryDirectory() as folder, _under(model, plan):
        trainer = _FineTuningTrainer(
            subject=subject,
            model=model,
            args=_arguments(folder, settings, rate, seed, device, task.metric, len(task.train)),
            data_collator=collate,
            train_dataset=sets["train"],
            eval_dataset=sets["selection"],
            compute_metrics=lambda evaluated: {
                task.metric: task_value(task, task.metric, evaluated.label_ids, evaluated.predictions)
            },
            preprocess_logits_for_metrics=lambda logits, _: _answered(_first(logits), task),
            callbacks=[EarlyStoppingCallback(settings.patience)],
            progress=None if progress is None else lambda step, steps, _: progress(step, steps),
        )

        def selection_score() -> float | None:
            answers = _answers(trainer.model, sets["selection"], task, collate, settings.batch_size)
            chosen = [example.label for example in task.selection]
            return None if answers is None else task_value(task, task.metric, chosen, answers)

        curve = _LearningCurve(settings.evals, f"eval_{task.metric}", selection_score, trainer.pace)
        trainer.add_callback(curve)
        trainer.train()
        trainer.model.eval()
        predictions = _answers(trainer.model, sets["test"], task, collate, settings.batch_size)
        if inspect_model is not None:
            inspect_model(trainer.model, tokenizer)
    if predictions is None:
        raise TrainError(f"{subject} answers with numbers that are not finite; use a smaller learning rate")
    scores = [entry for entry in trainer.state.log_history if f"eval_{task.metric}" in entry]
    kept = max(scores, key=lambda entry: entry[f"eval_{task.metric}"])  # the first of equals, as the Trainer keeps it
    pace = figures_of(trainer.state.log_history)
    return FineTuningResult(
        predictions,
        tuple(example.label for example in task.test),
        float(kept[f"eval_{task.metric}"]),
        rate,
        round(kept["epoch"]),
        0.0,
        curve.points(),
        pace.get("step_seconds") if settings.evals else None,
    )


def _under(model: Any, plan: Plan | None) -> AbstractContextManager[Any]:
    return nullcontext() if plan is None else load(model).under(plan, single_pass=True)


def _with_head(location: str, task: ClassificationTask) -> tuple[Any, Any, set[str]]:
    """The model with a random head for the task's labels, drawn from torch's generator, its tokenizer, and the names
    of what was drawn."""
    # One output under the name of a score makes transformers learn it by its squared error.
    model, drawn = classifier(
        "AutoModelForSequenceClassification",
        location,
        task.labels or ("score",),
        "fine-tuning needs a model of text, as a folder or a hub id, whose architecture has a class for sequence "
        "classification",
        problem_type="regression" if task.is_regression else "single_label_classification",
    )
    tokenizer = load_tokenizer(location)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    model.config.pad_token_id = tokenizer.pad_token_id  # by this a decoder finds a text's last token
    return model, tokenizer, drawn


def _encoded(examples: Sequence[Labelled], model: Any, tokenizer: Any, settings: FineTuningConfig) -> list[Encoded]:
    taken = set(inspect.signature(model.forward).parameters)
    length = min(settings.length, longest_input(model) or settings.length)
    encoded = []
    for example in examples:
        rows = tokenizer(example.text, example.pair, truncation=True, max_length=length)
        encoded.append({**{name: row for name, row in rows.items() if name in taken}, "labels": example.label})
    return encoded


def _arguments(
    folder: str, settings: FineTuningConfig, rate: float, seed: int, device: str, metric: str, examples: int
) -> MeasuredArguments:
    return common_arguments(
        folder,
        seed,
        {"use_cpu": device == "cpu"},
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=max(settings.batch_size, 64),
        learning_rate=rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=round(settings.warmup * settings.epochs * math.ceil(examples / settings.batch_size)),
        weight_decay=settings.weight_decay,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch" if settings.eval_steps is None else "steps",
        save_strategy="epoch" if settings.eval_steps is None else "steps",
        eval_steps=settings.eval_steps,
        save_steps=settings.eval_steps or 500,
        save_total_limit=1,
        save_only_model=True,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=True,
        logging_strategy="no",
    )


def _answers(
    model: Any, examples: Sequence[Encoded], task: ClassificationTask, collate: Any, batch: int
) -> tuple[float, ...] | None:
    order = sorted(range(len(examples)), key=lambda index: len(examples[index]["input_ids"]))
    answers: list[float] = [0] * len(examples)
    for start in range(0, len(order), max(batch, 64)):
        indices = order[start : start + max(batch, 64)]
        inputs = collate([examples[index] for index in indices])
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items() if name != "labels"}
        with torch.inference_mode():
            logits = model(**inputs).logits
        if not bool(logits.isfinite().all()):
            return None
        for index, answer in zip(indices, _answered(logits, task).tolist(), strict=True):
            answers[index] = answer
    return tuple(answers)


def _answered(logits: Tensor, task: ClassificationTask) -> Tensor:
    return logits.squeeze(-1) if task.is_regression else logits.argmax(-1)


def _first(logits: Any) -> Any:
    return logits[0] if isinstance(logits, tuple) else logits


class _FineTuningTrainer(MeasuredTrainer):
    def __init__(self, *, subject: str, **options: Any) -> None:
        super().__init__(**options)
        self._subject = subject

    def consequence(self) -> str:
        return f"{self._subject} learns nothing more; use a smaller learning rate"


def curve_steps(steps: int, evals: int) -> frozenset[int]:
    """At most `evals` of `steps` steps, evenly in the logarithm, the first and the last among them.

    >>> sorted(curve_steps(64, 4))
    [1, 4, 16, 64]
    """
    return frozenset(int(step) for step in np.geomspace(1, max(steps, 1), evals).round())


class _LearningCurve(TrainerCallback):
    """Records the learning curve of a training; `score` returns the metric, or `None` if it is not finite.

    Evaluations are not part of a step, so `pace` is taken before them.
    """

    def __init__(self, evals: int, metric: str, score: Callable[[], float | None], pace: Pace) -> None:
        self.evals = evals
        self.metric = metric
        self.score = score
        self.pace = pace
        self.scores: dict[int, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step not in curve_steps(state.max_steps, self.evals):
            return
        with evaluating(kwargs["model"]):
            score = self.score()
        if score is not None:
            self.scores[state.global_step] = score
        self.pace.before = time.perf_counter()  # what was just computed is no part of the next step

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.scores[state.global_step] = float(kwargs["metrics"][self.metric])

    def points(self) -> tuple[CurvePoint, ...]:
        return tuple(CurvePoint(*each) for each in sorted(self.scores.items())) if self.evals else ()


# The settings of the model card of ELC-BERT (lgcharpe/ELC_BERT_baby_100M). It does not name the task of MSGS that
# opposes control raising and relative position, which gets the values of most tasks.
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
