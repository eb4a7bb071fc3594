"""The rows of a run of growth: the null is asked what models are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerwise.data.splits import Splits
from layerwise.data.text.language_modelling import TokenWindows
from layerwise.data.text.tokens import Window
from layerwise.measure.language.bigram import BigramModel
from layerwise.train.phases.metrics import held_out_row, null_rows
from train.tiny_models import VOCABULARY, tiny_llama, tiny_text


def test_tables_are_asked_for_the_very_tokens_that_models_are_asked_for(tmp_path: Path) -> None:
    splits = _worded()
    rows = {row.arm: row for row in null_rows(splits)}
    path = tmp_path / "model"
    tiny_llama().save_pretrained(path)
    model = held_out_row(path, splits, "cpu", arm="a", seed=0)
    for row in rows.values():
        assert (row.measure, row.documents, row.tokens) == ("null", model.documents, model.tokens)
    table = BigramModel.of([window.ids for window in splits.train.windows], [])  # nothing to select on: the same table
    asked = [
        (window.ids[at - 1], window.ids[at])
        for window in splits.test.windows
        for at in range(max(1, window.scored_from), window.scored_until)
    ]
    before, after = np.array(asked).T
    assert rows["token pairs"].value == pytest.approx(float(table.nll(before, after).mean()))
    assert rows["single tokens"].value == pytest.approx(float(table.single_nll(after).mean()))
    assert rows["token pairs"].low < rows["token pairs"].value < rows["token pairs"].high
    assert null_rows(tiny_text()) == [], "what is no text has no pairs of tokens"


def _worded() -> Any:
    """Windows of unlike lengths from a few documents; the first of them scores its second half only."""
    draw = np.random.default_rng(0)

    def window(document: str, index: int, size: int, first: int) -> Window:
        return Window(document, "text", index, tuple(draw.integers(VOCABULARY, size=size).tolist()), first, size)

    def cut(split: str, documents: int) -> TokenWindows:
        sizes = [(8, 4), (8, 1), (5, 1)]
        names = [f"{split}-{number}" for number in range(documents)]
        return TokenWindows([window(name, index, *size) for name in names for index, size in enumerate(sizes)])

    return Splits(
        "words", "digest", cut("train", 6), TokenWindows([Window("v", "text", 0, (1,), 0, 0)]), cut("test", 8)
    )
