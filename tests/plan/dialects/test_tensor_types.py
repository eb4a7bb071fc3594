"""The file of types, read as llama-quantize does, gives each tensor of a layer exactly its type."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.gguf.types import TENSOR_TYPES
from layerwise.plan import Plan
from layerwise.plan.dialects import write_tensor_types
from layerwise.plan.quantised import TYPES

KINDS = {each.name.lower(): each.name for each in TENSOR_TYPES.values()}


def as_read(text: str, tensor: str) -> str | None:
    for word in text.split():
        name, _, kind = word.partition("=")
        assert name
        assert kind in KINDS
        if re.search(name.lower(), tensor):
            return KINDS[kind]
    return None


@given(st.lists(st.sampled_from(["", *(f"{name}:" for name in TYPES)]), min_size=1, max_size=120))
def test_every_layer_gets_its_type_and_no_other(types: list[str]) -> None:
    plan = Plan.parse(" ".join(f"{kind}{layer}" for layer, kind in enumerate(types)))
    if not any(types):
        with pytest.raises(PlanError, match="needs layers at a type, as in Q4_0:0"):
            write_tensor_types(plan)
        return
    text = write_tensor_types(plan, depth=len(types))
    for layer, kind in enumerate(types):
        for name in ("attn_q.weight", "ffn_down.weight"):
            assert as_read(text, f"blk.{layer}.{name}") == (kind.rstrip(":") or None)
    assert as_read(text, "token_embd.weight") is None


@pytest.mark.parametrize(
    ("plan", "depth", "words"),
    [
        ("0 Q4_0:2 1", None, "write them as 0-2, some with a type"),
        ("0 Q4_0:1*2", None, "leaves the layers in their order"),
        ("0 Q4_0:1.mlp", None, "save a GGUF file under the plan"),
        ("0 (Q4_0:1|2)", None, "leaves the layers in their order"),
        ("a:0 Q4_0:1", None, "leaves the layers in their order"),
        ("0 Q4_0-noise3:1", None, "layer 1 has noise in the place of one"),
        ("0 Q4_0:1", 4, "write them as 0-3"),
    ],
)
def test_what_such_a_file_cannot_say_is_refused(plan: str, depth: int | None, words: str) -> None:
    with pytest.raises(PlanError) as refused:
        write_tensor_types(plan, depth=depth)
    assert words in str(refused.value)
