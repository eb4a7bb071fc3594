"""A learned wiring on the page: what each edge is worth, what a cut leaves, and which phenomenon an edge carries.

What is said of a planted run is frozen in tests/golden/pretraining-planted.
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.report import render
from layerwise.report.kinds import wiring as page
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EDGE_PHENOMENA, EDGES, PRUNED
from report import planted
from report.planted import of


def test_cuts_that_are_not_told_apart_are_called_so() -> None:
    lost = Score(EDGES, "difference", 0.01, -0.01, 0.03, condition=PRUNED)
    spared = Score(EDGES, "less_than_by_size", 0.02, -0.01, 0.05, condition=PRUNED)
    (finding,) = page.edge_findings(of(lost, spared))
    assert finding.text.endswith("not distinguishable from cutting by size.")
    assert finding.state == "unresolved"


def test_models_of_one_run_are_told_apart() -> None:
    lost = Score(EDGES, "difference", 0.01, -0.01, 0.03, condition=PRUNED, arm="elc", seed=0)
    rows = (lost, replace(lost, seed=1))
    assert [each.question for each in page.edge_findings(of(*rows))] == [
        f"What does the sparse wiring lose (elc/{seed})?" for seed in (0, 1)
    ]
    assert [row.task for row in page.cuts(of(*rows))] == [f"elc/{seed} cut by measured effect" for seed in (0, 1)]


def test_only_the_two_half_of_the_pairs_that_did_not_choose_confirms() -> None:
    of_edge = {"layer": 1, "other": 0, "condition": "blimp", "task": "ellipsis"}
    effect = Score(EDGE_PHENOMENA, "effect", 0.5, 0.3, 0.7, 1e-6, p_adjusted=1e-6, **of_edge)
    fresh = Score(EDGE_PHENOMENA, "confirmed", 0.1, -0.2, 0.4, 0.5, p_adjusted=0.5, **of_edge)
    (finding,) = page.phenomenon_findings(of(effect, fresh))
    assert finding.text.startswith("0 effects of 1 edge times 1 phenomena confirmed")


def test_the_colour_of_a_dot_is_that_of_the_state_that_is_read() -> None:
    html = render(planted.only(planted.PRETRAINING, EDGES))
    assert '"#8d919c"' in html, "the embedding is grey"
