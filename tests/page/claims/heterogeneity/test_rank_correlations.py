"""Recovery follows importance in simulated worlds, and rank correlations of metrics with skipping."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from layerwise.measure.layer_scores import read_importance
from layerwise.measure.recovery.recovery import LayerRecovery, associations
from layerwise.results.rows import Score
from layerwise.studies.diagnose.contrasts import correlate_with_skipping
from page.claims.truths import (
    CONTRADICTED,
    NULL,
    NULL_OR_CONTRADICTED,
    SUPPORTED,
    judge_rows,
    make_rare_test,
    make_simulated_test,
)


def recovering(layers: int, among: float, published: float = 0.9, idle: int = 0) -> Callable[[int], Iterable[Score]]:
    """Rank correlations with the effect: of recovery `among`, of damage `published`; noise spares `idle` layers."""

    def truth(run: int) -> Iterable[Score]:
        draw = np.random.default_rng([run, layers])
        importance = draw.normal(size=layers)
        effects = [
            Score("ablation", "skip", float(np.exp(2 * each)), layer=layer) for layer, each in enumerate(importance)
        ]
        damage = np.exp(_related(importance, published, draw))
        slow = np.exp(_related(importance, among, draw))
        undamaged = set(np.argsort(importance)[:idle].tolist())
        noisy = [
            LayerRecovery(layer, damaged=False)
            if layer in undamaged
            else LayerRecovery(layer, float(damage[layer]), float(damage[layer] * slow[layer] ** 0.2))
            for layer in range(layers)
        ]
        equal = [LayerRecovery(layer, 0.1, float(slow[layer])) for layer in range(layers)]
        yield from associations(("noise_50", "layer"), noisy, effects, run, shuffles=20)
        yield from associations(("equal_damage", "layer"), equal, effects, run, shuffles=20)

    return truth


def _related(importance: np.ndarray, rank_correlation: float, draw: np.random.Generator) -> np.ndarray:
    pearson = 2 * math.sin(math.pi * rank_correlation / 6)
    return pearson * importance + math.sqrt(1 - pearson**2) * draw.normal(size=len(importance))


test_planted_correlations_are_found_in_most_runs = make_simulated_test(
    {
        "recovery": {
            SUPPORTED: (recovering(24, 0.9),),
            NULL: (recovering(80, 0.0), recovering(80, -0.6)),
            CONTRADICTED: (recovering(80, 0.0, published=0.0), recovering(30, 0.0, published=-0.9)),
        },
    },
    least=0.95,
)
FEW = {
    "recovery": {
        NULL_OR_CONTRADICTED: [recovering(layers, among) for layers, among in ((6, 0.8), (12, 0.8), (8, 0.3))],
        f"{NULL_OR_CONTRADICTED}; {SUPPORTED}": [recovering(12, 0.0)],
    },
}
test_few_layers_decide_nothing = make_rare_test(FEW, nightly=False)


def test_an_inconclusive_answer_states_the_layers_that_would_decide() -> None:
    for rule, verdicts in FEW.items():
        for truth in (truth for worlds in verdicts.values() for truth in worlds):
            assert any("can be compared; about " in judge_rows(rule, truth(run), 12).answer for run in range(20))


def importance(measure: str, metric: str, values: Iterable[float] = range(6), **columns: Any) -> list[Score]:
    return [Score(measure, metric, value, layer=layer, **columns) for layer, value in enumerate(values)]


def test_metrics_are_read_from_the_rows_of_whole_layers() -> None:
    metrics = read_importance(
        [
            *importance("predictability", "heldout_rows_r2", range(0, -6, -1)),
            *importance("ablation", "skip"),
            *importance("ablation", "skip", range(6, 0, -1), part="attn"),
            *importance("ablation", "skip", range(6, 0, -1), task="prose"),
            *importance("recovery", "area", range(6, 0, -1), condition="noise_50", variant="layer"),
            *importance("recovery", "area", condition="equal_damage", variant="layer"),
            *importance("manipulation", "delta_nll", condition="noise", strength=0.5),
            *importance("proxies", "block_influence"),
            *importance("proxies", "angular_distance", range(6, 0, -1), distance=2),
        ]
    )
    assert tuple(metrics) == ("skip", "predictability", "recovery", "noise", "block_influence")
    assert metrics["predictability"][5] == 6.0, "layers that are hard to predict rank high"
    assert all(list(values) == list(range(6)) == sorted(values, key=values.get) for values in metrics.values())


def test_a_metric_is_compared_with_skipping_over_the_layers_that_both_have() -> None:
    values = np.random.default_rng(0).normal(size=12).tolist()
    metrics = read_importance(
        [
            *importance("ablation", "skip", values),
            *importance("proxies", "block_influence", [2 * value + 1 for value in values])[7:],
            *importance("proxies", "gate_sensitivity", [-value for value in values]),
            *importance("proxies", "gate_gradient", values)[9:],
            *importance("proxies", "angular_distance", [1.0] * 12, distance=1),
        ]
    )
    rows = {(row.condition, row.against): row for row in correlate_with_skipping(metrics)}
    assert {name for name, _ in rows} == {"block_influence", "gate_sensitivity"}, "the others are too few or constant"
    alike, opposite = rows["block_influence", None], rows["gate_sensitivity", None]
    assert (alike.value, alike.high) == (1.0, 1.0)
    assert alike.low < 1.0, "few layers in the same order prove little"
    assert (opposite.value, opposite.low) == (-1.0, -1.0)
    assert opposite.p < 0.001
    null = rows["gate_sensitivity", "shuffled_layers"]
    assert -1.0 < null.low < null.value == 0.0 < null.high < 1.0


def test_without_equal_damage_the_damage_is_held_fixed() -> None:
    rows = [row for row in recovering(30, 0.9)(3) if row.condition == "noise_50"]
    claim = judge_rows("recovery", rows, 30)
    assert claim.verdict == "supported"
    old = [Score("recovery", "spearman", 0.9, 0.8, 0.95, condition="noise_50", variant="layer")]
    assert judge_rows("recovery", old, 12).verdict == "not measured"
