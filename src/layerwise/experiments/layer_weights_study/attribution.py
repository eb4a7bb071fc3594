"""What the decision of a fine-tuned model comes from: words of the linguistic feature, or words of the surface feature.

Every arm is taught the ambiguous task of the study, whose two features agree in training, and its decisions on
sentences where they disagree are attributed to tokens (`layerwise.measure.gradients.attribution`). Rows of measure
`attribution`, of each model (interval over sentences) and each arm (interval over its models):

    linguistic, surface    the share of attribution on the words that carry the feature; against `TOKENS` the shares of
                           the tokens
    preference             (linguistic - its share of the tokens) - (surface - its share of them)
    gap                    the most that is missing from completeness, of sum |attribution|

and against `SHUFFLED` the same of the model taught the same sentences with shuffled labels.
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
from layerwise.experiments.finetuned_tasks import PREDICTIONS, FineTunedModel, Progress, fine_tuned, kept_file
from layerwise.experiments.provenance import in_words
from layerwise.measure.gradients.attribution import FeatureShares, MarkedText, feature_shares
from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.checked import read, value_of
from layerwise.results.rows import Score
from layerwise.results.run import write_whole
from layerwise.results.vocabulary import ATTRIBUTION, SHUFFLED, TOKENS
from layerwise.stack.load import resolve_device
from layerwise.train.finetune.fine_tuning import FineTuningConfig

SENTENCES = 64
"""Sentences that are attributed, of each model: an interval of an arm is over its seeds."""


def attribution_rows(
    models: Iterable[FineTunedModel],
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    *,
    progress: Progress | None = None,
    device: str = "auto",
) -> list[Score]:
    """The rows of every model, taught `task` and taught it with shuffled labels; not of arms.

    Shares are kept in the run in `folder` as answers are, so that what is finished is not computed again.
    """
    rows: list[Score] = []
    for model in models:
        for against, each in ((None, task), (SHUFFLED, shuffled(task))):
            shares = _kept_shares(model, each, settings, folder, progress, device)
            of: dict[str, Any] = {"arm": model.arm, "seed": model.seed, "task": task.name}
            rows += [replace(row, **of) for row in model_rows(shares, against)]
    return rows


def is_attributed(model: FineTunedModel, task: Task, settings: FineTuningConfig, folder: Path, device: str) -> bool:
    """Whether the run in `folder` has the shares of a model for a task, and for that with shuffled labels."""
    paths = [_kept_file(model, each, settings, folder, device) for each in (task, shuffled(task))]
    return all(path.is_file() for path in paths)


def _kept_file(model: FineTunedModel, task: Task, settings: FineTuningConfig, folder: Path, device: str) -> Path:
    how = in_words(resolve_device(device), "float32")
    return kept_file(folder / ATTRIBUTION, model, task, settings, 0, how)


def model_rows(shares: FeatureShares, against: str | None = None) -> list[Score]:
    """The rows of one model, or of what it is compared with."""
    own = {name: np.array(getattr(shares, name)) for name in ("linguistic", "surface")}
    tokens = {name: np.array(getattr(shares, f"{name}_tokens")) for name in own}
    preference = own["linguistic"] - tokens["linguistic"] - own["surface"] + tokens["surface"]
    values = [(name, against, of) for name, of in {**own, "preference": preference}.items()]
    if against is None:
        values += [(name, TOKENS, of) for name, of in tokens.items()]
    rows = []
    for metric, null, of in values:
        low, high = over_seeds(of.tolist())  # Student's interval, here over sentences
        rows.append(Score(ATTRIBUTION, metric, float(of.mean()), low, high, against=null, documents=len(of)))
    return [*rows, Score(ATTRIBUTION, "gap", shares.gap, against=against)]


def with_arms(rows: Sequence[Score]) -> list[Score]:
    """The rows of models, and behind them those of their arms: means with Student's interval over the models."""
    of_arms: dict[tuple[str | None, str, str, str | None], list[Score]] = {}
    for row in rows:
        of_arms.setdefault((row.arm, row.task, row.metric, row.against), []).append(row)
    results = list(rows)
    for own in of_arms.values():
        values = [row.value for row in own]
        bounds = [(row.low, row.high) for row in own] if own[0].documents is not None else None
        low, high = over_seeds(values, "", bounds)
        results.append(
            replace(own[0], seed=None, value=float(np.mean(values)), low=low, high=high, documents=None)
        )  # fmt: skip
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
    model: FineTunedModel,
    task: Task,
    settings: FineTuningConfig,
    folder: Path,
    progress: Progress | None,
    device: str,
) -> FeatureShares:
    path = _kept_file(model, task, settings, folder, device)
    if path.is_file():
        return value_of(FeatureShares, read(path), str(path))
    shares: list[FeatureShares] = []

    def inspect_model(tuned: Any, tokenizer: Any) -> None:
        shares.append(feature_shares(tuned, tokenizer, marked(task), settings.length))

    # Where the answers are kept already, there is no model to look at, and it is fine-tuned again.
    for keep in (folder / PREDICTIONS, None):
        if not shares:
            fine_tuned(
                model, task, settings, 0, keep=keep, progress=progress, device=device, inspect_model=inspect_model
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(asdict(shares[-1])) + "\n").encode())
    return shares[-1]
