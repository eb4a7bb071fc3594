"""Middle layers, over many simulated models and their untrained twins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from layerwise.measure.contrasts.contrast import Part
from layerwise.measure.contrasts.states import TWINS, log_ratio, middle_rows
from layerwise.results.rows import Score
from report.claims.truths import POWER, Truth, claim_of, concluded, ends_right, share

DEPTH = 12


def turned(
    run: int, ratio: float, untrained: float, *, documents: int = 40, noise: float = 0.3, spread: float = 0.05
) -> Iterator[Score]:
    """A model whose middle turns the state `ratio` times as far as its ends, and twins that do so by `untrained`."""
    generator = np.random.default_rng([run, 31])
    layers = np.full(DEPTH, 0.2)
    layers[3:9] *= ratio
    tokens = generator.integers(20, 200, documents).astype(float)
    # What a document does to one layer it does in part to all of them.
    drawn = np.exp(noise * (generator.normal(size=documents) + generator.normal(size=(DEPTH, documents))))
    part = Part(layers[:, None] * drawn * tokens, tokens, documents, int(tokens.sum()))
    twins = []
    for _ in range(TWINS):
        shape = np.ones(DEPTH)
        shape[3:9] *= untrained * np.exp(generator.normal() * spread)
        twins.append(float(log_ratio(shape)))
    yield from middle_rows(part, twins, seed=run)


TRUTHS: dict[str, tuple[Truth, set[str], str | None]] = {
    # Four times less than at the ends, where an untrained model's middle does as much as its ends.
    "true": (partial(turned, ratio=0.25, untrained=1.0), {"contradicted", "explained by the null"}, "supported"),
    "false": (partial(turned, ratio=1.5, untrained=1.0), {"supported", "explained by the null"}, "contradicted"),
    "false, alike": (partial(turned, ratio=1.0, untrained=1.0), {"supported", "explained by the null"}, "contradicted"),
    "null": (partial(turned, ratio=0.4, untrained=0.4), {"supported", "contradicted"}, "explained by the null"),
    "underpowered": (
        partial(turned, ratio=0.7, untrained=1.0, documents=9, noise=1.0),
        {"contradicted", "explained by the null"},
        None,
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", TRUTHS)
def test_middle_layers_are_judged_right(kind: str) -> None:
    truth, wrong, expected = TRUTHS[kind]
    ends_right("middle", truth, DEPTH, wrong, expected)


@pytest.mark.nightly
def test_a_difference_of_the_printed_resolution_is_found() -> None:
    limits = [
        score.mde or 0.0
        for run in range(20)
        for score in turned(run, 0.5, 0.7, noise=0.6)
        if score.metric == "beyond_twins"
    ]
    ratio = 0.7 * float(np.exp(-np.median(limits)))
    found = concluded("middle", partial(turned, ratio=ratio, untrained=0.7, noise=0.6), DEPTH)
    assert share(found, "supported") >= POWER


def test_what_is_not_there_is_not_judged() -> None:
    assert claim_of("middle", [], DEPTH).verdict == "not measured"
    alone = [score for score in turned(0, 0.25, 1.0) if score.metric == "log_ratio"]
    assert claim_of("middle", alone, DEPTH).verdict == "not resolvable"
    few = [score for score in turned(0, 0.25, 1.0, documents=5) if score.low is not None]
    assert few == []
