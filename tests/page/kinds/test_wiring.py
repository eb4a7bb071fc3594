"""Pairs of layers without edges: the effect of a change compared with its null."""

from typing import Any

import pytest

from layerwise.page.sections import wiring as page
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EDGES, RANDOM
from page.planted import of


def rows(condition: str, p_adjusted: float) -> list[Score]:
    about: dict[str, Any] = {"condition": condition, "suite": "blimp", "variant": "elc", "seed": 1}
    return [
        Score(EDGES, "edges", 12.0, **about),
        Score(EDGES, "edges_of_model", 20.0, **about),
        Score(EDGES, "margin", -0.5, -0.7, -0.3, 0.001, p_adjusted, **about),
        Score(EDGES, "margin", -0.1, -0.2, 0.1, 0.04, against=RANDOM, **about),
        Score(EDGES, "margin", -0.9, -1.2, -0.6, 0.001, p_adjusted, task="ellipsis", **about),
        Score(EDGES, "margin", 0.1, -0.2, 0.4, 0.5, 0.9, task="binding", **about),
        Score(EDGES, "margin", 0.0, -0.1, 0.1, 1.0, task="ellipsis", against=RANDOM, **about),
    ]


@pytest.mark.parametrize(
    ("condition", "p_adjusted", "question", "answer"),
    [
        (
            "40%",
            0.049,
            "What does elc/1 lose on BLiMP without the weakest 40% of its edges?",
            "The margin changes by −0.500 nats [−0.700, −0.300] with 12 of 20 edges left; without as many random edges,"
            " it changes by −0.100 nats [−0.200, +0.100] (p = 0.040). 1 of 2"
            " phenomena change: ellipsis −0.90 nats [−1.20, −0.60].",
        ),
        (
            "3<-0",
            0.051,
            "What does elc/1 lose on BLiMP without the edges 3<-0?",
            "The margin changes by −0.500 nats [−0.700, −0.300] with 12 of 20 edges left, which is inconclusive;"
            " without as many random edges, it changes by −0.100 nats [−0.200, +0.100] (p = 0.040). 0 of 2"
            " phenomena change.",
        ),
    ],
)
def test_changes_are_judged_by_the_corrected_p_value(
    condition: str, p_adjusted: float, question: str, answer: str
) -> None:
    (finding,) = page.edge_findings(of(*rows(condition, p_adjusted)))
    assert (finding.question, finding.answer) == (question, answer)
    assert finding.verdict == ("supported" if p_adjusted < 0.05 else "inconclusive")
