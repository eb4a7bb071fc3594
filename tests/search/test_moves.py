"""Edits yield plans that a model can run, and change what they promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import OptionError
from layerwise.plan import Plan
from layerwise.search.moves import MOVES, cheaper, check_moves, neighbours, restored, stages

DEPTH = 6


@st.composite
def reached(draw: st.DrawFn) -> Plan:
    plan = Plan.identity(DEPTH)
    for _ in range(draw(st.integers(0, 4))):
        nearby = [*cheaper(plan, MOVES), *neighbours(plan, MOVES, DEPTH)]
        plan = draw(st.sampled_from([each for each in nearby if len(each.steps()) < 12]))
    return plan


@given(reached())
def test_every_move_leads_to_another_plan_that_the_model_can_run(plan: Plan) -> None:
    for each in {*cheaper(plan, MOVES), *neighbours(plan, MOVES, DEPTH)}:
        each.check(DEPTH)
        assert each != plan
        assert Plan.parse(str(each)) == each or str(Plan.parse(str(each))) == str(each)


@given(reached())
def test_stages_are_the_plan_unrolled(plan: Plan) -> None:
    assert Plan(stages(plan)).steps() == plan.steps()


def test_each_move_does_what_it_is_called() -> None:
    plan = Plan.parse("0-2")
    texts = {move: [str(each) for each in [*cheaper(plan, [move]), *neighbours(plan, [move], 3)]] for move in MOVES}
    assert texts["drop"] == ["1 2", "0 2", "0 1"]
    assert texts["halves"][:2] == ["0.mlp 1 2", "0.attn 1 2"]
    assert "0 1 1 2" in texts["repeat"]
    assert "0-2 0-2" in texts["repeat"]
    assert texts["damp"][:2] == ["(0):gain=0.25*2 1 2", "(0):gain=0.5*2 1 2"]
    assert texts["damp"][-1] == "(0-2):gain=0.5*2"
    assert texts["parallel"] == ["(0|1):sum 2", "0 (1|2):sum"]
    assert texts["reorder"] == ["1 0 2", "0 2 1"]


def test_runs_are_as_long_as_they_may_be() -> None:
    twice = neighbours(Plan.identity(DEPTH), ("repeat",), DEPTH, longest=DEPTH)
    assert len(twice) == DEPTH * (DEPTH + 1) // 2
    assert len(neighbours(Plan.identity(DEPTH), ("repeat",), DEPTH)) == len(twice) - 3  # two of 5 layers, one of 6
    assert len(neighbours(Plan.identity(DEPTH), ("damp",), DEPTH, longest=DEPTH)) == 2 * len(twice)


def test_layers_of_other_models_stand_in_and_go_back() -> None:
    plan = Plan.parse("0 b:1 Q4_0:2")
    around = {str(each) for each in neighbours(plan, (), 4, ("b", "c"))}
    assert around == {"b:0 b:1 Q4_0:2", "c:0 b:1 Q4_0:2", "0 1 Q4_0:2", "0 c:1 Q4_0:2"}


def test_what_was_left_out_comes_back_where_it_was() -> None:
    back = {str(Plan(each)) for each in restored(stages(Plan.parse("0 3.mlp 4")), 5, halves=True)}
    assert back == {
        "0 1 3.mlp 4",
        "0 1.attn 3.mlp 4",
        "0 1.mlp 3.mlp 4",
        "0 2 3.mlp 4",
        "0 2.attn 3.mlp 4",
        "0 2.mlp 3.mlp 4",
        "0 3 4",
    }


def test_moves_that_there_are_not_are_refused() -> None:
    assert check_moves(("halves", "drop")) == ("drop", "halves")
    with pytest.raises(OptionError, match="no move 'dropp'; did you mean drop"):
        check_moves(("dropp",))
    with pytest.raises(OptionError, match="a search needs moves"):
        check_moves(())
