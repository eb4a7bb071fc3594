"""The held-out loss of a trained model, and that of tables of tokens that were counted on its training text.

Both are asked for the same tokens, and have their interval over documents, stratified by task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced
from layerwise.measure.interventions.accuracy import HeldOut, Losses
from layerwise.measure.language.bigram import BigramModel, Ids
from layerwise.measure.stats.grid import WHOLE
from layerwise.measure.stats.statistics import paired_bootstrap
from layerwise.measure.stats.strata import Strata
from layerwise.results import Score
from layerwise.results.vocabulary import FEWEST_UNITS, HELD_OUT, NULL, SINGLE_TOKENS, TOKEN_PAIRS
from layerwise.stack import load

MAX_TEST_WINDOWS = 512
"""Windows of the held-out text, at most, spread evenly over it."""

MAX_COUNTED_WINDOWS = 50_000
"""Windows of the training text that tables are counted on, at most, spread evenly over it."""


def held_out_row(folder: Path, splits: Splits, device: str, **columns: Any) -> Score:
    """Return the nats/token of the model in `folder` on held-out documents; `columns` identify the model."""
    held_out = _held_out(splits)
    return _over_documents(HELD_OUT, held_out, held_out.evaluate(load(folder, device=device)), **columns)


def null_rows(splits: Splits) -> list[Score]:
    """Return the held-out loss of bigram and unigram baselines counted on the training text; nothing if not text."""
    train, validation = splits.train, splits.validation
    if not isinstance(train, TokenWindows) or not isinstance(validation, TokenWindows):
        return []
    windows = evenly_spaced(train, MAX_COUNTED_WINDOWS).windows
    table = BigramModel.of((window.ids for window in windows), (window.ids for window in validation.windows))
    held_out = _held_out(splits)
    before, after, units = (np.concatenate(parts) for parts in zip(*_document_losses(held_out), strict=True))
    counted = np.bincount(units).astype(np.float64)
    tables = {TOKEN_PAIRS: table.nll(before, after), SINGLE_TOKENS: table.single_nll(after)}
    return [
        _over_documents(NULL, held_out, Losses(np.bincount(units, weights=nats).astype(np.float64), counted), arm=arm)
        for arm, nats in tables.items()
    ]


def _document_losses(held_out: HeldOut) -> Iterator[tuple[Ids, Ids, Ids]]:
    first = 0
    for batch in held_out.batches:
        ids, scored = batch["input_ids"].numpy(), batch["labels"].numpy()[:, 1:] != IGNORED
        units = np.broadcast_to(held_out.units[first : first + len(ids), None], scored.shape)
        yield ids[:, :-1][scored], ids[:, 1:][scored], units[scored]
        first += len(ids)


def _held_out(splits: Splits) -> HeldOut:
    windows = getattr(splits.test, "windows", None)
    owners = None if windows is None else [(window.task, window.document) for window in windows]
    return HeldOut.of(splits.test, splits.collate, owners=owners, limit=MAX_TEST_WINDOWS)


def _over_documents(measure: str, held_out: HeldOut, losses: Losses, **columns: Any) -> Score:
    seen = losses.counted > 0
    nats, tokens = losses.nll[seen], losses.counted[seen]
    low = high = None
    if seen.sum() >= FEWEST_UNITS:
        owners = [owner for owner, counted in zip(held_out.owners, seen, strict=True) if counted]
        # Images have no tasks.
        strata = Strata.labels_of({(*owner, WHOLE): 1 for owner in owners if isinstance(owner, tuple)})
        interval = paired_bootstrap([nats], tokens, seed=0, strata=strata if strata.size else None)
        low, high = float(interval.low[0]), float(interval.high[0])
    value = float(nats.sum() / tokens.sum())
    return Score(measure, "nll", value, low, high, documents=int(seen.sum()), tokens=int(tokens.sum()), **columns)
