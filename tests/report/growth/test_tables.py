"""The tables of a growth run: the numbers of the rows, under the right heads."""

from __future__ import annotations

import pytest

from layerwise.report.growth.lookup import GrowthScores
from layerwise.report.growth.tables import arm_rows, cost_rows, difference_rows, learning, phase_rows, rate_rows
from layerwise.report.page.table import Table
from report import grown
from report.grown import row


@pytest.fixture(scope="module")
def found() -> GrowthScores:
    return GrowthScores.of(grown.scores(12))


def cell(rows: Table, name: str, head: str) -> str:
    return next(line for line in rows.body if line[0] == name)[rows.head.index(head)]


def test_every_table_is_rectangular(found: GrowthScores) -> None:
    for rows in (arm_rows(found), cost_rows(found), phase_rows(found), rate_rows(found), difference_rows(found)):
        assert {len(line) for line in rows.body} == {len(rows.head)}


def test_arms_have_their_loss_and_their_differences(found: GrowthScores) -> None:
    rows = arm_rows(found)
    assert cell(rows, "importance", "held-out loss (nats)") == "4.296 [4.276, 4.316]"
    assert cell(rows, "importance", "Δ at equal seconds") == "−0.0080 [−0.0210, +0.0050]"
    assert cell(rows, "uniform", "Δ at equal FLOPs") == "–"
    assert cell(rows, "stacking", "Δ at equal tokens") == "–"
    assert [line[0] for line in rows.body][-3:] == list(found.lengths)
    assert [line[0] for line in arm_rows(found, lengths=False).body] == list(found.arms)


def test_a_difference_says_where_it_was_taken_and_what_it_could_have_seen(found: GrowthScores) -> None:
    line = next(line for line in difference_rows(found).body if line[:2] == ("ramp - uniform", "at equal seconds"))
    assert line[2:] == ("46", "+0.0380 [+0.0220, +0.0540]", "0.010", "0.010", "0.0200")


def test_flops_are_also_a_share_of_those_of_uniform(found: GrowthScores) -> None:
    rows = cost_rows(found)
    assert cell(rows, "uniform", "FLOPs") == "3.10×10^13 [100.0 %]"
    assert cell(rows, "uniform@1.5", "FLOPs") == "4.65×10^13 [150.0 %]"
    assert cell(rows, "uniform", "step (ms)") == "75"
    assert cell(rows, "uniform", "tokens") == "2,457,600"


def test_costs_that_nobody_noted_have_no_column() -> None:
    rows = cost_rows(
        GrowthScores.of([row("held_out", "a/0", "test", "nll", 4.0), row("training", "a/0", "all", "steps", 9)])
    )
    assert rows == Table(("arm", "steps"), (("a", "9"),))


def test_a_phase_says_what_learns_and_how_far_its_time_is_off(found: GrowthScores) -> None:
    rows = phase_rows(found)
    line = next(line for line in rows.body if line[:2] == ("stacking", "shallow"))
    assert line[2:5] == ("0–249", "layers 0-3, embedding, head", "0.400")
    assert line[6] == "+4.5 %"


def test_layers_that_are_drawn_are_not_said_to_learn() -> None:
    assert learning({"0": 0.9, "1": 0.5, "head": 1.0}) == "layers at random, 0.70 of their full cost, head"
    assert learning({"0": 2 / 3, "1": 1 / 3, "2": 0.0}) == "nothing"
    assert learning({"0": 1.0, "2": 1.0}) == "layers 0 2"
