"""llama.cpp and layerwise agree on a plan's GGUF within twice their difference on the original model.

Rounding differs: llama.cpp keeps keys and values in half precision and quantizes inputs to 8 bits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint.gguf_models import POSITIONS, VOCABULARY, write_llama
from layerwise.checkpoint import save
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.stack import Stack, load
from llama_cpp import LlamaCpp
from tier import by_tier

pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install xllamacpp")
pytest.importorskip("gguf", reason="needs the package gguf: pip install gguf")

DEPTH = 6
PLANS = by_tier(fast=15, nightly=1_000)
BAR = 2
"""Maximum difference under a plan relative to the original model's."""

Losses = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Pair:
    path: Path
    stack: Stack
    tokens: list[int]
    trained: float

    @classmethod
    def of(cls, path: Path) -> Pair:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        draw = random.Random(3)
        pair = cls(path, load(model), [draw.randrange(VOCABULARY) for _ in range(POSITIONS // 2)], 0.0)
        pair.trained = apart(pair.by_layerwise(Plan.identity(DEPTH)), pair.by_llama_cpp(path))
        return pair

    def by_layerwise(self, plan: Plan) -> Losses:
        with torch.inference_mode(), self.stack.under(plan):
            logits = self.stack.model(torch.tensor([self.tokens])).logits[0, :-1].double()
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(self.tokens[1:]), reduction="none")
        return np.asarray(losses.tolist())

    def by_llama_cpp(self, path: Path) -> Losses:
        with LlamaCpp(path, positions=POSITIONS) as model:
            return model.losses(self.tokens)


def apart(one: Losses, other: Losses) -> float:
    return float(np.abs(one - other).mean())


def plans(count: int) -> Iterator[Plan]:
    draw = random.Random(11)
    for _ in range(count):
        yield Plan.of(draw.randrange(DEPTH) for _ in range(draw.randint(DEPTH // 2, DEPTH * 3 // 2)))


def with_a_wrong_slot(plan: Plan, draw: random.Random) -> Plan:
    order = list(plan.order())
    slot = draw.randrange(len(order))
    order[slot] = draw.choice([layer for layer in range(DEPTH) if layer != order[slot]])
    return Plan.of(order)


@pytest.fixture(scope="module", params=["F32 tied", "Q8_0 untied", "Q4_1 tied"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    kind, _, head = request.param.partition(" ")
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    return Pair.of(write_llama(path, DEPTH, kind=kind, tied=head == "tied"))


def test_llama_cpp_computes_the_plan_and_no_other(pair: Pair, tmp_path: Path) -> None:
    draw = random.Random(5)
    right, wrong = [], []
    for plan in plans(PLANS):
        for each, distances in ((plan, right), (with_a_wrong_slot(plan, draw), wrong)):
            save(pair.path, each, tmp_path / "plan.gguf", overwrite=True)
            distances.append(apart(pair.by_layerwise(plan), pair.by_llama_cpp(tmp_path / "plan.gguf")))
    assert max(right) <= BAR * pair.trained, f"{max(right):.2g} nats a token, and {pair.trained:.2g} as trained"
    assert min(wrong) > BAR * pair.trained


def test_llama_cpp_computes_layers_at_types(pair: Pair, tmp_path: Path) -> None:
    if not next(iter(GGUFFile.open(pair.path).tensors.values())).type.name.startswith("Q"):
        pytest.skip("where nothing is quantized llama.cpp rounds no activations, and there is no bar")
    draw = random.Random(7)
    right, wrong = [], []
    for _ in range(by_tier(fast=6, nightly=100)):
        types = [draw.choice(["Q4_0:", "Q5_0:", "Q8_0:", ""]) for _ in range(DEPTH)]
        for order, distances in ((types, right), (types[1:] + types[:1], wrong)):
            save(pair.path, _at(order), tmp_path / "plan.gguf", overwrite=True)
            distances.append(apart(pair.by_layerwise(_at(types)), pair.by_llama_cpp(tmp_path / "plan.gguf")))
    assert max(right) <= BAR * pair.trained
    assert min(wrong) > BAR * pair.trained


def _at(types: list[str]) -> Plan:
    return Plan.parse(" ".join(f"{kind}{layer}" for layer, kind in enumerate(types)))
