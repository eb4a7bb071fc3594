"""Adapt the per-layer settings of a model configuration to a plan.

Configurations have the number of layers (`num_hidden_layers`) and lists with one value per layer (`layer_types`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import takewhile
from typing import Any

COUNTS = frozenset(
    {
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "depth",
        "encoder_layers",
        "decoder_layers",
        "num_encoder_layers",
        "num_decoder_layers",
        "num_hidden_groups",
    }
)
"""Names of configuration entries that count layers."""

HOST_SETTINGS = re.compile(
    r"^_|version|architectures|label|vocab|token_id|problem_type|dropout|drop_|pdrop|use_cache|initializer|^dtype$"
    r"|classifier|finetuning_task|output_|return_dict|task_specific_params|tie_word_embeddings"
)
"""Entries that do not change what a layer computes. Models that exchange layers may differ in them."""

# Lists with one entry per layer, unlike lists of layer indices (`..._ids`, `..._idxs`).
_PER_LAYER = re.compile(r"layer|block|types|pattern|kv_source|kv_sharing|intermediate_size")
_INDEX_LISTS = re.compile(r"(ids|idxs|indices|indexes)$")

# The last layers may read keys and values of earlier ones: the first such layer, and their number.
_FIRST_READER, _READERS = "first_kv_shared_layer_idx", "num_kv_shared_layers"

PER_LAYER_WIDTH = "hidden_size_per_layer_input"
"""Width of the second input of each layer, computed for all layers at once (Gemma 3n, Gemma 4)."""


def in_visit_order(values: Mapping[str, Any], path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """Return the per-layer entries of a configuration for a model that runs the layers `order`.

    `path` is the module path of the original `depth` layers.

    >>> in_visit_order({"n_layer": 3, "layer_types": ["a", "b", "c"], "n_head": 3}, "h", (2, 0), 3)
    {'n_layer': 2, 'layer_types': ['c', 'a']}
    """
    # A standalone decoder may store its count under the encoder's name (BartForCausalLM).
    path = "" if values.get("is_encoder_decoder") is False else path
    changed = {name: _in_order(name, value, path, order, depth) for name, value in values.items()}
    return {name: value for name, value in changed.items() if value is not None}


def generation_in_order(values: Mapping[str, Any], path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """Renumber the layers in a generation configuration for a model that runs the layers `order`.

    An entry becomes None if all of its layers are skipped.

    >>> generation_in_order({"alignment_heads": [[1, 7], [2, 0]], "dola_layers": [0, 3]}, "decoder.", (2, 0, 2), 3)
    {'alignment_heads': [[0, 0], [2, 0]], 'dola_layers': [0, 3]}
    """
    changed: dict[str, Any] = {}
    heads, layers, early = (values.get(name) for name in ("alignment_heads", "dola_layers", "assistant_early_exit"))
    if isinstance(heads, list | tuple) and not _other_side("decoder", path):
        pairs = [each for each in heads if isinstance(each, list | tuple) and each]
        changed["alignment_heads"] = [[slot, *head] for layer, *head in pairs for slot in _slots(layer, order)] or None
    if isinstance(layers, list | tuple):
        changed["dola_layers"] = [
            each for each in map(partial(output_in_order, order), layers) if each is not None
        ] or None
    if type(early) is int:
        changed["assistant_early_exit"] = output_in_order(order, early)
    return changed


def _slots(layer: int, order: Sequence[int]) -> list[int]:
    return [slot for slot, visited in enumerate(order) if visited == layer]


def output_in_order(order: Sequence[int], count: int) -> int | None:
    """Return how many layers of `order` run up to the last run of layer `count - 1`, or None if it is skipped.

    >>> [output_in_order((0, 2, 1, 2), count) for count in (0, 1, 2, 3, 4)]
    [0, 1, 3, 4, None]
    """
    slots = _slots(count - 1, order)
    return 0 if count == 0 else slots[-1] + 1 if slots else None


def is_count(name: str, value: Any, path: str, depth: int) -> bool:
    return name in COUNTS and type(value) is int and value == depth and not _other_side(name, path)


@cache
def computed_per_layer(kind: Any) -> tuple[str, ...]:
    names = (name for name in dir(kind) if isinstance(getattr(kind, name, None), property))
    return tuple(name for name in names if _PER_LAYER.search(name))


def _in_order(name: str, value: Any, path: str, order: Sequence[int], depth: int) -> Any | None:
    if is_count(name, value, path, depth):
        return len(order)
    if name in (_FIRST_READER, _READERS) and type(value) is int:
        first = value if name == _FIRST_READER else depth - value
        readers = sum(1 for _ in takewhile(lambda layer: layer >= first, reversed(order)))
        return readers if name == _READERS else len(order) - readers
    per_layer = isinstance(value, list | tuple) and len(value) == depth
    if per_layer and _PER_LAYER.search(name) and not _INDEX_LISTS.search(name):
        return type(value)(value[layer] for layer in order)
    return None


def _other_side(name: str, path: str) -> bool:
    return ("encoder" in name and "decoder" in path) or ("decoder" in name and "encoder" in path)
