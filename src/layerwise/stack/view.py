"""A model's configuration as a plan sees it: every per-layer list in visit order, every layer count the plan's.

Models choose masks by position from lists such as `config.layer_types`, slice `layers[: config.num_hidden_layers]`, and
build their caches from the same configuration. While a plan is in place they must read the plan's order; the values
are changed in the configuration object itself, because a model's parts hold references to it, and put back on exit.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, cast

from torch import nn

# The names under which configurations count their layers.
_COUNTS = frozenset(
    {
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers", "decoder_layers",
        "num_encoder_layers", "num_decoder_layers",
    }
)  # fmt: skip

# Lists that number the layers one entry each; lists of layer *indices* (`..._ids`, `..._idxs`) are another thing.
_PER_LAYER = re.compile(r"layer|block|types|pattern|kv_source|intermediate_size")
_INDEX_LISTS = re.compile(r"(ids|idxs|indices|indexes)$")


@contextmanager
def visit_order(model: nn.Module, path: str, order: Sequence[int], depth: int) -> Iterator[None]:
    """Within the context, every configuration that describes the blocks at `path` is in visit order.

    `order` gives the layer of each visit, `depth` the number of layers the model was built with.
    """
    holders = _holders(model, path)
    # Both kinds are read before either is written: a computed list may have the length of a count that changes.
    values = [_reordered(vars(holder), path, order, depth) for holder in holders]
    computed = [_reordered_properties(holder, path, order, depth) for holder in holders]
    with ExitStack() as restore:
        for holder, changed, properties in zip(holders, values, computed, strict=True):
            home = vars(holder)
            for name in changed:
                restore.callback(home.__setitem__, name, home[name])
            home.update(changed)
            if properties:
                # A throw-away subclass answers with the list in visit order.
                kind = type(holder)
                restore.callback(setattr, holder, "__class__", kind)
                holder.__class__ = type(kind.__name__, (kind,), {**properties, "__module__": kind.__module__})
        yield


def _holders(model: nn.Module, path: str) -> list[Any]:
    """The blocks' owner, and every configuration held between the root and the blocks' own submodules."""
    owners = [model]
    for name in path.split(".")[:-1]:
        owners.append(owners[-1].get_submodule(name))
    found: dict[int, Any] = {id(owners[-1]): owners[-1]}
    for module in (*owners, *model.get_submodule(path).modules()):
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "__dict__"):
            found[id(config)] = config
    return list(found.values())


def _reordered_properties(holder: Any, path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """The per-layer lists that a configuration computes, in visit order."""
    if isinstance(holder, nn.Module):
        return {}
    per_layer = {name: getattr(holder, name, None) for name in _computed_per_layer(cast(Hashable, type(holder)))}
    return _reordered(per_layer, path, order, depth)


@cache
def _computed_per_layer(kind: Any) -> tuple[str, ...]:
    """The properties of a class of configurations that speak of layers."""
    names = (name for name in dir(kind) if isinstance(getattr(kind, name, None), property))
    return tuple(name for name in names if _PER_LAYER.search(name))


def _reordered(values: Mapping[str, Any], path: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    """Those of `values` that have to do with layers, as they should read while the plan is in place."""
    changed = {name: _in_order(name, value, path, order, depth) for name, value in values.items()}
    return {name: value for name, value in changed.items() if value is not None}


def _in_order(name: str, value: Any, path: str, order: Sequence[int], depth: int) -> Any | None:
    """What the attribute should read while the plan is in place, or `None` when it has nothing to do with layers."""
    if name in _COUNTS and type(value) is int and value == depth and not _other_side(name, path):
        return len(order)
    per_layer = isinstance(value, list | tuple) and len(value) == depth and not isinstance(value, str)
    if per_layer and _PER_LAYER.search(name) and not _INDEX_LISTS.search(name):
        return type(value)(value[layer] for layer in order)
    return None


def _other_side(name: str, path: str) -> bool:
    """Whether the count belongs to the other half of an encoder-decoder."""
    return ("encoder" in name and "decoder" in path) or ("decoder" in name and "encoder" in path)
