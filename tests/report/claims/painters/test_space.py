"""The claim of a shared space on planted cosines: right verdicts, rarely a wrong one, and the power that is printed."""

from __future__ import annotations

import numpy as np
import pytest

from layerwise.measure.contrasts.space import Cosines, middle_states, same_space
from layerwise.measure.stats.statistics import Numbers
from layerwise.report.claims.painters import SIDES
from layerwise.report.claims.power import stretch
from layerwise.results.rows import Score
from report.claims.truths import POWER, WRONG, Truth, claim_of, concluded, share

DEPTH = 16
STATES = np.arange(DEPTH + 1)
DISTANCE = np.abs(STATES[:, None] - STATES)
INSIDE = np.isin(STATES, middle_states(DEPTH))
ZONE = np.outer(INSIDE, INSIDE).astype(float)
LATE = (STATES[:, None] + STATES) / (2 * DEPTH)
SUPPORTED, NULL, CONTRADICTED = "supported", "explained by the null", "contradicted"
MUCH = {"documents": 200, "spread": 0.05}
LITTLE = {"documents": 9, "spread": 0.5}


def cosines(cosine: Numbers, elsewhere: Numbers | float = 0.0, documents: int = 24, spread: float = 0.2) -> Truth:
    """The rows of the claim where documents differ in how marked their zones are, heavy-tailed, and in length."""

    def truth(run: int) -> list[Score]:
        draw = np.random.default_rng(run)
        tokens = np.round(draw.lognormal(4.0, 0.7, documents)) + 1
        tail = draw.standard_t(4, documents)[:, None, None]
        error = 0.02 * draw.standard_normal((documents, DEPTH + 1, DEPTH + 1))
        own = cosine + spread * tail * (ZONE - 0.5) + error
        other = np.broadcast_to(elsewhere, own.shape)
        weights = tokens[:, None, None]
        found = Cosines(weights * own, weights * other, tokens)
        return same_space(found, found, seed=run, resamples=200)

    return truth


WORLDS = [
    pytest.param(SUPPORTED, (0.3 + 0.5 * ZONE,), id="zones"),
    pytest.param(SUPPORTED, (0.9**DISTANCE * (0.5 + 0.5 * ZONE),), id="zones and distance"),
    pytest.param(NULL, (0.9**DISTANCE,), id="distance"),
    pytest.param(NULL, (0.9**DISTANCE - 0.4 * LATE,), id="distance and a trend"),
    pytest.param(NULL, (0.3 + 0.5 * ZONE, 0.5 * ZONE), id="shared with other documents"),
    pytest.param(CONTRADICTED, (np.full_like(ZONE, 0.8),), id="all alike"),
    pytest.param(CONTRADICTED, (0.8 - 0.3 * ZONE,), id="the middle less alike"),
]


@pytest.mark.parametrize(("kind", "world"), WORLDS)
def test_what_was_planted_is_found(kind: str, world: tuple[Numbers, ...]) -> None:
    claim = claim_of("same_space", cosines(*world, documents=200, spread=0.02)(0), DEPTH)
    assert claim.verdict == kind
    assert "tokens)" in claim.figures
    assert claim.why.endswith(".")
    assert claim.power.startswith("Of 100 such runs 80 would see ")


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [MUCH, {}, LITTLE], ids=["much", "some", "little"])
@pytest.mark.parametrize(("kind", "world"), WORLDS)
def test_no_verdict_is_wrong_in_more_than_five_of_a_hundred_runs(
    kind: str, world: tuple[Numbers, ...], settings: dict[str, float]
) -> None:
    counts = concluded("same_space", cosines(*world, **settings), DEPTH)  # type: ignore[arg-type]
    wrong = {verdict: share(counts, verdict) for verdict in (SUPPORTED, NULL, CONTRADICTED) if verdict != kind}
    assert max(wrong.values()) <= WRONG, counts
    if settings is MUCH:
        assert share(counts, kind) >= POWER, counts


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, {"documents": 10, "spread": 0.3}], ids=["some", "little"])
def test_what_is_printed_as_seen_is_seen(settings: dict[str, float]) -> None:
    pilot = [row for run in range(1000, 1060) for row in cosines(0.3 + 0.2 * ZONE, **settings)(run)]  # type: ignore[arg-type]
    sides = [[row.mde or 0.0 for row in pilot if row.metric == side] for side in SIDES]
    size = max(0.02, max(sum(found) / len(found) for found in sides) * stretch(len(sides)))
    counts = concluded("same_space", cosines(0.3 + size * ZONE, **settings), DEPTH)  # type: ignore[arg-type]
    assert share(counts, SUPPORTED) >= POWER, (size, counts)


def test_without_rows_or_without_intervals_nothing_is_decided() -> None:
    assert claim_of("same_space", [], DEPTH).verdict == "not measured"
    few = claim_of("same_space", cosines(0.3 + 0.5 * ZONE, documents=7)(0), DEPTH)
    assert few.verdict == "not resolvable"
    assert "fewer than 8 documents" in few.why
