"""Scores of layers in a diagnosis: their rows, their baselines, and whether they are compared with skipping."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ABLATION,
    ALL,
    DELTA_NLL,
    DELTAS,
    MANIPULATION,
    NO_EFFECT,
    PREDICTABILITY,
    PROXIES,
    RANDOM_INIT,
    RECOVERY,
    SHUFFLED_LAYERS,
    SKIPPING,
    UNDAMAGED,
)


@dataclass(frozen=True, slots=True)
class LayerScore:
    """A score with a value for each layer, such as Block Influence.

    Attributes:
        name: Name in the rank correlations with skipping.
        title: Heading of its column in the table of layers.
        where: Values of columns that select its rows.
        null: Value of the column `against` in the rows of its baseline.
        low_is_important: Whether important layers have low values. Layers are then ranked by 1 - value.
        is_compared: Whether its ranking of layers is compared with that of skipping.
        is_signed: Whether positive values are printed with a plus sign.
        alternatives: Changes to `where` for the comparison. The first one that selects any rows is used.
    """

    name: str
    title: str
    where: Mapping[str, Any]
    null: str
    low_is_important: bool = False
    is_compared: bool = True
    is_signed: bool = False
    alternatives: tuple[Mapping[str, Any], ...] = ({},)

    @property
    def importance_title(self) -> str:
        return f"1 − {self.title}" if self.low_is_important else self.title

    @property
    def is_proxy(self) -> bool:
        return self.where["measure"] == PROXIES

    def select(self, rows: Rows, **columns: Any) -> Rows:
        """Return the rows of full layers, or those of a baseline if `against` is its name."""
        default = {"task": ALL, "layer": PRESENT, "part": None, "seed": None, "against": None}
        return rows.where(**{**default, **self.where, **columns})


def _proxy(name: str, title: str, null: str, **columns: Any) -> LayerScore:
    return LayerScore(name, title, {"measure": PROXIES, "metric": name} | columns, null)


_SKIP = {"measure": ABLATION, "metric": SKIPPING}
SKIP_EFFECT = LayerScore(SKIPPING, "Δ NLL when skipped", _SKIP, NO_EFFECT, is_signed=True)
LAYER_SCORES = (
    LayerScore("attention", "attention", {**_SKIP, "part": "attn"}, NO_EFFECT, is_compared=False, is_signed=True),
    LayerScore("mlp", "MLP", {**_SKIP, "part": "mlp"}, NO_EFFECT, is_compared=False, is_signed=True),
    LayerScore(
        "predictability",
        "held-out R²",
        {"measure": PREDICTABILITY, "metric": "heldout_rows_r2"},
        SHUFFLED_LAYERS,
        low_is_important=True,
    ),
    LayerScore(
        "recovery",
        "recovery (nat-steps)",
        {"measure": RECOVERY, "metric": "area", "condition": "equal_damage", "variant": "layer"},
        UNDAMAGED,
        alternatives=tuple(
            {"condition": damage, "variant": trained}
            for damage, trained in itertools.product(("equal_damage", "noise_50", "reinitialize"), ("layer", "model"))
        ),
    ),
    LayerScore(
        "noise",
        "noise of half the weight norm",
        {"measure": MANIPULATION, "metric": DELTA_NLL, "condition": "noise", "strength": 0.5},
        NO_EFFECT,
        is_signed=True,
    ),
    _proxy("block_influence", "Block Influence", RANDOM_INIT),
    _proxy("angular", "angular distance", RANDOM_INIT, metric="angular_distance", distance=1),
    _proxy("gate_sensitivity", "gate sensitivity", RANDOM_INIT),
    _proxy("gate_gradient", "gate gradient", NO_EFFECT),
    LayerScore("norm", "weight norm", {"measure": DELTAS, "metric": "norm"}, RANDOM_INIT, is_compared=False),
    LayerScore(
        "effective_rank",
        "effective rank",
        {"measure": DELTAS, "metric": "effective_rank"},
        RANDOM_INIT,
        is_compared=False,
    ),
)
"""All scores but the effect of skipping, in the order of the table and of the rank correlations."""


def read_importance(scores: Iterable[Score]) -> dict[str, dict[int, float]]:
    """Return the importance of each layer according to each score, from the rows of a diagnosis.

    >>> read_importance([Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([0.3, 0.1])])
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows, importance = Rows(scores), {}
    for score in (SKIP_EFFECT, *(score for score in LAYER_SCORES if score.is_compared)):
        own = next((selected for columns in score.alternatives if (selected := score.select(rows, **columns))), Rows())
        values = {row.layer: row.value for row in own if row.layer is not None}
        if values:
            low = score.low_is_important
            importance[score.name] = {layer: 1 - values[layer] if low else values[layer] for layer in sorted(values)}
    return importance
