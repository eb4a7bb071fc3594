"""The claims that five metrics agree and that recovery follows importance, in simulated worlds."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from layerwise.measure.recovery.recovery import LayerRecovery, associations
from layerwise.results.rows import Score
from layerwise.studies.diagnose.agreement import PUBLISHED, layer_metrics, skip_agreement
from layerwise.studies.diagnose.agreement import published_agreement as rows_of
from page.claims.truths import CONTRADICTED, NOT_SO, NULL, SUPPORTED, claim_of, seldom, simulated

DAMAGE = ("skip", "recovery", "noise")
OTHERS = ("predictability", "block_influence")


def agreeing(layers: int, shared: float, damage: float = 0.0) -> Callable[[int], Iterable[Score]]:
    """Metrics share a part `shared` of their variance, damage metrics a further `damage`; all are heavy-tailed."""

    def truth(run: int) -> Iterable[Score]:
        draw = np.random.default_rng([run, layers])
        common, hurt = draw.normal(size=(2, layers))
        metrics = {}
        for name in (*DAMAGE, *OTHERS):
            part = damage if name in DAMAGE else 0.0
            own = (1 - shared - part) ** 0.5 * draw.normal(size=layers)
            values = np.exp(shared**0.5 * common + part**0.5 * hurt + own)
            metrics[name] = {layer: float(value) for layer, value in enumerate(values)}
        return rows_of(metrics, seed=run)

    return truth


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


test_each_world_is_told = simulated(
    {
        "agreement": {
            SUPPORTED: (agreeing(30, 0.8),),
            NULL: (agreeing(80, 0.0, damage=0.9),),
            CONTRADICTED: (agreeing(80, 0.0),),
        },
        "recovery": {
            SUPPORTED: (recovering(24, 0.9),),
            NULL: (recovering(80, 0.0), recovering(80, -0.6)),
            CONTRADICTED: (recovering(80, 0.0, published=0.0), recovering(30, 0.0, published=-0.9)),
        },
    },
    least=0.95,
)
FEW = {
    "agreement": {NOT_SO: [agreeing(6, *shares) for shares in ((0.45, 0.3), (0.4, 0.5))]},
    "recovery": {
        NOT_SO: [recovering(layers, among) for layers, among in ((6, 0.8), (12, 0.8), (8, 0.3))],
        f"{NOT_SO}; {SUPPORTED}": [recovering(12, 0.0)],
    },
}
test_few_layers_are_too_few = seldom(FEW, nightly=False)


def test_few_layers_are_said_to_be_too_few() -> None:
    for rule, verdicts in FEW.items():
        for truth in (truth for worlds in verdicts.values() for truth in worlds):
            assert any("can be compared; about " in claim_of(rule, truth(run), 12).answer for run in range(20))


def importance(measure: str, metric: str, values: Iterable[float] = range(6), **columns: Any) -> list[Score]:
    return [Score(measure, metric, value, layer=layer, **columns) for layer, value in enumerate(values)]


def test_what_the_metrics_are_read_from() -> None:
    found = layer_metrics(
        [
            *importance("predictability", "heldout_rows_r2", range(0, -6, -1)),
            *importance("ablation", "skip"),
            *importance("ablation", "skip", range(6, 0, -1), part="attn"),
            *importance("ablation", "skip", range(6, 0, -1), task="prose"),
            *importance("recovery", "area", range(6, 0, -1), condition="noise_50", arm="layer"),
            *importance("recovery", "area", condition="equal_damage", arm="layer"),
            *importance("manipulation", "delta_nll", condition="noise", strength=0.5),
            *importance("proxies", "block_influence"),
            *importance("proxies", "angular_distance", range(6, 0, -1), distance=2),
        ]
    )
    assert tuple(found) == PUBLISHED
    assert found["predictability"][5] == 6.0, "what is hard to predict ranks high"
    told = {row.metric: row.value for row in rows_of(found, seed=0) if row.against is None}
    assert (told["together"], told["apart"]) == pytest.approx((1.0, 1.0))
    assert told["layers"] == 6


def test_a_metric_is_compared_with_skipping_over_the_layers_that_both_have() -> None:
    values = np.random.default_rng(0).normal(size=12).tolist()
    metrics = layer_metrics(
        [
            *importance("ablation", "skip", values),
            *importance("proxies", "block_influence", [2 * value + 1 for value in values])[7:],
            *importance("proxies", "gate_sensitivity", [-value for value in values]),
            *importance("proxies", "gate_gradient", values)[9:],
            *importance("proxies", "angular_distance", [1.0] * 12, distance=1),
        ]
    )
    rows = {(row.condition, row.against): row for row in skip_agreement(metrics)}
    assert {name for name, _ in rows} == {"block_influence", "gate_sensitivity"}, "the others are too few or constant"
    alike, opposite = rows["block_influence", None], rows["gate_sensitivity", None]
    assert (alike.value, alike.high) == (1.0, 1.0)
    assert alike.low < 1.0, "an order in common of few layers is no proof of one"
    assert (opposite.value, opposite.low) == (-1.0, -1.0)
    assert opposite.p < 0.001
    null = rows["gate_sensitivity", "shuffled_layers"]
    assert -1.0 < null.low < null.value == 0.0 < null.high < 1.0


def test_damage_alone_decides_nothing() -> None:
    assert rows_of({name: {layer: float(layer) for layer in range(12)} for name in DAMAGE}, seed=0) == []
    assert rows_of({}, seed=0) == []


def test_without_equal_damage_the_damage_is_held_fixed_and_older_rows_are_not_measured() -> None:
    rows = [row for row in recovering(30, 0.9)(3) if row.condition == "noise_50"]
    claim = claim_of("recovery", rows, 30)
    assert "with the initial damage held fixed" in claim.unit
    assert claim.verdict == "supported"
    old = [Score("recovery", "spearman", 0.9, 0.8, 0.95, condition="noise_50", arm="layer")]
    assert claim_of("recovery", old, 12).verdict == "not measured"
