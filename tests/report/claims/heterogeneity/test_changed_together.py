"""Layers that are changed together, and how unlike they are: the claims in worlds where the answer is known.

Every world is one of documents (`report.claims.documents`), put through the measure that makes the rows of the claim.
"""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.measure.contrasts.accumulation import SCALE, SMALL, accumulation_rows, joint_manipulation_rows
from layerwise.measure.contrasts.importance_range import importance_range_rows
from layerwise.measure.contrasts.joint_collapse import joint_collapse_rows
from layerwise.measure.contrasts.redundant_sets import redundant_sets, redundant_sets_rows
from layerwise.measure.contrasts.scaling import scaling_rows
from layerwise.results.rows import PlanRecord
from report.claims.documents import part
from report.claims.truths import NOT_SO, Truth, claim_of, concluded, printed, seldom, share, tells

SUPPORTED, NULL, CONTRADICTED, OPEN = "supported", "explained by the null", "contradicted", "not resolvable"
DEPTH = 12
REST = (0.03, 0.02, 0.02, 0.015, 0.025, 0.02, 0.02)


def unlike(*effects: float, noise: float = 0.01, documents: int = 20, skew: float = 0.5) -> Truth:
    """Single layers that cost so much."""
    return lambda run: importance_range_rows(
        part(effects, run, documents=documents, noise=noise, skew=skew), seed=run, resamples=300
    )


def collapsed(joint: float, single: float, random: float, *, noise: float = 0.1, documents: int = 20) -> Truth:
    """Four predicted layers cost `joint` together and `single` one by one; random errors cost `random` together."""
    arms = [joint, random, *[single] * 4]
    return lambda run: joint_collapse_rows(part(arms, run, documents=documents, noise=noise), seed=run, resamples=300)


def dropped(joint: float, random: float, *, noise: float = 0.02, documents: int = 16) -> Truth:
    """The chosen three layers cost `joint`; random sets cost `random` at the mean, each its own."""
    return lambda run: redundant_sets_rows(
        part(
            [joint, *np.random.default_rng([run, 7]).lognormal(-0.02, 0.2, 20) * random],
            run, documents=documents, noise=noise,
        ),
        3, 0.15, seed=run, resamples=300,
    )  # fmt: skip


def scaled(scale: float, equal: float, largest: float, *, noise: float = 0.01, documents: int = 16) -> Truth:
    """Scaling by 0.9 costs `scale`, the two others `equal` at that size and `largest` at the size of the weights."""
    arms = {f"{layer}=scale:0.1": scale for layer in range(6)}
    for name in ("noise", "copy"):
        for layer in range(6):
            arms |= {f"{layer}={name}:0.1": equal, f"{layer}={name}:1": largest}
    return lambda run: scaling_rows(
        part(list(arms.values()), run, documents=documents, noise=noise), list(arms), seed=run, resamples=200
    )


def predicted(joint: float, single: float, *, noise: float = 0.1, documents: int = 40) -> Truth:
    """Four predicted layers cost `joint` together and `single` one by one; random errors add up."""
    arms = [joint, *[single] * 4, 4 * 0.3, *[0.3] * 4]
    return lambda run: accumulation_rows(
        part(arms, run, documents=documents, noise=noise), {"condition": "set", "amount": 4.0}, seed=run, resamples=300
    )


def manipulated(scale: float, rivals: float, *, largest: float = 6.0, noise: float = 0.02) -> Truth:
    """Three layers cost `scale` under scaling and `rivals` under two other strategies of its size."""
    joint = [(SCALE, SMALL), (SCALE, 1.0), ("noise", SMALL), ("noise", 1.0), ("copy", SMALL), ("copy", 1.0)]
    costs = [scale, largest, rivals, largest, rivals, largest]
    arms = [*costs, *(cost / 3 for cost in costs for _ in range(3))]
    return lambda run: joint_manipulation_rows(
        part(arms, run, documents=20, noise=noise), joint, 3, seed=run, resamples=300
    )


WORLDS = [
    ("importance_range", unlike(6.0, *REST, noise=0.005, skew=0.2), SUPPORTED),
    ("importance_range", unlike(3.0, 0.5, 0.3, 0.2, 0.2, 0.2, 0.0, 0.0, noise=0.001), NULL),
    ("importance_range", unlike(1.0, 0.5, 0.3, 0.2, 0.2, 0.15, 0.1), CONTRADICTED),
    ("joint_collapse", collapsed(8.0, 0.15, 0.5), SUPPORTED),
    ("joint_collapse", collapsed(8.0, 1.9, 0.5), NULL),  # they add up
    ("joint_collapse", collapsed(8.0, 0.15, 8.0), NULL),  # any error of that size
    ("joint_collapse", collapsed(8.0, 0.15, 9.0), NULL),
    ("joint_collapse", collapsed(0.3, 0.15, 0.1), CONTRADICTED),
    ("redundant_sets", dropped(0.1, 2.0), SUPPORTED),
    ("redundant_sets", dropped(0.1, 0.1), NULL),
    ("redundant_sets", dropped(0.6, 2.0), CONTRADICTED),
    ("redundant_sets", dropped(0.6, 0.6), CONTRADICTED),
    ("scaling", scaled(0.05, 0.15, 3.0), SUPPORTED),
    ("scaling", scaled(0.05, 0.05, 3.0), NULL),
    ("scaling", scaled(0.2, 0.1, 0.1), CONTRADICTED),
    ("error_accumulation", predicted(4.0, 0.3), SUPPORTED),  # super-additive
    ("error_accumulation", predicted(1.2, 0.3), NULL),  # additive
    ("error_accumulation", predicted(4.0, 1.0), NULL),
    ("error_accumulation", predicted(1.2, 0.6), CONTRADICTED),  # together they do less
    ("joint_manipulation", manipulated(0.05, 0.5), SUPPORTED),
    ("joint_manipulation", manipulated(0.05, 0.05), NULL),  # at equal size all are as mild
    pytest.param("joint_manipulation", manipulated(0.8, 0.8), CONTRADICTED, marks=pytest.mark.nightly),
    pytest.param("joint_manipulation", manipulated(0.05, 0.05, largest=0.06), CONTRADICTED, marks=pytest.mark.nightly),
]
TOO_LITTLE = [
    ("importance_range", unlike(6.0, *REST, noise=0.3, documents=8), "contradicted, explained by the null"),
    ("joint_collapse", collapsed(1.5, 0.15, 0.5, noise=4.0, documents=8), NOT_SO),
    ("redundant_sets", dropped(0.1, 2.0, noise=1.0, documents=8), NOT_SO),
    ("scaling", scaled(0.05, 0.15, 3.0, noise=2.0, documents=8), NOT_SO),
    ("error_accumulation", predicted(1.8, 0.3, noise=2.0, documents=8), NOT_SO),
]
EDGES = [
    *(("importance_range", unlike(2.0, *[0.02] * 6, documents=documents, skew=skew), SUPPORTED, NOT_SO)
      for documents in (8, 16) for skew in (0.2, 0.5)),
    *(("joint_collapse", collapsed(1.0, 0.02, 0.05, documents=documents, noise=0.3), SUPPORTED, CONTRADICTED)
      for documents in (10, 20)),
    # A null that leaves a quarter of the damage does not explain it; one that leaves nothing does not support it.
    *(("joint_collapse", collapsed(8.0, single, random, noise=1.0, documents=10), NOT_SO)
      for single, random in ((1.5, 0.5), (0.15, 6.0))),
    ("joint_collapse", collapsed(8.0, 2.0, 0.5, noise=1.5, documents=10), SUPPORTED),
    *(("redundant_sets", dropped(0.2, 2.0, documents=documents, noise=0.1), "supported, explained by the null",
       CONTRADICTED) for documents in (8, 16)),
    ("redundant_sets", dropped(0.1, 0.1, noise=0.05), SUPPORTED),
    ("redundant_sets", dropped(0.1, 0.15, noise=0.05), NULL),
    *(("scaling", scaled(0.05, equal, 3.0, noise=noise, documents=10), NOT_SO)
      for equal in (0.06, 0.07) for noise in (0.02, 0.1)),
    ("scaling", scaled(0.05, 0.05, 3.0, noise=0.2, documents=10), SUPPORTED),
]  # fmt: skip


@pytest.mark.simulated
@pytest.mark.parametrize(("rule", "truth", "right"), WORLDS)
def test_each_world_is_told(rule: str, truth: Truth, right: str) -> None:
    tells(rule, truth, DEPTH, right, 0.95)


@pytest.mark.simulated
@pytest.mark.parametrize(("rule", "truth", "wrong"), TOO_LITTLE)
def test_too_little_text_says_so(rule: str, truth: Truth, wrong: str) -> None:
    told = concluded(rule, truth, DEPTH)
    assert share(told, OPEN) > 0.5
    assert share(told, *wrong.split(", ")) <= 0.05, told
    assert any("would decide" in claim_of(rule, truth(run), DEPTH).why for run in range(5))


@pytest.mark.nightly
@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: str(edge[0]))
def test_at_a_bar_neither_side_is_claimed_too_often(edge: tuple[str, Truth, str]) -> None:
    rule, truth, *wrong = edge
    seldom(rule, truth, DEPTH, *wrong)


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    largest = 2.0 * 10 ** printed(unlike(2.0, *[0.02] * 6, noise=0.02), "range")
    tells("importance_range", unlike(largest, *[0.02] * 6, noise=0.02), DEPTH, SUPPORTED)
    joint = printed(dropped(0.1, 2.0, noise=0.15), "joint")
    tells("redundant_sets", dropped(0.2 - joint, 2.0, noise=0.15), DEPTH, SUPPORTED)
    equal = printed(scaled(0.05, 0.1, 3.0, noise=0.15), "equal:noise")
    tells("scaling", scaled(0.05, 0.05 + equal, 3.0, noise=0.15), DEPTH, SUPPORTED)


@pytest.mark.nightly
def test_shares_as_large_as_the_printed_ones_are_found() -> None:
    """The larger of the two resolutions of a collapse is printed, and both nulls leave that much."""
    left = 4.0
    for _ in range(3):
        truth = collapsed(8.0, left / 4, left, noise=2.5)
        left = 8.0 * (1 - max(0.2, printed(truth, "beyond_singles"), printed(truth, "beyond_noise")))
    tells("joint_collapse", collapsed(8.0, left / 4, left, noise=2.5), DEPTH, SUPPORTED)
    left = 0.5
    for _ in range(3):
        left = min(0.9, max(0.2, printed(predicted(1.2 / (1 - left), 0.3, noise=1.0), "share")))
    tells("error_accumulation", predicted(1.2 / (1 - left), 0.3, noise=1.0), DEPTH, SUPPORTED)


def test_the_figures_hold_joint_and_single_costs_and_the_null() -> None:
    rows = [*predicted(4.0, 0.3, noise=0.0)(0), *manipulated(0.05, 0.5, noise=0.0)(0)]
    figures = claim_of("error_accumulation", rows, DEPTH).figures
    assert figures.startswith("4 predicted layers cost +")
    assert all(words in figures for words in ("one by one", "of random errors of the same norm a share of"))
    assert "of manipulated layers" in figures
    assert "one by one" in claim_of("joint_manipulation", rows, DEPTH).figures


def test_without_a_set_or_a_rival_there_are_no_rows() -> None:
    assert scaling_rows(part([0.1, 3.0, 0.1], 0), ["0=scale:0.1", "0=noise:1", "0=gate:0.9"], seed=0) == []
    ranking = {0: 4.0, 1: 0.05, 2: 0.05, 3: 0.05, 4: 1.0, 5: 2.0}
    sets = [("skip", 3, 1), ("random", 3, 20), ("skip", 1, 1)]
    listed = [
        PlanRecord(f"{strategy}{size}-{number}", "pruning", strategy, size, number, 1, 1, 1, 1)
        for strategy, size, count in sets
        for number in range(count)
    ]
    assert redundant_sets([], "0-5", [], ranking, seed=0) == redundant_sets([], "0-5", listed, ranking, seed=0) == []
