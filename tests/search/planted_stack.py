"""A stack with idle and harmful layers, and text sampled from it without the harmful ones."""

from collections.abc import Collection

from conftest import tiny_llama
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.stack import Stack, load
from measure.planted_models import own_text, planted


def planted_search(
    identity: Collection[int],
    harmful: Collection[int],
    *,
    depth: int,
    seed: int = 0,
    windows: int = 96,
    length: int = 16,
) -> tuple[Stack, EvalData]:
    model = planted(identity=[*identity, *harmful], depth=depth, seed=seed)
    text = own_text(load(model), windows=windows, length=length, seed=seed)
    noise = tiny_llama(depth=depth, seed=seed + 1000)
    for layer in harmful:
        model.model.layers[layer].load_state_dict(noise.model.layers[layer].state_dict())
    return load(model), text
