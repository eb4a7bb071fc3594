"""Tiny Llamas with a planted truth, and text drawn from a model's own predictions.

On its own text a model predicts best, so every layer that changes predictions is useful, and added noise is harmful.
"""

from collections.abc import Collection
from functools import cache

import torch
from transformers import LlamaForCausalLM

from conftest import tiny_llama
from layerwise.data.batches import make_batches
from layerwise.data.text.tokens import Window
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.stack import Stack, load

IDLE = 2
SHARPNESS = 4.0
"""Scale of the head: with a random head's flat predictions, no layer would matter."""


def planted(
    *, identity: Collection[int] = (), copies: Collection[int] = (), depth: int = 6, seed: int = 0
) -> LlamaForCausalLM:
    model = tiny_llama(depth=depth, seed=seed)
    with torch.no_grad():
        model.lm_head.weight *= SHARPNESS
        for layer in identity:
            silence(model, layer)
        for layer in sorted(copies):
            model.model.layers[layer].load_state_dict(model.model.layers[layer - 1].state_dict())
    return model


def silence(model: LlamaForCausalLM, layer: int) -> None:
    with torch.no_grad():
        model.model.layers[layer].self_attn.o_proj.weight.zero_()
        model.model.layers[layer].mlp.down_proj.weight.zero_()


def with_harm(
    layer: int, *, depth: int = 6, seed: int = 0, windows: int = 32, length: int = 16
) -> tuple[Stack, EvalData]:
    model = planted(identity=[layer], depth=depth, seed=seed)
    reading = own_text(load(model), windows=windows, length=length, seed=seed)
    noise = tiny_llama(depth=depth, seed=seed + 1000).model.layers[layer]
    model.model.layers[layer].load_state_dict(noise.state_dict())
    return load(model), reading


@cache
def idle_stack() -> Stack:
    return load(planted(identity=[IDLE]))


@cache
def idle_text() -> EvalData:
    return own_text(idle_stack())


def own_text(stack: Stack, *, windows: int = 32, length: int = 16, seed: int = 0, per_document: int = 1) -> EvalData:
    generator = torch.Generator().manual_seed(seed + 7)
    ids = torch.randint(3, 97, (windows, 1), generator=generator)
    with torch.no_grad():
        for _ in range(length - 1):
            logits = stack.model(ids, use_cache=False).logits[:, -1].float()
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
    cut = [
        Window(f"d{number // per_document}", "own", number % per_document, tuple(row.tolist()), 1, length)
        for number, row in enumerate(ids)
    ]
    return EvalData("own", f"{seed}", length, "next_token", make_batches(cut, 8 * length, 0))
