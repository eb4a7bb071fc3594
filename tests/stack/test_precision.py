"""Half precision is computed in float32, and rounding is distinguished from errors."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

import other_kernel
from conftest import tiny_llama
from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.precision import in_float32, widened
from layerwise.stack.rounding import ADDITIONS, EPS, HALF, apart, compare, gap, rounding, same

IDS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(2))
PLAN = Plan.parse("1 (2|3 4) 0*2 2.attn")


def tied() -> LlamaForCausalLM:
    model = tiny_llama()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    return model


@pytest.fixture
def half() -> LlamaForCausalLM:
    return tied().bfloat16()


def held(model: nn.Module) -> list[tuple[int, Tensor]]:
    return [
        (id(tensor), tensor.detach().clone())
        for module in model.modules()
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    ]


def assert_as_before(model: nn.Module, before: list[tuple[int, Tensor]]) -> None:
    after = held(model)
    assert [number for number, _ in after] == [number for number, _ in before]
    assert all(torch.equal(left, right) for (_, left), (_, right) in zip(after, before, strict=True))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_it_computes_what_the_same_weights_in_float32_compute(half: LlamaForCausalLM) -> None:
    stack, before = load(half), held(half)
    whole = tied()
    whole.load_state_dict({name: value.float() for name, value in half.state_dict().items()})
    whole.model.rotary_emb.inv_freq.copy_(half.model.rotary_emb.inv_freq)
    expected = load(whole)
    with torch.no_grad(), widened(half, "model.layers"):
        assert torch.equal(half(IDS).logits, whole(IDS).logits)
        assert torch.equal(stack.logits(PLAN, input_ids=IDS), expected.logits(PLAN, input_ids=IDS))
        with stack.under(PLAN), expected.under(PLAN):
            assert torch.equal(half(IDS).logits, whole(IDS).logits)
        prompt = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 4, "do_sample": False}
        with stack.under(Plan.parse("1 0*2")), expected.under(Plan.parse("1 0*2")):
            assert torch.equal(half.generate(IDS, **prompt), whole.generate(IDS, **prompt))
    assert_as_before(half, before)
    assert half(IDS).logits.dtype is torch.bfloat16


def test_one_block_is_held_twice_at_a_time(half: LlamaForCausalLM) -> None:
    blocks = half.model.layers
    seen = []

    def note(module: nn.Module, args: Any) -> None:
        seen.append([block.mlp.up_proj.weight.dtype for block in blocks].count(torch.float32))

    with torch.no_grad(), widened(half, "model.layers"):
        hooks = [block.mlp.register_forward_pre_hook(note) for block in blocks]
        half(IDS)
        assert half.lm_head.weight is half.model.embed_tokens.weight
        assert not any(parameter.dtype in HALF for name, parameter in half.named_parameters() if "layers" not in name)
    for hook in hooks:
        hook.remove()
    assert seen == [1] * 6


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_a_block_leaves_the_model_unchanged(
    half: LlamaForCausalLM, failure: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held(half)

    def fail(x: Tensor) -> Tensor:
        raise failure("inside")

    monkeypatch.setattr(half.model.layers[3].mlp, "forward", fail)
    with pytest.raises(failure, match="inside"), widened(half, "model.layers"):
        half(IDS)
    assert_as_before(half, before)


def test_gradients_on_their_way_are_not_lost(half: LlamaForCausalLM) -> None:
    loss = half(IDS, labels=IDS).loss
    with torch.no_grad(), widened(half, "model.layers"):
        half(IDS)
    loss.backward()
    expected = tied().bfloat16()
    expected(IDS, labels=IDS).loss.backward()
    for own, other in zip(half.parameters(), expected.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)


def test_a_buffer_that_the_model_replaces_meanwhile_stays_replaced(half: LlamaForCausalLM) -> None:
    with widened(half, "model.layers"):
        half.model.rotary_emb.register_buffer("inv_freq", torch.arange(4.0), persistent=False)
    assert torch.equal(half.model.rotary_emb.inv_freq, torch.arange(4.0))


def test_float32_is_computed_for_what_is_half_and_for_nothing_else(half: LlamaForCausalLM) -> None:
    stack = load(half)
    embedded = half.model.embed_tokens(IDS).detach()
    seen = in_float32(stack, {"inputs_embeds": embedded, "use_cache": False}, lambda inputs: half(**inputs).logits)
    assert seen.dtype is torch.float32

    stack = load(tiny_llama())
    inputs = {"input_ids": IDS}
    hooks = in_float32(stack, inputs, lambda given: (given is inputs, [len(b._forward_hooks) for b in stack.blocks]))
    assert hooks == (True, [0] * 6)

    models = {name: tiny_llama(seed=seed).bfloat16() for seed, name in enumerate("ab")}
    stack = Stack.with_sources({name: load(model) for name, model in models.items()})
    plan = Plan.parse("a:0-2 b:3 5")
    with torch.no_grad():
        assert in_float32(stack, {"input_ids": IDS}, lambda x: stack.logits(plan, **x)).dtype is torch.float32


class HalfOnly(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype not in HALF:
            raise RuntimeError("only fp16 and bf16 are supported")
        return super().forward(x)


@pytest.mark.skipif(other_kernel.ACTIVE, reason="its bits depend on where in memory a state lies")
def test_a_model_for_half_precision_alone_is_judged_by_its_bits(half: LlamaForCausalLM) -> None:
    for block in half.model.layers:
        block.mlp.down_proj.__class__ = HalfOnly
    stack = load(half)
    with torch.no_grad():
        assert in_float32(stack, {"input_ids": IDS}, lambda x: stack.logits(PLAN.parse("1 0"), **x)).dtype in HALF


def test_a_refusal_is_no_reason_to_try_again(half: LlamaForCausalLM) -> None:
    stack, asked = load(half), []

    def refuse(inputs: Any) -> None:
        asked.append(inputs)
        raise PlanError("no")

    with pytest.raises(PlanError, match="no"):
        in_float32(stack, {}, refuse)
    assert len(asked) == 1


def test_flash_attention_gives_way_and_comes_back(half: LlamaForCausalLM) -> None:
    stack = load(half)
    half.config._attn_implementation = "flash_attention_2"
    inside = in_float32(stack, {}, lambda inputs: half.config._attn_implementation)
    assert (inside, half.config._attn_implementation) == ("eager", "flash_attention_2")


def test_products_are_exact_inside_and_as_before_outside() -> None:
    stack = load(tiny_llama())
    for asked in ("high", "highest"):
        torch.set_float32_matmul_precision(asked)
        inside = in_float32(stack, {}, lambda inputs: torch.backends.cuda.matmul.fp32_precision)
        assert (inside, torch.get_float32_matmul_precision()) == ("ieee", asked)


NAN, INF = math.nan, math.inf


def residual_stack(width: int, visits: int, dtype: torch.dtype, off: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    state = torch.randn(8, width, generator=generator).to(dtype)
    for visit in range(visits):
        up, down = (torch.randn(width, 4 * width, generator=generator).to(dtype) / width**0.5 for _ in range(2))
        update = torch.tanh(torch.nn.functional.layer_norm(state, (width,)) @ up) @ down.T / 2
        state = state + update * (1 + off * (visit == visits // 2))
    return state


@pytest.mark.parametrize(("width", "visits"), [(32, 1), (32, 16), (128, 4), (256, 8)])
def test_it_holds_rounding_and_shows_a_percent_of_one_layer(width: int, visits: int) -> None:
    exact = residual_stack(width, visits, torch.float64)
    rounded = residual_stack(width, visits, torch.float32).double()
    assert rounding(width, visits) / 200 < gap(rounded, exact) <= rounding(width, visits)
    off = residual_stack(width, visits, torch.float32, off=0.01)
    assert gap(off.double(), exact) > 10 * rounding(width, visits)


def filled(*rows: float) -> Tensor:
    return torch.tensor(rows).unsqueeze(1).expand(-1, 8)


@pytest.mark.parametrize(
    ("found", "expected", "apart_by"),
    [
        ([3.0, 33.0, 303.0], [3.0, 30.0, 300.0], 0.1),  # that of the worst vector, relative to its size
        ([3.0, 30.0], [3.0, 30.0], 0.0),
        ([1e4, 1.0, 1.0, 1.01, 1.0], [1e4, 1.0, 1.0, 1.0, 1.0], 0.01),  # a long vector hides nothing elsewhere
        ([1.0, 1.0, EPS, 1.0, 1.0], [1.0, 1.0, 1e-9, 1.0, 1.0], EPS),  # a short one is compared with the median one
        ([1e-9], [0.0], INF),
    ],
)
def test_a_gap_is_relative_to_a_vector(found: list[float], expected: list[float], apart_by: float) -> None:
    assert gap(filled(*found), filled(*expected)) == pytest.approx(apart_by, rel=0.01)


@pytest.mark.parametrize(
    ("found", "expected", "apart_by"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0.0),
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([INF, 1.0], [-INF, 1.0], INF),
        ([-INF, 1.5], [-INF, 1.0], 0.5),
        ([1.0], [1.0, 1.0], INF),
    ],
)
def test_non_finite_values_equal_only_themselves(found: list[float], expected: list[float], apart_by: float) -> None:
    assert gap(torch.tensor(found), torch.tensor(expected)) == apart_by
    assert same(torch.tensor(found), torch.tensor(expected)) == (apart_by == 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_only_equal_bits_are_equal(dtype: torch.dtype) -> None:
    one = torch.ones(2, 3, dtype=dtype)
    assert compare(one, one.clone(), 32, 5).holds
    next_number = one + torch.finfo(dtype).eps
    assert not compare(next_number, one, 32, 5).holds
    assert not compare(next_number, one.float(), 32, 5).holds


def test_bounds_of_float64_and_of_a_few_additions() -> None:
    one = torch.ones(2, 3, dtype=torch.float64)
    assert compare(one + EPS, one, 32, 5).holds
    assert not compare(one + 1e-4, one, 32, 5).holds

    generator = torch.Generator().manual_seed(0)
    state, update = (torch.randn(4, 64, generator=generator) for _ in range(2))
    left_over = ((state + update / 2) - state) - ((state + update) - state) / 2
    assert 0 < apart(left_over, state) < ADDITIONS / 4
