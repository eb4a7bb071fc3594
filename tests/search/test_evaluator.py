"""Plans evaluated in rounds give the sweep's numbers bit for bit, at the predicted cost."""

from collections import Counter

import pytest
import torch

from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion
from layerwise.plan import Plan
from layerwise.results.rows import Loss
from layerwise.search.cost import WorstCase
from layerwise.search.evaluator import GraphEvaluator
from layerwise.search.greedy import Space, greedy
from layerwise.search.one_shot import skip_effects
from layerwise.search.rungs import RungSettings, grown
from layerwise.stack import Stack
from measure.conftest import reading, stack

__all__ = ["reading", "stack"]

ROUNDS = [
    ("0-5", ["0-5", "1-5", "0 2-5", "0-2 4 5", "0-4"]),
    ("0 2-5", ["0 3-5", "0 2 3 5", "1-5", "0 2-4", "0 (2|3):sum 4 5", "0 2 3 4*2 5", "0 2-5"]),
    ("0 2 3 5", ["0 2.mlp 3 5", "5 2 3 0", "0 2 3", "1 2 3 5"]),
]


def plans(texts: list[str]) -> list[Plan]:
    return [Plan.parse(text) for text in texts]


def evaluated(evaluator: GraphEvaluator, rungs: int) -> dict[tuple[str, int], list[float]]:
    return {
        (text, rung): evaluator.evaluate(plans([text]), rung, Plan.parse("0-5"))[0].tolist()
        for rung in range(rungs)
        for _, texts in ROUNDS
        for text in texts
    }


@pytest.mark.parametrize("most_bytes", [1 << 30, 0])
def test_the_losses_are_those_of_the_sweep_whatever_is_held(stack: Stack, reading: EvalData, most_bytes: int) -> None:
    rungs = grown(reading, 0)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, rungs, sink=rows.extend, prefix="search/", most_bytes=most_bytes)
    for parent, texts in ROUNDS:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
    for data in rungs:
        for row in sweep(stack, [text for _, texts in ROUNDS for text in texts], data):
            same = [
                each for each in rows if (each.plan, each.document, each.window) == (row.plan, row.document, row.window)
            ]
            assert [each.nll for each in same] == [row.nll], row.plan
            assert same[0].task == f"search/{row.task}"


def test_nothing_is_evaluated_twice_and_stored_rows_stand_for_it(stack: Stack, reading: EvalData) -> None:
    rungs = grown(reading, 0)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, rungs, sink=rows.extend)
    for parent, texts in ROUNDS * 2:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
    counts = Counter((row.plan, row.task, row.document, row.window) for row in rows)
    assert set(counts.values()) == {1}
    again: list[Loss] = []
    resumed = GraphEvaluator(stack, rungs, sink=again.extend, known=rows)
    assert evaluated(resumed, len(rungs)) == evaluated(evaluator, len(rungs))
    assert again == []
    assert resumed.spent.layer_tokens == 0


def test_a_plan_that_has_not_read_all_of_the_text_has_no_rows(stack: Stack, reading: EvalData) -> None:
    order, windows = pieces(reading, fewest=1), len(reading.windows)
    rungs = [portion(reading, list(order)[start::2]) for start in (0, 1)]
    evaluator, (whole, other) = GraphEvaluator(stack, rungs), plans(["0-5", "1-5"])
    evaluator.evaluate([whole], 0, whole)
    read = len(rungs[0].windows)
    for plan, count in ((whole, read), (other, 0)):
        with pytest.raises(MeasureError, match=rf"losses of {plan} .* read {count} of {windows} windows: evaluate it"):
            evaluator.losses([plan])
    evaluator.evaluate([whole], 1, whole)
    assert sum(row.tokens for row in evaluator.losses([whole])) == sum(window.scored for window in reading.windows)


def test_what_a_round_costs_is_known_before_it_runs(stack: Stack, reading: EvalData) -> None:
    rungs = grown(reading, 0)
    evaluator = GraphEvaluator(stack, rungs)
    counted = WorstCase(evaluator.tokens, evaluator.batch_tokens)
    for parent, texts in ROUNDS:
        for rung in range(len(rungs)):
            evaluator.evaluate(plans(texts), rung, Plan.parse(parent))
            counted.evaluate(plans(texts), rung, Plan.parse(parent))
    assert evaluator.spent.layer_tokens == counted.spent.layer_tokens
    assert evaluator.spent.head_tokens == counted.spent.head_tokens


@pytest.mark.parametrize(("limit", "width"), [(2, 1), (3, 2), (4, 3)])
def test_no_search_costs_more_than_the_worst_case(stack: Stack, reading: EvalData, limit: int, width: int) -> None:
    rungs = grown(reading, 0)
    space = Space(6, ("drop",), lambda plan: float(len(plan.steps())), limit)
    evaluator = GraphEvaluator(stack, rungs)
    skip_effects(evaluator, space)
    list(greedy(evaluator, space, width=width))
    worst = WorstCase(evaluator.tokens, evaluator.batch_tokens)
    skip_effects(worst, space)
    list(greedy(worst, space, width=width, settings=RungSettings(alpha=0.0)))
    assert evaluator.spent.layer_tokens <= worst.spent.layer_tokens
    assert evaluator.spent.head_tokens <= worst.spent.head_tokens


def test_a_plan_whose_loss_is_not_finite_loses_to_every_other(
    stack: Stack, reading: EvalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = stack.apply

    def broken(layer: int, state: torch.Tensor, *rest: object) -> torch.Tensor:
        after = apply(layer, state, *rest)  # type: ignore[arg-type]
        return after * float("nan") if layer == 5 and state is not None and broken.on else after  # type: ignore[attr-defined]

    broken.on = False  # type: ignore[attr-defined]
    monkeypatch.setattr(stack, "apply", broken)
    rows: list[Loss] = []
    evaluator = GraphEvaluator(stack, [reading], sink=rows.extend)
    evaluator.evaluate(plans(["0-5"]), 0, Plan.parse("0-5"))
    broken.on = True  # type: ignore[attr-defined]
    worse = evaluator.evaluate(plans(["1-5", "0-4"]), 0, Plan.parse("0-5"))
    assert worse[0].min() > 1e5 > worse[1].max()
    assert "1-5" not in {row.plan for row in rows}
