"""Classification tasks: texts or text pairs with a label or score, in three disjoint sets.

A model is fine-tuned on `train`, the best epoch is selected on `selection`, and the score on `test` is reported. If a
benchmark (GLUE) has only training and validation files, the validation file is `test`, and a tenth of the training file
is `selection`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from layerwise.data.splits import digest, split_stratified
from layerwise.errors import DataError

SELECTION = 0.1
"""Fraction of the training file used for selection if there is no separate file."""


class LabeledText(NamedTuple):
    """A text or text pair with the index of its label, or with its score in a regression task."""

    text: str
    pair: str | None
    label: float

    @property
    def content(self) -> tuple[str, str | None]:
        return self.text, self.pair


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """One benchmark task for fine-tuning.

    `measure` and `name` identify its results (`glue`, `cola`). `labels` is empty for a regression. `metric` selects the
    epoch and is reported: `mcc`, `accuracy` or `f1` of label 1, or `pearson` or `spearman` for a regression. Metrics in
    `also` are only reported. `source` describes the files. Raises `DataError` if a set is empty.
    """

    measure: str
    name: str
    labels: tuple[str, ...]
    metric: str
    train: tuple[LabeledText, ...] = field(repr=False)
    selection: tuple[LabeledText, ...] = field(repr=False)
    test: tuple[LabeledText, ...] = field(repr=False)
    source: str = ""
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split, examples in self.sets.items():
            if not examples:
                raise DataError(f"{self.name}: the {split} set must have at least one example, got none.")

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def metrics(self) -> tuple[str, ...]:
        return (self.metric, *self.also)

    @property
    def sets(self) -> dict[str, tuple[LabeledText, ...]]:
        return {"train": self.train, "selection": self.selection, "test": self.test}

    @property
    def digest(self) -> str:
        return digest(
            (split, self._named(example.label), repr(example.content).encode())
            for split, examples in self.sets.items()
            for example in examples
        )

    @property
    def commonest(self) -> int:
        counts = Counter(int(example.label) for example in self.train)
        return min(counts, key=lambda label: (-counts[label], label))

    def _named(self, label: float) -> str:
        return repr(float(label)) if self.is_regression else self.labels[int(label)]

    def limited(self, train: int | None = None, test: int | None = None, seed: int = 0) -> ClassificationTask:
        """Draw at most `train` training and `test` test examples. Their order is kept, and labels are not balanced."""
        return replace(
            self,
            train=_drawn(self.train, train, f"{seed}/train"),
            test=_drawn(self.test, test, f"{seed}/test"),
        )


def _drawn(examples: tuple[LabeledText, ...], limit: int | None, seed: str) -> tuple[LabeledText, ...]:
    if limit is None or limit >= len(examples):
        return examples
    if limit < 1:
        raise DataError(f"The limit of examples must be at least 1, got {limit}.")
    return tuple(examples[index] for index in sorted(Random(seed).sample(range(len(examples)), limit)))


def exclude_texts(examples: Sequence[LabeledText], others: Sequence[LabeledText]) -> tuple[LabeledText, ...]:
    taken = {example.content for example in others}
    return tuple(example for example in examples if example.content not in taken)


def split_selection(
    examples: Sequence[LabeledText], seed: int, *, by_label: bool = True
) -> tuple[tuple[LabeledText, ...], ...]:
    """Split the examples of one file into training and selection examples.

    The fraction `SELECTION` of the examples of each label is drawn with `seed`. If not `by_label` (for a regression),
    labels are ignored. Texts drawn for selection are removed from training, including duplicates.

    >>> rows = [LabeledText(str(number), None, number % 2) for number in range(20)]
    >>> train, selection = split_selection(rows, seed=0)
    >>> len(train), [example.label for example in selection]
    (18, [0, 1])
    """
    labels = [example.label if by_label else 0 for example in examples]
    kept, drawn = split_stratified(labels, (1 - SELECTION, SELECTION), seed)
    selection = tuple(examples[index] for index in drawn)
    return exclude_texts([examples[index] for index in kept], selection), selection


def read_task_files(
    measure: str,
    name: str,
    labels: tuple[str, ...],
    metrics: Sequence[str],
    files: Mapping[Path, tuple[LabeledText, ...]],
    seed: int,
) -> ClassificationTask:
    (first, examples), (second, test) = files.items()
    train, selection = split_selection(exclude_texts(examples, test), seed, by_label=bool(labels))
    source = f"trained on {first.name}, selected on a tenth of {first.name} (seed {seed}), reported on {second.name}"
    if removed := len(examples) - len(selection) - len(train):
        source += f"; {removed} training example(s) removed because their text is in another set"
    main, *also = metrics
    return ClassificationTask(measure, name, labels, main, train, selection, test, source, tuple(also))
