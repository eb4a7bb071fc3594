"""Which groups run as one, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from conftest import tiny_llama
from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from layerwise.stack.executors.fused.groups import single_layer_groups


@pytest.mark.parametrize(
    ("plan", "groups", "first"),
    [
        ("0-3", [], []),
        ("0 (1|2|3)*2 4", ["(1|2|3)", "(1|2|3)"], [1, 4]),
        ("(2|2):sum [(0|1) 3]*2", ["(2|2)", "(0|1)", "(0|1)"], [0, 2, 5]),
        ("(4):gain=0.5 a:0", ["(4)"], [0]),
        ("(a:1|b:1)", ["(a:1|b:1)"], [0]),
    ],
)
def test_groups_of_single_layers_are_found(plan: str, groups: list[str], first: list[int]) -> None:
    found = single_layer_groups(Plan.parse(plan))
    assert [str(group) for group in found] == groups
    assert [group.first for group in found] == first


@pytest.mark.parametrize("plan", ["(0 1|2)", "(0|1 2)", "(0.attn|1)", "((0|1)|2)", "(2|(0|1))", "0 (1|2*2) 3"])
def test_other_branches_are_refused(plan: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"branches of one whole layer each.*Leave out fused=True"):
        single_layer_groups(Plan.parse(plan))


def _wider(stack: Stack) -> None:
    stack.block(2).mlp = nn.Sequential(nn.Linear(32, 32))


def _narrower(stack: Stack) -> None:
    stack.block(2).mlp.up_proj = nn.Linear(32, 8)


def _scaled(stack: Stack) -> None:
    stack.block(2).self_attn.scaling = 0.1


def _half(stack: Stack) -> None:
    stack.block(2).mlp.half()


def _replaced(stack: Stack) -> None:
    stack.block(2).mlp.forward = lambda x: x


def _tied(stack: Stack) -> None:
    for layer in (1, 2):
        stack.block(layer).mlp.up_proj.weight = stack.block(layer).mlp.gate_proj.weight


def _buffered(stack: Stack) -> None:
    for layer in (1, 2):
        stack.block(layer).register_buffer("bias", torch.full((2,), float(layer)))


def _sliding(stack: Stack) -> None:
    stack.model.config.layer_types = ["full_attention"] * 2 + ["sliding_attention"] + ["full_attention"] * 3


UNLIKE: dict[str, Callable[[Stack], None]] = {
    "differ in their submodules": _wider,
    "differ in mlp.up_proj.weight": _narrower,
    r"differ in self_attn.scaling, 0.35\d* and 0.1": _scaled,
    r"differ in mlp.\w*_proj.weight \(shape, dtype or device\)": _half,
    "layer 2 has a replaced forward in mlp": _replaced,
    "layer 1 uses one parameter under two names": _tied,
    "differ in the buffer bias": _buffered,
    "differ in what the configuration says": _sliding,
}


@pytest.mark.parametrize("reason", UNLIKE)
def test_layers_that_are_not_alike_are_refused(reason: str) -> None:
    stack = load(tiny_llama().eval())
    UNLIKE[reason](stack)
    with pytest.raises(UnsupportedModel, match=rf"group \(1\|2\) cannot be fused: .*{reason}"):
        stack.under("0 (1|2) 3", fused=True).__enter__()


def test_layers_in_two_arrangements_are_refused() -> None:
    stack = load(tiny_llama().eval())
    with pytest.raises(UnsupportedModel, match=r"\(0\|1\|3\) cannot be fused: its layers stand in other groups"):
        stack.under("(0|1|2|3) (0|1|3)", fused=True).__enter__()
