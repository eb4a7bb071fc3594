"""The names of a checkpoint's tensors, layer by layer: the first number of a name is its layer (not its expert)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from layerwise.errors import CheckpointError

_NUMBERED = re.compile(r"(?P<prefix>(?:[^.]*\.)*?)(?P<number>\d+)(?P<rest>\..*)?")


class UnresolvedNames(CheckpointError):
    """A checkpoint that cannot be taken apart on the disk, so that its model has to be built."""


@dataclass(frozen=True, slots=True)
class LayerNames:
    """The tensors of a stack: for each layer from what follows its number to the whole name, and all others.

    `behind` are those of layers which no plan reaches, since they predict further tokens.

    >>> names = LayerNames.of(["h.0.w", "h.1.w", "h.2.w", "wte"], "h.", 2)
    >>> names.layers, names.behind, names.others
    (({'.w': 'h.0.w'}, {'.w': 'h.1.w'}), ('h.2.w',), ('wte',))
    """

    prefix: str
    layers: tuple[Mapping[str, str], ...]
    others: tuple[str, ...]
    behind: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str], prefix: str, depth: int) -> LayerNames:
        layers: list[dict[str, str]] = [{} for _ in range(depth)]
        others, behind = [], []
        for name in names:
            match = _NUMBERED.fullmatch(name)
            if match is None or match["prefix"] != prefix:
                others.append(name)
            elif int(match["number"]) < depth:
                layers[int(match["number"])][match["rest"] or ""] = name
            else:
                behind.append(name)
        return cls(prefix, tuple(layers), tuple(others), tuple(behind))


def layer_groups(names: Iterable[str]) -> dict[str, int]:
    """The prefixes under which names are numbered from 0 without a gap, each with the count of its numbers.

    >>> layer_groups(["h.0.w", "h.1.w", "h.1.experts.0.w", "blocks.3.w"])
    {'h.': 2}
    """
    numbers: dict[str, set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            numbers.setdefault(match["prefix"], set()).add(int(match["number"]))
    return {prefix: len(group) for prefix, group in numbers.items() if group == set(range(len(group)))}


def stack_prefix(
    groups: Mapping[str, int], depths: Sequence[int], path: str | None, behind: int = 1
) -> tuple[str, int]:
    """Return the prefix of the one stack as deep as a configuration says (`depths`), and that depth.

    `path` is the module path of the blocks, if it is known. A stack may have up to `behind` more layers on the disk,
    which predict further tokens. Raises `UnresolvedNames` for none, and for several.
    """
    suits = [prefix for prefix in groups if path is None or _is_named(prefix, f"{path}.")]
    exact = [(prefix, groups[prefix]) for prefix in suits if groups[prefix] in depths]
    longer = [(prefix, depth) for prefix in suits for depth in depths if depth < groups[prefix] <= depth + behind]
    # Of a known path the depth is enough; otherwise a longer stack may be the one that is meant.
    chosen = exact or longer if path is not None else exact + longer
    if len(chosen) != 1:
        listing = ", ".join(f"{prefix}N ({count})" for prefix, count in groups.items()) or "no numbered names"
        raise UnresolvedNames(
            f"the stack of layers cannot be told from the names on the disk: {listing}, and the configuration counts "
            f"{', '.join(map(str, depths)) or 'none'}"
        )
    return chosen[0]


def _is_named(prefix: str, path: str) -> bool:
    # A model in memory may have its parts in another order: language_model.model.layers, model.language_model.layers.
    parts = [sorted(set(each.split(".")) - {"model"}) for each in (prefix, path)]
    return path.endswith(prefix) or prefix.endswith(path) or parts[0] == parts[1]


def unlike_layers(names: LayerNames, shapes: Mapping[str, object]) -> bool:
    """Whether the layers of a stack differ in what they consist of; `shapes` are those of the tensors by name."""
    first, *others = names.layers
    return any({r: shapes[n] for r, n in each.items()} != {r: shapes[n] for r, n in first.items()} for each in others)


def tensors_in_words(names: Iterable[str]) -> str:
    """List tensors for a message, those of numbered modules under one name.

    >>> tensors_in_words(["h.7.a.w", "h.7.b.w", "h.8.a.w", "mtp.fc.w"])
    '4 tensors (h.7.*, h.8.*, mtp.fc.w)'
    """
    names = list(names)
    matches = [(name, _NUMBERED.fullmatch(name)) for name in names]
    kinds = dict.fromkeys(f"{m['prefix']}{m['number']}.*" if m is not None else name for name, m in matches)
    listing = ", ".join([*kinds][:5]) + ", ..." * (len(kinds) > 5)
    return f"{len(names)} tensor{'s' * (len(names) > 1)} ({listing})" if names else ""
