"""A separate head gives the model's logits, or there is none."""

import torch
from torch import Tensor, nn

from conftest import tiny_llama
from contracts import specimen
from contracts.tiers import every_type
from contracts.zoo import SUPPORTED
from layerwise.measure.language.loss import find_head
from layerwise.plan import Plan
from layerwise.stack import load
from measure.language.test_loss import vision_stack

LANGUAGE_MODELS = [one for one in SUPPORTED if one.model_class.endswith(("LM", "LMHeadModel", "LMHead"))]
QUICK = ("llama", "gpt2", "opt", "bert")


@every_type(fast=QUICK, of=LANGUAGE_MODELS)
def test_every_language_model_has_a_head_that_acts_by_token(one: specimen.Specimen) -> None:
    assert find_head(load(specimen.build(one))) is not None


def test_tokens_in_any_order_have_the_logits_of_the_plan_in_place() -> None:
    stack = load(tiny_llama())
    ids = torch.randint(3, 97, (3, 7), generator=torch.Generator().manual_seed(0))
    head = find_head(stack)
    with torch.inference_mode():
        with stack.under(Plan.parse("2 0 (1|3)"), single_pass=True):
            expected = stack.model(input_ids=ids).logits
            states, output = head.states({"input_ids": ids})
        rows, columns = torch.tensor([2, 0, 0, 1]), torch.tensor([6, 1, 5, 0])
        found = head.logits(states[rows, columns], output, ids[rows, columns])
    # The same sums over the width, in another order.
    torch.testing.assert_close(found, expected[rows, columns], rtol=1e-5, atol=1e-5)
    assert "forward" not in head.body.__dict__
    assert not head.body._forward_hooks


class Neighbourly(nn.Module):
    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own

    def forward(self, states: Tensor) -> Tensor:
        return self.own(states) + self.own(states).roll(1, dims=1)


def test_a_head_that_reads_several_tokens_is_none() -> None:
    model = tiny_llama()
    stack = load(model)
    model.lm_head = Neighbourly(model.lm_head)
    assert find_head(stack) is None
    assert find_head(vision_stack()) is None
