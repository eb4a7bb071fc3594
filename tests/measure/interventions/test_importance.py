from dataclasses import replace
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import MeasureError
from layerwise.measure.interventions.importance import SOURCES, estimate_importance, find_source, read_importance
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.plan.schedule.allocation import Importance
from layerwise.results.rows import Score
from layerwise.stack import load
from tiny_tokenizers import ALPHABET, character_tokenizer


def row(measure: str, layer: int, metric: str, value: float, **columns: Any) -> Score:
    return Score(measure, metric, value, value - 0.1, value + 0.1, layer=layer, **columns)


VERDICTS = [
    row("verdict", layer, metric, value)
    for layer, (metric, value) in enumerate((("matters", 0.5), ("no_effect", 0.0), ("harmful", -0.4)))
]
RACE = [*(row("racing", layer, "matters", 1.0) for layer in range(3)), Score("racing", "looks", 2.0)]
SKIPS = [
    Score("ablation", "nll", 2.0),
    *(row("ablation", layer, "skip", 2.0) for layer in range(3)),
    *(row("ablation", layer, "skip", 9.0, task="prose") for layer in range(3)),
    *(row("ablation", layer, "skip", 9.0, part="mlp") for layer in range(3)),
    *(row("ablation", layer, "skip", 0.0, against="no_effect") for layer in range(3)),
    *(row("ablation", layer, "random", 9.0) for layer in range(3)),
]


def test_best_available_intervals_are_used() -> None:
    assert read_importance([*SKIPS, *RACE, *VERDICTS]) == (
        Importance(0.5, 0.4, 0.6),
        Importance(0.0, -0.1, 0.1),
        Importance(-0.4, -0.5, -0.30000000000000004),
    )
    assert [each.value for each in read_importance([*SKIPS, *RACE])] == [1.0] * 3
    assert [each.value for each in read_importance(SKIPS)] == [2.0] * 3
    assert [find_source(rows) for rows in ([*SKIPS, *VERDICTS], [*SKIPS, *RACE], SKIPS, [])] == [*SOURCES, None]


def test_missing_rows_are_named() -> None:
    with pytest.raises(MeasureError, match="--parts ablation"):
        read_importance([Score("proxies", "gate", 1.0, layer=0)])
    # Other interventions show that layer 2 exists.
    left_out = [each for each in SKIPS if (each.layer, each.metric) != (2, "skip")]
    with pytest.raises(MeasureError, match="got none for layer 2\."):
        read_importance(left_out)
    with pytest.raises(MeasureError, match="got none for layer 0, 1\."):
        read_importance(VERDICTS[2:])
    bare = [replace(VERDICTS[0], low=None, high=None), *VERDICTS[1:]]
    with pytest.raises(MeasureError, match="layer 0 must have an interval"):
        read_importance(bare)


def test_layer_with_no_update_has_no_effect() -> None:
    model = tiny_llama(4, vocabulary=3 + len(ALPHABET))
    with torch.no_grad():
        for name, weight in model.model.layers[2].named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
    stack = load(model, tokenizer=character_tokenizer())
    texts = tuple(Document(str(number), "abc de fgh ij. " * (number + 2)) for number in range(20))
    found = estimate_importance(stack, tokenize(stack, Corpus("texts", texts), length=32))
    assert found[2] == Importance(0.0, 0.0, 0.0)
    assert all(each.value != 0 for layer, each in enumerate(found) if layer != 2)
