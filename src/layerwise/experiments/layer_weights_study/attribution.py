"""What the decision of a fine-tuned model comes from: words of the linguistic feature, or words of the surface feature.

Every arm is taught the ambiguous task of the study, whose two features agree in training, and its decisions on
sentences where they disagree are attributed to tokens (`layerwise.measure.gradients.attribution`). Rows of measure
`attribution`, of each model (interval over sentences) and each arm (interval over its models):

    ARM/SEED, ARM  TASK  linguistic, surface    the share of attribution on the words that carry the feature
    ARM/SEED, ARM  TASK  preference             (linguistic - its share of the tokens) - (surface - its share of them)
    ARM/SEED, ARM  TASK  METRIC@shuffled        the same of the model taught the same sentences with shuffled labels
    ARM/SEED, ARM  TASK  linguistic@tokens, surface@tokens    the shares of the tokens
    ARM/SEED, ARM  TASK  gap                    the most that is missing from completeness, of sum |attribution|
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from layerwise.data.suites.classification import Labelled, Task
from layerwise.data.suites.generated_msgs import feature_spans, features_of
from layerwise.experiments.finetuned_tasks import PREDICTIONS, Progress, fine_tuned, kept_file
from layerwise.experiments.provenance import in_words
from layerwise.measure.gradients.attribution import FeatureShares, MarkedText, feature_shares
from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.checked_json import read, value_of
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.stack.load import resolve_device
from layerwise.train.finetune.fine_tuning import FineTuningConfig

ATTRIBUTION = "attribution"
SENTENCES = 64
"""Sentences that are attributed, of each model: an interval of an arm is over its seeds."""

SHUFFLED = "@shuffled"


def attribution_rows(
    models: Iterable[tuple[str, Path | str]],
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    *,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[Score]:
    """The rows of every model, as (label, folder), taught `task` and taught it with shuffled labels; not of arms.

    Shares are kept in the run in `folder` as answers are, so that what is finished is not computed again.
    """
    rows: list[Score] = []
    for label, location in models:
        taught = {"": task, SHUFFLED: shuffled(task)}
        for end, each in taught.items():
            shares = _kept_shares(location, each, settings, folder, label, progress, device)
            rows += model_rows(label, task.name, shares, end)
    return rows


def is_attributed(
    location: Path | str, task: Task, settings: FineTuningConfig, folder: Path, label: str, device: str
) -> bool:
    """Whether the run in `folder` has the shares of a model for a task, and for that with shuffled labels."""
    paths = [_kept_file(location, each, settings, folder, label, device) for each in (task, shuffled(task))]
    return all(path.is_file() for path in paths)


def _kept_file(
    location: Path | str, task: Task, settings: FineTuningConfig, folder: Path, label: str, device: str
) -> Path:
    how = in_words(resolve_device(device), "float32")
    return kept_file(folder / ATTRIBUTION, location, task, settings, 0, label, how, None)


def model_rows(subject: str, task: str, shares: FeatureShares, end: str = "") -> list[Score]:
    """The rows of one model; `end` is what the names of metrics end with."""
    own = {name: np.array(getattr(shares, name)) for name in ("linguistic", "surface")}
    tokens = {name: np.array(getattr(shares, f"{name}_tokens")) for name in own}
    values = {**own, "preference": own["linguistic"] - tokens["linguistic"] - own["surface"] + tokens["surface"]}
    if not end:
        values |= {f"{name}@tokens": of for name, of in tokens.items()}
    rows = []
    for metric, of in values.items():
        low, high = over_seeds(of.tolist())  # Student's interval, here over sentences
        rows.append(Score(ATTRIBUTION, subject, task, f"{metric}{end}", float(of.mean()), low, high, documents=len(of)))
    return [*rows, Score(ATTRIBUTION, subject, task, f"gap{end}", shares.gap)]


def with_arms(rows: Sequence[Score]) -> list[Score]:
    """The rows of models, and behind them those of their arms: means with Student's interval over the models."""
    of_arms: dict[tuple[str, str, str], list[Score]] = {}
    for row in rows:
        of_arms.setdefault((row.subject.rpartition("/")[0], row.task, row.metric), []).append(row)
    results = list(rows)
    for (arm, task, metric), own in of_arms.items():
        values = [row.value for row in own]
        bounds = [(row.low, row.high) for row in own] if own[0].documents is not None else None
        low, high = over_seeds(values, "", bounds)
        results.append(Score(ATTRIBUTION, arm, task, metric, float(np.mean(values)), low, high))
    return results


def shuffled(task: Task) -> Task:
    """The task with the labels of its training and of its selection sentences permuted; the test set stays."""
    return replace(
        task,
        name=f"{task.name} shuffled",
        train=_permuted(task.train, "train"),
        selection=_permuted(task.selection, "sel"),
    )


def _permuted(examples: Sequence[Labelled], seed: str) -> tuple[Labelled, ...]:
    labels = [example.label for example in examples]
    Random(seed).shuffle(labels)
    return tuple(example._replace(label=label) for example, label in zip(examples, labels, strict=True))


def marked(task: Task, count: int = SENTENCES) -> list[MarkedText]:
    """The first test sentences of a task of mixed signals, each with the words of its two features."""
    linguistic, surface = features_of(task.name.removesuffix(" shuffled"))
    return [
        MarkedText(
            example.text,
            () if linguistic is None else feature_spans(linguistic, example.text),
            () if surface is None else feature_spans(surface, example.text),
        )
        for example in task.test[:count]
    ]


def _kept_shares(
    location: Path | str,
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    label: str,
    progress: Progress | None,
    device: str,
) -> FeatureShares:
    path = _kept_file(location, task, settings, folder, label, device)
    if path.is_file():
        return value_of(FeatureShares, read(path), str(path))
    shares: list[FeatureShares] = []

    def inspect_model(model: Any, tokenizer: Any) -> None:
        shares.append(feature_shares(model, tokenizer, marked(task), settings.length))

    # Where the answers are kept already, there is no model to look at, and it is fine-tuned again.
    for keep in (folder / PREDICTIONS, None):
        if not shares:
            fine_tuned(
                location, task, settings, 0, label=label, keep=keep, progress=progress, device=device,
                inspect_model=inspect_model,
            )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(asdict(shares[-1])) + "\n").encode())
    return shares[-1]
