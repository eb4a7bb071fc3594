"""Plans as values, what they cost and how they read in words."""

import copy
import itertools
from collections.abc import Callable

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Block, Group, Plan, Reduction, Visit
from layerwise.plan.explain import explain

ONE = Plan.of([0])


def test_a_plan_is_a_value() -> None:
    plan = Plan.parse("0-3 (4|5):gain=2*3 [6 7]*2")
    same = Plan.parse(" 0 1-3 (4 | 5):gain=2.0*3 [6-7]*2 ")
    assert plan == same
    assert len({plan, same}) == 1
    assert repr(plan) == "Plan('0-3 (4|5):gain=2*3 [6 7]*2')"
    assert copy.deepcopy(plan) == plan
    with pytest.raises(AttributeError):
        plan.stages = ()  # type: ignore[misc]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Plan(()), "must not be empty"),
    (lambda: Plan([Visit(0)]), "a tuple of Visit or Group or Block"),  # type: ignore[arg-type]
    (lambda: Visit(-1), "layer must be an integer from 0 to 9999"),
    (lambda: Visit(True), "layer must be an integer from 0 to 9999"),
    (lambda: Visit(1.0), "float"),  # type: ignore[arg-type]
    (lambda: Visit(10_000), "to 9999"),
    (lambda: Visit(10**5000), "more than 18 digits"),
    (lambda: Visit(0, 0), "a repeat count must be an integer of at least 1"),
    (lambda: Visit(0, 10_001), "a plan must run at most 10,000 layers in total"),
    (lambda: Visit(0, sublayer="atn"), r"unknown sublayer 'atn' \(str\)"),  # type: ignore[arg-type]
    (lambda: Visit(0, source="2a"), "a source name must be a letter followed by letters, digits, - or _,"),
    (lambda: Visit(0, source="a\n"), "a source name must be a letter followed by letters, digits, - or _,"),
    (lambda: Visit(0, source="a" * 41), "at most 40 characters"),
    (lambda: Group(()), "must not be empty"),
    (lambda: Group([ONE]), "a tuple of Plan"),  # type: ignore[arg-type]
    (lambda: Group((ONE,), "sum"), "such as Reduction"),  # type: ignore[arg-type]
    (lambda: Group((Plan((Visit(0, 6_000),)),) * 2), "a plan must run at most 10,000 layers in total"),
    (lambda: Block(Visit(0)), "the plan of a block must be a Plan"),  # type: ignore[arg-type]
    (lambda: Block(ONE, 10**30), "a plan must run at most 10,000 layers in total"),
    (lambda: Reduction("meen"), "did you mean mean"),  # type: ignore[arg-type]
    (lambda: Reduction(None), "unknown merge rule"),  # type: ignore[arg-type]
    (lambda: Reduction("mean", 1.0), "gain must be None for the rule mean"),
    (lambda: Reduction("gain", "2"), r"gain must be a number such as 0\.5"),  # type: ignore[arg-type]
    (lambda: Reduction("gain", float("nan")), "finite"),
    (lambda: Reduction("gain", 10**400), "finite"),
    (lambda: Plan.identity(0), "from 1 to"),
    (lambda: Plan.of([]), "must not be empty"),
    (lambda: Plan.of(3), "not iterable"),  # type: ignore[arg-type]
    (lambda: Plan.of([1.5]), "requires integers"),  # type: ignore[list-item]
    (lambda: Plan.of([True]), "bool"),
    (lambda: Plan.of(itertools.repeat(0)), "a plan must run at most 10,000 layers in total"),
    (lambda: ONE.check(0), "depth must be an integer number of layers from 1 to 10000"),
    (lambda: ONE.check(None), "depth must be an integer number of layers from 1 to 10000"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "reason"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_invalid_plans_are_refused_when_constructed(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        make()


def test_nesting_is_limited_for_values_too() -> None:
    plan = ONE
    for _ in range(50):
        plan = Plan((Block(plan),))
    assert plan.nesting == 50
    with pytest.raises(PlanError, match="groups and blocks must be nested at most 50 deep"):
        Block(plan)
    with pytest.raises(PlanError, match="groups and blocks must be nested at most 50 deep"):
        Group((ONE, plan))


@pytest.mark.parametrize(
    ("text", "depth", "step", "layer", "position"),
    [
        ("0-3 9", 6, 5, 9, 4),
        ("0 1*50 (2|40-38):gain=99", 30, 53, 40, 10),
        ("[0 30]*40", 30, 2, 30, 3),
        ("a:0-40", 30, 31, 30, 4),
        ("a-40:0 (b50:2|c:31)*40", 30, 3, 31, 16),
    ],
)
def test_a_model_names_the_step_it_cannot_run(text: str, depth: int, step: int, layer: int, position: int) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.parse(text).check(depth)
    assert caught.value.reason.startswith(f"step {step} of the plan visits layer {layer}, but the model has {depth}")
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "known", "reason", "position"),
    [
        ("0 a:1", (), "the plan takes layers from '.*', but no model has that name", 2),
        ("0 Q4_9:1", (), "did you mean Q4_1 or Q4_0", 2),
        ("first:0 (second:1|scond:2)", ("first", "second"), "did you mean second", 18),
        ("b-a:0 a:1", ("b-a",), "from 'a'", 6),
    ],
)
def test_a_source_that_is_not_there_is_named(text: str, known: tuple[str, ...], reason: str, position: int) -> None:
    plan = Plan.parse(text)
    plan.check(10)
    with pytest.raises(PlanError, match=reason) as caught:
        plan.check(10, known)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0-31", (32, 32, 32, 32)),
        ("0-13 15*4 18-31", (32, 32, 29, 32)),
        ("0-13 (14|15|16|17)*3 18-31", (40, 31, 32, 40)),
        ("(6 7|8 (9|10|11)*2|12)*2", (20, 6, 7, 20)),
        ("[0 (1|2)]*3", (9, 6, 3, 9)),
        ("0-11 12.mlp 13-29", (30, 30, 30, 30)),
        ("(2.attn|2.mlp):sum 3.mlp*2", (4, 3, 2, 4)),
        ("a:0-3 b:0-3 a:0 0", (10, 10, 9, 10)),
    ],
)
def test_a_plan_costs_its_evaluations_and_stages(text: str, cost: tuple[int, int, int, int]) -> None:
    found = Plan.parse(text).cost()
    assert (found.evaluations, found.stages, found.weights, found.slots) == cost


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-3", "layers 0 to 3, in order"),
        ("3-0", "layers 3 to 0, backwards"),
        ("5 9", "layers 5, 9, in this order"),
        ("(14|15|16|17)*3", "layers 14 to 17 in parallel, mean of the outputs, 3 times"),
        ("(5|9):sum", "layers 5, 9 in parallel, sum of the updates"),
        ("(5|9):gain=2.5", "layers 5, 9 in parallel, 2.5 x the mean of the updates"),
        ("(5 6|9)", "the branches 5 6 and 9 in parallel, mean of the outputs"),
        ("(5)", "layer 5"),
        ("(5 6):gain=-1", "the branch 5 6, with -1 x its update"),
        ("[5-7]*2", "the block 5-7, 2 times"),
        ("5.attn", "the attn sublayer of layer 5"),
        ("3-0.attn", "the attn sublayers of layers 3 to 0, backwards"),
        ("5.mlp 9.mlp", "the mlp sublayers of layers 5, 9, in this order"),
        ("5 9 5.mlp 7", "layers 5, 9, in this order\nthe mlp sublayer of layer 5\nlayer 7"),
        ("(5.attn|9.attn)", "the attn sublayers of layers 5, 9 in parallel, mean of the outputs"),
        ("(5.attn|5.mlp):sum", "the branches 5.attn and 5.mlp in parallel, sum of the updates"),
        ("a:5 a:9 b:2 3", "layers 5, 9 of a, in this order\nlayer 2 of b\nlayer 3"),
        ("a:7-5.mlp", "the mlp sublayers of layers 7 to 5 of a, backwards"),
        ("a:5.attn*2", "the attn sublayer of layer 5 of a, 2 times"),
        ("(a:5|b:5)", "the branches a:5 and b:5 in parallel, mean of the outputs"),
        ("(5.mlp):gain=0.5", "the mlp sublayer of layer 5, with 0.5 x its update"),
    ],
)
def test_each_stage_has_its_words(text: str, words: str) -> None:
    assert explain(Plan.parse(text)) == words


def test_what_never_runs_is_named() -> None:
    assert explain(Plan.parse("0-1 2.mlp 3.mlp (4.mlp|4) 5.attn 6.attn 6.mlp"), depth=8).splitlines()[-3:] == [
        "never: layer 7",
        "never: the attn sublayers of layers 2, 3",
        "never: the mlp sublayer of layer 5",
    ]

    assert explain(Plan.identity(4), depth=4) == "layers 0 to 3, in order"
    with pytest.raises(PlanError, match="depth must be an integer number of layers from 1 to 10000"):
        explain(Plan.identity(4), depth=0)
