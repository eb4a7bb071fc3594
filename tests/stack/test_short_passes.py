"""Passes that are short on purpose, and caches of other plans."""

import copy
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, MambaConfig, MambaForCausalLM, OPTConfig, OPTForCausalLM, StaticCache

from layerwise.errors import ModelError
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from stack.makers import IDS, bart, gemma, llama
from stack.test_blocks import Residual
from tier import first_fast

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))


class Tower(nn.Module):
    """Four blocks that a caller may skip, or leave early in one of three ways."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Residual() for _ in range(4))
        self.count = 4

    def forward(
        self,
        x: Tensor,
        stop: int | None = None,
        first: int | None = None,
        skip: Sequence[int] = (),
        counts: bool = False,
        drops: bool = False,
    ) -> Tensor:
        for number, block in enumerate(self.blocks[:first]):
            if number == stop or (counts and number == self.count):
                break
            if number not in skip and not (drops and self.training and number % 2):
                x = block(x)
        return x


@pytest.mark.parametrize("single_pass", [True, False])
@pytest.mark.parametrize(
    ("plan", "asked", "visited"),
    [
        ("0-3", {"stop": 2}, "0 1"),
        ("0-3", {"stop": 0}, None),
        ("3 1 0", {"first": 2}, "3 1"),
        ("0-3 0-3", {"stop": 6}, "0-3 0 1"),
        ("3*3 0", {"skip": [1, 2]}, "3 0"),
        ("0-3 2", {"skip": [0]}, "1-3 2"),
        ("0 (1|2) 3 2", {"stop": 3}, "0 (1|2)"),
        ("0 (1|2) 3 2", {"skip": [0, 3]}, "(1|2) 2"),
        ("0 (1|2 0) 3", {"skip": [1, 2, 3]}, "0 3"),
        ("0-3 0-3", {"drops": True}, "0 2 0 2"),
    ],
)
def test_visits_that_are_skipped_are_those_of_a_shorter_plan(
    plan: str, asked: dict[str, Any], visited: str | None, single_pass: bool
) -> None:
    model = Tower().train()
    stack = Stack(model, "blocks")
    with stack.under(plan, single_pass=single_pass):
        found = model(X, **asked)
    if visited is None:
        assert torch.equal(found, X)
    else:
        with stack.under(visited):
            assert torch.equal(found, model(X))


@pytest.mark.parametrize("skip", [[1], [2], [3], [1, 2], [2, 3], [1, 2, 3, 4]])
def test_a_part_of_a_group_cannot_be_skipped(skip: list[int]) -> None:
    model = Tower()
    first = min(skip)
    with (
        Stack(model, "blocks").under("0 (1|(2 3|3)|0) 2"),
        pytest.raises(ModelError, match=f"skipped layer {[0, 1, 2, 3, 3, 0][first]} in a parallel group"),
    ):
        model(X, skip=skip)
    with Stack(model, "blocks").under("0 1"):
        model(X)


def test_a_model_that_counts_its_layers_on_its_own_cannot_run_longer_plans() -> None:
    model = Tower().eval()
    longer = Stack(model, "blocks").under("0-3 2")
    with longer, pytest.raises(ModelError, match=r"4 of the 5 steps of the plan.* as the original model has"):
        model(X, counts=True)
    with Stack(model, "blocks").under("2 0-2"):
        model(X, counts=True)


def test_an_error_of_a_hook_is_its_own_and_the_next_pass_is_whole() -> None:
    model = Tower()
    stack = Stack(model, "blocks")
    expected = stack_output(model, "0 (1|2) 3")
    with stack.under("0 (1|2) 3"):
        for layer in range(4):
            broken = model.blocks[layer].register_forward_hook(lambda *_: [][0])
            with pytest.raises(IndexError):
                model(X)
            broken.remove()
            assert torch.equal(model(X), expected)


def stack_output(model: Tower, plan: str) -> Tensor:
    with Stack(copy.deepcopy(model), "blocks").under(plan) as stack:
        return stack.model(X)


@pytest.mark.parametrize("plan", ["0-3", "3 1*4 0"])
def test_layer_drop_in_training_drops_the_visits_that_it_drops_in_a_model_of_the_plan(plan: str) -> None:
    sizes = {"num_hidden_layers": 4, "hidden_size": 32, "ffn_dim": 48, "word_embed_proj_dim": 32}
    config = OPTConfig(**sizes, vocab_size=97, num_attention_heads=2, layerdrop=0.5, dropout=0.0)
    model: Any = OPTForCausalLM(config)
    order = Plan.parse(plan).order()
    built: Any = copy.deepcopy(model)
    built.model.decoder.layers = nn.ModuleList(built.model.decoder.layers[layer] for layer in order)
    stack = load(model)
    for each in (model, built):
        each.train()
    with stack.under(plan, single_pass=True):
        for seed in range(6):
            torch.manual_seed(seed)
            expected = built(IDS, use_cache=False).logits
            torch.manual_seed(seed)
            assert torch.equal(model(IDS).logits, expected)


def test_a_model_that_drafts_with_its_first_layers_writes_the_same_text() -> None:
    model: Any = llama().eval()
    stack = load(model)
    asked: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    for plan in ("0-5", "0-3 2-5", "(3|1) 5 0"):
        with stack.under(plan):
            text = model.generate(IDS[:1], **asked)
            for layers in (2, 3, 6):
                assert torch.equal(model.generate(IDS[:1], assistant_early_exit=layers, **asked), text)
            assert model.config.num_hidden_layers == len(Plan.parse(plan).order())
    with (
        stack.under("(3|1) 5 0"),
        pytest.raises(ModelError, match="the model skipped layer 1 in a parallel group, whose merge needs every"),
    ):
        model.generate(IDS[:1], assistant_early_exit=1, **asked)


KINDS: dict[str, Callable[..., Any]] = {"dynamic": DynamicCache, "static": partial(StaticCache, max_cache_len=32)}


def mamba() -> MambaForCausalLM:
    torch.manual_seed(0)
    return MambaForCausalLM(MambaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=6, state_size=4))


MODELS: dict[str, Any] = {"llama": llama().eval(), "gemma": gemma().eval(), "mamba": mamba().eval()}
PAIRS = (
    ("0-1", None),
    ("0*8", None),
    ("5-0", None),
    (None, "0-1"),
    (None, "0*8"),
    ("5-0", "0-5"),
    ("0 1", "1 0"),
    ("0", "0*3"),
)


def entered(stack: Stack, plan: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if plan is None else stack.under(plan)


def read(model: Any, cache: Any, first: int = 0, last: int = 5) -> torch.Tensor:
    name = "cache_params" if isinstance(model, MambaForCausalLM) else "past_key_values"
    with torch.inference_mode():
        return model(IDS[:, first:last], **{name: cache}, use_cache=True).logits


@pytest.mark.parametrize("name", first_fast(["gemma", "llama", "mamba"]))
@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_a_cache_of_another_order_is_refused(name: str, writer: str | None, reader: str | None) -> None:
    model = MODELS[name]
    stack = load(model)
    with entered(stack, writer):
        cache = KINDS["static" if name == "gemma" else "dynamic"](config=model.config)
        read(model, cache)
    with entered(stack, reader), pytest.raises(ModelError, match=r"a cache written by .* Start from an empty cache"):
        read(model, cache, 5, 6)
    with entered(stack, writer):
        longer = read(model, cache, 5, 6)
        assert torch.allclose(longer, read(model, None, 0, 6)[:, 5:], atol=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_copy_of_a_cache_goes_on_under_its_plan(copied: Callable[[Any], Any], model: Any) -> None:
    stack = load(model)
    with stack.under("0 1*3 3 2"):
        cache = DynamicCache(config=model.config)
        read(model, cache)
    with pytest.raises(ModelError, match=r"a cache written by 0 1\*3 3 2 was passed to a model that does not run"):
        read(model, copy.deepcopy(cache), 5, 6)
    other = copied(cache)
    with stack.under("0 1*3 3 2"):
        assert torch.equal(read(model, other, 5, 6), read(model, cache, 5, 6))
    with stack.under("5"), pytest.raises(ModelError, match=r"a cache written by 0 1\*3 3 2 was passed to the plan"):
        read(model, copied(cache), 6, 7)
    other.reset()
    assert torch.equal(read(model, other), read(model, None))


@pytest.mark.parametrize("make", KINDS)
def test_a_cache_that_is_too_small_is_refused(make: str) -> None:
    model: Any = llama().eval()
    cache = KINDS[make](config=model.config)
    with load(model).under("0*8"), pytest.raises(ModelError, match=r"a cache for the plan 0\*8 must have 8 layers"):
        read(model, cache)


def test_caches_are_those_of_the_identity_plan_or_refused_outside() -> None:
    model: Any = llama().eval()
    with load(model).under("0-5"):
        cache = DynamicCache(config=model.config)
        read(model, cache)
    read(model, cache, 5, 6)
    with load(model).under("0-5"):
        assert torch.allclose(read(model, cache, 6, 7), read(model, None, 0, 7)[:, 6:], atol=1e-4)

    model: Any = bart()
    with torch.inference_mode(), Stack(model, "model.decoder.layers").under("2 0 1"):
        cache = model(IDS, use_cache=True).past_key_values
    with torch.inference_mode(), pytest.raises(ModelError, match="written by 2 0 1"):
        model(IDS, decoder_input_ids=IDS[:, :1], past_key_values=cache)
