"""The held-out loss of trained models, and of bigram and unigram baselines counted on the training text.

All are scored on the same tokens, with bootstrap intervals over documents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.data.text.language_modeling import TokenWindows, select_evenly
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.language.bigram import BigramModel
from layerwise.measure.stats.grid import WHOLE, Strata
from layerwise.measure.stats.statistics import Numbers, paired_bootstrap
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.results.vocabulary import BIGRAMS, HELD_OUT, MIN_UNITS, NULL, UNIGRAMS
from layerwise.stack import load
from layerwise.studies.train_growth.task import list_windows

BATCH = 64
MAX_TEST_WINDOWS = 512
"""Maximum number of held-out windows, which are evenly spaced over the text."""

MAX_COUNTED_WINDOWS = 50_000
"""Maximum number of training windows that the baselines count, which are evenly spaced over the text."""

Owner = tuple[str, str]
"""The task of a document (the name of its group), and the name of the document."""


def make_held_out_row(folder: Path, splits: Splits, device: str, **columns: Any) -> Score:
    """Return a row with the loss in nats/token of the model in `folder` on held-out text; `columns` are added to it."""
    stack, windows = load(folder, device=device), _select_test_windows(splits)
    outcome = evaluate(stack, Plan.identity(stack.depth), windows, splits.collate, batch_size=BATCH)
    return _average_over_documents(HELD_OUT, _list_owners(windows), outcome.nll, outcome.scored, **columns)


def make_null_rows(splits: Splits) -> list[Score]:
    """Return the held-out loss of the bigram and unigram baselines."""
    counted = select_evenly(list_windows(splits.train), MAX_COUNTED_WINDOWS).windows
    selected = list_windows(splits.validation).windows
    table = BigramModel.fit((window.ids for window in counted), (window.ids for window in selected))
    windows = _select_test_windows(splits)
    before, after, owners = [], [], []
    for number, owner in enumerate(_list_owners(windows)):
        example = windows[number]
        ids, scored = example["input_ids"].numpy(), example["labels"].numpy()[1:] != IGNORED
        before.append(ids[:-1][scored])
        after.append(ids[1:][scored])
        owners += [owner] * int(scored.sum())
    firsts, seconds = np.concatenate(before), np.concatenate(after)
    tables = {BIGRAMS: table.nll(firsts, seconds), UNIGRAMS: table.single_nll(seconds)}
    return [
        _average_over_documents(NULL, owners, nats, np.ones(len(nats)), variant=variant)
        for variant, nats in tables.items()
    ]


def _select_test_windows(splits: Splits) -> TokenWindows:
    windows = list_windows(splits.test).windows
    indices = np.unique(np.linspace(0, len(windows) - 1, min(MAX_TEST_WINDOWS, len(windows))).round().astype(int))
    return TokenWindows([windows[index] for index in indices])


def _list_owners(windows: TokenWindows) -> list[Owner]:
    return [(window.task, window.document) for window in windows.windows]


def _average_over_documents(
    measure: str, owners: list[Owner], nll: Numbers, counted: NDArray[np.float64], **columns: Any
) -> Score:
    numbers = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
    units = [numbers[owner] for owner in owners]
    nats, tokens = (np.bincount(units, weights=values) for values in (nll, counted))
    seen = tokens > 0
    nats, tokens = nats[seen], tokens[seen]
    low = high = None
    if seen.sum() >= MIN_UNITS:
        strata = Strata.label_pieces({(*owner, WHOLE): 1 for owner, number in numbers.items() if seen[number]})
        interval = paired_bootstrap([nats], tokens, seed=0, strata=strata)
        low, high = float(interval.low[0]), float(interval.high[0])
    value = float(nats.sum() / tokens.sum())
    return Score(measure, "nll", value, low, high, documents=int(seen.sum()), tokens=int(tokens.sum()), **columns)
