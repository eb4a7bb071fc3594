"""A cache of earlier tokens that another order of layers has written is refused, and works again under its plan."""

import copy
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from transformers import DynamicCache, MambaConfig, MambaForCausalLM, StaticCache

from layerwise.errors import ModelError
from layerwise.stack import Stack, load
from stack.makers import IDS, bart, gemma, llama

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


@pytest.mark.parametrize(("name", "make"), [("llama", "dynamic"), ("gemma", "static"), ("mamba", "dynamic")])
@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_a_cache_of_another_order_is_refused(name: str, make: str, writer: str | None, reader: str | None) -> None:
    model = MODELS[name]
    stack = load(model)
    with entered(stack, writer):
        cache = KINDS[make](config=model.config)
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
    with pytest.raises(ModelError, match=r"written by 0 1\*3 3 2 was handed to a model that does not run it"):
        read(model, copy.deepcopy(cache), 5, 6)
    other = copied(cache)
    with stack.under("0 1*3 3 2"):
        assert torch.equal(read(model, other, 5, 6), read(model, cache, 5, 6))
    with stack.under("5"), pytest.raises(ModelError, match=r"written by 0 1\*3 3 2 was handed to the plan 5"):
        read(model, copied(cache), 6, 7)
    other.reset()
    assert torch.equal(read(model, other), read(model, None))


@pytest.mark.parametrize("make", KINDS)
def test_a_cache_that_is_too_small_is_refused(make: str) -> None:
    model: Any = llama().eval()
    cache = KINDS[make](config=model.config)
    with load(model).under("0*8"), pytest.raises(ModelError, match=r"a cache of 6 layers .* plan 0\*8 of 8 visits"):
        read(model, cache)


def test_the_identity_plan_shares_caches_with_the_model() -> None:
    model: Any = llama().eval()
    with load(model).under("0-5"):
        cache = DynamicCache(config=model.config)
        read(model, cache)
    read(model, cache, 5, 6)
    with load(model).under("0-5"):
        assert torch.allclose(read(model, cache, 6, 7), read(model, None, 0, 7)[:, 6:], atol=1e-4)


def test_a_decoders_caches_are_refused_outside() -> None:
    model: Any = bart()
    with torch.inference_mode(), Stack(model, "model.decoder.layers").under("2 0 1"):
        cache = model(IDS, use_cache=True).past_key_values
    with torch.inference_mode(), pytest.raises(ModelError, match="written by 2 0 1"):
        model(IDS, decoder_input_ids=IDS[:, :1], past_key_values=cache)
