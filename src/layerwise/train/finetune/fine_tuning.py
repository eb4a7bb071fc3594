"""Fine-tuning: a pre-trained model is given a new head and taught one classification task; its test answers are kept.

This is how an encoder is graded since GLUE. All weights move, with AdamW and a learning rate that warms up and then
falls in a straight line; after every epoch the model answers the selection set, the epoch with the best answers is
kept, and teaching ends when `patience` epochs brought nothing better. The head is random and so is the order of the
examples, so one number depends on the seed by whole points where the task is small: fine-tune with several seeds.

The Hugging Face Trainer does the training. The test set is answered once, at the end, by the epoch that was kept.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import layerwise.models  # noqa: F401  (its architectures become known to the Auto classes)
from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import CheckpointError, TrainError
from layerwise.measure.stats.classification_metrics import confusion_matrix, metric_of
from layerwise.stack.checks.completeness import check_complete
from layerwise.stack.max_length import longest_input
from layerwise.train.finite import FiniteTrainer

Progress = Callable[[int, int], None]
"""Told the step, and how many there are at most: teaching may end early."""

Inspection = Callable[[Any, Any], None]
"""Looks at a fine-tuned model and its tokenizer."""

Encoded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FineTuningConfig:
    """How a task is taught.

    With several `learning_rates` each is tried, and the one with the best selection score is kept: for every seed and
    model anew, so that no arm is taught with another's rate. `epochs` bounds the teaching and `patience` ends it; a
    text, or a pair together, is cut to `length` tokens. `warmup` is a share of all steps. `training_limit` and
    `test_limit` bound the examples: a number made with either is not the published task's. Weights whose names end in
    one of `frozen` stay as they are.
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

    def __post_init__(self) -> None:
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise TrainError(f"learning rates {self.learning_rates} were asked for; give at least one, each above 0")
        for name in ("batch_size", "epochs", "patience", "length"):
            if getattr(self, name) < 1:
                raise TrainError(f"fine-tuning with {name} = {getattr(self, name)} was asked for; it must be 1 or more")
        if not 0 <= self.warmup < 1:
            raise TrainError(f"a warm-up over {self.warmup} of all steps was asked for; give a share from 0 to below 1")


@dataclass(frozen=True, slots=True)
class FineTuningResult:
    """What one fine-tuned model answered: `predictions` and `labels` are of the test examples, in their order.

    `selection` is the task's metric on the selection set at the epoch that was kept, `epoch` its number (from 1),
    `seconds` the time that all learning rates took together.
    """

    predictions: tuple[int, ...]
    labels: tuple[int, ...]
    selection: float
    learning_rate: float
    epoch: int
    seconds: float


def fine_tune(
    location: str | Path,
    task: Task,
    settings: FineTuningConfig,
    seed: int,
    *,
    progress: Progress | None = None,
    device: str = "auto",
    inspect_model: Inspection | None = None,
) -> FineTuningResult:
    """Teach `task` to the model at `location` (a folder or a hub id); `seed` draws the head and the order of examples.

    The task is taken as it is: `limited` is for the caller. `device` is "auto" or "cpu". `inspect_model` is given the
    model at the epoch that was kept, of each learning rate, before it is let go. Raises `CheckpointError` for a model
    that cannot be given a classification head, `TrainError` when a loss, a gradient or an answer is not finite.
    """
    begun = time.perf_counter()
    best: tuple[float, float, int, tuple[int, ...]] | None = None
    tried = len(settings.learning_rates)
    for number, rate in enumerate(settings.learning_rates):
        shifted = None if progress is None else _shifted(progress, number, tried)
        selection, epoch, predictions = _trained(
            str(location), task, settings, rate, seed, shifted, device, inspect_model
        )
        if best is None or selection > best[0]:
            best = (selection, rate, epoch, predictions)
    assert best is not None
    selection, rate, epoch, predictions = best
    labels = tuple(example.label for example in task.test)
    return FineTuningResult(predictions, labels, selection, rate, epoch, time.perf_counter() - begun)


def _shifted(progress: Progress, before: int, tried: int) -> Progress:
    return lambda step, steps: progress(before * steps + step, tried * steps)


def _trained(
    location: str,
    task: Task,
    settings: FineTuningConfig,
    rate: float,
    seed: int,
    progress: Progress | None,
    device: str,
    inspect_model: Inspection | None,
) -> tuple[float, int, tuple[int, ...]]:
    """The best selection score, its epoch, and that epoch's answers to the test set."""
    set_seed(seed)
    model, tokenizer = _with_head(location, task)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith(settings.frozen))
    sets = {split: _encoded(examples, model, tokenizer, settings) for split, examples in task.sets.items()}
    collate = DataCollatorWithPadding(tokenizer)
    metric, classes = metric_of(task.metric), len(task.labels)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _FineTuningTrainer(
            subject=f"{location} taught {task.name} at a learning rate of {rate:g} (seed {seed})",
            model=model,
            args=_arguments(folder, settings, rate, seed, device, task.metric, len(task.train)),
            data_collator=collate,
            train_dataset=sets["train"],
            eval_dataset=sets["selection"],
            compute_metrics=lambda evaluated: {
                task.metric: float(metric(confusion_matrix(evaluated.label_ids, evaluated.predictions, classes)))
            },
            preprocess_logits_for_metrics=lambda logits, _: _first(logits).argmax(-1),
            callbacks=[EarlyStoppingCallback(settings.patience), _ProgressCallback(progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trainer.model.eval()
        predictions = _answers(trainer.model, sets["test"], collate, settings.batch_size)
        if inspect_model is not None:
            inspect_model(trainer.model, tokenizer)
    if predictions is None:
        raise TrainError(
            f"{location} taught {task.name} at a learning rate of {rate:g} (seed {seed}) answers with numbers that are "
            "not finite; use a smaller learning rate"
        )
    scores = [entry for entry in trainer.state.log_history if f"eval_{task.metric}" in entry]
    kept = max(scores, key=lambda entry: entry[f"eval_{task.metric}"])  # the first of equals, as the Trainer keeps it
    return float(kept[f"eval_{task.metric}"]), round(kept["epoch"]), predictions


def _with_head(location: str, task: Task) -> tuple[Any, Any]:
    """The model with a random head for the task's labels, drawn from torch's generator, and its tokenizer."""
    names = {"id2label": dict(enumerate(task.labels)), "label2id": {name: at for at, name in enumerate(task.labels)}}
    try:
        model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            location, num_labels=len(task.labels), ignore_mismatched_sizes=True, use_safetensors=True, dtype="float32",
            output_loading_info=True, **names,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{location} cannot be given a head for {len(task.labels)} classes: {str(error).strip().splitlines()[0]}\n"
            "fine-tuning needs a model of text, as a folder or a hub id, whose architecture has a class for "
            "sequence classification"
        ) from error
    check_complete(location, model, report, new_head=True)
    tokenizer = load_tokenizer(location)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    model.config.pad_token_id = tokenizer.pad_token_id  # by this a decoder finds a text's last token
    return model, tokenizer


def _encoded(examples: Sequence[Labelled], model: Any, tokenizer: Any, settings: FineTuningConfig) -> list[Encoded]:
    """Each example as the model's own arguments, without padding."""
    taken = set(inspect.signature(model.forward).parameters)
    length = min(settings.length, longest_input(model) or settings.length)
    encoded = []
    for example in examples:
        rows = tokenizer(example.text, example.pair, truncation=True, max_length=length)
        encoded.append({**{name: row for name, row in rows.items() if name in taken}, "labels": example.label})
    return encoded


def _arguments(
    folder: str, settings: FineTuningConfig, rate: float, seed: int, device: str, metric: str, examples: int
) -> TrainingArguments:
    steps = settings.epochs * math.ceil(examples / settings.batch_size)
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=max(settings.batch_size, 64),
        learning_rate=rate,
        lr_scheduler_type="linear",
        warmup_steps=round(settings.warmup * steps),
        weight_decay=settings.weight_decay,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        save_only_model=True,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=True,
        logging_strategy="no",
        seed=seed,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        use_cpu=device == "cpu",
    )
    # One process drives one device, as everywhere in layerwise: torch's DataParallel would split the batches.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _answers(model: Any, examples: Sequence[Encoded], collate: Any, batch: int) -> tuple[int, ...] | None:
    """The label given to each example, in order; `None` when a logit is not finite. Batches are of like lengths."""
    order = sorted(range(len(examples)), key=lambda index: len(examples[index]["input_ids"]))
    labels = [0] * len(examples)
    for start in range(0, len(order), max(batch, 64)):
        indices = order[start : start + max(batch, 64)]
        inputs = collate([examples[index] for index in indices])
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items() if name != "labels"}
        with torch.inference_mode():
            logits = model(**inputs).logits
        if not bool(logits.isfinite().all()):
            return None
        for index, label in zip(indices, logits.argmax(-1).tolist(), strict=True):
            labels[index] = label
    return tuple(labels)


def _first(logits: Any) -> Any:
    """The logits alone: some models return their caches or hidden states beside them."""
    return logits[0] if isinstance(logits, tuple) else logits


class _FineTuningTrainer(FiniteTrainer):
    """A `FiniteTrainer` that says what it taught: its checkpoints go with its folder."""

    def __init__(self, *, subject: str, **options: Any) -> None:
        super().__init__(**options)
        self._subject = subject

    def consequence(self) -> str:
        return f"{self._subject} learns nothing more; use a smaller learning rate"


class _ProgressCallback(TrainerCallback):
    """Tells who watches how far the teaching is."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.progress is not None:
            self.progress(state.global_step, state.max_steps)
