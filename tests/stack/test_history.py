"""Models whose layers read all earlier states: all executors agree on every plan."""

import gc
import weakref
from functools import cache
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from layerwise.errors import UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.executors.graph import GraphExecutor, build
from layerwise.stack.history import DepthHistory, Missing
from layerwise.stack.inputs import main_tensor
from tier import by_tier

VOCABULARY = 31
WIDTH = 16


class MixingLayer(nn.Module):
    def __init__(self, number: int, missing: Missing) -> None:
        super().__init__()
        self.number = number
        self.missing: Missing = missing
        self.scalars = nn.Parameter(torch.randn(number + 1))
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden_states: Tensor, record: DepthHistory) -> Tensor:
        read = record.read(self.scalars.softmax(0), self.missing)
        return torch.tanh(self.linear(read)) + read.mean(dim=1, keepdim=True)


class MixingEncoder(nn.Module):
    def __init__(self, depth: int, missing: Missing, mixes_output: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MixingLayer(number, missing) for number in range(depth))
        self.scalars = nn.Parameter(torch.randn(depth + 1)) if mixes_output else None
        self.missing: Missing = missing

    def forward(self, hidden: Tensor) -> Tensor:
        record = DepthHistory.of(hidden)
        for layer in self.layers:
            hidden = layer(hidden, record=record)
            record = record.then(layer.number, hidden)
        return hidden if self.scalars is None else record.read(self.scalars.softmax(0), self.missing)


class MixingModel(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, depth: int = 5, missing: Missing = "renormalize", mixes_output: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.config: Any = SimpleNamespace(vocab_size=VOCABULARY, num_hidden_layers=depth)
        self.config.get_text_config = lambda: self.config
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = MixingEncoder(depth, missing, mixes_output)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.eval()

    def forward(self, input_ids: Tensor) -> Any:
        return {"logits": self.head(self.encoder(self.embedding(input_ids)))}


def inputs(seed: int = 3) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(seed))}


DEPTH = 5

KINDS = [(missing, output) for missing in ("renormalize", "keep") for output in (False, True)]

orders = st.lists(st.integers(0, DEPTH - 1), min_size=1, max_size=8).map(Plan.of)


@cache
def stack_of(missing: str, mixes_output: bool) -> Stack:
    return load(MixingModel(DEPTH, missing, mixes_output), device="cpu")  # type: ignore[arg-type]


def in_place(stack: Stack, plan: Plan, batch: dict[str, Tensor], single_pass: bool = False) -> Tensor:
    with stack.under(plan, single_pass=single_pass):
        return main_tensor(stack.model(**batch))


def by_hand(model: MixingModel, plan: Plan, batch: dict[str, Tensor]) -> Tensor:
    def read(scalars: Tensor, missing: str) -> Tensor:
        weights = scalars.softmax(0)
        present = [source for source in left if source < len(weights)]
        total = sum(weights[source] for source in present) if missing == "renormalize" else 1
        return sum(weights[source] / total * left[source] for source in present)

    state = model.embedding(batch["input_ids"])
    left = {0: state}
    for step in plan.steps():
        layer = model.encoder.layers[step.layer]
        given_state = read(layer.scalars, layer.missing)
        state = torch.tanh(layer.linear(given_state)) + given_state.mean(dim=1, keepdim=True)
        left[step.layer + 1] = state
    if model.encoder.scalars is not None:
        state = read(model.encoder.scalars, model.encoder.missing)
    return model.head(state)


@pytest.mark.parametrize(("missing", "output"), KINDS)
@given(plan=orders)
@settings(max_examples=by_tier(fast=3, nightly=60), deadline=None)
def test_a_plan_is_the_same_by_hand_in_place_and_step_by_step(missing: str, output: bool, plan: Plan) -> None:
    stack, batch = stack_of(missing, output), inputs()
    with torch.no_grad():
        stepwise = stack.logits(plan, **batch)
        torch.testing.assert_close(stepwise, by_hand(stack.model, plan, batch))  # type: ignore[arg-type]
        assert torch.equal(in_place(stack, plan, batch), stepwise)
        assert torch.equal(in_place(stack, plan, batch, single_pass=True), stepwise)


@pytest.mark.parametrize(("missing", "output"), KINDS)
@given(wanted=st.lists(orders, min_size=1, max_size=6))
@settings(max_examples=by_tier(fast=2, nightly=40), deadline=None)
def test_a_walk_over_many_plans_gives_each_the_bits_of_running_it_alone(
    missing: str, output: bool, wanted: list[Plan]
) -> None:
    stack, batch = stack_of(missing, output), inputs()
    with torch.inference_mode():
        captured = stack.capture(**batch)
        graph = build(wanted)
        walk = GraphExecutor(
            graph, lambda layer, state, part, source: stack.apply(layer, state, captured, part, source), captured.state
        )
        reached = {node: main_tensor(stack.finish(state, batch)).clone() for node, state in walk.states()}
        for plan in wanted:
            assert torch.equal(reached[graph.ends[plan]], stack.logits(plan, **batch)), plan


@pytest.mark.parametrize("output", [False, True])
def test_a_part_of_the_rows_and_tokens_can_be_finished(output: bool) -> None:
    stack, batch = stack_of("renormalize", output), inputs()
    assert stack.head_by_token
    with torch.no_grad():
        captured = stack.capture(**batch)
        state = stack.run(Plan.parse("4 1 0"), captured)
        whole = main_tensor(stack.finish(state, batch))
        part = stack.changed(state, itemgetter(slice(1, 2)))
        alone = main_tensor(stack.finish(part, {"input_ids": batch["input_ids"][1:2]}))
    torch.testing.assert_close(alone, whole[1:2])


def test_branches_and_halves_are_refused_with_the_reason() -> None:
    stack = stack_of("renormalize", False)
    with (
        pytest.raises(UnsupportedModelError, match="a merged state has no weight"),
        stack.under(Plan.parse("0 (1|2) 3")),
    ):
        pass
    for text, reason in (("0 (1|2) 3", "a merged state has no weight"), ("0 1.attn 2", "weighted sum of all earlier")):
        with pytest.raises(UnsupportedModelError, match=reason):
            stack.logits(Plan.parse(text), **inputs())


def test_a_state_from_elsewhere_is_refused_until_it_is_noted() -> None:
    stack, batch = stack_of("renormalize", False), inputs()
    with torch.no_grad():
        captured = stack.capture(**batch)
        before = stack.apply(0, captured.state, captured)
        elsewhere = stack.apply(1, before, captured) + 1
        with pytest.raises(UnsupportedModelError, match=r"stack\.note"):
            stack.apply(2, elsewhere, captured)
        with pytest.raises(UnsupportedModelError, match=r"stack\.note"):
            stack.finish(elsewhere, batch)
        stack.apply(2, stack.note(1, before, elsewhere), captured)


def test_a_state_that_nobody_holds_is_let_go() -> None:
    stack = stack_of("renormalize", False)
    with torch.no_grad():
        captured = stack.capture(**inputs())
        watched = [weakref.ref(state) for state in stack.states(Plan.parse("3 2 4"), captured)]
        root = captured.state
        gc.disable()
        try:
            del captured
            assert [state() for state in watched] == [root, None, None, None]
        finally:
            gc.enable()


def test_a_layer_that_returns_its_state_untouched_is_a_source_all_the_same() -> None:
    model = MixingModel(DEPTH)

    class Idle(nn.Module):
        number = 2

        def forward(self, hidden_states: Tensor, record: object) -> Tensor:
            return hidden_states

    model.encoder.layers[2] = Idle()
    stack, batch = load(model, device="cpu", layers="encoder.layers"), inputs()
    plan = Plan.parse("0 2 1 2 4")
    with torch.no_grad():
        assert torch.equal(stack.logits(plan, **batch), in_place(stack, plan, batch))
        captured = stack.capture(**batch)
        before = stack.apply(0, captured.state, captured)
        stack.apply(2, before, captured)
        # The state before it has not come through it, although it is the same tensor that came out.
        after = stack.finish(stack.apply(4, before, captured), batch)
        assert torch.equal(main_tensor(after), stack.logits(Plan.parse("0 4"), **batch))


def test_what_an_intervention_makes_of_a_state_stands_for_the_layer() -> None:
    stack, batch = stack_of("renormalize", True), inputs()
    with torch.no_grad():
        captured = stack.capture(**batch)
        before = stack.apply(0, captured.state, captured)
        state = stack.note(1, before, stack.apply(1, before, captured) + 1)
        for layer in range(2, DEPTH):
            state = stack.apply(layer, state, captured)
        found = main_tensor(stack.finish(state, batch))
        hook = stack.model.encoder.layers[1].register_forward_hook(lambda module, args, output: output + 1)  # type: ignore[union-attr]
        try:
            torch.testing.assert_close(found, main_tensor(stack.model(**batch)))
        finally:
            hook.remove()
