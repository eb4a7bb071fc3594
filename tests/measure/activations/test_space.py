import numpy as np
import pytest
import torch

from layerwise.measure.activations.similarity import DocumentCosines, SimilaritySums, middle_states, same_space
from layerwise.measure.stats.statistics import Numbers

DEPTH = 16
MIDDLE = middle_states(DEPTH)


def planted(cosine: Numbers, elsewhere: Numbers | float = 0.0, documents: int = 9) -> DocumentCosines:
    tokens = np.arange(1.0, documents + 1)
    other = np.broadcast_to(elsewhere, cosine.shape)
    return DocumentCosines(tokens[:, None, None] * cosine, tokens[:, None, None] * other, tokens)


def values(every: DocumentCosines, no_sink: DocumentCosines | None = None) -> dict[str, float]:
    return {row.metric: row.value for row in same_space(every, no_sink or every, resamples=20)}


def by_distance(decay: float) -> Numbers:
    positions = np.arange(DEPTH + 1)
    return np.asarray(decay ** np.abs(positions[:, None] - positions))


def zones(within: float, across: float) -> Numbers:
    inside = np.isin(np.arange(DEPTH + 1), MIDDLE)
    return np.where(np.outer(inside, inside), within, across)


def test_shared_space_is_seen_from_both_ends() -> None:
    found = values(planted(zones(0.9, 0.4)))
    assert found == pytest.approx({"published": 0.5, "beginning": 0.5, "ending": 0.5})


def test_cosine_of_other_documents_and_sinks_are_excluded() -> None:
    zone = zones(0.9, 0.4)
    assert values(planted(zone, elsewhere=zone))["beginning"] == pytest.approx(0.0)
    found = values(planted(zone), planted(by_distance(0.95)))
    assert found["published"] == pytest.approx(0.5)
    assert found["ending"] == pytest.approx(0.0)


def test_shallow_models_have_no_shared_space() -> None:
    shallow = DocumentCosines(np.ones((9, 8, 8)), np.zeros((9, 8, 8)), np.ones(9))
    assert same_space(shallow, shallow) == []


def test_sums_give_cosines_by_document_and_null() -> None:
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(5, 6, 4, generator=draw) + 1 for _ in range(DEPTH + 1)]
    sums = SimilaritySums()
    sums.add(states, torch.ones(5, 6, dtype=torch.bool), [f"{row}" for row in range(5)])
    rows = {(row.metric, f"{row.state},{row.to_state}"): row.value for row in sums.scores()}
    cosines = sums._every.by_document()
    for i, j in ((0, 0), (2, 9), (3, 4)):
        assert cosines.cosine.sum(axis=0)[i, j] / 30 == pytest.approx(rows["cosine", f"{i},{j}"])
        assert cosines.elsewhere.sum(axis=0)[i, j] / 30 == pytest.approx(rows["cosine_null", f"{i},{j}"])
    assert {row.metric for row in sums.contrasts()} == {"published", "beginning", "ending"}


def test_null_spread_is_that_of_a_mean_over_pairs() -> None:
    draw = torch.Generator().manual_seed(1)
    documents = 12
    center = torch.randn(documents, 1, 4, generator=draw)
    states = [torch.randn(documents, 3, 4, generator=draw) + 2 * center for _ in range(3)]

    def null(kept: list[int]) -> float:
        sums = SimilaritySums()
        sums.add([state[kept] for state in states], torch.ones(len(kept), 3, dtype=torch.bool), [f"{k}" for k in kept])
        return {(row.metric, f"{row.state},{row.to_state}"): row.value for row in sums.scores()}["cosine_null", "1,2"]

    without = np.array([null([k for k in range(documents) if k != left]) for left in range(documents)])
    jackknife = (documents - 1) ** 2 / documents * without.var(ddof=1)
    sums = SimilaritySums()
    sums.add(states, torch.ones(documents, 3, dtype=torch.bool), [f"{k}" for k in range(documents)])
    cosines = sums._every.by_document()
    own = cosines.elsewhere[:, 1, 2] / cosines.tokens
    assert own.var(ddof=1) / documents == pytest.approx(jackknife, rel=0.2)


def test_one_document_has_no_null() -> None:
    sums = SimilaritySums()
    sums.add([torch.ones(1, 6, 4) for _ in range(DEPTH + 1)], torch.ones(1, 6, dtype=torch.bool), ["only"])
    assert sums.contrasts() == []
