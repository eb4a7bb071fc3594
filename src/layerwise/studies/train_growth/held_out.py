"""The held-out loss of a trained model, and that of tables of tokens that were counted on its training text.

Both are asked for the same tokens, and have their interval over documents, stratified by task.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Example, Splits
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced
from layerwise.errors import MeasureError
from layerwise.measure.interventions.accuracy import inputs_and_labels, joined, predictions_of
from layerwise.measure.language.bigram import BigramModel, Ids
from layerwise.measure.language.lm_head import find_head
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.statistics import Numbers, paired_bootstrap
from layerwise.measure.stats.strata import Strata
from layerwise.results import Score
from layerwise.results.vocabulary import FEWEST_UNITS, HELD_OUT, NULL, SINGLE_TOKENS, TOKEN_PAIRS
from layerwise.stack import load
from layerwise.stack.inputs import evaluating

MAX_TEST_WINDOWS = 512
"""Windows of the held-out text, at most, spread evenly over it."""

MAX_COUNTED_WINDOWS = 50_000
"""Windows of the training text that tables are counted on, at most, spread evenly over it."""


BATCH = 64


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Batches of a model's arguments with labels; every example belongs to a unit, a document or an image.

    `units` are the units' numbers by example, `owners` their names by number.
    """

    batches: tuple[Example, ...]
    units: NDArray[np.int64]
    owners: tuple[Hashable, ...]

    @classmethod
    def of(cls, splits: Splits) -> HeldOut:
        test = splits.test
        count = min(MAX_TEST_WINDOWS, len(test))
        indices = np.unique(np.linspace(0, len(test) - 1, count).round().astype(int)).tolist()
        windows = getattr(test, "windows", None)
        names = [index if windows is None else (windows[index].task, windows[index].document) for index in indices]
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        parts = (indices[start : start + BATCH] for start in range(0, len(indices), BATCH))
        batches = tuple(splits.collate([test[index] for index in part]) for part in parts)
        return cls(batches, np.array([order[name] for name in names]), tuple(order))

    def row(self, measure: str, nll: Numbers, counted: Numbers, **columns: Any) -> Score:
        """Return the nats per token from those of each unit, (units,), and from its number of tokens."""
        seen = counted > 0
        nats, tokens = nll[seen], counted[seen]
        low = high = None
        if seen.sum() >= FEWEST_UNITS:
            owners = [owner for owner, is_seen in zip(self.owners, seen, strict=True) if is_seen]
            # Images have no tasks.
            strata = Strata.labels_of({(*owner, WHOLE): 1 for owner in owners if isinstance(owner, tuple)})
            interval = paired_bootstrap([nats], tokens, seed=0, strata=strata if strata.size else None)
            low, high = float(interval.low[0]), float(interval.high[0])
        value = float(nats.sum() / tokens.sum())
        return Score(measure, "nll", value, low, high, documents=int(seen.sum()), tokens=int(tokens.sum()), **columns)


def held_out_row(folder: Path, splits: Splits, device: str, **columns: Any) -> Score:
    """Return the nats/token of the model in `folder` on held-out documents; `columns` identify the model."""
    held_out, stack, parts = HeldOut.of(splits), load(folder, device=device), []
    head = find_head(stack)
    with evaluating(stack.model), torch.inference_mode():
        for batch in held_out.batches:
            parts.append(predictions_of(stack.model, head, *inputs_and_labels(batch, stack.device)))
    predictions = joined(parts)
    if not np.isfinite(predictions.nll).all():
        raise MeasureError(f"the loss of {stack.source.name} is not finite; train it with a lower learning rate")
    nll, counted = (np.bincount(held_out.units, weights=each) for each in (predictions.nll, predictions.scored))
    return held_out.row(HELD_OUT, nll.astype(np.float64), counted.astype(np.float64), **columns)


def null_rows(splits: Splits) -> list[Score]:
    """Return the held-out loss of bigram and unigram baselines counted on the training text; nothing if not text."""
    train, validation = splits.train, splits.validation
    if not isinstance(train, TokenWindows) or not isinstance(validation, TokenWindows):
        return []
    windows = evenly_spaced(train, MAX_COUNTED_WINDOWS).windows
    table = BigramModel.of((window.ids for window in windows), (window.ids for window in validation.windows))
    held_out = HeldOut.of(splits)
    before, after, units = (np.concatenate(parts) for parts in zip(*_document_losses(held_out), strict=True))
    counted = np.bincount(units).astype(np.float64)
    tables = {TOKEN_PAIRS: table.nll(before, after), SINGLE_TOKENS: table.single_nll(after)}
    return [
        held_out.row(NULL, np.bincount(units, weights=nats).astype(np.float64), counted, arm=arm)
        for arm, nats in tables.items()
    ]


def _document_losses(held_out: HeldOut) -> Iterator[tuple[Ids, Ids, Ids]]:
    first = 0
    for batch in held_out.batches:
        ids, scored = batch["input_ids"].numpy(), batch["labels"].numpy()[:, 1:] != IGNORED
        units = np.broadcast_to(held_out.units[first : first + len(ids), None], scored.shape)
        yield ids[:, :-1][scored], ids[:, 1:][scored], units[scored]
        first += len(ids)
