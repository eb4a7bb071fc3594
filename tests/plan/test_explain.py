"""A plan in words."""

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.plan.explain import explain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-3", "layers 0 to 3, in order"),
        ("3-0", "layers 3 to 0, backwards"),
        ("5", "layer 5"),
        ("5 9", "layers 5, 9, in this order"),
        ("5*4", "layer 5, 4 times"),
        ("(5|6)", "layers 5, 6 in parallel, mean of the outputs"),
        ("(14|15|16|17)*3", "layers 14 to 17 in parallel, mean of the outputs, 3 times"),
        ("(5|9):sum", "layers 5, 9 in parallel, sum of the updates"),
        ("(5|9):gain=2.5", "layers 5, 9 in parallel, 2.5 x the mean of the updates"),
        ("(5 6|9)", "the branches 5 6 and 9 in parallel, mean of the outputs"),
        ("(5)", "layer 5"),
        ("(5):gain=0.5", "layer 5, with 0.5 x its update"),
        ("(5 6):gain=-1", "the branch 5 6, with -1 x its update"),
        ("[5-7]*2", "the block 5-7, 2 times"),
        ("5.attn", "the attn half of layer 5"),
        ("5.mlp*4", "the mlp half of layer 5, 4 times"),
        ("3-0.attn", "the attn halves of layers 3 to 0, backwards"),
        ("5.mlp 9.mlp", "the mlp halves of layers 5, 9, in this order"),
        ("5 9 5.mlp 7", "layers 5, 9, in this order\nthe mlp half of layer 5\nlayer 7"),
        ("(5.attn|9.attn)", "the attn halves of layers 5, 9 in parallel, mean of the outputs"),
        ("(5.attn|5.mlp):sum", "the branches 5.attn and 5.mlp in parallel, sum of the updates"),
        ("a:5", "layer 5 of a"),
        ("a:0-3 b:4-7", "layers 0 to 3 of a, in order\nlayers 4 to 7 of b, in order"),
        ("a:5 a:9 b:2 3", "layers 5, 9 of a, in this order\nlayer 2 of b\nlayer 3"),
        ("a:7-5.mlp", "the mlp halves of layers 7 to 5 of a, backwards"),
        ("a:5.attn*2", "the attn half of layer 5 of a, 2 times"),
        ("(a:5|a:6)", "layers 5, 6 of a in parallel, mean of the outputs"),
        ("(a:5|b:5)", "the branches a:5 and b:5 in parallel, mean of the outputs"),
        ("(5.mlp):gain=0.5", "the mlp half of layer 5, with 0.5 x its update"),
    ],
)
def test_each_stage_has_its_words(text: str, words: str) -> None:
    assert explain(Plan.parse(text)) == words


def test_the_lines_follow_the_plan() -> None:
    assert explain(Plan.parse("4 0-2 5 9 7*2 (1|2) 8"), depth=12).splitlines() == [
        "layer 4",
        "layers 0 to 2, in order",
        "layers 5, 9, in this order",
        "layer 7, 2 times",
        "layers 1, 2 in parallel, mean of the outputs",
        "layer 8",
        "never: layers 3, 6, 10, 11",
    ]


def test_halves_that_never_run_are_named_beside_the_layers() -> None:
    assert explain(Plan.parse("0-1 2.mlp 3.mlp (4.mlp|4) 5.attn 6.attn 6.mlp"), depth=8).splitlines()[-3:] == [
        "never: layer 7",
        "never: the attn halves of layers 2, 3",
        "never: the mlp half of layer 5",
    ]


def test_a_plan_that_uses_every_layer_leaves_none_out() -> None:
    assert explain(Plan.identity(4), depth=4) == "layers 0 to 3, in order"
    with pytest.raises(PlanError, match="a depth is"):
        explain(Plan.identity(4), depth=0)
