"""The kind of each block of a model, compared on the device `meta`, and a configuration that gives a plan its kinds."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from torch import nn

from layerwise.checkpoint.stored_config import INDEX_CODED, remade
from layerwise.data.auto_classes import on_meta
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.clone import INDEX_NAMES
from layerwise.stack.executors.config_view import configuration_in_order

Kind: TypeAlias = frozenset[tuple[str, ...]]
"""What a block consists of, as pairs and triples of texts that can be compared."""

MOST_DRAFTS = 2_000
"""Models that are drawn up on `meta`, at most, to find the values of one group of settings."""

# What modules keep that matters in training alone.
_NO_KIND = re.compile(r"^_|drop|^training$|^config$")


def positional_traits(blocks: Sequence[nn.Module]) -> frozenset[tuple[str, str]]:
    counting = [
        {
            (path, name)
            for path, module in block.named_modules()
            for name, value in vars(module).items()
            if type(value) is int and value in (position, position + 1)
        }
        for position, block in enumerate(blocks)
    ]
    return frozenset.intersection(*map(frozenset, counting)) if len(counting) > 1 else frozenset()


def kinds_of(blocks: Iterable[nn.Module], positional: frozenset[tuple[str, str]]) -> list[Kind]:
    return [frozenset(trait for trait in _traits(block) if trait[:2] not in positional) for block in blocks]


def _traits(block: nn.Module) -> Iterator[tuple[str, ...]]:
    for path, module in block.named_modules():
        if "drop" in path:
            continue
        yield path, type(module).__name__
        for name, value in vars(module).items():
            if name not in INDEX_NAMES and _NO_KIND.search(name) is None and _is_plain(value):
                yield path, name, repr(value)
    for name, tensor in (*block.named_parameters(), *block.named_buffers()):
        yield name, "shape", repr(tuple(tensor.shape))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def difference(wanted: Sequence[Kind], kinds: Sequence[Kind]) -> str | None:
    for slot, (want, have) in enumerate(zip(wanted, kinds, strict=True)):
        if want != have:
            first = min(want - have, default=None) or min(have - want)
            there = next((trait for trait in have if trait[:-1] == first[:-1]), None)
            what = " ".join(part for part in first[:-1] if part) or "the block"
            return f"in slot {slot}, {what} would be {there[-1] if there else 'missing'} instead of {first[-1]}"
    return None


def planned_config(model: Any, path: str, order: Sequence[int]) -> tuple[Any, list[Kind], frozenset[tuple[str, str]]]:
    """Return the configuration for the visits `order`, the kind of block of each, and the `positional` attributes.

    Index-coded settings are changed where the blocks need it: related groups (`attn_layer_period`, `attn_layer_offset`)
    one after another, then all together; ties keep the model's value, then the smallest. If nothing fits, all stay.
    """
    kind, blocks = type(model), list(block_list(model, path))
    positional = positional_traits(blocks)
    kinds = kinds_of(blocks, positional)
    wanted = [kinds[layer] for layer in order]
    config = remade(configuration_in_order(model, path, order, len(blocks)), type(model.config), order, len(blocks))

    def fit(trial: Any) -> int:
        with suppress(Exception):  # a class may refuse a configuration in any way
            kinds = kinds_of(block_list(on_meta(kind, trial), path), positional)
            return sum(len(want & have) for want, have in zip(wanted, kinds, strict=True))
        return -1

    most = sum(map(len, wanted))
    best, score = config, fit(config)
    groups = _groups(_owner(config))
    # One group after another, and where that leads nowhere all at once.
    for names in [*groups, [name for group in groups for name in group]] if score < most else ():
        domains = [_values(getattr(_owner(config), name), wanted, order) for name in names]
        for values in itertools.islice(itertools.product(*domains), MOST_DRAFTS):
            trial = copy.deepcopy(best)
            vars(_owner(trial)).update(zip(names, values, strict=True))
            if (now := fit(trial)) > score:
                best, score = trial, now
            if score == most:
                return best, wanted, positional
    return best if score == most else config, wanted, positional


def _owner(config: Any) -> Any:
    return config.get_text_config()


def _groups(config: Any) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in vars(config).items():
        numbers = value if isinstance(value, list | tuple) else [value]
        if INDEX_CODED.search(name) and all(type(each) is int for each in numbers):
            groups.setdefault(re.sub(r"_(period|offset|start\w*|end\w*)$", "", name), []).append(name)
    return list(groups.values())


def _values(own: Any, wanted: Sequence[Kind], order: Sequence[int]) -> list[Any]:
    slots = range(len(wanted))
    if type(own) is int:
        return [own, *(number for number in range(len(wanted) + 1) if number != own)]
    lists = [[slot for slot in slots if order[slot] in own], []]
    for kind in dict.fromkeys(wanted):
        lists.append([slot for slot in slots if wanted[slot] == kind])
        lists.append([slot for slot in slots if wanted[slot] != kind])
    return [type(own)(each) for each in lists]
