"""Fine-tune a pretrained model with a new head on one task, and return its test predictions.

All weights, or only the head, are trained with AdamW. After every epoch the model is evaluated on the selection set
(a validation set); training stops after `patience` epochs without improvement, and the best epoch is used. The test set
is evaluated once. A seed gives the same head and order of examples under every plan. Learning curves are evaluated at
logarithmically spaced steps, which does not affect training.
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

from layerwise.data.suites.classification import ClassificationTask, LabeledText
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
from layerwise.train.training_log import Pace, summarize_log

Progress = Callable[[int, int], None]
"""Called with the step and the maximum number of steps."""

Inspection = Callable[[Any, Any], None]
"""Called with a fine-tuned model and its tokenizer."""

Encoded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FineTuningConfig:
    """Settings of fine-tuning.

    Args:
        learning_rates: Learning rates to try; for every seed and model, the one with the best selection score is used.
        epochs: Maximum number of epochs.
        patience: Number of evaluations without improvement before stopping.
        length: Maximum length in tokens.
        warmup: Share of steps in which the learning rate rises.
        training_limit: Maximum number of training examples.
        test_limit: Maximum number of test examples.
        frozen: Suffixes of the names of weights that are not trained.
        train: Train all weights, or only the new head (`head_parameters`).
        evals: Number of additional evaluations for the learning curve.
        eval_steps: Number of steps between evaluations (default: one epoch).
        published: Model whose published settings replace the defaults (`settings_for`).
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
            raise TrainError(f"learning_rates must be one or more numbers above 0, got {self.learning_rates}.")
        for name in ("batch_size", "epochs", "patience", "length"):
            if getattr(self, name) < 1:
                raise TrainError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.evals < 0:
            raise TrainError(f"evals must be at least 0, got {self.evals}.")
        if not 0 <= self.warmup < 1:
            raise TrainError(f"warmup must be at least 0 and below 1, got {self.warmup}.")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    step: int
    score: float


@dataclass(frozen=True, slots=True)
class FineTuningResult:
    """Result of fine-tuning one model with one seed.

    Attributes:
        predictions: Predicted label numbers or scores on the test set.
        selection: Metric on the selection set at the best epoch.
        epoch: Best epoch, counted from 1.
        seconds: Time for all learning rates.
        step_seconds: Median time of a step, if a learning curve was requested.
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
    """Fine-tune a model on `task`.

    Args:
        location: Folder or hub id of the model.
        task: Task with its training, selection and test examples.
        settings: Settings of the fine-tuning.
        seed: Seed of the head and of the order of examples.
        plan: Plan of every forward pass (default: the original model).
        progress: Function called after every step.
        device: `auto` or `cpu`.
        inspect_model: Function called with the model at the best epoch of each learning rate.

    Raises:
        CheckpointError: If the model cannot have a classification head.
        TrainError: If a loss, gradient or prediction is not finite.
        ModelError: If the model cannot run the plan.
    """
    start = time.perf_counter()
    count = len(settings.learning_rates)
    results = []
    for number, rate in enumerate(settings.learning_rates):
        shifted = None if progress is None else _shift(progress, number, count)
        results.append(_train_at(str(location), task, settings, rate, seed, plan, shifted, device, inspect_model))
    best = max(results, key=lambda result: result.selection)  # the first of equals
    return replace(best, seconds=time.perf_counter() - start)


def _shift(progress: Progress, before: int, tried: int) -> Progress:
    return lambda step, steps: progress(before * steps + step, tried * steps)


def _train_at(
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
    subject = f"fine-tuning {location} on {task.name} at a learning rate of {rate:g} (seed {seed})"
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
            labels = [example.label for example in task.selection]
            return None if answers is None else task_value(task, task.metric, labels, answers)

        curve = _LearningCurve(settings.evals, f"eval_{task.metric}", selection_score, trainer.pace)
        trainer.add_callback(curve)
        trainer.train()
        trainer.model.eval()
        predictions = _answers(trainer.model, sets["test"], task, collate, settings.batch_size)
        if inspect_model is not None:
            inspect_model(trainer.model, tokenizer)
    if predictions is None:
        raise TrainError(f"{subject} gave predictions that are not finite. Use a smaller learning rate.")
    scores = [entry for entry in trainer.state.log_history if f"eval_{task.metric}" in entry]
    best = max(scores, key=lambda entry: entry[f"eval_{task.metric}"])  # the first of equals, as in the Trainer
    pace = summarize_log(trainer.state.log_history)
    return FineTuningResult(
        predictions,
        tuple(example.label for example in task.test),
        float(best[f"eval_{task.metric}"]),
        rate,
        round(best["epoch"]),
        0.0,
        curve.points(),
        pace.get("step_seconds") if settings.evals else None,
    )


def _under(model: Any, plan: Plan | None) -> AbstractContextManager[Any]:
    return nullcontext() if plan is None else load(model).under(plan, single_pass=True)


def _with_head(location: str, task: ClassificationTask) -> tuple[Any, Any, set[str]]:
    # A single output named "score" makes transformers use the squared error.
    model, drawn = classifier(
        "AutoModelForSequenceClassification",
        location,
        task.labels or ("score",),
        "fine-tuning requires a text model (folder or hub id) with a class for sequence classification",
        problem_type="regression" if task.is_regression else "single_label_classification",
    )
    tokenizer = load_tokenizer(location)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    model.config.pad_token_id = tokenizer.pad_token_id  # a decoder finds the last token of a text by it
    return model, tokenizer, drawn


def _encoded(examples: Sequence[LabeledText], model: Any, tokenizer: Any, settings: FineTuningConfig) -> list[Encoded]:
    accepted = set(inspect.signature(model.forward).parameters)
    length = min(settings.length, longest_input(model) or settings.length)
    encoded = []
    for example in examples:
        rows = tokenizer(example.text, example.pair, truncation=True, max_length=length)
        encoded.append({**{name: row for name, row in rows.items() if name in accepted}, "labels": example.label})
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
        return f"{self._subject} cannot continue. Use a smaller learning rate"


def curve_steps(steps: int, evals: int) -> frozenset[int]:
    """Return up to `evals` logarithmically spaced steps from 1 to `steps`.

    >>> sorted(curve_steps(64, 4))
    [1, 4, 16, 64]
    """
    return frozenset(int(step) for step in np.geomspace(1, max(steps, 1), evals).round())


class _LearningCurve(TrainerCallback):
    """Record the learning curve of a training run; `score` returns the metric, or None if it is not finite."""

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
        self.pace.before = time.perf_counter()  # the evaluation is not part of the next step

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.scores[state.global_step] = float(kwargs["metrics"][self.metric])

    def points(self) -> tuple[CurvePoint, ...]:
        return tuple(CurvePoint(*each) for each in sorted(self.scores.items())) if self.evals else ()


# From the model card of ELC-BERT (lgcharpe/ELC_BERT_baby_100M). It lacks one MSGS task (control raising against
# relative position), which gets the values that most tasks have.
_COMMON: dict[str, Any] = {"warmup": 0.1, "weight_decay": 0.1, "schedule": "cosine", "epochs": 10, "patience": 10}
_GLUE = {**_COMMON, "learning_rates": (5e-5,), "batch_size": 64}
_EVAL_STEPS = {"sst2": 200, "qnli": 200, "mnli": 500, "mnli-mm": 500, "qqp": 500}
"""Steps between evaluations on large tasks."""

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
