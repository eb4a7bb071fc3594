"""What a configuration says layer by layer, in the order of a plan's visits.

Configurations count their layers (`num_hidden_layers`) and list what differs between them (`layer_types`, one entry a
layer). A model of the visits has as many layers as there are visits, and its lists are gathered in visit order.
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
"""The names under which configurations count their layers."""

OF_THE_HOST = re.compile(
    r"^_|version|architectures|label|vocab|token_id|problem_type|dropout|drop_|pdrop|use_cache|initializer|^dtype$"
    r"|classifier|finetuning_task|output_|return_dict|task_specific_params|tie_word_embeddings"
)
"""Entries of a configuration that no layer computes with: names, vocabularies, classes, and what only training reads.
Models may differ in them whose layers run in one another."""

# Lists that number the layers one entry each; lists of layer *indices* (`..._ids`, `..._idxs`) are another thing.
_PER_LAYER = re.compile(r"layer|block|types|pattern|kv_source|kv_sharing|intermediate_size")
_INDEX_LISTS = re.compile(r"(ids|idxs|indices|indexes)$")

# The last layers may read keys and values of earlier ones: which of them is the first, and how many there are.
_FIRST_READER, _READERS = "first_kv_shared_layer_idx", "num_kv_shared_layers"

WIDTH_OF_A_LAYER = "hidden_size_per_layer_input"
"""The name under which configurations keep the width of what every layer is handed beside the hidden state, where an
embedding or a projection computes it for all layers at once (Gemma 3n, Gemma 4)."""


def in_visit_order(values: Mapping[str, Any], path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """Those of `values` that have to do with the `depth` layers at `path`, as a model of the visits `order` has them.

    >>> in_visit_order({"n_layer": 3, "layer_types": ["a", "b", "c"], "n_head": 3}, "h", (2, 0), 3)
    {'n_layer': 2, 'layer_types': ['c', 'a']}
    """
    # A decoder alone, of a configuration with two sides, may take its count from the other side's (BartForCausalLM).
    path = "" if values.get("is_encoder_decoder") is False else path
    changed = {name: _in_order(name, value, path, order, depth) for name, value in values.items()}
    return {name: value for name, value in changed.items() if value is not None}


def generation_in_order(values: Mapping[str, Any], path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """Return the `values` of a generation configuration that number layers at `path`, as the visits number them.

    What is about skipped layers is left out; a value of which nothing is left is None.

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
    """Return after how many visits the hidden state after `count` layers is there, or None if the last is skipped.

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
