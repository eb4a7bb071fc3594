"""The reference executor and the plan in place: the same function, and a model that is left as it was found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conftest import tiny_llama
from layerwise.errors import ModelError, PlanError, UnsupportedModelError
from layerwise.plan import Plan, edits
from layerwise.plan.explain import explain
from layerwise.plan.wiring import matrix
from layerwise.stack import load, verify
from stack.test_blocks import Residual

MODEL = tiny_llama()
STACK = load(MODEL)
IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))


def test_states_are_those_the_model_records() -> None:
    with torch.inference_mode():
        captured = STACK.capture(input_ids=IDS)
        states = list(STACK.states(Plan.identity(6), captured))
        recorded = MODEL(IDS, output_hidden_states=True).hidden_states
    assert len(states) == 7
    # The model replaces the last recorded state by its normalized form.
    assert all(torch.equal(left, right) for left, right in zip(states[:-1], recorded[:-1], strict=True))


def test_a_half_in_place_shares_its_weights_and_silences_the_other_branch_of_that_visit_alone() -> None:
    model = tiny_llama()
    stack = load(model)
    own = model(IDS).logits
    storage = {p.data_ptr() for p in model.parameters()}
    hooks = [len(module._forward_hooks) for module in model.modules()]
    with stack.under(Plan.parse("0 1.attn (2.mlp|3)")):
        assert {p.data_ptr() for p in model.parameters()} <= storage
        model(IDS, labels=IDS).loss.backward()
    blocks = model.model.layers
    gradients = {
        f"{layer}.{part}": weight.grad
        for layer in range(4)
        for part, weight in (("attn", blocks[layer].self_attn.o_proj.weight), ("mlp", blocks[layer].mlp.up_proj.weight))
    }
    used = {name for name, gradient in gradients.items() if gradient is not None and gradient.any()}
    assert used == {"0.attn", "0.mlp", "1.attn", "2.mlp", "3.attn", "3.mlp"}
    assert torch.equal(model(IDS).logits, own)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks


def test_halves_in_place_need_a_batch_that_can_be_made_up_or_was_captured() -> None:
    stack = load(Mixer(), layers="encoder.blocks")
    with pytest.raises(ModelError, match=r"Call stack\.branches\(stack\.capture"), stack.under(Plan.parse("0.attn")):
        pass
    captured = stack.capture(x=torch.randn(2, 3))
    for _ in range(2):  # found out once, and then known
        with pytest.raises(UnsupportedModelError, match="no token axis"):
            stack.branches(captured)
    with pytest.raises(UnsupportedModelError, match="no token axis"), stack.under(Plan.parse("0.attn")):
        pass


def test_branches_are_found_also_when_the_first_batch_has_one_token() -> None:
    stack = load(tiny_llama())
    with torch.inference_mode():
        captured = stack.capture(input_ids=IDS[:, :1])
        assert stack.apply(2, captured.state, captured, "mlp").shape == (2, 1, 32)
    assert stack.branches().paths[2] == {"attn": "self_attn", "mlp": "mlp"}


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.enter = nn.Linear(3, 4)
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList([Residual() for _ in range(4)])
        self.leave = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for block in self.encoder.blocks:
            x = block(x)
        return self.leave(x)


class Looped(Mixer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for block in [*self.encoder.blocks, *self.encoder.blocks]:
            x = block(x)
        return self.leave(x)


class Skipping(Mixer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = start = self.enter(x)
        kept = [x := block(x) for block in self.encoder.blocks]
        return self.leave(start + sum(kept))


@pytest.mark.parametrize(
    ("kind", "reason"), [(Looped, r"4 blocks 2 times.*one pass .*the plan \[0-3\]\*2"), (Skipping, "identity plan")]
)
def test_a_model_that_does_more_with_its_blocks_than_run_them_is_refused(kind: type[Mixer], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        load(kind(), layers="encoder.blocks").capture(x=torch.randn(2, 3))


LLAMA = load(tiny_llama())
TOKENS = torch.randint(3, 97, (2, 5), generator=torch.Generator().manual_seed(2))
TEXT = "0-3 5*2"


def under(plan: Any) -> torch.Tensor:
    with LLAMA.under(plan):
        found: torch.Tensor = LLAMA.model(TOKENS).logits
        return found


TAKERS: dict[str, Callable[[Any], Any]] = {
    "under": under,
    "check": LLAMA.check,
    "logits": lambda plan: LLAMA.logits(plan, input_ids=TOKENS),
    "run": lambda plan: LLAMA.run(plan, LLAMA.capture(input_ids=TOKENS)),
    "states": lambda plan: list(LLAMA.states(plan, LLAMA.capture(input_ids=TOKENS))),
    "verify": lambda plan: [(law.name, law.holds) for law in verify(LLAMA, plan)],
    "skip": lambda plan: edits.skip(plan, 1),
    "loop": lambda plan: edits.loop(plan, 1, 3, 2),
    "cost": lambda plan: Plan.parse(plan).cost(),
    "matrix": matrix,
    "explain": explain,
}


@pytest.mark.parametrize("name", TAKERS)
def test_a_plan_and_its_text_are_the_same(name: str) -> None:
    with torch.inference_mode():
        text, value = TAKERS[name](TEXT), TAKERS[name](Plan.parse(TEXT))
    assert all(torch.equal(*pair) for pair in zip(text, value, strict=True)) if _tensors(text) else text == value


def _tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, list) and isinstance(value[0], torch.Tensor))


@pytest.mark.parametrize("bad", ["0-", "", "0-6", None, 3, [0, 1]])
def test_a_stack_refuses_values_that_are_not_plans(bad: Any) -> None:
    with pytest.raises(PlanError, match=None if isinstance(bad, str) else "text"), LLAMA.under(bad):
        pass
