"""The claims on jointly changed layers and dissimilarity, in simulated worlds with known answers."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from layerwise.measure.contrasts.contrast import ArmEffects
from layerwise.measure.contrasts.layers import importance_range
from layerwise.results.rows import Score
from layerwise.studies.diagnose.joint import accumulation, random_sets, redundant_sets, scaling
from page.claims import truths
from page.claims.documents import part
from page.claims.truths import CONTRADICTED, NULL, SUPPORTED, Truth

DEPTH = 12
REST = (0.03, 0.02, 0.02, 0.015, 0.025, 0.02, 0.02)


RANKING = {0: 4.0, 1: 0.05, 2: 0.05, 3: 0.05, 4: 1.0, 5: 2.0}  # three cost little

SETS = [f"random-{number}" for number in range(20)]


def planted(costs: Sequence[float], run: int, keys: Sequence[str] = (), resamples: int = 300, **how: Any) -> ArmEffects:
    return ArmEffects(tuple(keys), lambda asked: part(costs, run, **how), run, resamples)


def unlike(*effects: float, noise: float = 0.01, documents: int = 20, skew: float = 0.5) -> Truth:
    keys = [f"{layer}=skip" for layer in range(len(effects))]
    return lambda run: importance_range(planted(effects, run, documents=documents, noise=noise, skew=skew), keys)


def dropped(joint: float, random: float, *, noise: float = 0.02, documents: int = 16) -> Truth:
    def world(run: int) -> list[Score]:
        arms = [joint, *np.random.default_rng([run, 7]).lognormal(-0.02, 0.2, 20) * random]
        return redundant_sets(planted(arms, run, documents=documents, noise=noise), "chosen", SETS, RANKING, 3)

    return world


def scaled(scale: float, equal: float, largest: float, *, noise: float = 0.01, documents: int = 16) -> Truth:
    arms = {f"{layer}=scale:0.1": scale for layer in range(6)}
    for name in ("noise", "copy"):
        for layer in range(6):
            arms |= {f"{layer}={name}:0.1": equal, f"{layer}={name}:1": largest}
    how: dict[str, Any] = {"documents": documents, "noise": noise, "keys": list(arms), "resamples": 200}
    return lambda run: scaling(planted(list(arms.values()), run, **how))


def predicted(joint: float, single: float, *, noise: float = 0.1, documents: int = 40) -> Truth:
    arms = [joint, *[single] * 4, 4 * 0.3, *[0.3] * 4]
    return lambda run: accumulation(planted(arms, run, documents=documents, noise=noise), {"set:4": range(4)})


test_each_world_is_told = truths.simulated(
    {
        "importance_range": {
            SUPPORTED: (unlike(6.0, *REST, noise=0.005, skew=0.2),),
            NULL: (unlike(3.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.0, 0.0, noise=0.001),),
            CONTRADICTED: (unlike(1.0, 0.5, 0.3, 0.2, 0.2, 0.15, 0.1),),
        },
        "redundant_sets": {
            SUPPORTED: (dropped(0.1, 2.0),),
            NULL: (dropped(0.1, 0.1),),
            CONTRADICTED: (dropped(0.6, 2.0), dropped(0.6, 0.6)),
        },
        "scaling": {
            SUPPORTED: (scaled(0.05, 0.15, 3.0),),
            NULL: (scaled(0.05, 0.05, 3.0),),
            CONTRADICTED: (scaled(0.2, 0.1, 0.1),),
        },
        "error_accumulation": {
            SUPPORTED: (predicted(4.0, 0.3),),
            NULL: (predicted(1.2, 0.3), predicted(4.0, 1.0)),  # additive
            CONTRADICTED: (predicted(1.2, 0.6),),  # together they do less
        },
    },
    least=0.95,
)
TOO_LITTLE = {
    "importance_range": unlike(6.0, *REST, noise=0.3, documents=8),
    "redundant_sets": dropped(0.1, 2.0, noise=1.0, documents=8),
    "scaling": scaled(0.05, 0.15, 3.0, noise=2.0, documents=8),
    "error_accumulation": predicted(1.8, 0.3, noise=2.0, documents=8),
}


@pytest.mark.parametrize("rule", TOO_LITTLE)
def test_too_little_text_is_said_to_be_so(rule: str) -> None:
    assert any("would decide" in truths.claim_of(rule, TOO_LITTLE[rule](run), DEPTH).answer for run in range(5))


def test_without_a_set_or_a_rival_there_are_no_rows() -> None:
    keys = ["0=scale:0.1", "0=noise:1", "0=gate:0.9"]
    assert scaling(planted([0.1, 3.0], 0, keys=keys)) == []
    assert redundant_sets(ArmEffects.of([], "0-5", seed=0), "0 4 5", SETS, RANKING, 3) == []


def test_random_sets_are_distinct_and_drawn_from_the_seed() -> None:
    drawn = random_sets(12, 4, seed=0)
    assert len(drawn) == len(set(drawn)) == 20
    assert all(len(set(layers)) == 4 and list(layers) == sorted(layers) for layers in drawn)
    assert drawn == random_sets(12, 4, seed=0) != random_sets(12, 4, seed=1)
    assert random_sets(6, 3, seed=0) == list(itertools.combinations(range(6), 3))
