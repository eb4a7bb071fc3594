"""Only scaling survives: what the claim says in worlds where the answer is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from layerwise.measure.contrasts.scaling import scaling_rows
from layerwise.results.rows import Score
from report.claims.documents import part
from report.claims.truths import POWER, WRONG, claim_of, concluded, share

LAYERS = 6


def world(
    scale: float, equal: float, largest: float, *, noise: float = 0.01, documents: int = 16
) -> Callable[[int], Iterable[Score]]:
    """Scaling by 0.9 costs `scale`, the two others `equal` at that size and `largest` at the size of the weights."""
    arms = {f"{layer}=scale:0.1": scale for layer in range(LAYERS)}
    for name in ("noise", "copy"):
        for layer in range(LAYERS):
            arms |= {f"{layer}={name}:0.1": equal, f"{layer}={name}:1": largest}
    return lambda run: scaling_rows(
        part(list(arms.values()), run, documents=documents, noise=noise), list(arms), seed=run, resamples=200
    )


TRUE = world(0.05, 0.15, 3.0)
NULL = world(0.05, 0.05, 3.0)
FALSE = world(0.2, 0.1, 0.1)
UNDERPOWERED = world(0.05, 0.15, 3.0, noise=2.0, documents=8)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("truth", "right"), [(TRUE, "supported"), (NULL, "explained by the null"), (FALSE, "contradicted")]
)
def test_each_world_is_told(truth: Callable[[int], Iterable[Score]], right: str) -> None:
    told = concluded("scaling", truth, LAYERS)
    assert share(told, right) >= 1 - WRONG  # type: ignore[arg-type]


@pytest.mark.simulated
def test_too_little_text_says_so() -> None:
    told = concluded("scaling", UNDERPOWERED, LAYERS)
    assert share(told, "contradicted", "explained by the null") <= WRONG
    assert share(told, "not resolvable") > 0.5
    claim = claim_of("scaling", UNDERPOWERED(0), LAYERS)
    assert claim.why.endswith("would decide.")


@pytest.mark.nightly
@pytest.mark.parametrize("equal", [0.06, 0.07])
def test_a_difference_that_counts_is_never_called_none(equal: float) -> None:
    """At the margin, and a little above it, on few and noisy documents."""
    for noise in (0.02, 0.1):
        told = concluded("scaling", world(0.05, equal, 3.0, noise=noise, documents=10), LAYERS)
        assert share(told, "explained by the null", "contradicted") <= WRONG


@pytest.mark.nightly
def test_equal_strategies_are_never_supported() -> None:
    told = concluded("scaling", world(0.05, 0.05, 3.0, noise=0.2, documents=10), LAYERS)
    assert share(told, "supported") <= WRONG


@pytest.mark.nightly
def test_the_printed_resolution_is_found() -> None:
    noise = 0.15
    found = [score for run in range(40) for score in world(0.05, 0.1, 3.0, noise=noise)(run)]
    resolved = [score.mde for score in found if score.metric.startswith("equal:")]
    printed = sum(resolved) / len(resolved)
    told = concluded("scaling", world(0.05, 0.05 + printed, 3.0, noise=noise), LAYERS)
    assert share(told, "supported") >= POWER


def test_without_a_rival_at_one_size_nothing_is_measured() -> None:
    keys = ["0=scale:0.1", "0=noise:1", "0=gate:0.9"]
    assert scaling_rows(part([0.1, 3.0, 0.1], 0), keys, seed=0) == []
    assert claim_of("scaling", [], LAYERS).verdict == "not measured"
