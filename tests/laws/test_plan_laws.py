"""The text, steps, cost, wiring and edits of random plans agree with independent definitions."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws.plans import ANY_GAIN, DEPTH, SOURCES, plans
from laws.symbolic import INPUT, Computations, run_steps, run_tree
from layerwise.errors import PlanError
from layerwise.plan import SUBLAYERS, Block, Group, Plan, Reduction, Sublayer, Visit, edits

State = list[float]


@given(plans(gains=ANY_GAIN))
def test_text_and_plan_are_inverse(plan: Plan) -> None:
    assert Plan.parse(str(plan)) == plan
    assert str(Plan.parse(str(plan))) == str(plan)


@given(plans(most_steps=6, depth=3), plans(most_steps=6, depth=3))
def test_plans_are_equal_exactly_when_their_texts_are(one: Plan, other: Plan) -> None:
    assert (one == other) == (str(one) == str(other))
    assert one != other or hash(one) == hash(other)


@given(plans())
def test_the_steps_compute_what_the_stages_say(plan: Plan) -> None:
    seen = Computations()
    assert run_steps(plan.steps(), INPUT, seen) == run_tree(plan, INPUT, seen)


@given(plans())
def test_the_cost_counts_the_executed_visits(plan: Plan) -> None:
    seen = Computations()
    cost = plan.cost()
    assert cost.evaluations == cost.slots == len(plan.steps()) == len(plan.order())
    assert plan.weights() == {(step.source, step.layer) for step in plan.steps()}
    assert cost.weights == len(plan.weights()) >= len(plan.layers()) == len(set(plan.order()))
    assert cost.stages == seen.chains[run_tree(plan, INPUT, seen)]


@given(plans(), st.integers(1, DEPTH))
def test_check_accepts_exactly_the_models_that_have_the_layers(plan: Plan, depth: int) -> None:
    if max(plan.order()) < depth:
        plan.check(depth)
        return
    with pytest.raises(PlanError, match=f"but the model has {depth} layer") as caught:
        plan.check(depth)
    assert caught.value.text == str(plan)
    named = re.match(r"\d+", str(plan)[caught.value.position :])
    assert int(named[0]) >= depth


@given(plans(), st.sets(st.sampled_from(SOURCES)))
def test_check_accepts_exactly_the_sources_that_are_there(plan: Plan, known: set[str]) -> None:
    used = {step.source for step in plan.steps()} - {None}
    assert plan.sources() == used
    if used <= known:
        plan.check(DEPTH, known)
        return
    with pytest.raises(PlanError, match="but no model has that name") as caught:
        plan.check(DEPTH, known)
    named = re.match(r"([a-z][\w-]*):\d", str(plan)[caught.value.position :])
    assert named[1] in used - known


def run_coefficients(plan: Plan, state: State, inputs: list[State]) -> State:
    """Run on coefficients of the embedding and of what each step adds, and append the input of every step."""
    for stage in plan.stages:
        for _ in range(stage.times):
            match stage:
                case Visit():
                    inputs.append(state)
                    state = [value + (at == len(inputs)) for at, value in enumerate(state)]
                case Block():
                    state = run_coefficients(stage.plan, state, inputs)
                case Group():
                    state = merged(
                        stage.merge, state, [run_coefficients(each, state, inputs) for each in stage.branches]
                    )
    return state


def merged(merge: Reduction, base: State, outputs: list[State]) -> State:
    added = [sum(ends) - len(outputs) * start for start, *ends in zip(base, *outputs, strict=True)]
    factor = {"mean": 1 / len(outputs), "sum": 1.0, "gain": (merge.gain or 0.0) / len(outputs)}[merge.rule]
    return [start + factor * change for start, change in zip(base, added, strict=True)]


@given(plans(most_steps=40))
def test_the_wiring_gives_the_input_of_every_step(plan: Plan) -> None:
    inputs: list[State] = []
    output = run_coefficients(plan, [1.0] + [0.0] * plan.evaluations, inputs)
    for row, state in zip(plan.matrix(), [*inputs, output], strict=True):
        assert row == pytest.approx(state, abs=1e-9 * max(map(abs, state)))


@given(plans())
def test_the_wiring_is_lower_triangular_and_always_reads_the_embedding(plan: Plan) -> None:
    for number, row in enumerate(plan.matrix()):
        assert row[0] == 1.0
        assert not any(row[number + 1 :])


@given(plans(), st.data())
def test_a_gain_runs_from_the_mean_to_the_sum(plan: Plan, data: st.DataObject) -> None:
    start, stop = window(plan, data)
    count = stop - start
    assume(count > 1)
    with_merge = {rule: edits.parallel(plan, start, stop, rule) for rule in (Reduction("mean"), Reduction("sum"))}
    assert edits.parallel(plan, start, stop, Reduction("gain", 1)).matrix() == with_merge[Reduction("mean")].matrix()
    assert edits.parallel(plan, start, stop, Reduction("gain", count)).matrix() == with_merge[Reduction("sum")].matrix()


def window(plan: Plan, data: st.DataObject) -> tuple[int, int]:
    start = data.draw(st.integers(0, len(plan.stages) - 1))
    return start, data.draw(st.integers(start + 1, len(plan.stages)))


@given(plans(), st.data())
def test_skip_removes_every_visit_of_the_layers_and_no_other(plan: Plan, data: st.DataObject) -> None:
    assume(len(plan.layers()) > 2)
    first, second = data.draw(st.permutations(sorted(plan.layers())))[:2]
    rest = tuple(layer for layer in plan.order() if layer not in (first, second))
    skipped = edits.skip(plan, first, second)
    assert skipped.order() == rest
    assert skipped.weights() == {pair for pair in plan.weights() if pair[1] not in (first, second)}
    assert edits.skip(edits.skip(plan, first), second) == edits.skip(plan, second, first)


@given(plans(), st.data(), st.sampled_from(SUBLAYERS))
def test_without_branch_leaves_the_other_half_and_nothing_of_the_branch(
    plan: Plan, data: st.DataObject, part: Sublayer
) -> None:
    layer = data.draw(st.sampled_from(sorted(plan.layers())))
    (remaining,) = set(SUBLAYERS) - {part}
    names = [(step.layer, step.sublayer, step.source) for step in plan.steps()]
    rest = [
        (layer, remaining, name[2]) if name[:2] == (layer, None) else name
        for name in names
        if name[:2] != (layer, part)
    ]
    if rest == names or not rest:
        with pytest.raises(PlanError, match=rf"{layer}\.{part}"):
            edits.without_branch(plan, layer, part)
        return
    silenced = edits.without_branch(plan, layer, part)
    assert silenced.has_sublayers() == any(half is not None for _, half, _ in rest)
    assert [(step.layer, step.sublayer, step.source) for step in silenced.steps()] == rest
    if any(name[0] != layer for name in names) and any(name[:2] == (layer, remaining) for name in rest):
        assert edits.without_branch(silenced, layer, remaining) == edits.skip(plan, layer)


@given(plans(), st.data())
def test_swap_is_an_involution(plan: Plan, data: st.DataObject) -> None:
    first, second = (data.draw(st.sampled_from(sorted(plan.layers()))) for _ in range(2))
    exchanged = edits.swap(plan, first, second)
    names = {first: second, second: first}
    assert exchanged.order() == tuple(names.get(layer, layer) for layer in plan.order())
    assert [step.source for step in exchanged.steps()] == [step.source for step in plan.steps()]
    assert edits.swap(exchanged, first, second) == plan
    assert exchanged.cost() == plan.cost()


@given(plans(), st.data(), st.integers(0, DEPTH))
def test_replace_renames_a_layer(plan: Plan, data: st.DataObject, new: int) -> None:
    old = data.draw(st.sampled_from(sorted(plan.layers())))
    replaced = edits.replace(plan, old, new)
    assert replaced.order() == tuple(new if layer == old else layer for layer in plan.order())
    assert edits.replace(plan, old, old) == plan


@given(plans(), st.data())
def test_reverse_twice_is_nothing(plan: Plan, data: st.DataObject) -> None:
    start, stop = window(plan, data)
    there = edits.reverse(plan, start, stop)
    assert there.stages[start:stop] == plan.stages[start:stop][::-1]
    assert edits.reverse(there, start, stop) == plan
    assert there.cost() == plan.cost()


@given(plans(), st.data(), st.integers())
def test_shuffle_keeps_the_stages_and_the_rest(plan: Plan, data: st.DataObject, seed: int) -> None:
    start, stop = window(plan, data)
    drawn = edits.shuffle(plan, start, stop, seed)
    assert drawn == edits.shuffle(plan, start, stop, seed)
    assert sorted(map(repr, drawn.stages)) == sorted(map(repr, plan.stages))
    assert drawn.stages[:start] + drawn.stages[stop:] == plan.stages[:start] + plan.stages[stop:]


@given(plans(), st.data())
def test_move_is_undone_by_the_way_back(plan: Plan, data: st.DataObject) -> None:
    source, target = (data.draw(st.integers(0, len(plan.stages) - 1)) for _ in range(2))
    moved = edits.move(plan, source, target)
    assert moved.stages[target] == plan.stages[source]
    assert edits.move(moved, target, source) == plan


@given(plans(), st.data(), st.integers(1, 4))
def test_repeat_runs_the_window_so_many_times(plan: Plan, data: st.DataObject, times: int) -> None:
    start, stop = window(plan, data)
    parts = [plan.stages[:start], plan.stages[start:stop], plan.stages[stop:]]
    before, inside, after = (Plan(part).order() if part else () for part in parts)
    assert edits.repeat(plan, start, stop, times).order() == before + inside * times + after


@given(plans(), st.data(), st.integers(1, 4))
def test_a_loop_keeps_the_order_and_shortens_the_path(plan: Plan, data: st.DataObject, times: int) -> None:
    start, stop = window(plan, data)
    inside = plan.stages[start:stop]
    looped, once = edits.loop(plan, start, stop, times), edits.parallel(plan, start, stop)
    assert once.order() == plan.order()
    assert looped.order() == edits.repeat(plan, start, stop, times).order()
    longest = max(Plan((stage,)).cost().stages for stage in inside)
    assert looped.cost().stages == plan.cost().stages - Plan(inside).cost().stages + times * longest
