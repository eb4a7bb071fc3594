"""Five metrics agree: what the claim says in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from layerwise.measure.contrasts.agreement import agreement as rows_of
from layerwise.measure.contrasts.agreement import published_metrics
from layerwise.results.rows import Score
from report.claims.truths import POWER, WRONG, claim_of, concluded, share

DAMAGE = ("ablation", "recovery", "manipulation")
OTHERS = ("predictability", "structure")


def world(layers: int, shared: float, damage: float = 0.0) -> Callable[[int], Iterable[Score]]:
    """All metrics share a part `shared` of their variance, the damage metrics a further part `damage`.

    Every metric is a monotone, heavy-tailed function of what it ranks by.
    """

    def truth(run: int) -> Iterable[Score]:
        draw = np.random.default_rng([run, layers])
        common, hurt = draw.normal(size=(2, layers))
        metrics = {}
        for name in (*DAMAGE, *OTHERS):
            part = damage if name in DAMAGE else 0.0
            own = (1 - shared - part) ** 0.5 * draw.normal(size=layers)
            values = np.exp(shared**0.5 * common + part**0.5 * hurt + own)
            metrics[name] = {layer: float(value) for layer, value in enumerate(values)}
        return rows_of(metrics, seed=run, shuffles=20)

    return truth


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (world(30, 0.8), "supported"),
        (world(80, 0.0, damage=0.9), "explained by the null"),
        (world(80, 0.0), "contradicted"),
    ],
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    assert share(concluded("agreement", truth, 60), right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
@pytest.mark.parametrize(("shared", "damage"), [(0.45, 0.3), (0.4, 0.5)])
def test_few_layers_are_too_few(shared: float, damage: float) -> None:
    told = concluded("agreement", world(6, shared, damage), 6)
    assert share(told, "explained by the null", "contradicted") <= WRONG
    assert any(
        "are too few to decide" in claim_of("agreement", world(6, shared, damage)(run), 6).why for run in range(20)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [6, 12, 24])
def test_no_agreement_apart_is_never_supported(layers: int) -> None:
    for damage in (0.0, 0.8):
        assert share(concluded("agreement", world(layers, 0.0, damage), layers), "supported") <= WRONG


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [12, 30])
def test_agreement_at_the_margin_is_rarely_called_none(layers: int) -> None:
    """A shared part of 0.32 of the variance is a rank correlation of about 0.31."""
    told = concluded("agreement", world(layers, 0.32, damage=0.4), layers)
    assert share(told, "explained by the null", "contradicted") <= WRONG


@pytest.mark.nightly
@pytest.mark.parametrize("layers", [12, 30])
def test_the_printed_resolution_is_found(layers: int) -> None:
    shared = 0.6
    for _ in range(3):
        rows = [row for run in range(20) for row in world(layers, shared)(run) if row.metric == "apart"]
        shared = max(0.3, float(np.mean([row.mde for row in rows if row.mde])))
    # The rank correlation of normal numbers is a little less than theirs.
    told = concluded("agreement", world(layers, 2 * np.sin(np.pi * shared / 6)), layers)
    assert share(told, "supported") >= POWER


def test_what_the_metrics_are_read_from() -> None:
    def rows(measure: str, metric: str, task: str = "all", sign: float = 1.0) -> list[Score]:
        return [Score(measure, str(layer), task, metric, sign * value) for layer, value in enumerate(range(6))]

    found = published_metrics(
        [
            *rows("predictability", "heldout_rows_r2", sign=-1.0),
            *rows("ablation", "skip"),
            *rows("recovery", "area", "equal_damage/layer"),
            *rows("manipulation", "noise:0.5"),
            *rows("proxies", "block_influence"),
        ]
    )
    assert list(found) == ["predictability", "ablation", "recovery", "manipulation", "structure"]
    assert found["predictability"][5] == 6.0, "what is hard to predict ranks high"
    told = {row.metric: row.value for row in rows_of(found, seed=0)}
    assert (told["together"], told["apart"]) == pytest.approx((1.0, 1.0))
    assert told["layers"] == 6


def test_damage_alone_decides_nothing() -> None:
    ranking = {layer: float(layer) for layer in range(12)}
    assert rows_of(dict.fromkeys(DAMAGE, ranking), seed=0) == []
    assert rows_of({}, seed=0) == []
    assert claim_of("agreement", [], 12).verdict == "not measured"
