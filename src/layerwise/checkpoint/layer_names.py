"""Map tensor names to layers, and rewrite settings that refer to layers by name or number.

The first number in a tensor name is its layer, and later numbers are experts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, product
from typing import Any, Literal, NamedTuple

from layerwise.bounded import shown
from layerwise.errors import CheckpointError, UnsupportedModelError

_NUMBERED = re.compile(r"(?P<prefix>(?:[^.]*\.)*?)(?P<number>\d+)(?P<rest>\..*)?")


class UnresolvedNamesError(CheckpointError):
    """The tensors of the layers cannot be found in the files, so the model must be built in memory."""


@dataclass(frozen=True, slots=True)
class LayerNames:
    """Tensor names by layer. Each layer maps the part of a name after the layer number to the full name.

    `others` are the names outside the layers, and `behind` those of additional layers for multi-token prediction.

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
    """Map each prefix whose layers are numbered from 0 without gaps to the number of layers.

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
    """Return the prefix and depth of the only group of layers whose depth is in `depths`.

    `path` is the module path of the blocks, if known. A group may have up to `behind` additional layers for multi-token
    prediction. Raises `UnresolvedNamesError` if no group fits, or several do.
    """
    suits = [prefix for prefix in groups if path is None or _is_named(prefix, f"{path}.")]
    exact = [(prefix, groups[prefix]) for prefix in suits if groups[prefix] in depths]
    longer = [(prefix, depth) for prefix in suits for depth in depths if depth < groups[prefix] <= depth + behind]
    # With a path the depth is enough; otherwise a longer stack may be the right one.
    stacks = exact or longer if path is not None else exact + longer
    if len(stacks) != 1:
        listing = ", ".join(f"{prefix}N ({count})" for prefix, count in groups.items()) or "none are numbered"
        raise UnresolvedNamesError(
            f"layerwise cannot tell which tensors belong to the layers. Groups in the tensor names: {listing}. Numbers "
            f"of layers in the configuration: {', '.join(map(str, depths)) or 'none'}"
        )
    return stacks[0]


def _is_named(prefix: str, path: str) -> bool:
    # The order of parts may differ: language_model.model.layers, model.language_model.layers.
    parts = [sorted(set(each.split(".")) - {"model"}) for each in (prefix, path)]
    return path.endswith(prefix) or prefix.endswith(path) or parts[0] == parts[1]


def unlike_layers(names: LayerNames, shapes: Mapping[str, object]) -> bool:
    first, *others = names.layers
    return any({r: shapes[n] for r, n in each.items()} != {r: shapes[n] for r, n in first.items()} for each in others)


def tensors_in_words(names: Iterable[str]) -> str:
    """Format tensor names for a message, with one entry per numbered module.

    >>> tensors_in_words(["h.7.a.w", "h.7.b.w", "h.8.a.w", "mtp.fc.w"])
    '4 tensors (h.7.*, h.8.*, mtp.fc.w)'
    """
    names = list(names)
    matches = [(name, _NUMBERED.fullmatch(name)) for name in names]
    kinds = dict.fromkeys(f"{m['prefix']}{m['number']}.*" if m is not None else name for name, m in matches)
    listing = ", ".join([*kinds][:5]) + ", ..." * (len(kinds) > 5)
    return f"{len(names)} tensor{'s' * (len(names) > 1)} ({listing})" if names else ""


_QUANTIZATION = ("quantization_config", "compression_config")

# Prefixes that other libraries, or the model in memory, add to stored names.
_HOMES = ("", "model.", "model.language_model.", "language_model.model.", "transformer.")
_MARKED = re.compile(r"(re:|[+-]:)?(.*)", re.DOTALL)
_EXPRESSION = re.compile(r"[\\^$|+()*?\[\]]")
_NUMBER = re.compile(r"(?<![\w\\{,])\d{1,5}(?![\w}])")


class _Matcher(NamedTuple):
    matches: Callable[[str], object]
    kind: Literal["name", "glob", "expression"]


class LayerPatterns:
    """Rewrites settings that refer to the layers under `prefix`, so that they fit the layers in `order`.

    Quantizers refer to modules by full names, parts of names, globs and regular expressions (`re:`, GPTQ's `+:` and
    `-:`).
    """

    def __init__(self, tensors: Iterable[str], prefix: str, order: Sequence[int], depth: int) -> None:
        self.prefix, self.order, self.depth = prefix, tuple(order), depth
        self.count = max(depth, len(order))
        self.slots = {layer: [slot for slot, each in enumerate(order) if each == layer] for layer in range(depth)}
        names = LayerNames.of(tensors, prefix, depth)
        self.inside = sorted({path for each in names.layers for rest in each for path in _paths(rest.lstrip("."))})
        self.outside = sorted({path for name in names.others for path in _paths(name)} - {""})
        self.stacks = layer_groups(names.others).keys()
        last = prefix.rstrip(".").rpartition(".")[2]
        homes = dict.fromkeys([prefix, *(f"{home}{last}." for home in _HOMES)])
        self.prefixes = [each for each in homes if each not in self.stacks]
        self.name = re.compile(rf"((?:.*\.)?{re.escape(last)}\.)(\d+)((?:\..*)?)", re.DOTALL)

    def rewrite_config(self, text: str) -> str:
        settings = json.loads(text)
        rewritten = settings if self.order == tuple(range(self.depth)) else self.rewrite(settings)
        return text if rewritten == settings else json.dumps(rewritten, indent=2, sort_keys=True) + "\n"

    def rewrite(self, value: Any, key: str = "", quantization: bool = False) -> Any:
        """Rewrite `value`, the content of the setting `key`.

        Layer numbers and per-layer entries are only rewritten in the settings of a quantizer. Raises
        `UnsupportedModelError` for a pattern that cannot be rewritten.
        """
        quantization |= key in _QUANTIZATION
        of_layers = quantization and "layer" in key
        if isinstance(value, dict):
            if of_layers and value and all(map(str.isdecimal, value)):
                return {str(slot): value[str(layer)] for slot, layer in enumerate(self.order) if str(layer) in value}
            pairs = [(name, self.rewrite(each, name, quantization)) for name, each in value.items()]
            return {new: each for name, each in pairs for new in self.rewrite_text(name)}
        if isinstance(value, str) and quantization:
            texts = self.rewrite_text(value)
            if len(texts) != 1:
                raise UnsupportedModelError(
                    f"{shown(value)} ({key} in the quantization of config.json) treats layers differently and cannot "
                    "be rewritten for the plan as one pattern; write a list of names"
                )
            return texts[0]
        if not isinstance(value, list):
            return value
        if of_layers and all(type(each) is int for each in value):
            if len(value) == self.depth:
                return [value[layer] for layer in self.order]
            return [slot for slot, layer in enumerate(self.order) if layer in value]
        listed = [self.rewrite_text(each) if isinstance(each, str) else [self.rewrite(each)] for each in value]
        return [each for several in listed for each in several]

    def rewrite_text(self, text: str) -> list[str]:
        named = None if _EXPRESSION.search(text) or text.startswith("re:") else self.name.fullmatch(text)
        if named is not None:
            return list(self._renamed(named))
        matcher = self._matcher(text)
        if matcher is None or not self._depends_on_layer(matcher, text):
            return [text]
        same = (new for new in self._renumber(text, matcher) if self._selects_the_same(matcher, new))
        return next(same, None) or list(self._list_names(text, matcher))

    def _renamed(self, named: re.Match[str]) -> Iterator[str]:
        home, layer, rest = named[1], int(named[2]), named[3]
        others = [] if home == self.prefix else [each for each in self.stacks if f".{each}".endswith(f".{home}")]
        if home in self.prefixes or f".{self.prefix}".endswith(f".{home}") or not others:
            # With the full prefix if the text matches modules of two stacks.
            yield from (f"{self.prefix if others else home}{slot}{rest}" for slot in self.slots.get(layer, ()))
        yield from (f"{each}{layer}{rest}" for each in others)

    def _matcher(self, text: str) -> _Matcher | None:
        mark, body = _MARKED.fullmatch(text).groups()  # type: ignore[union-attr]
        if not mark and _EXPRESSION.search(text) is None:
            part = re.escape(text.strip(".")) + r"(?!\d)"
            is_path = re.search(r"\.", text) and re.search(r"\d", text) and re.search(r"[a-z]|^\.", text)
            return _Matcher(re.compile(rf"(?:.*\.)?{part}").match, "name") if is_path else None
        if not mark:
            glob = _Matcher(lambda name: fnmatchcase(name, text), "glob")
            if any(map(glob.matches, chain(self.outside, self._grid(range(self.count))))):
                return glob
        try:
            return _Matcher(re.compile(body).match, "expression")
        except (re.error, RecursionError, OverflowError):
            return None

    def _grid(self, numbers: Iterable[int], inside: Sequence[str] | None = None) -> Iterator[str]:
        parts = product(self.prefixes, self.inside if inside is None else inside, numbers)
        return (f"{prefix}{number}{rest and '.'}{rest}" for prefix, rest, number in parts)

    def _depends_on_layer(self, matcher: _Matcher, text: str) -> bool:
        experts = {"0", "1", *re.findall(r"\d+", text)}  # a few of many experts suffice
        inside = [rest for rest in self.inside if set(re.findall(r"\d+", rest)) <= experts]
        selected = [bool(matcher.matches(name)) for name in self._grid(range(self.count), inside)]
        return any(len(set(selected[at : at + self.count])) > 1 for at in range(0, len(selected), self.count))

    def _renumber(self, text: str, matcher: _Matcher) -> Iterator[list[str]]:
        numbers = [each for each in _NUMBER.finditer(text) if int(each[0]) < self.depth]
        for number in numbers:
            slots = self.slots[int(number[0])]
            yield [f"{text[: number.start()]}{slot}{text[number.end() :]}" for slot in slots]
        if matcher.kind == "expression":
            yield [_NUMBER.sub(self._slot_alternatives, text)]

    def _slot_alternatives(self, number: re.Match[str]) -> str:
        if int(number[0]) not in self.slots:
            return number[0]
        slots = map(str, self.slots[int(number[0])])
        return f"(?:{'|'.join(slots) or '(?!)'})"

    def _selects_the_same(self, matcher: _Matcher, texts: Sequence[str]) -> bool:
        new = [each for each in map(self._matcher, texts) if each is not None and each.kind == matcher.kind]
        pairs = zip(self._grid(self.order), self._grid(range(len(self.order))), strict=True)
        return len(new) == len(texts) and all(
            bool(matcher.matches(before)) == any(each.matches(after) for each in new)
            for before, after in chain(pairs, zip(self.outside, self.outside, strict=True))
        )

    def _list_names(self, text: str, matcher: _Matcher) -> Iterator[str]:
        names: list[str] = []
        for prefix, (slot, layer) in product(self.prefixes, enumerate(self.order)):
            if slot == 0 and names:
                break  # only the first matching prefix
            matched = [rest for rest in self.inside if matcher.matches(f"{prefix}{layer}{rest and '.'}{rest}")]
            names += [f"{prefix}{slot}{rest and '.'}{rest}" for rest in matched]
        names += filter(matcher.matches, self.outside)
        if matcher.kind != "expression":
            yield from names
        elif names:
            mark = _MARKED.fullmatch(text)[1] or ""  # type: ignore[index]
            yield f"{mark}(?:{'|'.join(map(re.escape, names))})$"


def _paths(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name
    yield ""
